"""Which visible cells are hidden to practise on: single cells, gaps like the table's own, runs, and outages."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gpvae import missingness
from gpvae.data.panel import Bools, Panel
from gpvae.data.runs import find_runs

STRETCH = 2048  # rows of a long series that are practised on together
SHORT, LONG = 12, 48  # rows of runs, at most, if the table's own gaps are no longer
LONGEST = 0.1  # of a series
ENOUGH = 30  # observed cells of a column from which some are held out


def practice_rows(panel: Panel, most: int, seed: int) -> NDArray[np.int64]:
    """All rows of the panel, or those of stretches of it chosen at random, about `most` in all."""
    if len(panel.values) <= most:
        return np.arange(len(panel.values))
    ends = panel.starts + panel.lengths
    pieces = [
        np.arange(first, min(first + STRETCH, end))
        for start, end in zip(panel.starts.tolist(), ends.tolist(), strict=True)
        for first in range(start, end, STRETCH)
    ]
    order = np.random.default_rng([seed, 7]).permutation(len(pieces))
    total = np.cumsum([len(pieces[i]) for i in order])
    return np.sort(np.concatenate([pieces[i] for i in order[: 1 + int(np.searchsorted(total, most))]]))


def part_of(panel: Panel, rows: NDArray[np.int64]) -> Panel:
    """These rows, increasing, as a panel; where rows are left out, a new series begins."""
    begins = np.diff(rows, prepend=-2) != 1
    begins |= np.isin(rows, panel.starts)
    lengths = np.diff(np.append(np.flatnonzero(begins), len(rows)))
    ids = tuple(range(len(lengths)))
    return replace(panel, values=panel.values[rows], times=panel.times[rows], lengths=lengths, ids=ids)


def masks(panel: Panel, count: int, seed: int, *, first: int = 0) -> list[Bools]:
    """So many sets of cells to hide, from number `first` on, of one sort after the other. (row, column) each"""
    longest = longest_gap(panel)
    sorts = (
        lambda at: missingness.random(panel, 0.1, at),
        lambda at: _own(panel, 0.1, at, longest),
        lambda at: _runs(panel, 0.1, at, min(SHORT, longest)),
        lambda at: _runs(panel, 0.1, at, min(SHORT, longest), outage=True),
        lambda at: missingness.random(panel, 0.4, at),
        lambda at: _own(panel, 0.1, at, longest),
        lambda at: _runs(panel, 0.15, at, longest),
        lambda at: _runs(panel, 0.1, at, longest, outage=True),
    )
    return [sorts[i % len(sorts)]([seed, i]) for i in range(first, first + count)]


def held_out_sorts(panel: Panel, share: float, seed: int) -> list[Bools]:
    """A share of the observed cells, a fourth of it each in single cells, gaps like the table's own, runs and outages.

    Columns that would keep few cells keep all. (row, column) each
    """
    longest, left, found = longest_gap(panel), panel, list[Bools]()
    sorts = (
        lambda at: missingness.random(left, share / 4, at),
        lambda at: _own(left, share / 4, at, longest),
        lambda at: _runs(left, share / 4, at, longest),
        lambda at: _runs(left, share / 4, at, longest, outage=True),
    )
    enough = panel.observed.sum(axis=0) >= ENOUGH
    for i, sort in enumerate(sorts):
        found.append(sort([seed, i]) & enough)
        left = missingness.hide(left, found[-1])
    return found


def longest_gap(panel: Panel) -> int:
    """That is worth practising on: like the table's own, but at most a tenth of a series."""
    most = max(2, int(LONGEST * float(np.median(panel.lengths))))
    missing = ~panel.observed[:, panel.observed.any(axis=0)]
    if not missing.any():
        return min(LONG, most)
    lengths = find_runs(panel, missing).length
    return min(max(LONG, int(np.quantile(np.repeat(lengths, lengths), 0.9))), most)


def _own(panel: Panel, share: float, seed: Sequence[int], longest: int) -> Bools:
    if panel.observed.all():
        return _runs(panel, share, seed, longest)
    cells = missingness.like_own(panel, share, seed)
    return cells if cells.any() else missingness.random(panel, share, seed)


def _runs(panel: Panel, share: float, seed: Sequence[int], longest: int, *, outage: bool = False) -> Bools:
    """Runs of an eighth of the longest to the longest; single cells where the table is too small for them."""
    shortest = max(1, math.ceil(longest / 8))
    cells = missingness.blocks(panel, share, seed, length=(shortest, longest), all_columns=outage)
    return cells if cells.any() else missingness.random(panel, share, seed)
