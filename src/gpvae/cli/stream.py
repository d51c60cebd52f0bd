"""`gpvae stream`."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from gpvae.cli import options
from gpvae.cli.errors import one_line_errors
from gpvae.cli.source import Missing, codes

if TYPE_CHECKING:
    from gpvae.imputers.stream import Stream


def stream(
    model: Annotated[Path, typer.Argument(help="A model from `gpvae fit --method gp-factor`.", show_default=False)],
    id: options.Id = None,
    time: options.Time = None,
    interval: Annotated[
        float, typer.Option(callback=options.check_probability, help="Level of the intervals; 0 for none.")
    ] = 0.9,
    missing: Missing = None,
    state: Annotated[
        Path | None,
        typer.Option(help="A file to go on from, if it is there; at the end, the state is written to it."),
    ] = None,
) -> None:
    """Fill rows as they arrive: CSV lines from standard input, filled lines to standard output.

    `tail -n +1 -f sensor.csv | gpvae stream model/ --state sensor.state`

    The first line is the header. Each line is filled from itself and the lines before it, and written at once. Every
    column of the model gets two more, `<name>_lower` and `<name>_upper`, which are empty where it was observed. Series
    and times are in the columns that the model was fitted with, unless --id and --time name others; without a column
    of times, lines are one time step apart.
    """
    with one_line_errors():
        fresh = _fresh_stream(model, interval)
        streams = _resumed(fresh, state)
        from gpvae.cli.lines import LineFiller, Lines
        from gpvae.data.reading import Reading

        names = {"id": id or fresh.schema.id, "time": time or fresh.schema.time}
        with _interruptible(sys.stdin.buffer) as source:
            reading = Reading(missing=codes(missing))
            filler = LineFiller(Lines(source), fresh, streams, reading, **names, intervals=interval > 0)
            with _state_saved(streams, state):
                for line in filler:
                    sys.stdout.buffer.write(line)
                    sys.stdout.buffer.flush()


def _fresh_stream(model: Path, interval: float) -> "Stream":
    from gpvae import DataError, GPFactor, load

    imputer = load(model, device="cpu")
    if not isinstance(imputer, GPFactor):
        fit = "gpvae fit TABLE --method gp-factor -o MODEL"
        raise DataError(f"{model} holds a {imputer.name}, which does not fill rows as they arrive; fit one by `{fit}`")
    return imputer.stream(level=interval or 0.9)


def _resumed(fresh: "Stream", state: Path | None) -> "dict[str | None, Stream]":
    from gpvae.data.atomic import require_writable
    from gpvae.imputers.stream import load_streams

    if state is None:
        return {}
    require_writable(state, force=True)
    return load_streams(fresh, state) if state.exists() else {}


@contextmanager
def _interruptible(source: BinaryIO) -> Iterator[Iterator[bytes]]:
    """Lines of `source`. Ctrl-C and SIGTERM end the command between lines, so that no row is written and not saved."""
    waiting, received = False, 0

    def receive(number: int, _: object) -> None:
        nonlocal received
        received = number
        if waiting:
            end()

    def end() -> None:
        raise KeyboardInterrupt if received == signal.SIGINT else SystemExit(128 + received)

    def lines() -> Iterator[bytes]:
        nonlocal waiting
        while True:
            waiting = True
            if received:
                end()
            line = source.readline()
            waiting = False
            if not line:
                return
            yield line

    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lines()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _state_saved(streams: "dict[str | None, Stream]", state: Path | None) -> Iterator[None]:
    """However the lines end: at the last one, at a broken one, with a closed pipe, by Ctrl-C or SIGTERM."""
    from gpvae.imputers.stream import save_streams

    try:
        yield
    finally:
        if state is not None:
            save_streams(streams, state, overwrite=True)
