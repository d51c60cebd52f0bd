"""Forks: when, from where, which branch wins, and exact resume wherever a run is interrupted."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from toy import Batches, Toy, batches, interrupted_after, run, with_matrix

from gpvae.training import schedule
from gpvae.training.checkpoint import Checkpoint
from gpvae.training.config import TrainingConfig, TrainingError
from gpvae.training.devices import make_fabric
from gpvae.training.fork import train_with_fork
from gpvae.training.state import Stage, TrainState

EPOCHS, FORK, FALL, AVERAGED = 20, 6, 12, 7  # a run of constant scores forks as soon as there are enough of them
CONFIG = TrainingConfig(EPOCHS, learning_rate=0.05, rise=0.05, fall_from=0.6, keep="last")


@pytest.fixture(autouse=True)
def _short_runs_may_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "FEWEST", FORK)


def one_batch(epoch: int) -> Iterator[Tensor]:
    yield next(batches(epoch))


class Forked:
    """A run with scores 0, but for the last of each branch; the weights that it had at the end of every epoch."""

    def __init__(
        self,
        planned: float = -1.0,
        mixup: float = -2.0,
        *,
        source: Batches = one_batch,
        config: TrainingConfig = CONFIG,
        shift: float = 3.0,
        on_epoch: Callable[[int], None] = lambda count: None,
        spoil: Callable[[int, Tensor], Tensor] = lambda epoch, part: part,
        **arguments: Any,
    ):
        self.planned = Toy()
        self.mixup = Toy(self.planned.layer, shift=shift)
        self.mixup.spoil = lambda part: spoil(self.epoch, part)
        self.scores, self.source, self.on_epoch = {"planned": planned, "mixup": mixup}, source, on_epoch
        self.branches, self.ends, self.validated = list[str](), list[Tensor](), list[Tensor]()
        self.epoch = -1
        arguments |= {"fabric": make_fabric("cpu", "32-true"), "param_groups": with_matrix(self.planned)}
        self.state = train_with_fork(
            self.planned, self.mixup, self._batches, config, validate=self._validate, **arguments
        )

    def _batches(self, epoch: int) -> Iterator[Tensor]:
        self.epoch = epoch
        self.on_epoch(len(self.branches))
        steps = len(self.mixup.kl_scales)
        yield from self.source(epoch)
        self.branches.append("planned" if len(self.mixup.kl_scales) == steps else "mixup")
        self.ends.append(self.weight)

    def _validate(self) -> float:
        self.validated.append(self.weight)
        return self.scores[self.branches[-1]] if self.epoch == EPOCHS - 1 else 0.0

    @property
    def weight(self) -> Tensor:
        return self.planned.weight


@cache
def unbroken(mixup: float = -2.0) -> Forked:
    return Forked(mixup=mixup)


@cache
def alone() -> tuple[Tensor, TrainState]:
    """What the planned run comes to without a fork."""
    toy = Toy()
    settings = {name: getattr(CONFIG, name) for name in ("epochs", "learning_rate", "rise", "fall_from", "keep")}
    state = run(toy, one_batch, validate=lambda: 0.0, param_groups=with_matrix(toy), **settings)
    return toy.weight, state


def losses(state: TrainState) -> list[float]:
    return [entry["loss"] for entry in state.history]


def test_on_a_plateau_the_rest_is_trained_twice() -> None:
    """Both times from the fork on; the planned branch ends as if there were no other."""
    forked, (weight, _) = unbroken(), alone()
    assert forked.branches == ["planned"] * EPOCHS + ["mixup"] * (EPOCHS - FORK)
    assert torch.equal(forked.ends[EPOCHS - 1], weight)


@pytest.mark.parametrize("mixup", [-2.0, -0.5, -1.0])
def test_the_branch_with_the_lower_last_score_wins(mixup: float) -> None:
    forked, (weight, state) = Forked(-1.0, mixup), alone()
    average = torch.stack(forked.ends[-AVERAGED:]).mean(0)
    assert not torch.allclose(average, weight, rtol=0.1)  # so that it matters which is kept
    if mixup < -1.0:
        torch.testing.assert_close(forked.weight, average)
        assert losses(forked.state)[:FORK] == losses(state)[:FORK]
        assert losses(forked.state)[FORK] != losses(state)[FORK]
    else:
        assert torch.equal(forked.weight, weight)
        assert losses(forked.state) == losses(state)
    assert len(forked.state.history) == EPOCHS
    assert forked.state.history[-1]["validation"] == min(-1.0, mixup)


def test_the_mixup_branch_is_scored_by_the_average_of_its_weights() -> None:
    forked = unbroken()
    assert forked.state.averaged == AVERAGED
    assert torch.equal(forked.validated[-1], forked.weight)
    assert not torch.allclose(forked.ends[-1], forked.weight, rtol=1e-3)


def test_the_mixup_branch_starts_at_the_fork_and_keeps_the_learning_rate() -> None:
    """With the weights, moments and random numbers from there: with the same objective it would be the same."""
    forked = Forked(shift=0.0)
    planned, again = forked.ends[FORK:EPOCHS], forked.ends[EPOCHS:]
    same = [torch.equal(*pair) for pair in zip(planned, again, strict=True)]
    assert same == [True] * (FALL - FORK) + [False] * (EPOCHS - FALL)


@pytest.mark.parametrize("mixup", [math.nan, math.inf, -math.inf])
def test_a_mixup_branch_with_a_score_that_is_not_finite_loses(mixup: float) -> None:
    assert torch.equal(Forked(-1.0, mixup).weight, alone()[0])


def test_a_planned_branch_with_a_score_that_is_not_finite_loses() -> None:
    assert Forked(math.nan, 5.0).state.history[-1]["validation"] == 5.0


def test_a_mixup_branch_that_diverges_loses_with_a_warning() -> None:
    reason = r"training with mixup failed: the loss is not finite at step 15: .*; the run without mixup is kept"
    with pytest.warns(UserWarning, match=reason):
        forked = Forked(spoil=lambda epoch, part: part * (math.nan if epoch == 15 else 1.0))
    assert forked.branches[-1] == "mixup"
    assert torch.equal(forked.weight, alone()[0])
    assert losses(forked.state) == losses(alone()[1])


def test_a_planned_branch_that_diverges_is_an_error() -> None:
    def broken(epoch: int) -> Iterator[Tensor]:
        yield from (batch * (math.nan if epoch == 15 else 1.0) for batch in one_batch(epoch))

    with pytest.raises(TrainingError, match="the loss is not finite at step 15"):
        Forked(source=broken)


@pytest.mark.parametrize("config", [replace(CONFIG, keep="best"), replace(CONFIG, epochs=EPOCHS - 1)])
def test_without_a_plateau_nothing_is_trained_twice(config: TrainingConfig) -> None:
    """As in runs that keep their best weights, and those with too few scores."""
    forked = Forked(config=config)
    assert forked.branches == ["planned"] * config.epochs
    assert len(forked.state.history) == config.epochs


@pytest.mark.parametrize("epoch", [3, 10, 22, 32])  # before the fork, after it, in the other branch, averaging there
@pytest.mark.parametrize("mixup", [-2.0, 0.0])
def test_a_resumed_run_forks_and_chooses_as_an_unbroken_one(epoch: int, mixup: float, tmp_path: Path) -> None:
    checkpoint, expected = Checkpoint(tmp_path / "run.checkpoint", "toy"), unbroken(mixup)
    with pytest.raises(KeyboardInterrupt):
        Forked(mixup=mixup, source=interrupted_after(epoch, one_batch), checkpoint=checkpoint)
    resumed = Forked(mixup=mixup, checkpoint=checkpoint)
    finished = Forked(mixup=mixup, checkpoint=checkpoint)
    assert len(resumed.ends) == len(expected.ends) - epoch + 1  # one in which the single step was done already
    assert finished.ends == []
    for forked in (resumed, finished):
        assert forked.state == expected.state
        assert torch.equal(forked.weight, expected.weight)
    checkpoint.remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("epochs", [5, 6, 7, 19, 20, 21, 33])  # around the fork, the end of the plan, and the end
def test_a_run_killed_between_epochs_is_resumed_exactly(epochs: int, tmp_path: Path) -> None:
    """As by a process that had no time to save anything."""
    checkpoint, expected = Checkpoint(tmp_path / "run.checkpoint", "toy"), unbroken()

    def kill(count: int) -> None:
        if count == epochs:
            raise MemoryError

    with pytest.raises(MemoryError):
        Forked(on_epoch=kill, checkpoint=checkpoint)
    resumed = Forked(checkpoint=checkpoint)
    assert resumed.state == expected.state
    assert len(resumed.ends) == len(expected.ends) - epochs
    assert torch.equal(resumed.weight, expected.weight)


def test_a_damaged_checkpoint_of_a_branch_is_an_error(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")
    Forked(checkpoint=checkpoint)
    checkpoint.stage("mixup").path.write_bytes(b"")
    with pytest.raises(TrainingError, match=r"run\.checkpoint\.mixup is not a checkpoint"):
        Forked(checkpoint=checkpoint)


def test_reports_say_which_stage_and_count_the_steps_of_both_branches() -> None:
    reports: list[tuple[Stage, int]] = []
    Forked(report=lambda state, config, stage: reports.append((stage, state.step + stage.other_steps)))
    rest = EPOCHS - FORK
    assert [steps for _, steps in reports] == list(range(1, EPOCHS + rest + 1))
    stages = [stage for stage, _ in reports]
    assert stages[:FORK] == [Stage()] * FORK
    assert stages[FORK:EPOCHS] == [Stage("planned", other_epochs=rest)] * rest
    assert stages[EPOCHS:] == [Stage("mixup", other_epochs=rest, other_steps=rest)] * rest


def test_tensorboard_tells_the_branches_apart(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    planned = Toy()
    fabric = make_fabric("cpu", "32-true", tmp_path)
    train_with_fork(planned, Toy(planned.layer), one_batch, CONFIG, fabric=fabric, validate=lambda: 0.0)
    (folder,) = {path.parent for path in tmp_path.rglob("events.out.*")}
    events = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in events.Scalars("fit")] == list(range(1, EPOCHS + 1))
    assert [event.step for event in events.Scalars("mixup/fit")] == list(range(FORK + 1, EPOCHS + 1))


def test_branches_of_another_run_are_discarded_where_its_beginning_is_gone(tmp_path: Path) -> None:
    """Files that a run with other settings left behind do not stop a new one at the fork."""
    Forked(checkpoint=Checkpoint(tmp_path / "run", "other"))
    (tmp_path / "run").unlink()
    assert (tmp_path / "run.planned").exists()
    assert Forked(checkpoint=Checkpoint(tmp_path / "run", "ours")).state.history == Forked().state.history
