"""Rubin's rules: against formulas written out, and at their limits."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from gpvae import DataError, pool


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
