"""The literature's protocols, with any method: `python benchmarks/protocols.py P1 --methods gp-vae,brits,linear`.

P1  PhysioNet 2012 as in CSDI (Tashiro et al. 2021): set a, five folds of patients; 10, 50 and 90 % of the observed
    cells of the test patients are filled. The folds are those of its published code, which draws each patient's cells
    as here but numbers the columns differently. Its units are standard deviations over all patients; ours, which an
    imputer could know, over the training patients.
P2  PhysioNet 2012 as in TSI-Bench (Du et al. 2024): set a, 2,557 / 640 / 800 patients stratified by outcome, 10 % of
    the observed cells of the 800 held out. An hour holds its last value, where TSI-Bench takes the mean.
P3  Beijing PM2.5 with the held-out cells of ST-MVL (Yi et al. 2016), in windows of 36 hours of the months 3, 6, 9, 12.
    CSDI's MAE and CRPS are those in original units.
P4  Tables as a user has them, fitted and filled: Beijing's air, Italy's air, a transformer; 10 % and 50 % of the cells
    hidden one by one, or 10 % in runs of one to two days in one column. Only if named by --pattern: "outages of 16-40",
    10 % of the rows hidden in all columns, in runs of 16 to 40; "outage of 640", one run of 640 rows in all columns.

Validation patients and months are used for training too: our imputers hold out cells by themselves. For methods that
draw samples, `crps_normalised` is CSDI's Σ quantile score / Σ|truth|, and `crps` the usual average; `mae_median` and
`rmse_median`, which CSDI reports, are errors of the median, `mae` and the others of the mean, which is filled in. The
units of P1, P2 and P4 are standard deviations of each column. `--set epochs=5 --set model.latent_dim=16 --label small`
changes settings of the methods. `saits` and `csdi` are PyPOTS's. GPVAE_DATA names the folder with the data. Rows are
appended to the output one by one; those that it has already, with the same settings, are not computed again.
"""

import argparse
import csv
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import peers
import provenance
from protocol_data import PROTOCOLS, Experiment, Selection, Task

from gpvae.data.panel import Bools, DataError, Floats
from gpvae.data.scaling import Scaling
from gpvae.evaluation import metrics
from gpvae.evaluation.provenance import describe
from gpvae.imputers import registry
from gpvae.imputers.base import Imputer
from gpvae.imputers.draws import CELLS_PER_CHUNK
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.registry import method
from gpvae.paper.presets import changed

Row = dict[str, Any]
METHODS = (*registry.METHODS, *peers.PAPER_SETTINGS)
KEY = (
    *("protocol", "data", "fold", "pattern", "units", "method", "label", "settings_digest"),
    *("seed", "samples", "small"),
)
COLUMNS = (
    *(*KEY, "settings", "cells", "mae", "mse", "rmse", "mre", "mae_median", "rmse_median", "crps", "crps_normalised"),
    *("nll", "coverage_50", "coverage_90", "fit_seconds", "impute_seconds", "epochs"),
    *("commit", "date", "hardware", "python", "torch"),
)


def new_imputer(name: str, experiment: Experiment, changes: Mapping[str, Any], seed: int, device: str) -> Imputer:
    """A method with the settings of the experiment and the `changes`, by dotted paths: recipe.masking.runs = 0.5."""
    if name in peers.PAPER_SETTINGS:
        settings = {**peers.PAPER_SETTINGS[name], **changes}
        return peers.Peer(name, settings, experiment.window, experiment.stride, seed, device)
    imputer = method(name, seed=seed, device=device)
    changes = {k: tuple(v) if isinstance(v, list) else v for k, v in {**experiment.settings, **changes}.items()}
    if not registry.METHODS[name].trained:
        changes = {k: v for k, v in changes.items() if k.partition(".")[0] not in registry.SETTINGS}
    try:
        return imputer.set_params(**changed(imputer.get_params(deep=False), changes))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name} has no setting {', '.join(changes)}: {error}") from error


def digest(imputer: Imputer) -> str:
    """Identifies all settings that decide the result, besides the seed."""
    settings = {k: v for k, v in imputer._settings().items() if k not in ("seed", "device", "verbose")}
    return hashlib.sha256(json.dumps([imputer.name, settings], sort_keys=True).encode()).hexdigest()[:12]


def rows_of(experiment: Experiment, imputer: Imputer, samples: int, seed: int) -> Iterator[Row]:
    """Fit once, fill and score every task."""
    if not experiment.tasks:
        return
    started = time.perf_counter()
    imputer.fit(experiment.training)
    fit_seconds = time.perf_counter() - started
    for task in experiment.tasks:
        started = time.perf_counter()
        imputation = imputer.impute(task.visible, samples=samples, seed=seed)
        seconds = {"fit_seconds": fit_seconds, "impute_seconds": time.perf_counter() - started}
        cells, log_density = task.cells & experiment.scored, None
        if imputer.gives_distributions:
            truth = np.where(cells, task.truth, np.nan)
            log_density = imputer.log_likelihood(task.visible, truth, samples=samples, seed=seed)
        for name, units in experiment.units.items():
            row = scores(imputation, task, cells, units, log_density)
            yield {"pattern": task.pattern, "units": name, **row, **seconds, "epochs": len(imputer.history_) or ""}


def scores(imputation: Imputation, task: Task, cells: Bools, units: Scaling, log_density: Floats | None) -> Row:
    """Averages over the cells, in these units; `log_density` (row, feature) is in units of the data."""
    feature = np.nonzero(cells)[1]
    shift, scale = units.shift[feature], units.scale[feature]
    truth, mean = ((rows[cells] - shift) / scale for rows in (task.truth, imputation.mean_rows))
    if not np.isfinite(mean).all():
        raise DataError(f"{imputation.method} leaves hidden cells missing, so it cannot be scored")
    median, coverage = mean, dict[str, float | None](coverage_50=None, coverage_90=None)
    if imputation.has_intervals:
        low_90, low_50, middle, high_50, high_90 = (
            rows[cells] for rows in imputation.quantile_rows(0.05, 0.25, 0.5, 0.75, 0.95)
        )
        median, known = (middle - shift) / scale, task.truth[cells]
        coverage["coverage_50"] = float(metrics.covered(known, low_50, high_50).mean())
        coverage["coverage_90"] = float(metrics.covered(known, low_90, high_90).mean())
    error, median_error = metrics.absolute_error(truth, mean), metrics.absolute_error(truth, median)
    crps, quantile_score = _scores_of_draws(imputation, cells, truth, shift, scale)
    total = np.abs(truth).sum()
    return {
        "cells": len(truth),
        "mae": error.mean(),
        "mse": (error**2).mean(),
        "rmse": np.sqrt((error**2).mean()),
        "mre": error.sum() / total,
        "mae_median": median_error.mean(),
        "rmse_median": np.sqrt((median_error**2).mean()),
        "crps": crps.mean(),
        "crps_normalised": quantile_score.sum() / total,
        "nll": None if log_density is None else -(log_density[cells] + np.log(scale)).mean(),
        **coverage,
    }


def _scores_of_draws(
    imputation: Imputation, cells: Bools, truth: Floats, shift: Floats, scale: Floats
) -> tuple[Floats, Floats]:
    """CRPS and quantile score of each cell, some cells at a time; without draws, both are the absolute error."""
    if imputation.draws is None:
        error = np.abs(truth - (imputation.mean_rows[cells] - shift) / scale)
        return error, error
    draws = imputation.draws.at(cells.flat[imputation.cells])
    crps, quantile_score = np.empty(len(truth)), np.empty(len(truth))
    for first in range(0, len(truth), CELLS_PER_CHUNK):
        chunk = slice(first, first + CELLS_PER_CHUNK)
        samples = ((draws.at(chunk).values() - shift[chunk, None]) / scale[chunk, None]).T  # (sample, cell)
        crps[chunk] = metrics.crps(truth[chunk], samples)
        quantile_score[chunk] = metrics.quantile_score(truth[chunk], samples)
    return crps, quantile_score


def finished_keys(output: Path, columns: Sequence[str] = COLUMNS, key: Sequence[str] = KEY) -> set[tuple[str, ...]]:
    """Keys of the rows that the output has already."""
    if not output.exists():
        return set()
    with output.open(newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != tuple(columns):
            raise DataError(f"{output} has other columns than those written now: name another output")
        return {tuple(row[name] for name in key) for row in rows}


def unfinished(experiment: Experiment, finished: set[tuple[str, ...]], about: Row) -> Experiment:
    """The experiment with only those tasks of which a row is missing, in any unit."""

    def is_missing(task: Task) -> bool:
        rows = ({**about, "pattern": task.pattern, "units": units} for units in experiment.units)
        return any(tuple(str(row[name]) for name in KEY) not in finished for row in rows)

    return replace(experiment, tasks=[task for task in experiment.tasks if is_missing(task)])


def rounded(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else value


def append(output: Path, row: Row, columns: Sequence[str] = COLUMNS) -> None:
    """Add one line in a single write: several runs may write to one file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerow({name: rounded(value) for name, value in row.items()})


def key_and_value(text: str) -> tuple[str, Any]:
    """key=value, the value read as JSON if it is JSON, else as text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not key=value")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("--methods", default="linear", help=f"some of {', '.join(METHODS)}")
    parser.add_argument("--folds", type=int, choices=range(1, 6), default=5, help="of P1, from the first on")
    parser.add_argument("--seeds", default="0", help="of the methods and, in P4, of the gaps: 0,1,2")
    parser.add_argument("--only", default="", help="only data of this name (beijing), or only this fold")
    parser.add_argument("--pattern", default="", help="only gaps of this name (10%%, blocks of 24-48)")
    parser.add_argument("--set", type=key_and_value, action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--label", default="", help="a name for the methods as changed by --set")
    parser.add_argument("--samples", type=int, default=100, help="for methods that draw any; at least 19")
    parser.add_argument("--small", type=int, metavar="N", help="only N series, or steps of long ones: to try it out")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("-o", "--output", type=Path, default=provenance.ROOT / "results" / "protocols.csv")
    options = parser.parse_args(arguments)
    options.methods, options.changes = options.methods.split(","), dict(options.changes)
    if unknown := [name for name in options.methods if name not in METHODS]:
        parser.error(f"there is no method {unknown[0]!r}")
    if set(options.methods) & set(peers.PAPER_SETTINGS) and not find_spec("pypots"):
        parser.error("saits and csdi need PyPOTS: pip install '.[bench]'")
    return options


def experiments(options: argparse.Namespace, seed: int) -> Iterator[Experiment]:
    """The part of the protocol that --only and --pattern name."""
    selection = Selection(options.folds, seed, options.small, options.pattern)
    for experiment in PROTOCOLS[options.protocol](selection):
        if options.only in ("", experiment.data, str(experiment.fold)):
            tasks = [task for task in experiment.tasks if options.pattern in ("", task.pattern)]
            yield replace(experiment, tasks=tasks)


def append_rows(experiment: Experiment, imputer: Imputer, about: Row, output: Path) -> None:
    """Compute and append the rows that the output does not have yet."""
    missing = unfinished(experiment, finished_keys(output), about)
    for row in rows_of(missing, imputer, about["samples"], about["seed"]):
        append(output, {**about, **row})
        numbers = (f"{key}={rounded(value)}" for key, value in row.items() if value is not None)
        print(about["data"], about["fold"], about["method"], *numbers, flush=True)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    about: Row = {"protocol": options.protocol, "label": options.label, "settings": json.dumps(options.changes)}
    about |= {"samples": options.samples, "small": options.small or "", **describe(options.device)}
    for seed in map(int, options.seeds.split(",")):
        for experiment in experiments(options, seed):
            about |= {"seed": seed, "data": experiment.data, "fold": experiment.fold}
            settings = (experiment, options.changes, seed, options.device)
            imputers = {name: new_imputer(name, *settings) for name in options.methods}
            for name, imputer in imputers.items():
                about |= {"method": name, "settings_digest": digest(imputer)}
                append_rows(experiment, imputer, about, options.output)


if __name__ == "__main__":
    main()
