"""The loop: exact resume, interruption, best epoch, the pace, errors."""

import io
import math
import re
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from torch import Generator, Tensor, nn

from gpvae.training import loop as training
from gpvae.training.loop import (
    LAST_PACE,
    Checkpoint,
    Kept,
    Progression,
    TrainingConfig,
    TrainingError,
    compiled,
    fabric_for,
    train,
)
from gpvae.training.muon import Muon

STEPS = 4


class Scored(NamedTuple):
    total: Tensor
    parts: dict[str, Tensor]


class Toy(nn.Module):
    """Any loss of (batch, generator, warmth) can be minimised."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer = nn.Linear(3, 2)
        self.warmths: list[float] = []
        self.spoil: Callable[[Tensor], Tensor] = lambda part: part

    def loss(self, batch: Tensor, generator: Generator, warmth: Tensor) -> Scored:
        self.warmths.append(float(warmth))
        noise = torch.randn(batch.shape, generator=generator, device=batch.device)
        parts = {"fit": self.layer(batch + noise).square().mean(), "size": self.spoil(self.layer.weight.square().sum())}
        return Scored(parts["fit"] + parts["size"], parts)


def batches(epoch: int) -> Iterator[Tensor]:
    generator = Generator().manual_seed(epoch)
    for _ in range(STEPS):
        yield torch.randn(5, 3, generator=generator)


def run(
    model: Toy,
    source: Callable[[int], Iterator[Tensor]] = batches,
    *,
    epochs: int = 4,
    patience: int | None = None,
    warm_up: int = 0,
    anneal: bool = False,
    keeps_last: bool = False,
    groups: list[dict[str, Any]] | None = None,
    validate: Callable[[], float] | None = None,
    checkpoint: Checkpoint | None = None,
    harder: Callable[[bool], None] | None = None,
) -> Progression:
    config = TrainingConfig(
        epochs=epochs, learning_rate=0.05, anneal=anneal, patience=patience, warm_up=warm_up, keeps_last=keeps_last
    )
    fabric = fabric_for("cpu", "32-true")
    return train(
        model,
        model.loss,
        source,
        config,
        fabric=fabric,
        validate=validate,
        checkpoint=checkpoint,
        harder=harder,
        groups=groups,
    )


def interrupted_after(steps: int) -> Callable[[int], Iterator[Tensor]]:
    done = 0

    def source(epoch: int) -> Iterator[Tensor]:
        nonlocal done
        for batch in batches(epoch):
            done += 1
            if done == steps:
                signal.raise_signal(signal.SIGINT)  # while the step is prepared: it is finished all the same
            yield batch

    return source


def judged(model: Toy) -> Callable[[], float]:
    return lambda: float(model.layer.weight.detach().square().sum())


def two_paces(model: Toy) -> list[dict[str, Any]]:
    return [{"params": [model.layer.weight]}, {"params": [model.layer.bias], "lr": 0.5}]


def as_matrix(model: Toy) -> list[dict[str, Any]]:
    return [{"params": [model.layer.bias]}, {"params": [model.layer.weight], "matrices": True}]


@pytest.mark.parametrize("steps", [1, STEPS, STEPS + 1, 3 * STEPS + 2])
@pytest.mark.parametrize("anneal", [False, True])
@pytest.mark.parametrize("groups", [two_paces, as_matrix])
def test_resumed_run_equals_an_unbroken_one_bit_for_bit(
    tmp_path: Path, steps: int, anneal: bool, groups: Callable[[Toy], list[dict[str, Any]]]
) -> None:
    unbroken, broken, resumed = Toy(), Toy(), Toy()
    expected = run(unbroken, validate=judged(unbroken), anneal=anneal, groups=groups(unbroken))
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")
    with pytest.raises(KeyboardInterrupt):
        run(
            broken,
            interrupted_after(steps),
            checkpoint=checkpoint,
            validate=judged(broken),
            anneal=anneal,
            groups=groups(broken),
        )
    found = run(resumed, checkpoint=checkpoint, validate=judged(resumed), anneal=anneal, groups=groups(resumed))
    for name, value in unbroken.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert found == expected


def test_interruption_leaves_the_steps_done_so_far(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")
    with pytest.raises(KeyboardInterrupt):
        run(Toy(), interrupted_after(6), checkpoint=checkpoint)
    half = Toy()
    optimizer = torch.optim.Adam(half.parameters(), lr=0.05)
    progression = Progression()
    checkpoint.restore(half, optimizer, Kept(best={}), progression)
    assert (progression.step, progression.epoch, progression.step_in_epoch) == (6, 1, 2)
    assert not torch.equal(half.layer.weight, Toy().layer.weight)


def test_second_interrupt_is_heard_at_once_and_the_handler_is_put_back() -> None:
    before = signal.getsignal(signal.SIGINT)

    def impatient(epoch: int) -> Iterator[Tensor]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        yield from batches(epoch)

    model = Toy()
    with pytest.raises(KeyboardInterrupt):
        run(model, impatient)
    assert model.warmths == []
    assert signal.getsignal(signal.SIGINT) is before


def test_training_works_outside_the_main_thread() -> None:
    done: list[Progression] = []
    thread = threading.Thread(target=lambda: done.append(run(Toy(), epochs=2)))
    thread.start()
    thread.join()
    assert done[0].epoch == 2


def test_a_longer_run_goes_on_from_a_finished_one(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")
    run(Toy(), epochs=2, checkpoint=checkpoint)
    longer, unbroken = Toy(), Toy()
    run(longer, epochs=4, checkpoint=checkpoint)
    run(unbroken, epochs=4)
    assert torch.equal(longer.layer.weight, unbroken.layer.weight)


def test_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    run(Toy(), checkpoint=Checkpoint(tmp_path / "c", "toy"))
    with pytest.raises(TrainingError, match="belongs to a run on other data or settings"):
        run(Toy(), checkpoint=Checkpoint(tmp_path / "c", "another"))
    (tmp_path / "c").write_bytes((tmp_path / "c").read_bytes()[:100])
    with pytest.raises(TrainingError, match="not a checkpoint, or a damaged one"):
        run(Toy(), checkpoint=Checkpoint(tmp_path / "c", "toy"))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_loss_that_is_not_finite_stops_with_step_and_part(value: float) -> None:
    model, steps = Toy(), 0

    def spoil(part: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        return part * value if steps == 6 else part

    model.spoil = spoil
    with pytest.raises(TrainingError, match=rf"the loss is not finite at step 5: loss is {value}, size is {value}"):
        run(model)


def test_gradient_that_is_not_finite_stops_training_even_in_the_last_step() -> None:
    model, steps = Toy(), 0

    def spoil(part: Tensor) -> Tensor:
        nonlocal steps
        steps += 1
        return part if steps < STEPS else part + (0 * part).sqrt().sum()  # 0, with the gradient 0 · ∞

    model.spoil = spoil
    with pytest.raises(TrainingError, match=f"the loss is not finite at step {STEPS - 1}: gradient is nan"):
        run(model, epochs=1)


def test_weights_of_the_best_epoch_are_kept_and_patience_ends_training() -> None:
    model, seen = Toy(), []
    scores = iter([3.0, 1.0, 2.0, 2.0, 0.0])

    def validate() -> float:
        seen.append(model.layer.weight.detach().clone())
        return next(scores)

    progression = run(model, epochs=10, patience=2, validate=validate)
    assert len(progression.history) == 4
    assert progression.best_epoch == 1
    assert torch.equal(model.layer.weight, seen[1])
    assert [round(entry["validation"], 1) for entry in progression.history] == [3.0, 1.0, 2.0, 2.0]
    assert {"loss", "fit", "size"} <= set(progression.history[0])


def test_warmth_rises_to_one_and_patience_waits_for_it() -> None:
    model = Toy()
    progression = run(model, epochs=10, patience=2, warm_up=3, validate=lambda: 1.0)
    assert model.warmths[::STEPS] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert progression.best_epoch == 0


def scores(*given: float) -> Callable[[], float]:
    left = iter(given)
    return lambda: next(left)


@pytest.mark.parametrize(("keeps_last", "kept"), [(True, 3), (False, 1)])
def test_the_last_weights_are_kept_or_the_best(keeps_last: bool, kept: int, tmp_path: Path) -> None:
    model, given, weights = Toy(), scores(3, 1, 2, 2), list[Tensor]()
    checkpoint = Checkpoint(tmp_path / "run.safetensors", "toy")

    def judge() -> float:
        weights.append(model.layer.weight.detach().clone())
        return given()

    run(model, keeps_last=keeps_last, validate=judge, checkpoint=checkpoint)
    assert [torch.equal(model.layer.weight, each) for each in weights] == [i == kept for i in range(4)]
    with safe_open(checkpoint.path, framework="pt") as file:
        assert any(name.startswith("best.") for name in file.keys()) != keeps_last  # noqa: SIM118


def practising(given: Callable[[int, bool], float], *, epochs: int = 80, **settings: Any) -> tuple[str, Progression]:
    """Epoch by epoch whether practice was harder (x) or not (.), the score being `given` by the epoch and that."""
    told, model = list[bool](), Toy()
    at = {"epoch": -1}

    def source(epoch: int) -> Iterator[Tensor]:
        at["epoch"] = epoch
        return batches(epoch)

    settings = {"anneal": True, "keeps_last": True, **settings}
    found = run(
        model, source, epochs=epochs, validate=lambda: given(at["epoch"], told[-1]), harder=told.append, **settings
    )
    assert told.pop() is False  # when all is over
    return "".join(".x"[each] for each in told), found


def steadily(fall: float, *, epochs: int = 80) -> Callable[[int, bool], float]:
    """Scores that fall so much in a tenth of the epochs, with ups and downs."""
    return lambda epoch, harder: -fall * epoch / (0.1 * epochs) + 0.02 * (-1) ** (epoch // 2)


@pytest.mark.parametrize(("epochs", "fork"), [(80, 24), (100, 30), (300, 90), (733, 220)])
def test_where_scores_hardly_fall_there_is_harder_practice_beside_what_was_planned(epochs: int, fork: int) -> None:
    """A line is laid through three tenths of the epochs. Of many epochs only some are judged."""
    whole = "." * epochs
    assert practising(steadily(0.025, epochs=epochs), epochs=epochs)[0] == whole
    assert practising(steadily(0.008, epochs=epochs), epochs=epochs)[0] == whole + "x" * (epochs - fork)


@pytest.mark.parametrize(("fall", "forked"), [(0.0149, 24), (0.0151, None)])
def test_how_little_is_hardly(fall: float, forked: int | None) -> None:
    assert practising(lambda epoch, harder: -fall * epoch / 8)[1].forked == forked


@pytest.mark.parametrize(
    ("settings", "practice"),
    [
        ({"warm_up": 30}, "." * 80 + "x" * 50),
        ({"keeps_last": False}, "." * 80),
        ({"epochs": 79}, "." * 79),  # a line wants 24 scores
        ({"epochs": 120}, "." * 120),  # only every second epoch is judged
    ],
)
def test_when_a_run_is_forked(settings: dict[str, Any], practice: str) -> None:
    assert practising(lambda epoch, harder: 0.0, **settings)[0] == practice


@pytest.mark.parametrize("score", [math.nan, math.inf, -math.inf])
def test_scores_that_are_no_numbers_say_nothing(score: float) -> None:
    """One of them keeps the line from being laid as long as it is among the last 24."""
    assert practising(lambda epoch, harder: score if epoch == 9 else 0.0)[0] == "." * 80 + "x" * 46
    assert practising(lambda epoch, harder: score if epoch == 20 else 0.0)[0] == "." * 80


def test_one_lucky_score_does_not_hide_that_they_hardly_fall() -> None:
    assert practising(lambda epoch, harder: -0.05 if epoch == 18 else 0.0)[0] == "." * 80 + "x" * 56


@pytest.mark.parametrize(("flat_from", "practice"), [(16, "." * 80 + "x" * 40), (17, "." * 80)])
def test_a_run_is_not_forked_when_the_learning_rate_is_about_to_fall(flat_from: int, practice: str) -> None:
    """Behind half of the epochs, which is where the line would be flat at the earliest."""
    assert practising(lambda epoch, harder: max(0.0, flat_from - epoch))[0] == practice


HARDER: dict[str, Any] = {"epochs": 80, "anneal": True, "keeps_last": True}
FORK = 24  # where scores never fall: as soon as there are enough


class Watched:
    """A run of a toy, whose scores are 0 but for the last of each branch; weights at the end of every epoch."""

    def __init__(self, planned: float, harder: float, *, checkpoint: Checkpoint | None = None, stop: int = 0):
        self.model, self.weights, self.judged = Toy(), list[Tensor](), list[Tensor]()
        self.practises, self.ends, self.epoch = False, {False: planned, True: harder}, -1
        self.source = interrupted_after(stop) if stop else batches
        self.found = run(
            self.model, self._batches, validate=self._score, harder=self._hear, checkpoint=checkpoint, **HARDER
        )

    def _hear(self, harder: bool) -> None:
        self.practises = harder

    def _batches(self, epoch: int) -> Iterator[Tensor]:
        self.epoch = epoch
        for batch in self.source(epoch):
            yield batch + self.practises  # not the same to learn from
        self.weights.append(self.weight)

    def _score(self) -> float:
        self.judged.append(self.weight)
        return self.ends[self.practises] if self.epoch == 79 else 0.0

    @property
    def weight(self) -> Tensor:
        return self.model.layer.weight.detach().clone()


def test_the_last_score_of_each_branch_tells_which_to_take() -> None:
    """What was planned goes on as if there were no other; of the other, the last 28 epochs' weights are averaged."""
    alone = Toy()
    history = run(alone, validate=lambda: 0.0, **HARDER).history
    better, worse, same = Watched(-1.0, -2.0), Watched(-1.0, -0.5), Watched(-1.0, -1.0)
    for each in (better, worse, same):
        assert each.found.forked == FORK
        assert each.found.averaged == 28
        assert torch.equal(each.weights[79], alone.layer.weight)
        assert len(each.weights) == 80 + 80 - FORK
        assert len(each.found.history) == 80
    average = torch.stack(better.weights[-28:]).mean(0)
    torch.testing.assert_close(better.weight, average)
    assert torch.equal(better.judged[-1], better.weight)  # the last score is that of the average
    assert better.found.history[-1]["validation"] == -2.0
    for each in (worse, same):
        assert torch.equal(each.weight, alone.layer.weight)
        assert [entry["loss"] for entry in each.found.history] == [entry["loss"] for entry in history]
        assert each.found.history[-1]["validation"] == -1.0


def test_harder_practice_begins_at_the_fork() -> None:
    """With the weights and moments from there, and the same random numbers; the history of both is one until then."""
    found = Watched(-1.0, -2.0).found
    assert found.planned is not None
    assert found.history[:FORK] == found.planned[:FORK]
    assert found.history[FORK] != found.planned[FORK]
    assert found.step == 80 * STEPS

    class Unmoved(Watched):
        def _hear(self, harder: bool) -> None:
            pass  # practises what was planned once more

    again = Unmoved(0.0, 0.0)
    rate_falls_behind = 48  # until then the two branches are the same
    for epoch in range(FORK, rate_falls_behind):
        assert torch.equal(again.weights[epoch], again.weights[80 + epoch - FORK]), epoch


def test_with_harder_practice_the_learning_rate_stays() -> None:
    config = TrainingConfig(80, anneal=True, keeps_last=True)
    assert [Progression(epoch=epoch, planned=[]).pace(config) for epoch in (4, 79)] == [1.0, 1.0]
    assert Progression(epoch=79).pace(config) == pytest.approx(LAST_PACE)


@pytest.mark.parametrize("calls", [24, 25, 26, 80, 81, 82, 136])  # epochs around the fork, the end of the plan, the end
def test_a_checkpoint_from_between_epochs_is_as_good(calls: int, tmp_path: Path) -> None:
    """As of a process that was killed when an epoch began, and had no time to save anything."""

    class Killed(Watched):
        heard = 0

        def _hear(self, harder: bool) -> None:
            super()._hear(harder)
            self.heard += 1
            if self.heard == calls:
                raise MemoryError

    checkpoint, expected = Checkpoint(tmp_path / "run.safetensors", "toy"), Watched(-1.0, -2.0)
    with pytest.raises(MemoryError):
        Killed(-1.0, -2.0, checkpoint=checkpoint)
    resumed = Watched(-1.0, -2.0, checkpoint=checkpoint)
    assert resumed.found == expected.found
    assert len(resumed.weights) == 137 - calls
    assert torch.equal(resumed.weight, expected.weight)


def test_what_was_planned_is_kept_where_harder_practice_fails() -> None:
    class Failing(Watched):
        def _batches(self, epoch: int) -> Iterator[Tensor]:
            for batch in super()._batches(epoch):
                yield batch * (math.nan if self.practises and epoch == 60 else 1.0)

    alone = Toy()
    run(alone, validate=lambda: 0.0, **HARDER)
    with pytest.warns(UserWarning, match="the loss is not finite at step 240: .* training without them is kept"):
        failed = Failing(-1.0, -2.0)
    assert torch.equal(failed.weight, alone.layer.weight)
    assert len(failed.found.history) == 80
    better = Watched(math.nan, -2.0)  # and the other way round
    torch.testing.assert_close(better.weight, torch.stack(better.weights[-28:]).mean(0))


def test_without_harder_practice_nothing_is_done_twice(tmp_path: Path) -> None:
    epochs = list[int]()

    def source(epoch: int) -> Iterator[Tensor]:
        epochs.append(epoch)
        return batches(epoch)

    assert run(Toy(), source, validate=lambda: 0.0, **HARDER).forked is None
    assert epochs == list(range(80))


@pytest.mark.parametrize("epoch", [10, 40, 90, 130])  # before the fork, behind it, in the other branch, averaging there
@pytest.mark.parametrize("harder", [-2.0, 0.0])
def test_resumed_run_forks_and_chooses_as_if_it_had_not_stopped(epoch: int, harder: float, tmp_path: Path) -> None:
    checkpoint, expected = Checkpoint(tmp_path / "run.safetensors", "toy"), Watched(-1.0, harder)
    with pytest.raises(KeyboardInterrupt):
        Watched(-1.0, harder, checkpoint=checkpoint, stop=epoch * STEPS + 1)
    resumed = Watched(-1.0, harder, checkpoint=checkpoint)
    assert resumed.found == expected.found
    assert torch.equal(resumed.weight, expected.weight)
    finished = Watched(-1.0, harder, checkpoint=checkpoint)  # what is over is not done again
    assert finished.weights == []
    assert finished.found == expected.found
    assert torch.equal(finished.weight, expected.weight)


def test_without_validation_the_last_epoch_is_kept() -> None:
    short, long = Toy(), Toy()
    run(short, epochs=2)
    run(long, epochs=3)
    assert not torch.equal(short.layer.weight, long.layer.weight)


def test_gradients_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    model, lengths = Toy(), []
    model.spoil = lambda part: 1e6 * part
    step = torch.optim.Adam.step

    def measured(self: torch.optim.Adam, closure: None = None) -> None:
        gradients = [p.grad for group in self.param_groups for p in group["params"]]
        lengths.append(float(torch.cat([g.flatten() for g in gradients if g is not None]).norm()))
        step(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", measured)
    train(model, model.loss, batches, TrainingConfig(epochs=1, clip_norm=2.0), fabric=fabric_for("cpu", "32-true"))
    assert lengths == pytest.approx([2.0] * STEPS, rel=1e-3)


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The learning rates of Adam's groups, step after step."""
    seen: list[list[float]] = []
    step = torch.optim.Adam.step

    def watched(self: torch.optim.Adam, closure: None = None) -> None:
        seen.append([float(group["lr"]) for group in self.param_groups])
        step(self, closure)

    monkeypatch.setattr(torch.optim.Adam, "step", watched)
    return seen


def test_annealed_learning_rates_rise_stay_and_fall_along_a_cosine(rates: list[list[float]]) -> None:
    """From all to `LAST_PACE` of it, once an epoch, each group's in its ratio to the others'."""
    model = Toy()
    run(model, epochs=11, anneal=True, groups=two_paces(model))
    paces = [1 / 1.55, *[1.0] * 6]  # a twentieth of eleven epochs, and one; up to 60 % of the way
    paces += [0.02 + 0.98 * (0.5 + 0.5 * math.cos(math.pi * quarters / 4)) for quarters in range(1, 5)]
    for i, (first, second) in enumerate(rates):
        assert first == pytest.approx(0.05 * paces[i // STEPS], rel=1e-12)
        assert second == pytest.approx(0.5 * paces[i // STEPS], rel=1e-12)
    assert len(rates) == 11 * STEPS
    assert rates[-1] == pytest.approx([LAST_PACE * 0.05, LAST_PACE * 0.5])


def test_matrices_take_steps_of_their_own_at_the_same_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, float]] = []
    step = Muon._step_of_matrices

    def watched(self: Muon, matrices: list[Tensor], rate: float) -> None:
        seen.append((len(matrices), rate))
        step(self, matrices, rate)

    monkeypatch.setattr(Muon, "_step_of_matrices", watched)
    model = Toy()
    run(model, epochs=11, anneal=True, groups=two_paces(model))
    assert seen == []
    run(model, epochs=11, anneal=True, groups=as_matrix(model))
    config = TrainingConfig(epochs=11, anneal=True)
    paces = [Progression(epoch=epoch).pace(config) for epoch in range(11) for _ in range(STEPS)]
    assert seen == [(1, 0.05 * pace) for pace in paces]
    assert len(set(paces)) == 6


@pytest.mark.parametrize(("epochs", "anneal"), [(5, False), (1, False), (1, True)])
def test_learning_rates_stay_unless_annealed_over_several_epochs(
    rates: list[list[float]], epochs: int, anneal: bool
) -> None:
    model = Toy()
    run(model, epochs=epochs, anneal=anneal, groups=two_paces(model))
    assert rates == [[0.05, 0.5]] * (epochs * STEPS)


def test_resumed_run_goes_on_at_the_pace_of_its_epoch(rates: list[list[float]], tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")
    run(Toy(), anneal=True)
    unbroken = rates.copy()
    rates.clear()
    with pytest.raises(KeyboardInterrupt):
        run(Toy(), interrupted_after(2 * STEPS + 1), anneal=True, checkpoint=checkpoint)
    assert len(rates) == 2 * STEPS + 1
    run(Toy(), anneal=True, checkpoint=checkpoint)
    assert rates == unbroken


def test_global_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(Toy())
    assert torch.equal(torch.rand(3), expected)


def test_bf16_computes_in_bf16_and_keeps_weights_in_float32() -> None:
    model = Toy()
    dtypes: list[torch.dtype] = []
    model.layer.register_forward_hook(lambda _, __, out: dtypes.append(out.dtype))
    train(model, model.loss, batches, TrainingConfig(epochs=1), fabric=fabric_for("cpu", "bf16-mixed"))
    assert set(dtypes) == {torch.bfloat16}
    assert model.layer.weight.dtype == torch.float32


def test_training_goes_on_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def refuse(*args: Any) -> None:
        raise TorchDynamoException("no C++ compiler")

    monkeypatch.setattr(torch, "compile", lambda function, **settings: refuse)
    plain, uncompiled = Toy(), Toy()
    config, fabric = TrainingConfig(epochs=2), fabric_for("cpu", "32-true")
    train(plain, plain.loss, batches, config, fabric=fabric)
    assert all(parameter.grad is None for parameter in plain.parameters())
    with pytest.warns(UserWarning, match="goes on without torch.compile: no C\\+\\+ compiler"):
        train(uncompiled, compiled(uncompiled.loss), batches, config, fabric=fabric, compile=True)
    torch.testing.assert_close(plain.layer.weight, uncompiled.layer.weight)


def test_tensorboard_logs_on_request(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fabric = fabric_for("cpu", "32-true", tmp_path)
    model = Toy()
    train(model, model.loss, batches, TrainingConfig(epochs=3), fabric=fabric)
    (folder,) = {path.parent for path in tmp_path.rglob("events.out.*")}
    events = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in events.Scalars("fit")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [("tpu", "32-true", "device must be auto, cpu or cuda"), ("cpu", "64", "precision must be 32-true or bf16-mixed")],
)
def test_unknown_device_or_precision(device: str, precision: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fabric_for(device, precision)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU here")
def test_asking_for_a_gpu_that_is_not_there() -> None:
    with pytest.raises(TrainingError, match="no CUDA GPU"):
        fabric_for("cuda", "32-true")


@pytest.mark.parametrize("epochs", [1, 40, 100, 101, 400, 1000])
def test_a_run_is_judged_at_its_end_and_not_too_often(epochs: int) -> None:
    config = TrainingConfig(epochs=epochs)
    judged = [epoch for epoch in range(epochs) if Progression(epoch=epoch).is_judged(config)]
    assert judged[-1] == epochs - 1
    assert len({later - earlier for earlier, later in pairwise(judged)}) <= 1
    assert min(epochs, 50) <= len(judged) <= 100
    patient = TrainingConfig(epochs=epochs, patience=9)
    assert all(Progression(epoch=epoch).is_judged(patient) for epoch in range(epochs))


def test_only_epochs_that_are_judged_can_be_the_best() -> None:
    """Of 150 epochs every second is judged; the fourth judgement is the lowest."""
    scores = iter([3.0, 2.0, 1.5, 1.0, *[2.0] * 100])
    progression = run(Toy(), epochs=150, validate=lambda: next(scores))
    assert progression.best_epoch == 7
    assert [i for i, entry in enumerate(progression.history) if "validation" in entry] == list(range(1, 150, 2))


def test_a_log_gets_lines_and_a_terminal_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run of 10 epochs of 4 steps that is continued behind 5 of them, and forked behind 7."""
    config, forked = TrainingConfig(10), [None] * 8 + [7] * 12

    def told(*, terminal: bool = False) -> str:
        file = io.StringIO()
        console = Console(file=file, width=100, force_terminal=terminal)
        monkeypatch.setattr(training, "get_console", lambda: console)
        with training.progress_bar(4, show=True) as report:
            assert report is not None
            for step in range(21, 41):
                epoch, fork = (step - 1) // 4, forked[step - 21]
                report(Progression(epoch=epoch, step=step, forked=fork, steps_at_fork=28), config)
            for step in range(29, 42):  # one more than was thought
                again = {"forked": 7, "steps_at_fork": 28, "planned": [], "steps_as_planned": 40}
                report(Progression(epoch=min(9, (step - 1) // 4), step=step, **again), config)
        return file.getvalue()

    clock = count(0, 30)  # seconds
    monkeypatch.setattr(training.time, "monotonic", lambda: float(next(clock)))
    lines = told().splitlines()
    assert lines[0] == "training: epoch 6/10, 8 min left"  # 2 steps took a minute, 17 are left
    assert lines[4] == "training: epoch 8/10, 10 min left"  # and 12 more, from the fork on
    assert lines[10] == "training: epoch 8/10, with mixtures, 4 min left"
    assert lines[-1] == "training: epoch 10/10, with mixtures, 0 min left"
    assert len(lines) == 16
    monkeypatch.undo()
    assert "epoch 10/10, with mixtures 0:00:0" in re.sub(r"\x1b\[[0-9;]*m", "", told(terminal=True))
    assert told() == ""  # within a minute
    with training.progress_bar(4, show=False) as report:
        assert report is None
