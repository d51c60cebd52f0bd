"""The paper's experiments again: one run and its judgement, the record of runs, and what is made of it."""

import csv
import errno
import json
import math
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

from gpvae import GPVAE, DataError, Forward, cli, paper
from gpvae.datasets.dataset import DataSet, even_panel
from gpvae.evaluation import provenance
from gpvae.gp.kernels import RBF
from gpvae.imputers import registry as methods
from gpvae.imputers.brits import BRITS
from gpvae.imputers.grui_gan import GRUIGAN
from gpvae.models.model import ModelConfig
from gpvae.paper import Published, Task, reproduction
from gpvae.paper.reproduction import Example, Outcome, Record, Run, Table, record, runs
from gpvae.training.loop import TrainingError

SMALL_SHAPES = {"healing_mnist": (1, 6, 6), "sprites": (3, 4, 4)}
STEPS = {"healing_mnist": 10, "sprites": 8, "physionet2012": 48}


def made_up(name: str, count: int, seed: int) -> DataSet:
    """Series like those of the data set, small, of two or three classes that differ."""
    rng = np.random.default_rng(seed)
    steps, shape = STEPS[name], SMALL_SHAPES.get(name)
    labels = np.arange(count) % (2 if shape is None else 3)
    features = math.prod(shape) if shape else 35
    slow = np.sin(np.arange(steps)[:, None] / 4 + np.arange(features) + 2.0 * labels[:, None, None])
    values = slow + 0.3 * rng.normal(size=(count, steps, features))
    if name == "healing_mnist":
        values = (values > 0.3) * 1.0
    elif shape:
        values = (values - values.min()) / (values.max() - values.min())
    else:
        values = np.where(rng.random(values.shape) < 0.5, np.nan, 10 + 3 * values)
    panel = even_panel(values.astype(np.float32), [f"v{j}" for j in range(features)], range(count))
    return DataSet(name, panel, panel.values, labels, image_shape=shape)


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, tuple[DataSet, DataSet]]]:
    """What the paper's tasks are posed on: data that is made up, in images of a few pixels."""
    sets: dict[str, tuple[DataSet, DataSet]] = {}
    for name in STEPS:
        train = made_up(name, 18, 0)
        sets[name] = train, train if name == "physionet2012" else made_up(name, 12, 1)
        settings = runs.SETTINGS[name]
        model = replace(settings["model"], image_shape=SMALL_SHAPES.get(name))
        monkeypatch.setitem(runs.SETTINGS, name, {**settings, "model": model})
    monkeypatch.setattr(runs, "_data", lambda name, quick: sets[name])
    monkeypatch.setitem(methods.TRAINED, "grui-gan", lambda **settings: GRUIGAN(**settings, fill_steps=3))
    runs._posed.cache_clear()
    yield sets
    runs._posed.cache_clear()


LADDERS = {ladder.data: ladder for ladder in paper.LADDERS}  # of Healing MNIST, what is missing not at random


def task(name: str, method: str) -> Task:
    return replace(LADDERS[name], method=method)


OURS = {name: len(paper.changes(ladder)) for name, ladder in LADDERS.items()}
MEASURED = {"healing_mnist": {"mse", "auroc"}, "sprites": {"mse"}, "physionet2012": {"mse", "auroc", "auroc_halves"}}
LIKELIHOODS = {"nll", "nll_mixture", "nll_per_observed"}


@pytest.mark.filterwarnings("ignore:.*lbfgs failed to converge.*")
@pytest.mark.parametrize("run", [*reproduction.runs_of("T1", 1), *reproduction.runs_of("T3", 1)], ids=str)
def test_every_run_of_the_main_tables(run: Run, small_data: dict[str, tuple[DataSet, DataSet]]) -> None:
    """It trains, and gives what the tables ask of its task: a number for each, and nothing that is not one."""
    outcome = runs.execute(replace(run, quick=True), device="cpu")
    data, latent = run.task.data, run.task.method in ("vae", "hi-vae", "gp-vae")
    asked = MEASURED[data] | (LIKELIHOODS if data == "healing_mnist" and latent else set[str]())
    assert outcome.measures.keys() == asked | {"seconds"}
    for table in ("T1", "T3"):
        cells = [cell for cell in paper.TABLES[table] if cell.task == run.task and cell.published]
        assert {cell.measure for cell in cells} <= outcome.measures.keys()
    assert all(math.isfinite(value) for value in outcome.measures.values())
    _, test = small_data[data]
    example = outcome.example
    assert np.isfinite(example.filled).all()
    assert np.array_equal(example.truth.shape, example.hidden.shape)
    assert (example.std is not None) is (data == "physionet2012" and latent)
    if data == "physionet2012":
        hidden = runs._posed(data, run.task.gaps, run.task.rate, run.seed, True)[3].reshape(18, 48, 35)
        patient = int(hidden.sum((1, 2)).argmax())
        assert np.array_equal(example.truth, test.truth[48 * patient : 48 * (patient + 1)], equal_nan=True)
    else:
        assert np.array_equal(example.truth, test.truth[: STEPS[data]])
        assert np.array_equal(example.filled[~example.hidden], example.truth[~example.hidden])
        if data == "healing_mnist" and latent:
            assert set(np.unique(example.filled)) <= {0.0, 1.0}


class Stub:
    """Fills with a number, and is the more surprised the more samples it takes; sees no cell that is hidden."""

    gives_distributions = True

    def __init__(self, hidden: int, value: float, surprise: float = 0.1) -> None:
        self.surprise = surprise
        self.hidden, self.value, self.seeds = hidden, value, list[int]()

    def impute(self, visible: Any, samples: int) -> Any:
        self.hidden -= int(np.isnan(visible.values).sum())
        return SimpleNamespace(mean_rows=np.where(visible.observed, visible.values, self.value))

    def log_likelihood(self, visible: Any, truth: NDArray[Any], *, samples: int, seed: int) -> NDArray[Any]:
        assert np.array_equal(np.isnan(truth), visible.observed)
        self.seeds.append(seed)
        return np.where(np.isnan(truth), np.nan, -self.surprise * samples)


def judged(
    method: str, value: float, data: str = "healing_mnist", *, surprise: float = 0.1
) -> tuple[dict[str, float], DataSet, NDArray[Any]]:
    test = made_up(data, 12, 1)
    run = Run(task(data, method), 0)
    hidden = runs.gaps(test, run.task.gaps, run.task.rate, [0, 1])
    stub = Stub(int(hidden.sum()) + int(np.isnan(test.truth).sum()), value, surprise)
    measures, filled = runs.judged(cast(Any, stub), test, hidden, run)
    assert stub.hidden == 0  # every hidden cell was a gap, once
    known = ~hidden & test.panel.observed
    assert np.array_equal(filled[known], test.truth[known])
    return measures, test, hidden


@pytest.mark.parametrize("at_once", [5, 500])
def test_measures_by_hand(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many series are judged in one go."""
    monkeypatch.setattr(runs, "AT_ONCE", at_once)
    measures, test, hidden = judged("mean", 0.6)
    assert measures["mse"] == pytest.approx(np.mean((test.truth - 0.6)[hidden] ** 2), rel=1e-5)
    assert measures["nll"] == pytest.approx(0.1)
    assert measures["nll_mixture"] == pytest.approx(2.0)
    assert measures["nll_per_observed"] == pytest.approx(0.1 * hidden.sum() / (~hidden).sum())
    filled = np.where(hidden, 0.6, test.truth).reshape(12, -1)
    assert test.labels is not None
    assert measures["auroc"] == pytest.approx(runs.auroc(filled, test.labels), abs=1e-6)


def test_latent_models_are_judged_by_black_and_white() -> None:
    measures, test, hidden = judged("gp-vae", 0.6)
    assert measures["mse"] == pytest.approx(1 - test.truth[hidden].mean())


def test_variables_of_patients_are_judged_in_their_deviations() -> None:
    measures, test, hidden = judged("gp-vae", 7.4, "physionet2012")
    errors = (test.truth.astype(np.float64) - 7.4) / np.nanstd(test.truth.astype(np.float64), axis=0)
    assert measures["mse"] == pytest.approx(np.mean(errors[hidden] ** 2), rel=1e-5)
    assert measures.keys() == {"mse", "auroc", "auroc_halves"}


def test_other_halves_are_other_patients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Series and labels in other orders, but together."""
    test, seen = made_up("physionet2012", 12, 1), list[list[float]]()
    numbered = np.repeat(np.arange(12.0), len(test.truth) // 12)[:, None]

    def first(series: NDArray[Any], labels: NDArray[np.int64]) -> float:
        assert test.labels is not None
        assert np.array_equal(labels, test.labels[series[:, 0].astype(int)])
        seen.append(series[:, 0].tolist())
        return float(len(seen))

    monkeypatch.setattr(runs, "auroc", first)
    assert runs._usefulness(test, numbered) == {"auroc": 1.0, "auroc_halves": 6.5}  # the mean of 2 … 11
    assert seen[0] == list(range(12))
    assert len({tuple(each) for each in seen}) == 11
    assert all(sorted(each) == list(range(12)) for each in seen)


def test_every_part_and_every_seed_draws_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "AT_ONCE", 5)
    test = made_up("healing_mnist", 12, 1)
    hidden, seeds = runs.gaps(test, "random", 0.5, [0]), list[int]()
    for seed in (0, 1):
        stub = Stub(int(hidden.sum()), 0.5)
        runs.judged(cast(Any, stub), test, hidden, Run(task("healing_mnist", "mean"), seed))
        assert len(set(stub.seeds)) == 3
        seeds += set(stub.seeds)
    assert len(set(seeds)) == 6


def test_numbers_that_are_none_are_no_result() -> None:
    with pytest.raises(DataError, match="nll is nan"):
        judged("mean", 0.5, surprise=np.nan)


def test_more_white_than_black_goes_missing_as_in_the_paper() -> None:
    data = made_up("healing_mnist", 300, 0)
    hidden, white = runs.gaps(data, "not-at-random", 0.51, [0, 0]), data.truth == 1
    assert hidden[white].mean() == pytest.approx(0.90, abs=0.01)
    assert hidden[~white].mean() == pytest.approx(0.45, abs=0.01)


@pytest.mark.parametrize("kind", ["random", "spatial", "temporal+", "temporal-"])
def test_other_gaps_have_nothing_to_do_with_the_value(kind: str) -> None:
    data = made_up("healing_mnist", 200, 0)
    hidden, white = runs.gaps(data, kind, 0.3, [0, 0]), data.truth == 1
    assert hidden[white].mean() == pytest.approx(0.3, abs=0.02)
    assert hidden[~white].mean() == pytest.approx(0.3, abs=0.02)


def test_gaps_are_the_seeds_and_others_to_learn_and_to_judge_by(small_data: object) -> None:
    posed = [runs._posed("healing_mnist", "random", 0.5, seed, True) for seed in (0, 1, 0)]
    assert np.array_equal(posed[0][2], posed[2][2])
    assert not np.array_equal(posed[0][2], posed[1][2])
    assert not np.array_equal(posed[0][2][:120], posed[0][3])
    train, test, hidden, same = runs._posed("physionet2012", "random", 0.1, 0, True)
    assert train is test
    assert hidden is same  # patients are judged by the values hidden in training
    assert not (hidden & np.isnan(train.truth)).any()


def settings_of(imputer: object) -> dict[str, Any]:
    assert isinstance(imputer, GPVAE)
    return imputer.get_params(deep=False)


@pytest.mark.parametrize(("data", "preset"), [*runs.SETTINGS.items()])
def test_without_changes_the_settings_are_the_papers(data: str, preset: dict[str, Any]) -> None:
    def of(method: str) -> dict[str, Any]:
        return settings_of(runs.new_imputer(Run(task(data, method), 3), device="cpu"))

    papers = settings_of(GPVAE(**preset, seed=3, device="cpu"))
    model: ModelConfig = preset["model"]
    assert of("gp-vae") == papers
    assert of("gp-vae, RBF") == papers | {"model": replace(model, kernel=RBF(2.0))}
    alone = replace(model, neighbours=0, jitter=1e-6, posterior="diagonal", encoder_window=1)
    assert of("hi-vae") == papers | {"model": alone}
    assert of("vae") == papers | {"model": replace(alone, score_missing=True)}


def test_changes_are_made_one_after_the_other() -> None:
    papers = settings_of(GPVAE(**paper.PHYSIONET))
    model: ModelConfig = paper.PHYSIONET["model"]
    sees = replace(model, see_observed=True)
    expected = [
        {"model": model, "warm_up": 0.0},
        {"model": sees, "warm_up": 0.0},
        {"model": sees, "warm_up": 1 / 3},
        {"model": replace(sees, noise=None), "warm_up": 1 / 3},
        {"model": replace(sees, noise=None, hide=0.3), "warm_up": 1 / 3},
    ]
    found = [settings_of(runs.new_imputer(Run(task("physionet2012", "gp-vae"), 0, n))) for n in range(5)]
    assert found == [papers | each for each in expected]
    last = settings_of(runs.new_imputer(Run(task("healing_mnist", "hi-vae"), 0, OURS["healing_mnist"])))["model"]
    assert (last.see_observed, last.missing_by_value, last.posterior) == (True, True, "diagonal")
    for gaps, beta, epochs in (("spatial", 0.8, 20), ("temporal-", 0.2, 40)):
        elsewhere = replace(task("healing_mnist", "hi-vae"), gaps=gaps)
        found = settings_of(runs.new_imputer(Run(elsewhere, 0, len(paper.changes(elsewhere)))))
        assert found["epochs"] == epochs
        assert (found["model"].missing_by_value, found["model"].beta) == (False, beta)


@pytest.mark.parametrize("ladder", paper.LADDERS, ids=str)
def test_every_change_changes_something(ladder: Task) -> None:
    found = [settings_of(runs.new_imputer(Run(ladder, 0, n))) for n in range(len(paper.changes(ladder)) + 1)]
    assert all(first != second for i, first in enumerate(found) for second in found[:i])


def test_methods_that_are_not_latent_models() -> None:
    black = runs.new_imputer(Run(task("healing_mnist", "forward"), 0))
    assert isinstance(black, Forward)
    assert black.before == 0.0
    patients = runs.new_imputer(Run(task("physionet2012", "forward"), 0))
    assert isinstance(patients, Forward)
    assert patients.before == Forward().before != 0.0
    brits = runs.new_imputer(Run(task("physionet2012", "brits"), 5), device="cpu")
    assert isinstance(brits, BRITS)
    assert (brits.batch_size, brits.seed, brits.device, brits.epochs) == (64, 5, "cpu", BRITS().epochs)


def clusters(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Series of four numbers around their class's place."""
    return np.eye(4)[labels] * 5 + np.random.default_rng(1).normal(size=(len(labels), 4))


@pytest.mark.parametrize("classes", [2, 3])
def test_auroc_of_classes_that_lie_apart(classes: int) -> None:
    labels = np.random.default_rng(0).integers(classes, size=400)
    assert runs.auroc(clusters(labels), labels) > 0.995
    late = np.concatenate([labels[:200], np.random.default_rng(2).permutation(labels[200:])])
    assert runs.auroc(clusters(labels), late) == pytest.approx(0.5, abs=0.08)


def test_auroc_is_fitted_on_the_first_half_alone() -> None:
    labels = np.random.default_rng(0).integers(2, size=200)
    early = np.concatenate([1 - labels[:100], labels[100:]])
    assert runs.auroc(clusters(labels), early) < 0.005
    noisy = clusters(labels) + np.random.default_rng(3).normal(scale=4, size=(200, 4))
    late = np.concatenate([labels[:100], 1 - labels[100:]])
    found = runs.auroc(noisy, labels)
    assert 0.6 < found < 0.98
    assert runs.auroc(noisy, late) == pytest.approx(1 - found, abs=1e-9)  # the same fit, the other way round


def test_auroc_where_a_class_is_in_one_half_only() -> None:
    labels = np.random.default_rng(0).integers(3, size=200)
    labels[100:][labels[100:] == 2] = 1
    assert runs.auroc(clusters(labels), labels) > 0.99


A_RUN = Run(task("physionet2012", "brits"), 0)


@pytest.fixture
def kept(tmp_path: Path) -> Record:
    return Record(tmp_path / "runs.csv")


def test_runs_are_found_in_the_record_and_no_others(kept: Record) -> None:
    assert kept.rows() == []
    kept.add(A_RUN, {"auroc": 0.75}, {"commit": "abc"})
    assert kept.has(A_RUN)
    others = [
        replace(A_RUN, seed=1),
        replace(A_RUN, changes=1),
        replace(A_RUN, quick=True),
        *(replace(A_RUN, task=replace(A_RUN.task, **one)) for one in ({"rate": 0.2}, {"gaps": "spatial"})),
        *(replace(A_RUN, task=replace(A_RUN.task, **one)) for one in ({"method": "gp"}, {"data": "sprites"})),
    ]
    assert not any(kept.has(other) for other in others)


def test_a_run_is_replaced_and_the_others_stay(kept: Record) -> None:
    kept.add(A_RUN, {"mse": 1 / 3, "auroc": 0.75}, {"commit": "abc"})
    kept.add(replace(A_RUN, seed=1), {"mse": 2.0, "auroc": 0.5}, {"commit": "abc"})
    before = kept.rows()
    kept.add(replace(A_RUN, seed=1), {"mse": 3.0, "nll": 1e-7}, {"commit": "d,\ne"})
    first, second = kept.rows()
    assert {**before[0], "nll": ""} == first
    assert first["mse"] == "0.333333"
    assert (second["mse"], second["nll"], second["auroc"], second["commit"]) == ("3", "1e-07", "", "d,\ne")
    assert (second["seed"], second["size"], second["method"]) == ("1", "full", "brits")


def test_average_over_the_seeds(kept: Record) -> None:
    assert kept.average(A_RUN, "auroc") is None
    kept.add(A_RUN, {"auroc": 0.70}, {})
    alone = kept.average(A_RUN, "auroc")
    assert alone is not None
    assert alone.value == 0.70
    assert math.isnan(alone.error)
    for seed, value in ((1, 0.76), (2, 0.73)):
        kept.add(replace(A_RUN, seed=seed), {"auroc": value}, {})
    kept.add(replace(A_RUN, seed=3), {"mse": 9.0}, {})  # not measured: no zero
    for other in (replace(A_RUN, changes=1), replace(A_RUN, quick=True)):
        kept.add(other, {"auroc": 0.1}, {})
    found = kept.average(replace(A_RUN, seed=2), "auroc")
    assert found == pytest.approx(Published(0.73, 0.03 / math.sqrt(3)))
    assert kept.average(A_RUN, "nll") is None


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "a,b\n1,2,3\n", "a,b\n", "no table at all"])
def test_another_file_is_refused_by_name_and_kept(kept: Record, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.path.write_text(text)
    with pytest.raises(DataError, match=r"runs.csv is not a record of runs: it has the columns "):
        kept.add(A_RUN, {"auroc": 0.5}, {})
    monkeypatch.setattr(reproduction, "execute", never)
    with pytest.raises(DataError, match=r"runs.csv is not a record of runs"):
        reproduction.reproduce(["T3"], kept.path.parent)
    assert kept.path.read_text() == text


def never(*_: object, **__: object) -> Outcome:
    raise AssertionError("a run that was not to be")


def test_nothing_is_half_written_where_writing_fails(kept: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    kept.add(A_RUN, {"auroc": 0.75}, {})
    before = kept.path.read_bytes()

    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("gpvae.data.files.os.replace", full)
    with pytest.raises(DataError, match="No space left on device; nothing was changed"):
        kept.add(replace(A_RUN, seed=1), {"auroc": 0.5}, {})
    assert kept.path.read_bytes() == before
    assert [path.name for path in kept.path.parent.iterdir()] == ["runs.csv"]


class Executions:
    """Stands in for training: numbers that tell the run, tiny pictures; counts, and may break off."""

    def __init__(self) -> None:
        self.done: list[Run] = []
        self.breaks_at: int | None = None

    def __call__(self, run: Run, *, device: str = "auto", verbose: bool = False) -> Outcome:
        if len(self.done) == self.breaks_at:
            self.breaks_at = None
            raise RuntimeError("out of memory")
        self.done.append(run)
        value = 0.5 + 0.01 * run.seed + 0.1 * run.changes
        measures = {"nll": value, "mse": value / 10, "auroc": value, "nll_per_observed": value / 100, "seconds": 1.0}
        return Outcome(measures, example_of(run))


def example_of(run: Run) -> Example:
    steps = STEPS[run.task.data]
    if run.task.data == "physionet2012":
        truth = np.arange(steps * 7.0).reshape(steps, 7)
        truth[np.arange(steps)[:, None] < [0, 5, 10, 15, 20, 25, 48]] = np.nan  # the last was never measured
        hidden = ~np.isnan(truth) & (np.arange(steps)[:, None] % 4 == 3)
        std = np.ones(truth.shape) if run.task.method == "gp-vae" else None
        return Example(truth, hidden, np.full(truth.shape, float(run.changes)), std)
    features = math.prod({"healing_mnist": reproduction.DIGITS, "sprites": reproduction.SPRITES}[run.task.data])
    truth = np.random.default_rng(0).random((steps, features), dtype=np.float32)
    return Example(truth, truth > 0.7, np.full(truth.shape, run.changes / 10, dtype=np.float32))


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Executions:
    """No training, no data, no pictures of real size."""
    executions = Executions()
    monkeypatch.setattr(reproduction, "execute", executions)
    monkeypatch.setattr(reproduction, "DIGITS", (1, 2, 2))
    monkeypatch.setattr(reproduction, "SPRITES", (3, 2, 2))
    monkeypatch.setattr(reproduction, "VARIABLES", tuple("abcdefg"))
    monkeypatch.setattr(reproduction, "load", lambda *_, **__: None)
    return executions


def test_what_a_table_needs(executed: Executions) -> None:
    """Each task once; the latent models but the VAE with the paper's settings and with ours."""
    found = reproduction.runs_of("T3", 2)
    assert len(found) == len(set(found)) == 2 * (8 + 2)
    assert {run.task.method for run in found if run.changes} == {"hi-vae", "gp-vae"}
    assert {run.changes for run in found} == {0, OURS["physionet2012"]}
    assert len(reproduction.runs_of("T1", 1)) == 2 * (5 + 2)
    assert len(reproduction.runs_of("S4", 1)) == 9 * 4 + 2  # at one rate T2 asks for ours
    ladder = reproduction.runs_of("changes", 1)
    assert len(ladder) == sum(count + 1 for count in OURS.values()) + 5  # and what is missing at random
    assert {run.task.method for run in ladder} == {"gp-vae"}
    pictured = reproduction.runs_of("F3", 5)
    assert [(run.task.method, run.changes, run.seed) for run in pictured] == [
        ("forward", 0, 0),
        ("brits", 0, 0),
        ("gp-vae", 0, 0),
        ("gp-vae", OURS["physionet2012"], 0),
    ]


def test_only_what_is_missing_is_run(executed: Executions, tmp_path: Path) -> None:
    told: list[str] = []
    reproduction.reproduce(["T3"], tmp_path, seeds=2, report=told.append)
    assert len(executed.done) == len(set(executed.done)) == 20
    assert told[0] == "20 runs, 0 of them done before"
    assert told[-1].startswith("20/20  physionet2012, random 0.1, ")
    assert "gp-vae, 4 changes, seed 1: nll 0.91, mse 0.091, auroc 0.91" in told[-1]
    reproduction.reproduce(["T3", "F3"], tmp_path, seeds=2)
    assert len(executed.done) == 20
    reproduction.reproduce(["T3"], tmp_path, seeds=3)
    assert {run.seed for run in executed.done[20:]} == {2}
    assert len(executed.done) == 30


def test_an_example_that_is_gone_is_made_again(executed: Executions, tmp_path: Path) -> None:
    reproduction.reproduce(["T3"], tmp_path, seeds=2)
    lost = next((tmp_path / "examples").glob("*brits*"))
    lost.unlink()
    reproduction.reproduce(["F3"], tmp_path)
    assert [(run.task.method, run.seed) for run in executed.done[20:]] == [("brits", 0)]
    assert lost.exists()
    assert len(Record(tmp_path / "runs.csv").rows()) == 20


def test_what_is_finished_is_kept_when_a_run_fails(executed: Executions, tmp_path: Path) -> None:
    """It is named; the others are done all the same, and the table has what there is."""
    executed.breaks_at = 7
    with pytest.raises(TrainingError, match=r"^physionet2012, random 0.1, brits, 0 changes, seed 0: .*out of memory$"):
        reproduction.reproduce(["T3", "F3"], tmp_path, seeds=1)
    assert len(Record(tmp_path / "runs.csv").rows()) == 9
    assert "| BRITS | published | 0.742 ± 0.008 |\n| GP-VAE |" in (tmp_path / "T3.md").read_text(encoding="utf-8")
    assert not (tmp_path / "F3.png").exists()
    reproduction.reproduce(["T3", "F3"], tmp_path, seeds=1)
    assert len(executed.done) == len(set(executed.done)) == 10
    assert (tmp_path / "F3.png").exists()


def test_tables_of_what_there_is_are_written_when_interrupted(
    executed: Executions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(run: Run, *, device: str, verbose: bool) -> Outcome:
        if run.task.method == "gp":
            raise KeyboardInterrupt
        return executed(run)

    monkeypatch.setattr(reproduction, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduction.reproduce(["T3"], tmp_path, seeds=1)
    assert (tmp_path / "T3.md").read_text(encoding="utf-8").count("measured") == 2


def test_runs_with_other_settings_are_other_runs(
    executed: Executions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many changes as before, but not the same: old numbers do not stand for new ones."""
    reproduction.reproduce(["T3"], tmp_path, seeds=1)
    settings = json.loads((tmp_path / "settings" / f"{executed.done[-1].digest}.json").read_text())
    assert settings["settings"]["model"]["hide"] == 0.3
    *others, last = paper.CHANGES["physionet2012"]
    changed = (*others, replace(last, model={"hide": 0.5}))
    monkeypatch.setattr(paper, "CHANGES", {**paper.CHANGES, "physionet2012": changed})
    reproduction.reproduce(["T3"], tmp_path, seeds=1)
    assert [run.task.method for run in executed.done[10:]] == ["hi-vae", "gp-vae"]


def test_what_cannot_be_run_is_said_once_before_anything_is(
    executed: Executions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(name: str, **_: object) -> None:
        raise DataError(f"there are no files of {name}")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="PyTorch sees no CUDA GPU here"):
        reproduction.reproduce(["T3"], tmp_path / "new", device="cuda")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(reproduction, "load", gone)
    with pytest.raises(DataError, match="there are no files of physionet2012"):
        reproduction.reproduce(["T3"], tmp_path)
    assert not executed.done


def test_one_command_at_a_time(executed: Executions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(*_: object, **__: object) -> Outcome:
        reproduction.reproduce(["T3"], tmp_path, seeds=1)
        raise AssertionError

    monkeypatch.setattr(reproduction, "execute", second)
    with pytest.raises(TrainingError, match="another command is at work in"):
        reproduction.reproduce(["T3"], tmp_path, seeds=1)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads stand in for processes: they start at once, and have what is patched."""
    monkeypatch.setattr(reproduction, "ProcessPoolExecutor", lambda jobs, context: ThreadPoolExecutor(jobs))


def test_several_runs_at_a_time_make_the_same_record(executed: Executions, tmp_path: Path, threads: None) -> None:
    found: list[list[tuple[str, ...]]] = []
    for jobs in (1, 3):
        reproduction.reproduce(["T3"], tmp_path / str(jobs), seeds=2, jobs=jobs)
        found.append(sorted(tuple(row.values()) for row in Record(tmp_path / str(jobs) / "runs.csv").rows()))
    assert found[0] == found[1]
    assert (tmp_path / "1" / "T3.md").read_bytes() == (tmp_path / "3" / "T3.md").read_bytes()
    assert len(list((tmp_path / "3" / "examples").iterdir())) == 10
    reproduction.reproduce(["T1"], tmp_path / "3", seeds=1, jobs=50)


def test_what_runs_beside_a_run_that_fails_is_kept(
    executed: Executions, tmp_path: Path, threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what comes after it is done, too."""
    begun: list[str] = []
    both = Barrier(2)

    def one_fails(run: Run, *, device: str, verbose: bool) -> Outcome:
        begun.append(run.task.method)
        if len(begun) <= 2:
            both.wait(10)
            if run.task.method == "mean":
                raise RuntimeError("out of memory")
        return executed(run)

    monkeypatch.setattr(reproduction, "execute", one_fails)
    with pytest.raises(TrainingError, match=r"mean, 0 changes, seed 0: RuntimeError: out of memory"):
        reproduction.reproduce(["T3"], tmp_path, seeds=1, jobs=2)
    kept_runs = {row["method"] for row in Record(tmp_path / "runs.csv").rows()}
    assert len(begun) == 10
    assert kept_runs == set(begun) - {"mean"}


def test_runs_on_the_same_gaps_follow_each_other(executed: Executions, tmp_path: Path) -> None:
    """They share them: each is posed once."""
    reproduction.reproduce(["T1", "T2"], tmp_path, seeds=2)
    posed = [(run.seed, run.task.data, run.task.gaps, run.task.rate) for run in executed.done]
    changes = 1 + sum(first != second for first, second in pairwise(posed))
    assert changes == len(set(posed)) == 2 * 6


def test_small_and_full_runs_do_not_mix(executed: Executions, tmp_path: Path) -> None:
    small = reproduction.reproduce(["T3"], tmp_path, seeds=1, quick=True)["T3"]
    written = (tmp_path / "quick" / "T3.md").read_bytes()
    assert all(run.quick for run in executed.done)
    full = reproduction.reproduce(["T3"], tmp_path, seeds=2)["T3"]
    assert [run.quick for run in executed.done].count(False) == 20
    assert isinstance(small, Table)
    assert isinstance(full, Table)
    assert ["", "paper's settings", "0.500"] in small.lines
    assert ["", "paper's settings", "0.505 ± 0.005"] in full.lines
    assert ["", "paper's settings", "0.500"] not in full.lines
    assert b"numbers mean nothing" in written
    assert b"numbers mean nothing" not in (tmp_path / "T3.md").read_bytes()
    assert (tmp_path / "quick" / "T3.md").read_bytes() == written != (tmp_path / "T3.md").read_bytes()


def test_a_table_beside_the_published_numbers(executed: Executions, tmp_path: Path) -> None:
    found = reproduction.reproduce(["T3"], tmp_path, seeds=2)["T3"]
    plain, once = ("|  | " + whose + " | 0.505 ± 0.005 |" for whose in ("measured", "paper's settings"))
    ours = "|  | ours | 0.905 ± 0.005 |"
    origin = provenance.describe()
    assert (tmp_path / "T3.md").read_text(encoding="utf-8").splitlines() == [
        "|  |  | PhysioNet AUROC |",
        "| --- | --- | ---: |",
        *("| mean imputation | published | 0.703 ± 0.000 |", plain),
        *("| forward imputation | published | 0.710 ± 0.000 |", plain),
        *("| GP | published | 0.704 ± 0.007 |", plain),
        *("| VAE | published | 0.677 ± 0.002 |", once),
        *("| HI-VAE | published | 0.686 ± 0.010 |", once, ours),
        *("| GRUI-GAN | published | 0.702 ± 0.009 |", plain),
        *("| BRITS | published | 0.742 ± 0.008 |", plain),
        *("| GP-VAE | published | 0.730 ± 0.006 |", once, ours),
        *("", paper.NOTES["T3"], ""),
        f"seeds 0, 1; commit {origin['commit']}; on {origin['hardware']}; PyTorch {origin['torch']}.",
    ]
    assert isinstance(found, Table)
    assert found.markdown() == (tmp_path / "T3.md").read_text(encoding="utf-8")


def test_tables_across_methods_and_across_measures(executed: Executions, tmp_path: Path) -> None:
    made = reproduction.reproduce(["T1", "T2", "S5"], tmp_path, seeds=1)
    t1, t2, s5 = (cast(Table, table).lines for table in made.values())
    assert t1[0] == ["mean imputation", "published", "–", "0.168 ± 0.000", "0.938 ± 0.000", "0.013 ± 0.000"]
    assert t1[1] == ["", "measured", "0.500", "0.050", "0.500", "0.050"]
    assert t1[-2] == ["", "paper's settings", "0.500", "0.050", "0.500", "0.050"]
    digits, sprites = (0.5 + 0.1 * OURS[data] for data in ("healing_mnist", "sprites"))  # as `executed` has it
    assert t1[-1] == ["", "ours", f"{digits:.3f}", f"{digits / 10:.3f}", f"{digits:.3f}", f"{sprites / 10:.3f}"]
    assert t2[0][:4] == ["random", "published", "0.069 ± 0.000", "0.099 ± 0.000"]
    assert t2[2] == ["", "ours", "", "", "", *["0.090"] * 2]  # four changes
    assert s5[-3] == ["not at random", "published", "0.4798 ± 0.0016", "0.2896 ± 0.0010", "0.2606 ± 0.0008"]
    assert s5[-2] == ["", "paper's settings", "0.0050", "0.0050", "0.0050"]


def test_what_each_change_brings(executed: Executions, tmp_path: Path) -> None:
    made = reproduction.reproduce(["changes"], tmp_path, seeds=1)["changes"]
    assert isinstance(made, Table)
    assert made.heading[2:] == ["nll", "nll_mixture", "mse", "auroc"]
    assert made.lines[0] == ["healing_mnist, random", "paper's settings", "0.5000", "", "0.0500", "0.5000"]
    assert made.lines[2] == ["", "+ β rises over the first third of training", "0.7000", "", "0.0700", "0.7000"]
    assert made.lines[5][:2] == ["healing_mnist, not-at-random", "paper's settings"]
    assert [line[0] for line in made.lines if line[0]] == [f"{each.data}, {each.gaps}" for each in paper.LADDERS]


def test_a_table_without_runs_has_the_published_numbers_alone(kept: Record) -> None:
    table = record.beside("T1", kept)
    assert [line[1] for line in table.lines] == ["published"] * 5


def test_ours_is_a_row_of_methods_that_have_changes(kept: Record) -> None:
    for method in ("vae", "hi-vae"):
        kept.add(Run(task("physionet2012", method), 0, 4), {"auroc": 0.5}, {})
    lines = record.beside("T3", kept).lines
    assert [lines[i - 1][0] for i, line in enumerate(lines) if line[1] == "ours"] == ["HI-VAE"]


@pytest.mark.parametrize("names", [["T4"], ["T3", "nonsense"], ["all"]])
def test_unknown_names_are_refused_before_anything_is_done(names: list[str], tmp_path: Path) -> None:
    message = f"there is no table or figure '{names[-1]}'; there are T1, T2, T3, S4, S5, F2, F3, changes"
    with pytest.raises(DataError, match=message):
        reproduction.reproduce(names, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_pictures_of_images_are_drawn_from_the_examples(
    executed: Executions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first series: the truth, the gaps, and every method."""
    drawn: list[Any] = []
    draw = reproduction.figures.reconstructions
    monkeypatch.setattr(reproduction.figures, "reconstructions", lambda sets: draw(drawn.append(sets) or sets))
    made = reproduction.reproduce(["F2"], tmp_path, quick=True)
    assert made == {"F2": tmp_path / "quick" / "F2.png"}
    picture = (tmp_path / "quick" / "F2.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert b"seeds 0; commit " in picture
    ((digits, sprites),) = drawn
    assert (digits.title, sprites.title) == ("Healing MNIST", "SPRITES")
    shown = ["mean", "forward", "VAE", "HI-VAE", "HI-VAE, ours", "GP-VAE", "GP-VAE, ours"]
    for frames, steps, changes in ((digits, 10, OURS["healing_mnist"]), (sprites, 8, OURS["sprites"])):
        assert list(frames.rows) == ["truth", "input", *shown]
        example = example_of(Run(task("healing_mnist" if steps == 10 else "sprites", "gp-vae"), 0))
        assert np.array_equal(frames.rows["truth"], example.truth[:steps])
        expected = np.where(example.hidden, np.nan, example.truth)[:steps]
        assert np.array_equal(frames.rows["input"], expected, equal_nan=True)
        assert (frames.rows["GP-VAE"] == 0).all()
        assert np.allclose(frames.rows["GP-VAE, ours"], changes / 10)


def test_the_picture_of_a_patient_is_drawn_from_the_examples(
    executed: Executions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables from the most often measured to the rarest; the band reaches from 5 to 95 % of our model."""
    drawn: list[Any] = []
    draw = reproduction.figures.patient
    monkeypatch.setattr(reproduction.figures, "patient", lambda *given: draw(*(drawn.append(given) or given)))
    made = reproduction.reproduce(["F3"], tmp_path)
    assert made == {"F3": tmp_path / "F3.png"}
    assert (tmp_path / "F3.png").read_bytes().startswith(b"\x89PNG")
    ((hours, names, known, held, others, ours, lower, upper),) = drawn
    assert hours.tolist() == list(range(48))
    assert names == list("abcdef")
    example = example_of(Run(task("physionet2012", "gp-vae"), 0))
    asked = ~np.isnan(held)
    assert np.array_equal(asked, example.hidden[:, :6])
    assert not (asked & ~np.isnan(known)).any()
    assert np.array_equal(np.where(asked, held, known), example.truth[:, :6], equal_nan=True)
    assert list(others) == ["forward", "BRITS"]
    assert (ours == 4).all()  # with our changes
    np.testing.assert_allclose(upper - ours, 1.6449, rtol=1e-4)
    np.testing.assert_allclose(ours - lower, 1.6449, rtol=1e-4)


def test_a_row_says_where_it_comes_from(executed: Executions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPVAE_COMMIT", "v1-2-gabc")
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)  # without history
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    monkeypatch.setattr(reproduction, "fabric_for", lambda *_: None)
    reproduction.reproduce(["T3"], tmp_path, seeds=1)
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 10
    assert {row["commit"] for row in rows} == {"v1-2-gabc"}
    assert all(row[name] for row in rows for name in ("date", "python", "torch"))
    assert {row["hardware"] for row in rows} == {"a card"}
    assert " cores, " in provenance.describe("cpu")["hardware"]


def test_a_checkout_names_its_commit_and_whether_code_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    for words in (["init"], ["add", "."], ["commit", "-m", "first"]):
        git(*words)
    monkeypatch.setenv("GPVAE_COMMIT", "stale")
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    commit = git("describe", "--always").strip()
    (tmp_path / "results.csv").touch()
    assert provenance.describe()["commit"] == commit
    (tmp_path / "src" / "new.py").touch()
    assert provenance.describe()["commit"] == f"{commit}-dirty"


def test_an_installed_package_names_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPVAE_COMMIT", raising=False)
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    assert provenance.describe()["commit"].startswith("gpvae 0.")


@pytest.mark.parametrize("error", [FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")], ids=repr)
def test_a_checkout_that_git_cannot_read_does_not_stop_the_runs(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.delenv("GPVAE_COMMIT", raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)
    monkeypatch.setattr(provenance.subprocess, "run", fail)
    assert provenance.describe()["commit"].startswith("gpvae 0.")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("gpvae.cli.printing.console._width", 200)
    monkeypatch.setattr("gpvae.cli.printing.error_console._width", 200)
    return lambda *words: CliRunner().invoke(cli.app, ["reproduce", *words])


def test_the_command_prints_tables_and_names_files(executed: Executions, command: Callable[..., Any]) -> None:
    result = command("T3", "F3", "--quick", "--seeds", "2", "--output", "a[b]", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert {run.seed for run in executed.done} == {0, 1}
    assert all(run.quick for run in executed.done)
    for text in (
        "20 runs, 0 of them done before",
        "PhysioNet AUROC",
        "0.742 ± 0.008",
        "0.905 ± 0.005",
        "a[b]/quick/T3.md",
    ):
        assert text in result.output
    assert f"F3: {Path('a[b]') / 'quick' / 'F3.png'}" in result.output
    written = sorted(path.name for path in Path("a[b]/quick").iterdir())
    assert written == [".lock", "F3.png", "T3.md", "examples", "runs.csv", "settings"]


def test_all_is_everything(executed: Executions, command: Callable[..., Any]) -> None:
    result = command("t3", "all", "--quick", "--seeds", "1")
    assert result.exit_code == 0, result.output
    made = {path.stem for path in Path("reproduction/quick").iterdir() if path.suffix in (".md", ".png")}
    assert made == set(reproduction.NAMES)


def test_ctrl_c_says_how_to_go_on(command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(reproduction, "execute", interrupted)
    monkeypatch.setattr(reproduction, "load", lambda *_, **__: None)
    result = command("T3")
    assert result.exit_code == 130
    assert "the same command again to continue; finished runs are in reproduction" in result.output
