"""The default: the exact linear GP-VAE, corrected by a network on each step, with draws that hold together.

`GPFactor` says of each missing cell where it lies and how far that may be off, given all that is visible. A network
(`models.correction`) learns from cells that are hidden for practice how far to go from there. How far to follow it is
decided for each column by held-out cells, which also set the widths of intervals: by column and kind of gap.

A draw of the table is one of the linear model, u_td = (x̃_td - m_td) / s_td, standard normal in every cell and
correlated over time and columns; the cell gets the quantile Φ(u_td) of its own corrected distribution.
"""

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpvae.data.codec import from_json
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.schema import Schema
from gpvae.gp.threads import one_thread
from gpvae.imputers.base import Imputer, Prediction, fingerprint
from gpvae.imputers.factor import GPFactor
from gpvae.imputers.findings import Findings
from gpvae.imputers.held_out import HeldOutCells
from gpvae.imputers.latent_view import Latents, LatentView
from gpvae.imputers.model_folder import require_no_nan
from gpvae.imputers.neural import only_shapes_of
from gpvae.imputers.widths import Evidence, Widths, fit_widths, gap_kinds
from gpvae.missingness import hide
from gpvae.models.correction import CoreRows, Correction, lags_of, neighbours
from gpvae.training.correction import Budget, Masked, Report, train
from gpvae.training.practice import held_out_sorts, masks, part_of, practice_rows
from gpvae.training.progress import Show, busy, steps_bar

HELD_OUT = 0.1  # of the cells that are practised on
LEAST = 100  # held-out cells; with fewer, the linear model is used as it is
ROWS, NUMBERS = 16_384, 2_000_000  # that are practised on, at most: rows, and cells
MASKS = 16  # that each round adds
PASSES_TO_FILL = 8  # times as long as a pass over a row takes to fill it, with 100 draws
NODES = (np.arange(33) + 0.5) / 33  # quantile levels that the deviation is computed from; the middle one is the median
EVEN = 0.95  # of the steps are of the same length, where seasons are looked up by rows
CHUNK = 2**14  # cells whose draws are computed together


class Core(NamedTuple):
    """The linear model's posterior of the rows of a panel, in columns that vary."""

    rows: CoreRows
    draws: NDArray[np.float32]  # (missing cell, sample) of (x̃ - m) / s


@dataclass(eq=False, repr=False)
class GPNet(Imputer):
    """Fill all columns by `GPFactor`, corrected by a network. Draws are joint over time and columns.

    bounded: fill nothing beyond a bound that a column does not cross, such as 0 of rain (`gpvae.data.bounds`).
    minutes: how long fitting may take; None: until held-out cells say that no more comes. The linear model, which
        comes first, takes the time that it needs. Ctrl-C while the network is trained keeps the best so far.
    """

    gives_distributions: ClassVar[bool] = True

    bounded: bool = True
    minutes: float | None = None
    seed: int = 0
    verbose: Show = False
    core_: GPFactor = field(init=False)
    network_: Correction = field(init=False)
    widths_: Widths = field(init=False)

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes must be above 0, or None, got {self.minutes!r}")
        started, budget = time.perf_counter(), Budget(None if self.minutes is None else 60 * self.minutes)
        panel = self._read(data)
        rows = practice_rows(panel, min(ROWS, NUMBERS // len(panel.columns)), self.seed)
        held_out = self._held_out(part_of(panel, rows))
        cells = np.zeros(panel.values.shape, dtype=bool)
        cells[rows] = np.logical_or.reduce(held_out)
        with busy("fitting the Gaussian process", show=bool(self.verbose)):
            self.core_ = GPFactor().fit(hide(panel, cells))
        if self.bounded:
            schema = self.core_.schema_
            self.core_.schema_ = replace(schema, scaling=schema.scaling.bounded(panel.values))
        self.schema_ = self.core_.schema_
        with one_thread():
            self._learn(part_of(panel, rows), [each for each in held_out if each.any()], len(panel.values), budget)
        self.held_out_ = HeldOutCells.of(cells, fingerprint(panel)) if cells.any() else None
        self.seconds_ = time.perf_counter() - started
        return self

    def _held_out(self, part: Panel) -> list[Bools]:
        """Sorts of held-out cells; none where there are too few to learn from. (row, column) each"""
        nothing = [np.zeros(part.values.shape, dtype=bool)]
        if HELD_OUT * part.observed.sum() < LEAST:
            return nothing
        sorts = held_out_sorts(part, HELD_OUT, self.seed)
        return sorts if np.logical_or.reduce(sorts).sum() >= LEAST else nothing

    def _learn(self, part: Panel, held_out: list[Bools], rows: int, budget: Budget) -> None:
        """The correction, and how far to trust it."""
        columns = int(self.schema_.scaling.varies.sum())
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(self.seed))
            self.network_ = Correction.suited(columns, self._lags(part), len(part.values))
            self.widths_, self.history_ = Widths.untrained(columns), []
            if not held_out:
                self.network_.eval()
                return
            started = time.monotonic()
            examined = self._masked(part, held_out)
            pass_of_a_row = (time.monotonic() - started) / (len(held_out) * len(part.values))
            budget.reserve(PASSES_TO_FILL * pass_of_a_row * rows)
            visible = hide(part, np.logical_or.reduce(held_out))
            with steps_bar("correcting", show=self.verbose) as report:
                self.history_ = self._train(visible, examined, budget, report)
            evidence = self._evidence(part, held_out, examined)
            if len(evidence.column):
                self.widths_ = fit_widths(evidence, columns)

    def _train(
        self, visible: Panel, examined: list[Masked], budget: Budget, report: Report | None
    ) -> list[dict[str, float]]:
        near = self._neighbours(visible)

        def masked(number: int) -> list[Masked]:
            return self._masked(visible, masks(visible, MASKS, [self.seed, number]))

        return train(self.network_, masked, near, examined, budget, seed=int(self.seed), report=report)

    def _masked(self, panel: Panel, hidden: list[Bools]) -> list[Masked]:
        """What the linear model says when these cells are hidden, one set at a time."""
        varies = self.schema_.scaling.varies
        copies = _copies(panel, hidden)
        core, y = self._core(copies).rows, torch.from_numpy(self._warped(panel))
        found, count = list[Masked](), len(panel.values)
        for i, cells in enumerate(hidden):
            at = slice(i * count, (i + 1) * count)
            asked = torch.from_numpy(cells[:, varies] & panel.observed[:, varies] & self._corrected)
            residual = torch.where(asked, (y - core.mean[at]) / core.std[at], 0)
            inputs = torch.cat([core.inputs[at], core.inputs[-1:]])
            found.append(Masked(CoreRows(core.mean[at], core.std[at], inputs), residual, asked))
        return found

    def _evidence(self, part: Panel, held_out: list[Bools], examined: list[Masked]) -> Evidence:
        near, found = self._neighbours(part), list[tuple[Any, ...]]()
        for cells, each in zip(held_out, examined, strict=True):
            shift, log_scale = self.network_.of_rows(each.rows, near)
            row, column = each.hidden.nonzero().T
            kinds = gap_kinds(hide(part, cells), self.schema_.scaling.varies)[row, column]
            at = row, column
            found.append((column.numpy(), kinds, each.residual[at], shift[at], log_scale[at]))
        column, kind, *tensors = zip(*found, strict=True)
        return Evidence(np.concatenate(column), np.concatenate(kind), *(torch.cat(each) for each in tensors))

    def _lags(self, part: Panel) -> tuple[int, ...]:
        """With periods only where rows are evenly spaced."""
        regular = np.isclose(part.time_steps, self.schema_.time_unit, rtol=1e-3)
        even = regular.sum() > EVEN * len(regular)
        waves = [float(w) for block in self.core_.blocks_ for w in block.model.frequency if w > 0]
        return lags_of([2 * np.pi / w for w in waves] if even else [], float(np.median(part.lengths)))

    def _neighbours(self, panel: Panel) -> Tensor:
        return neighbours(torch.from_numpy(panel.lengths), self.network_.lags)

    @property
    def _corrected(self) -> Bools:
        """Columns that vary and are not tied to others almost exactly: there the linear model has nothing to learn."""
        corrected = self.schema_.scaling.varies.copy()
        for block in self.core_.blocks_:
            corrected[list(block.columns)] &= ~block.model.relations.involved.numpy()
        return corrected[self.schema_.scaling.varies]

    def _core(self, panel: Panel, samples: int = 0, seed: int = 0) -> Core:
        varies = self.schema_.scaling.varies
        place = np.cumsum(varies) - 1  # among the columns that vary
        missing = ~panel.observed[:, varies]
        number = np.full(missing.shape, -1)
        number[missing] = np.arange(missing.sum())
        mean, std = np.zeros(missing.shape), np.ones(missing.shape)
        draws = np.zeros((int(missing.sum()), samples), dtype=np.float32)
        for part in self.core_.posteriors(panel, samples, seed):
            columns = place[list(part.block.columns)]
            at = np.ix_(part.rows, columns)
            mean[at], std[at] = part.posterior.mean.numpy(), part.posterior.variance.sqrt().numpy()
            if samples:
                row, column = np.nonzero(number[at] >= 0)
                centred = part.posterior.draws[row, column] - part.posterior.mean[row, column].unsqueeze(-1)
                deviation = part.posterior.variance[row, column].sqrt().unsqueeze(-1)
                draws[number[at][row, column]] = (centred / deviation).float().numpy()
        tensors = (torch.from_numpy(x) for x in (self._warped(panel), ~missing, mean, std, self._log_steps(panel)))
        return Core(CoreRows.of(*tensors), draws)

    def _warped(self, panel: Panel) -> Floats:
        """Values of columns that vary in the linear model's units, 0 where missing. (row, column)"""
        scaled = np.nan_to_num(self.schema_.scaling.apply(panel.values))
        warped = np.zeros((len(scaled), len(self.schema_.columns)))
        for block in self.core_.blocks_:
            columns = list(block.columns)
            warped[:, columns] = block.model.warp(torch.from_numpy(scaled[:, columns])).numpy()
        return warped[:, self.schema_.scaling.varies]

    def _unwarped(self, y: NDArray[Any], column: NDArray[np.int64]) -> Floats:
        """Back to scaled values, of cells (cell, …) of these columns among those that vary."""
        place = np.cumsum(self.schema_.scaling.varies) - 1
        result = np.zeros(y.shape)
        for block in self.core_.blocks_:
            for i, j in enumerate(block.columns):
                cells = column == place[j]
                if cells.any():
                    values = torch.from_numpy(y[cells]).double().unsqueeze(-1)
                    result[cells] = block.model.warp.of(torch.tensor([i])).inverse(values).squeeze(-1).numpy()
        return result

    def _log_steps(self, panel: Panel) -> Floats:
        """Log of the time to the next row, 0 at the end of a series. (row,)"""
        steps = np.diff(panel.times, append=np.nan) / self.schema_.time_unit
        steps[panel.starts + panel.lengths - 1] = 1
        return np.log(steps)

    def _located(self, panel: Panel, core: CoreRows) -> tuple[Tensor, Tensor]:
        """Location and scale of a measurement in each cell. (row, column)"""
        shift, log_scale = self.network_.of_rows(core, self._neighbours(panel))
        log_scale = self.widths_.log_scale(log_scale, gap_kinds(panel, self.schema_.scaling.varies))
        return core.mean + core.std * self.widths_.blend * shift, core.std * log_scale.exp()

    @one_thread()
    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        """Constant columns get their constant; the others what `_located` says."""
        varies = self.schema_.scaling.varies
        core, draws = self._core(panel, samples, seed)
        location, scale = (x.numpy() for x in self._located(panel, core))
        row, column = np.nonzero(~panel.observed[:, varies])
        wanted = missing[:, varies][row, column]
        row, column, draws = row[wanted], column[wanted], draws[wanted]
        varying = varies[np.nonzero(missing)[1]]
        median, std = (np.zeros(len(varying)) for _ in range(2))
        scaled = np.zeros((len(varying), samples), dtype=np.float32)
        filled = self._cells(location[row, column], scale[row, column], column, draws)
        median[varying], std[varying], scaled[varying] = filled
        feature = np.nonzero(missing)[1]
        scaling = self.schema_.scaling
        return Prediction(scaling.undo(median, feature), std * scaling.scale[feature], scaled, stratified=True)

    def _cells(
        self, location: Floats, scale: Floats, column: NDArray[np.int64], draws: NDArray[np.float32]
    ) -> tuple[Floats, Floats, NDArray[np.float32]]:
        """Median, deviation and draws of cells, in scaled units; draws keep their order, and take even quantiles."""
        tails, samples = float(self.widths_.tails), draws.shape[1]
        nodes, levels = (special.stdtrit(tails, x) for x in (NODES, (np.arange(samples) + 0.5) / samples))
        median, std, scaled = np.zeros(len(location)), np.zeros(len(location)), np.empty_like(draws)
        for first in range(0, len(location), CHUNK):
            at = slice(first, first + CHUNK)
            centre, width = location[at, None], scale[at, None]
            values = self._unwarped(centre + width * nodes, column[at])
            median[at], std[at] = values[:, len(NODES) // 2], values.std(1)
            rank = draws[at].argsort(1).argsort(1)
            quantiles = self._unwarped(centre + width * levels, column[at])
            scaled[at] = np.take_along_axis(quantiles, rank, axis=1)
        return median, std, scaled

    @one_thread()
    def _log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        varies, density = self.schema_.scaling.varies, np.zeros(scaled.shape)
        location, scale = self._located(panel, self._core(panel).rows)
        place = np.cumsum(varies) - 1
        student = torch.distributions.StudentT(self.widths_.tails)
        for block in self.core_.blocks_:
            columns = list(block.columns)
            values, at = torch.from_numpy(scaled[:, columns]).double(), place[columns]
            y = block.model.warp(values)
            log_density = student.log_prob((y - location[:, at]) / scale[:, at]) - scale[:, at].log()
            density[:, columns] = (block.model.warp.log_slope(values) + block.doubted(y, log_density)).numpy()
        return density

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True)

    # What the linear model found.

    def findings(self) -> Findings:
        """Series that columns share and their periods, shares of variance, trends, columns that others determine."""
        check_is_fitted(self)
        return self.core_.findings()

    def describe(self) -> list[str]:
        names, scaling = self.schema_.columns, self.schema_.scaling
        below = [f"{name} below {x:g}" for name, x in zip(names, scaling.lower, strict=True) if np.isfinite(x)]
        above = [f"{name} above {x:g}" for name, x in zip(names, scaling.upper, strict=True) if np.isfinite(x)]
        bounds = [f"Never seen, so never filled: {', '.join([*below, *above])}."] if below or above else []
        return [*self.core_.describe(), *bounds]

    def latents(self, data: Any) -> Latents:
        """Posterior mean and deviation of the series that columns share: see `GPFactor.latents`."""
        check_is_fitted(self)
        return self.core_.latents(data)

    def latent_view(self) -> LatentView | None:
        return self.core_.latent_view()

    def facts(self) -> list[tuple[str, str]]:
        followed = float(self.widths_.blend.mean()) if len(self.widths_.blend) else 0.0
        return [*self.core_.facts(), ("network followed", f"{followed:.0%}")]

    @property
    def shows_progress(self) -> bool:
        return bool(self.verbose)

    def _resolved(self) -> Any:
        network = {"width": self.network_.width, "lags": self.network_.lags}
        return {"core": self.core_._resolved(), **network}

    def _tensors(self) -> dict[str, Tensor]:
        parts = {"core": self.core_._tensors(), "network": self.network_.state_dict(), "widths": vars(self.widths_)}
        return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        require_no_nan(tensors)
        parts: dict[str, dict[str, Tensor]] = {"core": {}, "network": {}, "widths": {}}
        for name, value in tensors.items():
            part, _, key = name.partition(".")
            parts[part][key] = value
        self.core_ = GPFactor()
        self.core_.schema_, self.core_.history_ = self.schema_, []
        self.core_._restore(parts["core"], resolved["core"])
        columns = int(self.schema_.scaling.varies.sum())
        width, lags = from_json(int, resolved["width"]), from_json(tuple[int, ...], resolved["lags"])
        self.widths_ = Widths(**parts["widths"])
        with only_shapes_of(parts["network"]):
            self.network_ = Correction(columns, lags, width=width)
        untrained = vars(Widths.untrained(columns))
        if {name: x.shape for name, x in vars(self.widths_).items()} != {
            name: x.shape for name, x in untrained.items()
        }:
            raise ValueError("its widths do not fit its columns")
        self.network_.load_state_dict(parts["network"])
        self.network_.eval()


def _copies(panel: Panel, hidden: list[Bools]) -> Panel:
    """The panel once for each set of cells, without these."""
    count = len(hidden)
    return replace(
        panel,
        values=np.concatenate([np.where(cells, np.nan, panel.values) for cells in hidden]),
        times=np.tile(panel.times, count),
        lengths=np.tile(panel.lengths, count),
        ids=tuple(range(count * len(panel.lengths))),
    )
