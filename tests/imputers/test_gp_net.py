"""The default: better than the linear core where that is wrong, the same where it is right, and coherent draws."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats

from gpvae import GPFactor, GPNet, Panel, missingness
from gpvae.data.runs import find_runs
from gpvae.training import correction

Array = NDArray[Any]


def waves_and_squares(rows: int = 1200, seed: int = 0) -> Array:
    """A slow series with noise, and its square, which no linear model knows."""
    rng = np.random.default_rng(seed)
    slow = np.zeros(rows)
    for t in range(1, rows):
        slow[t] = 0.9 * slow[t - 1] + np.sqrt(1 - 0.81) * rng.normal()
    return np.column_stack([slow, slow**2]) + 0.05 * rng.normal(size=(rows, 2))


def hidden_table(values: Array, seed: int = 0) -> tuple[Panel, NDArray[np.bool_]]:
    panel = Panel.from_array(values)
    cells = missingness.blocks(panel, 0.15, seed, length=(4, 12))
    return missingness.hide(panel, cells), cells


@pytest.fixture(scope="module")
def squares() -> tuple[Panel, NDArray[np.bool_], Array]:
    values = waves_and_squares()
    return *hidden_table(values), values


@pytest.fixture(scope="module")
def fitted(squares: tuple[Panel, NDArray[np.bool_], Array]) -> GPNet:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correction, "FIRST_STEPS", 300)
        patch.setattr(correction, "ROUNDS", 2)
        return GPNet().fit(squares[0])


def test_it_learns_what_is_not_linear(fitted: GPNet, squares: tuple[Panel, NDArray[np.bool_], Array]) -> None:
    panel, cells, values = squares
    square = cells & np.array([False, True])
    error = {
        name: np.abs(imputer.impute(panel, samples=20).mean_rows - values)[square].mean()
        for name, imputer in (("net", fitted), ("core", fitted.core_))
    }
    assert error["net"] < 0.6 * error["core"]
    assert fitted.widths_.blend[1] > 0.5


def test_the_linear_core_is_kept_where_it_is_right() -> None:
    rng = np.random.default_rng(3)
    walks = rng.normal(size=(500, 3)).cumsum(axis=0)
    panel, cells = hidden_table(walks)
    net = GPNet().fit(panel)
    errors = [np.abs(each.impute(panel, samples=20).mean_rows - walks)[cells].mean() for each in (net, net.core_)]
    assert errors[0] < 1.02 * errors[1]


def test_intervals_hold_cells_and_means_of_gaps(fitted: GPNet, squares: tuple[Panel, Any, Array]) -> None:
    panel, cells, values = squares
    imputation = fitted.impute(panel, samples=200)
    lower, upper = imputation.interval_rows(0.9)
    assert 0.85 <= ((lower <= values) & (values <= upper))[cells].mean() <= 0.96
    gaps = find_runs(panel, cells)
    draws, truth = np.zeros((200, *values.shape)), values
    draws[:, cells] = imputation.draws_at(cells)
    row, column = gaps.cells()
    means = gaps.mean(draws[:, row, column].T)  # (gap, draw)
    low, high = np.quantile(means, [0.05, 0.95], axis=1)
    inside = (low <= gaps.mean(truth[row, column])) & (gaps.mean(truth[row, column]) <= high)
    assert 0.75 <= inside.mean() <= 1


def test_draws_have_the_marginals_that_the_density_says(fitted: GPNet, squares: tuple[Panel, Any, Array]) -> None:
    """Draws of a cell are its even quantiles: the density between two of them is 1/n."""
    panel, cells, _ = squares
    row, column = (x[5] for x in np.nonzero(cells))
    draws = np.sort(fitted.impute(panel, samples=50).draws_at(cells)[:, 5])
    grid = np.linspace(draws[0], draws[-1], 2001)
    truth = np.full(panel.values.shape, np.nan)
    density = []
    for value in grid[::20]:
        truth[row, column] = value
        density.append(np.exp(fitted.log_likelihood(panel, truth)[row, column]))
    assert np.trapezoid(density, grid[::20]) == pytest.approx(49 / 50, abs=0.01)


def test_draws_are_ordered_like_those_of_the_core(fitted: GPNet, squares: tuple[Panel, Any, Array]) -> None:
    """In each cell; so they are joint over time and columns as far as those of the core are."""
    panel, cells, _ = squares
    ours = fitted.impute(panel, samples=40, seed=4).draws_at(cells)
    core = fitted.core_.impute(panel, samples=40, seed=4).draws_at(cells)
    ranks = [stats.rankdata(each, axis=0) for each in (ours, core)]
    agree = (ranks[0] == ranks[1]).mean()
    assert agree > 0.97  # but for float32


def test_tiny_tables_are_left_to_the_core() -> None:
    values = waves_and_squares(60)
    values[::7, 0] = np.nan
    net = GPNet().fit(values)
    assert net.history_ == []
    assert net.held_out_ is None
    np.testing.assert_allclose(net.impute(values).std, GPFactor().fit(values).impute(values).std, rtol=0.1)


def test_no_time_is_refused(squares: tuple[Panel, Any, Array]) -> None:
    with pytest.raises(ValueError, match="minutes must be above 0, or None, got 0"):
        GPNet(minutes=0).fit(squares[0])


def test_damaged_widths_are_refused(fitted: GPNet) -> None:
    tensors = {**fitted._tensors(), "widths.blend": torch.zeros(7)}
    again = GPNet()
    again.schema_ = fitted.schema_
    with pytest.raises(ValueError, match="its widths do not fit its columns"):
        again._restore(tensors, fitted._resolved())
    tensors = {**fitted._tensors(), "masses.weights": torch.zeros(7, 2, 3)}
    with pytest.raises(ValueError, match="its masses do not fit its columns"):
        again._restore(tensors, fitted._resolved())


def test_nothing_is_filled_beyond_a_bound_unless_asked() -> None:
    """Rain is never negative, and its zeros come back as zeros in the draws."""
    rng = np.random.default_rng(0)
    slow = np.convolve(rng.normal(size=640), np.ones(40) / 40, mode="valid")[:600] * 6
    values = np.column_stack([np.maximum(0, slow + rng.normal(size=600) - 0.3), rng.normal(size=600)])
    panel, cells = hidden_table(values)
    net = GPNet().fit(panel)
    drawn = net.impute(panel).draws_at(cells)[:, np.nonzero(cells)[1] == 0]
    assert drawn.min() == 0
    assert 0.2 < (drawn == 0).mean() < 0.9
    assert ("kinds of columns", "x0: never below 0") in net.facts()
    assert net.found_kinds(panel) == {"x0": "never below 0, many zeros"}
    free = GPNet(find_kinds=False).fit(panel)
    assert free.impute(panel).draws_at(cells)[:, np.nonzero(cells)[1] == 0].min() < 0
    assert free.found_kinds(panel) == {}
    truth = np.where(cells, -1.0, np.nan)
    assert (net.log_likelihood(panel, truth)[:, 0][cells[:, 0]] == -np.inf).all()
    assert np.isfinite(free.log_likelihood(panel, truth)[:, 0][cells[:, 0]]).all()
    moved = net.impute(panel).shift({"x0": 5.0}).draws_at(cells)[:, np.nonzero(cells)[1] == 0]
    np.testing.assert_allclose(moved, drawn + 5, atol=1e-4)


def test_draws_obey_the_relations_of_columns() -> None:
    """a, b and a + b, all missing in the same rows."""
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(700, 2)).cumsum(axis=0)
    values = np.column_stack([parts, parts.sum(axis=1), rng.normal(size=700)])
    values[100:110, :3] = values[300:306, :3] = np.nan
    values[::9, 3] = np.nan
    samples = GPNet().fit(values).impute(values, samples=60).samples
    broken = np.abs(samples[..., 0] + samples[..., 1] - samples[..., 2]).max()
    assert broken < 0.05 * samples[:, 105, 2].std()


@pytest.mark.parametrize("sort", ["tied", "constant", "sparse"])
def test_tables_with_nothing_to_learn_are_filled(sort: str) -> None:
    """Columns that others determine, columns that do not change, and one that is hardly ever there."""
    rng = np.random.default_rng(0)
    walk = rng.normal(size=1200).cumsum()
    values = {
        "tied": np.column_stack([walk, 2 * walk + 1]),
        "constant": np.column_stack([np.ones(1200), np.full(1200, 3.0)]),
        "sparse": np.column_stack([walk, rng.normal(size=1200), np.where(np.arange(1200) < 35, walk, np.nan)]),
    }[sort]
    values[5::9, 0] = np.nan
    for seed in (0, 8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that columns are constant
            filled = GPNet(seed=seed).fit(values).impute(values, samples=30)
        assert np.isfinite(filled.mean).all()
        assert np.isfinite(filled.samples).all()


def test_few_draws_are_random_and_many_are_even_quantiles(
    fitted: GPNet, squares: tuple[Panel, NDArray[np.bool_], Array]
) -> None:
    panel, cells, _ = squares
    one, other = (fitted.impute(panel, samples=1, seed=seed).draws_at(cells) for seed in (1, 2))
    assert (one != other).mean() > 0.99
    few = fitted.impute(panel, samples=20, seed=3)
    many = fitted.impute(panel, samples=2000, seed=3)
    ratio = few.draws_at(cells).std(axis=0, ddof=1) / many.draws_at(cells).std(axis=0)
    assert np.median(ratio) == pytest.approx(1, abs=0.1)
    spread = many.draws_at(cells).std(axis=0) / many.std_rows[cells]
    assert np.median(spread) == pytest.approx(1, abs=0.1)


def test_an_absurd_value_beside_a_gap_gives_no_certainty(fitted: GPNet, squares: tuple[Panel, Any, Array]) -> None:
    panel, cells, _ = squares
    values = panel.values.copy()
    rows = np.flatnonzero(cells[:, 1] & ~cells[:, 0])
    values[rows, 0] = 50.0
    lower, upper = fitted.impute(panel.with_values(values)).interval_rows(0.9)
    usual_lower, usual_upper = fitted.impute(panel).interval_rows(0.9)
    assert ((upper - lower)[rows, 1] > 0.2 * np.median((usual_upper - usual_lower)[rows, 1])).all()


def test_only_wanted_cells_are_drawn(fitted: GPNet, squares: tuple[Panel, Any, Array]) -> None:
    panel, *_ = squares
    every, short = fitted.impute(panel, seed=2), fitted.impute(panel, seed=2, max_gap=5)
    assert 0 < len(short.cells) < len(every.cells)
    wanted = np.isin(every.cells, short.cells)
    np.testing.assert_allclose(every.values[wanted], short.values)
