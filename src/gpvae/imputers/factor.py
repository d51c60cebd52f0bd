"""The exact linear GP-VAE as an imputer: fitted by its marginal likelihood, filled by a smoother, in linear time."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.polynomial.hermite_e import hermegauss
from numpy.typing import NDArray
from torch import Tensor

from gpvae.data.batches import Window, series_by_length
from gpvae.data.codec import from_json, to_json
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.schema import Schema
from gpvae.gp.chains import LOG_2PI
from gpvae.gp.smoother import Lanes, Posterior
from gpvae.gp.state_space import Rows
from gpvae.imputers.base import Imputer, Prediction
from gpvae.imputers.model_folder import require_no_nan
from gpvae.models.factor import Composition, FactorModel
from gpvae.training.blocks import column_blocks
from gpvae.training.factor import learn
from gpvae.training.periods import Stretch
from gpvae.training.seeds import series_seed

STEPS = 2**22  # padded rows that are worked on together
NODES, WEIGHTS = hermegauss(9)


@dataclass(eq=False, repr=False)
class GPFactor(Imputer):
    """Fill all columns from series that they share and processes of their own, all Gaussian: exact, in seconds.

    Draws are joint over time and columns. Columns of categories are left to other methods.
    """

    gives_distributions: ClassVar[bool] = True
    blocks_: list["Block"] = field(init=False)

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        started = time.perf_counter()
        panel = self._read(data)
        self.schema_, self.history_ = self._new_schema(panel), []
        stretches, varying = _stretches(panel, self.schema_), np.flatnonzero(self.schema_.scaling.varies)
        self.blocks_ = [
            Block(tuple(varying[block].tolist()), learn([each.of(block) for each in stretches]))
            for block in column_blocks(stretches)
        ]
        self.seconds_ = time.perf_counter() - started
        return self

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True)

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        feature = np.nonzero(missing)[1]
        mean, std = np.zeros(len(feature)), np.zeros(len(feature))
        draws = np.zeros((len(feature), samples), dtype=np.float32)
        cell_of = np.full(missing.shape, -1)
        cell_of[missing] = np.arange(len(feature))
        for part in self._posteriors(panel, samples, seed):
            cells = cell_of[part.rows][:, part.block.columns]
            row, column = np.nonzero(cells >= 0)
            cells, warp = cells[row, column], part.block.model.warp.of(torch.from_numpy(column))
            centre, variance = part.posterior.mean[row, column], part.posterior.variance[row, column]
            mean[cells], std[cells] = _moments(warp.inverse, centre, variance)
            draws[cells] = warp.inverse(part.posterior.draws[row, column].T).T.float()
        return Prediction(
            self.schema_.scaling.undo(mean, feature),
            std * self.schema_.scaling.scale[feature],
            draws,
            stratified=False,
        )

    def _log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        density = np.zeros(scaled.shape)
        for part in self._posteriors(panel, 0, seed):
            at, warp = np.ix_(part.rows, np.array(part.block.columns)), part.block.model.warp
            values, (mean, variance, _) = torch.from_numpy(scaled[at]).double(), part.posterior
            warped = (warp(values) - mean).square() / variance + variance.log() + LOG_2PI
            density[at] = (warp.log_slope(values) - 0.5 * warped).numpy()
        return density

    def _posteriors(self, panel: Panel, samples: int, seed: int) -> Iterator["_Part"]:
        """Of a measurement in every cell, noise included, in warped units."""
        scaled, times = self.schema_.scaling.apply(panel.values), panel.times / self.schema_.time_unit
        for block, group in product(self.blocks_, series_by_length(panel, STEPS)):
            index, model = _padded(group), block.model
            seeds = [series_seed(seed, panel.id_at(window.start), block.columns[0]) for window in group]
            lanes = Lanes(model.space, _rows(model, scaled[:, block.columns], times, index), samples, seeds)
            places = lanes.cut(torch.from_numpy(index))
            for lanes_of_group, posterior in lanes.posteriors():
                place = places[:, lanes_of_group]
                there = place > 0
                mean, variance, draws = (x[there] for x in posterior)
                yield _Part(place[there].numpy() - 1, block, Posterior(mean, variance + model.noise, draws))

    def _resolved(self) -> Any:
        return [{"columns": block.columns, "composition": to_json(block.model.composition)} for block in self.blocks_]

    def _tensors(self) -> dict[str, Tensor]:
        return {
            f"{i}.{name}": value
            for i, block in enumerate(self.blocks_)
            for name, value in block.model.tensors().items()
        }

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        require_no_nan(tensors)
        self.blocks_ = []
        for i, described in enumerate(resolved):
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


class _Part(NamedTuple):
    """Some rows of the panel, and the posterior of them: (row, column), draws (row, column, sample)."""

    rows: NDArray[np.int64]
    block: Block
    posterior: Posterior


def _stretches(panel: Panel, schema: Schema) -> list[Stretch]:
    """Every series that has an observation, in columns that vary."""
    scaled = schema.scaling.apply(panel.values)[:, schema.scaling.varies]
    ends = panel.starts + panel.lengths
    series = [
        Stretch((panel.times[start:end] - panel.times[start]) / schema.time_unit, scaled[start:end])
        for start, end in zip(panel.starts, ends, strict=True)
    ]
    return [each for each in series if not np.isnan(each.values).all()]


def _padded(group: list[Window]) -> NDArray[np.int64]:
    """One more than the panel's row of each time and series; 0 for padding. (time, series)"""
    start, length = (np.array([getattr(window, name) for window in group]) for name in ("start", "length"))
    step = np.arange(length.max())[:, None]
    return np.where(step < length, start + step + 1, 0)


def _rows(model: FactorModel, scaled: Floats, times: Floats, index: NDArray[np.int64]) -> Rows:
    there = index > 0
    values = np.where(there[..., None], scaled[index - 1], np.nan)
    observed = ~np.isnan(values)
    delta = np.ones(index.shape)
    delta[:-1] = np.where(there[1:], times[index[1:] - 1] - times[index[:-1] - 1], 1)
    even = np.allclose(delta, 1, rtol=0, atol=1e-6)
    warped = model.warp(torch.from_numpy(np.where(observed, values, 0)))
    return Rows(warped.unsqueeze(-1), torch.from_numpy(observed), torch.from_numpy(delta[:1, :1] if even else delta))


def _moments(inverse: Any, mean: Tensor, variance: Tensor) -> tuple[Floats, Floats]:
    """Mean and deviation of what `inverse` makes of normal numbers, by Gauss–Hermite quadrature. (cell,)"""
    nodes, weights = torch.from_numpy(NODES).unsqueeze(-1), torch.from_numpy(WEIGHTS / WEIGHTS.sum()).unsqueeze(-1)
    values = inverse(mean + variance.sqrt() * nodes)
    centre = (weights * values).sum(0)
    return centre.numpy(), (weights * (values - centre).square()).sum(0).sqrt().numpy()
