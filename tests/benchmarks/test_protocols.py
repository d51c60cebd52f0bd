"""The literature's protocols: which cells are hidden, how they are scored, and what a second run repeats."""

import csv
import importlib
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import GPVAE, DataError, Imputation, Linear, Panel, missingness
from gpvae.data.scaling import Scaling

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
protocols, protocol_data, peers = map(importlib.import_module, ("protocols", "protocol_data", "peers"))
Selection = protocol_data.Selection
needs_data = pytest.mark.skipif("GPVAE_DATA" not in os.environ, reason="GPVAE_DATA is not set")


@pytest.fixture
def experiment(waves: NDArray[np.float64]) -> Any:
    """Fit to eight of the waves, fill the other four."""
    training, panel = Panel.of(waves[:8]), Panel.of(waves[8:])
    cells = missingness.random(panel, 0.2, 0)
    task = protocol_data.Task.hiding("20%", panel, cells)
    units = {"original": Scaling(np.zeros(3), np.ones(3)), "standardised": Scaling.of(training, standardise=True)}
    return protocol_data.Experiment("waves", 0, training, [task], units, window=20, stride=3)


def plain_scores(imputation: Imputation, task: Any, units: Scaling) -> dict[str, float]:
    """In a loop over the cells."""
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


def test_scores_are_those_of_a_plain_loop(experiment: Any, tiny: GPVAE) -> None:
    rows = list(protocols.rows_of(experiment, tiny, 19, 3))
    imputation = tiny.impute(experiment.tasks[0].visible, samples=19, seed=3)
    assert [row["units"] for row in rows] == ["original", "standardised"]
    for row in rows:
        expected = plain_scores(imputation, experiment.tasks[0], experiment.units[row["units"]])
        assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-5)
    scale = experiment.units["standardised"].scale[np.nonzero(experiment.tasks[0].cells)[1]]
    assert rows[0]["nll"] - rows[1]["nll"] == pytest.approx(np.log(scale).mean())


def test_scores_of_draws_are_the_absolute_error_for_single_values(experiment: Any) -> None:
    (_, row) = protocols.rows_of(experiment, Linear(), 19, 0)
    assert row["mae"] == row["mae_median"] == row["crps"]
    assert row["crps_normalised"] == row["mre"]
    assert row["nll"] is row["coverage_50"] is row["coverage_90"] is None


def test_finished_rows_are_not_computed_again(
    experiment: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def waves(selection: Any) -> Iterator[Any]:
        yield experiment

    monkeypatch.setitem(protocols.PROTOCOLS, "P2", waves)
    output = tmp_path / "new" / "rows.csv"
    arguments = ["P2", "--methods", "linear,mean", "--device", "cpu", "-o", str(output)]
    protocols.main(arguments)
    with output.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["units"], row["pattern"], row["settings"]) for row in rows] == [
        (name, units, "20%", "{}") for name in ("linear", "mean") for units in ("original", "standardised")
    ]
    assert all(row["commit"] and row["hardware"] and float(row["mae"]) > 0 for row in rows)
    first = output.read_text()
    lines = first.splitlines(keepends=True)
    output.write_text("".join(lines[:-1]))  # as if it had been interrupted between the units of a task
    protocols.main(arguments)
    assert len(output.read_text().splitlines()) == len(lines) + 1  # the task again, in both units
    output.write_text(first)
    capsys.readouterr()
    protocols.main(arguments)
    protocols.main([*arguments[:2], "forward", "--pattern", "90%", *arguments[3:]])  # there is no such pattern
    assert (output.read_text(), capsys.readouterr().out) == (first, "")
    protocols.main([*arguments[:2], "forward", "--set", "before=first", "--label", "back", *arguments[3:]])
    added = output.read_text().removeprefix(first)
    assert added.count("\n") == added.count("forward,back,") == added.count('""before"": ""first""') == 2
    with pytest.raises(SystemExit):
        protocols.main(["P2", "--methods", "linear,liner", "-o", str(output)])
    assert "no method 'liner'" in capsys.readouterr().err
    output.write_text("a,b\n")
    with pytest.raises(DataError, match="other columns"):
        protocols.main(arguments)


def test_settings_from_the_command_line(experiment: Any) -> None:
    assert protocols.key_and_value("epochs=5") == ("epochs", 5)
    assert protocols.key_and_value("model.decoder_widths=[8, 8]") == ("model.decoder_widths", [8, 8])
    assert protocols.key_and_value("precision=bf16-mixed") == ("precision", "bf16-mixed")
    changes = {"epochs": 5, "model.decoder_widths": [8, 8]}
    changed = protocols.new_imputer("hi-vae", experiment, changes, 1, "cpu")
    assert (changed.epochs, changed.seed, changed.model.decoder_widths) == (5, 1, (8, 8))
    assert changed.model.posterior == "diagonal"
    with pytest.raises(DataError, match=r"brits has no setting epochs, model\.decoder_widths"):
        protocols.new_imputer("brits", experiment, changes, 1, "cpu")
    digests = {
        protocols.digest(protocols.new_imputer(name, experiment, change, seed, "cpu"))
        for name, change, seed in [
            ("gp-vae", {}, 0),
            ("gp-vae", {}, 1),
            ("gp-vae", {"model.objective.beta": 0.5}, 0),
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
    """In place of PyPOTS: fills every column with the value of the first, plus i in the i-th sample."""

    def __init__(self, name: str, time: int, features: int, **_: Any) -> None:
        self.n_steps = time

    def fit(self, train: Any, validation: Any) -> None:
        self.trained, self.validation = train["X"], validation

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
    hidden = np.isnan(imputer.peer_.validation["X"]) & ~np.isnan(imputer.peer_.validation["X_ori"])
    assert 0 < hidden.sum() < 10


def test_a_share_of_each_series_is_hidden() -> None:
    panel = Panel.from_list([np.ones((n, 2)) for n in (3, 10, 25)])
    cells = protocol_data.share_of_each_series(panel, 0.5)
    assert np.add.reduceat(cells, panel.starts).sum(axis=1).tolist() == [3, 10, 25]
    assert protocol_data.share_of_each_series(panel, 0.1)[:3].sum() == 0  # of six cells, rounded down


def run_lengths(hidden: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Lengths of the runs of hidden rows of one series."""
    edges = np.diff(hidden.astype(int), prepend=0, append=0)
    return np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)


@pytest.mark.parametrize("seed", [0, 1])
def test_outages_hide_runs_of_rows_in_all_columns(seed: int) -> None:
    panel = Panel.from_array(np.random.default_rng(0).normal(size=(1, 8000, 3)))
    outages = protocol_data.OPTIONAL_PATTERNS["outages of 16-40"](panel, seed)
    assert (outages == outages[:, :1]).all()
    assert outages.mean() == pytest.approx(0.1, abs=1e-3)
    lengths = np.sort(run_lengths(outages[:, 0]))
    assert lengths[1] >= 16  # one may be shorter, to make the share exact
    assert lengths[-1] <= 40
    one = protocol_data.OPTIONAL_PATTERNS["outage of 640"](panel, seed)
    assert (one == one[:, :1]).all()
    assert run_lengths(one[:, 0]).tolist() == [640]


def test_a_long_outage_lies_within_its_series_and_only_where_there_is_something_to_hide() -> None:
    values = np.ones((6400 + 6399 + 9000, 2))
    values[7000:, 1] = np.nan
    panel = Panel.from_list(np.split(values, [6400, 6400 + 6399]))
    starts: list[int] = []
    for seed in range(20):
        cells = protocol_data.long_outage(panel, seed)
        first, second, third = np.split(cells, [6400, 6400 + 6399])
        assert run_lengths(first[:, 0]).tolist() == run_lengths(third[:, 0]).tolist() == [640]
        assert not second.any()  # a row too short
        assert not third[:, 1].any()  # nothing observed
        assert not np.any([first[[0, -1]], third[[0, -1]]])
        starts.append(int(first[:, 0].argmax()))
    assert len(set(starts)) > 10


def test_p4_has_outages_only_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    panel = Panel.from_array(np.random.default_rng(0).normal(size=(1, 6500, 2)))
    monkeypatch.setattr(protocol_data.datasets, "load", lambda name: SimpleNamespace(panel=panel))

    def patterns(**selected: Any) -> list[tuple[str, str]]:
        experiments = protocol_data.tables(Selection(**selected))
        return [(experiment.data, task.pattern) for experiment in experiments for task in experiment.tasks]

    usual = ["10% cells", "50% cells", "blocks of 24-48"]
    tables = ["beijing", "air_quality", "ett_h1"]
    assert patterns() == patterns(pattern="10% cells") == [(name, pattern) for name in tables for pattern in usual]
    assert patterns(pattern="outage of 640") == [(name, "outage of 640") for name in tables]
    assert patterns(pattern="outage of 640", small=6000) == []  # too short
    assert patterns(pattern="outages of 16-40", small=6000) == [(name, "outages of 16-40") for name in tables]


@pytest.mark.slow
@needs_data
def test_p2_has_the_sizes_and_the_linear_error_of_tsi_bench() -> None:
    (experiment,) = protocol_data.physionet_by_outcome(Selection())
    assert (len(experiment.training), len(experiment.tasks[0].visible)) == (2557 + 640, 800)
    (row,) = protocols.rows_of(experiment, Linear(), 19, 0)
    assert row["mae"] == pytest.approx(0.366, abs=0.003)


@pytest.mark.slow
@needs_data
def test_p1_tests_every_patient_once() -> None:
    experiments = list(protocol_data.physionet_in_folds(Selection(small=500)))
    tested = [set(experiment.tasks[0].visible.ids) for experiment in experiments]
    assert sorted(patient for fold in tested for patient in fold) == sorted(set.union(*tested))
    assert len(set.union(*tested)) == 500
    for experiment, patients in zip(experiments, tested, strict=True):
        assert patients.isdisjoint(experiment.training.ids)
        assert len(experiment.training) == 400
        known = ~np.isnan(experiment.tasks[0].truth)
        for task, rate in zip(experiment.tasks, (0.1, 0.5, 0.9), strict=True):
            assert task.cells.sum() / known.sum() == pytest.approx(rate, abs=0.006)
            assert not task.visible.observed[task.cells].any()


@pytest.mark.slow
@needs_data
def test_p3_scores_each_held_out_cell_of_the_test_months_once() -> None:
    (experiment,) = protocol_data.pm25_by_month(Selection())
    (task,) = experiment.tasks
    assert task.cells.sum() == 3835 + 3414 + 9753 + 3467
    assert set(task.visible.lengths) == {36}
    assert experiment.training.lengths.tolist() == [744, 744, 744, 744, 720, 744, 672, 719]
    original, standardised = protocols.rows_of(experiment, Linear(), 19, 0)
    assert original["mae"] == pytest.approx(14.87, abs=0.01)
    assert standardised["mae"] < 1
