"""Pooled estimates cover the truth where those of tables that were filled once do not."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
benchmark = importlib.import_module("multiple_imputation")
ROWS, TABLES = 200, 300


def test_what_is_simulated_is_what_estimates_are_about() -> None:
    values, variances = benchmark.analyse(benchmark.simulate(benchmark.LONG, np.random.default_rng(0)))
    assert (np.abs(values - [0, 0.5, 0.5]) < 4 * np.sqrt(variances)).all()
    rng = np.random.default_rng(1)
    spread = np.array([benchmark.analyse(benchmark.simulate(ROWS, rng)).values for _ in range(500)]).std(axis=0)
    expected = np.sqrt(benchmark.analyse(benchmark.simulate(benchmark.LONG, rng)).variances * benchmark.LONG / ROWS)
    np.testing.assert_allclose(spread, expected, rtol=0.12)


@pytest.mark.parametrize("gaps", benchmark.GAPS)
def test_three_tenths_are_missing_from_the_middle_and_the_ends(gaps: str) -> None:
    rng = np.random.default_rng(0)
    missing = np.array([benchmark.GAPS[gaps]((100, 2), rng) for _ in range(300)])
    assert abs(missing.mean() - 0.32) < 0.03
    assert missing.mean(axis=(0, 2)).min() > 0.2


@pytest.mark.parametrize("gaps", benchmark.GAPS)
def test_pooled_intervals_cover_and_those_of_tables_filled_once_do_not(gaps: str) -> None:
    """At least 95 % less three standard errors of a share of 300 tables.

    The model knows the slope and the coefficient from many more rows than the analysis, which Rubin's rules cannot
    know: intervals of these are wider than needed. Of the mean, they are right.
    """
    _, tables = benchmark.simulated(ROWS, gaps, TABLES)
    filled = benchmark.long_model(gaps, 5000).impute(tables, samples=benchmark.DRAWS)
    margin = 3 * np.sqrt(0.95 * 0.05 / TABLES)
    pooled = benchmark.pooled_shares(filled, ROWS)
    assert (pooled >= 0.95 - margin).all()
    assert pooled[0] <= 0.95 + margin
    once = np.mean([benchmark.covered([benchmark.analyse(table)], ROWS) for table in filled.mean], axis=0)
    assert once[1] < 0.8  # of the slope
