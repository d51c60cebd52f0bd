"""GPFactor against dense Gaussian-process regression: means, deviations, joint draws, densities; and hard tables."""

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae import GPFactor, Imputation, Panel
from gpvae.imputers.factor import log_normal
from gpvae.models.factor import FactorModel, Warp
from gpvae.training import blocks

Array = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def irregular_table() -> Panel:
    """Two slow series in three columns, of which one is skewed, at uneven times, with cells and a long gap missing."""
    times = rng(1).uniform(0.2, 2, size=40).cumsum()
    slow = np.stack([np.sin(times / 4), np.cos(times / 7)], axis=1)
    values = slow @ rng(2).normal(size=(2, 3)) * 5 + rng(3).normal(size=(40, 3)) + [0, 100, 5]
    values[:, 2] = np.exp(values[:, 2] / 4)
    values[rng(4).random(values.shape) < 0.2] = np.nan
    values[15:22, 0] = values[30:33] = np.nan
    return Panel.from_array(values, times=times)


@pytest.fixture(scope="module")
def table() -> Panel:
    return irregular_table()


@pytest.fixture(scope="module")
def fitted(table: Panel) -> GPFactor:
    return GPFactor().fit(table)


@pytest.fixture(scope="module")
def straight(fitted: GPFactor) -> GPFactor:
    """The same model without warps, so that everything is Gaussian in the data's units."""
    (block,) = fitted.blocks_
    warp, imputer = block.model.warp, GPFactor()
    imputer.schema_, imputer.history_ = fitted.schema_, []
    imputer.blocks_ = [block._replace(model=replace(block.model, warp=Warp.straight(warp.edges, warp.extent)))]
    return imputer


class Dense(NamedTuple):
    """Regression by the covariance of all cells of a table, in warped units."""

    mean: Array  # (missing cell,)
    covariance: Array  # (missing cell, missing cell) noise included

    @classmethod
    def of(cls, imputer: GPFactor, panel: Panel) -> "Dense":
        (block,), schema = imputer.blocks_, imputer.schema_
        times, values = torch.from_numpy(panel.times / schema.time_unit), schema.scaling.apply(panel.values)
        cells = prior(block.model, times)
        y, seen = block.model.warp(torch.from_numpy(values)).numpy().ravel(), ~np.isnan(values).ravel()
        gain: Array = np.linalg.solve(cells[np.ix_(seen, seen)], cells[np.ix_(seen, ~seen)]).T.astype(np.float64)
        return cls(gain @ y[seen], cells[np.ix_(~seen, ~seen)] - gain @ cells[np.ix_(seen, ~seen)])


def prior(model: FactorModel, times: Tensor) -> Array:
    """The covariance of all cells, row by row, noise included."""
    lags = times.unsqueeze(1) - times
    signal = model.space.covariance(lags.abs())
    signal = torch.where((lags >= 0)[..., None, None], signal, signal.mT)
    cells = signal.transpose(1, 2).flatten(0, 1).flatten(1)
    return (cells + model.noise.repeat(len(times)).diag()).numpy()


def units(imputer: GPFactor, panel: Panel) -> tuple[Array, Array]:
    """Shift and scale of each missing cell."""
    feature, scaling = np.nonzero(~panel.observed)[1], imputer.schema_.scaling
    return scaling.shift[feature], scaling.scale[feature]


def missing_cells(panel: Panel, filled: Array) -> Array:
    return filled.reshape(panel.values.shape)[~panel.observed]


def test_posterior_is_that_of_dense_regression(straight: GPFactor, table: Panel) -> None:
    dense, filled = Dense.of(straight, table), straight.impute(table, samples=1)
    shift, scale = units(straight, table)
    np.testing.assert_allclose(missing_cells(table, filled.mean), shift + scale * dense.mean, rtol=1e-7)
    np.testing.assert_allclose(
        missing_cells(table, filled.std), scale * np.sqrt(dense.covariance.diagonal()), rtol=1e-7
    )


def test_means_and_deviations_of_warped_columns(fitted: GPFactor, table: Panel) -> None:
    """By the normal distribution of dense regression, bent back at many quantiles."""
    dense, filled = Dense.of(fitted, table), fitted.impute(table, samples=1)
    warp, feature = fitted.blocks_[0].model.warp, torch.from_numpy(np.nonzero(~table.observed)[1])
    assert (warp.exponent - 1).abs().max() > 0.3
    levels = torch.linspace(-8, 8, 4001, dtype=torch.float64).unsqueeze(1)
    y = torch.from_numpy(dense.mean) + torch.from_numpy(dense.covariance).diagonal().sqrt() * levels
    x, weight = warp.of(feature).inverse(y).numpy(), torch.softmax(-(levels**2) / 2, 0).numpy()
    mean, (shift, scale) = (weight * x).sum(0), units(fitted, table)
    deviation = np.sqrt((weight * (x - mean) ** 2).sum(0))
    np.testing.assert_allclose(missing_cells(table, filled.mean), shift + scale * mean, rtol=2e-3)
    np.testing.assert_allclose(missing_cells(table, filled.std), scale * deviation, rtol=2e-2)


def test_draws_are_joint_over_time_and_columns(straight: GPFactor, table: Panel) -> None:
    count, dense, (_, scale) = 4000, Dense.of(straight, table), units(straight, table)
    samples = straight.impute(table, samples=count, seed=1).samples.reshape(count, *table.values.shape)
    gaps = ~table.observed
    assert np.array_equal(samples[:, ~gaps], np.broadcast_to(table.values[~gaps], (count, (~gaps).sum())))
    root = scale * np.sqrt(dense.covariance.diagonal())
    found, expected = np.corrcoef(samples[:, gaps].T), dense.covariance * np.outer(scale, scale) / np.outer(root, root)
    np.testing.assert_allclose(samples[:, gaps].std(axis=0), root, rtol=5 / math.sqrt(2 * count))
    np.testing.assert_allclose(found, expected, atol=5 / math.sqrt(count))
    assert np.abs(expected - np.eye(len(root))).max() > 0.5  # draws of single cells would fail


def test_quantiles_of_draws_are_bent_like_the_columns(fitted: GPFactor, table: Panel) -> None:
    dense, filled = Dense.of(fitted, table), fitted.impute(table, samples=4000)
    warp, feature = fitted.blocks_[0].model.warp, np.nonzero(~table.observed)[1]
    scaled = fitted.schema_.scaling.apply(filled.quantile(0.9).reshape(table.values.shape))[~table.observed]
    y = warp.of(torch.from_numpy(feature))(torch.from_numpy(scaled)).numpy()
    error = (y - dense.mean) / np.sqrt(dense.covariance.diagonal()) - 1.2816
    np.testing.assert_allclose(error, 0, atol=5 * 1.71 / math.sqrt(4000))  # of a quantile of 0.9 of 4000 numbers


def test_log_likelihood_is_that_of_dense_regression(fitted: GPFactor, table: Panel) -> None:
    dense, gaps, scaling = Dense.of(fitted, table), ~table.observed, fitted.schema_.scaling
    truth = np.where(gaps, rng(5).normal(size=gaps.shape) * scaling.scale + scaling.shift, np.nan)
    feature, warp = np.nonzero(gaps)[1], fitted.blocks_[0].model.warp
    x, warp = torch.from_numpy(scaling.apply(truth)[gaps]), warp.of(torch.from_numpy(feature))
    y, variance = warp(x).numpy(), dense.covariance.diagonal()
    expected = -0.5 * ((y - dense.mean) ** 2 / variance + np.log(2 * math.pi * variance))
    expected += warp.log_slope(x).numpy() - np.log(scaling.scale[feature])
    found = fitted.log_likelihood(table, truth)
    np.testing.assert_allclose(found[gaps], expected, rtol=1e-4, atol=1e-4)  # values pass as float32
    assert np.isnan(found[~gaps]).all()


def test_densities_integrate_to_one(fitted: GPFactor, table: Panel) -> None:
    """Of one cell of many copies of the series, at as many values."""
    row, column = (int(each[0]) for each in np.nonzero(~table.observed))
    filled = fitted.impute(table, samples=1)
    mean, std = (each.reshape(table.values.shape)[row, column] for each in (filled.mean, filled.std))
    grid, truth = np.linspace(mean - 8 * std, mean + 8 * std, 200), np.full((200, *table.values.shape), np.nan)
    truth[:, row, column] = grid
    copies = Panel.from_array(np.tile(table.values, (200, 1, 1)), times=np.tile(table.times, (200, 1)))
    density = np.exp(fitted.log_likelihood(copies, truth.reshape(-1, 3)).reshape(truth.shape)[:, row, column])
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=1e-4)


def with_gaps(values: Array, share: float, seed: int = 0) -> Array:
    return np.where(rng(seed).random(values.shape) < share, np.nan, values)


def test_results_do_not_depend_on_the_order_of_columns(table: Panel) -> None:
    order = [2, 0, 1]
    moved = table.select([table.columns[j] for j in order])
    first, second = (GPFactor().fit(each).impute(each, samples=1) for each in (table, moved))
    np.testing.assert_allclose(second.mean, first.mean[..., order], rtol=1e-3)
    np.testing.assert_allclose(second.std, first.std[..., order], rtol=1e-3)


def many_series(count: int = 30) -> Array:
    """Series of twelve steps and four columns that share a walk; most of the cells are missing."""
    shared = rng(6).normal(size=(count, 12, 1)).cumsum(axis=1)
    return with_gaps(shared * [1, -2, 3, 0.5] + 0.3 * rng(7).normal(size=(count, 12, 4)), 0.6)


def test_results_do_not_depend_on_the_order_of_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some of the series are enough to learn from."""
    monkeypatch.setattr("gpvae.training.factor.ROWS", 120)
    values = many_series()
    order = rng(8).permutation(len(values))
    first, second = (GPFactor().fit(each).impute(each, samples=1) for each in (values, values[order]))
    np.testing.assert_allclose(second.mean, first.mean[order], rtol=1e-4, atol=1e-4)


def test_many_short_series_teach_what_they_share() -> None:
    values = many_series(100)
    hidden = np.where(np.isnan(values[..., 2]), np.nan, values[..., 2])
    shown = values.copy()
    shown[::4, :, 2] = np.nan
    filled = GPFactor().fit(shown).impute(shown, samples=1).mean[::4, :, 2]
    error = filled - hidden[::4]
    assert np.nanmean(error**2) < 0.25 * np.nanvar(hidden)


def test_the_same_table_gives_the_same_model(table: Panel, fitted: GPFactor) -> None:
    again = GPFactor().fit(table)
    for name, value in fitted._tensors().items():
        assert torch.equal(value, again._tensors()[name]), name


def fill(values: Array, samples: int) -> tuple[GPFactor, Imputation]:
    imputer = GPFactor().fit(values)
    return imputer, imputer.impute(values, samples=samples)


def test_exact_relations_are_kept_in_means_and_draws() -> None:
    celsius = 15 + rng(9).normal(size=(300, 1)).cumsum(axis=0)
    whole = np.hstack([celsius, celsius + 273.15, rng(10).normal(size=(300, 1))])
    imputer, filled = fill(with_gaps(whole, 0.2), samples=20)
    assert imputer.blocks_[0].model.relations.derived.sum() == 1
    tolerance = 0.005 * celsius.std()
    np.testing.assert_allclose(filled.mean[:, 1] - filled.mean[:, 0], 273.15, atol=tolerance)
    np.testing.assert_allclose(filled.samples[..., 1] - filled.samples[..., 0], 273.15, atol=2 * tolerance)


def broken_table() -> tuple[Array, int, int]:
    """A difference of two columns; in one row that is complete, and in one that is not, a slip is added."""
    level = rng(11).normal(size=(150, 2)).cumsum(axis=0)
    whole, complete, incomplete = np.column_stack([level, level[:, 0] - level[:, 1]]), 40, 90
    whole[[complete, incomplete], 2] += 8
    return whole, complete, incomplete


def test_a_derived_cell_that_breaks_its_relation_says_nothing() -> None:
    whole, complete, incomplete = broken_table()
    shown, gap = whole.copy(), slice(complete + 1, complete + 4)
    shown[incomplete] = shown[gap, :2] = np.nan
    imputer, filled = fill(shown, samples=1)
    (derived,) = np.flatnonzero(imputer.blocks_[0].model.relations.derived.numpy())
    shown[complete, derived] = np.nan
    np.testing.assert_array_equal(imputer.impute(shown, samples=1).mean[gap], filled.mean[gap])


def test_a_broken_row_that_cannot_be_told_is_unlikely_but_not_absurd() -> None:
    """Where one column of it is missing, the others imply a value that is far from the truth."""
    whole, _, incomplete = broken_table()
    shown, truth = whole.copy(), np.full(whole.shape, np.nan)
    for row in (incomplete, incomplete + 5):
        shown[row, 0], truth[row, 0] = np.nan, whole[row, 0]
    imputer, filled = fill(shown, samples=1)
    found = imputer.log_likelihood(shown, truth)[[incomplete, incomplete + 5], 0]
    assert abs(filled.mean[incomplete, 0] - whole[incomplete, 0]) > 1000 * filled.std[incomplete, 0]
    assert -25 < found[0] < -5
    assert found[1] > 2


def test_densities_of_columns_in_doubt_integrate_to_one() -> None:
    imputer = GPFactor().fit(broken_table()[0])
    grid = torch.from_numpy(np.sort(np.concatenate([np.linspace(-20, 20, 2000), np.linspace(0.9, 1.1, 2000)])))
    y, mean, variance = (x.unsqueeze(1).expand(-1, 3) for x in (grid, 0 * grid + 1, 0 * grid + 1e-4))
    density = imputer.blocks_[0].doubted(y, log_normal(y - mean, variance)).exp()
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=0), 1, atol=1e-4)


def test_wide_tables_are_filled_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns of one block do not tell about those of another."""
    monkeypatch.setattr(blocks, "WIDEST", 2)
    walks = rng(12).normal(size=(50, 2)).cumsum(axis=0)
    whole = walks[:, [0, 1, 1, 0]] + 0.1 * rng(13).normal(size=(50, 4))
    shown = whole.copy()
    shown[20:35, 0] = np.nan
    imputer, filled = fill(shown, samples=1)
    assert sorted(block.columns for block in imputer.blocks_) == [(0, 3), (1, 2)]
    np.testing.assert_allclose(filled.mean[20:35, 0], whole[20:35, 0], atol=1)


@pytest.mark.filterwarnings("ignore:column 'x.' (is constant|ha[sd] no observed value)")
def test_constant_and_empty_columns_and_series_without_values() -> None:
    values = np.stack(
        [rng(14).normal(size=30).cumsum(), np.full(30, 7.0), np.full(30, np.nan), rng(15).normal(size=30)], 1
    )
    series = [values, np.full((5, 4), np.nan), values[:1], values[::-1].copy()]
    series[0][10:14] = np.nan
    for each in GPFactor().fit(series).impute(series, samples=2).mean:
        assert np.isfinite(each[:, [0, 3]]).all()
        np.testing.assert_array_equal(each[:, 1], 7)
        assert np.isnan(each[:, 2]).all()


@pytest.mark.filterwarnings("ignore:column 'x.' is constant")
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tables_of_a_few_rows(rows: int) -> None:
    values = rng(16).normal(size=(rows, 3))
    _, filled = fill(np.vstack([values, [[values[0, 0], np.nan, np.nan]]]), samples=3)
    assert np.isfinite(filled.mean).all()
    assert np.isfinite(filled.samples).all()
    single = GPFactor().fit(values).impute(values)
    np.testing.assert_array_equal(single.mean, values)
