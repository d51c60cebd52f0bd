"""Exact resume, and files that are refused."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as save_tensors
from toy import STEPS, Toy, batches, interrupted_after, run, two_rates, weight_norm, with_matrix

from gpvae.data.sealed import BLANK, seal
from gpvae.training.checkpoint import Checkpoint, Start
from gpvae.training.config import TrainingError
from gpvae.training.state import Snapshots, TrainState

SETTINGS: dict[str, dict[str, Any]] = {
    "constant": {},
    "annealed": {"rise": 0.05, "fall_from": 0.6},
    "averaged": {"keep": "last", "average_from": 0.3},
}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return Checkpoint(tmp_path / "run.checkpoint", "toy")


@pytest.mark.parametrize("steps", [1, STEPS, STEPS + 1, 3 * STEPS + 2])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("groups", [two_rates, with_matrix])
def test_a_resumed_run_equals_an_unbroken_one_bit_for_bit(
    checkpoint: Checkpoint, steps: int, settings: dict[str, Any], groups: Callable[[Toy], list[dict[str, Any]]]
) -> None:
    unbroken, broken, resumed = Toy(), Toy(), Toy()

    def fit(toy: Toy, **more: Any) -> TrainState:
        return run(toy, validate=weight_norm(toy), param_groups=groups(toy), **settings, **more)

    expected = fit(unbroken)
    with pytest.raises(KeyboardInterrupt):
        fit(broken, source=interrupted_after(steps), checkpoint=checkpoint)
    assert fit(resumed, checkpoint=checkpoint) == expected
    for name, value in unbroken.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_a_finished_run_is_not_repeated(checkpoint: Checkpoint) -> None:
    trained, again, epochs = Toy(), Toy(), list[int]()
    expected = run(trained, validate=weight_norm(trained), checkpoint=checkpoint)
    state = run(again, lambda epoch: epochs.append(epoch) or batches(epoch), checkpoint=checkpoint)
    assert epochs == []
    assert state == expected
    assert torch.equal(again.weight, trained.weight)


def test_a_longer_run_continues_a_finished_one(checkpoint: Checkpoint) -> None:
    longer, unbroken = Toy(), Toy()
    run(Toy(), epochs=2, checkpoint=checkpoint)
    run(longer, epochs=4, checkpoint=checkpoint)
    run(unbroken, epochs=4)
    assert torch.equal(longer.weight, unbroken.weight)


def test_an_interrupted_run_saves_the_steps_done_so_far(checkpoint: Checkpoint) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Toy(), interrupted_after(6), checkpoint=checkpoint)
    start = checkpoint.load()
    assert (start.state.step, start.state.epoch, start.state.step_in_epoch) == (6, 1, 2)
    assert not torch.equal(start.weights["layer.weight"], Toy().weight)


def test_a_checkpoint_goes_before_a_start(checkpoint: Checkpoint) -> None:
    points: list[Start] = []
    run(Toy(), until=lambda state: state.epoch == 1, on_stop=points.append)
    expected = run(Toy(), checkpoint=checkpoint)
    toy = Toy()
    assert run(toy, start=points[0], checkpoint=checkpoint) == expected
    assert toy.kl_scales == []


def test_all_of_a_run_is_saved(checkpoint: Checkpoint) -> None:
    """Numbers that JSON has no name for, integers and tensors that are not contiguous too."""
    weights = {"a": torch.arange(6.0).reshape(2, 3).T, "n": torch.tensor(3)}
    state = TrainState(3, 12, 1, {"loss": float("nan")}, float("inf"), 2, 4, [{"loss": 0.1}, {"loss": 1e-300}])
    saved = Start(weights, {"0.step": torch.tensor(2.0)}, Snapshots({"a": torch.ones(2)}, {"a": torch.zeros(2)}), state)
    checkpoint.save(saved)
    loaded = checkpoint.load()
    assert repr(loaded.state) == repr(state)  # nan is not equal to itself
    for mine, theirs in [
        (saved.weights, loaded.weights),
        (saved.moments, loaded.moments),
        (saved.snapshots.best, loaded.snapshots.best),
        (saved.snapshots.average, loaded.snapshots.average),
    ]:
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_checkpoints_of_other_runs_are_refused(checkpoint: Checkpoint) -> None:
    run(Toy(), checkpoint=checkpoint)
    with pytest.raises(TrainingError, match=r"run\.checkpoint belongs to a run with other data or settings"):
        run(Toy(), checkpoint=Checkpoint(checkpoint.path, "another"))


def test_a_cut_file_is_refused(checkpoint: Checkpoint) -> None:
    run(Toy(), checkpoint=checkpoint)
    checkpoint.path.write_bytes(checkpoint.path.read_bytes()[:100])
    with pytest.raises(TrainingError, match=r"run\.checkpoint is not a checkpoint, or a damaged one"):
        run(Toy(), checkpoint=checkpoint)


STATE = asdict(TrainState())


def write(checkpoint: Checkpoint, tensors: dict[str, torch.Tensor], header: dict[str, str]) -> None:
    """A checkpoint with any content, and a checksum that fits."""
    content = save_tensors(tensors, {"fingerprint": "toy", "sha256": BLANK, **header})
    checkpoint.path.write_bytes(seal(content))


@pytest.mark.parametrize(
    "state",
    [
        json.dumps(STATE | {"__class__": "x"}),
        json.dumps({name: value for name, value in STATE.items() if name != "averaged"}),
        json.dumps(list(STATE)),
        "{",
        None,
    ],
)
def test_a_state_with_other_fields_is_refused(checkpoint: Checkpoint, state: str | None) -> None:
    write(checkpoint, Toy().state_dict(), {} if state is None else {"state": state})
    with pytest.raises(TrainingError, match="not a checkpoint, or a damaged one"):
        checkpoint.load()


def test_a_file_without_some_weights_is_refused(checkpoint: Checkpoint) -> None:
    run(Toy(), checkpoint=checkpoint)
    tensors = load_file(checkpoint.path)
    del tensors["weights.layer.bias"]
    write(checkpoint, tensors, {"state": json.dumps(STATE)})
    with pytest.raises(TrainingError, match="not a checkpoint, or a damaged one"):
        run(Toy(), checkpoint=checkpoint)


def test_removing_a_checkpoint_removes_its_stages(checkpoint: Checkpoint) -> None:
    start, other = Start({}, {}, Snapshots(), TrainState()), checkpoint.path.with_name("run.checkpoint.other")
    other.touch()
    checkpoint.remove()  # nothing there yet
    for each in (checkpoint, checkpoint.stage("planned"), checkpoint.stage("mixup")):
        each.save(start)
    assert len(list(checkpoint.path.parent.iterdir())) == 4
    checkpoint.remove()
    assert list(checkpoint.path.parent.iterdir()) == [other]
