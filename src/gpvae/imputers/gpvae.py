"""The GP-VAE as an imputer; the VAE and HI-VAE are settings of it."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpvae.data.batches import BatchIndex, PredictionWindow, RowTensors, series_by_length, series_windows
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import CLASSES, Kinds, Scaling, class_columns, kinds_from_plain, kinds_to_plain
from gpvae.data.schema import Schema
from gpvae.imputers.base import Prediction
from gpvae.imputers.calibration import Judge
from gpvae.imputers.neural import NUMBERS_AT_ONCE, Exam, StepLoss, Trained, rows_of
from gpvae.models.model import PLAIN, Ingredients, LatentModel, Loss, ModelConfig
from gpvae.training.loop import compiled, step_generator, tensor_cores

# Without time: each step for itself, under a standard normal prior. The encoder sees zeros where values are missing.
HI_VAE = replace(
    PLAIN,
    neighbours=0,
    jitter=1e-6,
    learn_kernel=False,
    posterior="diagonal",
    encoder_window=1,
    see_observed=False,
    see_times=False,
)
VAE = replace(HI_VAE, score_missing=True)


class Latents(NamedTuple):
    """What the encoder makes of the rows of a panel."""

    mean: NDArray[np.float32]  # (row, latent)
    std: NDArray[np.float32]  # (row, latent)


Steps = Literal["muon", "adam"]
WARM_UP = 1000  # steps, at least, of a β that is left to us
LAGS = np.geomspace(1e-3, 1e5, 4000)  # in steps; where to look for a length scale


@dataclass(eq=False, repr=False)
class GPVAE(Trained):
    """Fill the gaps of multivariate time series, with uncertainty, by a VAE with a Gaussian-process latent space.

        filled = GPVAE().fit(data).impute(data)

    `data` is a Panel, an array (series, time, feature) or (time, feature), a list of arrays, or a data frame;
    NaN or null = missing.

    model: what the model is; `gpvae.paper` has the paper's own settings, `gpvae.VAE` and `gpvae.HI_VAE` are the models
        without time that it compares with.
    kinds: of columns that are not real numbers, by name: "positive", "count", "binary", "categorical", "ordinal", or,
        for text with an order, the list of its levels. What is filled in is of that kind.
    epochs: passes over the data; None: enough for 10,000 steps, at least 40, at most 800, or 200 if the data is small;
        without `anneal`, enough for 3,000 steps, at least 40.
    batch_size: windows, or series, in a step; None: a fiftieth of them, between 16 and 64.
    window: series longer than this are trained on in windows of so many steps. They are imputed whole.
    warm_up: share of the epochs over which the weight of the KL rises from near 0 to β; over 1,000 steps at least where
        `model.beta` is None and no `patience` waits for it, so that in short runs it stays below: latent series have to
        find a use first.
    optimizer: "muon", whose steps change all directions of a matrix alike (see `gpvae.training.muon`), or "adam".
    learning_rate: of both; 0.001 is usual for Adam. Narrow networks that take only some hundred steps want more.
    anneal: let the learning rate rise over the first twentieth of the epochs, and fall to nearly 0 in the last 40 %;
        the last weights are kept, unless `patience` is given or the model hides nothing in training. Where held-out
        cells are predicted hardly any better between 30 and 50 % of the epochs, and there are enough of those to tell,
        training goes through the rest of them twice: as planned, and with mixtures of series (`ModelConfig.mix`), a
        learning rate that stays and weights averaged over the last 35 %. Held-out cells tell which to take.
    validation: share of the observed cells that is kept from training: they choose the epoch whose weights are kept or,
        with `anneal`, say whether series are to be mixed, and they set the noise level; 0 for none.
    patience: epochs behind the warm-up without a better validation score before training stops, with the best weights;
        None: a fifth of the epochs, or, with `anneal`, never: most is gained when the learning rate is low.
    standardise: scale columns to zero mean and unit deviation for the model (undone in what it returns). Never done
        for a Bernoulli likelihood.
    precision: "32-true" or "bf16-mixed".
    device: "auto", "cpu" or "cuda".
    verbose: show a progress bar, or in a log lines.
    """

    gives_distributions: ClassVar[bool] = True
    model: ModelConfig = ModelConfig()
    _: KW_ONLY
    kinds: Kinds | None = None
    warm_up: float = 0.25
    optimizer: Steps = "muon"
    learning_rate: float = 3e-3
    anneal: bool = True
    model_: LatentModel = field(init=False)

    def _read(self, data: Any) -> Panel:
        return Panel.of(data, categories=class_columns(self.kinds))

    def _settings_that_make_sense(self) -> dict[str, tuple[bool, str]]:
        if not isinstance(self.model, ModelConfig):
            raise TypeError(f"model is a ModelConfig, not {self.model!r}; presets are used as GPVAE(**paper.PHYSIONET)")
        if self.kinds is not None and not isinstance(self.kinds, Mapping):
            raise TypeError(f"kinds names columns and their kinds, as {{'rain': 'positive'}}, not {self.kinds!r}")
        if self.model.missing_by_value and self.validation:
            raise ValueError("missing_by_value needs validation=0.0: cells held out would pass for missing ones")
        return super()._settings_that_make_sense() | {
            "warm_up": (0 <= self.warm_up <= 1, "between 0 and 1"),
            "optimizer": (self.optimizer in get_args(Steps), " or ".join(get_args(Steps))),
        }

    def _new_schema(self, panel: Panel) -> Schema:
        self._require_fitting_values(panel)
        standardise = self.standardise and self.model.likelihood != "bernoulli"
        return Schema.of(panel, standardise=standardise, kinds=self.kinds)

    def _new_network(self, schema: Schema) -> LatentModel:
        scaling = schema.scaling
        return LatentModel(self.model, len(schema.columns), scaling.kinds, [len(each) for each in scaling.levels])

    def _groups(self, network: LatentModel) -> list[dict[str, Any]]:
        return network.parameter_groups(self.learning_rate, matrices=self.optimizer == "muon")

    def _before(self, network: LatentModel, exam: Exam) -> None:
        network.meet(exam.rows.values, exam.rows.observed)

    @property
    def keeps_last(self) -> bool:
        """While the learning rate is high, a better score than the last is luck; unless nothing is hidden in training,
        which then learns to copy, or somebody has the patience to wait for a better one.
        """
        return self.anneal and self.patience is None and self.model.hidden_shares[1] > 0

    def _warm_up(self, epochs: int, steps_per_epoch: int) -> int:
        asked = round(self.warm_up * epochs)
        ours = self.model.beta is None and self.warm_up > 0 and self.keeps_last  # patience waits for its end
        return max(asked, math.ceil(WARM_UP / steps_per_epoch)) if ours else asked

    def _loss(self, network: LatentModel, rows: RowTensors, *, compile: bool) -> StepLoss:
        # On a grid, a prior that is not learned is the same for all batches.
        fixed = None if network.prior.learned or rows.spacing is None else rows.spacing
        known = None if fixed is None else network.prior.at(fixed, steps=self.window)

        def bound(cut: BatchIndex, given: Ingredients, warmth: Tensor) -> Loss:
            return network.bound(rows.batch(cut), given, warmth)

        chosen_bound = compiled(bound) if compile else bound

        def loss(cut: BatchIndex, generator: torch.Generator, warmth: Tensor) -> Loss:
            given = network.ingredients(rows.times_of(cut), (len(cut.starts), cut.time), generator, known)
            return chosen_bound(cut, given, warmth)

        return loss

    def _score(self, network: LatentModel, exam: Exam) -> float:
        return Judge(network, exam, _rows_at_once(network)).score()

    def _harder(self, network: LatentModel, rows: RowTensors, series: int) -> Callable[[bool], None] | None:
        return network.mix if self.standardise and network.can_mix(series, even=rows.spacing is not None) else None

    def _afterwards(self, network: LatentModel, exam: Exam) -> None:
        Judge(network, exam, _rows_at_once(network)).set_noise()

    @torch.no_grad()
    def reconstruct(self, data: Any, *, samples: int = 0, seed: int = 0) -> tuple[Floats, Floats]:
        """Mean and deviation of every cell of the model's columns, observed or not, as if missing. (row, feature)

        Of decoded samples of the latent series, noise included; without samples, what the mean of the latent series
        decodes to, with the deviation of the noise alone.
        """
        if samples < 0:
            raise ValueError(f"the number of samples must be 0 or more, not {samples}")
        panel = self._own(data)
        scaling, network = self.schema_.scaling, self.model_
        if any(kind != "real" for kind in scaling.kinds):
            raise DataError("only columns of real numbers can be reconstructed; impute fills those of other kinds")
        mean, std = (np.empty(panel.values.shape, dtype=np.float32) for _ in range(2))
        parts = _whole(panel)
        steps = max(1, _rows_at_once(network) // max(1, samples))
        for rows, keep, batch, generator in self._batches_of(panel, parts, steps, seed):
            posterior, context = network.encode(batch)
            shape = (samples, *posterior.mean.shape)
            noise = torch.randn(shape, generator=generator, device=generator.device)
            z = posterior.sample(noise) if samples else posterior.mean.unsqueeze(0)
            decoded = network.decode_missing(z.flatten(1, 2)[:, keep], context.flatten(0, 1)[keep])
            means, variance = network.likelihood.mean(decoded), network.likelihood.variance(decoded)
            mean[rows] = means.mean(0).cpu().numpy()
            std[rows] = (means.var(0, correction=0) + variance.mean(0)).sqrt().cpu().numpy()
        return scaling.shift + scaling.scale * mean, scaling.scale * std

    @torch.no_grad()
    def latents(self, data: Any) -> Latents:
        """Posterior mean and deviation of the latent series, for every row."""
        panel, network = self._own(data), self.model_
        found = Latents(*(np.empty((len(panel.values), network.latent_dim), dtype=np.float32) for _ in range(2)))
        for rows, keep, batch, _ in self._batches_of(panel, _whole(panel), _rows_at_once(network), seed=0):
            posterior = network.encode(batch).posterior
            found.mean[rows] = posterior.mean.flatten(0, 1)[keep].float().cpu().numpy()
            found.std[rows] = posterior.std.flatten(0, 1)[keep].float().cpu().numpy()
        return found

    @torch.no_grad()
    def length_scales(self) -> Floats:
        """The time in which the prior's correlation falls to ½ (a Cauchy kernel's length scale). (latent,)

        In the units of the panel's times: seconds, where those are dates. Infinite where it never does, 0 without time.
        """
        prior = self.model_.prior
        if not prior.neighbours:
            return np.zeros(self.model_.latent_dim)
        lags = torch.from_numpy(np.concatenate([[0.0], LAGS])).to(self._device)
        covariance = prior.kernel(lags).cpu().numpy()  # (group, lag)
        fallen = covariance[:, 1:] <= covariance[:, :1] / 2
        scales = np.where(fallen.any(axis=1), LAGS[fallen.argmax(axis=1)], np.inf) * self.schema_.time_unit
        return scales[prior.kernel.group.cpu().numpy()]

    @torch.no_grad()
    def influence(self, data: Any) -> Floats:
        """How much each latent series matters to each column. (latent + 2, column)

        That is how far the decoded mean moves, root mean square, in deviations of the column's values, when the latent
        is held at its average. The last two rows are those of all latents together, and of the nearest visible values
        that the decoder may see. NaN for classes, which have no mean, and for columns that do not vary here.
        """
        panel, network, scaling = self._own(data), self.model_, self.schema_.scaling
        z, context = (torch.cat(parts) for parts in zip(*self._encoded(panel), strict=True))
        usual, average = self._decoded_mean(z, context), z.mean(0, keepdim=True)
        each = torch.eye(network.latent_dim, dtype=torch.bool, device=z.device).unsqueeze(1)  # (latent, 1, latent)
        held = [(torch.where(some, average, z), context) for some in each.split(_rows_at_once(network) // len(z) or 1)]
        held += [(average.expand_as(z)[None], context), (z[None], context.mean(0, keepdim=True).expand_as(context))]
        moved = torch.cat([(self._decoded_mean(*some) - usual).square().mean(-2).sqrt() for some in held])
        distance = moved.double().cpu().numpy()
        deviation = np.full(len(scaling.kinds), np.nan)
        counted = scaling.varies & ~scaling.of_kind(*CLASSES)
        deviation[counted] = _deviations(scaling.apply(panel.values)[:, counted])
        return distance / np.where(deviation > 0, deviation, np.nan)

    def _decoded_mean(self, z: Tensor, context: Tensor) -> Tensor:
        return self.model_.likelihood.mean(self.model_.decode_missing(z, context))

    def _encoded(self, panel: Panel) -> Iterator[tuple[Tensor, Tensor]]:
        """Latent means of the panel's rows, and what else is decoded from."""
        for _, keep, batch, _ in self._batches_of(panel, _whole(panel), _rows_at_once(self.model_), seed=0):
            posterior, context = self.model_.encode(batch)
            yield posterior.mean.flatten(0, 1)[keep], context.flatten(0, 1)[keep]

    def _own(self, data: Any) -> Panel:
        check_is_fitted(self)
        return self._select(self.schema_.panel(data).with_labels(self.schema_.labels))

    @torch.no_grad()
    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        counts = missing.sum(axis=1)
        first = np.cumsum(counts) - counts  # the first missing cell of each row
        filled = Gathering(np.nonzero(missing)[1], samples, self.schema_.scaling)
        likelihood = self.model_.likelihood
        with tensor_cores(self._device):
            for rows, chosen, decoded, generator in self._decoded(panel, samples, seed):
                gaps = torch.from_numpy(np.flatnonzero(missing[rows])).to(decoded.device)
                filled.add(
                    spans(first[rows], counts[rows]),
                    chosen,
                    mean=likelihood.mean(decoded).flatten(1)[:, gaps],
                    variance=likelihood.variance(decoded).flatten(1)[:, gaps],
                    draws=likelihood.sample(decoded, generator).flatten(1)[:, gaps],
                )
        return Prediction(*filled.moments(), filled.draws)

    @torch.no_grad()
    def _log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        """The mixture over the samples."""
        total = np.full(scaled.shape, -np.inf)
        with tensor_cores(self._device):
            for rows, _, decoded, _ in self._decoded(panel, samples, seed):
                values = torch.from_numpy(scaled[rows]).to(decoded.device)
                log_prob = self.model_.likelihood.log_prob(decoded, values).double()
                total[rows] = np.logaddexp(total[rows], log_prob.logsumexp(0).cpu().numpy())
        return total - math.log(samples)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"model": self.model.to_plain(), "kinds": kinds_to_plain(self.kinds)}

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], device: str) -> Self:
        kinds = kinds_from_plain(settings["kinds"])
        model = ModelConfig.from_plain(settings["model"])
        return super()._from_settings(settings | {"model": model, "kinds": kinds}, device)

    def _select(self, panel: Panel) -> Panel:
        selected = super()._select(panel)
        self._require_fitting_values(selected)
        return selected

    def _require_fitting_values(self, panel: Panel) -> None:
        outside = (panel.values < 0) | (panel.values > 1)
        if self.model.likelihood == "bernoulli" and outside.any():
            row, column = np.argwhere(outside)[0]
            raise DataError(
                f"a Bernoulli likelihood needs values between 0 and 1; column {panel.columns[column]!r} holds "
                f"{panel.values[row, column]:g} at {panel.source.where(int(row))}"
            )

    def _decoded(
        self, panel: Panel, samples: int, seed: int
    ) -> Iterator[tuple[NDArray[np.int64], slice, Tensor, torch.Generator]]:
        """Posterior samples of the rows that have gaps, decoded, in chunks that fit memory.

        Yields the rows, which of the samples these are, the decoded samples (sample, row, output), and the random
        numbers to go on with. Of long series latent samples are drawn some at a time, and decoded in parts; samples are
        spread evenly among those that are drawn together.
        """
        device = self._device
        rows = self.schema_.rows(panel, panel.observed, device)
        at_once = _rows_at_once(self.model_)
        for number, pieces in enumerate(series_by_length(panel, max(1, at_once // samples))):
            generator = step_generator(seed, number, device)
            batch = rows.batch(BatchIndex.of(pieces, device))
            posterior, context = self.model_.encode(batch)
            places = rows_of(pieces)
            gaps = ~panel.observed[places].all(axis=-1)
            wanted = batch.valid.flatten().nonzero().squeeze(-1)[torch.from_numpy(gaps).to(device)]
            seen, asked = context.flatten(0, 1)[wanted], places[gaps]
            step = max(1, NUMBERS_AT_ONCE[device.type] // posterior.mean.numel())
            for first in range(0, samples, step):
                chosen = slice(first, min(first + step, samples))
                shape = (chosen.stop - first, *posterior.mean.shape)
                z = posterior.sample(torch.randn(shape, generator=generator, device=device)).flatten(1, 2)[:, wanted]
                at_a_time = max(1, at_once // len(z))
                for start in range(0, len(asked), at_a_time):
                    some = slice(start, start + at_a_time)
                    yield asked[some], chosen, self.model_.decode_missing(z[:, some], seen[some]), generator


def _deviations(values: Floats) -> Floats:
    """Of the values in each column that are there; 0 for a column without any."""
    there = ~np.isnan(values)
    count = np.maximum(1, there.sum(axis=0))
    mean = np.where(there, values, 0).sum(axis=0) / count
    return np.sqrt((np.where(there, values - mean, 0) ** 2).sum(axis=0) / count)


def _whole(panel: Panel) -> list[PredictionWindow]:
    return [(piece, slice(0, piece.length)) for piece in series_windows(panel)]


def _rows_at_once(model: LatentModel) -> int:
    """How many time steps to decode in one go."""
    return max(1, NUMBERS_AT_ONCE[next(model.parameters()).device.type] // model.widest)


def spans(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start + 1, … of each span, one after the other."""
    return np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())


class Gathering:
    """What was drawn for each missing cell, gathered from the device while it computes the next."""

    def __init__(self, columns: NDArray[np.int64], samples: int, scaling: Scaling):
        self.columns = columns  # (cell,)
        self.scaling = torch.from_numpy(np.stack([scaling.shift, scaling.scale, scaling.of_kind("positive")]))
        self.draws = np.empty((len(columns), samples), dtype=np.float32)
        self.sums = np.zeros((3, len(columns)))  # over the samples so far: of means, their squares, and variances
        self.pending: tuple[Any, ...] = ()

    def add(
        self,
        cells: NDArray[np.int64],
        chosen: slice,
        *,
        mean: Tensor,
        variance: Tensor,
        draws: Tensor,
    ) -> None:
        """(sample, cell) of some of the cells, and some of the samples."""
        columns = torch.from_numpy(self.columns[cells]).to(mean.device)
        wide, noise = self._in_units(mean.double(), variance.double(), columns)
        sums = _to_host(torch.stack([wide.sum(0), (wide**2).sum(0), noise.sum(0)]))
        before, self.pending = self.pending, (cells, chosen, _to_host(draws.T.contiguous()), sums)
        self._store(*before)

    def _in_units(self, mean: Tensor, variance: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Mean, less the shift, and variance in the data's units. Of a Gaussian logarithm,

        E x = exp(m + v/2),  Var x = (exp(v) - 1) (E x)².
        """
        shift, scale, logarithmic = self.scaling.to(mean.device)[:, columns]
        mean, variance = scale * mean, scale**2 * variance
        if not bool(self.scaling[2].any()):
            return mean, variance
        centre = torch.exp(shift + mean + variance / 2)
        is_log = logarithmic > 0
        return torch.where(is_log, centre - shift, mean), torch.where(is_log, variance.expm1() * centre**2, variance)

    def _store(self, *part: Any) -> None:
        if not part or not len(part[0]):
            return
        cells, chosen, draws, sums = part
        run = slice(cells[0], cells[-1] + 1) if (np.diff(cells) == 1).all() else cells
        torch.from_numpy(self.draws)[run, chosen] = draws()
        self.sums[:, run] += sums().numpy()

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and deviation of each cell, observation noise included, in the data's units."""
        self._store(*self.pending)
        self.pending = ()
        centre, square, noise = self.sums / self.draws.shape[1]
        shift = self.scaling[0].numpy()[self.columns]
        return shift + centre, np.sqrt(np.maximum(square - centre**2, 0) + noise)


def _to_host(x: Tensor) -> Callable[[], Tensor]:
    """Begin to copy from the device; the copy, when it is asked for."""
    if not x.is_cuda:
        return lambda: x
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
    done = torch.cuda.Event()
    done.record()

    def wait() -> Tensor:
        done.synchronize()
        return host

    return wait
