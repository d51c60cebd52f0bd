"""Where a training run stands: its counters and history, and the weights it keeps beside the current ones."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_swa_multi_avg_fn

Parts = dict[str, float]  # of a loss, by name
Weights = dict[str, Tensor]


@dataclass
class TrainState:
    """Everything about a run but its tensors."""

    epoch: int = 0
    step: int = 0  # over all epochs
    step_in_epoch: int = 0
    sums: Parts = field(default_factory=dict)  # of the losses of this epoch
    best_score: float | None = None
    best_epoch: int | None = None
    averaged: int = 0  # epochs in the average of weights
    history: list[Parts] = field(default_factory=list)  # mean losses of each epoch, and its validation score

    def count_step(self) -> None:
        self.step, self.step_in_epoch = self.step + 1, self.step_in_epoch + 1

    def end_epoch(self, score: float | None) -> bool:
        """Record the epoch; True if its validation score is the best so far."""
        improved = score is not None and (self.best_score is None or score < self.best_score)
        if improved:
            self.best_score, self.best_epoch = score, self.epoch
        means = {name: total / self.step_in_epoch for name, total in self.sums.items()}
        self.history.append(means | ({} if score is None else {"validation": score}))
        self.epoch, self.step_in_epoch, self.sums = self.epoch + 1, 0, {}
        return improved


@dataclass
class Snapshots:
    """Weights kept beside the current ones."""

    best: Weights = field(default_factory=dict)  # of the epoch with the best validation score
    average: Weights = field(default_factory=dict)  # over the last epochs

    def add_to_average(self, weights: Weights, averaged: int) -> None:
        """Average `weights` with those of `averaged` earlier epochs; integers are the latest."""
        if averaged == 0:
            self.average = {name: value.clone() for name, value in weights.items()}
            return
        floats = [name for name, value in weights.items() if value.is_floating_point()]
        mean, latest = [self.average[name] for name in floats], [weights[name] for name in floats]
        get_swa_multi_avg_fn()(mean, latest, averaged)  # pyright: ignore[reportArgumentType]
        self.average |= {name: value.clone() for name, value in weights.items() if name not in floats}


@dataclass(frozen=True)
class Stage:
    """Which part of a forked run is trained, for progress and logs."""

    name: str = ""  # "planned" or "mixup" after a fork
    other_steps: int = 0  # done in the other branch
    other_epochs: int = 0  # of the other branch


@torch.no_grad()
def copy_weights(module: nn.Module) -> Weights:
    return {name: value.clone() for name, value in module.state_dict().items()}
