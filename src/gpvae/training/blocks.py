"""Wide tables are cut into blocks of columns that are alike: the cost of a state space grows with its width cubed."""

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from gpvae.data.panel import Floats
from gpvae.training.factor_start import in_parts
from gpvae.training.periods import Stretch

WIDEST = 40
FEW = 3  # rows in which two columns are both observed: too few for a correlation


def column_blocks(stretches: list[Stretch]) -> list[NDArray[np.int64]]:
    """Blocks of at most `WIDEST` columns, neighbours in a tree of their correlations."""
    columns = stretches[0].values.shape[1] if stretches else 0
    if columns <= WIDEST:
        return [np.arange(columns)] if columns else []
    distance = 1 - _correlations(np.concatenate(in_parts(stretches, steps=False))) ** 2
    order = leaves_list(linkage(squareform(distance, checks=False), method="average", optimal_ordering=True))
    return [np.sort(block).astype(np.int64) for block in np.array_split(order, -(-columns // WIDEST))]


def _correlations(rows: Floats) -> Floats:
    """Over the rows in which both columns are observed."""
    seen = (~np.isnan(rows)).astype(float)
    x, count = np.nan_to_num(rows), np.maximum(seen.T @ seen, 1)
    mean, other = x.T @ seen / count, seen.T @ x / count  # of a column where the other is observed, and reversed
    cross = x.T @ x / count - mean * other
    variance = np.maximum((x**2).T @ seen / count - mean**2, 1e-12)
    correlation = np.where(count > FEW, cross / np.sqrt(variance * variance.T), 0)
    np.fill_diagonal(correlation, 1)
    return np.clip(correlation, -1, 1)
