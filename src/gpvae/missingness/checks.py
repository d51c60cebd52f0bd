"""Checks of arguments that the mechanisms share."""

import numpy as np

from gpvae.data.panel import DataError, Panel


def require_share(rate: float) -> None:
    if not 0 < rate < 1:
        raise DataError(f"the share of cells to hold out must be between 0 and 1, got {rate}")


def require_cells(panel: Panel) -> int:
    """The number of observed cells, which must be at least one."""
    count = int(np.count_nonzero(panel.observed))
    if not count:
        raise DataError("there are no observed cells to remove")
    return count


def require_positive(name: str, value: float) -> None:
    if not 0 < value < np.inf:
        raise DataError(f"{name} must be positive and finite, got {value}")


def require_process(panel: Panel, rate: float, length_scale: float, jitter: float) -> None:
    require_share(rate)
    require_cells(panel)
    require_positive("length_scale", length_scale)
    if not 1e-12 <= jitter < np.inf:
        raise DataError(f"jitter must be at least 1e-12 and finite, got {jitter}")
