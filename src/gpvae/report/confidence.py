"""Means and shares with 95 % intervals, where cells of one block are correlated and blocks are independent."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats, Panel

BLOCKS = 40  # into which a few long series are cut
Z = 1.96  # of 95 % intervals


def blocks_of(panel: Panel) -> NDArray[np.int64]:
    """The block of each row: its series or, if there are few series, a run of consecutive rows. (row,)"""
    if len(panel) >= BLOCKS // 2:
        return panel.series_of_row
    return np.arange(len(panel.values)) * BLOCKS // max(1, len(panel.values))


def mean_and_margin(values: Floats, block: NDArray[np.int64]) -> tuple[float, float]:
    """The mean m over cells, and Z times its standard error: the variance is Σ_b (e_b - m n_b)² / n²."""
    _, number = np.unique(block, return_inverse=True)
    total, count = np.bincount(number, values), np.bincount(number)
    mean, blocks = values.mean(), len(count)
    spread = np.sqrt(np.sum((total - mean * count) ** 2) * blocks / max(1, blocks - 1)) / len(values)
    return float(mean), float(Z * spread)


def share(inside: Bools, block: NDArray[np.int64]) -> dict[str, Any]:
    """The share of cells inside, with its 95 % interval and the effective number of independent cells."""
    value, margin = mean_and_margin(inside.astype(np.float64), block)
    independent = len(inside) if not margin else value * (1 - value) * (Z / margin) ** 2
    effective = max(1.0, min(float(len(inside)), independent))
    low, high = wilson(value, effective, Z)
    return {"cells": len(inside), "share": value, "low": low, "high": high, "effective": effective}


def wilson(p: float, n: float, z: float) -> tuple[float, float]:
    centre, spread = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = (centre - spread) / (1 + z**2 / n), (centre + spread) / (1 + z**2 / n)
    return float(min(low, p)), float(max(high, p))
