"""Cells that are hidden for practice and held out: how many, of which sorts, and where."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import Panel, missingness
from gpvae.data.runs import find_runs
from gpvae.training.practice import (
    ENOUGH,
    LONG,
    STRETCH,
    held_out_sorts,
    longest_gap,
    masks,
    part_of,
    practice_rows,
)

Array = NDArray[Any]


def table(rows: int = 600, columns: int = 4, gaps: float = 0.0) -> Panel:
    panel = Panel.from_array(np.random.default_rng(0).normal(size=(rows, columns)))
    if not gaps:
        return panel
    return missingness.hide(panel, missingness.blocks(panel, gaps, 1, length=(70, 90)))


@pytest.mark.parametrize("panel", [table(), table(gaps=0.2), table(40), table(columns=1)], ids=str)
def test_held_out_cells_are_observed_and_of_one_sort_each(panel: Panel) -> None:
    sorts = held_out_sorts(panel, 0.1, seed=0)
    assert not (np.sum(sorts, axis=0) > 1).any()
    assert not (np.logical_or.reduce(sorts) & ~panel.observed).any()
    share = np.logical_or.reduce(sorts).sum() / panel.observed.sum()
    assert 0.05 < share < 0.16


def test_columns_with_few_cells_keep_them() -> None:
    panel = table()
    values = panel.values.copy()
    values[ENOUGH - 1 :, 2] = np.nan
    sorts = held_out_sorts(panel.with_values(values), 0.1, seed=0)
    assert not any(each[:, 2].any() for each in sorts)
    assert all(any(each[:, j].any() for each in sorts) for j in (0, 1, 3))


def test_an_outage_takes_all_columns_and_a_run_one() -> None:
    panel = table(2000)
    *_, runs, outages = held_out_sorts(panel, 0.1, seed=0)
    lengths = find_runs(panel, runs).length
    assert lengths.max() > 10
    assert lengths.max() <= LONG
    assert not runs.all(axis=1).any()
    assert (outages.sum(axis=1) > 2).sum() > 0.9 * outages.any(axis=1).sum()


def test_gaps_are_as_long_as_the_tables_own_but_no_longer_than_a_tenth() -> None:
    assert longest_gap(table(2000)) == LONG
    assert longest_gap(table(2000, gaps=0.2)) >= 70
    assert longest_gap(table(300, gaps=0.3)) == 30
    assert longest_gap(table(20)) == 2


def test_masks_differ_and_hide_only_what_is_observed() -> None:
    panel = table(gaps=0.2)
    found = masks(panel, 16, 0)
    assert all(each.any() for each in found)
    assert not any((each & ~panel.observed).any() for each in found)
    assert len({each.tobytes() for each in found}) == 16
    assert all(
        np.array_equal(*pair) for pair in zip(found, [*masks(panel, 5, 0), *masks(panel, 11, 0, first=5)], strict=True)
    )


def test_long_tables_are_practised_on_in_stretches() -> None:
    panel = table(20 * STRETCH, columns=1)
    rows = practice_rows(panel, 4 * STRETCH, seed=0)
    assert 4 * STRETCH <= len(rows) <= 6 * STRETCH
    part = part_of(panel, rows)
    assert np.array_equal(part.values, panel.values[rows])
    assert not (part.lengths % STRETCH).any()
    assert np.array_equal(practice_rows(table(), 10_000, 0), np.arange(600))


def test_series_stay_apart_in_a_part() -> None:
    panel = Panel.from_list([np.ones((3, 1)), np.ones((2, 1)), np.ones((4, 1))])
    assert part_of(panel, np.arange(9)).lengths.tolist() == [3, 2, 4]
    assert part_of(panel, np.array([1, 2, 3, 4, 6, 7])).lengths.tolist() == [2, 2, 2]
    assert part_of(panel, np.array([0, 2])).lengths.tolist() == [1, 1]
