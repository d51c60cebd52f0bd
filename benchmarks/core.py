"""The exact Gaussian-process core and quick methods on many tables: `python benchmarks/core.py --tables development`.

Every table, pattern of gaps and seed is a row of results/core.csv for each method. Errors, `crps`, `nll` and `energy`
are in standard deviations of the visible values of each column.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import provenance
from core_methods import NAMES, new_method
from core_tables import GROUPS, PATTERNS, TABLES, first_rows, names_of
from protocol_data import Task
from protocols import Row, append, finished_keys, rounded, scores

from gpvae.data.panel import Panel
from gpvae.data.scaling import Scaling
from gpvae.imputers.base import Imputer

KEY = ("table", "small", "pattern", "seed", "method", "samples")
MEASURES = ("cells", "mae", "rmse", "crps", "nll", "coverage_90")
COLUMNS = (*KEY, "rows", "columns", *MEASURES, "fit_seconds", "impute_seconds", *provenance.STARTED_AS)


def measured(imputer: Imputer, task: Task, samples: int, seed: int) -> Row:
    """Fit to the visible cells, fill the hidden ones, and score them."""
    units = Scaling.of(task.visible, standardise=True)
    cells = task.cells & units.varies
    started = time.perf_counter()
    imputer.fit(task.visible)
    fitted = time.perf_counter()
    imputation = imputer.impute(task.visible, samples=samples, seed=seed)
    filled, log_density = time.perf_counter(), None
    if imputer.gives_distributions:
        truth = np.where(cells, task.truth, np.nan)
        log_density = imputer.log_likelihood(task.visible, truth, samples=samples, seed=seed)
    row = scores(imputation, task, cells, units, log_density)
    return {
        **{name: row[name] for name in MEASURES},
        "fit_seconds": fitted - started,
        "impute_seconds": filled - fitted,
    }


def tasks(panel: Panel, patterns: list[str], seed: int) -> Iterator[Task]:
    for pattern in patterns:
        cells = PATTERNS[pattern](panel, seed)
        if cells.any():
            yield Task.hiding(pattern, panel, cells)


def compare(options: argparse.Namespace) -> None:
    """Append every row that the output does not have yet."""
    finished = finished_keys(options.output, COLUMNS, KEY)
    for name in options.tables:
        panel = first_rows(TABLES[name].load(), options.small)
        about: Row = {"table": name, "small": options.small or "", "samples": options.samples, **provenance.STARTED_AS}
        about |= {"rows": len(panel.values), "columns": len(panel.columns)}
        for seed in options.seeds:
            for task in tasks(panel, options.patterns, seed):
                for method in options.methods:
                    row = {**about, "pattern": task.pattern, "seed": seed, "method": method}
                    if tuple(str(row[key]) for key in KEY) not in finished:
                        imputer = new_method(method, TABLES[name].period, seed)
                        row |= measured(imputer, task, options.samples, seed)
                        append(options.output, row, COLUMNS)
                        print(*(f"{key}={rounded(value)}" for key, value in row.items() if value is not None))


def listed(known: tuple[str, ...]):
    def names(text: str) -> list[str]:
        chosen = text.split(",")
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return chosen

    return names


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default="development", help=f"{', '.join(GROUPS)}, or names with commas")
    parser.add_argument("--patterns", type=listed(tuple(PATTERNS)), default=list(PATTERNS))
    parser.add_argument("--methods", type=listed(NAMES), default=["linear", "seasonal naive", "iterative"])
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--small", type=int, metavar="N", help="only the first N rows of each series")
    parser.add_argument("-o", "--output", type=Path, default=provenance.ROOT / "results" / "core.csv")
    options = parser.parse_args(arguments)
    options.tables = names_of(options.tables)
    return options


if __name__ == "__main__":
    compare(parse(None))
