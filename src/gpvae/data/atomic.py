"""Files that appear complete or not at all, and locks that keep two runs from writing the same one."""

import datetime as dt
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from gpvae.data.times import DataError

if sys.platform != "win32":
    import fcntl

FORCE_HINT = "choose another name, or replace it with --force (in Python, overwrite=True)"


@contextmanager
def atomic_write(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary path for a file that is moved to `path` once it is complete; of a link, to where it points.

    An existing file is replaced only with `force`, and stays in place until the new one is complete. One that appears
    in the meantime is not replaced either.
    """
    require_writable(path, force=force)
    target = _resolved(path)
    remove_stale(target)
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with _held(partial):
            yield partial
            if force:
                partial.replace(target)
            else:
                _create(partial, target, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        partial.unlink(missing_ok=True)


def require_writable(path: Path, *, force: bool) -> None:
    """Check before hours of training, not after."""
    if not path.name:
        raise DataError(f"cannot write {path}: it has no file name")
    if path.exists() and not force:
        raise DataError(f"{path} exists already; {FORCE_HINT}")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"cannot write {path}: it is a device or a pipe, not a file")
    folder = _resolved(path).parent
    if not folder.is_dir():
        raise DataError(f"cannot write {path}: there is no folder {folder if path.is_symlink() else path.parent}")
    if not os.access(folder, os.W_OK):
        raise DataError(f"cannot write {path}: the folder {path.parent} is not writable")


@contextmanager
def claim(*paths: Path | None) -> Iterator[None]:
    """Keep other runs from writing these files until this one is done; they are told who holds them.

    What killed runs left of them is removed. A process may claim twice what it holds.
    """
    with ExitStack() as stack:
        for path in paths:
            if path is not None:
                stack.enter_context(_claimed(path))
        yield


@contextmanager
def _claimed(path: Path) -> Iterator[None]:
    target = _resolved(path)
    lock = target.with_name(f".{target.name}.lock")
    own = f"process {os.getpid()} on {socket.gethostname()}"
    with _held(lock) as free:
        if free is False:
            holder = lock.read_text(encoding="utf-8") if lock.exists() else "which just ended"
            if not holder.startswith(f"{own},"):
                raise DataError(f"{path} is being written by another run ({holder}): wait, or choose another name")
            yield
            return
        lock.write_text(f"{own}, since {dt.datetime.now():%Y-%m-%d %H:%M}", encoding="utf-8")
        try:
            remove_stale(target)
            yield
        finally:
            lock.unlink(missing_ok=True)


def remove_stale(target: Path) -> None:
    """Delete what runs that were killed left of a file and of its checkpoint; live ones hold a lock on theirs."""
    for path in list(target.parent.iterdir()):
        if path.name.startswith(f".{target.name}.") and path.name.endswith(".partial") and path.is_file():
            with suppress(OSError), _held(path) as free:  # it may be another user's
                if free:
                    path.unlink(missing_ok=True)


@contextmanager
def _held(path: Path) -> Iterator[bool | None]:
    """Lock a file, which is created if it is not there; False if another process has it. Killed ones let go.

    None where there are no such locks: then nobody is kept from writing, and nothing is taken for stale.
    """
    if sys.platform == "win32":
        yield None
        return
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _lock(file) and path.exists() and os.path.samestat(os.fstat(file), path.stat())
    finally:
        os.close(file)


def _lock(file: int) -> bool | None:
    if sys.platform != "win32":
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return None
    return True


def _create(partial: Path, target: Path, path: Path) -> None:
    """Give a file its name, if nothing has that name."""
    try:
        try:
            target.hardlink_to(partial)
        except FileExistsError:
            raise
        except OSError:  # a file system without hard links
            os.close(os.open(target, os.O_CREAT | os.O_EXCL))
            with ExitStack() as undo:
                undo.callback(target.unlink)
                partial.replace(target)
                undo.pop_all()
    except FileExistsError:
        raise DataError(f"{path} appeared in the meantime and was not overwritten; {FORCE_HINT}") from None


def _resolved(path: Path) -> Path:
    """Where a link points to, whether that exists or not."""
    return Path(os.path.realpath(path))
