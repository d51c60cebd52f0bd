"""Healing MNIST: digits that turn by random angles for ten frames, black and white.

Each frame turns the one before, the first the digit itself, by a normal angle. Its deviation is not published; 22
degrees reproduces the paper's mean and forward imputation (see tests/test_real_data.py).
"""

import gzip
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import rotate

from gpvae.panel import DataError

FRAMES, DEGREES, WHITE = 10, 22.0, 127


def read_images(path: Path) -> NDArray[np.uint8]:
    """MNIST's own format (idx3, gzipped). (image, height, width)"""
    try:
        content = gzip.decompress(path.read_bytes())
        magic, count, height, width = struct.unpack(">4i", content[:16])
        if magic != 2051:
            raise ValueError(f"its magic number is {magic}, not 2051")
        return np.frombuffer(content, dtype=np.uint8, offset=16).reshape(count, height, width)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise DataError(f"{path} does not hold MNIST's images: {error}") from None


def turned(images: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
    """Ten frames of each image, 1 = white. (image, frame, pixel)"""
    angles = np.random.default_rng(seed).normal(0, DEGREES, (len(images), FRAMES))
    frames = np.empty((len(images), FRAMES, *images.shape[1:]), dtype=np.uint8)
    for image, steps, out in zip(images, angles, frames, strict=True):
        for i, angle in enumerate(steps):
            image = rotate(image, angle, reshape=False)
            out[i] = image > WHITE
    return frames.reshape(len(images), FRAMES, -1)
