"""What is said while training."""

import io
import re
from itertools import count

import pytest
from rich.console import Console

from gpvae.training import progress
from gpvae.training.config import TrainingConfig
from gpvae.training.state import Stage, TrainState


def reported(monkeypatch: pytest.MonkeyPatch, *, width: int = 0, show: progress.Show = True) -> str:
    """Of a run of 10 epochs of 4 steps that is resumed after 5 of them, and forks after 7."""
    file, config = io.StringIO(), TrainingConfig(10)
    console = Console(file=file, width=width or 100, force_terminal=width > 0)
    monkeypatch.setattr(progress, "get_console", lambda: console)
    with progress.progress_bar(4, show=show) as report:
        assert report is not None

        def steps(numbers: range, stage: Stage) -> None:
            for step in numbers:
                report(
                    TrainState(epoch=min(9, (step - 1) // 4), step=step, history=[{"nll": 0.5, "validation": 0.25}]),
                    config,
                    stage,
                )

        steps(range(21, 29), Stage())
        steps(range(29, 41), Stage("planned", other_epochs=3))
        steps(range(29, 42), Stage("mixup", other_epochs=3, other_steps=12))  # one more than planned
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", file.getvalue())


def test_a_log_gets_a_line_every_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count(0, 30)  # seconds
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(clock)))
    lines = reported(monkeypatch).splitlines()
    assert lines[0] == "training: epoch 6/10, 8 min left, held-out loss 0.250"  # two steps took a minute, 17 are left
    assert lines[4] == "training: epoch 8/10, 10 min left, held-out loss 0.250"  # and 12 more since the fork
    assert lines[10] == "training: epoch 8/10, with mixup, 4 min left, held-out loss 0.250"
    assert lines[-1] == "training: epoch 10/10, with mixup, 0 min left, held-out loss 0.250"
    assert len(lines) == 16


def test_a_log_gets_nothing_within_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reported(monkeypatch) == ""


@pytest.mark.parametrize(("width", "show", "parts"), [(80, True, False), (80, "losses", True), (120, True, True)])
def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch, width: int, show: progress.Show, parts: bool) -> None:
    """With share, time left and score in 80 columns; the parts of the loss where there is room, or if asked for."""
    bar = reported(monkeypatch, width=width, show=show)
    assert re.search(r"with mixup ━+ 100% 0:00:00 left held-out loss 0.250", bar)
    assert ("nll 0.500" in " ".join(bar.split())) is parts
    assert "…" not in bar


def test_work_is_named_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, show in ((True, True), (True, False), (False, True)):
        console = Console(file=io.StringIO(), width=80, force_terminal=terminal)
        monkeypatch.setattr(progress, "get_console", lambda console=console: console)
        with progress.busy("filling gaps", show=show):
            pass
        assert isinstance(console.file, io.StringIO)
        assert ("filling gaps" in console.file.getvalue()) is (terminal and show)


def test_nothing_is_shown_unless_wanted() -> None:
    with progress.progress_bar(4, show=False) as report:
        assert report is None
