"""Bounds that a column does not cross: nothing below 0 is rain, nothing above 100 is a percentage.

A bound is exact, and the data must show it. The least value is one where it piles up: it is there far more often than
the next one. 0 is one if it is the least value and there often enough, or if all values are positive, skewed, and some
of them tiny beside the usual ones. The greatest value is one where it piles up, and 1 and 100 are where they bound
shares and percentages, which 0 bounds, too.
"""

import math

import numpy as np

from gpvae.data.times import Floats

OFTEN, PILE, TIMES = 0.02, 0.05, 3  # shares of a column's values; a pile is so many times as high as what is next to it
TINY, SKEWED = 0.1, 1.1  # of the median: a tiny value, and a mean that is far above it
LEAST = 20  # values that a column must have


def find_bounds(values: Floats) -> Floats:
    """Least and greatest possible value of each column, infinite where there is no bound. (column, 2)"""
    return np.array([_bounds(column[~np.isnan(column)]) for column in values.T]).reshape(-1, 2)


def _bounds(seen: Floats) -> tuple[float, float]:
    if len(seen) < LEAST or seen.min() == seen.max():
        return -math.inf, math.inf
    distinct, count = np.unique(seen, return_counts=True)
    share = count / len(seen)
    low = _least(distinct, share, float(np.median(seen)))
    if low == 0 and distinct[-1] in (1, 100) and share[-1] >= OFTEN:
        return low, float(distinct[-1])
    return low, float(distinct[-1]) if _piles_up(share[::-1]) else math.inf


def _least(distinct: Floats, share: Floats, median: float) -> float:
    if distinct[0] == 0 and share[0] >= OFTEN:
        return 0.0
    if distinct[0] > 0 and share[distinct < TINY * median].sum() >= OFTEN and distinct @ share > SKEWED * median:
        return 0.0
    return float(distinct[0]) if _piles_up(share) else -math.inf


def _piles_up(share: Floats) -> bool:
    """Whether the first of these is far more than its neighbours, of a column with more than two values."""
    return len(share) > 2 and share[0] >= PILE and bool(share[0] >= TIMES * share[1:3].max())
