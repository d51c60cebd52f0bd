"""Small data in place of the paper's data sets, and fake runs in place of training."""

import math
from dataclasses import replace

import numpy as np

from gpvae.datasets.dataset import DataSet, even_panel
from gpvae.paper.reproduction import Example, Outcome, Run, figures
from gpvae.paper.reproduction.runs import changes_for
from gpvae.paper.tables import ABLATION_TASKS, Task

IMAGE_SHAPES = {"healing_mnist": (1, 6, 6), "sprites": (3, 4, 4)}
STEPS = {"healing_mnist": 10, "sprites": 8, "physionet2012": 48}
TASKS = {task.data: task for task in ABLATION_TASKS}  # for Healing MNIST, missing not at random
CHANGE_COUNTS = {name: len(changes_for(task)) for name, task in TASKS.items()}


def task(data: str, method: str) -> Task:
    return replace(TASKS[data], method=method)


def made_up(name: str, count: int, seed: int) -> DataSet:
    """Small series like those of the data set, in two or three classes that differ."""
    rng = np.random.default_rng(seed)
    steps, shape = STEPS[name], IMAGE_SHAPES.get(name)
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


class FakeExecute:
    """Returns measures that depend on seed and changes, and tiny examples; records the runs, and fails once if told."""

    def __init__(self) -> None:
        self.done: list[Run] = []
        self.fails_at: int | None = None

    def __call__(self, run: Run, *, device: str = "auto", verbose: bool = False) -> Outcome:
        if len(self.done) == self.fails_at:
            self.fails_at = None
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
    shape = {"healing_mnist": figures.DIGIT_SHAPE, "sprites": figures.SPRITE_SHAPE}[run.task.data]
    truth = np.random.default_rng(0).random((steps, math.prod(shape)), dtype=np.float32)
    return Example(truth, truth > 0.7, np.full(truth.shape, run.changes / 10, dtype=np.float32))
