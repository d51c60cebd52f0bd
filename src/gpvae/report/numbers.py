"""Numbers that several parts of a report use."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import DataError, Floats
from gpvae.imputers.imputation import Imputation


def rounded(value: Any) -> float | None:
    """To six digits, which are enough for a page; None for NaN, which JSON does not have."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")


def group_means(values: Floats | None, group: NDArray[np.int64], groups: int) -> list[float | None]:
    """The mean of the finite values of each group; None for a group without any."""
    if values is None:
        return [None] * groups
    finite = np.isfinite(values)
    count = np.bincount(group[finite], minlength=groups)
    total = np.bincount(group[finite], values[finite], minlength=groups)
    return [rounded(total[i] / count[i]) if count[i] else None for i in range(groups)]


def uncertainty(imputation: Imputation, column_std: Floats) -> Floats | None:
    """The deviation of each filled cell, in standard deviations of its column; NaN for classes. (cell,)"""
    stds = imputation.stds if imputation.conformal is None else _std_of_intervals(imputation)
    if stds is None:
        return None
    unit = column_std[imputation.cells % len(column_std)]
    return np.divide(stds, unit, out=np.full(len(unit), np.nan), where=unit > 0)


def _std_of_intervals(imputation: Imputation) -> Floats | None:
    """The standard deviation of the Gaussian that has the same 90 % interval. (cell,)"""
    try:
        lower, upper = imputation.quantiles(0.05, 0.95)
    except DataError:
        return None
    return (upper - lower) / (2 * 1.645)
