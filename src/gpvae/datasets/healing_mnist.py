"""Healing MNIST: digits that turn by random angles for ten frames, black and white.

Each frame turns the one before, the first the digit itself, by a normal angle. Its deviation is not published; 22
degrees reproduces the paper's mean and forward imputation (see tests/test_real_data.py). Sequence i is made from
MNIST's digit i, the test digits behind the training digits, and row i of one array of angles drawn from the seed.
"""

import gzip
import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.progress import track
from scipy.ndimage import affine_transform, spline_filter1d
from scipy.special import cosdg, sindg

from gpvae.data.panel import DataError, Floats
from gpvae.datasets.built import built
from gpvae.datasets.dataset import SPLITS, DataSet, even_panel, require_splits, runs
from gpvae.datasets.raw import About, Raw, read

FRAMES, DEGREES, WHITE = 10, 22.0, 127
IMAGE_SHAPE = (1, 28, 28)
VERSION = 1  # of what is built: one more whenever the same seed gives other bytes
_CHUNK = 250  # images that are turned together


def _file(name: str, sha256: str) -> Raw:
    # The makers' own server no longer answers everybody; this is the mirror that torchvision uses.
    return Raw("mnist", f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}", {name: sha256})


@dataclass(frozen=True)
class _Digits:
    images: Raw
    labels: Raw


_TRAIN = _Digits(
    _file("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    _file("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
)
_TEST = _Digits(
    _file("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    _file("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)


@dataclass(frozen=True)
class _Part:
    """The digits of a split, and the number of its first sequence."""

    digits: _Digits
    start: int
    stop: int
    first: int


_PARTS = {
    "train": _Part(_TRAIN, 0, 50_000, 0),
    "validation": _Part(_TRAIN, 50_000, 60_000, 50_000),
    "test": _Part(_TEST, 0, 10_000, 60_000),
}
ABOUT = About(
    "healing_mnist",
    "Healing MNIST: 70,000 turning digits, 10 frames of 28 × 28, labels = digits",
    "MNIST: CC BY-SA 3.0",
    (_TRAIN.images, _TRAIN.labels, _TEST.images, _TEST.labels),
)


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    splits: Sequence[str] = SPLITS,
    count: int | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> DataSet:
    """Complete frames, 1 = white, float32; of each split, the first `count`.

    A split is built whole on its first use (the training split takes about half a minute) and kept in the cache.
    """
    require_splits(ABOUT.name, splits, count)
    packed = {name: _built(_PARTS[name], name, folder, seed, verbose=verbose)[:count] for name in splits}
    sizes = {name: len(frames) for name, frames in packed.items()}
    values = np.empty((sum(sizes.values()), FRAMES, int(np.prod(IMAGE_SHAPE))), dtype=np.float32)
    for series, frames in zip(runs(sizes).values(), packed.values(), strict=True):
        values[series[0] : series[-1] + 1] = np.unpackbits(frames, axis=-1, count=values.shape[-1])
    labels = [_labels(_PARTS[name], folder, verbose=verbose)[:count] for name in splits]
    ids = [_PARTS[name].first + i for name, size in sizes.items() for i in range(size)]
    panel = even_panel(values, [f"pixel {i}" for i in range(values.shape[-1])], ids)
    return DataSet(ABOUT.name, panel, panel.values, np.concatenate(labels), runs(sizes), IMAGE_SHAPE)


def read_images(path: Path) -> NDArray[np.uint8]:
    """MNIST's own format (idx3, gzipped). (image, height, width)"""
    try:
        return _idx(path.read_bytes(), 3, str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def turned(
    images: NDArray[np.uint8], seed: int, *, first: int = 0, workers: int | None = None, verbose: bool = False
) -> NDArray[np.uint8]:
    """Ten frames of each image, 1 = white. (image, frame, pixel)

    `first` is the number of the first image, if it is not the data's first: every sequence has its own angles. The
    bytes do not depend on the number of `workers`, threads, since the work is done outside Python.
    """
    angles = np.random.default_rng(seed).normal(0, DEGREES, (first + len(images), FRAMES))[first:]
    frames = np.empty((len(images), FRAMES, images[0].size), dtype=np.uint8)
    cuts = [slice(start, start + _CHUNK) for start in range(0, len(images), _CHUNK)]

    def fill(cut: slice) -> None:
        for i, frame in enumerate(_turned(images[cut], angles[cut])):
            frames[cut, i] = (frame > WHITE).reshape(len(frame), -1)

    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        try:
            done = pool.map(fill, cuts)
            for _ in track(done, "Turning digits", total=len(cuts), disable=not verbose, transient=True):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)  # not the rest first
            raise
    return frames


def _turned(images: NDArray[np.uint8], angles: Floats) -> Iterator[NDArray[np.uint8]]:
    """Each frame of all images: bit for bit `scipy.ndimage.rotate(image, angle, reshape=False)` of the one before.

    The spline's coefficients are found for all images at once; what is left for each is to sample them.
    """
    cos, sin = cosdg(angles), sindg(angles)
    turns = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], -2)  # (image, frame, 2, 2)
    centre = (np.array(images.shape[1:]) - 1) / 2
    shifts = centre - turns @ centre  # (image, frame, 2)
    for i in range(angles.shape[1]):
        splines = spline_filter1d(spline_filter1d(images, axis=1), axis=2)
        images = np.empty_like(images)
        for spline, turn, shift, out in zip(splines, turns[:, i], shifts[:, i], images, strict=True):
            affine_transform(spline, turn, shift, output=out, prefilter=False)
        yield images


def _built(
    part: _Part, split: str, folder: str | os.PathLike[str] | None, seed: int, *, verbose: bool
) -> NDArray[np.uint8]:
    """Eight pixels to a byte. (image, frame, byte)"""

    def make() -> NDArray[np.uint8]:
        images = _contents(part.digits.images, folder, 3, verbose=verbose)[part.start : part.stop]
        return np.packbits(turned(images, seed, first=part.first, verbose=verbose), axis=-1)

    return built(f"{ABOUT.name}-{split}-seed{seed}-v{VERSION}", make)


def _labels(part: _Part, folder: str | os.PathLike[str] | None, *, verbose: bool) -> NDArray[np.int64]:
    labels = _contents(part.digits.labels, folder, 1, verbose=verbose)[part.start : part.stop]
    return labels.astype(np.int64)


def _contents(raw: Raw, folder: str | os.PathLike[str] | None, dimensions: int, *, verbose: bool) -> NDArray[np.uint8]:
    ((name, content),) = read(raw, folder, verbose=verbose).items()
    return _idx(content, dimensions, name)


def _idx(content: bytes, dimensions: int, where: str) -> NDArray[np.uint8]:
    """An array of bytes: 0, 0, 8, the number of dimensions, each of them in four bytes, and the rest."""
    try:
        plain = gzip.decompress(content)
        magic, *shape = struct.unpack(f">{1 + dimensions}i", plain[: 4 + 4 * dimensions])
        if magic != 2048 + dimensions:
            raise ValueError(f"its magic number is {magic}, not {2048 + dimensions}")
        return np.frombuffer(plain, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        what = "images" if dimensions == 3 else "labels"
        raise DataError(f"{where} does not hold MNIST's {what}: {error}") from None
