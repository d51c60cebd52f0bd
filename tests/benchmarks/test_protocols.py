"""The literature's protocols: what is hidden, what is scored, what a second run does again."""

import csv
import importlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import GPVAE, DataError, Imputation, Linear, Panel, missingness
from gpvae.data.scaling import Scaling

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
protocols, peers = (importlib.import_module(name) for name in ("protocols", "peers"))
needs_data = pytest.mark.skipif("GPVAE_DATA" not in os.environ, reason="GPVAE_DATA names no folder with the real data")


@pytest.fixture
def exercise(waves: NDArray[np.float64]) -> Any:
    """Learn from eight of the waves, fill the other four."""
    training, panel = Panel.of(waves[:8]), Panel.of(waves[8:])
    cells = missingness.random(panel, 0.2, 0)
    task = protocols.Task("20%", missingness.hide(panel, cells), panel.values, cells)
    units = {"original": Scaling(np.zeros(3), np.ones(3)), "standardised": Scaling.of(training, standardise=True)}
    return protocols.Exercise("waves", 0, training, [task], units, window=20, stride=3)


def plain_scores(imputation: Imputation, task: Any, units: Scaling) -> dict[str, float]:
    """Cell by cell."""
    errors, sizes, pinball, inside = list[float](), list[float](), list[float](), list[bool]()
    lower, upper = imputation.interval_rows(0.5)
    samples = np.asarray(imputation.samples).reshape(19, *task.truth.shape)
    for row, column in zip(*np.nonzero(task.cells), strict=True):
        shift, scale = units.shift[column], units.scale[column]
        truth = (task.truth[row, column] - shift) / scale
        draws = (samples[:, row, column] - shift) / scale
        errors.append(abs((imputation.mean_rows[row, column] - shift) / scale - truth))
        sizes.append(abs(truth))
        inside.append(bool(lower[row, column] <= task.truth[row, column] <= upper[row, column]))
        for i in range(1, 20):
            quantile = float(np.quantile(draws, i / 20))
            pinball.append((quantile - truth) * ((truth <= quantile) - i / 20))
    return {
        "mae": sum(errors) / len(errors),
        "rmse": math.sqrt(sum(error**2 for error in errors) / len(errors)),
        "mre": sum(errors) / sum(sizes),
        "crps_normalised": 2 * sum(pinball) / 19 / sum(sizes),
        "coverage_50": sum(inside) / len(inside),
        "cells": len(errors),
    }


def test_scores_are_those_of_a_plain_loop(exercise: Any, tiny: GPVAE) -> None:
    rows = list(protocols.rows_of(exercise, tiny, 19, 3))
    imputation = tiny.impute(exercise.tasks[0].visible, samples=19, seed=3)
    assert [row["units"] for row in rows] == ["original", "standardised"]
    for row in rows:
        expected = plain_scores(imputation, exercise.tasks[0], exercise.units[row["units"]])
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    scale = exercise.units["standardised"].scale[np.nonzero(exercise.tasks[0].cells)[1]]
    assert rows[0]["nll"] - rows[1]["nll"] == pytest.approx(np.log(scale).mean())


def test_single_values_have_their_absolute_error_for_all(exercise: Any) -> None:
    (_, row) = protocols.rows_of(exercise, Linear(), 19, 0)
    assert row["mae"] == row["mae_median"] == row["crps"]
    assert row["crps_normalised"] == row["mre"]
    assert row["nll"] is row["coverage_50"] is row["coverage_90"] is None


def test_what_is_done_is_not_done_again(
    exercise: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def waves(folds: int, seed: int, small: int | None) -> Iterator[Any]:
        yield exercise

    monkeypatch.setitem(protocols.PROTOCOLS, "P2", waves)
    output = tmp_path / "new" / "rows.csv"
    words = ["P2", "--methods", "linear,mean", "--device", "cpu", "-o", str(output)]
    protocols.main(words)
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["units"], row["pattern"], row["settings"]) for row in rows] == [
        (name, units, "20%", "{}") for name in ("linear", "mean") for units in ("original", "standardised")
    ]
    assert all(row["commit"] and row["hardware"] and float(row["mae"]) > 0 for row in rows)
    first = output.read_text()
    lines = first.splitlines(keepends=True)
    output.write_text("".join(lines[:-1]))  # as if it had been interrupted
    protocols.main(words)
    assert len(output.read_text().splitlines()) == len(lines) + 1  # both units of the task again
    output.write_text(first)
    capsys.readouterr()
    protocols.main(words)
    protocols.main([*words[:2], "forward", "--pattern", "90%", *words[3:]])  # there is no such pattern
    assert (output.read_text(), capsys.readouterr().out) == (first, "")
    protocols.main([*words[:2], "forward", "--set", "before=first", "--label", "back", *words[3:]])
    added = output.read_text().removeprefix(first)
    assert added.count("\n") == added.count("forward,back,") == added.count('""before"": ""first""') == 2
    with pytest.raises(SystemExit):
        protocols.main(["P2", "--methods", "linear,liner", "-o", str(output)])
    assert "no method 'liner'" in capsys.readouterr().err
    output.write_text("a,b\n")
    with pytest.raises(DataError, match="other columns"):
        protocols.main(words)


def test_settings_from_the_command_line(exercise: Any) -> None:
    assert protocols.setting("epochs=5") == ("epochs", 5)
    assert protocols.setting("model.decoder_widths=[8, 8]") == ("model.decoder_widths", [8, 8])
    assert protocols.setting("precision=bf16-mixed") == ("precision", "bf16-mixed")
    changes = {"epochs": 5, "model.decoder_widths": [8, 8]}
    changed = protocols.imputer_for("hi-vae", exercise, changes, 1, "cpu")
    assert (changed.epochs, changed.seed, changed.model.decoder_widths) == (5, 1, (8, 8))
    assert changed.model.posterior == "diagonal"
    with pytest.raises(DataError, match="brits has no model"):
        protocols.imputer_for("brits", exercise, changes, 1, "cpu")
    digests = {
        protocols.digest(protocols.imputer_for(name, exercise, change, seed, "cpu"))
        for name, change, seed in [
            ("gp-vae", {}, 0),
            ("gp-vae", {}, 1),
            ("gp-vae", {"model.beta": 0.5}, 0),
            ("saits", {}, 0),
            ("saits", {"epochs": 5}, 0),
            ("csdi", {}, 0),
        ]
    }
    assert len(digests) == 5


def test_windows_hold_every_row_and_end_with_their_series() -> None:
    rows = peers.windows_of(np.array([7, 3, 6]), 3, 3)
    assert rows[:, 0].tolist() == [0, 3, 4, 7, 10, 13]
    assert set(rows.ravel()) == set(range(16))
    assert peers.windows_of(np.array([5]), 3, 1).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]


class Echo:
    """In PyPOTS's place: fills a step with what its first column holds, the i-th sample with i more."""

    def __init__(self, name: str, time: int, features: int, **_: Any) -> None:
        self.n_steps = time

    def fit(self, train: Any, judged: Any) -> None:
        self.trained, self.judged = train["X"], judged

    def impute(self, data: Any, n_sampling_times: int | None = None) -> NDArray[np.float32]:
        filled = np.repeat(data["X"][..., :1], data["X"].shape[-1], axis=-1)
        return filled if n_sampling_times is None else np.stack([filled + i for i in range(n_sampling_times)], axis=1)


@pytest.mark.parametrize("name", ["saits", "csdi"])
def test_peers_fill_each_cell_from_its_own_window_and_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "imputer", Echo)
    values = np.stack([np.arange(70.0), np.random.default_rng(0).normal(5, 2, 70)], axis=1)
    values[np.random.default_rng(1).random(70) < 0.3, 1] = np.nan
    panel = Panel.from_list([values[:50], values[50:]])
    imputer = peers.Peer(name, {}, 12, 5).fit(panel)
    filled, missing = imputer.impute(panel, samples=19), ~panel.observed
    number = (values[:, 0] - values[:, 0].mean()) / values[:, 0].std()
    known = panel.values[panel.observed[:, 1], 1]
    expected = known.mean() + known.std() * (number + (9 if name == "csdi" else 0))
    np.testing.assert_allclose(filled.mean_rows[missing], expected[missing[:, 1]], rtol=1e-5)
    assert filled.has_intervals == (name == "csdi")
    assert imputer.peer_.trained.shape[1:] == (12, 2)
    hidden = np.isnan(imputer.peer_.judged["X"]) & ~np.isnan(imputer.peer_.judged["X_ori"])
    assert 0 < hidden.sum() < 10


def test_the_share_of_each_series() -> None:
    panel = Panel.from_list([np.ones((n, 2)) for n in (3, 10, 25)])
    cells = protocols.cells_of_each_series(panel, 0.5)
    assert np.add.reduceat(cells, panel.starts).sum(axis=1).tolist() == [3, 10, 25]
    assert protocols.cells_of_each_series(panel, 0.1)[:3].sum() == 0  # of six cells, rounded down


@needs_data
def test_physionet_by_outcome_has_the_sizes_and_the_linear_error_of_tsi_bench() -> None:
    (exercise,) = protocols.physionet_by_outcome(1, 0, None)
    assert (len(exercise.training), len(exercise.tasks[0].visible)) == (2557 + 640, 800)
    (row,) = protocols.rows_of(exercise, Linear(), 19, 0)
    assert row["mae"] == pytest.approx(0.366, abs=0.003)


@needs_data
def test_physionet_in_folds_tests_every_patient_once() -> None:
    exercises = list(protocols.physionet_in_folds(5, 0, 500))
    tested = [set(exercise.tasks[0].visible.ids) for exercise in exercises]
    assert sorted(patient for fold in tested for patient in fold) == sorted(set.union(*tested))
    assert len(set.union(*tested)) == 500
    for exercise, patients in zip(exercises, tested, strict=True):
        assert patients.isdisjoint(exercise.training.ids)
        assert len(exercise.training) == 400
        known = ~np.isnan(exercise.tasks[0].truth)
        for task, rate in zip(exercise.tasks, (0.1, 0.5, 0.9), strict=True):
            assert task.cells.sum() / known.sum() == pytest.approx(rate, abs=0.006)
            assert not task.visible.observed[task.cells].any()


@needs_data
def test_pm25_scores_each_held_out_cell_of_the_test_months_once() -> None:
    (exercise,) = protocols.pm25_by_month(1, 0, None)
    (task,) = exercise.tasks
    assert task.cells.sum() == 3835 + 3414 + 9753 + 3467
    assert set(task.visible.lengths) == {36}
    assert exercise.training.lengths.tolist() == [744, 744, 744, 744, 720, 744, 672, 719]
    original, standardised = protocols.rows_of(exercise, Linear(), 19, 0)
    assert original["mae"] == pytest.approx(14.87, abs=0.01)
    assert standardised["mae"] < 1
