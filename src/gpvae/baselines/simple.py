"""Mean, forward and linear imputation, over all series at once.

Where a series has no observation of a column there is nothing to carry or average: the mean of the column in the data
fitted on stands in.
"""

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from gpvae.imputer import Filled, Imputer
from gpvae.panel import Bools, Floats, Panel
from gpvae.schema import Schema


class _Simple(Imputer):
    """Nothing is learned but the means of the columns."""

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        self.schema_, self.history_ = self._new_schema(self._read(data)), []
        return self

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True)

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Filled:
        return Filled(self._values(panel, self.schema_.scaling.shift)[missing])

    @abstractmethod
    def _values(self, panel: Panel, usual: Floats) -> Floats:
        """The panel's values without gaps; `usual` where a series has none. (row, feature)"""


class Mean(_Simple):
    """The mean of the column in the same series."""

    def _values(self, panel: Panel, usual: Floats) -> Floats:
        return mean(panel, usual)


@dataclass(eq=False, repr=False)
class Forward(_Simple):
    """The last observed value.

    before: what stands before the first observation of a series: the "mean" of the column in the data fitted on, the
        "first" observed value, carried back, or a number (the paper's images: 0, black).
    """

    before: Literal["mean", "first"] | float = "mean"

    def fit(self, data: Any, y: None = None, **places: Any) -> Self:
        number = isinstance(self.before, int | float) and not isinstance(self.before, bool) and np.isfinite(self.before)
        if not number and self.before not in ("mean", "first"):
            raise ValueError(f"before={self.before!r} makes no sense: it is 'mean', 'first' or a number")
        return super().fit(data, y, **places)

    def _values(self, panel: Panel, usual: Floats) -> Floats:
        if not isinstance(self.before, str):
            return forward(panel, np.full_like(usual, self.before))
        return forward(panel, usual, back=self.before == "first")


class Linear(_Simple):
    """On the line in time between the neighbouring observations; beyond the first and last, the nearest one."""

    def _values(self, panel: Panel, usual: Floats) -> Floats:
        return linear(panel, usual)


def mean(panel: Panel, usual: Floats) -> Floats:
    """See `Mean`; `usual` (feature,) where a series has no observation."""
    count = np.add.reduceat(panel.observed, panel.starts, axis=0, dtype=np.float64)
    total = np.add.reduceat(np.where(panel.observed, panel.values, 0), panel.starts, axis=0)
    with np.errstate(invalid="ignore"):
        per_series = np.where(count > 0, total / count, usual)
    return np.where(panel.observed, panel.values, per_series[panel.series_of_row])


def forward(panel: Panel, usual: Floats, *, back: bool = False) -> Floats:
    """See `Forward`; `usual` before the first observation, or, carried `back`, that one."""
    last, following = neighbours(panel)
    return _take(panel, np.where((last < 0) & back, following, last), usual)


def linear(panel: Panel, usual: Floats) -> Floats:
    """See `Linear`."""
    last, following = neighbours(panel)
    before = _take(panel, np.where(last >= 0, last, following), usual)
    after = _take(panel, np.where(following >= 0, following, last), usual)
    start, end = panel.times[last], panel.times[following]
    inside = (last >= 0) & (following >= 0) & (end > start)
    share = np.where(inside, (panel.times[:, None] - start) / np.where(inside, end - start, 1), 0)
    return np.where(panel.observed, panel.values, before + share * (after - before))


def neighbours(panel: Panel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each cell, the row of the last observation at or before it and of the next at or after it; -1 = none."""
    rows = np.arange(len(panel.values))[:, None]
    first = panel.starts[panel.series_of_row][:, None]
    past_end = (panel.starts + panel.lengths)[panel.series_of_row][:, None]
    last = np.maximum.accumulate(np.where(panel.observed, rows, -1), axis=0)
    following = np.minimum.accumulate(np.where(panel.observed, rows, len(rows))[::-1], axis=0)[::-1]
    return np.where(last >= first, last, -1), np.where(following < past_end, following, -1)


def _take(panel: Panel, rows: NDArray[np.int64], usual: Floats) -> Floats:
    taken = np.take_along_axis(panel.values, np.maximum(rows, 0), axis=0)
    return np.where(rows >= 0, taken, usual)
