"""The exact linear GP-VAE as an imputer: fitted by its marginal likelihood, filled by a smoother, in linear time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpvae.data.batches import Window, series_by_length
from gpvae.data.codec import from_json, to_json
from gpvae.data.known import with_known
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.schema import Schema
from gpvae.data.times import unit_steps
from gpvae.gp.chains import LOG_2PI
from gpvae.gp.smoother import Lanes, Posterior
from gpvae.gp.state_space import Rows
from gpvae.gp.threads import one_thread
from gpvae.imputers.base import Imputer, Prediction
from gpvae.imputers.findings import Findings, latent_order
from gpvae.imputers.latent_view import Influence, Latents, LatentView
from gpvae.imputers.model_folder import require_no_nan
from gpvae.imputers.stream import Stream, load_stream
from gpvae.models.factor import Composition, Extent, FactorModel
from gpvae.training.blocks import column_blocks
from gpvae.training.factor import learn
from gpvae.training.periods import Stretch
from gpvae.training.seeds import series_seed

STEPS = 2**22  # padded rows that are worked on together


@dataclass(eq=False, repr=False)
class GPFactor(Imputer):
    """Fill all columns from series that they share and processes of their own, all Gaussian: exact, in seconds.

    Draws are joint over time and columns. Columns of categories are left to other methods.

    known: columns that are always known, such as a forecast or a patient's age (`gpvae.data.known`).
    """

    gives_distributions: ClassVar[bool] = True
    known: tuple[str, ...] = ()
    blocks_: list["Block"] = field(init=False)
    extent_: Extent = field(init=False)

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        started = time.perf_counter()
        panel = self._read(data)
        self.schema_, self.history_ = self._new_schema(panel), []
        stretches, varying = _stretches(panel, self.schema_), np.flatnonzero(self.schema_.scaling.varies)
        with one_thread():
            self.blocks_ = [
                Block(tuple(varying[block].tolist()), learn([each.of(block) for each in stretches]))
                for block in column_blocks(stretches)
            ]
        self.extent_ = _extent(stretches)
        self.seconds_ = time.perf_counter() - started
        return self

    def stream(self, *, level: float = 0.9, resume: str | Path | None = None) -> Stream:
        """Fill the rows of one series as they arrive, with intervals of this level.

        resume: a file that `Stream.save` wrote, to go on from there.
        """
        check_is_fitted(self)
        stream = Stream(self.schema_, self.blocks_, level)
        return stream if resume is None else load_stream(stream, resume)

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True)

    @one_thread()
    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        return self._predict(panel, missing, samples, seed)

    @one_thread()
    def _fill_causally(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        return self._predict(panel, missing, samples, seed, causal=True)

    def _predict(self, panel: Panel, missing: Bools, samples: int, seed: int, *, causal: bool = False) -> Prediction:
        feature = np.nonzero(missing)[1]
        mean, std = np.zeros(len(feature)), np.zeros(len(feature))
        draws = np.zeros((len(feature), samples), dtype=np.float32)
        cell_of = np.full(missing.shape, -1)
        cell_of[missing] = np.arange(len(feature))
        for part in self.posteriors(panel, samples, seed, causal=causal):
            cells = cell_of[part.rows][:, part.block.columns]
            row, column = np.nonzero(cells >= 0)
            cells, warp = cells[row, column], part.block.model.warp.of(torch.from_numpy(column))
            centre, variance = part.posterior.mean[row, column], part.posterior.variance[row, column]
            mean[cells], std[cells] = warp.moments(centre, variance)
            draws[cells] = warp.inverse(part.posterior.draws[row, column].T).T.float()
        return Prediction(
            self.schema_.scaling.undo(mean, feature),
            std * self.schema_.scaling.scale[feature],
            draws,
            stratified=False,
        )

    @one_thread()
    def _log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        density = np.zeros(scaled.shape)
        for part in self.posteriors(panel, 0, seed):
            at, warp = np.ix_(part.rows, np.array(part.block.columns)), part.block.model.warp
            values, (mean, variance, _) = torch.from_numpy(scaled[at]).double(), part.posterior
            y = warp(values)
            density[at] = (warp.log_slope(values) + part.block.doubted(y, log_normal(y - mean, variance))).numpy()
        return density

    def posteriors(self, panel: Panel, samples: int, seed: int, *, causal: bool = False) -> Iterator["Part"]:
        """Of a measurement in every cell, noise included, in warped units."""
        for part in self._smoothed(panel, samples, seed, causal=causal):
            mean, variance, draws = part.posterior
            yield part._replace(posterior=Posterior(mean, variance + part.block.model.noise, draws))

    def _smoothed(
        self, panel: Panel, samples: int = 0, seed: int = 0, *, latents: bool = False, causal: bool = False
    ) -> Iterator["Part"]:
        """Of the signal in every cell, or of the latent series that columns share."""
        scaled, times = self.schema_.scaling.apply(panel.values), panel.times / self.schema_.time_unit
        for block, group in product(self.blocks_, series_by_length(panel, STEPS)):
            index, model = _padded(group), block.model
            seeds = [series_seed(seed, panel.id_at(window.start), block.columns[0]) for window in group]
            lanes = Lanes(model.space, _rows(model, scaled[:, block.columns], times, index), samples, seeds)
            places = lanes.cut(torch.from_numpy(index))
            outputs = model.latents() if latents else None
            for lanes_of_group, posterior in lanes.posteriors(outputs, causal=causal):
                place = places[:, lanes_of_group]
                there = place > 0
                yield Part(place[there].numpy() - 1, block, Posterior(*(x[there] for x in posterior)))

    # What it found in the data.

    def findings(self) -> Findings:
        """Series that columns share and their periods, shares of variance, trends, columns that others determine."""
        check_is_fitted(self)
        return Findings.of(self.blocks_, self.schema_, self.extent_)

    def describe(self) -> list[str]:
        return [self.findings().sentence]

    @one_thread()
    def latents(self, data: Any) -> Latents:
        """Posterior mean and deviation of the series that columns share, for every row, in the order of `findings`."""
        check_is_fitted(self)
        panel = self._select(with_known(self.schema_.panel(data).with_labels(self.schema_.labels), self.known))
        place = np.argsort(latent_order(self.blocks_, self.extent_, len(self.schema_.columns)))
        counts = [len(block.model.shared) for block in self.blocks_]
        ends = np.cumsum(counts)
        places = {block.columns: place[end - n : end] for block, n, end in zip(self.blocks_, counts, ends, strict=True)}
        mean, std = (np.zeros((len(panel.values), len(place)), dtype=np.float32) for _ in range(2))
        for part in self._smoothed(panel, latents=True):
            at = np.ix_(part.rows, places[part.block.columns])
            mean[at], std[at] = part.posterior.mean.numpy(), part.posterior.variance.sqrt().numpy()
        return Latents(mean, std)

    def latent_view(self) -> LatentView:
        found = self.findings()
        influence = Influence(found.shares, ("own process", "noise"), found.conclusion)
        return LatentView(
            names=found.names,
            words=tuple(each.words for each in found.latents),
            columns=tuple(map(str, found.columns)),
            summary=found.summary,
            note="",
            measure="share",
            posterior=self.latents,
            influence=lambda _: influence,
        )

    def facts(self) -> list[tuple[str, str]]:
        return self.findings().facts

    def _resolved(self) -> Any:
        blocks = [{"columns": block.columns, "composition": to_json(block.model.composition)} for block in self.blocks_]
        return {"extent": to_json(self.extent_), "blocks": blocks}

    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"{i}.{name}": value
            for i, block in enumerate(self.blocks_)
            for name, value in block.model.tensors().items()
        }

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        require_no_nan(tensors)
        self.blocks_ = []
        self.extent_ = from_json(Extent, resolved["extent"])
        for i, described in enumerate(resolved["blocks"]):
            own = {name.removeprefix(f"{i}."): x for name, x in tensors.items() if name.startswith(f"{i}.")}
            model = FactorModel.of(from_json(Composition, described["composition"]), own)
            columns = from_json(tuple[int, ...], described["columns"])
            if len(columns) != len(model.noise) or not {*columns} <= {*range(len(self.schema_.columns))}:
                raise ValueError("its blocks do not fit its columns")
            self.blocks_.append(Block(columns, model))


class Block(NamedTuple):
    """Columns with a model of their own; other columns tell nothing about them."""

    columns: tuple[int, ...]
    model: FactorModel

    def doubted(self, y: Tensor, log_density: Tensor) -> Tensor:
        """The log density, given that of rows that obey: if one breaks a relation, only the prior is known."""
        doubt, prior = self.model.relations.doubts(), self.model.space.covariance(y.new_zeros(())).diagonal()
        return torch.logaddexp(torch.log1p(-doubt) + log_density, doubt.log() + log_normal(y, prior + self.model.noise))


def log_normal(x: Tensor, variance: Tensor) -> Tensor:
    """Log N(x; 0, variance)."""
    return -0.5 * (x.square() / variance + variance.log() + LOG_2PI)


class Part(NamedTuple):
    """Some rows of the panel, and the posterior of them: (row, column), draws (row, column, sample)."""

    rows: NDArray[np.int64]
    block: Block
    posterior: Posterior


def _stretches(panel: Panel, schema: Schema) -> list[Stretch]:
    """Every series that has an observation, in columns that vary, sorted: their order in the table must not matter."""
    scaled = schema.scaling.apply(panel.values)[:, schema.scaling.varies]
    ends = panel.starts + panel.lengths
    series = [
        Stretch((panel.times[start:end] - panel.times[start]) / schema.time_unit, scaled[start:end])
        for start, end in zip(panel.starts, ends, strict=True)
    ]
    return sorted((each for each in series if not np.isnan(each.values).all()), key=_rank)


def _rank(stretch: Stretch) -> tuple[int, int, float]:
    seen = stretch.values[~np.isnan(stretch.values)]
    return len(stretch.values), len(seen), float(seen.mean())


def _extent(stretches: list[Stretch]) -> Extent:
    rows = torch.tensor([len(each.values) for each in stretches])
    return Extent.of(rows, torch.tensor([each.span for each in stretches], dtype=torch.float64))


def _padded(group: list[Window]) -> NDArray[np.int64]:
    """One more than the panel's row of each time and series; 0 for padding. (time, series)"""
    start, length = (np.array([getattr(window, name) for window in group]) for name in ("start", "length"))
    step = np.arange(length.max())[:, None]
    return np.where(step < length, start + step + 1, 0)


def _rows(model: FactorModel, scaled: Floats, times: Floats, index: NDArray[np.int64]) -> Rows:
    there = index > 0
    values = np.where(there[..., None], scaled[index - 1], np.nan)
    observed = ~np.isnan(values) & ~model.relations.broken(torch.from_numpy(values)).numpy()
    delta = np.ones(index.shape)
    delta[:-1] = np.where(there[1:], times[index[1:] - 1] - times[index[:-1] - 1], 1)
    delta = unit_steps(delta)
    even = (delta == 1).all()
    warped = model.warp(torch.from_numpy(np.where(observed, values, 0)))
    return Rows(warped.unsqueeze(-1), torch.from_numpy(observed), torch.from_numpy(delta[:1, :1] if even else delta))
