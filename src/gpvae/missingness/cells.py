"""Mechanisms that remove single cells, cells by their values, or runs of rows."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.missingness.checks import require_cells, require_positive, require_share

MAX_SHIFTS = 100  # of a panel's gaps to other rows


def random(panel: Panel, rate: float, seed: int | Sequence[int]) -> Bools:
    """Choose exactly a share `rate` of the observed cells, uniformly. (row, feature)"""
    require_share(rate)
    observed = panel.observed
    cells = int(np.count_nonzero(observed))
    count = round(rate * cells)
    if not 0 < count < cells:
        raise DataError(f"a share of {rate} of {cells} observed cells leaves nothing to hold out or to train on")
    chosen = np.zeros(cells, dtype=bool)
    chosen[np.random.default_rng(seed).choice(cells, count, replace=False)] = True
    observed[observed] = chosen
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

    If m of n observed cells lie above, the probability p below the threshold, and ratio · p above, solves
    p (n - m + ratio · m) / n = rate. It is the same for all columns; "median" is the median of each column.
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
            f"a share of {rate} with ratio {ratio} would remove values {side} the threshold with probability "
            f"{max(below, ratio * below):.3f}, more than 1: {above} of {cells} observed cells lie above it"
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
    """Remove observed cells with probability `above` if they exceed the threshold, else `below`. (row, feature)

    `by_value(panel, 0.45, 0.90, seed, threshold=0.5)` is the paper's "not at random" on Healing MNIST, white = 1.
    """
    for name, probability in (("below", below), ("above", above)):
        if not 0 <= probability <= 1:
            raise DataError(f"{name} must be a probability from 0 to 1, got {probability}")
    return _draw(panel, _above(panel, threshold), below, above, seed)


def _draw(panel: Panel, high: Bools, below: float, above: float, seed: int | Sequence[int]) -> Bools:
    draws = np.random.default_rng(seed).random(high.shape, dtype=np.float32)
    return np.where(high, draws < above, draws < below) & panel.observed


def _above(panel: Panel, threshold: float | Literal["median"]) -> Bools:
    """Cells above the threshold. (row, feature)"""
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

    Lengths are uniform over the range `length`. All series are concatenated in random order, column after column; the
    runs are placed on this line with at least one cell between them, all arrangements being equally likely. A run past
    the end of a series continues in the next one, so runs are shorter only at the ends of series. The share is exact if
    nothing was missing before, else on average.
    """
    require_share(rate)
    require_cells(panel)
    if not 1 <= length[0] <= length[1]:
        raise DataError(f"length must be (shortest, longest) with 1 <= shortest <= longest, got {length}")
    rng = np.random.default_rng(seed)
    rows = np.argsort(rng.permutation(len(panel))[panel.series_of_row], kind="stable")
    lines = 1 if all_columns else len(panel.columns)
    chosen = np.zeros(panel.values.shape, dtype=bool)
    chosen[rows] = _runs(len(rows) * lines, rate, length, rng).reshape(lines, len(rows)).T
    chosen &= panel.observed
    return chosen


def like_own(panel: Panel, rate: float, seed: int | Sequence[int]) -> Bools:
    """The panel's own gaps, shifted to other rows until they hide the share `rate`. (row, feature)

    Columns that are missing from the same row to the same row are shifted together. A gap that would hide more than
    twice the share of its column is left out: a column that begins late would lose all its values.
    """
    require_share(rate)
    wanted, observed = rate * require_cells(panel), panel.observed
    if observed.all():
        raise DataError("the data has no gaps to imitate")
    rng, rows = np.random.default_rng(seed), len(observed)
    edges = np.diff(
        ~observed, axis=0, prepend=False, append=False
    )  # the first row of each gap, and the row after its end
    column, bounds = np.nonzero(edges.T)
    gaps = _Gaps(column[::2], bounds[::2], bounds[1::2])
    count = np.zeros((rows + 1, observed.shape[1]), dtype=np.int64)  # of observed cells before each row
    np.cumsum(observed, axis=0, out=count[1:])
    depth_change, largest = np.zeros((rows + 1, observed.shape[1]), dtype=np.int16), 2 * rate * count[-1]
    for _ in range(MAX_SHIFTS):
        shifted = gaps.shifted(int(rng.integers(1, max(2, rows))), rows)
        chosen, hidden = shifted.choose(wanted, count, largest, rng)
        np.add.at(depth_change, (chosen.first, chosen.column), 1)
        np.subtract.at(depth_change, (chosen.end, chosen.column), 1)
        wanted -= hidden
        if wanted < 0.05 * rate * count[-1].sum():
            break
    return (np.cumsum(depth_change[:-1], axis=0, dtype=np.int16) > 0) & observed


class _Gaps(NamedTuple):
    """Runs of rows, each in one column from `first` up to but excluding `end`. (gap,)"""

    column: NDArray[np.int64]
    first: NDArray[np.int64]
    end: NDArray[np.int64]

    def shifted(self, by: int, rows: int) -> "_Gaps":
        """Shifted by rows, wrapping around the end of the panel, where gaps are cut."""
        first = (self.first + by) % rows
        return _Gaps(self.column, first, np.minimum(first + self.end - self.first, rows))

    def choose(
        self, wanted: float, count: NDArray[np.int64], largest: Floats, rng: np.random.Generator
    ) -> "tuple[_Gaps, float]":
        """Random gaps that hide at most `wanted` observed cells, and the number that they hide.

        `count` (row + 1, feature) has the observed cells before each row. Gaps of the same rows are chosen together.
        """
        hidden = count[self.end, self.column] - count[self.first, self.column]
        usable = (hidden > 0) & (hidden <= largest[self.column])
        gaps, hidden = _Gaps(*(field[usable] for field in self)), hidden[usable]
        _, outage = np.unique(gaps.first * len(count) + gaps.end, return_inverse=True)
        hidden_by_outage = np.bincount(outage, hidden)
        order = rng.permutation(len(hidden_by_outage))
        is_chosen = np.zeros(len(order), dtype=bool)
        is_chosen[order[np.cumsum(hidden_by_outage[order]) <= wanted]] = True
        chosen = is_chosen[outage]
        return _Gaps(*(field[chosen] for field in gaps)), float(hidden[chosen].sum())


def _runs(cells: int, rate: float, length: tuple[int, int], rng: np.random.Generator) -> Bools:
    """True on exactly a share `rate` of a line of cells, in runs that do not touch. (cell,)"""
    total = round(rate * cells)
    lengths = _run_lengths(total, length, rng)
    free = cells - total
    if len(lengths) > free + 1:
        raise DataError(
            f"runs of {length[0]} to {length[1]} steps with a step between them cannot make up a share of {rate}: "
            "choose a smaller share or longer runs"
        )
    # Each run goes to a different one of the free + 1 slots before, between and after the free cells.
    slots = np.sort(rng.choice(free + 1, len(lengths), replace=False))
    alternating = np.zeros(2 * len(lengths) + 1, dtype=np.int64)  # free cells, run, free cells, …, run, free cells
    alternating[::2], alternating[1::2] = np.diff(slots, prepend=0, append=free), lengths
    return np.repeat(np.arange(len(alternating)) % 2 == 1, alternating)


def _run_lengths(total: int, length: tuple[int, int], rng: np.random.Generator) -> NDArray[np.int64]:
    """Random lengths that sum to the total, one of them shortened. (run,)"""
    lengths = rng.integers(length[0], length[1] + 1, size=-(-total // length[0]))
    ends = np.cumsum(lengths)
    count = int(np.searchsorted(ends, total)) + 1 if total else 0
    lengths = lengths[:count]
    lengths[-1:] -= ends[count - 1 : count] - total
    return rng.permutation(lengths)
