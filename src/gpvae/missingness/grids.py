"""Drawing cells for series that share a grid of times, in parts that fit into memory."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats, Panel

RowIndex = NDArray[np.int64]  # (series, time)
Draw = Callable[[int, int], Bools]  # (number of series, number of features) → (series, time, feature)

CELLS = 2**23  # drawn at a time


def draw_on_grids(panel: Panel, prepare: Callable[[Floats, RowIndex], Draw]) -> Bools:
    """Observed cells that `prepare(times, rows)` draws for the series of each grid. (row, feature)"""
    chosen = np.zeros(panel.values.shape, dtype=bool)
    features = len(panel.columns)
    for times, rows in grids(panel):
        draw = prepare(times, rows)
        for part in parts(rows, features):
            chosen[part] = draw(len(part), features)
    chosen &= panel.observed
    return chosen


def grids(panel: Panel) -> Iterator[tuple[Floats, RowIndex]]:
    """The times (time,) of each grid, in median steps since the start, and the rows of its series."""
    step = float(np.median(panel.time_steps)) if len(panel.time_steps) else 1.0
    for length in np.unique(panel.lengths[panel.lengths > 0]):
        starts = panel.starts[panel.lengths == length]
        rows = starts[:, None] + np.arange(length)  # (series, time)
        times = np.round((panel.times[rows] - panel.times[starts, None]) / step, 6)
        different, grid = np.unique(times, axis=0, return_inverse=True)
        order = np.argsort(grid, kind="stable")
        counts = np.bincount(grid, minlength=len(different))
        yield from zip(different, np.split(rows[order], np.cumsum(counts)[:-1]), strict=True)


def parts(rows: RowIndex, features: int) -> Iterator[RowIndex]:
    """Parts of about CELLS cells, or of one series."""
    size = max(1, CELLS // (rows.shape[1] * features))
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def rbf(times: Floats, length_scale: float, jitter: float) -> Floats:
    """exp(-(t - t')² / 2ℓ²) + jitter · [t = t']. (time, time)"""
    distances = (times[:, None] - times) / length_scale
    return np.exp(-(distances**2) / 2) + jitter * np.eye(len(times))
