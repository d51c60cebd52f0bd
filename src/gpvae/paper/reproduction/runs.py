"""One training and its judgement, by the paper's protocol.

nll                 of missing values, with one posterior sample; nll_mixture: of the mixture over 20
nll_per_observed    the same sum as nll, divided by the number of values that are *not* missing (see `paper`)
mse                 of the decoded posterior mean at missing values, rounded for Healing MNIST; of PhysioNet in standard
                    deviations of each variable
auroc               of logistic regression on the imputed, flattened series: fitted on the first half of those
                    evaluated, scored on the second; of digits each against the rest, averaged
auroc_halves        of PhysioNet also on average over other divisions into halves, the same for all methods: which half
                    a patient falls into moves auroc by about 0.015, as much as most methods differ
"""

import hashlib
import json
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from gpvae import missingness, paper
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.datasets import DataSet, load
from gpvae.gp.kernels import RBF
from gpvae.imputers.base import Imputer
from gpvae.imputers.gpvae import GPVAE, HI_VAE
from gpvae.imputers.registry import method
from gpvae.models.model import ModelConfig
from gpvae.paper import Task

LATENT = ("vae", "hi-vae", "gp-vae, RBF", "gp-vae")  # methods whose settings the paper's presets are
CHANGED = ("hi-vae", "gp-vae")  # those that our changes suit: a VAE is a VAE because it takes missing values for zeros
WHITE, BLACK = 0.90, 0.45  # of Healing MNIST's pixels, how many go missing where that is not at random
MIXTURE = 20
HALVES = 10
PROTOCOL = 1  # one more whenever gaps, measures or quick runs are made otherwise
AT_ONCE = 500  # series that are judged in one go

SETTINGS = {"healing_mnist": paper.HEALING_MNIST, "sprites": paper.SPRITES, "physionet2012": paper.PHYSIONET}
# A small version for tests: so many series, and networks to match.
QUICK_SERIES = {"healing_mnist": 200, "sprites": 24, "physionet2012": 200}
QUICK_MODEL = {
    "latent_dim": 8,
    "image_filters": 4,
    "encoder_filters": 16,
    "encoder_widths": (16,),
    "decoder_widths": (16,),
}


def versions(task: Task) -> tuple[int, ...]:
    """How many changes a task is run with: none, and all where they suit its method.

    S4, about kernels and rates of missing values, keeps to the paper's settings.
    """
    shown = any(cell.task == task for name in ("T1", "T2", "T3") for cell in paper.TABLES[name])
    return (0, len(paper.changes(task))) if shown and task.method in CHANGED else (0,)


@dataclass(frozen=True)
class Run:
    """A task with the paper's settings or ours, and a seed for everything that is random in it."""

    task: Task
    seed: int
    changes: int = 0  # so many of the task's `paper.changes` are made
    quick: bool = False  # a small version

    @property
    def key(self) -> dict[str, str]:
        """What identifies it in a record: a run with other settings is another run."""
        task = self.task
        names = {"data": task.data, "gaps": task.gaps, "rate": f"{task.rate:g}", "method": task.method}
        size = ("full", "quick")[self.quick]
        return {**names, "changes": str(self.changes), "settings": self.digest, "size": size, "seed": str(self.seed)}

    @property
    def settings(self) -> dict[str, Any]:
        """All that decides about it, besides the data, JSON-ready."""
        plain = new_imputer(replace(self, seed=0), device="cpu").to_plain()
        return plain | {"protocol": PROTOCOL}

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:8]

    def __str__(self) -> str:
        task = self.task
        return f"{task.data}, {task.gaps} {task.rate:g}, {task.method}, {self.changes} changes, seed {self.seed}"


@dataclass(frozen=True)
class Example:
    """Some of the series that were judged: for pictures. (row, feature)"""

    truth: NDArray[Any]
    hidden: Bools
    filled: NDArray[Any]
    std: NDArray[Any] | None = None


@dataclass(frozen=True)
class Outcome:
    measures: dict[str, float]
    example: Example


def execute(run: Run, *, device: str = "auto", verbose: bool = False) -> Outcome:
    """Train and measure."""
    train, test, train_gaps, test_gaps = _posed(run.task.data, run.task.gaps, run.task.rate, run.seed, run.quick)
    imputer = new_imputer(run, device=device, verbose=verbose)
    started = time.perf_counter()
    with warnings.catch_warnings():
        if test.image_shape:  # whose corners may be black throughout
            warnings.filterwarnings("ignore", message="column .* (is constant|had no observed value)")
        imputer.fit(missingness.hide(train.panel, train_gaps))
        seconds = time.perf_counter() - started
        measures, filled = judged(imputer, test, test_gaps, run)
        return Outcome({**measures, "seconds": seconds}, _example(imputer, test, test_gaps, filled))


@lru_cache(maxsize=1)
def _posed(data: str, kind: str, rate: float, seed: int, quick: bool) -> tuple[DataSet, DataSet, Bools, Bools]:
    """What to train and to evaluate on, and which cells of either are missing.

    PhysioNet is evaluated on the patients it was trained on, of set a, as in the paper.
    """
    train, test = _data(data, quick)
    hidden = gaps(train, kind, rate, [seed, 0])
    return train, test, hidden, hidden if test is train else gaps(test, kind, rate, [seed, 1])


@lru_cache(maxsize=1)
def _data(name: str, quick: bool) -> tuple[DataSet, DataSet]:
    count = QUICK_SERIES[name] if quick else None
    train = load(name, splits=["train"], count=count)
    return train, train if name == "physionet2012" else load(name, splits=["test"], count=count)


def gaps(data: DataSet, kind: str, rate: float, seed: Sequence[int]) -> Bools:
    """Which known cells go missing. (row, feature)"""
    if kind == "not-at-random":
        return missingness.by_value(data.panel, BLACK, WHITE, seed, threshold=0.5)
    if kind == "random":
        return missingness.by_value(data.panel, rate, rate, seed, threshold=0.5)  # each for itself
    if kind == "spatial":
        assert data.image_shape is not None
        return missingness.spatial(data.panel, rate, seed, data.image_shape)
    return missingness.MECHANISMS[kind](data.panel, rate, seed)


def new_imputer(run: Run, *, device: str = "auto", verbose: bool = False) -> Imputer:
    """The run's method with its settings."""
    task, given = run.task, {"device": device, "seed": run.seed, "verbose": verbose}
    if task.method == "forward" and task.data != "physionet2012":
        return method("forward", before=0.0)  # black
    if task.method not in LATENT:
        return method(task.method, **given, batch_size=64, **({"epochs": 2} if run.quick else {}))
    settings = dict(SETTINGS[task.data])
    model = _model(settings.pop("model"), task.method)
    for change in paper.changes(task)[: run.changes]:
        settings |= change.training
        model = replace(model, **change.model)
    if run.quick:
        settings["epochs"] = 2
        model = replace(model, **QUICK_MODEL)
    return GPVAE(model, **settings, **given)


def _model(model: ModelConfig, name: str) -> ModelConfig:
    """The model that a method is; the VAE and the HI-VAE look at each step for itself."""
    if name == "gp-vae":
        return model
    if name == "gp-vae, RBF":
        return replace(model, kernel=RBF(2.0))
    alone = {each: getattr(HI_VAE, each) for each in ("neighbours", "jitter", "posterior", "encoder_window")}
    return replace(model, **alone, score_missing=name == "vae")


def judged(imputer: Imputer, test: DataSet, hidden: Bools, run: Run) -> tuple[dict[str, float], NDArray[Any]]:
    """All that the paper's tables ask of the run's task; and the filled series, as they were judged. (row, feature)"""
    wanted = {cell.measure for cells in paper.TABLES.values() for cell in cells if cell.task == run.task}
    rounded = test.name == "healing_mnist" and run.task.method in LATENT
    likely = imputer.gives_distributions and any(name.startswith("nll") for name in wanted)
    filled: NDArray[np.float32] = np.empty(test.truth.shape, dtype=np.float32)
    sums = Counter[str]()
    for number, (part, rows) in enumerate(_parts(test)):
        visible = missingness.hide(part.panel, hidden[rows])
        found = _point(imputer, visible)
        filled[rows] = np.rint(found) if rounded else found
        if likely:
            truth, seed = np.where(hidden[rows], part.truth, np.nan), 1000 * run.seed + number
            sums.update(_surprise(imputer, visible, truth, seed))
    centre, units = (0.0, 1.0) if test.image_shape else (np.nanmean(test.truth, 0), np.nanstd(test.truth, 0))
    cells = int(np.count_nonzero(hidden))
    measures: dict[str, float] = {name: total / cells for name, total in sums.items()}
    measures["mse"] = float(np.mean(np.square(((filled - test.truth) / units)[hidden], dtype=np.float64)))
    if likely:
        measures["nll_per_observed"] = sums["nll"] / (int(np.count_nonzero(~np.isnan(test.truth))) - cells)
    if "auroc" in wanted:
        measures |= _usefulness(test, (filled - centre) / units)
    for name, value in measures.items():
        if not np.isfinite(value):
            raise DataError(f"{name} is {value}")
    return measures, filled


def _surprise(imputer: Imputer, visible: Panel, truth: Floats, seed: int) -> dict[str, float]:
    """-log p of the values that `truth` has, added up: with one posterior sample, and of the mixture over many."""
    samples = {"nll": 1, "nll_mixture": MIXTURE}
    found = {name: imputer.log_likelihood(visible, truth, samples=n, seed=seed) for name, n in samples.items()}
    return {name: -float(density[~np.isnan(truth)].sum()) for name, density in found.items()}


def _usefulness(test: DataSet, rows: NDArray[Any]) -> dict[str, float]:
    """How well the labels can be told from the filled series."""
    assert test.labels is not None
    series, labels = rows.reshape(len(test.panel), -1), test.labels
    found = {"auroc": auroc(series, labels)}
    if test.image_shape is None:
        orders = np.random.default_rng(0).permuted(np.tile(np.arange(len(series)), (HALVES, 1)), axis=1)
        found["auroc_halves"] = float(np.mean([auroc(series[order], labels[order]) for order in orders]))
    return found


def _point(imputer: Imputer, visible: Panel) -> Floats:
    """The panel without gaps; of latent models, filled with the decoded posterior mean. (row, feature)"""
    if not isinstance(imputer, GPVAE):
        return imputer.impute(visible, samples=1).mean_rows
    return np.where(visible.observed, visible.values, imputer.reconstruct(visible)[0])


def _parts(data: DataSet) -> Iterator[tuple[DataSet, slice]]:
    """A few series at a time, and where their rows are."""
    steps = int(data.panel.lengths[0])
    for first in range(0, len(data.panel), AT_ONCE):
        series = np.arange(first, min(first + AT_ONCE, len(data.panel)))
        yield data.part(series), slice(first * steps, (first + len(series)) * steps)


def auroc(series: NDArray[Any], labels: NDArray[np.int64]) -> float:
    """Of logistic regression: fitted on the first half, scored on the second. (series, number), (series,)"""
    half = len(series) // 2
    if len(np.unique(labels)) == 2:
        model = LogisticRegression(solver="liblinear", max_iter=10_000)
    else:
        model = LogisticRegression(max_iter=1_000)
    scores = model.fit(series[:half], labels[:half]).predict_proba(series[half:])
    if len(model.classes_) == 2:
        return float(roc_auc_score(labels[half:], scores[:, 1]))
    each = [(labels[half:] == label, score) for label, score in zip(model.classes_, scores.T, strict=True)]
    return float(np.mean([roc_auc_score(is_it, score) for is_it, score in each if is_it.any()]))


def _example(imputer: Imputer, test: DataSet, hidden: Bools, filled: NDArray[Any]) -> Example:
    """The first series of images; or the patient with the most hidden values, as a latent model sees all of them."""
    steps = int(test.panel.lengths[0])
    if test.image_shape is not None:
        return Example(test.truth[:steps], hidden[:steps], filled[:steps])
    series = int(np.argmax(hidden.reshape(len(test.panel), -1).sum(1)))
    rows = slice(series * steps, (series + 1) * steps)
    if not isinstance(imputer, GPVAE):
        return Example(test.truth[rows], hidden[rows], filled[rows])
    part = test.part(np.array([series]))
    mean, std = imputer.reconstruct(missingness.hide(part.panel, hidden[rows]), samples=200)
    return Example(test.truth[rows], hidden[rows], mean, std)
