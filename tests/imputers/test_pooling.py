"""Rubin's rules: against formulas written out, at their limits, and in simulation."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from gpvae import DataError, pool

Array = NDArray[np.float64]


def test_the_rules_written_out() -> None:
    estimates, variances = np.array([1.0, 2.0, 4.0]), np.array([0.5, 0.6, 0.4])
    pooled = pool(estimates, variances, level=0.9)
    between = ((1 - 7 / 3) ** 2 + (2 - 7 / 3) ** 2 + (4 - 7 / 3) ** 2) / 2
    total = 0.5 + 4 / 3 * between
    df = 2 * (1 + 0.5 / (4 / 3 * between)) ** 2
    r = 4 / 3 * between / 0.5
    assert pooled.estimate == pytest.approx(7 / 3)
    assert pooled.std_error == pytest.approx(np.sqrt(total))
    assert pooled.df == pytest.approx(df)
    assert pooled.fraction_missing == pytest.approx((r + 2 / (df + 3)) / (r + 1))
    low, high = stats.t.interval(0.9, df, 7 / 3, np.sqrt(total))
    assert (pooled.lower, pooled.upper) == (pytest.approx(low), pytest.approx(high))


def test_several_estimates_at_once() -> None:
    rng = np.random.default_rng(0)
    estimates, variances = rng.normal(size=(5, 2, 3)), rng.uniform(0.5, 1, size=(5, 2, 3))
    together = pool(estimates, variances, df_complete=40)
    alone = pool(estimates[:, 1, 2], variances[:, 1, 2], df_complete=40)
    for name, value in vars(alone).items():
        assert getattr(together, name).shape == (2, 3)
        assert getattr(together, name)[1, 2] == pytest.approx(value)


def test_degrees_of_freedom_of_small_tables_are_below_those_on_complete_data() -> None:
    """Barnard and Rubin's (1999): at most 0.95 of those of complete data here, however many tables are completed."""
    estimates, variances = np.random.default_rng(2).normal(size=500), np.full(500, 20.0)
    large, small = pool(estimates, variances), pool(estimates, variances, df_complete=20)
    assert large.df > 100_000
    assert small.df == pytest.approx(21 / 23 * 20 * 20 / (20 + 1.002 * estimates.var(ddof=1)), rel=1e-3)
    assert small.upper - small.lower > large.upper - large.lower
    assert small.std_error == large.std_error


def test_without_missing_values_nothing_is_added() -> None:
    pooled = pool([3.0, 3.0], [4.0, 4.0])
    assert (pooled.estimate, pooled.std_error, pooled.df, pooled.fraction_missing) == (3.0, 2.0, np.inf, 0.0)
    assert pooled.upper == pytest.approx(3 + 1.959964 * 2)


@pytest.mark.parametrize(
    ("estimates", "variances", "settings", "message"),
    [
        ([1.0], [1.0], {}, "at least two completed tables"),
        (1.0, 1.0, {}, "at least two completed tables"),
        ([1.0, 2.0], [1.0], {}, r"each estimate needs its variance: .* \(2,\), variances \(1,\)"),
        ([1.0, np.nan], [1.0, 1.0], {}, "must be finite"),
        ([1.0, 2.0], [1.0, 0.0], {}, "squares of standard errors, must be above 0, got 0"),
        ([1.0, 2.0], [1.0, 1.0], {"level": 95}, r"between 0 and 1 \(0.9 is 90 %\), got 95"),
        ([1.0, 2.0], [1.0, 1.0], {"df_complete": 0}, "df_complete must be above 0, got 0"),
    ],
)
def test_what_cannot_be_pooled_is_refused(estimates: Any, variances: Any, settings: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        pool(estimates, variances, **settings)


def regression_draws(rng: np.random.Generator, tables: int, rows: int, draws: int) -> tuple[Array, Array]:
    """For each table x (table, row), and y completed by proper draws (table, draw, row).

    y = 1 + x/2 + noise; two fifths of y are missing. The parameters of each draw come from their posterior.
    """
    x = rng.normal(size=(tables, rows))
    y = 1 + 0.5 * x + rng.normal(size=x.shape)
    seen = rng.random(x.shape) > 0.4
    design = np.stack([np.ones_like(x), x], axis=-1)
    gram = np.linalg.inv(np.einsum("nti,ntj,nt->nij", design, design, seen))
    beta = np.einsum("nij,ntj,nt->ni", gram, design, seen * y)
    residual = ((y - np.einsum("nti,ni->nt", design, beta)) ** 2 * seen).sum(axis=1)
    variance = residual[:, None] / rng.chisquare(seen.sum(axis=1)[:, None] - 2, size=(tables, draws))
    steps = np.einsum("nij,nmj->nmi", np.linalg.cholesky(gram), rng.normal(size=(tables, draws, 2)))
    betas = beta[:, None] + np.sqrt(variance)[..., None] * steps
    noise = np.sqrt(variance)[..., None] * rng.normal(size=(tables, draws, rows))
    drawn = np.einsum("nti,nmi->nmt", design, betas) + noise
    return x, np.where(seen[:, None], y[:, None], drawn)


def slopes(x: Array, y: Array) -> tuple[Array, Array]:
    """The slope of y on x, and its variance; over the last axis."""
    dx, dy = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    slope = (dx * dy).sum(axis=-1) / (dx**2).sum(axis=-1)
    residual = ((dy - slope[..., None] * dx) ** 2).sum(axis=-1)
    return slope, residual / (x.shape[-1] - 2) / (dx**2).sum(axis=-1)


@pytest.mark.parametrize("rows", [20, 100])
def test_intervals_from_proper_draws_cover_and_those_of_one_draw_do_not(rows: int) -> None:
    """Four standard errors of a share of 4,000 tables on both sides of 95 %."""
    x, completed = regression_draws(np.random.default_rng(0), 4000, rows, 10)
    estimates, variances = slopes(x[:, None], completed)
    pooled = pool(estimates.T, variances.T, df_complete=rows - 2)
    inside = (pooled.lower <= 0.5) & (pooled.upper >= 0.5)
    assert abs(inside.mean() - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 4000)
    margin = stats.t.ppf(0.975, rows - 2) * np.sqrt(variances[:, 0])
    assert (np.abs(estimates[:, 0] - 0.5) < margin).mean() < 0.88
