"""From rows to padded batches, and the nearest visible values of their cells."""

import math

import numpy as np
import pytest
import torch

from gpvae.data.batches import (
    Batches,
    BatchIndex,
    NearestVisible,
    RowTensors,
    Window,
    median_step,
    series_by_length,
    windows,
)
from gpvae.data.panel import Panel

CPU = torch.device("cpu")


def rows_of(panel: Panel, unit: float = 1.0) -> RowTensors:
    return RowTensors.of(panel, panel.values, panel.observed, unit, CPU)


def ragged() -> Panel:
    rng = np.random.default_rng(0)
    values = [np.where(rng.random((n, 2)) < 0.3, np.nan, rng.normal(size=(n, 2))) for n in (5, 1, 8)]
    return Panel.from_list(values, times=[10 + np.cumsum(rng.uniform(1, 3, n)) for n in (5, 1, 8)])


def test_batch_holds_each_series_and_pads_behind_it() -> None:
    panel = ragged()
    unit = median_step(panel)
    batch = rows_of(panel, unit).batch(BatchIndex.of([Window(0, 5), Window(5, 1), Window(8, 4), Window(0, 0)], CPU))
    assert batch.valid.sum(-1).tolist() == [5, 1, 4, 0]
    assert isinstance(batch.times, torch.Tensor)
    assert int(batch.steps) == 10
    for i, (start, length) in enumerate([(0, 5), (5, 1), (8, 4)]):
        values, observed = panel.values[start : start + length], panel.observed[start : start + length]
        assert np.array_equal(batch.observed[i, :length].numpy(), observed)
        np.testing.assert_allclose(batch.values[i, :length].numpy(), np.where(observed, values, 0), rtol=1e-6)
        gaps = np.diff(panel.times[start : start + length]) / unit
        np.testing.assert_allclose(batch.times[i, :length].diff().numpy(), gaps, rtol=1e-12)
        assert (batch.times[i, length - 1 :].diff() == 1).all()
        assert not batch.observed[i, length:].any()
        assert not batch.values[i, length:].any()


def test_an_even_grid_has_one_spacing_in_time_units() -> None:
    panel = Panel.from_array(np.zeros((3, 6, 1)), times=100 + 0.5 * np.arange(6))
    assert median_step(panel) == 0.5
    assert rows_of(panel, 0.25).batch(BatchIndex.of([Window(0, 6), Window(12, 3)], CPU)).times == 2
    bent = Panel.from_array(np.zeros((1, 4, 1)), times=np.array([0.0, 1.0, 2.0, 3.001]))
    assert rows_of(bent).spacing is None


def test_windows_cover_every_row_once_and_split_at_random() -> None:
    panel = Panel.from_list([np.zeros((n, 1)) for n in (3, 100, 64)])
    splits = set()
    for seed in range(20):
        found = windows(panel, 32, np.random.default_rng(seed))
        covered = np.concatenate([np.arange(window.start, window.start + window.length) for window in found])
        assert np.array_equal(np.sort(covered), np.arange(167))
        assert max(window.length for window in found) <= 32
        splits.add(found[2].start)
    assert len(splits) > 5
    assert windows(panel, 32) == windows(panel, 32)
    assert windows(panel, 200) == [Window(0, 3), Window(3, 100), Window(103, 64)]


def test_an_epoch_holds_every_window_once_in_random_order() -> None:
    panel = Panel.from_array(np.zeros((10, 1, 1)))
    batches = list(Batches(panel, 64, 4).epoch(np.random.default_rng(0), CPU))
    assert [len(batch.starts) for batch in batches] == [4, 4, 4]
    flat = windows_of(batches)
    assert sorted(flat, key=lambda window: window.start) == [Window(i, 1) for i in range(10)] != flat


def test_batches_hold_windows_of_similar_length_in_few_shapes() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 1000)
    panel = Panel.from_list([np.zeros((length, 1)) for length in lengths])
    batches = list(Batches(panel, 200, 16).epoch(np.random.default_rng(1), CPU))
    assert sorted(windows_of(batches), key=lambda window: window.start) == windows(panel, 200)
    assert all(batch.time >= int(batch.lengths.max()) for batch in batches)
    assert len({batch.time for batch in batches}) < 25
    assert lengths.sum() / sum(batch.time * len(batch.starts) for batch in batches) > 0.75
    same = Batches(Panel.from_array(np.zeros((9, 36, 1))), 64, 4)
    assert {batch.time for batch in same.epoch(np.random.default_rng(0), CPU)} == {36}


def test_shapes_stay_few_while_splits_move() -> None:
    plan = Batches(Panel.from_list([np.zeros((n, 1)) for n in [1000] * 7 + [64] * 3]), 64, 16)
    indices = [index for seed in range(20) for index in plan.epoch(np.random.default_rng(seed), CPU)]
    assert len({(len(index.starts), index.time) for index in indices}) == 1 == plan.shapes


def test_every_time_step_has_the_same_weight_whatever_its_batch() -> None:
    """Sums over a batch are divided by the mean steps of a batch, not by its own."""
    panel = Panel.from_list([np.zeros((n, 1)) for n in [2] * 40 + [50] * 40])
    indices = list(Batches(panel, 64, 8).epoch(np.random.default_rng(0), CPU))
    assert len({int(index.lengths.sum()) for index in indices}) > 1
    for index in indices:
        assert float(rows_of(panel).batch(index).steps) == pytest.approx(40 * (2 + 50) / len(indices))


def windows_of(indices: list[BatchIndex]) -> list[Window]:
    numbers = [pair for index in indices for pair in zip(index.starts.tolist(), index.lengths.tolist(), strict=True)]
    return [Window(start, length) for start, length in numbers if length]


def test_groups_of_whole_series_stay_within_the_padded_steps() -> None:
    panel = Panel.from_list([np.zeros((n, 1)) for n in (50, 3, 4, 9, 2)])
    groups = list(series_by_length(panel, 12))
    assert [[window.length for window in group] for group in groups] == [[2, 3, 4], [9], [50]]


def cells(series: int = 3, time: int = 12, *, grid: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | float]:
    """Values, which are visible, and times: columns with many visible values, few, one (first, last), none."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(series, time, 6, generator=generator, dtype=torch.float64)
    observed = torch.rand(series, time, 6, generator=generator) < torch.tensor([0.8, 0.3, 0.0, 0.0, 0.0, 1.0])
    observed[:, 0, 2] = observed[:, -1, 3] = True
    steps = 0.01 + 3 * torch.rand(series, time, generator=generator, dtype=torch.float64) ** 3
    return values, observed, 0.7 if grid else steps.cumsum(-1)


def nearest_by_search(values: list[float], seen: list[bool], times: list[float], i: int) -> list[float]:
    """The slow twin, for one cell of one column."""
    earlier, later = [j for j in range(i) if seen[j]], [j for j in range(i + 1, len(seen)) if seen[j]]
    before, after = (values[j[k]] if j else 0.0 for j, k in ((earlier, -1), (later, 0)))
    since = times[i] - times[earlier[-1]] if earlier else math.inf
    until = times[later[0]] - times[i] if later else math.inf
    between = before + (after - before) * since / (since + until) if earlier and later else before + after
    return [between, before, after, 1 / math.sqrt(1 + since), 1 / math.sqrt(1 + until)]


@pytest.mark.parametrize("grid", [True, False])
def test_nearest_values_equal_a_search_cell_by_cell(grid: bool) -> None:
    values, observed, times = cells(grid=grid)
    found = torch.stack(NearestVisible.of(values, observed, times), dim=-1)
    for b in range(3):
        when = [0.7 * i for i in range(12)] if not isinstance(times, torch.Tensor) else times[b].tolist()
        for j in range(6):
            column, seen = values[b, :, j].tolist(), observed[b, :, j].tolist()
            expected = [nearest_by_search(column, seen, when, i) for i in range(12)]
            np.testing.assert_allclose(found[b, :, j].numpy(), expected, rtol=1e-12, atol=1e-12)
    assert not found[:, :, 4].any()  # where nothing is visible


def test_nearest_values_on_a_grid_equal_those_at_its_times() -> None:
    values, observed, step = cells(grid=True)
    assert isinstance(step, float)
    times = (5 + step * torch.arange(12, dtype=torch.float64)).expand(3, 12)
    for name, on_grid, at_times in zip(
        NearestVisible._fields,
        NearestVisible.of(values, observed, step),
        NearestVisible.of(values, observed, times),
        strict=True,
    ):
        torch.testing.assert_close(on_grid, at_times, msg=name)


@pytest.mark.parametrize("grid", [True, False])
def test_nearest_values_of_a_cell_never_depend_on_the_cell_itself(grid: bool) -> None:
    """Neither on its value nor on whether it is visible; those of other cells of its column do."""
    values, observed, times = cells(series=1, grid=grid)
    before = NearestVisible.of(values, observed, times)
    for i, j in [(0, 0), (3, 0), (7, 1), (0, 2), (11, 3), (5, 4), (5, 5), (11, 5)]:
        other, seen = values.clone(), observed.clone()
        other[0, i, j] += 10
        seen[0, i, j] = True
        moved = torch.stack(NearestVisible.of(other, seen, times)) != torch.stack(before)
        assert not moved[:, 0, i, j].any()
        assert moved[:, 0, :, j].any()
        moved[:, 0, :, j] = False
        assert not moved.any()


def test_nearest_values_do_not_depend_on_values_that_are_not_visible() -> None:
    values, observed, times = cells(grid=False)
    noise = torch.where(observed, values, 99.0)
    for first, second in zip(
        NearestVisible.of(values, observed, times), NearestVisible.of(noise, observed, times), strict=True
    ):
        assert torch.equal(first, second)


def test_nearest_values_are_as_precise_as_the_values() -> None:
    values, observed, times = cells(grid=False)
    double, single = (NearestVisible.of(values.to(dtype), observed, times) for dtype in (torch.float64, torch.float32))
    for wide, narrow in zip(double, single, strict=True):
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), wide, rtol=1e-5, atol=1e-6)


def test_interpolation_between_neighbours_that_are_very_close_in_time() -> None:
    values = torch.tensor([[[1.0], [0.0], [3.0]]])
    times = torch.tensor([[0.0, 1e-9, 4e-9]], dtype=torch.float64)
    around = NearestVisible.of(values, values > 0, times)
    torch.testing.assert_close(around.interpolated[0, 1], torch.tensor([1.5]))
    same = NearestVisible.of(values, values > 0, torch.zeros_like(times))
    assert 1.0 <= float(same.interpolated[0, 1]) <= 3.0
