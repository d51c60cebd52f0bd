"""What kinds of columns that `gp-net` finds are worth: each such column, filled as it is and as real numbers.

`python benchmarks/kinds.py --tables made-up,seattle_weather` appends to results/kinds.csv, a row for each column,
pattern of gaps and way; tables are those of `core.py`, and `made-up`, whose truth is known. Errors are in standard
deviations of the visible values; `at_low` is the share of hidden values at the column's least value, and `drawn_low`
that of draws.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import provenance
from core_tables import PATTERNS, TABLES, first_rows
from protocols import Row, append, finished_keys, rounded

from gpvae import GPNet, Panel
from gpvae.data.panel import Bools, Floats
from gpvae.evaluation.metrics import crps
from gpvae.imputers.imputation import Imputation
from gpvae.missingness import hide

MADE_UP, ROWS = "made-up", 3_000
KEY = ("table", "series", "small", "pattern", "seed", "column", "way")
SCORES = ("mae", "rmse", "crps", "coverage_90", "width_90", "at_low", "drawn_low")
COLUMNS = (*KEY, "kind", "cells", *SCORES, *provenance.STARTED_AS)
WAYS = {"found": True, "real": False}


def made_up() -> Panel:
    """Rain, counts, a flag, a switch, prices and two plain columns, all of two slow series and noise."""
    rng = np.random.default_rng(0)
    noise, slow = rng.normal(size=(ROWS, 7)), rng.normal(size=(ROWS, 2))
    for t in range(1, ROWS):
        slow[t] = 0.97 * slow[t - 1] + np.sqrt(1 - 0.97**2) * slow[t]
        noise[t] = 0.8 * noise[t - 1] + 0.6 * noise[t]
    mixed = slow @ rng.normal(size=(2, 7)) + 0.6 * noise
    rain, visits, flag, switch, price, *plain = mixed.T
    flags = rng.random(ROWS) < 1 / (1 + np.exp(-2.5 * flag))
    columns = [np.maximum(0, 3 * rain - 2), rng.poisson(np.exp(0.5 + 0.6 * visits)), flags]
    columns += [np.where(switch > 0, 7.5, 2.25), np.round(2 * price) / 2, *plain]
    return Panel.from_array(np.column_stack(columns).astype(float))


def table(name: str, series: int | None, rows: int | None) -> Panel:
    panel = made_up() if name == MADE_UP else TABLES[name].load()
    return first_rows(panel.pick(np.arange(min(len(panel), series or len(panel)))), rows)


def scored(imputation: Imputation, truth: Floats, cells: Bools, column: int, low: float, unit: float) -> Row:
    rows = cells[:, column]
    only = cells & (np.arange(cells.shape[1]) == column)
    true, filled, drawn = truth[rows, column], imputation.mean_rows[rows, column], imputation.draws_at(only)
    lower, upper = (end[rows, column] for end in imputation.interval_rows(0.9))
    error = filled - true
    return {
        "cells": len(true),
        "mae": np.abs(error).mean() / unit,
        "rmse": np.sqrt((error**2).mean()) / unit,
        "crps": crps(true, drawn).mean() / unit,
        "coverage_90": ((lower <= true) & (true <= upper)).mean(),
        "width_90": (upper - lower).mean() / unit,
        "at_low": (true <= low).mean(),
        "drawn_low": (drawn <= low).mean(),
    }


def compared(panel: Panel, pattern: str, seed: int) -> Iterator[Row]:
    cells = PATTERNS[pattern](panel, seed)
    visible = hide(panel, cells)
    kinds = GPNet().found_kinds(visible)
    for way, find_kinds in WAYS.items():
        net = GPNet(find_kinds=find_kinds, seed=seed).fit(visible)
        imputation = net.impute(visible, seed=seed)
        for name, kind in kinds.items():
            j = panel.columns.index(name)
            if cells[:, j].any():
                low, unit = float(np.nanmin(panel.values[:, j])), float(np.nanstd(visible.values[:, j]))
                found = scored(imputation, panel.values, cells, j, low, unit)
                yield {"column": name, "kind": kind, "way": way, **found}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=lambda text: text.split(","), default=[MADE_UP, "seattle_weather"])
    parser.add_argument("--patterns", type=lambda text: text.split(","), default=["10% cells", "runs"])
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    parser.add_argument("--series", type=int, metavar="N", help="only the first N series")
    parser.add_argument("--small", type=int, metavar="N", help="only the first N rows of each series")
    parser.add_argument("-o", "--output", type=Path, default=provenance.ROOT / "results" / "kinds.csv")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    finished_keys(options.output, COLUMNS, KEY)  # refuses a file of another layout
    for name in options.tables:
        panel = table(name, options.series, options.small)
        about: Row = {"table": name, "series": options.series or "", "small": options.small or ""}
        for pattern in options.patterns:
            for seed in options.seeds:
                for row in compared(panel, pattern, seed):
                    about |= {"pattern": pattern, "seed": seed, **provenance.STARTED_AS}
                    append(options.output, about | row, COLUMNS)
                    print(name, pattern, seed, *(f"{key}={rounded(value)}" for key, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
