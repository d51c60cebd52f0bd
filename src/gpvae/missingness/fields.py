"""Mechanisms that threshold a Gaussian process: neighbours in an image or in time go missing together.

f ~ GP(0, k) with k(d) = exp(-d² / 2ℓ²) has standard normal marginals, so f < Φ⁻¹(rate) holds with probability
`rate` everywhere.
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.missingness.checks import require_process
from gpvae.missingness.grids import CELLS, Draw, RowIndex, draw_on_grids, rbf

Paths = Callable[[np.random.Generator, int, int], NDArray[np.floating]]  # → (series, time, feature)

DENSE = 256  # longest even grid that is drawn without the FFT
BLOCK = 1000  # steps of an uneven grid that are drawn together


def spatial(
    panel: Panel,
    rate: float,
    seed: int | Sequence[int],
    image_shape: Sequence[int],
    *,
    length_scale: float = 3.0,
    jitter: float = 1e-6,
) -> Bools:
    """Neighbouring pixels go missing together, independently in each frame, in all channels alike. (row, feature)

    `image_shape` is (height, width) or (channels, height, width); `length_scale` is in pixels. The kernel is a product
    over height and width: F = L_y Z L_xᵀ with Z standard normal.
    """
    require_process(panel, rate, length_scale, jitter)
    height, width = _image(panel, image_shape)
    over_y, over_x = (_factor(np.arange(float(n)), length_scale, jitter) for n in (height, width))
    rng, level = np.random.default_rng(seed), NormalDist().inv_cdf(rate)
    chosen = np.empty((len(panel.values), len(panel.columns) // (height * width), height * width), dtype=bool)
    size = max(1, CELLS // (height * width))
    for start in range(0, len(chosen), size):
        part = chosen[start : start + size]  # (row, channel, pixel)
        noise = rng.standard_normal((len(part), height, width), dtype=np.float32)
        part[:] = (over_y @ (noise @ over_x.T) < level).reshape(len(part), 1, -1)
    return chosen.reshape(panel.values.shape) & panel.observed


def _image(panel: Panel, shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) not in (2, 3) or min(shape) < 1 or math.prod(shape) != len(panel.columns):
        raise DataError(
            f"image_shape must be (height, width) or (channels, height, width) of {len(panel.columns)} columns, "
            f"got {tuple(shape)}"
        )
    return shape[-2], shape[-1]


def temporal_positive(
    panel: Panel, rate: float, seed: int | Sequence[int], *, length_scale: float = 3.0, jitter: float = 1e-6
) -> Bools:
    """Neighbouring steps go missing together, independently in each column of each series. (row, feature)

    `length_scale` is in median time steps. The paper does not give it; 2 reproduces the error of its forward imputation
    on Healing MNIST. Uneven grids of more than BLOCK steps are drawn in independent blocks.
    """
    require_process(panel, rate, length_scale, jitter)
    rng, level = np.random.default_rng(seed), NormalDist().inv_cdf(rate)

    def prepare(times: Floats, _: RowIndex) -> Draw:
        paths = gp_paths(times, length_scale, jitter)
        return lambda series, features: paths(rng, series, features) < level

    return draw_on_grids(panel, prepare)


def gp_paths(times: Floats, length_scale: float, jitter: float) -> Paths:
    steps = np.diff(times)
    if len(times) > DENSE and np.ptp(steps) < 1e-5:  # times are rounded to 1e-6
        return even_paths(len(times), length_scale / float(steps.mean()))
    return dense_paths(times, length_scale, jitter)


def dense_paths(times: Floats, length_scale: float, jitter: float) -> Paths:
    """L z with L Lᵀ = K, block by block."""
    starts = range(0, len(times), BLOCK)
    factors = [_factor(times[start : start + BLOCK], length_scale, jitter) for start in starts]

    def paths(rng: np.random.Generator, series: int, features: int) -> NDArray[np.float32]:
        noise = (rng.standard_normal((series, len(factor), features), dtype=np.float32) for factor in factors)
        return np.concatenate([factor @ z for factor, z in zip(factors, noise, strict=True)], axis=1)

    return paths


def even_paths(length: int, length_scale: float) -> Paths:
    """Circulant embedding: on a circle the kernel is diagonal in Fourier space, f = F⁻¹ √λ F z.

    The circle is longer than the series by 8 length scales, at which the kernel is 1e-14: the ends of the series are
    independent, and negative eigenvalues are rounding errors.
    """
    circle = length + math.ceil(8 * length_scale)
    distances = np.minimum(np.arange(circle), circle - np.arange(circle)) / length_scale
    roots = np.sqrt(np.maximum(np.fft.rfft(np.exp(-(distances**2) / 2)).real, 0))[:, None]  # (frequency, 1)

    def paths(rng: np.random.Generator, series: int, features: int) -> Floats:
        noise = np.fft.rfft(rng.standard_normal((series, circle, features)), axis=1)
        return np.fft.irfft(roots * noise, n=circle, axis=1)[:, :length]

    return paths


def _factor(times: Floats, length_scale: float, jitter: float) -> NDArray[np.float32]:
    """Lower Cholesky factor of the kernel. (time, time)"""
    return np.linalg.cholesky(rbf(times, length_scale, jitter)).astype(np.float32)
