"""Cells removed at random, by their values, in blocks, and like the panel's own gaps."""

from typing import Any

import numpy as np
import pytest
from panels import correlation, even, ragged
from scipy.stats import chisquare

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Panel


def test_hide_removes_only_the_given_cells() -> None:
    panel = ragged(1)
    cells = missingness.random(panel, 0.3, seed=0)
    hidden = missingness.hide(panel, cells)
    np.testing.assert_array_equal(hidden.observed, panel.observed & ~cells)
    np.testing.assert_array_equal(hidden.values[hidden.observed], panel.values[hidden.observed])
    assert panel.observed[cells].all()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.99])
def test_random_removes_an_exact_share_of_the_observed_cells(rate: float) -> None:
    panel = ragged(3, series=40)
    cells = missingness.random(panel, rate, seed=0)
    assert cells.sum() == round(rate * panel.observed.sum())
    observed = np.flatnonzero(panel.observed)
    drawn = np.random.default_rng(0).choice(observed, round(rate * len(observed)), replace=False)
    assert np.flatnonzero(cells).tolist() == sorted(drawn.tolist())


def test_random_removes_each_cell_equally_often() -> None:
    panel = Panel.of(np.array([[1.0, 2.0], [np.nan, 4.0], [5.0, 6.0]]))
    counts = np.sum([missingness.random(panel, 0.4, seed) for seed in range(2000)], axis=0)
    expected = np.array([[800, 800], [0, 800], [800, 800]])
    deviation = np.sqrt(2000 * 0.4 * 0.6)  # of a binomial count
    assert (np.abs(counts - expected) < 4 * deviation).all()
    assert counts[1, 0] == 0


def test_random_refuses_to_remove_nothing_or_everything() -> None:
    panel = Panel.of(np.array([[1.0, 2.0, np.nan]]))
    for rate in (0.1, 0.9):
        with pytest.raises(DataError, match=f"a share of {rate} of 2 observed cells"):
            missingness.random(panel, rate, seed=0)


def pictures() -> Panel:
    """13 % of the pixels are white."""
    rng = np.random.default_rng(0)
    white = (rng.random((200, 10, 100)) < 0.13).astype(float)
    return Panel.of(np.where(rng.random(white.shape) < 0.1, np.nan, white))


def test_the_papers_not_at_random() -> None:
    panel = pictures()
    cells = missingness.by_value(panel, 0.45, 0.90, 0, threshold=0.5)
    assert cells[panel.values == 1].mean() == pytest.approx(0.90, abs=0.01)
    assert cells[panel.values == 0].mean() == pytest.approx(0.45, abs=0.005)
    average = 0.45 + 0.45 * float(np.nanmean(panel.values))
    assert cells[panel.observed].mean() == pytest.approx(average, abs=0.005)
    same = missingness.not_at_random(panel, average, 0, threshold=0.5)
    np.testing.assert_array_equal(cells, same)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("threshold", ["median", 0.5])
def test_high_values_are_removed_at_the_given_ratio(ratio: float, threshold: Any) -> None:
    values = np.random.default_rng(0).normal(size=(3000, 40)) + np.linspace(-1, 1, 40)
    values[:, 7] = np.nan
    panel = Panel.of(values)
    medians = [0.0 if j == 7 else np.median(values[:, j]) for j in range(40)]
    high = values > (medians if threshold == "median" else threshold)
    cells = missingness.not_at_random(panel, 0.3, 0, ratio=ratio, threshold=threshold)
    low = ~high & panel.observed
    assert cells[high].mean() / cells[low].mean() == pytest.approx(ratio, rel=0.03)
    assert cells[panel.observed].mean() == pytest.approx(0.3, abs=0.005)


def test_probabilities_above_one_are_refused() -> None:
    with pytest.raises(DataError, match=r"values above the threshold with probability 1\.\d+, more than 1"):
        missingness.not_at_random(even(10, 10, 2), 0.8, 0)
    with pytest.raises(DataError, match=r"values below the threshold with probability 1\.\d+, more than 1"):
        missingness.not_at_random(even(10, 10, 2), 0.8, 0, ratio=0.5)
    with pytest.raises(DataError, match=r"above must be a probability from 0 to 1, got 1\.1"):
        missingness.by_value(pictures(), 0.5, 1.1, 0)
    with pytest.raises(DataError, match="below must be a probability from 0 to 1, got nan"):
        missingness.by_value(pictures(), float("nan"), 1.0, 0)
    for ratio in (0.0, -1.0, float("nan")):
        with pytest.raises(DataError, match=f"ratio must be positive and finite, got {ratio}"):
            missingness.not_at_random(pictures(), 0.5, 0, ratio=ratio)


def run_lengths(column: Bools) -> Any:
    """Lengths of the runs that touch neither end."""
    edges = np.diff(column.astype(int))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    ends = ends[ends > starts[0]] if len(starts) else ends[:0]
    return ends - starts[: len(ends)]


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.7])
def test_blocks_have_the_given_lengths(rate: float) -> None:
    panel = even(1, 20000, 3)
    cells = missingness.blocks(panel, rate, 0, length=(4, 9))
    assert cells.sum() == round(rate * cells.size)
    lengths = np.concatenate([run_lengths(column) for column in cells.T])
    short = np.sum(lengths < 4)
    assert short <= 1  # the one that is shortened to fit
    assert lengths.max() == 9
    counts = np.bincount(lengths, minlength=10)[4:]
    assert chisquare(counts).pvalue > 1e-3
    assert abs(correlation(cells[:, 0], cells[:, 1])) < 0.08


def test_blocks_in_all_columns() -> None:
    panel = even(30, 100, 4)
    cells = missingness.blocks(panel, 0.2, 0, length=(3, 3), all_columns=True)
    assert (cells == cells[:, :1]).all()
    assert cells[:, 0].sum() == 600
    inside = [run_lengths(series) for series in cells[:, 0].reshape(30, 100)]
    assert set(np.concatenate(inside)) == {3}


def test_blocks_remove_each_step_equally_often() -> None:
    """At the ends of series too."""
    cells = missingness.blocks(even(4000, 12, 2), 0.3, 0, length=(2, 6)).reshape(4000, 12, 2)
    assert np.abs(cells.mean(axis=(0, 2)) - 0.3).max() < 4.5 * np.sqrt(0.21 / 8000)


def test_invalid_blocks_are_refused() -> None:
    for length in ((0, 3), (4, 3), (-2, -1)):
        with pytest.raises(DataError, match=r"length must be \(shortest, longest\) with 1 <= shortest <= longest"):
            missingness.blocks(ragged(0), 0.5, 0, length=length)
    with pytest.raises(
        DataError, match=r"runs of 1 to 3 steps with a step between them cannot make up a share of 0\.8"
    ):
        missingness.blocks(even(10, 10, 2), 0.8, 0, length=(1, 3))


def lengths_of_runs(cells: Bools) -> list[int]:
    edges = np.diff(cells.astype(int), prepend=0, append=0)
    return sorted((np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)).tolist())


def with_outages(rows: int = 4000) -> Panel:
    """Gaps of one row in the first column, of 30 rows in the second and third together, none in the last."""
    values = np.random.default_rng(0).normal(size=(rows, 4))
    values[5::40, 0] = np.nan
    for first in range(100, rows - 100, 500):
        values[first : first + 30, 1:3] = np.nan
    return Panel.of(values)


def test_like_own_imitates_the_lengths_and_columns_of_gaps() -> None:
    panel = with_outages()
    cells = missingness.like_own(panel, 0.03, 7)
    assert not (cells & ~panel.observed).any()
    assert cells.sum() == pytest.approx(0.03 * panel.observed.sum(), rel=0.1)
    assert set(lengths_of_runs(cells[:, 0])) <= {1, 2}  # two shifted gaps may touch
    assert not cells[:, 3].any()
    together = cells[:, 1] & cells[:, 2]
    assert together.sum() == cells[:, 1].sum() == cells[:, 2].sum() > 100
    assert np.mean(np.array(lengths_of_runs(together)) >= 25) > 0.6  # shorter where they overlap an existing gap
    assert (cells == missingness.like_own(panel, 0.03, 7)).all()
    assert (cells != missingness.like_own(panel, 0.03, 8)).any()


def test_like_own_leaves_out_gaps_that_would_hide_most_of_a_column() -> None:
    """The first column begins halfway: its gap, shifted, would leave nothing to train on."""
    values = np.random.default_rng(0).normal(size=(1000, 2))
    values[:500, 0] = np.nan
    values[::25, 1] = np.nan
    cells = missingness.like_own(Panel.of(values), 0.05, 0)
    assert not cells[:, 0].any()
    assert cells[:, 1].any()


def test_like_own_needs_gaps() -> None:
    with pytest.raises(DataError, match="the data has no gaps to imitate"):
        missingness.like_own(even(20, 5, 2), 0.1, 0)
