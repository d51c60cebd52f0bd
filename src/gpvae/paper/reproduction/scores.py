"""What the paper's tables measure.

nll                 of missing values, with one posterior sample; nll_mixture: of the mixture over 20 samples
nll_per_observed    the same sum as nll, divided by the number of values that are *not* missing (see `paper.tables`)
mse                 of the decoded posterior mean at missing values, rounded for Healing MNIST; for PhysioNet in
                    standard deviations of each variable
mse_rounded         for mean imputation of Healing MNIST, also rounded
auroc               of logistic regression on the imputed, flattened series, fitted on the first half of the test series
                    and scored on the second; for digits one against the rest, averaged
auroc_halves        for PhysioNet also the average over other divisions into halves, the same for all methods: which
                    half a patient falls into moves auroc by about 0.015, as much as most methods differ
roughness, distance_rank    for PhysioNet, what figure 3 claims (see `smoothness`)
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.datasets import DataSet
from gpvae.imputers.base import Imputer
from gpvae.imputers.gpvae import GPVAE
from gpvae.paper.reproduction.runs import LATENT, Run
from gpvae.paper.reproduction.smoothness import distance_rank, roughness
from gpvae.paper.tables import TABLES

SAMPLES = {"nll": 1, "nll_mixture": 20}
HALVES = 10
SPREAD = 100  # samples that deviations are computed from
CHUNK = 500  # series that are imputed together


def score(imputer: Imputer, test: DataSet, hidden: Bools, run: Run) -> tuple[dict[str, float], NDArray[np.float32]]:
    """All measures that the tables have of the run's task, and the filled series. (row, feature)"""
    wanted = {cell.measure for cells in TABLES.values() for cell in cells if cell.task == run.task}
    filled = _filled(imputer, test, hidden, rounded=test.name == "healing_mnist" and run.task.method in LATENT)
    centre, unit = _units(test)
    measures: dict[str, float] = {}
    if imputer.gives_distributions and any(name.startswith("nll") for name in wanted):
        measures |= _log_losses(imputer, test, hidden, run.seed)
    measures["mse"] = float(np.mean(np.square(((filled - test.truth) / unit)[hidden], dtype=np.float64)))
    if "mse_rounded" in wanted:
        measures["mse_rounded"] = float(np.mean(np.square((np.rint(filled) - test.truth)[hidden], dtype=np.float64)))
    if "auroc" in wanted:
        measures |= _aurocs(test, (filled - centre) / unit)
    if "roughness" in wanted:
        measures |= _smoothness(imputer, test, hidden, filled, unit)
    for name, value in measures.items():
        if not np.isfinite(value):
            raise DataError(f"{name} is {value}")
    return measures, filled


def _units(test: DataSet) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and deviation of each variable; pixels stay as they are."""
    if test.image_shape:
        return np.zeros((), np.float32), np.ones((), np.float32)
    return np.nanmean(test.truth, 0), np.nanstd(test.truth, 0)


def _filled(imputer: Imputer, test: DataSet, hidden: Bools, *, rounded: bool) -> NDArray[np.float32]:
    """The test series without gaps. (row, feature)"""
    filled: NDArray[np.float32] = np.empty(test.truth.shape, dtype=np.float32)
    for part, rows in _chunks(test):
        point = _point(imputer, missingness.hide(part.panel, hidden[rows]))
        filled[rows] = np.rint(point) if rounded else point
    return filled


def _point(imputer: Imputer, visible: Panel) -> Floats:
    """The panel without gaps; latent models fill them with the decoded posterior mean. (row, feature)"""
    if not isinstance(imputer, GPVAE):
        return imputer.impute(visible, samples=1).mean_rows
    return np.where(visible.observed, visible.values, imputer.reconstruct(visible)[0])


def _log_losses(imputer: Imputer, test: DataSet, hidden: Bools, seed: int) -> dict[str, float]:
    sums = dict.fromkeys(SAMPLES, 0.0)
    for number, (part, rows) in enumerate(_chunks(test)):
        visible, truth = missingness.hide(part.panel, hidden[rows]), np.where(hidden[rows], part.truth, np.nan)
        for name, samples in SAMPLES.items():
            density = imputer.log_likelihood(visible, truth, samples=samples, seed=1000 * seed + number)
            sums[name] -= float(density[~np.isnan(truth)].sum())
    missing, known = int(np.count_nonzero(hidden)), int(np.count_nonzero(~np.isnan(test.truth)))
    return {name: total / missing for name, total in sums.items()} | {
        "nll_per_observed": sums["nll"] / (known - missing)
    }


def _smoothness(
    imputer: Imputer, test: DataSet, hidden: Bools, filled: NDArray[np.float32], unit: NDArray[Any]
) -> dict[str, float]:
    """What figure 3 claims, of all patients."""
    drawn, std = filled, None
    if isinstance(imputer, GPVAE):
        drawn, std = np.empty_like(filled), np.empty_like(filled)
        for part, rows in _chunks(test):
            visible = missingness.hide(part.panel, hidden[rows])
            drawn[rows], _ = imputer.reconstruct(visible)
            _, std[rows] = imputer.reconstruct(visible, samples=SPREAD)
    by_series = (len(test.panel), -1, filled.shape[1])
    visible = (test.panel.observed & ~hidden).reshape(by_series)
    measures = {"roughness": roughness((drawn / unit).reshape(by_series), visible)}
    return measures if std is None else {**measures, "distance_rank": distance_rank(std.reshape(by_series), visible)}


def _chunks(data: DataSet) -> Iterator[tuple[DataSet, slice]]:
    """A few series at a time, and their rows."""
    steps = int(data.panel.lengths[0])
    for first in range(0, len(data.panel), CHUNK):
        series = np.arange(first, min(first + CHUNK, len(data.panel)))
        yield data.part(series), slice(first * steps, (first + len(series)) * steps)


def _aurocs(test: DataSet, rows: NDArray[np.floating]) -> dict[str, float]:
    """How well a classifier predicts the labels from the filled series."""
    assert test.labels is not None
    series, labels = rows.reshape(len(test.panel), -1), test.labels
    measures = {"auroc": auroc(series, labels)}
    if test.image_shape is None:
        orders = np.random.default_rng(0).permuted(np.tile(np.arange(len(series)), (HALVES, 1)), axis=1)
        measures["auroc_halves"] = float(np.mean([auroc(series[order], labels[order]) for order in orders]))
    return measures


def auroc(series: NDArray[np.floating], labels: NDArray[np.int64]) -> float:
    """Of logistic regression, fitted on the first half and scored on the second. (series, number), (series,)"""
    half = len(series) // 2
    if len(np.unique(labels)) == 2:
        model = LogisticRegression(solver="liblinear", max_iter=10_000)
    else:
        model = LogisticRegression(max_iter=1_000)
    probabilities = model.fit(series[:half], labels[:half]).predict_proba(series[half:])
    if len(model.classes_) == 2:
        return float(roc_auc_score(labels[half:], probabilities[:, 1]))
    one_against_rest = [(labels[half:] == label, p) for label, p in zip(model.classes_, probabilities.T, strict=True)]
    return float(np.mean([roc_auc_score(is_label, p) for is_label, p in one_against_rest if is_label.any()]))
