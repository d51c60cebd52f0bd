"""How good a filled cell is: elementwise scores, to be averaged over whichever cells one asks about."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats

LEVELS = np.arange(1, 20) / 20  # of the quantiles that the imputation literature scores: .05, .10, … .95


def absolute_error(truth: Floats, point: Floats) -> Floats:
    return np.abs(point - truth)


def squared_error(truth: Floats, point: Floats) -> Floats:
    return (point - truth) ** 2


def crps(truth: Floats, samples: NDArray[Any]) -> Floats:
    """Continuous ranked probability score of samples (sample, cell): E|X - y| - ½ E|X - X'|; |x - y| for one sample.

    The second term over all pairs, from the sorted samples: Σ_i (2i - n - 1) x_(i) / n², i = 1..n.
    """
    n = len(samples)
    ranks = 2 * np.arange(1, n + 1) - n - 1
    spread = np.tensordot(ranks, np.sort(samples, axis=0).astype(np.float64), axes=1) / n**2
    return np.abs(samples - truth).mean(axis=0) - spread


def quantile_score(truth: Floats, samples: NDArray[Any]) -> Floats:
    """Twice the pinball loss, averaged over 19 quantiles of samples (sample, cell); |x - y| for one sample.

    Σ of it / Σ|y| is what CSDI, and papers since, report as CRPS: without a unit, but not without an origin.
    """
    q = LEVELS[:, None]
    above = np.quantile(samples, LEVELS, axis=0) - truth  # (quantile, cell)
    return 2 * np.maximum((1 - q) * above, -q * above).mean(axis=0)


def covered(truth: Floats, lower: Floats, upper: Floats) -> Bools:
    return (lower <= truth) & (truth <= upper)
