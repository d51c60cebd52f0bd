"""Held-out cells: folds, subsets and batches of them, and how they are kept with an imputer."""

import numpy as np
import torch
from torch import Generator, Tensor

from gpvae.data.batches import RowTensors, Window
from gpvae.imputers.held_out import HeldOut, HeldOutCells

STEPS, LENGTH, COLUMNS = 60, 10, 3


def rows(values: Tensor, observed: Tensor) -> RowTensors:
    empty = torch.zeros(1, COLUMNS)
    times = torch.arange(STEPS, dtype=torch.float64)
    return RowTensors(torch.cat([values * observed, empty]), torch.cat([observed, empty.bool()]), times, 1.0)


def outage_and_single_cells() -> tuple[Tensor, HeldOut]:
    """Held out are eight steps of two columns, and six single cells of the third; all else is visible."""
    values = torch.randn(STEPS, COLUMNS, generator=Generator().manual_seed(1))
    held = torch.zeros(STEPS, COLUMNS).bool()
    held[10:18, :2] = True
    held[[3, 25, 31, 44, 50, 58], 2] = True
    windows = [Window(start, LENGTH) for start in range(0, STEPS, LENGTH)]
    return values, HeldOut(rows(values, ~held), rows(values, held), windows, seed=7)


def test_every_held_out_cell_is_hidden_in_one_fold_and_visible_in_the_others() -> None:
    values, held_out = outage_and_single_cells()
    folds = list(held_out.folds(4))
    hidden = torch.stack([fold.targets.observed for fold in folds])
    assert torch.equal(hidden.sum(0) == 1, held_out.targets.observed)
    assert not (hidden.sum(0) > 1).any()
    for fold in folds:
        assert not (fold.rows.observed & fold.targets.observed).any()
        assert fold.rows.observed[:-1].logical_or(fold.targets.observed[:-1]).all()
        torch.testing.assert_close((fold.rows.values + fold.targets.values)[:-1], values)


def test_an_outage_is_hidden_as_a_whole() -> None:
    folds = outage_and_single_cells()[1].folds(4)
    assert sorted(int(fold.targets.observed[10:18, :2].sum()) for fold in folds) == [0, 0, 0, 16]


def test_subset_has_only_windows_with_held_out_cells() -> None:
    _, held_out = outage_and_single_cells()
    assert held_out.subset(6) is held_out
    empty = HeldOut(held_out.rows, rows(torch.zeros(STEPS, COLUMNS), torch.zeros(STEPS, COLUMNS).bool()), [], seed=7)
    assert held_out.exists
    assert not empty.exists
    few = held_out.subset(3).windows
    assert [window.start for window in few] == [0, 20, 40]
    sparse = torch.zeros(STEPS, COLUMNS).bool()
    sparse[[15, 55], 0] = True
    only_two = HeldOut(held_out.rows, rows(torch.ones(STEPS, COLUMNS), sparse), held_out.windows, seed=7)
    assert [window.start for window in only_two.subset(4).windows] == [10, 50]


def test_batches_hold_every_window_once_and_draw_the_same_numbers_again() -> None:
    values, held_out = outage_and_single_cells()
    batches = list(held_out.batches(steps_at_once=25))
    assert [len(visible.values) for visible, _, _ in batches] == [2, 2, 2]
    seen = torch.cat([visible.values + targets.values for visible, targets, _ in batches]).flatten(0, 1)
    torch.testing.assert_close(seen, values)
    drawn = [[torch.rand(3, generator=generator) for *_, generator in held_out.batches(25)] for _ in range(2)]
    assert all(map(torch.equal, *drawn))
    assert not torch.equal(drawn[0][0], drawn[0][1])


def test_cells_are_packed_into_bits_and_back() -> None:
    cells = np.random.default_rng(0).random((7, 11)) < 0.3
    packed = HeldOutCells.of(cells, "fingerprint")
    assert packed.bits.shape == (7, 2)
    assert np.array_equal(packed.cells(11), cells)
