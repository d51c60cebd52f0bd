"""The result of an imputer: the filled values with their uncertainty."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats, Labels, Panel
from gpvae.data.scaling import DISCRETE
from gpvae.imputers.draws import ConformalIntervals, Draws, require_level, require_quantile

if TYPE_CHECKING:
    from gpvae.report.page import Report

MAX_INLINE_CELLS = 200_000  # that the inline report of a notebook holds


@dataclass(frozen=True, repr=False)
class Imputation:
    """Predictions for the missing values of a panel, in the shape of the original data.

    Observed cells keep their value, with standard deviation 0. Columns without any observed value in training stay
    missing. Imputers that give single values have no standard deviations, intervals or samples.
    """

    panel: Panel
    cells: NDArray[np.int64]  # (cell,) filled cells, as increasing indices into the flattened (row, feature)
    values: Floats  # (cell,)
    stds: Floats | None = None  # (cell,)
    draws: Draws | None = None
    conformal: ConformalIntervals | None = None
    method: str = "this method"
    seconds: float | None = None  # that imputation took
    imputer: Any = field(default=None, repr=False, compare=False)  # that made it, if known

    def __repr__(self) -> str:
        samples = f", {self.draws.count} samples" if self.draws else ""
        return f"Imputation({len(self.cells)} cells filled{samples}, of {self.panel})"

    @property
    def mean(self) -> Any:
        """The data with gaps filled by predictive means.

        Counts and ordered categories are filled by the median, other categories by the most likely one, so that filled
        values are possible ones.
        """
        return self.panel.restore(self.mean_rows)

    @property
    def std(self) -> Any:
        """Predictive standard deviations, including observation noise; 0 where observed, NaN for categories.

        Learned noise is calibrated so that 90 % intervals cover 90 % of held-out cells plus one standard error. If
        errors have heavy tails, this is less than their root mean square.
        """
        return self.panel.restore(self.std_rows)

    @property
    def samples(self) -> Any:
        """Random draws of the complete data: the shape of the data with a leading sample dimension.

        The n draws of a cell are stratified over its distribution, which raises their variance by up to n/(n - 1).
        """
        draws = self.require_draws()
        stacked = np.repeat(self.panel.values[None], draws.count, axis=0)
        stacked.reshape(draws.count, -1)[:, self.cells] = draws.values().T
        return self.panel.restore(stacked)

    @property
    def probability(self) -> Any:
        """The probability that the filled value is right, for categories, counts and columns with steps; else NaN."""
        return self.panel.restore(self.probability_rows)

    def quantile(self, q: float) -> Any:
        """The value that the missing one is below with probability q."""
        return self.panel.restore(self.quantile_rows(q)[0])

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper end of the central interval that covers the missing value with probability `level`."""
        lower, upper = self.interval_rows(level)
        return self.panel.restore(lower), self.panel.restore(upper)

    def to_frame(self, *, interval: float | None = None) -> Any:
        """The original table with its gaps filled and everything else unchanged.

        With `interval`, columns are appended for each column that had gaps: `<name>_lower` and `<name>_upper`, or, for
        categories without an order, `<name>_probability`. They are empty where the value was observed.
        """
        extra, labels = ({}, {}) if interval is None else self._uncertainty_columns(interval)
        return self.panel.fill(self.mean_rows, extra, labels)

    def completed(self, draw: int) -> Any:
        """The original table with its gaps filled by one of the draws, of which the first is 0."""
        return self.panel.fill(self._scatter(self.panel.values.copy(), self.require_draws().draw(draw)))

    def tables(self) -> Iterator[Any]:
        """The completed table of each draw in turn, for multiple imputation: see `gpvae.pool`."""
        return (self.completed(draw) for draw in range(self.require_draws().count))

    def aggregate(
        self, function: str | Callable[[Any], Any] = "mean", by: str | float | None = None, level: float = 0.9
    ) -> Any:
        """An aggregate of the completed data, with its interval: every draw is aggregated on its own.

            imputation.aggregate("mean", by="day")
            imputation.aggregate(lambda table: table["wind"].corr(table["rain"]))

        by: "gap", "series", "column" (the default), a period ("hour", "day", "week", "month", "year", or a duration
            such as "15min", "6h", "2w"), or, where times are numbers, the length of a period. The result is a frame
            like the data, for arrays a dict of columns: a row for each group of cells, with the number of its cells
            and of those filled. `function` is "mean", "sum", "min", "max", or a function of the values (cell,) of a
            group. Columns of text are left out.

        Without `by`, a function gets the completed table and returns a number or an array; the result is an
        `Aggregate` with estimate, std, lower, upper, and the values of all draws.
        """
        from gpvae.imputers.aggregate import aggregate

        return aggregate(self, function, by, level)

    def gaps(self) -> Any:
        """The gaps, a row for each: series, column, start, end, length, kind, uncertainty, trust.

        length: in rows. uncertainty: the mean standard deviation in the gap, in deviations of its column.
        trust: what held-out cells say of the 90 % intervals of gaps of this kind. "checked": they hold what they
            should; "too narrow": they hold less; "longer than checked": no held-out gap was as long; "not checked":
            there are too few held-out cells, or no intervals; "left empty".

        The result is a frame like the data, for arrays a dict of columns. Held-out cells are filled once more for it.
        """
        from gpvae.report.gap_list import gap_list

        return gap_list(self)

    def shift(self, deltas: Mapping[Any, float]) -> "Imputation":
        """The same with a number added to all filled values and draws of some columns; observed values are kept.

        For sensitivity analysis: what if the missing values of "bp" were 5 lower than their model says, {"bp": -5}?
        """
        from gpvae.imputers.shift import shifted

        return shifted(self, deltas)

    def report(self, path: str | Path | None = None, *, overwrite: bool = False) -> "Report":
        """An HTML page that shows the data, the filled values and how far to trust them; written to `path` if given.

        If the imputer was fitted to this data, it fills its held-out cells once more to be evaluated on them.
        """
        from gpvae.report import page

        return page.of_imputation(self).written(path, overwrite=overwrite)

    def _repr_html_(self) -> str:
        """The report of the first series, in an iframe."""
        try:
            from gpvae.report import page

            return page.of_part(self, MAX_INLINE_CELLS)._repr_html_()
        except Exception as error:
            return f"<pre>{escape(repr(self))}</pre><p>Its report cannot be shown: {escape(str(error))}</p>"

    @property
    def filled(self) -> Bools:
        """Which cells were filled. (row, feature)"""
        filled = np.zeros(self.panel.values.shape, dtype=bool)
        filled.flat[self.cells] = True
        return filled

    @property
    def has_intervals(self) -> bool:
        return self.draws is not None or self.conformal is not None

    def of_kind(self, *kinds: str) -> Bools:
        """Columns of these kinds, as far as the draws tell; text is always categorical. (feature,)"""
        text = "categorical" in kinds
        matches = np.array([text and name in self.panel.labels for name in self.panel.columns], dtype=bool)
        if self.draws is not None:
            chosen = self.draws.scaling.of_kind(*kinds)[self.draws.feature]
            matches[np.unique(self.cells[chosen] % len(matches))] = True
        return matches

    def part(self, first: int, last: int) -> "Imputation":
        """Only the series `first` to `last` - 1."""
        panel, width = self.panel.pick(np.arange(first, last)), len(self.panel.columns)
        start = int(self.panel.starts[first]) if first < len(self.panel) else len(self.panel.values)
        ends = np.array([start, start + len(panel.values)]) * width
        part = self._at(slice(*np.searchsorted(self.cells, ends).tolist()))
        return replace(part, panel=panel, cells=part.cells - start * width)

    def sorted(self) -> "Imputation":
        """The same with cells in the order of the panel."""
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
        """Several quantiles of the filled cells. (quantile, cell)"""
        for level in q:
            require_quantile(level)
        distribution = self.conformal or self.draws
        if distribution is None:
            raise self._unavailable("intervals")
        return distribution.quantiles(q)

    @property
    def mean_rows(self) -> Floats:
        """As `mean`, in the panel's layout. (row, feature)"""
        return self._scatter(self.panel.values.copy(), self.values)

    @property
    def std_rows(self) -> Floats:
        if self.stds is None:
            raise self._unavailable("deviations")
        return self._scatter(np.where(self.panel.observed, 0.0, np.nan), self.stds)

    @property
    def probability_rows(self) -> Floats:
        draws = self.require_draws()
        discrete = (draws.scaling.of_kind(*DISCRETE) | (draws.scaling.step > 0))[draws.feature]
        shares = np.full(len(self.cells), np.nan)
        shares[discrete] = draws.at(discrete).share_of(self.values[discrete])
        return self._scatter(np.where(self.panel.observed, 1.0, np.nan), shares)

    def quantile_rows(self, *q: float) -> list[Floats]:
        """Several quantiles, each in the panel's layout. (row, feature)"""
        return [self._scatter(self.panel.values.copy(), values) for values in self.quantiles(*q)]

    def interval_rows(self, level: float = 0.9) -> tuple[Floats, Floats]:
        require_level(level)
        lower, upper = self.quantile_rows((1 - level) / 2, (1 + level) / 2)
        return lower, upper

    def draws_at(self, cells: Bools) -> Floats:
        """Draws of these missing cells (row, feature), in row order. (sample, cell)"""
        chosen = cells.flat[self.cells]
        if chosen.sum() != cells.sum():
            raise ValueError("draws exist only for missing cells")
        return self.require_draws().at(chosen).values().T

    def _scatter(self, rows: Floats, values: Floats) -> Floats:
        rows.flat[self.cells] = values
        return rows

    def require_draws(self) -> Draws:
        if self.draws is None:
            raise self._unavailable("samples")
        return self.draws

    def _unavailable(self, what: str) -> DataError:
        hint = "" if self.conformal else "; Conformal(…), or --conformal, puts intervals around them"
        return DataError(f"{self.method} gives single values, without {what}{hint}")

    def _uncertainty_columns(self, level: float) -> tuple[dict[str, Floats], Labels]:
        lower, upper = self.interval_rows(level)
        unordered = self._unordered()
        probability = self.probability_rows if unordered else np.empty((0, 0))
        columns: dict[str, Floats] = {}
        filled = np.unique(self.cells % len(self.panel.columns))
        for j in filled.tolist():
            name, missing = self.panel.columns[j], ~self.panel.observed[:, j]
            ends = {"probability": probability} if name in unordered else {"lower": lower, "upper": upper}
            for end, rows in ends.items():
                columns[f"{name}_{end}"] = np.where(missing, rows[:, j], np.nan)
        ordered = {name: labels for name, labels in self.panel.labels.items() if name not in unordered}
        return columns, {f"{name}_{end}": labels for name, labels in ordered.items() for end in ("lower", "upper")}

    def _unordered(self) -> set[str]:
        """Columns without intervals: binary and categorical ones."""
        if self.draws is None:
            return set()
        unordered = self.draws.scaling.of_kind("binary", "categorical")[self.draws.feature]
        return {self.panel.columns[j] for j in np.unique(self.cells[unordered] % len(self.panel.columns))}
