"""Ways to remove values."""

from collections.abc import Sequence

import numpy as np

from gpvae.panel import Bools, DataError, Panel


def random(panel: Panel, rate: float, seed: int | Sequence[int]) -> Bools:
    """Which observed cells to remove: exactly a share `rate` of them, anywhere. (row, feature)"""
    if not 0 < rate < 1:
        raise DataError(f"the share of cells to hold out must lie between 0 and 1, not {rate}")
    cells = np.flatnonzero(panel.observed)
    count = round(rate * len(cells))
    if not 0 < count < len(cells):
        raise DataError(f"a share of {rate} of {len(cells)} observed cells leaves nothing to hold out or to learn from")
    chosen = np.zeros(panel.values.shape, dtype=bool)
    chosen.flat[np.random.default_rng(seed).choice(cells, count, replace=False)] = True
    return chosen


def hide(panel: Panel, cells: Bools) -> Panel:
    """The panel without these cells."""
    return panel.with_values(np.where(cells, np.nan, panel.values))
