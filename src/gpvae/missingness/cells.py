"""Cells removed one by one, by their values, or in runs."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.missingness.checks import require_cells, require_positive, require_share

MOVES = 100  # at most, of a panel's gaps to other rows


def random(panel: Panel, rate: float, seed: int | Sequence[int]) -> Bools:
    """Which observed cells to remove: exactly a share `rate` of them, anywhere. (row, feature)"""
    require_share(rate)
    observed = panel.observed
    cells = int(np.count_nonzero(observed))
    count = round(rate * cells)
    if not 0 < count < cells:
        raise DataError(f"a share of {rate} of {cells} observed cells leaves nothing to hold out or to learn from")
    lost = np.zeros(cells, dtype=bool)
    lost[np.random.default_rng(seed).choice(cells, count, replace=False)] = True
    observed[observed] = lost
    return observed


def hide(panel: Panel, cells: Bools) -> Panel:
    """The panel without these cells."""
    return panel.with_values(np.where(cells, np.nan, panel.values))


def not_at_random(
    panel: Panel,
    rate: float,
    seed: int | Sequence[int],
    *,
    ratio: float = 2.0,
    threshold: float | Literal["median"] = "median",
) -> Bools:
    """Values above the threshold are `ratio` times as likely to be removed as the others. (row, feature)

    Of n observed cells m lie above. With the probabilities p below and ratio · p above, the average is
    p (n - m + ratio · m) / n = rate, the same p for all columns. The median is that of each column.
    """
    require_share(rate)
    require_positive("ratio", ratio)
    cells = require_cells(panel)
    high = _above(panel, threshold)
    above = np.count_nonzero(high)
    below = rate * cells / (cells - above + ratio * above)
    if below > 1 or ratio * below > 1:
        side = "above" if ratio > 1 else "below"
        raise DataError(
            f"a share of {rate} with ratio {ratio} would remove what lies {side} the threshold with probability "
            f"{max(below, ratio * below):.3f}, more than 1: {above} of {cells} observed cells lie above"
        )
    return _draw(panel, high, below, ratio * below, seed)


def by_value(
    panel: Panel,
    below: float,
    above: float,
    seed: int | Sequence[int],
    *,
    threshold: float | Literal["median"] = "median",
) -> Bools:
    """Observed cells removed with probability `above` where they exceed the threshold, else `below`. (row, feature)

    `by_value(panel, 0.45, 0.90, seed, threshold=0.5)` is the paper's "not at random" on Healing MNIST, white = 1.
    """
    for name, probability in (("below", below), ("above", above)):
        if not 0 <= probability <= 1:
            raise DataError(f"{name} is a probability, from 0 to 1, not {probability}")
    return _draw(panel, _above(panel, threshold), below, above, seed)


def _draw(panel: Panel, high: Bools, below: float, above: float, seed: int | Sequence[int]) -> Bools:
    draws = np.random.default_rng(seed).random(high.shape, dtype=np.float32)
    return np.where(high, draws < above, draws < below) & panel.observed


def _above(panel: Panel, threshold: float | Literal["median"]) -> Bools:
    """(row, feature)"""
    if threshold != "median":
        return panel.values > threshold
    columns = (column[~np.isnan(column)] for column in panel.values.T)
    return panel.values > np.array([np.median(column) if len(column) else 0.0 for column in columns])


def blocks(
    panel: Panel,
    rate: float,
    seed: int | Sequence[int],
    *,
    length: tuple[int, int] = (5, 20),
    all_columns: bool = False,
) -> Bools:
    """Runs of consecutive rows missing in one column, or in all columns at once. (row, feature)

    Their lengths are uniform from the first to the second of `length`. All series stand one after another in random
    order, column after column; the runs lie anywhere on this line with at least one cell between them, all
    arrangements equally likely. A run past the end of a series goes on in the next: only at the ends of series are
    runs shorter. The share is exact where nothing was missing before, else on average.
    """
    require_share(rate)
    require_cells(panel)
    if not 1 <= length[0] <= length[1]:
        raise DataError(f"length must be (shortest, longest), of at least 1 step, not {length}")
    rng = np.random.default_rng(seed)
    rows = np.argsort(rng.permutation(len(panel))[panel.series_of_row], kind="stable")
    lines = 1 if all_columns else len(panel.columns)
    chosen = np.zeros(panel.values.shape, dtype=bool)
    chosen[rows] = _runs(len(rows) * lines, rate, length, rng).reshape(lines, len(rows)).T
    chosen &= panel.observed
    return chosen


def like_own(panel: Panel, rate: float, seed: int | Sequence[int]) -> Bools:
    """Gaps as the panel has them itself: its own, moved to other rows, until they hide such a share. (row, feature)

    What is missing in several columns from one row to another goes together. A gap that would hide more than twice the
    share of its column is left out: of a column that begins late, nothing would be left.
    """
    require_share(rate)
    wanted, observed = rate * require_cells(panel), panel.observed
    if observed.all():
        raise DataError("the data has no gaps to imitate")
    rng, rows = np.random.default_rng(seed), len(observed)
    edges = np.diff(~observed, axis=0, prepend=False, append=False)  # where gaps begin, and behind their ends
    column, places = np.nonzero(edges.T)
    gaps = _Gaps(column[::2], places[::2], places[1::2])
    seen = np.zeros((rows + 1, observed.shape[1]), dtype=np.int64)  # so many are observed before each row
    np.cumsum(observed, axis=0, out=seen[1:])
    turns, longest = np.zeros((rows + 1, observed.shape[1]), dtype=np.int16), 2 * rate * seen[-1]
    for _ in range(MOVES):
        moved, hides = gaps.moved(int(rng.integers(1, max(2, rows))), rows).some(wanted, seen, longest, rng)
        np.add.at(turns, (moved.first, moved.column), 1)
        np.subtract.at(turns, (moved.end, moved.column), 1)
        wanted -= hides
        if wanted < 0.05 * rate * seen[-1].sum():
            break
    return (np.cumsum(turns[:-1], axis=0, dtype=np.int16) > 0) & observed


class _Gaps(NamedTuple):
    """Runs of rows of one column, each from `first` to before `end`. (gap,)"""

    column: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]

    def moved(self, by: int, rows: int) -> "_Gaps":
        """Around the end of the panel to its beginning; there they are cut."""
        first = (self.first + by) % rows
        return _Gaps(self.column, first, np.minimum(first + self.end - self.first, rows))

    def some(
        self, wanted: float, seen: NDArray[np.int64], longest: Floats, rng: np.random.Generator
    ) -> "tuple[_Gaps, float]":
        """In random order, while they hide no more than `wanted` of what is observed, `seen` (row + 1, feature) before
        each row; and how much they hide. Those alike in several columns go together.
        """
        hides = seen[self.end, self.column] - seen[self.first, self.column]
        fine = (hides > 0) & (hides <= longest[self.column])
        gaps, hides = _Gaps(*(each[fine] for each in self)), hides[fine]
        _, outage = np.unique(gaps.first * len(seen) + gaps.end, return_inverse=True)
        lost = np.bincount(outage, hides)
        order = rng.permutation(len(lost))
        taken = np.zeros(len(lost), dtype=bool)
        taken[order[np.cumsum(lost[order]) <= wanted]] = True
        kept = taken[outage]
        return _Gaps(*(each[kept] for each in gaps)), float(hides[kept].sum())


def _runs(cells: int, rate: float, length: tuple[int, int], rng: np.random.Generator) -> Bools:
    """True on exactly a share `rate` of a line of cells, in runs that do not touch. (cell,)"""
    lost = round(rate * cells)
    lengths = _run_lengths(lost, length, rng)
    free = cells - lost
    if len(lengths) > free + 1:
        raise DataError(
            f"runs of {length[0]} to {length[1]} steps with a step between them cannot make up a share of {rate}: "
            "ask for less or for longer runs"
        )
    # Different ones of the free + 1 places before, between and behind the free cells: the gaps are their differences.
    places = np.sort(rng.choice(free + 1, len(lengths), replace=False))
    gaps = np.diff(places, prepend=0, append=free)
    turns = np.zeros(2 * len(lengths) + 1, dtype=np.int64)  # gap, run, gap, …, run, gap
    turns[::2], turns[1::2] = gaps, lengths
    return np.repeat(np.arange(len(turns)) % 2 == 1, turns)


def _run_lengths(total: int, length: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Lengths that sum to the total, one of them cut to fit. (run,)"""
    lengths = rng.integers(length[0], length[1] + 1, size=-(-total // length[0]))
    ends = np.cumsum(lengths)
    count = int(np.searchsorted(ends, total)) + 1 if total else 0
    lengths = lengths[:count]
    lengths[-1:] -= ends[count - 1 : count] - total
    return rng.permutation(lengths)
