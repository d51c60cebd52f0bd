"""Errors as one line, warnings as notes."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from gpvae.cli.printing import complain, note


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn errors that a user can act on into one line and exit code 1, Ctrl-C into exit code 130."""
    with _warnings_as_notes():
        try:
            yield
        except KeyboardInterrupt:
            stop("")
        except BrokenPipeError:
            raise  # whoever read the output is gone: Typer exits without a word
        except (ValueError, RuntimeError, OSError) as error:
            if isinstance(error, RuntimeError) and not _is_training_error(error):
                raise
            complain(f"Error: {error}")
            raise typer.Exit(1) from None


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
