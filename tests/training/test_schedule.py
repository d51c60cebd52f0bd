"""Learning rates, validation and stopping, as functions of the epoch."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest

from gpvae.training.config import TrainingConfig
from gpvae.training.schedule import (
    LAST_LR_FACTOR,
    is_averaged,
    is_over,
    is_validated,
    kl_scale,
    lr_factor,
    out_of_patience,
    plateau,
)
from gpvae.training.state import TrainState


def test_learning_rate_rises_stays_and_falls_along_a_cosine() -> None:
    config = TrainingConfig(epochs=11, rise=0.05, fall_from=0.6)
    expected = [1 / 1.55, *[1.0] * 6]  # 5 % of eleven epochs, and one; until 60 % of the run
    expected += [0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * quarters / 4)) for quarters in range(1, 5)]
    assert [lr_factor(epoch, config) for epoch in range(11)] == pytest.approx(expected, rel=1e-12)
    assert lr_factor(10, config) == pytest.approx(LAST_LR_FACTOR)


def test_learning_rate_stays_without_rise_and_fall_and_in_a_single_epoch() -> None:
    assert {lr_factor(epoch, TrainingConfig(epochs=9)) for epoch in range(9)} == {1.0}
    rising = TrainingConfig(epochs=80, rise=0.05)
    assert [lr_factor(epoch, rising) for epoch in (0, 4, 79)] == [0.2, 1.0, 1.0]
    assert lr_factor(0, TrainingConfig(epochs=1, rise=0.05, fall_from=0.6)) == 1.0


def test_learning_rate_is_halved_down_to_a_tenth() -> None:
    config = TrainingConfig(epochs=60, halve_every=10)
    assert [lr_factor(epoch, config) for epoch in (0, 9, 10, 19, 20, 30, 40, 59)] == [
        1,
        1,
        0.5,
        0.5,
        0.25,
        0.125,
        0.1,
        0.1,
    ]


def test_kl_scale_rises_to_one() -> None:
    config = TrainingConfig(epochs=9, kl_warm_up=3)
    assert [kl_scale(epoch, config) for epoch in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert kl_scale(0, TrainingConfig(epochs=9)) == 1.0


@pytest.mark.parametrize("epochs", [1, 40, 100, 101, 156, 400, 733, 1000])
def test_runs_are_validated_at_equal_shares_and_at_the_end(epochs: int) -> None:
    config = TrainingConfig(epochs=epochs)
    validated = [epoch for epoch in range(epochs) if is_validated(epoch, config)]
    assert len(validated) == min(epochs, 100)
    assert validated[-1] == epochs - 1
    gaps = {later - earlier for earlier, later in pairwise(validated)}
    assert gaps <= {math.floor(epochs / 100), math.ceil(epochs / 100)}
    assert all(is_validated(epoch, TrainingConfig(epochs=epochs, patience=9)) for epoch in range(epochs))


def test_weights_are_averaged_from_a_share_of_the_epochs_on() -> None:
    config = TrainingConfig(epochs=80, average_from=0.65)
    assert [epoch for epoch in range(80) if is_averaged(epoch, config)] == list(range(52, 80))
    assert not is_averaged(79, TrainingConfig(epochs=80))


@pytest.mark.parametrize(
    ("epoch", "best_epoch", "kl_warm_up", "out"),
    [(5, 2, 0, False), (6, 2, 0, True), (6, 2, 4, False), (8, 2, 4, True), (6, None, 0, False)],
)
def test_patience_counts_epochs_since_the_best_and_the_warm_up(
    epoch: int, best_epoch: int | None, kl_warm_up: int, out: bool
) -> None:
    state = TrainState(epoch=epoch, best_epoch=best_epoch)
    config = TrainingConfig(epochs=100, patience=3, kl_warm_up=kl_warm_up)
    assert out_of_patience(state, config) == is_over(state, config) == out
    assert not out_of_patience(state, TrainingConfig(epochs=100, kl_warm_up=kl_warm_up))


def test_a_run_is_over_after_its_epochs() -> None:
    assert [is_over(TrainState(epoch=epoch), TrainingConfig(epochs=3)) for epoch in (2, 3, 4)] == [False, True, True]


def first_plateau(score: Callable[[int], float], *, epochs: int = 80, kl_warm_up: int = 0) -> int | None:
    """After how many epochs a run with such validation scores is on a plateau."""
    config, state = TrainingConfig(epochs=epochs, kl_warm_up=kl_warm_up), TrainState()
    for epoch in range(epochs):
        state.step_in_epoch = 1
        state.end_epoch(score(epoch) if is_validated(epoch, config) else None)
        if plateau(state, config):
            return state.epoch
    return None


def falling(slope: float, epochs: int = 80) -> Callable[[int], float]:
    """Scores that fall by so much in a tenth of the epochs, with ups and downs."""
    return lambda epoch: -slope * epoch / (0.1 * epochs) + 0.02 * (-1) ** (epoch // 2)


@pytest.mark.parametrize(("epochs", "expected"), [(80, 24), (100, 30), (101, 31), (156, 47), (300, 90), (733, 220)])
def test_scores_that_hardly_fall_are_a_plateau_after_three_tenths_of_any_run(epochs: int, expected: int) -> None:
    assert first_plateau(falling(0.04, epochs), epochs=epochs) is None
    assert first_plateau(falling(0.008, epochs), epochs=epochs) == expected


@pytest.mark.parametrize(("slope", "expected"), [(0.0249, 24), (0.0251, None)])
def test_how_slowly_scores_must_fall(slope: float, expected: int | None) -> None:
    assert first_plateau(lambda epoch: -slope * epoch / 8) == expected


def test_there_is_no_plateau_in_the_warm_up_or_with_few_scores() -> None:
    assert first_plateau(lambda epoch: 0.0, kl_warm_up=30) == 30
    assert first_plateau(lambda epoch: 0.0, epochs=79) is None


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_there_is_no_plateau_while_a_recent_score_is_not_finite(score: float) -> None:
    assert first_plateau(lambda epoch: score if epoch == 9 else 0.0) == 34
    assert first_plateau(lambda epoch: score if epoch == 20 else 0.0) is None


def test_one_lucky_score_does_not_hide_a_plateau() -> None:
    assert first_plateau(lambda epoch: -0.05 if epoch == 18 else 0.0) == 24


@pytest.mark.parametrize(("flat_from", "expected"), [(20, 50), (21, None)])
def test_after_half_of_the_epochs_it_is_too_late_for_a_plateau(flat_from: int, expected: int | None) -> None:
    assert first_plateau(lambda epoch: max(0.0, flat_from - epoch), epochs=100) == expected
