"""The loop: what it calls and in which order, what it keeps, when it stops."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.single_device import SingleDeviceStrategy
from torch import Tensor, nn
from toy import STEPS, Toy, batches, interrupted_after, run, scripted, two_rates, weight_norm, with_matrix

from gpvae.training.checkpoint import Checkpoint, Start
from gpvae.training.config import DivergedError, TrainingConfig
from gpvae.training.devices import compiled, make_fabric
from gpvae.training.optimizers import Muon
from gpvae.training.schedule import LAST_LR_FACTOR, lr_factor
from gpvae.training.seeds import step_seed
from gpvae.training.state import TrainState

ANNEALED: dict[str, Any] = {"rise": 0.05, "fall_from": 0.6}


def test_history_holds_the_means_of_every_epoch() -> None:
    state = run(Toy(), epochs=3, validate=scripted(3.0, 2.0, 1.0))
    assert [set(entry) for entry in state.history] == [{"loss", "fit", "size", "gradient", "validation"}] * 3
    for entry in state.history:
        assert entry["loss"] == pytest.approx(entry["fit"] + entry["size"])
    assert [entry["validation"] for entry in state.history] == [3.0, 2.0, 1.0]
    assert (state.epoch, state.step, state.step_in_epoch, state.best_epoch) == (3, 3 * STEPS, 0, 2)


def test_weights_of_the_best_epoch_are_kept_and_patience_ends_training() -> None:
    toy, weights, scores = Toy(), list[Tensor](), scripted(3.0, 1.0, 2.0, 2.0, 0.0)

    def validate() -> float:
        weights.append(toy.weight)
        return scores()

    state = run(toy, epochs=10, patience=2, validate=validate)
    assert [entry["validation"] for entry in state.history] == [3.0, 1.0, 2.0, 2.0]
    assert (state.best_epoch, state.best_score) == (1, 1.0)
    assert torch.equal(toy.weight, weights[1])


@pytest.mark.parametrize(("keep", "kept"), [("last", 3), ("best", 1)])
def test_the_last_weights_are_kept_or_the_best(keep: str, kept: int, tmp_path: Path) -> None:
    toy, scores, weights = Toy(), scripted(3, 1, 2, 2), list[Tensor]()
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")

    def validate() -> float:
        weights.append(toy.weight)
        return scores()

    run(toy, keep=keep, validate=validate, checkpoint=checkpoint)
    assert [torch.equal(toy.weight, each) for each in weights] == [epoch == kept for epoch in range(4)]
    assert bool(checkpoint.load().snapshots.best) == (keep == "best")


def test_without_validation_the_last_weights_are_kept() -> None:
    short, long = Toy(), Toy()
    run(short, epochs=2)
    run(long, epochs=3)
    assert not torch.equal(short.weight, long.weight)


def test_only_validated_epochs_can_be_the_best() -> None:
    """Of 150 epochs two in three are validated; the fourth score is the lowest."""
    state = run(Toy(), epochs=150, validate=scripted(3.0, 2.0, 1.5, 1.0, *[2.0] * 96))
    validated = [epoch for epoch, entry in enumerate(state.history) if "validation" in entry]
    assert len(validated) == 100
    assert state.best_epoch == validated[3] == 5


def test_kl_scale_rises_to_one_and_patience_waits_for_it() -> None:
    toy = Toy()
    state = run(toy, epochs=10, patience=2, kl_warm_up=3, validate=lambda: 1.0)
    assert toy.kl_scales[::STEPS] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert state.best_epoch == 0


@pytest.mark.parametrize("epochs", [5, 8])
def test_the_last_epoch_ends_with_the_average_of_weights(epochs: int) -> None:
    """Over the epochs from the given share on. The last validation score is that of the average."""
    toy, ends, validated = Toy(), list[Tensor](), list[Tensor]()

    def source(epoch: int) -> Iterator[Tensor]:
        yield from batches(epoch)
        ends.append(toy.weight)

    def validate() -> float:
        validated.append(toy.weight)
        return 0.0

    state = run(toy, source, epochs=epochs, keep="last", average_from=0.5, learning_rate=0.3, validate=validate)
    averaged = ends[-(epochs // 2) :]
    assert state.averaged == len(averaged)
    torch.testing.assert_close(toy.weight, torch.stack(averaged).mean(0))
    assert not torch.allclose(toy.weight, ends[-1], rtol=0.1)
    assert torch.equal(validated[-1], toy.weight)
    assert all(torch.equal(*pair) for pair in zip(validated[:-1], ends[:-1], strict=True))


def test_without_averaging_the_last_weights_stay() -> None:
    plain, averaged = Toy(), Toy()
    assert run(plain, keep="last").averaged == 0
    run(averaged, keep="last", average_from=0.5)
    assert not torch.allclose(plain.weight, averaged.weight, rtol=1e-3)


def test_until_ends_training_between_epochs_with_the_weights_as_they_are() -> None:
    """Even if earlier weights were better."""
    toy, short, asked, points = Toy(), Toy(), list[int](), list[Start]()

    def until(state: TrainState) -> bool:
        asked.append(state.epoch)
        return state.epoch == 2

    state = run(toy, epochs=4, until=until, on_stop=points.append, validate=scripted(1, 2))
    run(short, epochs=2, keep="last")
    assert asked == [0, 1, 2]
    assert (state.epoch, len(state.history)) == (2, 2)
    assert torch.equal(toy.weight, short.weight)
    assert torch.equal(points[0].weights["layer.weight"], toy.weight)
    finished = run(Toy(), epochs=2, until=lambda state: False, on_stop=points.append)
    assert finished.epoch == 2
    assert len(points) == 1


@pytest.mark.parametrize("settings", [ANNEALED, {"average_from": 0.25, "keep": "last"}, {"keep": "best"}])
@pytest.mark.parametrize("groups", [two_rates, with_matrix])
def test_a_run_started_where_another_stopped_equals_an_unbroken_one(settings: dict[str, Any], groups: Any) -> None:
    """Bit for bit, and as often as one likes."""
    unbroken, trunk, points = Toy(), Toy(), list[Start]()
    expected = run(unbroken, validate=weight_norm(unbroken), param_groups=groups(unbroken), **settings)
    score = weight_norm(trunk)
    run(
        trunk,
        validate=score,
        param_groups=groups(trunk),
        until=lambda state: state.epoch == 2,
        on_stop=points.append,
        **settings,
    )
    for _ in range(2):
        branch = Toy()
        state = run(branch, validate=weight_norm(branch), param_groups=groups(branch), start=points[0], **settings)
        assert state == expected
        assert torch.equal(branch.weight, unbroken.weight)
        assert torch.equal(branch.layer.bias, unbroken.layer.bias)


def test_a_second_interrupt_is_immediate_and_the_handler_is_restored() -> None:
    before = signal.getsignal(signal.SIGINT)

    def impatient(epoch: int) -> Iterator[Tensor]:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        yield from batches(epoch)

    toy = Toy()
    with pytest.raises(KeyboardInterrupt):
        run(toy, impatient)
    assert toy.kl_scales == []
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_after_the_last_step_is_not_lost(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")

    def validate() -> float:
        signal.raise_signal(signal.SIGINT)
        return 0.0

    with pytest.raises(KeyboardInterrupt):
        run(Toy(), epochs=1, validate=validate, checkpoint=checkpoint)
    assert checkpoint.load().state.epoch == 1


def test_training_works_outside_the_main_thread() -> None:
    states: list[TrainState] = []
    thread = threading.Thread(target=lambda: states.append(run(Toy(), epochs=2)))
    thread.start()
    thread.join()
    assert states[0].epoch == 2


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_training(value: float) -> None:
    toy = Toy()
    toy.spoil = lambda part: part * value if len(toy.kl_scales) == 6 else part
    with pytest.raises(DivergedError, match=rf"the loss is not finite at step 5: loss is {value}, size is {value}"):
        run(toy)


def test_a_gradient_that_is_not_finite_stops_training_even_in_the_last_step() -> None:
    toy = Toy()
    zero_with_bad_gradient = lambda part: (0 * part).sqrt().sum()  # noqa: E731
    toy.spoil = lambda part: part if len(toy.kl_scales) < STEPS else part + zero_with_bad_gradient(part)
    with pytest.raises(DivergedError, match=f"the loss is not finite at step {STEPS - 1}: gradient is nan"):
        run(toy, epochs=1)


class AdamLog:
    """Learning rates of every group, and the norm of the gradient, in each step of Adam."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.rates, self.norms, step = list[list[float]](), list[float](), torch.optim.Adam.step

        def logged(optimizer: torch.optim.Adam, closure: None = None) -> None:
            self.rates.append([float(group["lr"]) for group in optimizer.param_groups])
            grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
            self.norms.append(float(torch.cat([grad.flatten() for grad in grads if grad is not None]).norm()))
            step(optimizer, closure)

        monkeypatch.setattr(torch.optim.Adam, "step", logged)


@pytest.fixture
def adam(monkeypatch: pytest.MonkeyPatch) -> AdamLog:
    return AdamLog(monkeypatch)


@pytest.mark.parametrize("clip_norm", [1.0, 10.0])
def test_longer_gradients_are_clipped_to_the_norm_and_no_others(adam: AdamLog, clip_norm: float) -> None:
    toy = Toy()
    toy.spoil = lambda part: 1e6 * part
    state = run(toy, epochs=1, clip_norm=clip_norm)
    assert adam.norms == pytest.approx([clip_norm] * STEPS, rel=1e-3)
    assert state.history[0]["gradient"] > 1e4  # as it was
    adam.norms.clear()
    state = run(Toy(), epochs=1, clip_norm=100.0)
    assert sum(adam.norms) / STEPS == pytest.approx(state.history[0]["gradient"], rel=1e-6)


def test_learning_rates_of_all_groups_follow_the_schedule(adam: AdamLog) -> None:
    toy = Toy()
    run(toy, epochs=11, param_groups=two_rates(toy), **ANNEALED)
    config = TrainingConfig(epochs=11, **ANNEALED)
    factors = [lr_factor(epoch, config) for epoch in range(11) for _ in range(STEPS)]
    assert adam.rates == [[0.05 * factor, 0.5 * factor] for factor in factors]
    assert len(set(factors)) == 6


@pytest.mark.parametrize(("epochs", "settings"), [(5, {}), (1, {}), (1, ANNEALED)])
def test_learning_rates_stay_unless_annealed_over_several_epochs(
    adam: AdamLog, epochs: int, settings: dict[str, Any]
) -> None:
    toy = Toy()
    run(toy, epochs=epochs, param_groups=two_rates(toy), **settings)
    assert adam.rates == [[0.05, 0.5]] * (epochs * STEPS)


def test_a_resumed_run_continues_at_the_learning_rate_of_its_epoch(adam: AdamLog, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")
    run(Toy(), **ANNEALED)
    unbroken = adam.rates.copy()
    assert unbroken[-1] == pytest.approx([0.05 * LAST_LR_FACTOR])
    adam.rates.clear()
    with pytest.raises(KeyboardInterrupt):
        run(Toy(), interrupted_after(2 * STEPS + 1), checkpoint=checkpoint, **ANNEALED)
    assert len(adam.rates) == 2 * STEPS + 1
    run(Toy(), checkpoint=checkpoint, **ANNEALED)
    assert adam.rates == unbroken


def test_matrices_take_muon_steps_at_the_same_learning_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, step = list[tuple[int, float]](), Muon._step_matrices

    def logged(self: Muon, matrices: list[Tensor], lr: float) -> None:
        steps.append((len(matrices), lr))
        step(self, matrices, lr)

    monkeypatch.setattr(Muon, "_step_matrices", logged)
    toy = Toy()
    run(toy, epochs=11, param_groups=two_rates(toy), **ANNEALED)
    assert steps == []
    run(toy, epochs=11, param_groups=with_matrix(toy), **ANNEALED)
    config = TrainingConfig(epochs=11, **ANNEALED)
    assert steps == [(1, 0.05 * lr_factor(epoch, config)) for epoch in range(11) for _ in range(STEPS)]


def test_global_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(Toy())
    assert torch.equal(torch.rand(3), expected)


def test_every_step_has_random_numbers_of_its_own() -> None:
    toy, seeds = Toy(), list[int]()
    toy.register_forward_pre_hook(lambda _, inputs: seeds.append(inputs[1].initial_seed()))
    run(toy, epochs=2, seed=3)
    assert seeds == [step_seed(3, step) for step in range(2 * STEPS)]


def test_training_and_validation_have_their_modes() -> None:
    toy, modes = Toy(), list[str]()
    toy.layer.register_forward_hook(lambda layer, *_: modes.append("train" if layer.training else "eval"))

    def validate() -> float:
        toy.layer(torch.zeros(1, 3))
        return 0.0

    run(toy.eval(), epochs=2, validate=validate)
    assert modes == [*["train"] * STEPS, "eval"] * 2


class Wrapper(nn.Module):
    """What a distributed strategy does to a module."""

    calls = 0

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        self.calls += 1
        return self.module(*args)


class WrappingStrategy(SingleDeviceStrategy):
    def setup_module(self, module: nn.Module) -> nn.Module:
        self.wrapper = Wrapper(super().setup_module(module))
        return self.wrapper


def test_steps_go_through_the_module_that_fabric_returns(tmp_path: Path) -> None:
    """As they must for several devices, where that is not the objective; checkpoints are the same all the same."""
    strategy, wrapped, plain = WrappingStrategy(), Toy(), Toy()
    checkpoint = Checkpoint(tmp_path / "run.checkpoint", "toy")
    fabric = Fabric(accelerator="cpu", strategy=strategy)
    with pytest.raises(KeyboardInterrupt):
        run(wrapped, interrupted_after(STEPS + 1), fabric=fabric, checkpoint=checkpoint)
    assert strategy.wrapper.calls == STEPS + 1
    resumed = run(Toy(), checkpoint=checkpoint)
    assert resumed == run(plain)


def test_no_gradients_are_left_behind() -> None:
    toy = Toy()
    run(toy, epochs=1)
    assert all(parameter.grad is None for parameter in toy.parameters())


def test_training_continues_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo.exc import TorchDynamoException

    def refuse(*args: Any) -> None:
        raise TorchDynamoException("no C++ compiler")

    plain, uncompiled = Toy(), Toy()
    run(plain, epochs=2)
    monkeypatch.setattr(torch, "compile", lambda function, **settings: refuse)
    assert compiled(len) is not len
    with pytest.warns(UserWarning, match="training continues without torch.compile: no C\\+\\+ compiler"):
        run(uncompiled, epochs=2, compile=True)
    torch.testing.assert_close(plain.weight, uncompiled.weight)


def test_bf16_computes_in_bf16_and_leaves_weights_and_inputs_in_float32() -> None:
    toy, inputs, outputs = Toy(), list[torch.dtype](), list[torch.dtype]()
    toy.register_forward_pre_hook(lambda _, args: inputs.extend((args[0].dtype, args[2].dtype)))
    toy.layer.register_forward_hook(lambda _, args, output: outputs.append(output.dtype))
    run(toy, epochs=1, fabric=make_fabric("cpu", "bf16-mixed"))
    assert set(inputs) == {torch.float32}
    assert set(outputs) == {torch.bfloat16}
    assert toy.layer.weight.dtype == torch.float32


def test_tensorboard_logs_every_epoch(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(Toy(), epochs=3, fabric=make_fabric("cpu", "32-true", tmp_path))
    (folder,) = {path.parent for path in tmp_path.rglob("events.out.*")}
    events = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in events.Scalars("fit")] == [1, 2, 3]
