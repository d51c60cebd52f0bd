"""Joint scores against loops over gaps, and in simulations in which draws of cells that are independent must fail."""

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import DataError, Imputation, Panel
from gpvae.data.scaling import Scaling
from gpvae.evaluation import joint
from gpvae.evaluation.joint import find_gaps, share
from gpvae.imputers.draws import Draws

Floats = NDArray[np.float64]
LENGTH, SLOT = 12, 20  # of simulated gaps, and rows from one to the next


def imputation_of(panel: Panel, cells: NDArray[np.bool_], draws: Floats) -> Imputation:
    """An imputation of the cells (row, feature), with draws (row, feature, sample) of them."""
    scaling = Scaling(np.zeros(cells.shape[1]), np.ones(cells.shape[1]))
    visible = panel.with_values(np.where(cells, np.nan, panel.values))
    kept = Draws(draws[cells].astype(np.float32), np.nonzero(cells)[1], scaling, stratified=False)
    return Imputation(visible, np.flatnonzero(cells), draws[cells].mean(axis=1), draws=kept)


def paths(rng: np.random.Generator, shape: tuple[int, ...], memory: float = 0.9) -> Floats:
    """Independent stationary series of unit variance along the first axis of `shape`."""
    values = rng.normal(size=shape)
    for t in range(1, len(values)):
        values[t] = memory * values[t - 1] + np.sqrt(1 - memory**2) * values[t]
    return values


def simulation(gaps: int, columns: int, samples: int, seed: int = 0) -> tuple[Panel, NDArray[np.bool_], Floats, Floats]:
    """Panel, hidden cells, draws that know the correlations in time, and draws that have the same marginals only."""
    rng = np.random.default_rng(seed)
    panel = Panel.from_array(paths(rng, (SLOT, gaps, columns)).swapaxes(0, 1).reshape(-1, columns))
    cells = np.tile(np.arange(SLOT) < LENGTH, gaps)[:, None] & np.ones(columns, dtype=bool)
    tied = paths(rng, (SLOT, gaps, columns, samples)).swapaxes(0, 1).reshape(-1, columns, samples)
    return panel, cells, tied, rng.normal(size=tied.shape)


def units_of(panel: Panel) -> Scaling:
    return Scaling.of(panel, standardise=True)


def test_gaps_end_with_the_column_the_series_and_a_visible_cell() -> None:
    panel = Panel.from_list([np.zeros((4, 2)), np.zeros((3, 2))])
    cells = np.array([[0, 1], [0, 1], [1, 0], [1, 1], [1, 1], [0, 1], [1, 1]], dtype=bool)
    gaps = find_gaps(panel, cells)
    assert list(zip(*(field.tolist() for field in gaps), strict=True)) == [
        *((0, 2, 2), (0, 4, 1), (0, 6, 1)),
        *((1, 0, 2), (1, 3, 1), (1, 4, 3)),
    ]
    rebuilt = np.zeros_like(cells)
    rebuilt[gaps.cells()] = True
    np.testing.assert_array_equal(rebuilt, cells)
    assert joint.outage_of(panel, cells, gaps).tolist() == [0, 1, 1, 0, 0, 1]


def test_cells_in_gaps_of_at_least_two() -> None:
    panel = Panel.from_list([np.zeros((4, 2)), np.zeros((3, 2))])
    cells = np.array([[0, 1], [0, 1], [1, 0], [1, 1], [1, 1], [0, 1], [1, 0]], dtype=bool)
    longer = np.array([[0, 1], [0, 1], [1, 0], [1, 0], [0, 1], [0, 1], [0, 0]], dtype=bool)
    np.testing.assert_array_equal(joint.longer_gaps(panel, cells), longer)
    assert not joint.longer_gaps(panel, np.zeros_like(cells)).any()


def test_without_hidden_cells_there_is_nothing_to_score() -> None:
    with pytest.raises(DataError, match="no hidden cell"):
        find_gaps(Panel.from_array(np.zeros((3, 1))), np.zeros((3, 1), dtype=bool))


@pytest.mark.parametrize("chunk", [1, 7, 2**14])
def test_scores_match_loops_over_gaps_and_draws(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "CELLS_PER_CHUNK", chunk)
    rng = np.random.default_rng(1)
    panel = Panel.from_array(np.array([1.0, 20.0]) * rng.normal(size=(2, 15, 2)).cumsum(axis=1))
    cells = rng.random(panel.values.shape) < 0.5
    draws = panel.values[..., None] + np.array([1.0, 20.0])[:, None] * rng.normal(size=(*cells.shape, 19))
    imputation = imputation_of(panel, cells, draws)
    units, found = units_of(panel), joint.score(imputation, panel.values, cells, units_of(panel))
    draws = draws.astype(np.float32).astype(np.float64)
    mean_inside, max_inside, draw_steps, true_steps, energy, variogram = [], [], [], [], [], []
    pairs = {"draws": np.zeros(2), "truth": np.zeros(2)}
    for j, first, length in zip(*find_gaps(panel, cells), strict=True):
        true = panel.values[first : first + length, j] / units.scale[j]
        each = draws[first : first + length, j].T / units.scale[j]
        low, *_, high = sorted(sample.mean() for sample in each)  # of 19 draws, the quantiles 1/20 and 19/20
        mean_inside.append(low <= true.mean() <= high)
        low, *_, high = sorted(sample.max() for sample in each)
        max_inside.append(low <= true.max() <= high)
        true_steps += [abs(true[t + 1] - true[t]) for t in range(length - 1)]
        draw_steps += [np.mean([abs(x[t + 1] - x[t]) for x in each]) for t in range(length - 1)]
        distance = np.mean([np.sqrt(((x - true) ** 2).sum()) for x in each])
        energy.append(distance - np.mean([np.sqrt(((x - y) ** 2).sum()) for x in each for y in each]) / 2)
        cells_of_gap = range(length)
        ordered = [(s, t) for s in cells_of_gap for t in cells_of_gap if s != t]
        squares = [
            (np.mean([np.sqrt(abs(x[s] - x[t])) for x in each]) - np.sqrt(abs(true[s] - true[t]))) ** 2
            for s, t in ordered
        ]
        variogram += [np.mean(squares)] if ordered else []
        centre = each.mean(axis=0)
        for name, several in {"draws": each, "truth": [true]}.items():
            for x in several:
                errors = x - centre
                for e, f in zip(errors[1:], errors[:-1], strict=True):
                    pairs[name] += np.array([e * f, (e**2 + f**2) / 2])
    assert found.variogram == pytest.approx(np.mean(variogram), rel=1e-4)
    assert found.lag_correlation == pytest.approx(pairs["draws"][0] / pairs["draws"][1], rel=1e-3)
    assert found.true_lag_correlation == pytest.approx(pairs["truth"][0] / pairs["truth"][1], rel=1e-3)
    assert found.mean_coverage.value == pytest.approx(np.mean(mean_inside))
    assert found.max_coverage.value == pytest.approx(np.mean(max_inside))
    assert found.roughness == pytest.approx(sum(draw_steps) / sum(true_steps), rel=1e-5)
    assert found.energy == pytest.approx(np.mean(energy), rel=1e-5)


def test_tied_draws_hold_over_gaps_and_independent_ones_do_not() -> None:
    panel, cells, tied, untied = simulation(gaps=250, columns=2, samples=99)
    imputations = [imputation_of(panel, cells, draws) for draws in (tied, untied)]
    good, bad = (joint.score(each, panel.values, cells, units_of(panel)) for each in imputations)
    for coverage in (good.mean_coverage, good.max_coverage):
        assert abs(coverage.value - 0.9) < 3 * np.sqrt(0.09 / 500)
        assert coverage.lower <= 0.9 <= coverage.upper
    assert bad.mean_coverage.upper < 0.7
    assert bad.max_coverage.upper < 0.8
    assert good.roughness == pytest.approx(1, abs=0.06)
    assert bad.roughness == pytest.approx(np.sqrt(2 / 0.2), abs=0.25)  # steps have variance 2 and 2 (1 - 0.9)
    assert good.energy < 0.98 * bad.energy
    assert good.variogram is not None
    assert bad.variogram is not None
    assert good.variogram < 0.9 * bad.variogram
    assert good.lag_correlation == pytest.approx(0.9, abs=0.02)
    assert bad.lag_correlation == pytest.approx(0, abs=0.02)
    for score in (good, bad):
        assert score.true_lag_correlation == pytest.approx(0.9, abs=0.03)


def test_coverage_of_cells_does_not_tell_them_apart() -> None:
    panel, cells, *both = simulation(gaps=250, columns=2, samples=99)
    for draws in both:
        coverage = joint.cell_coverage(imputation_of(panel, cells, draws), panel.values, cells)
        assert coverage.lower <= 0.9 <= coverage.upper


def test_outages_are_resampled_with_all_their_columns() -> None:
    """Eight copies of a column know no more than one."""
    panel, cells, tied, _ = simulation(gaps=200, columns=1, samples=19)
    copies, wide = Panel.from_array(np.repeat(panel.values, 8, axis=1)), np.repeat(cells, 8, axis=1)
    one = joint.score(imputation_of(panel, cells, tied), panel.values, cells, units_of(panel)).mean_coverage
    eight = imputation_of(copies, wide, np.repeat(tied, 8, axis=1))
    scores = [joint.score(eight, copies.values, wide, units_of(copies), by_outage=by) for by in (True, False)]
    by_outage, by_gap = (score.mean_coverage for score in scores)
    assert by_outage.value == by_gap.value == one.value
    assert by_outage.upper - by_outage.lower == pytest.approx(one.upper - one.lower, rel=0.1)
    assert (by_gap.upper - by_gap.lower) * np.sqrt(8) == pytest.approx(one.upper - one.lower, rel=0.15)


@pytest.mark.parametrize("merged", [10**6, 100])
def test_bootstrap_intervals_contain_the_true_share(merged: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups of one to nine gaps that are all covered or not; also when groups are merged before they are resampled."""
    monkeypatch.setattr(joint, "MAX_RESAMPLED", merged)
    rng, contained = np.random.default_rng(0), []
    for seed in range(200):
        groups = np.repeat(np.arange(250), rng.integers(1, 10, size=250))
        hits = (rng.random(250) < 0.8)[groups]
        found = share(hits, np.ones(len(groups)), groups, seed)
        contained.append(found.lower <= 0.8 <= found.upper)
    assert 0.9 <= np.mean(contained) <= 0.99


def test_one_group_has_no_interval() -> None:
    found = share(np.array([1, 0]), np.array([1, 1]), np.array([0, 0]), 0)
    assert found.value == 0.5
    assert np.isnan([found.lower, found.upper]).all()


def test_single_cells_have_no_roughness_and_the_energy_of_their_crps() -> None:
    panel, cells, tied, _ = simulation(gaps=20, columns=1, samples=19)
    cells &= (np.arange(len(cells)) % SLOT == 3)[:, None]
    found = joint.score(imputation_of(panel, cells, tied), panel.values, cells, Scaling(np.zeros(1), np.ones(1)))
    crps = joint.metrics.crps(panel.values[cells], tied[cells].T.astype(np.float32))
    assert found.roughness is found.variogram is found.lag_correlation is found.true_lag_correlation is None
    assert found.energy == pytest.approx(crps.mean(), rel=1e-5)


def test_draws_are_needed_and_only_for_missing_cells() -> None:
    panel, cells, tied, _ = simulation(gaps=3, columns=1, samples=19)
    imputation = imputation_of(panel, cells, tied)
    with pytest.raises(ValueError, match="only for missing cells"):
        joint.score(imputation, panel.values, np.ones_like(cells), units_of(panel))
    with pytest.raises(DataError, match="no draws"):
        joint.score(Imputation(panel, imputation.cells, imputation.values), panel.values, cells, units_of(panel))
