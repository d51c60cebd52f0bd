"""What changes in the course of a run, as functions of the epoch: learning rate, KL term, validation, when to stop."""

import math

import numpy as np

from gpvae.training.config import TrainingConfig
from gpvae.training.state import TrainState

LAST_LR_FACTOR = 0.02  # of the last epoch, if the learning rate falls
LEAST_HALVED = 0.1  # where halving the learning rate ends
VALIDATIONS = 100  # in a run, at most: validating every short epoch would take longer than training
# A run is on a plateau where the line through the scores of the last 30 % of its epochs, at least 24 of them, falls by
# less than 0.025 in a tenth of the run. After half of the epochs it is too late to fork: scores fall with the learning
# rate anyway.
TREND, FEWEST, LITTLE, LATEST = 0.3, 24, 0.025, 0.5


def lr_factor(epoch: int, config: TrainingConfig) -> float:
    """What the learning rate is multiplied with."""
    if config.epochs == 1:
        return 1.0
    risen = min(1.0, (epoch + 1) / (config.rise * config.epochs + 1))
    if config.halve_every is not None:
        risen *= max(LEAST_HALVED, 0.5 ** (epoch // config.halve_every))
    if config.fall_from is None:
        return risen
    fallen = max(0.0, (epoch / (config.epochs - 1) - config.fall_from) / (1 - config.fall_from))
    return risen * (LAST_LR_FACTOR + (1 - LAST_LR_FACTOR) * (1 + math.cos(math.pi * fallen)) / 2)


def kl_scale(epoch: int, config: TrainingConfig) -> float:
    return min(1.0, (epoch + 1) / (config.kl_warm_up + 1))


def is_validated(epoch: int, config: TrainingConfig) -> bool:
    """At each hundredth of a run, so that equal shares of any run have equally many scores; patience needs them all."""
    if config.patience is not None:
        return True
    return VALIDATIONS * (epoch + 1) // config.epochs > VALIDATIONS * epoch // config.epochs


def is_averaged(epoch: int, config: TrainingConfig) -> bool:
    return config.average_from is not None and epoch >= config.average_from * config.epochs


def is_over(state: TrainState, config: TrainingConfig) -> bool:
    return state.epoch >= config.epochs or out_of_patience(state, config)


def out_of_patience(state: TrainState, config: TrainingConfig) -> bool:
    if config.patience is None or state.best_epoch is None:
        return False
    return state.epoch - 1 - max(state.best_epoch, config.kl_warm_up) >= config.patience


def plateau(state: TrainState, config: TrainingConfig) -> bool:
    """Between epochs: whether validation scores have nearly stopped falling, early enough to fork."""
    earliest = max(config.kl_warm_up, TREND * config.epochs)
    return earliest <= state.epoch <= LATEST * config.epochs and _fall(state, config) < LITTLE


def _fall(state: TrainState, config: TrainingConfig) -> float:
    """Of a line through the last scores, in a tenth of the epochs; infinite if there are too few or bad ones."""
    first = state.epoch - TREND * config.epochs
    scores = {i: parts["validation"] for i, parts in enumerate(state.history) if i >= first and "validation" in parts}
    if len(scores) < FEWEST or not all(map(math.isfinite, scores.values())):
        return math.inf
    slope, _ = np.polyfit([*scores], [*scores.values()], 1)
    return -0.1 * config.epochs * float(slope)
