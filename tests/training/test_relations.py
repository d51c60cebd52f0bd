"""Columns that others determine: found where they are exact, also with gaps and a few broken rows, and else not."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae.models.factor import Relations
from gpvae.training.relations import FLOOR, find_relations

Array = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def with_gaps(rows: Array, share: float) -> Array:
    return np.where(rng(9).random(rows.shape) < share, np.nan, rows)


def walks(rows: int, columns: int, seed: int = 0) -> Array:
    values = rng(seed).normal(size=(rows, columns)).cumsum(axis=0)
    return (values - values.mean(0)) / values.std(0)


def supports(relations: Relations) -> dict[int, list[int]]:
    """The columns that each derived column derives from."""
    derived = np.flatnonzero(relations.derived.numpy())
    return {int(column): np.flatnonzero(relations.weights[column].numpy()).tolist() for column in derived}


def errors(relations: Relations, rows: Array) -> Array:
    """What relations leave of derived columns. (row, derived column)"""
    left = rows - relations.offset.numpy() - rows @ relations.weights.numpy().T
    return left[:, relations.derived.numpy()]


@pytest.mark.parametrize("share", [0, 0.1, 0.5])
def test_celsius_and_kelvin_a_total_and_nothing_else(share: float) -> None:
    celsius, parts = walks(1000, 1), walks(1000, 3, seed=1)
    rows = np.column_stack([celsius, 0.9 * celsius + 0.3, parts, parts @ [0.5, 0.3, 0.2]])
    relations, left = find_relations(with_gaps(rows, share))
    assert {tuple(sorted([column, *others])) for column, others in supports(relations).items()} == {
        (0, 1),
        (2, 3, 4, 5),
    }
    np.testing.assert_allclose(errors(relations, rows), 0, atol=1e-12)
    assert left.max() < 1e-20


def test_the_constant_does_not_depend_on_the_means_of_the_rows() -> None:
    """Rows are not always the whole table, so their means are not always 0; and gaps are not the same everywhere."""
    rows = with_gaps(3 + np.repeat(walks(300, 1), 2, axis=1), 0.3)
    relations, _ = find_relations(rows)
    (derived,) = supports(relations)
    assert relations.offset[derived].item() == pytest.approx(0, abs=1e-9)


def test_noise_of_a_hundredth_and_rounding_to_a_tenth_are_not_exact() -> None:
    x = walks(500, 2)
    rows = np.column_stack([x, x[:, 0] + 0.01 * rng(2).normal(size=500), np.round(x[:, 1], 1)])
    assert not supports(find_relations(rows)[0])


def test_rounding_to_a_hundredth_leaves_its_variance() -> None:
    x = walks(500, 1)
    relations, left = find_relations(np.column_stack([x, np.round(x, 2)]))
    (derived,) = supports(relations)
    assert left[derived] == pytest.approx(0.01**2 / 12, rel=0.2)
    assert relations.reach[derived].item() == pytest.approx(6 * np.sqrt(left[derived]))


def test_sums_of_sums_of_columns_that_all_trend() -> None:
    """Everything is alike, so a few other columns are nearly enough; only the true parts leave nothing."""
    trends = np.exp(walks(150, 2, seed=3) @ rng(3).normal(size=(2, 8)) / 4 + 0.003 * walks(150, 8, seed=4))
    goods, services = trends[:, :3].sum(1), trends[:, 3:6].sum(1)
    rows = np.column_stack([goods + services, goods, services, trends])
    rows = (rows - rows.mean(0)) / rows.std(0)
    relations, _ = find_relations(with_gaps(rows, 0.05))
    assert len(supports(relations)) == 3
    np.testing.assert_allclose(errors(relations, rows), 0, atol=1e-9)


def test_a_small_part_belongs_to_the_sum() -> None:
    """Without it little is left already, but with it nothing."""
    parts = walks(300, 3)
    rows = np.column_stack([parts, parts @ [1, 1, 0.002]])
    ((derived, others),) = supports(find_relations(rows)[0]).items()
    assert sorted([derived, *others]) == [0, 1, 2, 3]


def test_a_column_that_is_nearly_the_sum_is_left_out_of_it() -> None:
    """It explains most at first, and nothing once the parts are there."""
    parts = walks(300, 2)
    total = parts.sum(1)
    rows = np.column_stack([parts, total, total + 0.1 * rng(5).normal(size=300)])
    ((derived, others),) = supports(find_relations(rows)[0]).items()
    assert sorted([derived, *others]) == [0, 1, 2]


def test_columns_that_bring_nothing_are_left_out() -> None:
    x = walks(200, 6)
    rows = np.column_stack([x, x[:, 0] + 1e-4 * rng(1).normal(size=200)])
    assert supports(find_relations(with_gaps(rows, 0.1))[0]) in ({6: [0]}, {0: [6]})


@pytest.mark.parametrize("broken", [0, 1, 4])
def test_a_few_rows_may_break_a_relation(broken: int) -> None:
    rows = np.repeat(walks(203, 1), 2, axis=1)
    slips = [0, 50, 100, 150][:broken]
    rows[slips, 1] = 0.4 - rows[slips, 1]
    relations, left = find_relations(rows)
    (derived,) = supports(relations)
    np.testing.assert_allclose(np.delete(errors(relations, rows), slips, axis=0), 0, atol=1e-12)
    assert left[derived] < 1e-20
    assert relations.doubt[derived].item() == pytest.approx((broken + 1) / 205)


def test_a_relation_that_many_rows_break_is_none() -> None:
    rows = np.repeat(walks(203, 1), 2, axis=1)
    rows[::20, 1] += 0.5
    assert not supports(find_relations(rows)[0])


def test_a_column_that_rarely_moves_is_not_determined_by_others() -> None:
    """But for two rows it is constant: that others agree on the rest says nothing."""
    rows = np.column_stack([walks(400, 1), np.zeros((400, 2))])
    rows[[50, 250], 1:] = [[10, 14], [14, 10]]
    assert not supports(find_relations(rows)[0])


def test_tails_beyond_a_normal_are_not_exact() -> None:
    """Most rows agree to a ten-thousandth, but one in 25 is off by more than such noise allows."""
    x, slips = walks(1000, 1)[:, 0], 0.02 * (rng(4).random(1000) < 0.04)
    assert not supports(find_relations(np.column_stack([x, x + 1e-4 * rng(5).normal(size=1000) + slips]))[0])


def test_too_few_rows_say_nothing() -> None:
    """A column is a sum of any others if there are as many of them as rows."""
    assert not supports(find_relations(rng(6).normal(size=(12, 14)))[0])
    rows = np.repeat(rng(7).normal(size=(100, 1)), 2, axis=1)
    rows[:50, 0] = rows[60:, 1] = np.nan
    assert not supports(find_relations(rows)[0])


def test_columns_that_are_not_derived_leave_nothing_and_are_not_in_doubt() -> None:
    relations, left = find_relations(walks(300, 4))
    assert not supports(relations)
    np.testing.assert_array_equal(left, 0)
    np.testing.assert_array_equal(relations.doubt.numpy(), 0)
    np.testing.assert_array_equal(relations.reach.numpy() ** 2, np.full(4, 36 * FLOOR))


def test_a_column_without_values_is_left_alone() -> None:
    rows = np.column_stack([walks(100, 1), np.full(100, np.nan), walks(100, 1)])
    assert set(supports(find_relations(rows)[0]).popitem()[1]) <= {0, 2}
