"""Mean, forward and linear imputation, over all series at once.

Where a series has no observation of a column there is nothing to carry or average: the mean of the column over all
series stands in (NaN if there is none).
"""

import numpy as np
from numpy.typing import NDArray

from gpvae.panel import Floats, Panel


def mean(panel: Panel) -> Floats:
    """The mean of the column in the same series."""
    count = np.add.reduceat(panel.observed, panel.starts, axis=0, dtype=np.float64)
    total = np.add.reduceat(np.where(panel.observed, panel.values, 0), panel.starts, axis=0)
    with np.errstate(invalid="ignore"):
        per_series = np.where(count > 0, total / count, _column_means(panel))
    return np.where(panel.observed, panel.values, per_series[panel.series_of_row])


def forward(panel: Panel) -> Floats:
    """The last observed value; before the first observation, the first observed value."""
    last, following = _neighbours(panel)
    source = np.where(last >= 0, last, following)
    return _take(panel, source)


def linear(panel: Panel) -> Floats:
    """On the line in time between the neighbouring observations; beyond the first and last, the nearest one."""
    last, following = _neighbours(panel)
    before = _take(panel, np.where(last >= 0, last, following))
    after = _take(panel, np.where(following >= 0, following, last))
    start, end = panel.times[last], panel.times[following]
    inside = (last >= 0) & (following >= 0) & (end > start)
    share = np.where(inside, (panel.times[:, None] - start) / np.where(inside, end - start, 1), 0)
    return np.where(panel.observed, panel.values, before + share * (after - before))


def _neighbours(panel: Panel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each cell, the row of the last observation at or before it and of the next at or after it; -1 = none."""
    rows = np.arange(len(panel.values))[:, None]
    first = panel.starts[panel.series_of_row][:, None]
    past_end = (panel.starts + panel.lengths)[panel.series_of_row][:, None]
    last = np.maximum.accumulate(np.where(panel.observed, rows, -1), axis=0)
    following = np.minimum.accumulate(np.where(panel.observed, rows, len(rows))[::-1], axis=0)[::-1]
    return np.where(last >= first, last, -1), np.where(following < past_end, following, -1)


def _take(panel: Panel, rows: NDArray[np.int64]) -> Floats:
    taken = np.take_along_axis(panel.values, np.maximum(rows, 0), axis=0)
    return np.where(rows >= 0, taken, _column_means(panel))


def _column_means(panel: Panel) -> Floats:
    count = panel.observed.sum(axis=0)
    total = np.where(panel.observed, panel.values, 0).sum(axis=0)
    return np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
