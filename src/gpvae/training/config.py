"""The settings of a training run."""

from dataclasses import dataclass
from typing import Literal


class TrainingError(RuntimeError):
    """Training cannot continue; the message says where and why."""


class DivergedError(TrainingError):
    """A loss or gradient is not finite."""


@dataclass(frozen=True)
class TrainingConfig:
    """Shares are of `epochs`. How the learning rate and the scale of the KL term change is in `schedule`."""

    epochs: int
    learning_rate: float = 1e-3
    rise: float = 0.0  # share over which the learning rate rises
    fall_from: float | None = None  # share after which it falls along a cosine; None: it stays
    halve_every: int | None = None  # epochs after which it is halved, down to a tenth; None: never
    clip_norm: float = 10.0  # largest norm of the gradient
    kl_warm_up: int = 0  # epochs over which `kl_scale` rises to 1
    keep: Literal["best", "last"] = "best"  # weights of the epoch with the best validation score, or of the last epoch
    average_from: float | None = None  # share from which weights are averaged; the last epoch ends with the average
    patience: int | None = None  # epochs after the warm-up without a better score before training stops; None: never
    seed: int = 0
