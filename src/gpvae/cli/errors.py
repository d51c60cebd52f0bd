"""Errors as one line, warnings as notes."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from gpvae.cli.printing import complain, end_quietly, note, start_clock


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors that a user can act on into one line and exit code 1, Ctrl-C into exit code 130."""
    start_clock()
    with _warnings_as_notes():
        try:
            yield
        except KeyboardInterrupt:
            stop("")
        except BrokenPipeError:
            end_quietly()
        except (ValueError, RuntimeError, OSError, MemoryError) as error:
            reason = _reason(error)
            if reason is None:
                raise
            complain(f"Error: {reason}")
            raise typer.Exit(1) from None


def _reason(error: BaseException) -> str | None:
    """What to tell the user; None for an error of ours."""
    if _is_out_of_memory(error):
        return "not enough memory: use fewer --samples, fewer --columns, or a part of the table"
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return None if isinstance(error, RuntimeError) and not _is_training_error(error) else str(error)


def _is_out_of_memory(error: BaseException) -> bool:
    """PyTorch raises an error of its own on a GPU, and on a CPU one that only its text tells apart."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and (type(error).__name__ == "OutOfMemoryError" or "allocate memory" in str(error))
    )


def stop(advice: str) -> NoReturn:
    """After Ctrl-C: say how to continue and exit."""
    complain(f"\nStopped. {advice}".rstrip())
    raise typer.Exit(130) from None


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print warnings of gpvae, and of PyTorch about the GPU, once each; silence those of other libraries."""
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    printed: set[str] = set()

    def print_once(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in printed:
            printed.add(str(message))
            note(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("always", category=UserWarning, module=r"gpvae|torch\.cuda")
        warnings.showwarning = print_once
        yield


def _is_training_error(error: RuntimeError) -> bool:
    from gpvae.training.config import TrainingError

    return isinstance(error, TrainingError)
