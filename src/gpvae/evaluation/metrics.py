"""Elementwise scores of filled cells, to be averaged over any set of cells."""

from typing import Any

import numpy as np
import scoringrules
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats

LEVELS = np.arange(1, 20) / 20  # quantile levels that the imputation literature scores: .05, .10, … .95


def absolute_error(truth: Floats, point: Floats) -> Floats:
    return np.abs(point - truth)


def squared_error(truth: Floats, point: Floats) -> Floats:
    return (point - truth) ** 2


def crps(truth: Floats, samples: NDArray[Any]) -> Floats:
    """Continuous ranked probability score, E|X - y| - ½ E|X - X'|, of samples (sample, cell); |x - y| for one sample.

    The expectations are over the empirical distribution of the samples: the "qd" estimator, not the "fair" one.
    """
    return np.asarray(scoringrules.crps_ensemble(truth, samples, 0, estimator="qd", backend="numpy"))


def quantile_score(truth: Floats, samples: NDArray[Any]) -> Floats:
    """Twice the pinball loss, averaged over the 19 `LEVELS`, of samples (sample, cell); |x - y| for one sample.

    CSDI and later papers report Σ quantile score / Σ|y| as CRPS. It has no unit, but depends on the origin.
    """
    quantiles = np.quantile(samples, LEVELS, axis=0)
    return np.asarray(scoringrules.crps_quantile(truth, quantiles, LEVELS, 0, backend="numpy"))


def covered(truth: Floats, lower: Floats, upper: Floats) -> Bools:
    return (lower <= truth) & (truth <= upper)
