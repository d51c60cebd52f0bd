"""Blocks of columns of wide tables: each column once, columns that are alike together."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae.training.blocks import WIDEST, column_blocks
from gpvae.training.periods import Stretch

Array = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def table(values: Array) -> list[Stretch]:
    return [Stretch(np.arange(float(len(values))), values)]


def in_groups(group: NDArray[np.int64], rows: int = 300) -> Array:
    """Columns of a group follow the same series, up to sign."""
    followed = rng(1).normal(size=(rows, group.max() + 1))[:, group] * rng(2).choice([-2, 1], len(group))
    return followed + 0.5 * rng(3).normal(size=followed.shape)


@pytest.mark.parametrize("columns", [1, 7, WIDEST])
def test_tables_that_are_not_wide_are_one_block(columns: int) -> None:
    (block,) = column_blocks(table(rng().normal(size=(30, columns))))
    np.testing.assert_array_equal(block, np.arange(columns))


def test_nothing_is_no_block() -> None:
    assert column_blocks([]) == []
    assert column_blocks(table(np.empty((5, 0)))) == []


@pytest.mark.parametrize("columns", [41, 80, 81, 130])
def test_every_column_is_in_one_block_and_blocks_are_of_about_one_width(columns: int) -> None:
    found = column_blocks(table(rng().normal(size=(100, columns))))
    widths = [len(block) for block in found]
    assert sorted(np.concatenate(found)) == list(range(columns))
    assert len(found) == -(-columns // WIDEST)
    assert max(widths) - min(widths) <= 1
    assert all((np.diff(block) > 0).all() for block in found)


@pytest.mark.parametrize("share", [0, 0.6])
def test_columns_that_are_alike_are_in_one_block(share: float) -> None:
    """Whatever their sign, and with gaps."""
    group = rng(4).permutation(np.repeat(np.arange(3), 30))
    values = in_groups(group)
    values[rng(5).random(values.shape) < share] = np.nan
    assert [len(set(group[block])) for block in column_blocks(table(values))] == [1, 1, 1]


def test_columns_that_are_hardly_seen_together_are_not_alike() -> None:
    """In the three rows in which both groups are seen, all columns agree."""
    group = rng(6).permutation(np.repeat([0, 1], 30))
    values = in_groups(group)
    values[149:152] = np.array([[-1.0], [0.0], [1.0]])
    values[:149, group == 1] = values[152:, group == 0] = np.nan
    assert [len(set(group[block])) for block in column_blocks(table(values))] == [1, 1]
