"""One run: prepare the data, train, score."""

import time
import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpvae import missingness
from gpvae.data.panel import Bools
from gpvae.datasets import DataSet, load
from gpvae.imputers.base import Imputer
from gpvae.imputers.brits import BRITS
from gpvae.imputers.gpvae import GPVAE
from gpvae.paper.reproduction.gaps import TAUGHT, TRAINING, gaps
from gpvae.paper.reproduction.runs import Run, new_imputer
from gpvae.paper.reproduction.scores import score

QUICK_SERIES = {"healing_mnist": 200, "sprites": 24, "physionet2012": 200}


@dataclass(frozen=True)
class Example:
    """One of the scored series, for a figure. (step, feature)"""

    truth: NDArray[Any]
    hidden: Bools
    filled: NDArray[Any]
    std: NDArray[Any] | None = None


@dataclass(frozen=True)
class Outcome:
    measures: dict[str, float]
    example: Example


class Prepared(NamedTuple):
    """The data of a run, and the cells that go missing in it."""

    train: DataSet
    test: DataSet
    hidden_in_train: Bools
    hidden_in_test: Bools


def execute(run: Run, *, device: str = "auto", verbose: bool = False) -> Outcome:
    """Train and score."""
    task = run.task
    train, test, hidden_in_train, hidden = prepare(task.data, task.mechanism, task.rate, run.seed, run.quick)
    imputer = new_imputer(run, device=device, verbose=verbose)
    started = time.perf_counter()
    with warnings.catch_warnings():
        if test.image_shape:  # pixels in the corners may be black in every image
            warnings.filterwarnings("ignore", message="column .* (is constant|had no observed value)")
        visible = missingness.hide(train.panel, hidden_in_train)
        if isinstance(imputer, BRITS):
            imputer.fit(visible, told(train, task.method))
        else:
            imputer.fit(visible)
        seconds = time.perf_counter() - started
        measures, filled = score(imputer, test, hidden, run)
        return Outcome({**measures, "seconds": seconds}, _example(imputer, test, hidden, filled))


@lru_cache(maxsize=1)
def prepare(data: str, mechanism: str, rate: float, seed: int, quick: bool) -> Prepared:
    """PhysioNet is evaluated on the patients of set a that it was trained on, as in the paper."""
    train, test = _load(data, quick)
    hidden = gaps(train, mechanism, rate, [seed, 0])
    return Prepared(train, test, hidden, hidden if test is train else gaps(test, mechanism, rate, [seed, 1]))


@lru_cache(maxsize=1)
def _load(name: str, quick: bool) -> tuple[DataSet, DataSet]:
    """Training and test data."""
    count = QUICK_SERIES[name] if quick else None
    if name == "physionet2012":
        patients = load(name, splits=["train"], count=count)
        return patients, patients
    return load(name, splits=TRAINING, count=count), load(name, splits=["test"], count=count)


def told(data: DataSet, method: str) -> NDArray[np.float64] | None:
    """The labels that a method is taught, NaN where it is not told: those that the classifier is fitted on, or all."""
    if method not in TAUGHT or data.labels is None:
        return None
    known = np.arange(len(data.labels)) < TAUGHT[method] * len(data.labels)
    return np.where(known, data.labels, np.nan)


def _example(imputer: Imputer, test: DataSet, hidden: Bools, filled: NDArray[Any]) -> Example:
    """The first series of images, or the patient with the most hidden values.

    Of a patient, a latent model shows its reconstruction at all cells, with the standard deviation.
    """
    steps = int(test.panel.lengths[0])
    series = 0 if test.image_shape else int(np.argmax(hidden.reshape(len(test.panel), -1).sum(1)))
    rows = slice(series * steps, (series + 1) * steps)
    if test.image_shape or not isinstance(imputer, GPVAE):
        return Example(test.truth[rows], hidden[rows], filled[rows])
    patient = test.part(np.array([series])).panel
    mean, std = imputer.reconstruct(missingness.hide(patient, hidden[rows]), samples=200)
    return Example(test.truth[rows], hidden[rows], mean, std)
