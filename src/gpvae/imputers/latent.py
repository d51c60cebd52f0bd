"""The GP-VAE as a trained method: its objective, validation, calibration, and draws for missing cells."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from gpvae.data.batches import Batch, BatchIndex, RowTensors, series_by_length
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.schema import Schema
from gpvae.gp import Chain
from gpvae.imputers.accumulator import SampleAccumulator
from gpvae.imputers.base import Prediction
from gpvae.imputers.calibration import Validation, calibrate
from gpvae.imputers.held_out import HeldOut
from gpvae.imputers.neural import NUMBERS_AT_ONCE, Method
from gpvae.models.calibration import Calibration
from gpvae.models.config import ModelConfig
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.inputs import Frames
from gpvae.models.likelihoods import Params
from gpvae.models.likelihoods.sampling import Streams, normal_series
from gpvae.training.devices import tensor_cores
from gpvae.training.masking import Masking
from gpvae.training.objective import BoundObjective
from gpvae.training.recipe import Recipe
from gpvae.training.seeds import series_generator

# So many numbers of a series' paths are drawn together, and values of rows that take so many. Fixed, because random
# numbers depend on it; on how much is decoded at a time they do not.
PATH_NUMBERS = {"cpu": 2**24, "cuda": 2**26}
BLOCK_NUMBERS = 2**23
FAST = 10  # how much faster than the networks a kernel's parameters learn, and the like
MIXUP_MIN_SHARE = 0.5  # of a table that must be observed: of two sparse series too little is left to mix


@dataclass(frozen=True)
class Resolved:
    """What the data decided: saved with the model, and what it is built from again."""

    model: ModelConfig
    masking: Masking | None
    mixup: bool  # whether series of this data may be mixed


class Decoded(NamedTuple):
    """Posterior samples of rows with gaps, decoded."""

    rows: NDArray[np.int64]  # of the panel
    samples: slice  # which of the samples these are
    params: Params  # of (sample, row, feature), calibrated
    random: Streams


class LatentMethod(Method):
    """A `GPVAEModel` with resolved settings, and its calibration."""

    network: GPVAEModel

    def __init__(self, resolved: Resolved, schema: Schema, recipe: Recipe, *, slow_kl: bool = False):
        scaling = schema.scaling
        network = resolved.model.build(scaling.kinds, [len(levels) for levels in scaling.levels])
        super().__init__(network, schema, recipe)
        self.resolved, self._slow_kl = resolved, slow_kl
        self.calibration = Calibration.identity(len(network.likelihood.real_columns()))

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.calibration = self.calibration.to(device)

    @property
    def slow_kl(self) -> bool:
        return self._slow_kl

    def objective(self, rows: RowTensors, *, compile: bool) -> nn.Module:
        self.network.likelihood.init_from_data(rows.values, rows.observed)
        return self._objective(rows, self.resolved.masking, compile=compile)

    def alternative(self, rows: RowTensors, *, batch_size: int, compile: bool) -> nn.Module | None:
        """With mixup, where series can be mixed: on even steps, with more than one in a batch."""
        masking, share = self.resolved.masking, self.recipe.fork_mixup
        if masking is None or not share or not self.resolved.mixup or rows.spacing is None or batch_size < 2:
            return None
        return self._objective(rows, replace(masking, mixup=share), compile=compile)

    def _objective(self, rows: RowTensors, masking: Masking | None, *, compile: bool) -> BoundObjective:
        settings = self.resolved.model.objective
        return BoundObjective(self.network, rows, settings, masking, longest=self.recipe.window, compile=compile)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The networks; the few parameters that learn faster; and, for Muon, the matrices of dense layers."""
        fast = self.network.fast_parameters()
        dense = [layer.weight for layer in self.network.modules() if isinstance(layer, nn.Linear)]
        matrices = dense if self.recipe.optimizer == "muon" else []
        apart = {id(parameter) for parameter in [*fast, *matrices]}
        networks = [parameter for parameter in self.network.parameters() if id(parameter) not in apart]
        groups = [{"params": networks}, {"params": fast, "lr": FAST * self.recipe.learning_rate}]
        return [*groups, {"params": matrices, "matrices": True}] if matrices else groups

    def score(self, held_out: HeldOut) -> float:
        return self._validation(held_out).score()

    def calibrate(self, held_out: HeldOut) -> None:
        self.calibration = calibrate(self._validation(held_out))

    def _validation(self, held_out: HeldOut) -> Validation:
        return Validation(self.network, held_out, self.rows_at_once)

    @property
    def rows_at_once(self) -> int:
        """How many time steps to decode in one go."""
        return max(1, NUMBERS_AT_ONCE[self.device.type] // self.network.widest)

    def decode(self, z: Tensor, context: Tensor) -> Params:
        """The calibrated parameters of values that are known to be missing."""
        likelihood = self.network.likelihood
        params = likelihood.given_missing(self.network.decode(z, context))
        return self.calibration.apply(likelihood, params, context)

    @torch.no_grad()
    def predict(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        counts = missing.sum(axis=1)
        first = np.cumsum(counts) - counts  # the first missing cell of each row
        accumulator = SampleAccumulator(np.nonzero(missing)[1], samples, self.schema.scaling)
        likelihood = self.network.likelihood
        for rows, chosen, params, random in self.decoded(panel, samples, seed):
            gaps = torch.from_numpy(np.flatnonzero(missing[rows])).to(self.device)
            accumulator.add(
                spans(first[rows], counts[rows]),
                chosen,
                mean=likelihood.mean(params).flatten(1)[:, gaps],
                variance=likelihood.variance(params).flatten(1)[:, gaps],
                draws=likelihood.sample(params, random).flatten(1)[:, gaps],
            )
        return Prediction(*accumulator.moments(), accumulator.draws)

    @torch.no_grad()
    def log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        """Of the mixture over the samples."""
        total = np.full(scaled.shape, -np.inf)
        for rows, _, params, _ in self.decoded(panel, samples, seed):
            values = torch.from_numpy(scaled[rows]).to(self.device)
            log_prob = self.network.likelihood.log_prob(params, values).double()
            total[rows] = np.logaddexp(total[rows], log_prob.logsumexp(0).cpu().numpy())
        return total - math.log(samples)

    def decoded(self, panel: Panel, samples: int, seed: int) -> Iterator[Decoded]:
        """Posterior paths of all series, decoded where rows have gaps, in chunks that fit memory.

        Of long series paths are drawn some at a time; draws are stratified among those that are drawn together. How
        many, and the random numbers, depend on the series alone.
        """
        rows = self.schema.rows(panel, panel.observed, self.device)
        with tensor_cores(self.device):
            for series in series_by_length(panel, max(1, self.rows_at_once // samples)):
                index = np.concatenate([np.arange(each.start, each.start + each.length) for each in series])
                gaps: Bools = np.logical_not(panel.observed[index].all(axis=-1))
                batch = rows.batch(BatchIndex.of(series, self.device))
                generators = partial(self._generators, seed, [panel.id_at(each.start) for each in series])
                yield from self._decoded_batch(batch, index, gaps, samples, generators)

    def _decoded_batch(
        self, batch: Batch, index: NDArray[np.int64], gaps: Bools, samples: int, generators: "Generators"
    ) -> Iterator[Decoded]:
        """`index`: the panel's rows that the batch holds, in its order; `gaps`: those to decode."""
        posterior, context = self.network.encode(batch)
        lengths = batch.lengths.tolist()
        places = batch.valid.flatten().nonzero().squeeze(-1)[torch.from_numpy(gaps).to(self.device)]
        context, index = context.flatten(0, 1)[places], index[gaps]
        counts = [int(each.sum()) for each in np.split(gaps, np.cumsum(lengths)[:-1])]
        paths = max(1, PATH_NUMBERS[self.device.type] // (max(lengths) * self.network.latent_dim))
        for first in range(0, samples, paths):
            chosen = slice(first, min(first + paths, samples))
            count = chosen.stop - first
            whole = Streams(generators([(i, first) for i in range(len(lengths))]), [1] * len(lengths), 1)
            z = sample_paths(posterior, batch, count, whole).flatten(1, 2)[:, places]
            size = max(1, BLOCK_NUMBERS // (count * self.network.widest))
            for blocks in _chunks(_blocks(counts, size), max(1, self.rows_at_once // count)):
                at = slice(blocks[0].start, blocks[-1].stop)
                places_of_noise = [(block.series, first, block.number) for block in blocks]
                streams = Streams(generators(places_of_noise), [block.stop - block.start for block in blocks], 1)
                yield Decoded(index[at], chosen, self.decode(z[:, at], context[at]), streams)

    def _generators(self, seed: int, ids: list[Any], places: list[tuple[int, ...]]) -> list[Generator]:
        """Of series of a batch; a place is the number of a series, and where in it."""
        return [series_generator(seed, ids[i], *place, device=self.device) for i, *place in places]

    def tensors(self) -> dict[str, Tensor]:
        calibration = {f"calibration.{name}": value for name, value in vars(self.calibration).items()}
        return {**{f"network.{name}": value for name, value in super().tensors().items()}, **calibration}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        super().load_tensors(_without_prefix(tensors, "network."))
        saved, shapes = _without_prefix(tensors, "calibration."), vars(self.calibration)
        if {name: value.shape for name, value in saved.items()} != {name: x.shape for name, x in shapes.items()}:
            raise ValueError("its calibration does not fit its columns")
        self.calibration = Calibration(**saved)


def resolve(
    model: ModelConfig, recipe: Recipe, schema: Schema, share_observed: float, *, standardised: bool = True
) -> Resolved:
    """Decide what the data decides."""
    masking = None if recipe.masking is None else recipe.masking.resolve(share_observed)
    numbers = {*schema.scaling.kinds} <= {"real", "positive"} and standardised and model.likelihood.standardises
    mixup = numbers and share_observed >= MIXUP_MIN_SHARE and not isinstance(model.inputs, Frames)
    return Resolved(model.resolve(len(schema.columns), share_observed), masking, mixup)


Generators = Callable[[list[tuple[int, ...]]], list[Generator]]


class _Block(NamedTuple):
    """Rows with gaps of one series, whose noise is drawn together: so many, whatever the batch."""

    series: int
    number: int
    start: int  # among the rows with gaps of the batch
    stop: int


def _blocks(counts: list[int], size: int) -> list[_Block]:
    """`counts`: rows with gaps of each series."""
    ends = np.cumsum(counts).tolist()
    return [
        _Block(i, number, start, min(start + size, end))
        for i, (count, end) in enumerate(zip(counts, ends, strict=True))
        for number, start in enumerate(range(end - count, end, size))
    ]


def _chunks(blocks: list[_Block], rows: int) -> Iterator[list[_Block]]:
    """At most so many rows, or one block."""
    first = 0
    for i in range(1, len(blocks) + 1):
        if i == len(blocks) or blocks[i].stop - blocks[first].start > rows:
            yield blocks[first:i]
            first = i


def sample_paths(posterior: Chain, batch: Batch, samples: int, streams: Streams) -> Tensor:
    """Paths of the latent series; the padding after a series does not reach it. (sample, batch, time, latent)"""
    ending = replace(posterior, corr=posterior.corr * batch.valid[:, 1:].unsqueeze(-1))
    like = posterior.mean.new_empty((samples, *posterior.mean.shape))
    return ending.sample(normal_series(like, batch.lengths, streams))


def spans(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, … of each span, one after the other."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


def _without_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
