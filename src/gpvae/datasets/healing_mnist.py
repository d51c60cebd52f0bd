"""Healing MNIST: digits that rotate by random angles for ten frames, black and white.

Each frame rotates the previous one, the first the digit itself, by a normal angle. Its standard deviation is not
published; it is inferred: with 20 degrees, mean and forward imputation of all test digits have the paper's errors (see
docs/reproduction.md).
Sequence i is made from MNIST's digit i, test digits after training digits, and row i of one array of random angles.
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
from gpvae.datasets.array_cache import cached_array
from gpvae.datasets.dataset import SPLITS, DataSet, consecutive_splits, even_panel, require_splits
from gpvae.datasets.raw import DatasetInfo, RawFiles, read

FRAMES, DEGREES, WHITE = 10, 20.0, 127
IMAGE_SHAPE = (1, 28, 28)
VERSION = 2  # of the cached arrays: increase it whenever the same seed gives other bytes
_CHUNK = 250  # images rotated together


def _file(name: str, sha256: str) -> RawFiles:
    # The original server refuses many clients; this is the mirror that torchvision uses.
    return RawFiles("mnist", f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}", {name: sha256})


@dataclass(frozen=True)
class _Digits:
    images: RawFiles
    labels: RawFiles


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
    """The digits of a split, and the index of its first sequence."""

    digits: _Digits
    start: int
    stop: int
    first: int


_PARTS = {
    "train": _Part(_TRAIN, 0, 50_000, 0),
    "validation": _Part(_TRAIN, 50_000, 60_000, 50_000),
    "test": _Part(_TEST, 0, 10_000, 60_000),
}
INFO = DatasetInfo(
    "healing_mnist",
    "Healing MNIST: 70,000 rotating digits, 10 frames of 28 × 28, labels = digits",
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
    """Complete frames in float32, 1 = white; the first `count` sequences of each split.

    A split is computed on first use (half a minute for the training split) and cached.
    """
    require_splits(INFO.name, splits, count)
    packed = {name: _packed_frames(_PARTS[name], name, folder, seed, verbose=verbose)[:count] for name in splits}
    sizes = {name: len(frames) for name, frames in packed.items()}
    values = np.empty((sum(sizes.values()), FRAMES, int(np.prod(IMAGE_SHAPE))), dtype=np.float32)
    for series, frames in zip(consecutive_splits(sizes).values(), packed.values(), strict=True):
        values[series[0] : series[-1] + 1] = np.unpackbits(frames, axis=-1, count=values.shape[-1])
    labels = [_labels(_PARTS[name], folder, verbose=verbose)[:count] for name in splits]
    ids = [_PARTS[name].first + i for name, size in sizes.items() for i in range(size)]
    panel = even_panel(values, [f"pixel {i}" for i in range(values.shape[-1])], ids)
    return DataSet(INFO.name, panel, panel.values, np.concatenate(labels), consecutive_splits(sizes), IMAGE_SHAPE)


def read_images(path: Path) -> NDArray[np.uint8]:
    """MNIST's own format (idx3, gzipped). (image, height, width)"""
    try:
        return _idx(path.read_bytes(), 3, str(path))
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def rotated(
    images: NDArray[np.uint8], seed: int, *, first: int = 0, workers: int | None = None, verbose: bool = False
) -> NDArray[np.uint8]:
    """Ten frames of each image, 1 = white. (image, frame, pixel)

    first: the index of the first image in the data set, which determines the angles.
    workers: number of threads. The result does not depend on it.
    """
    angles = np.random.default_rng(seed).normal(0, DEGREES, (first + len(images), FRAMES))[first:]
    frames = np.empty((len(images), FRAMES, images[0].size), dtype=np.uint8)
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(images), _CHUNK)]

    def fill(chunk: slice) -> None:
        for i, frame in enumerate(_rotated(images[chunk], angles[chunk])):
            frames[chunk, i] = (frame > WHITE).reshape(len(frame), -1)

    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        try:
            done = pool.map(fill, chunks)
            for _ in track(done, "Rotating digits", total=len(chunks), disable=not verbose, transient=True):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return frames


def _rotated(images: NDArray[np.uint8], angles: Floats) -> Iterator[NDArray[np.uint8]]:
    """Frame by frame, `scipy.ndimage.rotate(image, angle, reshape=False)` of the previous frame, bit for bit.

    Faster, since the spline coefficients of all images are computed at once.
    """
    cos, sin = cosdg(angles), sindg(angles)
    rotations = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], -2)  # (image, frame, 2, 2)
    centre = (np.array(images.shape[1:]) - 1) / 2
    shifts = centre - rotations @ centre  # (image, frame, 2)
    for i in range(angles.shape[1]):
        splines = spline_filter1d(spline_filter1d(images, axis=1), axis=2)
        images = np.empty_like(images)
        for spline, rotation, shift, out in zip(splines, rotations[:, i], shifts[:, i], images, strict=True):
            affine_transform(spline, rotation, shift, output=out, prefilter=False)
        yield images


def _packed_frames(
    part: _Part, split: str, folder: str | os.PathLike[str] | None, seed: int, *, verbose: bool
) -> NDArray[np.uint8]:
    """Eight pixels to a byte. (image, frame, byte)"""

    def compute() -> NDArray[np.uint8]:
        images = _contents(part.digits.images, folder, 3, verbose=verbose)[part.start : part.stop]
        return np.packbits(rotated(images, seed, first=part.first, verbose=verbose), axis=-1)

    return cached_array(f"{INFO.name}-{split}-seed{seed}-v{VERSION}", compute)


def _labels(part: _Part, folder: str | os.PathLike[str] | None, *, verbose: bool) -> NDArray[np.int64]:
    labels = _contents(part.digits.labels, folder, 1, verbose=verbose)[part.start : part.stop]
    return labels.astype(np.int64)


def _contents(
    raw: RawFiles, folder: str | os.PathLike[str] | None, dimensions: int, *, verbose: bool
) -> NDArray[np.uint8]:
    ((name, content),) = read(raw, folder, verbose=verbose).items()
    return _idx(content, dimensions, name)


def _idx(content: bytes, dimensions: int, where: str) -> NDArray[np.uint8]:
    """Decode an idx array of bytes: magic number, size of each dimension in four bytes, data."""
    try:
        plain = gzip.decompress(content)
        magic, *shape = struct.unpack(f">{1 + dimensions}i", plain[: 4 + 4 * dimensions])
        if magic != 2048 + dimensions:
            raise ValueError(f"the magic number must be {2048 + dimensions}, got {magic}")
        return np.frombuffer(plain, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        what = "images" if dimensions == 3 else "labels"
        raise DataError(f"{where} does not hold MNIST's {what}: {error}") from None
