"""Progress of training: a bar on a terminal, a line now and then in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Literal

from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from gpvae.training.config import TrainingConfig
from gpvae.training.state import Stage, TrainState

SECONDS_BETWEEN_LINES = 60  # of a log
ROOM_FOR_PARTS = 120  # columns of a terminal
Show = bool | Literal["losses"]  # what to show of a training; losses: their parts too, however narrow the terminal
Report = Callable[[TrainState, TrainingConfig, Stage], None]


@contextmanager
def busy(what: str, *, show: bool) -> Iterator[None]:
    """Say on a terminal what is computed, until it is done."""
    console = get_console()
    with console.status(what) if show and console.is_terminal else nullcontext():
        yield


@contextmanager
def steps_bar(what: str, *, show: Show) -> Iterator[Callable[[int, int, float], None] | None]:
    """A bar for (steps done, steps planned, held-out loss), on a terminal."""
    console = get_console()
    if not show or not (console.is_terminal or console.is_jupyter):
        yield None
        return
    columns = ["{task.description}", BarColumn(20), "{task.percentage:>3.0f}%", TimeRemainingColumn(), "left"]
    with Progress(*columns, "{task.fields[score]}", console=console, transient=True) as progress:
        task = progress.add_task(what, total=None, score="")

        def report(done: int, planned: int, score: float) -> None:
            progress.update(task, completed=done, total=planned, score=f"held-out loss {score:.3f}")

        yield report


@contextmanager
def progress_bar(steps_per_epoch: int, *, show: Show) -> Iterator[Report | None]:
    """A bar with the time left and the latest score, or lines if the output is no terminal."""
    console = get_console()
    if not show:
        yield None
    elif not (console.is_terminal or console.is_jupyter):
        yield _lines(console, steps_per_epoch)
    else:
        parts = show == "losses" or console.width >= ROOM_FOR_PARTS
        columns = ["{task.description}", BarColumn(20), "{task.percentage:>3.0f}%", TimeRemainingColumn(), "left"]
        columns += ["{task.fields[score]}"]
        columns += [TextColumn("{task.fields[parts]}", table_column=Column(no_wrap=False))] if parts else []
        with Progress(*columns, console=console, transient=True) as progress:
            yield _bar(progress, steps_per_epoch)


def _bar(progress: Progress, steps_per_epoch: int) -> Report:
    task = progress.add_task("training", total=None, score="", parts="")

    def report(state: TrainState, config: TrainingConfig, stage: Stage) -> None:
        parts = state.history[-1] if state.history else {}
        progress.update(
            task,
            description="with mixup" if stage.name == "mixup" else "training",
            completed=_steps_done(state, stage),
            total=_steps_in_all(config, stage, steps_per_epoch),
            score=_score(state),
            parts="  ".join(f"{name} {value:.3f}" for name, value in parts.items() if name != "validation"),
        )

    return report


def _score(state: TrainState) -> str:
    """The latest, if there is one."""
    scores = [parts["validation"] for parts in state.history if "validation" in parts]
    return f"held-out loss {scores[-1]:.3f}" if scores else ""


def _lines(console: Console, steps_per_epoch: int) -> Report:
    """At most one every `SECONDS_BETWEEN_LINES`; the time left is estimated from the steps since the last."""
    last: tuple[float, int] | None = None  # its time, and the steps done by then

    def report(state: TrainState, config: TrainingConfig, stage: Stage) -> None:
        nonlocal last
        now, done = time.monotonic(), _steps_done(state, stage)
        then, before = last = last or (now, done)
        if now - then < SECONDS_BETWEEN_LINES:
            return
        left = max(0, _steps_in_all(config, stage, steps_per_epoch) - done)
        minutes = (now - then) / max(1, done - before) * left / 60
        last = now, done
        score = _score(state) and f", {_score(state)}"
        console.print(f"training: {_place(state, config, stage)}, {minutes:.0f} min left{score}", markup=False)

    return report


def _steps_done(state: TrainState, stage: Stage) -> int:
    return state.step + stage.other_steps


def _steps_in_all(config: TrainingConfig, stage: Stage, steps_per_epoch: int) -> int:
    """As far as is known by now."""
    return (config.epochs + stage.other_epochs) * steps_per_epoch


def _place(state: TrainState, config: TrainingConfig, stage: Stage) -> str:
    return f"epoch {state.epoch + 1}/{config.epochs}{', with mixup' if stage.name == 'mixup' else ''}"
