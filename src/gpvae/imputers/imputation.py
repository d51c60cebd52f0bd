"""What an imputer returns: the filled values, and how sure it is of each."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats, Labels, Panel
from gpvae.data.scaling import DISCRETE, Scaling

if TYPE_CHECKING:
    from gpvae.report.page import Report

CELLS_PER_CHUNK = 2**14  # cells
SHOWN_INLINE = 200_000  # cells that a notebook keeps with the picture of a result


@dataclass(frozen=True)
class Draws:
    """Draws of the missing values, observation noise included; kept in scaled float32, for the missing cells alone."""

    scaled: NDArray[np.float32]  # (cell, sample)
    feature: NDArray[np.int64]  # (cell,) the column of each, as `scaling` counts them
    scaling: Scaling
    stratified: bool = True  # spread over the noise of each cell (`distributions.evenly`), not each for itself

    @property
    def count(self) -> int:
        return self.scaled.shape[1]

    def quantiles(self, q: Sequence[float]) -> Floats:
        """Of each cell, by reading the i-th of n draws as the quantile (i - ½)/n. (quantile, cell)

        That is what it stands for if it is one of n that are spread evenly: coverage is then right for any n. For draws
        each for itself it would be i/(n + 1); of those, read as if they were spread, a 90 % interval would hold 89 %
        with 100 of them and 87 % with 20. It comes close to that where what is not spread (latent series, counts, the
        heaviest tails) is most of the uncertainty. (NumPy's "hazen" and "weibull"; to sort some rows at a time is ten
        times as fast.)

        Between two draws lies a value between them; for a column of whole numbers or levels, the outer of the two, as
        seen from the median. Categories have no order, hence no quantiles.
        """
        for each in q:
            require_samples(each, self.count)
        place = np.array(q) * self.count - 0.5 if self.stratified else np.array(q) * (self.count + 1) - 1
        below = np.clip(np.floor(place + 1e-9).astype(int), 0, self.count - 1)
        above, share = np.minimum(below + 1, self.count - 1), np.clip(place - below, 0, 1)
        outer = np.where(share < 1e-6, 0.0, np.array(q) > 0.5)
        discrete = self.scaling.of_kind(*DISCRETE)[self.feature]
        found = np.empty((len(q), len(self.scaled)))
        for first in range(0, len(self.scaled), CELLS_PER_CHUNK):
            some = slice(first, first + CELLS_PER_CHUNK)
            ordered = np.sort(self.scaled[some], axis=1)
            shares = np.where(discrete[some, None], outer, share)
            found[:, some] = ((1 - shares) * ordered[:, below] + shares * ordered[:, above]).T
        values = self.scaling.undo(found.T, self.feature).T
        values[:, self.scaling.of_kind("categorical")[self.feature]] = np.nan
        return values

    def levels(self, place: Floats) -> Floats:
        """Of which quantiles a place among the sorted draws is, the first being 0: as `quantiles` reads them."""
        found = (place + 0.5) / self.count if self.stratified else (place + 1) / (self.count + 1)
        return np.clip(found, 0, 1)

    def values(self) -> Floats:
        """In the data's units. (cell, sample)"""
        return self.scaling.undo(self.scaled, self.feature)

    def most_likely(self) -> Floats:
        """Of cells that hold counts or classes: the median of what has an order, else what was drawn most often."""
        return self._by_cell(_most_likely)

    def deviations(self) -> Floats:
        """Standard deviations of the draws, in the data's units; categories have none. (cell,)"""
        found = self._by_cell(lambda some: some.values().std(axis=1))
        return np.where(self.scaling.of_kind("categorical")[self.feature], np.nan, found)

    def share_of(self, values: Floats) -> Floats:
        """Of the draws of each cell, those that have this value. (cell,)"""
        ends = iter(np.split(values, range(CELLS_PER_CHUNK, len(values), CELLS_PER_CHUNK)))
        return self._by_cell(lambda some: np.mean(some.values() == next(ends)[:, None], axis=1))

    def _by_cell(self, number: "Callable[[Draws], Floats]") -> Floats:
        """A number for each cell, found for some cells at a time: draws are many."""
        starts = range(0, len(self.scaled), CELLS_PER_CHUNK)
        parts = [self.at(slice(first, first + CELLS_PER_CHUNK)) for first in starts]
        return np.concatenate([np.empty(0), *(number(part) for part in parts)])

    def at(self, chosen: Bools | slice | NDArray[np.int64]) -> "Draws":
        """Of some of the cells."""
        return replace(self, scaled=self.scaled[chosen], feature=self.feature[chosen])


def _most_likely(draws: Draws) -> Floats:
    chosen = np.sort(draws.scaled, axis=1)[:, (draws.count - 1) // 2].astype(np.float64)
    for j in np.flatnonzero(draws.scaling.of_kind("binary", "categorical")):
        cells = draws.feature == j
        levels = np.arange(len(draws.scaling.levels[j]))
        chosen[cells] = np.argmax([(draws.scaled[cells] == level).sum(axis=1) for level in levels], axis=0)
    return draws.scaling.undo(chosen, draws.feature)


@dataclass(frozen=True)
class ConformalIntervals:
    """Intervals of single values from errors at cells whose value was known: see `conformal`."""

    centre: Floats  # (cell,) the filled values
    unit: Floats  # (cell,) what errors are counted in
    floor: Floats  # (cell,) below which nothing lies
    column: NDArray[np.int64]  # (cell,)
    errors: tuple[Floats, ...]  # of each column, in its unit, sorted
    together: Floats  # of all columns, for those that have too few of their own

    def quantiles(self, q: Sequence[float]) -> Floats:
        """(quantile, cell) The interval that reaches as far as the k-th smallest of n errors, k = ⌈level (n + 1)⌉."""
        return np.stack([self._quantile(each) for each in q])

    def at(self, chosen: slice | NDArray[np.int64]) -> "ConformalIntervals":
        """Of some of the cells."""
        own = {name: getattr(self, name)[chosen] for name in ("centre", "unit", "floor", "column")}
        return replace(self, **own)

    def _quantile(self, q: float) -> Floats:
        level = abs(2 * q - 1)
        reach = np.array([self._reach(own, level) for own in self.errors])[self.column]
        return np.maximum(self.centre + np.sign(q - 0.5) * reach * self.unit, self.floor)

    def _reach(self, own: Floats, level: float) -> float:
        errors = own if _place(len(own), level) <= len(own) else self.together
        require_errors(len(errors), level)
        place = _place(len(errors), level)
        return float(errors[place - 1]) if place else 0.0


def _place(count: int, level: float) -> int:
    return math.ceil(level * (count + 1) - 1e-9)


def require_errors(count: int, level: float) -> None:
    """The quantile of so many errors that an interval reaches to lies among them."""
    if _place(count, level) > count:
        needed = math.ceil(level / (1 - level) - 1e-9)
        cells = f"at least {needed} known cells to calibrate by, not {count}"
        raise DataError(f"a {100 * level:g} % interval needs {cells}")


@dataclass(frozen=True, repr=False)
class Imputation:
    """Predictions for the missing values of a panel, in the shape that the data came in.

    Observed cells hold what was observed: their mean is the value, their deviation 0. Cells of a column that was never
    observed, not even in training, stay missing. Of methods that give single values there are only those: no
    deviations, intervals or samples.
    """

    panel: Panel
    cells: NDArray[np.int64]  # (cell,) those that are filled, as places in the flattened (row, feature), increasing
    values: Floats  # (cell,)
    stds: Floats | None = None  # (cell,)
    draws: Draws | None = None
    conformal: ConformalIntervals | None = None
    method: str = "this method"
    seconds: float | None = None  # that filling took
    imputer: Any = field(default=None, repr=False, compare=False)  # the imputer, if it is at hand

    def __repr__(self) -> str:
        samples = f", {self.draws.count} samples" if self.draws else ""
        return f"Imputation({len(self.cells)} cells filled{samples}, of {self.panel})"

    @property
    def mean(self) -> Any:
        """The data without gaps: predictive means where values were missing.

        Of counts and of ordered categories it is the median, of other categories the most likely one, so that what is
        filled in is something that could have been there.
        """
        return self.panel.restore(self.mean_rows)

    @property
    def std(self) -> Any:
        """Predictive deviations, posterior and observation noise together; 0 where observed.

        Learned noise is set so that 90 % intervals hold 90 % of held-out cells, and a standard error more. Where errors
        have heavy tails that is less than their root mean square: most are smaller, a few much larger. Categories have
        none.
        """
        return self.panel.restore(self.std_rows)

    @property
    def samples(self) -> Any:
        """Whole data sets without gaps, drawn at random: the shape of the data with the samples in front.

        The n values of a cell are spread over its distribution more evenly than chance would, so they vary more among
        few data sets: by up to n/(n - 1) in variance.
        """
        draws = self._require_draws()
        stacked = np.repeat(self.panel.values[None], draws.count, axis=0)
        stacked.reshape(draws.count, -1)[:, self.cells] = draws.values().T
        return self.panel.restore(stacked)

    @property
    def probability(self) -> Any:
        """How likely the value filled in is right, for columns of categories and counts; NaN in other columns."""
        return self.panel.restore(self.probability_rows)

    def quantile(self, q: float) -> Any:
        """The value below which the missing one lies with probability q."""
        return self.panel.restore(self.quantile_rows(q)[0])

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of the central interval that holds the missing value with probability `level`."""
        lower, upper = self.interval_rows(level)
        return self.panel.restore(lower), self.panel.restore(upper)

    def to_frame(self, *, interval: float | None = None) -> Any:
        """The table as it came, its gaps filled, everything else untouched.

        With `interval`, columns are added behind for each column that had gaps: `<name>_lower` and `<name>_upper`, or,
        for categories without an order, `<name>_probability`. They are empty where the value was observed.
        """
        extra, labels = ({}, {}) if interval is None else self._uncertainty_columns(interval)
        return self.panel.fill(self.mean_rows, extra, labels)

    def report(self, path: str | Path | None = None, *, overwrite: bool = False) -> "Report":
        """One HTML page that shows the data, what was filled in and how far to trust it; written to `path`, if given.

        The imputer that was fitted to this very data fills the cells that it held out once more, to be judged by them.
        """
        from gpvae.report import page

        return page.of_imputation(self).written(path, overwrite=overwrite)

    def _repr_html_(self) -> str:
        """The report of the first series, in a frame."""
        try:
            from gpvae.report import page

            return page.of_part(self, SHOWN_INLINE)._repr_html_()
        except Exception as error:
            return f"<pre>{escape(repr(self))}</pre><p>Its report cannot be shown: {escape(str(error))}</p>"

    @property
    def has_intervals(self) -> bool:
        return self.draws is not None or self.conformal is not None

    def of_kind(self, *kinds: str) -> Bools:
        """Columns that hold this, as far as draws tell; text is categories, whoever fills it. (feature,)"""
        text = "categorical" in kinds
        found = np.array([text and name in self.panel.labels for name in self.panel.columns], dtype=bool)
        if self.draws is not None:
            chosen = self.draws.scaling.of_kind(*kinds)[self.draws.feature]
            found[np.unique(self.cells[chosen] % len(found))] = True
        return found

    def part(self, first: int, last: int) -> "Imputation":
        """Of the series from the number `first` up to `last`, without that."""
        panel, width = self.panel.pick(np.arange(first, last)), len(self.panel.columns)
        start = int(self.panel.starts[first]) if first < len(self.panel) else len(self.panel.values)
        ends = np.array([start, start + len(panel.values)]) * width
        found = self._at(slice(*np.searchsorted(self.cells, ends).tolist()))
        return replace(found, panel=panel, cells=found.cells - start * width)

    def sorted(self) -> "Imputation":
        """The same with its cells in the order of the panel."""
        return self._at(np.argsort(self.cells))

    def _at(self, chosen: slice | NDArray[np.int64]) -> "Imputation":
        return replace(
            self,
            cells=self.cells[chosen],
            values=self.values[chosen],
            stds=None if self.stds is None else self.stds[chosen],
            draws=None if self.draws is None else self.draws.at(chosen),
            conformal=None if self.conformal is None else self.conformal.at(chosen),
        )

    def quantiles(self, *q: float) -> Floats:
        """As `quantile`, of several at once, of the cells that are filled. (quantile, cell)"""
        for each in q:
            require_quantile(each)
        spread = self.conformal or self.draws
        if spread is None:
            raise self._nothing("intervals")
        return spread.quantiles(q)

    @property
    def mean_rows(self) -> Floats:
        """As `mean`, in the panel's own layout. (row, feature)"""
        return self._spread(self.panel.values.copy(), self.values)

    @property
    def std_rows(self) -> Floats:
        if self.stds is None:
            raise self._nothing("deviations")
        return self._spread(np.where(self.panel.observed, 0.0, np.nan), self.stds)

    @property
    def probability_rows(self) -> Floats:
        draws = self._require_draws()
        discrete = draws.scaling.of_kind(*DISCRETE)[draws.feature]
        shares = np.full(len(self.cells), np.nan)
        shares[discrete] = draws.at(discrete).share_of(self.values[discrete])
        return self._spread(np.where(self.panel.observed, 1.0, np.nan), shares)

    def quantile_rows(self, *q: float) -> list[Floats]:
        """As `quantile`, of several at once, in the panel's own layout. Each (row, feature)"""
        return [self._spread(self.panel.values.copy(), each) for each in self.quantiles(*q)]

    def interval_rows(self, level: float = 0.9) -> tuple[Floats, Floats]:
        if not 0 < level < 1:
            raise DataError(f"the probability of an interval lies between 0 and 1 (0.9 is 90 %), not at {level:g}")
        lower, upper = self.quantile_rows((1 - level) / 2, (1 + level) / 2)
        return lower, upper

    def draws_at(self, cells: Bools) -> Floats:
        """Draws for some missing cells (row, feature), in row order. (sample, cell)"""
        chosen = cells.flat[self.cells]
        if chosen.sum() != cells.sum():
            raise ValueError("draws exist for missing cells only")
        return self._require_draws().at(chosen).values().T

    def _spread(self, rows: Floats, values: Floats) -> Floats:
        rows.flat[self.cells] = values
        return rows

    def _require_draws(self) -> Draws:
        if self.draws is None:
            raise self._nothing("samples")
        return self.draws

    def _nothing(self, what: str) -> DataError:
        hint = "" if self.conformal else "; Conformal(…), or --conformal, puts intervals around them"
        return DataError(f"{self.method} gives single values, without {what}{hint}")

    def _uncertainty_columns(self, level: float) -> tuple[dict[str, Floats], Labels]:
        lower, upper = self.interval_rows(level)
        named = self._unordered()
        probability = self.probability_rows if named else np.empty((0, 0))
        columns: dict[str, Floats] = {}
        filled = np.unique(self.cells % len(self.panel.columns))
        for j in filled.tolist():
            name, missing = self.panel.columns[j], ~self.panel.observed[:, j]
            ends = {"probability": probability} if name in named else {"lower": lower, "upper": upper}
            for end, rows in ends.items():
                columns[f"{name}_{end}"] = np.where(missing, rows[:, j], np.nan)
        ordered = {name: labels for name, labels in self.panel.labels.items() if name not in named}
        return columns, {f"{name}_{end}": labels for name, labels in ordered.items() for end in ("lower", "upper")}

    def _unordered(self) -> set[str]:
        """Columns that have no interval: categories, and those with two values."""
        if self.draws is None:
            return set()
        unordered = self.draws.scaling.of_kind("binary", "categorical")[self.draws.feature]
        return {self.panel.columns[j] for j in np.unique(self.cells[unordered] % len(self.panel.columns))}


def require_quantile(q: float) -> None:
    if not 0 < q < 1:
        raise DataError(f"a quantile lies between 0 and 1, not at {q:g}")


def require_samples(q: float, samples: int) -> None:
    """Beyond the outermost draws nothing is known: the quantile q needs at least 1/q - 1 of them, from either side."""
    require_quantile(q)
    needed = math.ceil(1 / min(q, 1 - q) - 1e-9) - 1
    if samples < needed:
        what = f"the quantile {q:g}, an end of the {abs(2 * q - 1):.3g} interval,"
        raise DataError(f"{what} needs at least {needed} samples, not {samples}")
