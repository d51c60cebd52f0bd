"""The data that the paper and its field use, from the files that their makers publish.

`load("sprites", splits=["test"])` reads files from a folder, or downloads them; `available()` says what there is.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpvae.data.panel import DataError
from gpvae.datasets import air_quality, beijing, ett, healing_mnist, physionet, pm25, sprites
from gpvae.datasets.dataset import SPLITS, DataSet
from gpvae.datasets.raw import About, cache, find

__all__ = ["NAMES", "SPLITS", "Available", "DataSet", "available", "load"]

_WHOLE = {each.ABOUT.name: each.load for each in (beijing, pm25, air_quality)}
_ETT = {about.name: which for which, about in ett.ABOUT.items()}
_ABOUT = (
    *(each.ABOUT for each in (healing_mnist, sprites, physionet, beijing, pm25, air_quality)),
    *ett.ABOUT.values(),
)
NAMES = tuple(about.name for about in _ABOUT)


class Available(NamedTuple):
    name: str
    description: str
    present: bool  # whether all files are there; else they are downloaded when they are needed
    where: Path  # the folder that they are in, or would be put into
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
    """A data set by its name, one of `NAMES`, or its `splits`, or the first `count` series of each.

    Files are looked for in `folder`, else in the folder that GPVAE_DATA names, then in the cache (GPVAE_CACHE), and
    downloaded into the cache where they are nowhere. The `seed` turns the digits of Healing MNIST and draws the splits
    of SPRITES; the others have nothing random.
    """
    chosen = SPLITS if splits is None else splits
    if name == healing_mnist.ABOUT.name:
        return healing_mnist.load(folder, splits=chosen, count=count, seed=seed, verbose=verbose)
    if name == sprites.ABOUT.name:
        return sprites.load(folder, splits=chosen, count=count, seed=seed, verbose=verbose)
    if name == physionet.ABOUT.name:
        return physionet.load(folder, splits=chosen, count=count, verbose=verbose)
    if name not in NAMES:
        raise DataError(f"there is no data set {name!r}; there are {', '.join(NAMES)}")
    if splits is not None or count is not None:
        raise DataError(f"{name} is not divided: take it whole, without splits and count")
    if name in _ETT:
        return ett.load(_ETT[name], folder, verbose=verbose)
    return _WHOLE[name](folder, verbose=verbose)


def available(folder: str | os.PathLike[str] | None = None) -> list[Available]:
    """Every data set, and whether its files are there; nothing is read or downloaded."""
    return [_available(about, folder) for about in _ABOUT]


def _available(about: About, folder: str | os.PathLike[str] | None) -> Available:
    found = [find(raw, folder) for raw in about.raws]
    place = about.raws[0].place
    paths = [path for files in found for path in files.values()]
    inside = [parent for path in paths for parent in path.parents if parent.name == place]
    where = inside[0] if all(found) else cache() / place
    return Available(about.name, about.description, all(found), where, about.licence)
