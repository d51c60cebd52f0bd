"""Panels for the tests of missingness mechanisms, and statistics of the cells that are removed."""

import numpy as np

from gpvae.data.panel import Bools, Panel

IMAGE = {"image_shape": (2, 3)}


def ragged(seed: int, series: int = 10, longest: int = 12) -> Panel:
    """Irregular times, 6 columns, lengths from 1; later steps are missing more often; one column is empty."""
    rng = np.random.default_rng(seed)
    lengths = [1, 1, *rng.integers(1, longest + 1, size=series - 2)]
    values = [np.where(rng.random((n, 6)) < np.linspace(0, 0.8, n)[:, None], np.nan, 10.0) for n in lengths]
    values = [array + rng.normal(size=array.shape) for array in values]
    for array in values:
        array[:, 3] = np.nan
    values[seed % series][:] = np.nan
    return Panel.from_list(values, times=[np.cumsum(rng.exponential(size=n)) - 5 for n in lengths])


def even(*shape: int) -> Panel:
    return Panel.of(10 + np.random.default_rng(0).normal(size=shape))


def deviation(panel: Panel, cells: Bools, rate: float) -> float:
    """Error of the number of removed cells in standard deviations; series are independent."""
    excess = np.add.reduceat((cells - rate * panel.observed).sum(axis=1), panel.starts)  # (series,)
    return float(abs(excess.sum()) / np.sqrt((excess**2).sum()))


def correlation(first: Bools, second: Bools) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def over_time(cells: Bools, steps: int, lag: int = 1) -> float:
    """Correlation of steps at this lag, away from the ends."""
    frames = cells.reshape(-1, steps, cells.shape[1])[:, 2:-2]  # (series, time, feature)
    return correlation(frames[:, :-lag], frames[:, lag:])
