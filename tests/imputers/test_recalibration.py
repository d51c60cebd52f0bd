"""Intervals of rows that came later, where the table has drifted."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import DataError, GPNet, Imputation, Panel, missingness


def drifting(rows: int, noise: float, seed: int) -> NDArray[np.float64]:
    """Two sensors of the same slow series, with so much noise."""
    rng = np.random.default_rng(seed)
    slow = np.zeros(rows)
    for t in range(1, rows):
        slow[t] = 0.95 * slow[t - 1] + 0.3 * rng.normal()
    return slow[:, None] + noise * rng.normal(size=(rows, 2))


def coverage(imputation: Imputation, truth: NDArray[np.float64], cells: NDArray[np.bool_]) -> float:
    low, high = imputation.interval_rows(0.9)
    return float(((truth >= low) & (truth <= high))[cells].mean())


def test_intervals_widen_where_later_rows_are_noisier() -> None:
    fitted = GPNet().fit(Panel.from_array(drifting(1500, 0.1, 0)))
    truth = drifting(1500, 0.4, 1)
    panel = Panel.from_array(truth)
    cells = missingness.random(panel, 0.1, 5)
    visible = missingness.hide(panel, cells)
    before = fitted.impute(visible)
    assert coverage(before, truth, cells) < 0.7
    assert fitted.held_out(visible) is None
    after = fitted.recalibrate(visible).impute(visible)
    assert 0.84 < coverage(after, truth, cells) < 0.96
    held_out = fitted.held_out(visible)
    assert held_out is not None
    assert not (held_out & cells).any()
    np.testing.assert_array_equal(after.mean_rows[~cells], truth[~cells])


def test_too_few_rows_are_refused() -> None:
    fitted = GPNet().fit(Panel.from_array(drifting(1500, 0.1, 0)))
    with pytest.raises(DataError, match="recalibration needs 100 cells to hide"):
        fitted.recalibrate(Panel.from_array(drifting(50, 0.1, 2)))
