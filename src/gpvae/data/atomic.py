"""Files that appear complete or not at all."""

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpvae.data.times import DataError


@contextmanager
def atomic_write(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary path for a file or folder that is moved to `path` once it is complete.

    An existing file is replaced only with `force`, and stays in place until the new one is complete.
    """
    require_writable(path, force=force)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        _replace(partial, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        _remove(partial)


def require_writable(path: Path, *, force: bool) -> None:
    """Check before hours of training, not after."""
    if not path.name:
        raise DataError(f"cannot write {path}: it has no file name")
    if path.exists() and not force:
        hint = "choose another name, or replace it with --force (in Python, overwrite=True)"
        raise DataError(f"{path} exists already; {hint}")
    if not path.parent.is_dir():
        raise DataError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"cannot write {path}: the folder {path.parent} is not writable")


def _replace(partial: Path, path: Path) -> None:
    """One rename for a file; for a folder, which a rename cannot replace, move the old one away first."""
    if not (path.is_dir() and partial.is_dir()):
        partial.replace(path)
        return
    old = partial.with_name(partial.name + ".old")
    path.rename(old)
    try:
        partial.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old, ignore_errors=True)  # the new folder is in place, so a failure here is harmless


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
