"""Which values go missing, and what else the paper leaves open about its data.

All of it is inferred, from the published errors of mean and forward imputation (see docs/reproduction.md).
"""

from collections.abc import Sequence
from typing import Any

from gpvae import missingness
from gpvae.data.panel import Bools
from gpvae.datasets import DataSet
from gpvae.datasets.healing_mnist import DEGREES
from gpvae.paper.tables import Task

WHITE, BLACK = 0.80, 0.40  # shares of Healing MNIST's pixels that go missing "not at random"
LENGTH_SCALES = {"spatial": 3.0, "temporal+": 2.0, "temporal-": 2.0}  # in pixels, and in steps
TRAINING = ("train", "validation")  # splits of images: the authors' commands train on all that is not tested

TAUGHT = {"brits, labels": 0.5, "brits, all labels": 1.0}  # share of the series whose labels are told, from the first


def gaps(data: DataSet, mechanism: str, rate: float, seed: Sequence[int]) -> Bools:
    """The known cells that go missing. (row, feature)"""
    if mechanism == "not-at-random":
        return missingness.by_value(data.panel, BLACK, WHITE, seed, threshold=0.5)
    if mechanism == "random":  # each cell independently, so that the share is `rate` on average only
        return missingness.by_value(data.panel, rate, rate, seed, threshold=0.5)
    shape = {"image_shape": data.image_shape} if mechanism == "spatial" else {}
    return missingness.MECHANISMS[mechanism](data.panel, rate, seed, **shape, length_scale=LENGTH_SCALES[mechanism])


def facts(task: Task) -> dict[str, Any]:
    """What decides the data and the gaps of a task, besides their names and the rate."""
    if task.data == "physionet2012":
        return {"labels_told": TAUGHT[task.method]} if task.method in TAUGHT else {}
    rotation = {"rotation": DEGREES} if task.data == "healing_mnist" else {}
    by_value = {"white": WHITE, "black": BLACK} if task.mechanism == "not-at-random" else {}
    smooth = {"length_scale": LENGTH_SCALES[task.mechanism]} if task.mechanism in LENGTH_SCALES else {}
    return {"training": list(TRAINING), **rotation, **by_value, **smooth}
