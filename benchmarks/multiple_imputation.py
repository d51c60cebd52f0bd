"""Do pooled estimates cover the truth? A mean, a regression slope and an AR coefficient, after gaps were filled.

python benchmarks/multiple_imputation.py    prints a table, and writes results/multiple_imputation.csv

In each simulated table x is an AR(1) process with coefficient ½ and y = 1 + x/2 + noise; three tenths of both are
missing, as single cells or in runs of 3 to 12. An analysis of complete tables gives estimates and standard errors. It
sees the complete table, the table filled by its mean (single imputation), and the completed tables of 20 draws, pooled
by Rubin's rules: of a GPFactor fitted to that table, and of one fitted to a table of 20,000 rows, which shows what is
lost because draws do not vary the model's parameters.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import provenance
from numpy.typing import NDArray

import gpvae
from gpvae.data.panel import Bools, Floats

MEMORY, SLOPE, INTERCEPT, NOISE, MISSING, DRAWS = 0.5, 0.5, 1.0, 0.5, 0.3, 20
TRUTH = {"mean": 0.0, "slope": SLOPE, "AR coefficient": MEMORY}
Row = dict[str, Any]
LONG = 20_000  # rows of the table that shows almost everything about the parameters


class Estimates(NamedTuple):
    """In the order of `TRUTH`."""

    values: Floats  # (estimate,)
    variances: Floats  # (estimate,) squares of standard errors


def simulate(rows: int, rng: np.random.Generator) -> Floats:
    """The columns x and y. (row, 2)"""
    x = rng.normal(size=rows) * np.where(np.arange(rows) == 0, 1.0, np.sqrt(1 - MEMORY**2))
    for t in range(1, rows):
        x[t] += MEMORY * x[t - 1]
    return np.stack([x, INTERCEPT + SLOPE * x + NOISE * rng.normal(size=rows)], axis=1)


def single_cells(shape: tuple[int, int], rng: np.random.Generator) -> Bools:
    return rng.random(shape) < MISSING


def runs(shape: tuple[int, int], rng: np.random.Generator) -> Bools:
    """Runs of 3 to 12 rows at random places, in each column until enough is missing."""
    missing = np.zeros(shape, dtype=bool)
    for column in missing.T:
        while column.mean() < MISSING:
            start = rng.integers(-11, shape[0])
            column[max(start, 0) : max(start + rng.integers(3, 13), 0)] = True
    return missing


GAPS: dict[str, Callable[[tuple[int, int], np.random.Generator], Bools]] = {"single cells": single_cells, "runs": runs}


def analyse(table: Floats) -> Estimates:
    """The mean of x (the variance of an AR(1) mean), the slope of y on x, and of x on the x before."""
    x, y = table.T
    memory, memory_variance = _regression(x[:-1], x[1:])
    slope, slope_variance = _regression(x, y)
    mean_variance = x.var(ddof=1) / len(x) * (1 + memory) / (1 - memory)
    return Estimates(np.array([x.mean(), slope, memory]), np.array([mean_variance, slope_variance, memory_variance]))


def _regression(x: Floats, y: Floats) -> tuple[float, float]:
    """The slope of y on x, and its variance."""
    dx, dy = x - x.mean(), y - y.mean()
    slope = dx @ dy / (dx @ dx)
    return float(slope), float(np.sum((dy - slope * dx) ** 2) / (len(x) - 2) / (dx @ dx))


def covered(estimates: list[Estimates], rows: int) -> NDArray[np.bool_]:
    """Whether the 95 % intervals hold the truth: pooled, if there are several completed tables. (estimate,)"""
    values, variances = (np.array(part) for part in zip(*estimates, strict=True))
    repeated = (values, variances) if len(values) > 1 else (values.repeat(2, axis=0), variances.repeat(2, axis=0))
    pooled = gpvae.pool(*repeated, df_complete=rows - 2)
    truth = np.array([*TRUTH.values()])
    return (pooled.lower <= truth) & (truth <= pooled.upper)


def simulated(rows: int, gaps: str, count: int) -> tuple[list[Floats], list[Floats]]:
    """Complete tables, and the same with gaps."""
    generators = [np.random.default_rng([rows, seed]) for seed in range(count)]
    whole = [simulate(rows, rng) for rng in generators]
    missing = [GAPS[gaps](table.shape, rng) for table, rng in zip(whole, generators, strict=True)]
    return whole, [np.where(cells, np.nan, table) for table, cells in zip(whole, missing, strict=True)]


def pooled_shares(imputation: gpvae.Imputation, rows: int) -> Floats:
    """How many of the series have each estimate covered, pooled over draws. (estimate,)"""
    by_draw = [[analyse(table) for table in tables] for tables in imputation.tables()]
    return np.mean([covered(list(estimates), rows) for estimates in zip(*by_draw, strict=True)], axis=0)


def shares(rows: int, gaps: str, count: int, model: gpvae.GPFactor) -> dict[str, Floats]:
    """By method how many intervals hold the truth. (estimate,)"""
    whole, tables = simulated(rows, gaps, count)
    fitted = [gpvae.GPFactor().fit([table]).impute([table], samples=DRAWS) for table in tables]
    return {
        "complete table": np.mean([covered([analyse(table)], rows) for table in whole], axis=0),
        "filled once": np.mean([covered([analyse(each.mean[0])], rows) for each in fitted], axis=0),
        "pooled draws": np.mean([pooled_shares(each, rows) for each in fitted], axis=0),
        "pooled draws, parameters known": pooled_shares(model.impute(tables, samples=DRAWS), rows),
    }


def long_model(gaps: str, rows: int = LONG) -> gpvae.GPFactor:
    rng = np.random.default_rng(1)
    whole = simulate(rows, rng)
    return gpvae.GPFactor().fit(np.where(GAPS[gaps](whole.shape, rng), np.nan, whole))


def coverages(rows: list[int], count: int) -> Iterator[Row]:
    for gaps in GAPS:
        model = long_model(gaps)
        for length in rows:
            for method, share in shares(length, gaps, count, model).items():
                named = {name: round(float(each), 4) for name, each in zip(TRUTH, share, strict=True)}
                yield {"rows": length, "gaps": gaps, "method": method, "tables": count, **named}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--tables", type=int, default=300)
    parser.add_argument("-o", "--output", type=Path, default=provenance.ROOT / "results" / "multiple_imputation.csv")
    options = parser.parse_args()
    written = list[Row]()
    for row in coverages(options.rows, options.tables):
        written.append(row)
        print(*(f"{name}={value}" for name, value in row.items()), flush=True)
    provenance.write(options.output, written)


if __name__ == "__main__":
    main()
