"""Point masses at bounds: probabilities from held-out cells, levels in order, and densities that integrate to one."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import special, stats

from gpvae.imputers.masses import AS_DENSITY, Ends, Masses, fit_masses, student_quantiles

Array = NDArray[Any]
CASES = {
    "more at the lower end": ([0.6, 0.0], [0.2, 0.0]),
    "less at the lower end": ([0.01, 0.0], [0.2, 0.0]),
    "nearly all at the lower end": ([0.97, 0.0], [0.5, 0.0]),
    "both ends": ([0.3, 0.2], [0.1, 0.15]),
    "both ends, and little between": ([0.6, 0.35], [0.1, 0.1]),
    "both ends swell": ([0.45, 0.4], [0.3, 0.3]),
    "as the density": ([0.1, 0.3], [0.1, 0.3]),
    "no ends": ([0.0, 0.0], [0.0, 0.0]),
}


def ends_of(case: str) -> Ends:
    p, beyond = (np.array([x]) for x in CASES[case])
    return Ends.of(p, beyond)


@pytest.mark.parametrize("case", CASES)
def test_levels_are_in_order_and_ends_have_their_probability(case: str) -> None:
    ends, even = ends_of(case), (np.arange(2000) + 0.5)[None] / 2000
    levels, at_low, at_high = ends.levels(even)
    assert [at_low.mean(), at_high.mean()] == pytest.approx(ends.p[0].tolist(), abs=1e-3)
    assert (np.diff(levels) >= 0).all()
    between = ~at_low & ~at_high
    assert levels[between].min() >= ends.beyond[0, 0]
    assert levels[between].max() <= 1 - ends.beyond[0, 1]
    each = Ends(*(np.repeat(x, between.sum(), axis=0) for x in ends))
    np.testing.assert_allclose(each.cumulative(levels[between]), even[between], atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_the_density_between_the_ends_is_the_slope_of_the_levels(case: str) -> None:
    ends = ends_of(case)
    low, high = ends.beyond[0, 0], 1 - ends.beyond[0, 1]
    middle = np.linspace(low, high, 402)[1:-1]
    many = Ends(*(np.repeat(x, len(middle), axis=0) for x in ends))
    width = 1e-6
    slope = (many.cumulative(middle + width) - many.cumulative(middle - width)) / (2 * width)
    np.testing.assert_allclose(np.exp(many.log_density(middle)), slope, rtol=0.01)
    assert np.exp(many.log_density(middle)).mean() * (high - low) == pytest.approx(1 - ends.p.sum(), rel=0.02)


def test_two_values_share_all_probability() -> None:
    beyond = np.array([[0.3, 0.7], [1e-12, 1 - 1e-12]])
    ends = Masses.untrained(1).ends(beyond, np.ones(2), np.zeros(2, dtype=int))
    np.testing.assert_allclose(ends.p, beyond, atol=1e-8)
    _, at_low, at_high = ends.levels(np.linspace(0.001, 0.999, 500)[None].repeat(2, axis=0))
    assert (at_low ^ at_high).all()


def test_probabilities_are_learned_from_held_out_cells() -> None:
    """Three in four of the cells that are dry are drier than the density says; a sure cell is not moved as far."""
    rng = np.random.default_rng(0)
    q, scale = rng.uniform(0.01, 0.6, 4000), np.exp(rng.normal(size=4000))
    truth = special.expit(0.8 + 1.5 * special.logit(q) - 0.3 * np.log(scale))
    at_end = np.stack([rng.random(4000) < truth, np.zeros(4000, dtype=bool)], axis=1)
    beyond, column = np.stack([q, np.zeros(4000)], axis=1), np.ones(4000, dtype=np.int64)
    masses = fit_masses(beyond, scale, at_end, column, 3)
    np.testing.assert_allclose(masses.weights[1, 0], [0.8, 1.5, -0.3], atol=0.2)
    untouched = torch.tensor(AS_DENSITY, dtype=torch.float64).expand(3, 2, 3)
    keep = torch.ones(3, 2, dtype=torch.bool)
    keep[1, 0] = False
    assert torch.equal(masses.weights[keep], untouched[keep])
    ends = masses.ends(beyond, scale, column)
    assert np.abs(ends.p[:, 0] - truth).mean() < 0.02
    assert (ends.p[:, 1] == 0).all()


def test_few_held_out_cells_move_little() -> None:
    beyond, at_end = np.array([[0.1, 0.0]] * 3), np.array([[True, False]] * 3)
    masses = fit_masses(beyond, np.ones(3), at_end, np.zeros(3, dtype=np.int64), 1)
    assert 0.1 < masses.ends(beyond, np.ones(3), np.zeros(3, dtype=np.int64)).p[0, 0] < 0.5


@pytest.mark.parametrize("tails", [3.0, 6.0, 30.0])
def test_quantiles_are_those_of_students_t(tails: float) -> None:
    levels = np.concatenate([np.linspace(0.001, 0.999, 997), [1e-9, 1 - 1e-9]])
    np.testing.assert_allclose(student_quantiles(levels, tails), stats.t.ppf(levels, tails), rtol=1e-5, atol=1e-6)
