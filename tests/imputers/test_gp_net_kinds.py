"""Columns that hold more than real numbers: filled values, intervals, draws and densities are of their kind."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import gpvae
from gpvae import GPNet, Panel, missingness
from gpvae.data.panel import DataError
from gpvae.evaluation.metrics import crps
from gpvae.imputers.marginals import Marginals
from gpvae.training import correction

Array = NDArray[Any]
RAIN, VISITS, FLAG, SWITCH, PRICE, PLAIN = range(6)
ROWS = 1500


def known_truth(seed: int = 0) -> Array:
    """Columns of all kinds around two slow series."""
    rng = np.random.default_rng(seed)
    slow = rng.normal(size=(ROWS, 2))
    for t in range(1, ROWS):
        slow[t] = 0.95 * slow[t - 1] + np.sqrt(1 - 0.95**2) * slow[t]
    a, b = slow.T
    noise = rng.normal(size=(ROWS, 4))
    return np.column_stack(
        [
            np.maximum(0, 3 * a + noise[:, 0] - 1),
            rng.poisson(np.exp(0.4 + 0.6 * b)),
            rng.random(ROWS) < 1 / (1 + np.exp(-3 * a)),
            np.where(b + 0.5 * noise[:, 1] > 0, 7.5, 2.25),
            np.round(2 * a + noise[:, 2]) / 2,
            b + 0.3 * noise[:, 3],
        ]
    ).astype(float)


@pytest.fixture(scope="module")
def table() -> tuple[Panel, Array, Array]:
    values = known_truth()
    panel = Panel.from_array(values)
    cells = missingness.random(panel, 0.15, 1)
    return missingness.hide(panel, cells), cells, values


@pytest.fixture(scope="module")
def fitted(table: tuple[Panel, Array, Array]) -> GPNet:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correction, "FIRST_STEPS", 300)
        patch.setattr(correction, "ROUNDS", 1)
        return GPNet().fit(table[0])


@pytest.fixture(scope="module")
def as_real(table: tuple[Panel, Array, Array]) -> GPNet:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correction, "FIRST_STEPS", 300)
        patch.setattr(correction, "ROUNDS", 1)
        return GPNet(find_kinds=False).fit(table[0])


def test_kinds_are_found(fitted: GPNet, table: tuple[Panel, Array, Array]) -> None:
    assert fitted.found_kinds(table[0]) == {
        "x0": "never below 0, many zeros",
        "x1": "whole numbers, never below 0, many zeros",
        "x2": "0 or 1",
        "x3": "2.25 or 7.5",
        "x4": "steps of 0.5",
    }


@pytest.mark.parametrize("samples", [30, 100])
def test_everything_filled_is_of_the_kind(fitted: GPNet, table: tuple[Panel, Array, Array], samples: int) -> None:
    panel, cells, _ = table
    imputation = fitted.impute(panel, samples=samples)
    drawn = np.repeat(imputation.mean_rows[None], samples, axis=0)
    drawn[:, cells] = imputation.draws_at(cells)
    for rows in (imputation.mean_rows, *imputation.interval_rows(0.9), *drawn):
        assert rows[:, RAIN].min() >= 0
        assert rows[:, VISITS].min() >= 0
        assert (rows[:, VISITS] % 1 == 0).all()
        assert {*rows[:, FLAG].tolist()} <= {0.0, 1.0}
        assert {*rows[:, SWITCH].tolist()} <= {2.25, 7.5}
        assert (rows[:, PRICE] % 0.5 == 0).all()
    shares = imputation.probability_rows
    assert np.isnan(shares[cells & (np.arange(6) == PLAIN)]).all()
    flags = cells[:, FLAG]
    of_ones = drawn[:, flags, FLAG].mean(0)
    filled = imputation.mean_rows[flags, FLAG]
    np.testing.assert_allclose(shares[flags, FLAG], np.where(filled == 1, of_ones, 1 - of_ones), atol=1e-6)


def test_zeros_and_flags_are_as_frequent_as_they_are(fitted: GPNet, table: tuple[Panel, Array, Array]) -> None:
    panel, cells, values = table
    drawn = np.zeros((100, *cells.shape))
    drawn[:, cells] = fitted.impute(panel).draws_at(cells)
    for column, value in ((RAIN, 0), (VISITS, 0), (FLAG, 0), (SWITCH, 2.25)):
        truth, p = values[cells[:, column], column] == value, (drawn[:, cells[:, column], column] == value).mean(0)
        assert p.mean() == pytest.approx(truth.mean(), abs=0.08)
        sure = p > np.median(p)
        assert truth[sure].mean() == pytest.approx(p[sure].mean(), abs=0.12)
        assert ((p - truth) ** 2).mean() < 0.95 * truth.mean() * (1 - truth.mean())


def test_no_worse_than_as_real_numbers(fitted: GPNet, as_real: GPNet, table: tuple[Panel, Array, Array]) -> None:
    panel, cells, values = table
    ours, real = fitted.impute(panel), as_real.impute(panel)
    for column in range(6):
        rows = cells[:, column]
        scores = []
        for imputation in (ours, real):
            drawn = np.zeros((100, *cells.shape))
            drawn[:, cells] = imputation.draws_at(cells)
            truth = values[rows, column]
            error = np.abs(imputation.mean_rows[rows, column] - truth).mean()
            scores.append((error, crps(truth, drawn[:, rows, column]).mean()))
        assert scores[0][0] <= 1.03 * scores[1][0], column
        assert scores[0][1] <= 1.01 * scores[1][1], column
    lower, upper = ours.interval_rows(0.9)
    inside = ((lower <= values) & (values <= upper)) & cells
    assert (inside.sum(0) / cells.sum(0) >= 0.85).all()


def test_draws_are_ordered_like_those_of_the_core(
    fitted: GPNet, as_real: GPNet, table: tuple[Panel, Array, Array]
) -> None:
    """Equal ones in any order; so gaps hold together as before."""
    panel, cells, _ = table
    ours, core = (each.impute(panel, seed=3).draws_at(cells) for each in (fitted, as_real.core_))
    order = core.argsort(axis=0)
    assert (np.diff(np.take_along_axis(ours, order, axis=0), axis=0) >= -1e-5).mean() > 0.995


def test_the_density_of_steps_sums_to_one_and_is_that_of_draws(
    fitted: GPNet, table: tuple[Panel, Array, Array]
) -> None:
    panel, cells, _ = table
    drawn = np.zeros((400, *cells.shape))
    drawn[:, cells] = fitted.impute(panel, samples=400).draws_at(cells)
    for column, values in ((VISITS, np.arange(0, 60.0)), (FLAG, [0.0, 1.0]), (PRICE, np.arange(-30, 30) / 2)):
        step = 0.5 if column == PRICE else 1.0
        row = int(np.flatnonzero(cells[:, column])[4])
        found = []
        for value in values:
            truth = np.full(panel.values.shape, np.nan)
            truth[row, column] = value
            found.append(step * np.exp(fitted.log_likelihood(panel, truth)[row, column]))
        shares = [(np.abs(drawn[:, row, column] - value) < 1e-6).mean() for value in values]
        assert sum(found) == pytest.approx(1, abs=0.002)
        np.testing.assert_allclose(found, shares, atol=0.01)


def test_the_density_of_rain_is_a_mass_and_a_part_above(fitted: GPNet, table: tuple[Panel, Array, Array]) -> None:
    panel, cells, _ = table
    drawn = np.zeros((400, *cells.shape))
    drawn[:, cells] = fitted.impute(panel, samples=400).draws_at(cells)
    shares = (drawn[:, :, RAIN] == 0).mean(0)
    row = int(np.flatnonzero(cells[:, RAIN] & (shares > 0.2) & (shares < 0.8))[0])
    grid = np.concatenate([[0.0, -0.5], np.exp(np.linspace(-9, 4, 400))])
    density = []
    for value in grid:
        truth = np.full(panel.values.shape, np.nan)
        truth[row, RAIN] = value
        density.append(np.exp(fitted.log_likelihood(panel, truth)[row, RAIN]))
    assert density[0] == pytest.approx(shares[row], abs=0.01)
    assert density[1] == 0
    assert np.trapezoid(density[2:], grid[2:]) == pytest.approx(1 - density[0], abs=0.02)


def test_impossible_values_have_no_density(fitted: GPNet, table: tuple[Panel, Array, Array]) -> None:
    panel, cells, _ = table
    for column, value in ((VISITS, 1.5), (VISITS, -1.0), (FLAG, 0.5), (PRICE, 0.3), (SWITCH, 3.0)):
        truth = np.where(cells & (np.arange(6) == column), value, np.nan)
        assert (fitted.log_likelihood(panel, truth)[cells[:, column], column] == -np.inf).all()


def test_a_saved_model_keeps_them(fitted: GPNet, table: tuple[Panel, Array, Array], tmp_path: Path) -> None:
    fitted.save(tmp_path / "model")
    loaded = gpvae.load(tmp_path / "model")
    assert loaded.schema_.scaling.limits == fitted.schema_.scaling.limits
    ours, theirs = (each.impute(table[0], seed=1) for each in (fitted, loaded))
    np.testing.assert_array_equal(ours.samples, theirs.samples)
    np.testing.assert_array_equal(ours.mean, theirs.mean)


def test_declared_kinds_count(table: tuple[Panel, Array, Array]) -> None:
    panel = table[0].pick(np.array([0]), 60)
    net = GPNet(kinds={"x0": "real", "x1": "real", "x5": "real"}).fit(panel)
    assert [*net.found_kinds(panel)] == ["x2", "x3", "x4"]
    filled = net.impute(panel).mean_rows[~panel.observed[:, VISITS], VISITS]
    assert (filled % 1 != 0).any()
    with pytest.raises(DataError, match="'x4' is count, so it must hold whole numbers from 0 on"):
        GPNet(kinds={"x4": "count"}).fit(panel)
    with pytest.raises(DataError, match="GPNet fills only numbers; gp-vae fills categories such as 'x4'"):
        GPNet(kinds={"x4": "categorical"}).fit(panel)


def test_shifted_values_keep_their_steps_and_masses(fitted: GPNet, table: tuple[Panel, Array, Array]) -> None:
    panel, cells, _ = table
    imputation = fitted.impute(panel)
    before, after = (each.draws_at(cells) for each in (imputation, imputation.shift({"x1": 5, "x2": 0.5})))
    column = np.nonzero(cells)[1]
    np.testing.assert_array_equal(after[:, column == VISITS], before[:, column == VISITS] + 5)
    np.testing.assert_array_equal(after[:, column == FLAG], before[:, column == FLAG] + 0.5)


def test_marginals_without_limits_are_those_of_students_t(as_real: GPNet) -> None:
    """Quantiles of cells, against SciPy's, unbent by hand."""
    marginals: Marginals = as_real._marginals
    location, scale, column = np.array([0.3, -1.0]), np.array([0.5, 2.0]), np.array([PLAIN, RAIN])
    levels = np.array([[0.05, 0.5, 0.95]] * 2)
    y = location[:, None] + scale[:, None] * stats.t.ppf(levels, marginals.tails)
    expected = marginals.unwarp(y, column)
    np.testing.assert_allclose(marginals.quantiles(levels, location, scale, column), expected, rtol=1e-4, atol=1e-5)
