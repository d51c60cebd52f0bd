"""The literature's protocols, with any method: `python benchmarks/protocols.py P1 --methods gp-vae,brits,linear`.

P1  PhysioNet 2012 as in CSDI (Tashiro et al. 2021): set a, five folds of patients; 10, 50 and 90 % of the observed
    cells of patients never seen are filled. The folds are those of its published code, which draws each patient's
    cells as here but counts the columns in another order. Its units are the deviations of all patients; ours, as an
    imputer could know them, those of the training patients.
P2  PhysioNet 2012 as in TSI-Bench (Du et al. 2024): set a, 2,557 / 640 / 800 patients by outcome, 10 % of the observed
    cells of the last held out. An hour holds its last value, where TSI-Bench takes the mean.
P3  Beijing PM2.5 with the held-out cells of ST-MVL (Yi et al. 2016), in windows of 36 hours of the months 3, 6, 9, 12.
    CSDI's MAE and CRPS are those in original units.
P4  Tables as a user has them, filled by what was fitted to them: Beijing's air, Italy's air, a transformer; 10 % and
    50 % of the cells removed one by one, or 10 % in runs of one to two days of one column.

Patients and months for validation are fitted on too: our imputers hold cells out by themselves. Where a method draws
samples, `crps_normalised` is CSDI's Σ quantile score / Σ|truth|, and `crps` the usual average; `mae_median` and
`rmse_median`, which CSDI reports, are errors of the median, `mae` and the others of what is filled in, the mean.
Units of P1, P2 and P4 are standard deviations of each column. `--set epochs=5 --set model.latent_dim=16 --label small`
changes settings of the methods. `saits` and `csdi` are PyPOTS's. GPVAE_DATA names the folder with the data. Rows are
added to the output one by one, and what it holds already, of the same settings, is not done again.
"""

import argparse
import csv
import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import peers
import provenance
from sklearn.model_selection import train_test_split

from gpvae import GPVAE, ModelConfig, Panel, datasets, missingness
from gpvae.data.panel import Bools, DataError, Floats
from gpvae.data.scaling import Scaling
from gpvae.datasets import DataSet
from gpvae.datasets.dataset import even_panel
from gpvae.evaluation import metrics
from gpvae.evaluation.provenance import describe
from gpvae.imputers.base import Imputer
from gpvae.imputers.imputation import SORTED_AT_ONCE, Imputation
from gpvae.imputers.registry import NAMES, method

CSDI_SEED = 1
Row = dict[str, object]
KEY = (
    *("protocol", "data", "fold", "pattern", "units", "method", "label", "settings_digest"),
    *("seed", "samples", "small"),
)
COLUMNS = (
    *(*KEY, "settings", "cells", "mae", "mse", "rmse", "mre", "mae_median", "rmse_median", "crps", "crps_normalised"),
    *("nll", "coverage_50", "coverage_90", "fit_seconds", "impute_seconds", "epochs"),
    *("commit", "date", "hardware", "python", "torch"),
)


@dataclass(frozen=True)
class Task:
    """A panel to fill, and the truth of the cells that count."""

    pattern: str
    visible: Panel
    truth: Floats  # (row, feature)
    cells: Bools  # (row, feature)


@dataclass(frozen=True)
class Exercise:
    """What is fitted once, and what is filled with it."""

    data: str
    fold: int | str
    training: Panel
    tasks: list[Task]
    units: Mapping[str, Scaling]
    settings: Mapping[str, Any] = field(default_factory=dict)  # of methods that are trained
    window: int = 48  # steps that PyPOTS's methods see at once
    stride: int = 48  # between the windows that those learn from

    @property
    def scored(self) -> Bools:
        """Columns with units to count in. (feature,)"""
        return np.all([units.varies for units in self.units.values()], axis=0)


# Protocols. Each gives its exercises; `small` keeps only so many series, or steps of long ones.


def physionet_in_folds(folds: int, seed: int, small: int | None) -> Iterator[Exercise]:
    stays = measured_stays(small)
    count = len(stays.panel)
    held_out = {rate: cells_of_each_series(stays.panel, rate) for rate in (0.1, 0.5, 0.9)}
    order = np.random.RandomState(CSDI_SEED).permutation(count)
    for fold in range(folds):
        first, end = int(fold * 0.2 * count), int((fold + 1) * 0.2 * count)
        test, others = order[first:end], np.delete(order, np.arange(first, end))
        others = np.random.RandomState(CSDI_SEED).permutation(others)
        units = Scaling.of(stays.part(others[: int(0.7 * count)]).panel, standardise=True)
        asked = stays.part(test).panel
        tasks: list[Task] = []
        for rate, cells in held_out.items():
            cells = cells.reshape(count, -1)[test].reshape(asked.values.shape)
            tasks.append(Task(f"{rate:.0%}", missingness.hide(asked, cells), asked.values, cells))
        yield Exercise("PhysioNet set a", fold, stays.part(others).panel, tasks, {"standardised": units})


def physionet_by_outcome(folds: int, seed: int, small: int | None) -> Iterator[Exercise]:
    stays = measured_stays(small)
    assert stays.labels is not None
    part = np.empty(len(stays.panel), dtype="<U10")
    for outcome in (0, 1):
        others, test = train_test_split(np.flatnonzero(stays.labels == outcome), test_size=0.2, random_state=0)
        train, validation = train_test_split(others, test_size=0.2, random_state=0)
        part[train], part[validation], part[test] = "train", "validation", "test"
    asked = stays.part(np.flatnonzero(part == "test")).panel
    units = Scaling.of(stays.part(np.flatnonzero(part == "train")).panel, standardise=True)
    cells = missingness.random(asked, 0.1, 0)
    task = Task("10%", missingness.hide(asked, cells), asked.values, cells)
    training = stays.part(np.flatnonzero(part != "test")).panel
    yield Exercise("PhysioNet set a", "", training, [task], {"standardised": units})


def pm25_by_month(folds: int, seed: int, small: int | None) -> Iterator[Exercise]:
    """Months of training are long series; those of the test are cut into windows as CSDI's, each cell scored once."""
    air, hours = datasets.load("pm25"), 36
    month = (np.datetime64("2014-05-01T00") + (air.panel.times / 3600).astype("m8[h]")).astype("M8[M]")
    number = month.astype(np.int64) % 12 + 1
    runs = [np.flatnonzero(month == each)[:small] for each in np.unique(month)]
    test, train = ([rows for rows in runs if (number[rows[0]] % 3 == 0) == asked] for asked in (True, False))
    training = Panel.from_list([air.truth[rows] for rows in train])
    months = np.concatenate(test)
    windows = months[peers.windows_of(np.array([len(rows) for rows in test]), hours, hours)]
    again = np.ones(windows.size, dtype=bool)
    again[np.unique(windows, return_index=True)[1]] = False
    cells = air.held_out[windows.ravel()] & ~again[:, None]
    task = Task("ST-MVL", Panel.from_array(air.panel.values[windows]), air.truth[windows.ravel()], cells)
    as_they_are = Scaling(np.zeros(len(air.panel.columns)), np.ones(len(air.panel.columns)))
    units = {"original": as_they_are, "standardised": Scaling.of(training, standardise=True)}
    yield Exercise("PM2.5", "", training, [task], units, {"window": hours}, window=hours, stride=1)


def tables(folds: int, seed: int, small: int | None) -> Iterator[Exercise]:
    for name in ("beijing", "air_quality", "ett_h1"):
        panel = first_steps(datasets.load(name).panel, small)
        for pattern, cells in {
            "10% cells": missingness.random(panel, 0.1, seed),
            "50% cells": missingness.random(panel, 0.5, seed),
            "blocks of 24-48": missingness.blocks(panel, 0.1, seed, length=(24, 48)),
        }.items():
            visible = missingness.hide(panel, cells)
            units = {"standardised": Scaling.of(visible, standardise=True)}
            yield Exercise(name, "", visible, [Task(pattern, visible, panel.values, cells)], units)


PROTOCOLS = {"P1": physionet_in_folds, "P2": physionet_by_outcome, "P3": pm25_by_month, "P4": tables}


def measured_stays(small: int | None) -> DataSet:
    """Patients of set a with at least one value: 3,997, in CSDI and TSI-Bench alike."""
    stays = datasets.load("physionet2012", splits=["train"])
    seen = np.add.reduceat(stays.panel.observed.any(axis=1), stays.panel.starts)
    return stays.part(np.flatnonzero(seen)[:small])


def cells_of_each_series(panel: Panel, rate: float) -> Bools:
    """Of each series the share `rate` of its observed cells, rounded down. (row, feature)"""
    rng, observed = np.random.RandomState(CSDI_SEED), panel.observed
    chosen = np.zeros(observed.shape, dtype=bool)
    for _, rows in panel.series():
        known = np.flatnonzero(observed[rows])
        chosen[rows].flat[rng.choice(known, int(len(known) * rate), replace=False)] = True
    return chosen


def first_steps(panel: Panel, steps: int | None) -> Panel:
    """Of each series; all of one length and on one grid."""
    stacked = panel.values.reshape(len(panel), -1, len(panel.columns))[:, :steps]
    short = even_panel(stacked, panel.columns, panel.ids, panel.times[: stacked.shape[1]])
    return replace(short, clock=panel.clock, origin=panel.origin)


# Methods.


def imputer_for(name: str, exercise: Exercise, changes: Mapping[str, Any], seed: int, device: str) -> Imputer:
    """A method as the exercise and the `changes` want it; model.x = y changes the model's x."""
    settings = {key: value for key, value in changes.items() if not key.startswith("model.")}
    inner = {key.removeprefix("model."): value for key, value in changes.items() if key.startswith("model.")}
    if name in peers.PAPERS_SETTINGS:
        whole = {**peers.PAPERS_SETTINGS[name], **settings}
        return peers.Peer(name, whole, exercise.window, exercise.stride, seed, device)
    imputer = method(name, **{**exercise.settings, **settings, "seed": seed, "device": device})
    if inner:
        if not isinstance(imputer, GPVAE):
            raise DataError(f"{name} has no model whose {', '.join(inner)} could be set")
        imputer.model = ModelConfig.from_plain({**imputer.model.to_plain(), **inner})
    return imputer


def digest(imputer: Imputer) -> str:
    """Of all settings that decide the result, besides the seed."""
    settings = {k: v for k, v in imputer._settings().items() if k not in ("seed", "device", "verbose")}
    return hashlib.sha256(json.dumps([imputer.name, settings], sort_keys=True).encode()).hexdigest()[:12]


# Scores.


def scores(imputation: Imputation, task: Task, cells: Bools, units: Scaling, density: Floats | None) -> Row:
    """Averages over the cells, in these units. `density` is log p of the truth in the data's own. (row, feature)"""
    feature = np.nonzero(cells)[1]
    shift, scale = units.shift[feature], units.scale[feature]
    truth, value = ((rows[cells] - shift) / scale for rows in (task.truth, imputation.mean_rows))
    if not np.isfinite(value).all():
        raise DataError(f"{imputation.method} leaves hidden cells missing, so it cannot be scored")
    median, inside = value, dict[str, float]()
    if imputation.has_intervals:
        found = imputation.quantile_rows(0.05, 0.25, 0.5, 0.75, 0.95)
        lowest, low, middle, high, highest = (rows[cells] for rows in found)
        median, known = (middle - shift) / scale, task.truth[cells]
        inside = {
            "coverage_50": float(metrics.covered(known, low, high).mean()),
            "coverage_90": float(metrics.covered(known, lowest, highest).mean()),
        }
    error, of_median = metrics.absolute_error(truth, value), metrics.absolute_error(truth, median)
    crps, by_quantile = _scores_of_draws(imputation, cells, truth, shift, scale)
    size = np.abs(truth).sum()
    return {
        "cells": len(truth),
        "mae": error.mean(),
        "mse": (error**2).mean(),
        "rmse": np.sqrt((error**2).mean()),
        "mre": error.sum() / size,
        "mae_median": of_median.mean(),
        "rmse_median": np.sqrt((of_median**2).mean()),
        "crps": crps.mean(),
        "crps_normalised": by_quantile.sum() / size,
        "nll": None if density is None else -(density[cells] + np.log(scale)).mean(),
        **{"coverage_50": None, "coverage_90": None, **inside},
    }


def _scores_of_draws(
    imputation: Imputation, cells: Bools, truth: Floats, shift: Floats, scale: Floats
) -> tuple[Floats, Floats]:
    """CRPS and quantile score of each cell, a few cells at a time; of single values both are the absolute error."""
    if imputation.draws is None:
        error = np.abs(truth - (imputation.mean_rows[cells] - shift) / scale)
        return error, error
    draws, found = imputation.draws.at(cells.flat[imputation.cells]), np.empty((2, len(truth)))
    for first in range(0, len(truth), SORTED_AT_ONCE):
        some = slice(first, first + SORTED_AT_ONCE)
        drawn = ((draws.at(some).values() - shift[some, None]) / scale[some, None]).T  # (sample, cell)
        found[:, some] = metrics.crps(truth[some], drawn), metrics.quantile_score(truth[some], drawn)
    crps, by_quantile = found
    return crps, by_quantile


def rows_of(exercise: Exercise, imputer: Imputer, samples: int, seed: int) -> Iterator[Row]:
    """Fit once, fill and score every task."""
    if not exercise.tasks:
        return
    started = time.perf_counter()
    imputer.fit(exercise.training)
    fitted = time.perf_counter() - started
    for task in exercise.tasks:
        started = time.perf_counter()
        imputation = imputer.impute(task.visible, samples=samples, seed=seed)
        filled = time.perf_counter() - started
        cells, density = task.cells & exercise.scored, None
        if imputer.gives_distributions:
            truth = np.where(cells, task.truth, np.nan)
            density = imputer.log_likelihood(task.visible, truth, samples=samples, seed=seed)
        for name, units in exercise.units.items():
            found = scores(imputation, task, cells, units, density)
            took = {"fit_seconds": fitted, "impute_seconds": filled, "epochs": len(imputer.history_) or ""}
            yield {"pattern": task.pattern, "units": name, **found, **took}


# Rows in a file.


def done(output: Path) -> set[tuple[str, ...]]:
    """What the output holds already."""
    if not output.exists():
        return set()
    with output.open(newline="") as file:
        rows = csv.DictReader(file)
        if tuple(rows.fieldnames or ()) != COLUMNS:
            raise DataError(f"{output} has other columns than those written now: name another output")
        return {tuple(row[name] for name in KEY) for row in rows}


def without(finished: set[tuple[str, ...]], exercise: Exercise, about: Row) -> Exercise:
    """The exercise with those tasks only that are still to be done in some units."""

    def is_open(task: Task) -> bool:
        rows = ({**about, "pattern": task.pattern, "units": units} for units in exercise.units)
        return any(tuple(str(row[name]) for name in KEY) not in finished for row in rows)

    return replace(exercise, tasks=[task for task in exercise.tasks if is_open(task)])


def shown(value: object) -> object:
    return f"{value:.5g}" if isinstance(value, float) else value


def add(output: Path, row: Row) -> None:
    """One more line, in one go: several runs may write to one file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerow({name: shown(value) for name, value in row.items()})


def setting(words: str) -> tuple[str, Any]:
    """key=value, the value as JSON where it is some, else as text."""
    key, equals, value = words.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{words!r} is not key=value")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("--methods", default="linear", help=f"some of {', '.join([*NAMES, *peers.PAPERS_SETTINGS])}")
    parser.add_argument("--folds", type=int, choices=range(1, 6), default=5, help="of P1, from the first on")
    parser.add_argument("--seeds", default="0", help="of the methods and, in P4, of the gaps: 0,1,2")
    parser.add_argument("--only", default="", help="only data of this name (beijing), or only this fold")
    parser.add_argument("--pattern", default="", help="only gaps of this name (10%%, blocks of 24-48)")
    parser.add_argument("--set", type=setting, action="append", default=[], dest="changes", metavar="KEY=VALUE")
    parser.add_argument("--label", default="", help="a name for what --set makes of the methods")
    parser.add_argument("--samples", type=int, default=100, help="of methods that draw any; at least 19")
    parser.add_argument("--small", type=int, metavar="N", help="only N series, or steps of long ones: to try it out")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("-o", "--output", type=Path, default=provenance.ROOT / "results" / "protocols.csv")
    options = parser.parse_args(arguments)
    names = options.methods.split(",")
    if unknown := [name for name in names if name not in (*NAMES, *peers.PAPERS_SETTINGS)]:
        parser.error(f"there is no method {unknown[0]!r}")
    if set(names) & set(peers.PAPERS_SETTINGS) and not find_spec("pypots"):
        parser.error("saits and csdi need PyPOTS: pip install '.[bench]'")
    origin, finished = describe(options.device), done(options.output)
    for seed in map(int, options.seeds.split(",")):
        for exercise in PROTOCOLS[options.protocol](options.folds, seed, options.small):
            if options.only not in ("", exercise.data, str(exercise.fold)):
                continue
            wanted = [task for task in exercise.tasks if options.pattern in ("", task.pattern)]
            exercise, changes = replace(exercise, tasks=wanted), dict(options.changes)
            imputers = {name: imputer_for(name, exercise, changes, seed, options.device) for name in names}
            for name, imputer in imputers.items():
                about: Row = {"protocol": options.protocol, "data": exercise.data, "fold": exercise.fold}
                about |= {"method": name, "label": options.label, "settings": json.dumps(changes)}
                about |= {"settings_digest": digest(imputer), "seed": seed}
                about |= {"samples": options.samples, "small": options.small or ""}
                for found in rows_of(without(finished, exercise, about), imputer, options.samples, seed):
                    add(options.output, {**about, **found, **origin})
                    numbers = (f"{key}={shown(value)}" for key, value in found.items() if value is not None)
                    print(exercise.data, exercise.fold, name, *numbers, flush=True)


if __name__ == "__main__":
    main()
