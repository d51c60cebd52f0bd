"""A cache of arrays that take long to compute."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.atomic import atomic_write
from gpvae.datasets.raw import cache_folder

_BLOCK = 1 << 20


def cached_array(name: str, compute: Callable[[], NDArray[Any]]) -> NDArray[Any]:
    """The array of this name, memory-mapped; computed if the cache does not have it, or has it damaged."""
    path = cache_folder("built") / f"{name}.npy"
    if not _is_intact(path):
        _write(path, compute())
    return np.load(path, mmap_mode="r")


def _write(path: Path, array: NDArray[Any]) -> None:
    """An .npy file followed by its SHA-256, which readers of .npy ignore."""
    with atomic_write(path, force=True) as partial:
        with partial.open("wb") as file:
            np.save(file, array, allow_pickle=False)
        with partial.open("ab") as file:
            file.write(_digest(partial, partial.stat().st_size))


def _is_intact(path: Path) -> bool:
    size = path.stat().st_size - hashlib.sha256().digest_size if path.is_file() else 0
    if size <= 0:
        return False
    with path.open("rb") as file:
        file.seek(size)
        return file.read() == _digest(path, size)


def _digest(path: Path, size: int) -> bytes:
    """SHA-256 of the first `size` bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (block := file.read(min(size, _BLOCK))):
            digest.update(block)
            size -= len(block)
    return digest.digest()
