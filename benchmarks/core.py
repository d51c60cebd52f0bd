"""The exact Gaussian-process core against quick methods on many tables: errors, intervals of gaps, draws, seconds.

python benchmarks/core.py --tables development --methods linear,gp-factor    appends to results/core.csv
python benchmarks/core.py rows                                               cost per row: results/core_rows.csv
python benchmarks/core.py dfm                                                DynamicFactorMQ: results/core_dfm.csv
python benchmarks/core.py --summary                                          prints the targets, and which are met

Every table, pattern of gaps, seed and method is a row of results/core.csv; rows that it has already, with the same
settings, are not computed again. Errors, `crps`, `nll` and `energy` are in standard deviations of the visible values of
each column. The intervals `_lo` to `_hi` of coverages are bootstrap intervals over gaps, or, where all columns are
missing at the same rows, over outages. The summary is about the tables that --tables names: without it those of
development, so that nobody sees the others by accident. --set changes settings of the method --of, as in
protocols.py.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import core_dfm
import core_rows
import core_targets
import numpy as np
import provenance
from core_methods import NAMES, new_method
from core_tables import GROUPS, PATTERNS, TABLES, first_rows, names_of
from protocol_data import Experiment, Task
from protocols import Row, append, digest, finished_keys, key_and_value, rounded, scores

from gpvae.data.panel import Bools, DataError, Panel
from gpvae.data.scaling import Scaling
from gpvae.evaluation import joint
from gpvae.evaluation.joint import Share
from gpvae.imputers.base import Imputer
from gpvae.imputers.imputation import Imputation

RESULTS = provenance.ROOT / "results"
KEY = ("table", "small", "pattern", "seed", "method", "label", "settings_digest", "samples")
AVERAGES = ("cells", "mae", "rmse", "crps", "nll", "coverage_90")
COLUMNS = (
    *(*KEY, "settings", "rows", "columns", *AVERAGES, "coverage_90_lo", "coverage_90_hi"),
    *("mean_coverage", "mean_coverage_lo", "mean_coverage_hi", "max_coverage", "max_coverage_lo", "max_coverage_hi"),
    *("roughness", "energy", "variogram", "lag_correlation", "true_lag_correlation"),
    *("fit_seconds", "impute_seconds", *provenance.STARTED_AS),
)


def experiment_of(table: str, task: Task) -> Experiment:
    units = Scaling.of(task.visible, standardise=True)
    return Experiment(table, "", task.visible, [task], {"standardised": units})


def measured(imputer: Imputer, experiment: Experiment, samples: int, seed: int) -> Row:
    """Fit to the visible cells, fill the hidden ones, and score them."""
    (task,), units = experiment.tasks, experiment.units["standardised"]
    started = time.perf_counter()
    imputer.fit(task.visible)
    fitted = time.perf_counter()
    imputation = imputer.impute(task.visible, samples=samples, seed=seed)
    seconds = {"fit_seconds": fitted - started, "impute_seconds": time.perf_counter() - fitted}
    cells, log_density = task.cells & experiment.scored, None
    if imputer.gives_distributions:
        truth = np.where(cells, task.truth, np.nan)
        log_density = imputer.log_likelihood(task.visible, truth, samples=samples, seed=seed)
    row = scores(imputation, task, cells, units, log_density)
    return {**{name: row[name] for name in AVERAGES}, **scores_of_gaps(imputation, task, cells, units), **seconds}


def scores_of_gaps(imputation: Imputation, task: Task, cells: Bools, units: Scaling) -> Row:
    """As far as the method gives intervals and draws."""
    by_outage, row = task.pattern.startswith("outage"), dict[str, float | None]()
    if imputation.has_intervals:
        row |= named("coverage_90", joint.cell_coverage(imputation, task.truth, cells, by_outage=by_outage))
    if imputation.draws is None:
        return row
    gaps = joint.score(imputation, task.truth, cells, units, by_outage=by_outage)
    row |= named("mean_coverage", gaps.mean_coverage) | named("max_coverage", gaps.max_coverage)
    names = ("roughness", "energy", "variogram", "lag_correlation", "true_lag_correlation")
    return row | {name: getattr(gaps, name) for name in names}


def named(name: str, share: Share) -> Row:
    low, high = (None if math.isnan(end) else end for end in (share.lower, share.upper))
    return {name: share.value, f"{name}_lo": low, f"{name}_hi": high}


def tasks(panel: Panel, patterns: Sequence[str], seed: int) -> Iterator[Task]:
    """Those patterns that fit into the panel."""
    for pattern in patterns:
        cells = PATTERNS[pattern](panel, seed)
        if cells.any():
            yield Task.hiding(pattern, panel, cells)


def experiments(options: argparse.Namespace) -> Iterator[tuple[Row, Experiment]]:
    for name in options.tables:
        panel = first_rows(TABLES[name].load(), options.small)
        for seed in options.seeds:
            for task in tasks(panel, options.patterns, seed):
                about: Row = {"table": name, "rows": len(panel.values), "columns": len(panel.columns)}
                yield about | {"pattern": task.pattern, "seed": seed}, experiment_of(name, task)


def compare(options: argparse.Namespace) -> None:
    """Append every row that the output does not have yet."""
    finished = finished_keys(options.output, COLUMNS, KEY)
    common: Row = {"small": options.small or "", "samples": options.samples, **provenance.STARTED_AS}
    for about, experiment in experiments(options):
        for name in options.methods:
            changes, label = (options.changes, options.label) if name == options.of else ({}, "")
            imputer = new_method(name, experiment, changes, about["seed"], TABLES[about["table"]].period)
            row = {**common, **about, "method": name, "label": label, "settings": json.dumps(changes)}
            row["settings_digest"] = digest(imputer)
            if tuple(str(row[key]) for key in KEY) not in finished:
                append_row(options.output, row, imputer, experiment)


def append_row(output: Path, row: Row, imputer: Imputer, experiment: Experiment) -> None:
    about = (row["table"], row["pattern"], row["seed"], row["method"])
    try:
        found = measured(imputer, experiment, row["samples"], row["seed"])
    except DataError as error:
        print(*about, f"cannot be measured: {error}")
        return
    append(output, row | found, COLUMNS)
    print(*about, *(f"{name}={rounded(value)}" for name, value in found.items() if value is not None), flush=True)


def write_rows(path: Path, rows: Iterator[Row]) -> None:
    """Write all rows again after each."""
    written = list[Row]()
    for row in rows:
        written.append({name: rounded(value) for name, value in row.items()})
        print(*(f"{name}={value}" for name, value in written[-1].items()), flush=True)
        provenance.write(path, written)


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Names that are listed with commas."""

    def names(text: str) -> list[str]:
        chosen = names_of(text)
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
        return chosen

    return names


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("compare", "rows", "dfm"), default="compare")
    parser.add_argument("--summary", action="store_true", help="print the targets and whether they are met")
    parser.add_argument("--of", default="gp-factor", help="the method that --summary, rows, dfm and --set are about")
    parser.add_argument("--tables", type=some_of(tuple(TABLES)), default="development", help=", ".join(GROUPS))
    parser.add_argument("--patterns", type=some_of(tuple(PATTERNS)), default=list(PATTERNS))
    parser.add_argument("--methods", type=some_of(NAMES), default=["linear", "seasonal naive", "iterative"])
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[0])
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--small", type=int, metavar="N", help="only the first N rows of each series")
    parser.add_argument("--lengths", type=int, nargs="+", default=core_rows.LENGTHS, help="of rows")
    parser.add_argument("--set", type=key_and_value, action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--label", default="", help="a name for the method --of as changed by --set")
    parser.add_argument("-o", "--output", type=Path, help="instead of the file in results/")
    options = parser.parse_args(arguments)
    options.changes = dict(options.changes)
    files = {"compare": "core.csv", "rows": "core_rows.csv", "dfm": "core_dfm.csv"}
    options.output = options.output or RESULTS / files[options.what]
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if options.summary:
        rows = core_targets.read(options.output, table=options.tables, small=[str(options.small or "")])
        core_targets.print_summary(core_targets.Results(rows, options.of, options.label), RESULTS)
    elif options.what == "rows":
        write_rows(options.output, core_rows.costs(options.of, options.lengths))
    elif options.what == "dfm":
        write_rows(options.output, core_dfm.compared(options.of, options.samples))
    else:
        compare(options)


if __name__ == "__main__":
    main()
