"""What the paper's figure 3 claims of one patient, as numbers of all patients.

roughness       mean |x_{t-1} - 2 x_t + x_{t+1}| of the series as drawn, in standard deviations of each variable, at
                missing steps t between the first and the last visible value: that is where a series is made up. A
                latent model draws what its posterior mean decodes to, at visible steps, too; others keep what they see
distance_rank   rank correlation of a latent model's deviation at missing steps with their distance from the nearest
                visible value; of each variable over all patients, averaged over variables
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from gpvae.data.panel import Bools


def roughness(drawn: NDArray[np.floating], visible: Bools) -> float:
    """(series, time, variable) in standard deviations, and what of it is visible."""
    before, after = np.logical_or.accumulate(visible, 1), np.logical_or.accumulate(visible[:, ::-1], 1)[:, ::-1]
    between = (~visible & before & after)[:, 1:-1]
    second = drawn[:, :-2] - 2 * drawn[:, 1:-1] + drawn[:, 2:]
    return float(np.abs(second[between], dtype=np.float64).mean())


def distance_rank(std: NDArray[np.floating], visible: Bools) -> float:
    """(series, time, variable) deviations, and what is visible. Series without a visible value have no distance."""
    distance = gap_distances(visible)
    asked = ~visible & np.isfinite(distance)
    ranks = [
        _rank_correlation(distance[..., j][asked[..., j]], std[..., j][asked[..., j]])
        for j in range(visible.shape[-1])
        if len(np.unique(distance[..., j][asked[..., j]])) > 1
    ]
    return float(np.mean(ranks))


def _rank_correlation(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def gap_distances(visible: Bools) -> NDArray[np.float64]:
    """Steps to the nearest visible value of the same variable; infinite without one. (series, time, variable)"""
    return np.minimum(_since(visible), _since(visible[:, ::-1])[:, ::-1])


def _since(visible: Bools) -> NDArray[np.float64]:
    """Steps since the last visible value."""
    step = np.arange(visible.shape[1], dtype=np.float64)[:, None]
    return step - np.maximum.accumulate(np.where(visible, step, -np.inf), 1)
