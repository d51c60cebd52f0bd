"""The data sets of the paper and of the imputation literature, from the files as published.

`load("sprites", splits=["test"])` reads files from a folder, or downloads them; `available()` lists all data sets.
Needs the packages of the extra `datasets`.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpvae.data.panel import DataError
from gpvae.datasets import air_quality, beijing, ett, healing_mnist, physionet, pm25, sprites
from gpvae.datasets.dataset import SPLITS, DataSet
from gpvae.datasets.raw import DatasetInfo, cache, find

__all__ = ["NAMES", "SPLITS", "Available", "DataSet", "available", "load"]

_WITHOUT_SPLITS = {each.INFO.name: each.load for each in (beijing, pm25, air_quality)}
_ETT = {about.name: which for which, about in ett.INFO.items()}
_INFOS = (
    *(each.INFO for each in (healing_mnist, sprites, physionet, beijing, pm25, air_quality)),
    *ett.INFO.values(),
)
NAMES = tuple(about.name for about in _INFOS)


class Available(NamedTuple):
    name: str
    description: str
    present: bool  # whether all files are there; if not, `load` downloads them
    where: Path  # the folder that has the files, or that they are downloaded to
    licence: str


def load(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    *,
    splits: Sequence[str] | None = None,
    count: int | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> DataSet:
    """Load a data set by its name, one of `NAMES`; only some `splits`, or the first `count` series of each.

    Files are searched for in `folder`, or else in the folder that GPVAE_DATA names, then in the cache (GPVAE_CACHE).
    Those not found are downloaded to the cache. The `seed` draws the rotations of Healing MNIST and the splits of
    SPRITES.
    """
    chosen = SPLITS if splits is None else splits
    if name == healing_mnist.INFO.name:
        return healing_mnist.load(folder, splits=chosen, count=count, seed=seed, verbose=verbose)
    if name == sprites.INFO.name:
        return sprites.load(folder, splits=chosen, count=count, seed=seed, verbose=verbose)
    if name == physionet.INFO.name:
        return physionet.load(folder, splits=chosen, count=count, verbose=verbose)
    if name not in NAMES:
        raise DataError(f"there is no data set {name!r}; the data sets are {', '.join(NAMES)}")
    if splits is not None or count is not None:
        raise DataError(f"{name} has no splits: load it without splits and count")
    if name in _ETT:
        return ett.load(_ETT[name], folder, verbose=verbose)
    return _WITHOUT_SPLITS[name](folder, verbose=verbose)


def available(folder: str | os.PathLike[str] | None = None) -> list[Available]:
    """Every data set, and whether its files are there. Nothing is read or downloaded."""
    return [_available(about, folder) for about in _INFOS]


def _available(about: DatasetInfo, folder: str | os.PathLike[str] | None) -> Available:
    found = [find(raw, folder) for raw in about.raw_files]
    name = about.raw_files[0].folder
    paths = [path for files in found for path in files.values()]
    folders = [parent for path in paths for parent in path.parents if parent.name == name]
    where = folders[0] if all(found) else cache() / name
    return Available(about.name, about.description, all(found), where, about.licence)
