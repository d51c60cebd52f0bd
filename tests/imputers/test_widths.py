"""Blends, tails and widths from held-out cells whose truth is known."""

import numpy as np
import pytest
import torch
from scipy import stats

from gpvae import Panel
from gpvae.imputers.widths import KINDS, Evidence, fit_widths, gap_kinds


def test_kinds_of_gaps_by_hand() -> None:
    values = np.zeros((40, 3))
    values[2, 0] = values[4:6, 1] = np.nan  # a cell and a pair
    values[8:11, 0] = np.nan  # a gap of three, the others there
    values[10, 1:] = np.nan  # beside the end of which the others lack, too
    values[14:27, 2] = np.nan  # a long gap
    values[30:33] = np.nan  # an outage
    kinds = gap_kinds(Panel.from_array(values), np.ones(3, dtype=bool))
    assert kinds[2, 0] == kinds[4, 1] == kinds[10, 1] == 0
    assert kinds[8:11, 0].tolist() == [1, 1, 3]
    assert set(kinds[14:27, 2]) == {2}
    assert set(kinds[30:33].ravel()) == {3}
    assert kinds[0, 0] == -1
    assert gap_kinds(Panel.from_array(values), np.array([True, False, False]))[9, 0] == 3  # the only column


def evidence(cells: int = 6000, seed: int = 0) -> Evidence:
    """Column 0 follows the network, column 1 has nothing to do with it; long gaps are twice as hard."""
    rng = np.random.default_rng(seed)
    column, kind = rng.integers(2, size=cells), rng.choice([0, 2], size=cells)
    shift = rng.normal(size=cells)
    scale = np.where(column == 0, 0.5, 1.5) * np.where(kind == 2, 2.0, 1.0)
    residual = np.where(column == 0, shift, 0) + scale * rng.normal(size=cells)
    tensors = (torch.from_numpy(x) for x in (residual, shift, np.zeros(cells), np.zeros(cells), np.ones(cells)))
    return Evidence(column, kind, *tensors)


def test_columns_follow_the_network_where_it_is_right() -> None:
    blend = fit_widths(evidence(), 2).blend
    assert blend[0] == 1
    assert blend[1] == 0


def test_intervals_hold_their_share_of_each_column_and_kind() -> None:
    widths, fresh = fit_widths(evidence(), 2), evidence(seed=1)
    column = torch.from_numpy(fresh.column)
    log_scale = widths.column[column] + widths.kind[column, torch.from_numpy(fresh.kind)]
    error = (fresh.residual - widths.blend[column] * fresh.shift) * torch.exp(-log_scale)
    edge = stats.t.ppf(0.95, float(widths.tails))
    inside = np.asarray(error.abs() <= edge)
    for j in range(2):
        for k in (0, 2):
            assert 0.87 <= inside[(fresh.column == j) & (fresh.kind == k)].mean() <= 0.94
    assert float(widths.kind[0, 2] - widths.kind[0, 0]) == pytest.approx(np.log(2), abs=0.15)
    assert widths.cells.sum() == 6000
    assert len(widths.cells) == len(KINDS)


def test_tails_are_those_of_the_errors() -> None:
    rng, cells = np.random.default_rng(0), 8000
    for tails, found in ((3.0, {3.0, 4.0}), (100.0, {30.0})):
        residual = torch.from_numpy(rng.standard_t(tails, size=cells))
        zeros, none = torch.zeros(cells).double(), np.zeros(cells, dtype=np.int64)
        assert float(fit_widths(Evidence(none, none, residual, zeros, zeros, zeros, zeros), 1).tails) in found


def test_a_column_without_evidence_keeps_the_width_of_the_linear_model() -> None:
    widths = fit_widths(evidence(), 3)
    assert widths.blend[2] == 0
    assert not widths.kind[2].any()
    edge = stats.t.ppf(0.95, float(widths.tails))
    assert float(widths.column[2].exp()) * edge == pytest.approx(stats.norm.ppf(0.95))
