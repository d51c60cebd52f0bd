"""Training that forks on a plateau: one branch continues as planned, one with an alternative objective (mixup).

The alternative runs at a constant learning rate and ends with an average of its weights. The branch with the lower
validation score at its end wins.
"""

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from lightning_fabric import Fabric
from torch import nn

from gpvae.training.checkpoint import Checkpoint, Start
from gpvae.training.config import DivergedError, TrainingConfig
from gpvae.training.loop import train
from gpvae.training.progress import Report
from gpvae.training.schedule import plateau
from gpvae.training.state import Stage, TrainState, copy_weights

AVERAGE_FROM = 0.65  # of the epochs; an average does for a constant learning rate what a falling one does


def train_with_fork(
    planned: nn.Module,
    alternative: nn.Module,
    batches: Callable[[int], Iterable[Any]],
    config: TrainingConfig,
    *,
    fabric: Fabric,
    validate: Callable[[], float] | None = None,
    checkpoint: Checkpoint | None = None,
    report: Report | None = None,
    param_groups: list[dict[str, Any]] | None = None,
    compile: bool = False,
) -> TrainState:
    """`train` with `planned`; from a plateau on also with `alternative`, and the better of the two is kept.

    Both objectives hold the same network, under the same name. The history is the winner's, from the beginning. A run
    that keeps its best weights does not fork. With a checkpoint, each branch has a file of its own.
    """
    if checkpoint and not checkpoint.exists():
        checkpoint.remove()  # branches of a run whose beginning is gone
    run = partial(train, batches=batches, fabric=fabric, validate=validate, report=report)
    run = partial(run, param_groups=param_groups, compile=compile)
    forks: list[Start] = []
    until = partial(plateau, config=config) if config.keep == "last" else None
    trunk = run(planned, config=config, checkpoint=checkpoint, until=until, on_stop=forks.append)
    if not forks:
        return trunk

    def branch(objective: nn.Module, config: TrainingConfig, stage: Stage) -> TrainState:
        file = checkpoint.stage(stage.name) if checkpoint else None
        return run(objective, config=config, checkpoint=file, start=forks[0], stage=stage)

    stage = Stage("planned", other_epochs=config.epochs - trunk.epoch)
    first = branch(planned, config, stage)
    weights = copy_weights(planned)
    try:
        steady = replace(config, fall_from=None, average_from=AVERAGE_FROM)
        second = branch(alternative, steady, replace(stage, name="mixup", other_steps=first.step - trunk.step))
        if _last_score(second) < _last_score(first):
            return second
    except DivergedError as error:
        warnings.warn(f"training with mixup failed: {error}; the run without mixup is kept", stacklevel=2)
    planned.load_state_dict(weights)
    return first


def _last_score(state: TrainState) -> float:
    """A score that is not finite counts as the worst."""
    score = state.history[-1]["validation"]
    return score if math.isfinite(score) else math.inf
