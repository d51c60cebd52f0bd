"""The default: the exact linear GP-VAE, corrected by a network on each step, with draws that hold together.

`GPFactor` says of each missing cell where it lies and how far that may be off, given all that is visible. A network
(`models.correction`) learns from cells that are hidden for practice how far to go from there. How far to follow it is
decided for each column by held-out cells, which also set the widths of intervals: by column and kind of gap.

A draw of the table is one of the linear model, u_td = (x̃_td - m_td) / s_td, standard normal in every cell and
correlated over time and columns; the cell gets the quantile Φ(u_td) of its own corrected distribution.

What a column can take is found in the data, too (`gpvae.data.limits`): bounds, whole numbers, two values. Quantiles
keep to it, and bounds are as probable as held-out cells say (`gpvae.imputers.masses`).
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
from gpvae.data.known import known_columns, with_known
from gpvae.data.limits import Limits, require_kinds
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import Kinds
from gpvae.data.schema import Schema
from gpvae.gp.threads import one_thread
from gpvae.imputers.base import Imputer, Prediction, fingerprint
from gpvae.imputers.factor import GPFactor
from gpvae.imputers.findings import Findings
from gpvae.imputers.held_out import HeldOutCells
from gpvae.imputers.latent_view import Latents, LatentView
from gpvae.imputers.marginals import Marginals
from gpvae.imputers.masses import Masses
from gpvae.imputers.model_folder import require_no_nan
from gpvae.imputers.neural import only_shapes_of
from gpvae.imputers.widths import Evidence, Widths, fit_widths, gap_kinds, normal_log_factor
from gpvae.missingness import hide
from gpvae.models.correction import CoreRows, Correction, lags_of, neighbours
from gpvae.training.correction import Budget, Masked, Report, train
from gpvae.training.practice import held_out_sorts, masks, part_of, practice_rows
from gpvae.training.progress import Show, busy, steps_bar

HELD_OUT = 0.1  # of the cells that are practised on
LEAST = 100  # held-out cells; with fewer, the linear model is used as it is
ROWS, NUMBERS = 49_152, 2_000_000  # that are practised on, at most: rows, and cells
MASKS, MASKED_ROWS = 16, 2**18  # that each round adds, at most: masks, and rows of them all together
PASSES_TO_FILL = 8  # times as long as a pass over a row takes to fill it, with 100 draws
EVENLY = 50  # draws of a cell from which on they are its even quantiles
EVEN = 0.95  # of the steps are of the same length, where seasons are looked up by rows
CHUNK = 2**14  # cells whose draws are computed together


class Core(NamedTuple):
    """The linear model's posterior of the rows of a panel, in columns that vary."""

    rows: CoreRows
    draws: NDArray[np.float32]  # (cell, sample) of (x̃ - m) / s


@dataclass(eq=False, repr=False)
class GPNet(Imputer):
    """Fill all columns by `GPFactor`, corrected by a network. Draws are joint over time and columns.

    known: columns that are always known, such as a forecast or a patient's age (`gpvae.data.known`).
    kinds: what columns hold, as {"rain": "positive"}: real, positive (0 and above), count or binary (two values). The
        others are found in the data (`gpvae.data.limits`), or are real if find_kinds is False.
    minutes: how long fitting may take; None: until held-out cells say that no more comes. The linear model, which
        comes first, takes the time that it needs. Ctrl-C while the network is trained keeps the best so far.
    """

    gives_distributions: ClassVar[bool] = True

    known: tuple[str, ...] = ()
    kinds: Kinds | None = None
    find_kinds: bool = True
    minutes: float | None = None
    seed: int = 0
    verbose: Show = False
    core_: GPFactor = field(init=False)
    network_: Correction = field(init=False)
    widths_: Widths = field(init=False)
    masses_: Masses = field(init=False)

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(f"minutes must be above 0, or None, got {self.minutes!r}")
        started, budget = time.perf_counter(), Budget(None if self.minutes is None else 60 * self.minutes)
        panel = self._read(data)
        rows = practice_rows(panel, min(ROWS, NUMBERS // len(panel.columns)), self.seed)
        held_out = self._held_out(part_of(panel, rows), panel.values)
        cells = np.zeros(panel.values.shape, dtype=bool)
        cells[rows] = np.logical_or.reduce(held_out)
        with busy("fitting the Gaussian process", show=bool(self.verbose)):
            self.core_ = GPFactor(known=self.known).fit(hide(panel, cells))
        schema = self.core_.schema_
        self.schema_ = self.core_.schema_ = replace(schema, scaling=schema.scaling.limited(self._limits(panel)))
        with one_thread():
            self._learn(panel, rows, [each for each in held_out if each.any()], budget)
        self.held_out_ = HeldOutCells.of(cells, fingerprint(panel)) if cells.any() else None
        self.seconds_ = time.perf_counter() - started
        return self

    def _limits(self, panel: Panel) -> list[Limits]:
        """What each column can take."""
        kinds = self.kinds or {}
        require_kinds(kinds, panel.columns, self.name)
        return [
            Limits.declared(str(kinds[name]), values, name)
            if name in kinds
            else Limits.of(values)
            if self.find_kinds
            else Limits()
            for name, values in zip(panel.columns, panel.values.T, strict=True)
        ]

    def _held_out(self, part: Panel, whole: Floats) -> list[Bools]:
        """Sorts of held-out cells; none where there are too few to learn from. (row, column) each

        Columns that would keep less than half of their cells, or a single value, keep all.
        """
        nothing, to_fill = [np.zeros(part.values.shape, dtype=bool)], self._to_fill(part)
        if HELD_OUT * to_fill.observed.sum() < LEAST:
            return nothing
        sorts = self._in_all_columns(part, held_out_sorts(to_fill, HELD_OUT, self.seed))
        held_out = np.logical_or.reduce(sorts)
        rest = np.where(held_out, np.nan, part.values)
        for j in np.flatnonzero(held_out.any(axis=0)):
            seen = rest[~np.isnan(rest[:, j]), j]
            if 2 * held_out[:, j].sum() > np.isfinite(whole[:, j]).sum() or not len(seen) or np.ptp(seen) == 0:
                for sort in sorts:
                    sort[:, j] = False
        return sorts if np.logical_or.reduce(sorts).sum() >= LEAST else nothing

    def _to_fill(self, part: Panel) -> Panel:
        """Without the columns that are known."""
        return part.select([name for name in part.columns if name not in self.known])

    def _in_all_columns(self, part: Panel, hidden: list[Bools]) -> list[Bools]:
        """Cells of the columns to fill, among all columns."""
        found = [np.zeros(part.values.shape, dtype=bool) for _ in hidden]
        for each, cells in zip(found, hidden, strict=True):
            each[:, ~known_columns(part, self.known)] = cells
        return found

    def _learn(self, panel: Panel, rows: NDArray[np.int64], held_out: list[Bools], budget: Budget) -> None:
        """The correction, and how far to trust it."""
        part = part_of(panel, rows)
        columns = int(self.schema_.scaling.varies.sum())
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(self.seed))
            self.network_ = Correction.suited(columns, self._lags(panel), len(part.values))
            self.widths_, self.masses_, self.history_ = Widths.untrained(columns), Masses.untrained(columns), []
            if not held_out or not self._corrected.any():
                self.network_.eval()
                return
            started = time.monotonic()
            examined = self._masked(part, held_out)
            seconds = (time.monotonic() - started) / len(held_out)  # of a pass over the rows that are practised on
            budget.reserve(PASSES_TO_FILL * seconds * len(panel.values) / len(part.values))
            visible = hide(part, np.logical_or.reduce(held_out))
            with steps_bar("correcting", show=self.verbose) as report:
                self.history_ = self._train(visible, examined, budget, _count(part) * seconds, report)
            self._calibrate(part, held_out, examined)

    def _calibrate(self, part: Panel, held_out: list[Bools], examined: list[Masked]) -> None:
        """How far to follow the network, the widths of intervals, and the probability of bounds."""
        evidence = self._evidence(part, held_out, examined)
        if len(evidence.column):
            self.widths_ = fit_widths(evidence, len(self.widths_.blend))
            y = evidence.mean + evidence.std * evidence.residual
            self.masses_ = self._marginals.fitted(y, *self.widths_.located(evidence), evidence.column)

    def recalibrate(self, data: Any) -> Self:
        """Set the widths of intervals, and how far to follow the network, by cells of these rows from now on.

        For rows that came later than those it was fitted to, where the table has drifted. A tenth of the cells is
        hidden and filled; what was learned stays as it is, but is no longer trusted where it does not hold there.
        """
        check_is_fitted(self)
        panel = self._filled_columns(with_known(self.schema_.panel(data), self.known))
        rows = practice_rows(panel, min(ROWS, NUMBERS // len(panel.columns)), self.seed)
        part = part_of(panel, rows)
        held_out = [each for each in self._held_out(part, panel.values) if each.any()]
        if not held_out:
            raise DataError(f"recalibration needs {LEAST} cells to hide, a tenth of those observed; there are fewer")
        with one_thread():
            self._calibrate(part, held_out, self._masked(part, held_out))
        cells = np.zeros(panel.values.shape, dtype=bool)
        cells[rows] = np.logical_or.reduce(held_out)
        self.held_out_ = HeldOutCells.of(cells, fingerprint(panel))
        return self

    def _train(
        self, visible: Panel, examined: list[Masked], budget: Budget, seconds: float, report: Report | None
    ) -> list[dict[str, float]]:
        near, count = self._neighbours(visible), _count(visible)

        def masked(number: int) -> list[Masked]:
            hidden = masks(self._to_fill(visible), count, self.seed, first=number * count)
            return self._masked(visible, self._in_all_columns(visible, hidden))

        seed = int(self.seed)
        return train(self.network_, masked, near, examined, budget, seed=seed, seconds=seconds, report=report)

    def _masked(self, panel: Panel, hidden: list[Bools]) -> list[Masked]:
        """What the linear model says when these cells are hidden, one set at a time."""
        varies = self.schema_.scaling.varies
        copies = _copies(panel, hidden)
        core, y = self._core(copies).rows, torch.from_numpy(self._warped(panel))
        found, count = list[Masked](), len(panel.values)
        for i, cells in enumerate(hidden):
            at = slice(i * count, (i + 1) * count)
            asked = torch.from_numpy(cells[:, varies] & panel.observed[:, varies] & self._corrected)
            residual = torch.where(asked, (y - core.mean[at]) / core.std[at], 0).float()
            found.append(Masked(torch.cat([core.inputs[at], core.inputs[-1:]]), residual, asked))
        return found

    def _evidence(self, part: Panel, held_out: list[Bools], examined: list[Masked]) -> Evidence:
        near, found = self._neighbours(part), list[tuple[Any, ...]]()
        for cells, each in zip(held_out, examined, strict=True):
            shift, log_scale = self.network_.of_rows(each.inputs, near)
            row, column = each.hidden.nonzero().T
            kinds = gap_kinds(hide(part, cells), self.schema_.scaling.varies)[row, column]
            at = row, column
            mean, std = each.inputs[row, column], each.inputs[row, shift.shape[1] + column]  # of cells that are hidden
            found.append((column.numpy(), kinds, each.residual[at], shift[at], log_scale[at], mean, std))
        column, kind, *tensors = zip(*found, strict=True)
        return Evidence(np.concatenate(column), np.concatenate(kind), *(torch.cat(each) for each in tensors))

    def _lags(self, panel: Panel) -> tuple[int, ...]:
        """With a period only where rows are evenly spaced."""
        regular = np.isclose(panel.time_steps, self.schema_.time_unit, rtol=1e-3)
        strengths = dict[float, float]()
        if regular.sum() > EVEN * len(regular):
            for model in (block.model for block in self.core_.blocks_):
                squares = model.weights.square().sum(0)
                for weight, j in zip(squares.tolist(), model.latent_of_weight, strict=True):
                    if (omega := float(model.frequency[j])) > 0:
                        strengths[2 * np.pi / omega] = strengths.get(2 * np.pi / omega, 0.0) + weight
        return lags_of(sorted(strengths, key=lambda period: -strengths[period]), float(np.median(panel.lengths)))

    def _neighbours(self, panel: Panel) -> Tensor:
        return neighbours(torch.from_numpy(panel.lengths), self.network_.lags)

    @property
    def _corrected(self) -> Bools:
        """Columns that vary and are not tied to others almost exactly: there the linear model has nothing to learn."""
        corrected = self.schema_.scaling.varies.copy()
        for block in self.core_.blocks_:
            corrected[list(block.columns)] &= ~block.model.relations.involved.numpy()
        return corrected[self.schema_.scaling.varies]

    def _core(self, panel: Panel, wanted: Bools | None = None, samples: int = 0, seed: int = 0) -> Core:
        """Draws are those of the cells `wanted` (row, column that varies)."""
        varies = self.schema_.scaling.varies
        place = np.cumsum(varies) - 1  # among the columns that vary
        missing = ~panel.observed[:, varies]
        wanted = np.zeros_like(missing) if wanted is None else wanted
        number = np.full(missing.shape, -1)
        number[wanted] = np.arange(wanted.sum())
        mean, std = np.zeros(missing.shape), np.ones(missing.shape)
        draws = np.zeros((int(wanted.sum()), samples), dtype=np.float32)
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
        return self._marginals.warp(np.nan_to_num(self.schema_.scaling.apply(panel.values)))

    @property
    def _marginals(self) -> Marginals:
        scaling, blocks = self.schema_.scaling, self.core_.blocks_
        return Marginals(scaling, tuple(blocks), self._corrected, float(self.widths_.tails), self.masses_)

    def _log_steps(self, panel: Panel) -> Floats:
        """Log of the time to the next row, 0 at the end of a series. (row,)"""
        steps = np.diff(panel.times, append=np.nan) / self.schema_.time_unit
        steps[panel.starts + panel.lengths - 1] = 1
        return np.log(steps)

    def _located(self, panel: Panel, core: CoreRows) -> tuple[Tensor, Tensor]:
        """Location and scale of a measurement in each cell. (row, column)"""
        shift, log_scale = self.network_.of_rows(core.inputs, self._neighbours(panel))
        log_scale = self.widths_.log_scale(log_scale, gap_kinds(panel, self.schema_.scaling.varies))
        return core.mean + core.std * self.widths_.blend * shift, core.std * log_scale.exp()

    @one_thread()
    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        """Constant columns get their constant; the others what `_located` says."""
        varies, scaling = self.schema_.scaling.varies, self.schema_.scaling
        row, column = np.nonzero(missing[:, varies])
        core, draws = self._core(panel, missing[:, varies], samples, seed)
        location, scale = (x.numpy()[row, column] for x in self._located(panel, core))
        feature = np.nonzero(missing)[1]
        varying = varies[feature]
        median, std, scaled = np.zeros(len(feature)), np.zeros(len(feature)), draws
        median[~varying] = scaling.undo(median[~varying], feature[~varying])
        median[varying], std[varying] = self._marginals.moments(location, scale, column)
        self._take_quantiles(draws, location, scale, column)
        if not varying.all():
            scaled = np.zeros((len(feature), samples), dtype=np.float32)
            scaled[varying] = draws
        return Prediction(median, std, scaled, stratified=samples >= EVENLY)

    def _take_quantiles(
        self, draws: NDArray[np.float32], location: Floats, scale: Floats, column: NDArray[np.int64]
    ) -> None:
        """Turn draws (cell, sample) of the linear model, standard normal, into draws of the cells, in scaled units.

        Of many draws of a cell the ranks are kept, and their values are even quantiles. In columns that others
        determine the values are kept as they are, so that draws obey the relations.
        """
        samples, corrected, marginals = draws.shape[1], self._corrected, self._marginals
        even = (np.arange(samples) + 0.5) / samples
        for first in range(0, len(column), CHUNK):
            at = slice(first, first + CHUNK)
            normal = draws[at].astype(np.float64)
            levels = even[normal.argsort(1).argsort(1)] if samples >= EVENLY else special.ndtr(normal)
            draws[at] = marginals.quantiles(levels, location[at], scale[at], column[at])
            tied = first + np.flatnonzero(~corrected[column[at]])
            width = scale[tied, None] / np.exp(self._tied_log_factor)
            draws[tied] = marginals.unwarp(location[tied, None] + width * normal[tied - first], column[tied])

    @property
    def _tied_log_factor(self) -> float:
        """By which the scale of columns that are not corrected was changed for the tails of Student's t."""
        return 0.0 if not self.widths_.cells.any() else normal_log_factor(float(self.widths_.tails))

    @one_thread()
    def _log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        return self._marginals.log_density(scaled, *self._located(panel, self._core(panel).rows))

    def _new_schema(self, panel: Panel) -> Schema:
        schema = Schema.of(panel, standardise=True)
        return replace(schema, scaling=schema.scaling.limited(self._limits(panel)))

    def found_kinds(self, panel: Panel) -> dict[Any, str]:
        numbers = panel.select([name for name in panel.columns if name not in panel.labels])
        words = [limits.words(x) for limits, x in zip(self._limits(numbers), numbers.values.T, strict=True)]
        return {name: each for name, each in zip(numbers.columns, words, strict=True) if each}

    # What the linear model found.

    def findings(self) -> Findings:
        """Series that columns share and their periods, shares of variance, trends, columns that others determine."""
        check_is_fitted(self)
        return self.core_.findings()

    def describe(self) -> list[str]:
        return self.core_.describe()

    def latents(self, data: Any) -> Latents:
        """Posterior mean and deviation of the series that columns share: see `GPFactor.latents`."""
        check_is_fitted(self)
        return self.core_.latents(data)

    def latent_view(self) -> LatentView | None:
        return self.core_.latent_view()

    def facts(self) -> list[tuple[str, str]]:
        followed = float(self.widths_.blend.mean()) if len(self.widths_.blend) else 0.0
        words = {
            name: each.words() for name, each in zip(self.schema_.columns, self.schema_.scaling.limits, strict=True)
        }
        kinds = "; ".join(f"{name}: {each}" for name, each in words.items() if each)
        found = [("kinds of columns", kinds)] if kinds else []
        return [*self.core_.facts(), ("network followed", f"{followed:.0%}"), *found]

    @property
    def shows_progress(self) -> bool:
        return bool(self.verbose)

    def _resolved(self) -> Any:
        network = {"width": self.network_.width, "lags": self.network_.lags}
        return {"core": self.core_._resolved(), **network}

    def _tensors(self) -> dict[str, Tensor]:
        parts = {"core": self.core_._tensors(), "network": self.network_.state_dict()}
        parts |= {"widths": vars(self.widths_), "masses": vars(self.masses_)}
        return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        require_no_nan(tensors)
        parts: dict[str, dict[str, Tensor]] = {name: {} for name in ("core", "network", "widths", "masses")}
        for name, value in tensors.items():
            part, _, key = name.partition(".")
            parts[part][key] = value
        self.core_ = GPFactor(known=self.known)
        self.core_.schema_, self.core_.history_ = self.schema_, []
        self.core_._restore(parts["core"], resolved["core"])
        columns = int(self.schema_.scaling.varies.sum())
        width, lags = from_json(int, resolved["width"]), from_json(tuple[int, ...], resolved["lags"])
        self.widths_, self.masses_ = Widths(**parts["widths"]), Masses(**parts["masses"])
        with only_shapes_of(parts["network"]):
            self.network_ = Correction(columns, lags, width=width)
        expected = {"widths": Widths.untrained(columns), "masses": Masses.untrained(columns)}
        for part, untrained in expected.items():
            if {name: x.shape for name, x in parts[part].items()} != {k: x.shape for k, x in vars(untrained).items()}:
                raise ValueError(f"its {part} do not fit its columns")
        self.network_.load_state_dict(parts["network"])
        self.network_.eval()


def _count(part: Panel) -> int:
    """Masks that a round adds: the more rows there are, the fewer it takes."""
    return max(1, min(MASKS, MASKED_ROWS // len(part.values)))


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
