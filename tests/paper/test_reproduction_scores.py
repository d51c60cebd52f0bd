"""One run: its gaps, its training on small data, and its scores."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from stand_ins import STEPS, made_up, task

from gpvae import DataError
from gpvae.datasets.dataset import DataSet
from gpvae.paper.reproduction import Run, execute, experiment, runs_of, scores
from gpvae.paper.reproduction.scores import auroc, score
from gpvae.paper.tables import TABLES

MEASURES = {"healing_mnist": {"mse", "auroc"}, "sprites": {"mse"}, "physionet2012": {"mse", "auroc", "auroc_halves"}}
LIKELIHOODS = {"nll", "nll_mixture", "nll_per_observed"}


@pytest.mark.filterwarnings("ignore:.*lbfgs failed to converge.*")
@pytest.mark.parametrize("run", [*runs_of("T1", 1), *runs_of("T3", 1)], ids=str)
def test_every_run_of_the_main_tables(run: Run, small_data: dict[str, tuple[DataSet, DataSet]]) -> None:
    """It trains, and gives a finite number for everything that the tables have of its task."""
    outcome = execute(replace(run, quick=True), device="cpu")
    data, latent = run.task.data, run.task.method in ("vae", "hi-vae", "gp-vae")
    expected = MEASURES[data] | (LIKELIHOODS if data == "healing_mnist" and latent else set[str]())
    if data == "physionet2012":
        drawn = {"forward": {"roughness"}, "gp": {"roughness"}, "brits": {"roughness"}}
        both = {"roughness", "distance_rank"}
        expected |= {**drawn, "hi-vae": both, "gp-vae": both}.get(run.task.method, set())
    expected |= {"mse_rounded"} if (data, run.task.method) == ("healing_mnist", "mean") else set[str]()
    assert outcome.measures.keys() == expected | {"seconds"}
    for table in ("T1", "T3"):
        cells = [cell for cell in TABLES[table] if cell.task == run.task and cell.published]
        assert {cell.measure for cell in cells} <= outcome.measures.keys()
    assert all(math.isfinite(value) for value in outcome.measures.values())
    _, test = small_data[data]
    example = outcome.example
    assert np.isfinite(example.filled).all()
    assert example.truth.shape == example.hidden.shape
    assert (example.std is not None) is (data == "physionet2012" and latent)
    if data == "physionet2012":
        hidden = experiment.prepare(data, run.task.mechanism, run.task.rate, run.seed, True).hidden_in_test
        patient = int(hidden.reshape(18, 48, 35).sum((1, 2)).argmax())
        assert np.array_equal(example.truth, test.truth[48 * patient : 48 * (patient + 1)], equal_nan=True)
    else:
        assert np.array_equal(example.truth, test.truth[: STEPS[data]])
        assert np.array_equal(example.filled[~example.hidden], example.truth[~example.hidden])
        if data == "healing_mnist" and latent:
            assert set(np.unique(example.filled)) <= {0.0, 1.0}


class Stub:
    """Fills every gap with one value; -log p is `loss` for each cell, times the number of samples."""

    gives_distributions = True

    def __init__(self, value: float, loss: float = 0.1) -> None:
        self.value, self.loss = value, loss
        self.gaps, self.seeds = 0, list[int]()

    def impute(self, visible: Any, samples: int) -> Any:
        self.gaps += int(np.isnan(visible.values).sum())
        return SimpleNamespace(mean_rows=np.where(visible.observed, visible.values, self.value))

    def log_likelihood(self, visible: Any, truth: NDArray[Any], *, samples: int, seed: int) -> NDArray[Any]:
        assert np.array_equal(np.isnan(truth), visible.observed)
        self.seeds.append(seed)
        return np.where(np.isnan(truth), np.nan, -self.loss * samples)


def stub_scores(
    method: str, stub: Stub, data: str = "healing_mnist"
) -> tuple[dict[str, float], DataSet, NDArray[np.bool_]]:
    test = made_up(data, 12, 1)
    run = Run(task(data, method), 0)
    hidden = experiment.gaps(test, run.task.mechanism, run.task.rate, [0, 1])
    measures, filled = score(cast(Any, stub), test, hidden, run)
    assert stub.gaps == hidden.sum() + np.isnan(test.truth).sum()  # every hidden cell was a gap, once
    known = ~hidden & test.panel.observed
    assert np.array_equal(filled[known], test.truth[known])
    return measures, test, hidden


def test_brits_is_taught_the_labels_of_the_classifiers_half_or_all() -> None:
    data = made_up("physionet2012", 10, 0)
    assert data.labels is not None
    first_half, everything = (experiment.told(data, method) for method in ("brits, labels", "brits, all labels"))
    assert first_half is not None
    assert everything is not None
    assert np.array_equal(first_half[:5], data.labels[:5])
    assert np.isnan(first_half[5:]).all()
    assert np.array_equal(everything, data.labels)
    assert experiment.told(data, "brits") is None


@pytest.mark.parametrize("chunk", [5, 500])
def test_measures_by_hand_whatever_the_chunk(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "CHUNK", chunk)
    measures, test, hidden = stub_scores("mean", Stub(0.6))
    assert measures["mse"] == pytest.approx(np.mean((test.truth - 0.6)[hidden] ** 2), rel=1e-5)
    assert measures["mse_rounded"] == pytest.approx(1 - test.truth[hidden].mean())
    assert measures["nll"] == pytest.approx(0.1)
    assert measures["nll_mixture"] == pytest.approx(2.0)
    assert measures["nll_per_observed"] == pytest.approx(0.1 * hidden.sum() / (~hidden).sum())
    filled = np.where(hidden, 0.6, test.truth).reshape(12, -1)
    assert test.labels is not None
    assert measures["auroc"] == pytest.approx(auroc(filled, test.labels), abs=1e-6)


def test_digits_of_latent_models_are_rounded_to_black_and_white() -> None:
    measures, test, hidden = stub_scores("gp-vae", Stub(0.6))
    assert measures["mse"] == pytest.approx(1 - test.truth[hidden].mean())


def test_errors_of_patients_are_in_standard_deviations() -> None:
    measures, test, hidden = stub_scores("gp-vae", Stub(7.4), "physionet2012")
    errors = (test.truth.astype(np.float64) - 7.4) / np.nanstd(test.truth.astype(np.float64), axis=0)
    assert measures["mse"] == pytest.approx(np.mean(errors[hidden] ** 2), rel=1e-5)
    assert measures.keys() == {"mse", "auroc", "auroc_halves", "roughness"}


def test_a_score_that_is_not_finite_is_an_error() -> None:
    with pytest.raises(DataError, match="nll is nan"):
        stub_scores("mean", Stub(0.5, loss=np.nan))


def test_every_chunk_and_every_seed_has_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "CHUNK", 5)
    test = made_up("healing_mnist", 12, 1)
    hidden, seeds = experiment.gaps(test, "random", 0.5, [0]), list[int]()
    for seed in (0, 1):
        stub = Stub(0.5)
        score(cast(Any, stub), test, hidden, Run(task("healing_mnist", "mean"), seed))
        assert len(set(stub.seeds)) == 3
        seeds += set(stub.seeds)
    assert len(set(seeds)) == 6


def test_other_halves_permute_series_and_labels_together(monkeypatch: pytest.MonkeyPatch) -> None:
    test, orders = made_up("physionet2012", 12, 1), list[list[float]]()
    numbered = np.repeat(np.arange(12.0), len(test.truth) // 12)[:, None]

    def count_calls(series: NDArray[Any], labels: NDArray[np.int64]) -> float:
        assert test.labels is not None
        assert np.array_equal(labels, test.labels[series[:, 0].astype(int)])
        orders.append(series[:, 0].tolist())
        return float(len(orders))

    monkeypatch.setattr(scores, "auroc", count_calls)
    assert scores._aurocs(test, numbered) == {"auroc": 1.0, "auroc_halves": 6.5}  # the mean of 2 … 11
    assert orders[0] == list(range(12))
    assert len({tuple(order) for order in orders}) == 11
    assert all(sorted(order) == list(range(12)) for order in orders)


def clusters(labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """Series of four numbers around the centre of their class."""
    return np.eye(4)[labels] * 5 + np.random.default_rng(1).normal(size=(len(labels), 4))


@pytest.mark.parametrize("classes", [2, 3])
def test_auroc_of_separate_classes_and_of_shuffled_labels(classes: int) -> None:
    labels = np.random.default_rng(0).integers(classes, size=400)
    assert auroc(clusters(labels), labels) > 0.995
    shuffled = np.concatenate([labels[:200], np.random.default_rng(2).permutation(labels[200:])])
    assert auroc(clusters(labels), shuffled) == pytest.approx(0.5, abs=0.08)


def test_auroc_is_fitted_on_the_first_half_alone() -> None:
    labels = np.random.default_rng(0).integers(2, size=200)
    wrong_first_half = np.concatenate([1 - labels[:100], labels[100:]])
    assert auroc(clusters(labels), wrong_first_half) < 0.005
    noisy = clusters(labels) + np.random.default_rng(3).normal(scale=4, size=(200, 4))
    wrong_second_half = np.concatenate([labels[:100], 1 - labels[100:]])
    right = auroc(noisy, labels)
    assert 0.6 < right < 0.98
    assert auroc(noisy, wrong_second_half) == pytest.approx(1 - right, abs=1e-9)  # the same fit, reversed


def test_auroc_ignores_a_class_that_the_second_half_lacks() -> None:
    labels = np.random.default_rng(0).integers(3, size=200)
    labels[100:][labels[100:] == 2] = 1
    assert auroc(clusters(labels), labels) > 0.99


def test_not_at_random_hides_more_white_than_black_as_in_the_paper() -> None:
    data = made_up("healing_mnist", 300, 0)
    hidden, white = experiment.gaps(data, "not-at-random", 0.45, [0, 0]), data.truth == 1
    assert hidden[white].mean() == pytest.approx(0.80, abs=0.01)
    assert hidden[~white].mean() == pytest.approx(0.40, abs=0.01)


@pytest.mark.parametrize("mechanism", ["random", "spatial", "temporal+", "temporal-"])
def test_the_other_mechanisms_do_not_depend_on_the_value(mechanism: str) -> None:
    data = made_up("healing_mnist", 200, 0)
    hidden, white = experiment.gaps(data, mechanism, 0.3, [0, 0]), data.truth == 1
    assert hidden[white].mean() == pytest.approx(0.3, abs=0.02)
    assert hidden[~white].mean() == pytest.approx(0.3, abs=0.02)


def test_gaps_depend_on_the_seed_and_differ_between_training_and_test(small_data: object) -> None:
    first, other, again = (experiment.prepare("healing_mnist", "random", 0.5, seed, True) for seed in (0, 1, 0))
    assert np.array_equal(first.hidden_in_train, again.hidden_in_train)
    assert not np.array_equal(first.hidden_in_train, other.hidden_in_train)
    assert not np.array_equal(first.hidden_in_train[:120], first.hidden_in_test)


def test_patients_are_scored_on_the_values_hidden_in_training(small_data: object) -> None:
    train, test, hidden_in_train, hidden_in_test = experiment.prepare("physionet2012", "random", 0.1, 0, True)
    assert train is test
    assert hidden_in_train is hidden_in_test
    assert not (hidden_in_train & np.isnan(train.truth)).any()
