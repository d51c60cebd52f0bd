"""What commands print."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from gpvae.datasets import Available
    from gpvae.evaluation import Evaluation, Score
    from gpvae.evaluation.joint import JointScore
    from gpvae.paper.reproduction import Table as PaperTable
    from gpvae.training.progress import Show

_started = time.monotonic()
BROKEN_PIPE = 128 + 13  # the code of a program that SIGPIPE ended


class _Console(Console):
    verbose = False

    def on_broken_pipe(self) -> None:
        end_quietly()


def end_quietly() -> NoReturn:
    """As after `| head`: end without a word."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            os.dup2(devnull, stream.fileno())
    raise SystemExit(BROKEN_PIPE)


STDOUT = Path("-")  # as the name of an output
_table_output: Any = sys.stdout
console = _Console(highlight=False)
error_console = _Console(stderr=True, highlight=False)


@contextmanager
def messages_apart(apart: bool) -> Iterator[None]:
    """Leave standard output to the table: whatever else is printed, progress too, goes to standard error."""
    global _table_output
    _table_output = sys.stdout
    sys.stdout = sys.stderr if apart else sys.stdout
    try:
        yield
    finally:
        sys.stdout = _table_output


def print_table(content: bytes) -> None:
    """To standard output."""
    _table_output.buffer.write(content)
    _table_output.flush()


def start_clock() -> None:
    """When a command begins."""
    global _started
    _started = time.monotonic()


def seconds_since_start() -> float:
    """Of the command."""
    return time.monotonic() - _started


def set_quiet(quiet: bool) -> None:
    console.quiet = quiet


def set_verbose(verbose: bool) -> None:
    console.verbose = verbose


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal what the command is busy with."""
    from gpvae.training.progress import busy

    with busy(what, show=not console.quiet):
        yield


def show_training() -> "Show":
    """What imputers show while they are trained."""
    return "losses" if console.verbose and not console.quiet else not console.quiet


def say(*texts: str) -> None:
    """Print texts as they are, without markup or wrapping, each on a line of its own."""
    for text in texts:
        console.print(text, markup=False, soft_wrap=True)


def complain(text: str) -> None:
    error_console.print(text, markup=False, soft_wrap=True)


def note(text: str) -> None:
    complain(f"Note: {text}")


def print_scores(result: "Evaluation", level: float, categories: int = 0) -> None:
    """A row for each method; `categories` of the hidden cells are categories."""
    cells = int(result.cells.sum())
    of_these = f", {categories:,} of them categories" if categories else ""
    caption = "\n".join(_captions(result.scores, level, cells, categories))
    table = Table(title=f"{cells:,} hidden cells{of_these}", title_justify="left", caption=caption)
    columns = _score_columns(result.scores, level)
    table.add_column("")
    for heading in columns:
        table.add_column(heading, justify="right")
    for score in result.scores:
        table.add_row(score.method, *(_format(getattr(score, name), spec) for name, spec in columns.values()))
    console.print(table)


def print_gap_scores(result: "Evaluation", level: float) -> None:
    """A row for each method that draws, if gaps of at least two cells were hidden."""
    scores = result.over_gaps(level)
    if not scores:
        return
    from gpvae.evaluation.joint import find_gaps

    length = find_gaps(result.panel, result.gap_cells).length
    cells = f"{length.min():,} cells" if length.min() == length.max() else f"{length.min():,} to {length.max():,} cells"
    margin = _sampling_error(level, len(length))
    caption = (
        f"mean, max: the share of gaps that have them in their {level:.0%} interval, ± {margin:.1%} at least\n"
        "(sums are inside as often as means); energy and variogram scores: lower is better\n"
        "roughness: steps of the draws / steps of the truth; lag 1: correlation of\n"
        "neighbouring errors in the draws / in the truth"
    )
    title = f"{len(length):,} hidden gaps of {cells}: do draws hold together?"
    table = Table(title=title, title_justify="left", caption=caption)
    table.add_column("")
    for heading in ("mean", "max", "energy", "variogram", "roughness", "lag 1"):
        table.add_column(heading, justify="right")
    for name, score in scores.items():
        table.add_row(name, *_gap_row(score))
    console.print(table)


def _gap_row(score: "JointScore") -> list[str]:
    return [
        _format(score.mean_coverage.value, ".1%"),
        _format(score.max_coverage.value, ".1%"),
        _format(score.energy, ".3f"),
        _format(score.variogram, ".3f"),
        _format(score.roughness, ".2f"),
        f"{_format(score.lag_correlation, '.2f')} / {_format(score.true_lag_correlation, '.2f')}",
    ]


def _score_columns(scores: "list[Score]", level: float) -> dict[str, tuple[str, str]]:
    """Heading → field of a score, format."""
    columns = {name.upper(): (name, ".3f") for name in ("mae", "mse", "crps", "nll")}
    columns[f"in the {level:.0%} interval"] = ("coverage", ".1%")
    if any(score.accuracy is not None for score in scores):
        columns["categories right"] = ("accuracy", ".1%")
    return columns | {"seconds": ("seconds", ".1f")}


def _captions(scores: "list[Score]", level: float, cells: int, categories: int) -> list[str]:
    captions = ["errors of numbers in standard deviations of each column; lower is better"]
    if any(score.coverage is not None for score in scores):
        margin = _sampling_error(level, cells - categories)
        captions.append(f"sampling error of the share in the interval: at least ± {margin:.1%}")
    accuracies = [score.accuracy for score in scores if score.accuracy is not None]
    if accuracies:
        margin = max(_sampling_error(share, categories) for share in accuracies)
        captions.append(f"sampling error of the share of categories right: at least ± {margin:.1%}")
    return captions


def _sampling_error(share: float, cells: int) -> float:
    """Half the width of a 95 % interval for a share of independent cells; neighbouring cells are not independent."""
    return 1.96 * math.sqrt(share * (1 - share) / cells)


def print_paper_table(name: str, content: "PaperTable", file: Path) -> None:
    table = Table(title=name, title_justify="left")
    for i, heading in enumerate(content.heading):
        table.add_column(heading, justify="left" if i < 2 else "right")
    for line in content.lines:
        table.add_row(*line)
    console.print(table)
    for text in [*content.notes, str(file)]:
        say(text)


def print_datasets(datasets: "list[Available]") -> None:
    table = Table(caption="gpvae datasets NAME fetches one")
    for heading in ("", "description", "files", "licence"):
        table.add_column(heading)
    for dataset in datasets:
        place = "here" if dataset.present else "to be downloaded"
        table.add_row(dataset.name, dataset.description, place, dataset.licence)
    console.print(table)


def _format(number: Any, spec: str) -> str:
    return "–" if number is None else format(number, spec)
