"""Covariances of rows with gaps, factor analysis, and how many factors a table has."""

from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal, multivariate_t
from statsmodels.multivariate.factor import Factor

from gpvae.training.factor_analysis import LEAST, analysed, centred, log_density, normal_covariance, shared_factors

Array = NDArray[np.float64]
normal, student = (cast(Any, each) for each in (multivariate_normal, multivariate_t))  # their types are of scalars


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def factor_rows(rows: int, columns: int, factors: int, noise: float = 0.6, seed: int = 0) -> Array:
    """Independent rows, every column made of all factors."""
    z, weights = rng(seed).normal(size=(rows, factors)), rng(seed + 1).normal(size=(factors, columns))
    return z @ weights + noise * rng(seed + 2).normal(size=(rows, columns))


def with_gaps(rows: Array, share: float) -> Array:
    return np.where(rng(9).random(rows.shape) < share, np.nan, rows)


def test_centred_leaves_gaps_and_columns_without_values_alone() -> None:
    rows = np.array([[1.0, np.nan, 4.0], [3.0, np.nan, np.nan]])
    np.testing.assert_array_equal(centred(rows), [[-1, np.nan, 0], [1, np.nan, np.nan]])


def test_covariance_of_complete_rows_is_the_mean_of_squares() -> None:
    rows = factor_rows(200, 4, 2)
    np.testing.assert_allclose(normal_covariance(rows, np.eye(4), 5), rows.T @ rows / 200, atol=1e-5)


def test_covariance_of_two_columns_with_gaps_in_one_is_the_known_one() -> None:
    """By regression: the variance of the complete column, and what is left of the other (Anderson 1957)."""
    rows = factor_rows(300, 2, 1)
    rows -= rows.mean(0)
    rows[rng().random(300) < 0.4, 1] = np.nan
    x, y = rows[~np.isnan(rows[:, 1])].T
    slope, variance = x @ y / (x @ x), np.mean(rows[:, 0] ** 2)
    left = np.mean((y - slope * x) ** 2)
    expected = [[variance, slope * variance], [slope * variance, left + slope**2 * variance]]
    np.testing.assert_allclose(normal_covariance(rows, np.eye(2), 200), expected, rtol=5e-3)


def test_each_sweep_raises_the_likelihood_of_rows_with_gaps() -> None:
    rows = with_gaps(factor_rows(150, 5, 2), 0.4)

    def log_likelihood(covariance: Array) -> float:
        seen = [~np.isnan(row) for row in rows]
        parts = [normal.logpdf(r[s], cov=covariance[np.ix_(s, s)]) for r, s in zip(rows, seen, strict=True) if s.any()]
        return float(np.sum(parts))

    found = [log_likelihood(normal_covariance(rows, np.eye(5), sweeps)) for sweeps in (0, 1, 2, 4, 8)]
    assert (np.diff(found) > 0).all()


def test_little_seen_together_is_little_known() -> None:
    rows = factor_rows(60, 3, 1, noise=0.1)
    rows[::2, 0] = rows[1::2, 1] = np.nan
    covariance = normal_covariance(rows, np.eye(3), 40)
    np.linalg.cholesky(covariance)
    empty = np.full((50, 2), np.nan)
    np.testing.assert_allclose(normal_covariance(empty, np.eye(2), 10), np.eye(2))
    np.testing.assert_allclose(normal_covariance(empty[:0], np.eye(2), 10), np.eye(2))


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.0])
def test_equal_columns_leave_a_positive_covariance(scale: float) -> None:
    """The identity that is added has the same weight whatever the variances are."""
    rows = scale * np.repeat(rng().normal(size=(100, 1)), 3, axis=1)
    smallest, *_ = np.linalg.eigvalsh(normal_covariance(rows, np.eye(3), 40))
    assert 1 < smallest / (LEAST * 10 / 100) < 1.2


@pytest.mark.parametrize("factors", [1, 2])
def test_a_covariance_that_has_factors_is_analysed_exactly(factors: int) -> None:
    weights, psi = rng(1).normal(size=(6, factors)), rng(2).uniform(0.2, 0.8, 6)
    found, left = analysed(weights @ weights.T + np.diag(psi), factors)
    np.testing.assert_allclose(found @ found.T, weights @ weights.T, atol=2e-3)
    np.testing.assert_allclose(left, psi, atol=2e-3)


def test_factor_analysis_agrees_with_statsmodels() -> None:
    correlation = np.atleast_2d(np.corrcoef(factor_rows(400, 6, 2, noise=1.0).T))
    weights, psi = analysed(correlation, 2)
    peer: Any = Factor(corr=correlation, n_factor=2, method="ml", nobs=400).fit()
    np.testing.assert_allclose(weights @ weights.T, peer.loadings @ peer.loadings.T, atol=2e-3)
    np.testing.assert_allclose(psi, peer.uniqueness, atol=2e-3)


def test_no_factor_leaves_the_variances() -> None:
    weights, psi = analysed(np.diag([1.0, 4.0]), 0)
    assert weights.shape == (2, 0)
    np.testing.assert_array_equal(psi, [1, 4])


def test_log_density_is_that_of_students_t_but_for_a_constant() -> None:
    """Of two covariances, the difference; of what is observed of a row."""
    rows = with_gaps(factor_rows(40, 4, 2), 0.3)
    first, second = np.eye(4), normal_covariance(rows, np.eye(4), 20)

    def expected(covariance: Array) -> float:
        seen = [~np.isnan(row) for row in rows]
        parts = [
            float(student.logpdf(r[s], shape=covariance[np.ix_(s, s)], df=4)) if s.any() else 0.0
            for r, s in zip(rows, seen, strict=True)
        ]
        return float(np.mean(parts))

    difference = log_density(second, rows) - log_density(first, rows)
    assert difference == pytest.approx(expected(second) - expected(first), abs=1e-5)


def parts_of(rows: Array) -> list[Array]:
    return np.array_split(rows, 4)


@pytest.mark.parametrize(("columns", "factors"), [(6, 0), (6, 1), (6, 2), (8, 3), (1, 0), (2, 1)])
def test_the_number_of_factors_is_that_of_the_data(columns: int, factors: int) -> None:
    weights, psi = shared_factors(parts_of(with_gaps(factor_rows(800, columns, factors), 0.2)))
    assert weights.shape == (columns, factors)
    np.testing.assert_allclose((weights**2).sum(1) + psi, 1, atol=0.05)


def test_independent_random_walks_share_nothing() -> None:
    """They correlate by chance in every part, but in another way."""
    found = [shared_factors(parts_of(rng(seed).normal(size=(1000, 6)).cumsum(axis=0)))[0] for seed in range(4)]
    assert [weights.shape[1] for weights in found] == [0] * 4


def test_factors_do_not_depend_on_the_units_or_the_order_of_columns() -> None:
    rows, order = factor_rows(400, 5, 2), [3, 0, 4, 1, 2]
    weights, psi = shared_factors(parts_of(rows))
    scaled, _ = shared_factors(parts_of(rows * [1, 10, 0.1, 1, 1000] + 7))
    moved, moved_psi = shared_factors(parts_of(rows[:, order]))
    np.testing.assert_allclose(scaled @ scaled.T, weights @ weights.T, atol=1e-4)
    np.testing.assert_allclose(moved @ moved.T, (weights @ weights.T)[np.ix_(order, order)], atol=1e-4)
    np.testing.assert_allclose(moved_psi, psi[order], atol=1e-4)


def test_a_column_without_values_and_a_part_without_rows_are_left_out() -> None:
    rows = factor_rows(400, 4, 1)
    rows[:, 2] = np.nan
    weights, _ = shared_factors([*parts_of(rows), rows[:0]])
    assert weights.shape == (4, 1)
    np.testing.assert_allclose(weights[2], 0, atol=1e-3)
