"""Filled values moved by a constant, for sensitivity analysis: values may be missing because of what they are."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats
from gpvae.imputers.draws import Draws
from gpvae.imputers.imputation import Imputation


def shifted(imputation: Imputation, deltas: Mapping[Any, float]) -> Imputation:
    """Without its imputer: what that knows of its errors is not about shifted values."""
    columns, draws, conformal = imputation.panel.columns, imputation.draws, imputation.conformal
    _require_known(columns, deltas)
    delta = np.array([deltas.get(name, 0.0) for name in columns], dtype=np.float64)
    column = imputation.cells % len(columns)
    _require_real(imputation, np.array([name in deltas for name in columns])[column], column)
    by_cell = delta[column]
    return replace(
        imputation,
        values=imputation.values + by_cell,
        draws=None if draws is None else _shifted_draws(draws, by_cell),
        conformal=None if conformal is None else replace(conformal, centre=conformal.centre + by_cell),
        method=f"{imputation.method}, shifted",
        imputer=None,
    )


def _require_known(columns: tuple[str, ...], deltas: Mapping[Any, float]) -> None:
    for name, delta in deltas.items():
        if name not in columns:
            raise DataError(f"there is no column {name!r} to shift; the columns are {', '.join(map(str, columns))}")
        if not np.isfinite(delta):
            raise DataError(f"column {name!r} must be shifted by a finite number, got {delta}")


def _require_real(imputation: Imputation, chosen: Bools, column: NDArray[np.int64]) -> None:
    """Check the cells to shift, as far as the draws tell their kinds."""
    text = [name in imputation.panel.labels for name in imputation.panel.columns]
    wrong = np.array(text)[column]
    if imputation.draws is not None:
        scaling, feature = imputation.draws.scaling, imputation.draws.feature
        wrong = wrong | ~(scaling.of_kind("real") & scaling.varies)[feature]
    if (chosen & wrong).any():
        name = imputation.panel.columns[column[chosen & wrong][0]]
        raise DataError(f"column {name!r} cannot be shifted: it must hold real numbers that vary")


def _shifted_draws(draws: Draws, delta: Floats) -> Draws:
    """Scaled draws of columns that do not vary, whose scale is 0, are not shifted."""
    scale = draws.scaling.scale[draws.feature]
    scaled_delta = np.divide(delta, scale, out=np.zeros_like(delta), where=delta != 0)
    scaling = draws.scaling
    moved = np.zeros(len(scaling.shift))
    moved[draws.feature] = delta  # the same of all cells of a column
    ends = {"lower": scaling.lower + moved, "upper": scaling.upper + moved}
    scaling = replace(scaling, **ends, origin=scaling.origin + moved)
    return replace(draws, scaled=draws.scaled + scaled_delta.astype(np.float32)[:, None], scaling=scaling)
