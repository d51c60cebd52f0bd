"""Progress of training: a bar on a terminal, a line now and then in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeRemainingColumn

from gpvae.training.config import TrainingConfig
from gpvae.training.state import Stage, TrainState

SECONDS_BETWEEN_LINES = 60  # of a log
Report = Callable[[TrainState, TrainingConfig, Stage], None]


@contextmanager
def progress_bar(steps_per_epoch: int, *, show: bool) -> Iterator[Report | None]:
    """A bar with the time left and the parts of the loss, or lines if the output is no terminal."""
    console = get_console()
    if not show:
        yield None
    elif not (console.is_terminal or console.is_jupyter):
        yield _lines(console, steps_per_epoch)
    else:
        columns = ["training", BarColumn(), "{task.fields[place]}", TimeRemainingColumn(), "{task.fields[parts]}"]
        with Progress(*columns, console=console, transient=True) as progress:
            yield _bar(progress, steps_per_epoch)


def _bar(progress: Progress, steps_per_epoch: int) -> Report:
    task = progress.add_task("training", total=None, place="", parts="")

    def report(state: TrainState, config: TrainingConfig, stage: Stage) -> None:
        parts = state.history[-1] if state.history else {}
        progress.update(
            task,
            completed=_steps_done(state, stage),
            total=_steps_in_all(config, stage, steps_per_epoch),
            place=_place(state, config, stage),
            parts="  ".join(f"{name} {value:.3f}" for name, value in parts.items()),
        )

    return report


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
        console.print(f"training: {_place(state, config, stage)}, {minutes:.0f} min left", markup=False)

    return report


def _steps_done(state: TrainState, stage: Stage) -> int:
    return state.step + stage.other_steps


def _steps_in_all(config: TrainingConfig, stage: Stage, steps_per_epoch: int) -> int:
    """As far as is known by now."""
    return (config.epochs + stage.other_epochs) * steps_per_epoch


def _place(state: TrainState, config: TrainingConfig, stage: Stage) -> str:
    return f"epoch {state.epoch + 1}/{config.epochs}{', with mixup' if stage.name == 'mixup' else ''}"
