"""The factor model: warps, relations, and a state space whose covariance is that of the model's equation."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from gpvae.gp.state_space import Kind
from gpvae.models.factor import Composition, FactorModel, Relations, Warp

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def no_relations(columns: int) -> Relations:
    return Relations(randn(columns, columns) * 0, *(randn(3, columns) * 0))


def a_total() -> Relations:
    """x3 = 0.5 - 2 x0 + x1."""
    relations = no_relations(4)
    relations.weights[3, :2], relations.offset[3] = numbers(-2, 1), 0.5
    relations.reach[3], relations.doubt[3] = 0.1, 0.01
    return relations


def warp_of(*exponents: float) -> Warp:
    """Bent between -2 and 3."""
    centre, spread = randn(2, len(exponents), seed=1)
    low = torch.full_like(centre, -2)
    return Warp(numbers(*exponents), centre, spread.exp(), low, low + 5)


EXPONENTS = (0.05, 0.5, 1.0, 1.4, 1.95)


def test_warp_is_yeo_and_johnsons_within_the_range() -> None:
    x, ones = numbers(-1.5, -0.2, 0, 0.7, 2.5), torch.ones(1, dtype=torch.float64)
    warp = Warp(numbers(0.3), 0 * ones, ones, -2 * ones, 3 * ones)
    expected = [(((1 + v) ** 0.3 - 1) / 0.3) if v >= 0 else -((1 - v) ** 1.7 - 1) / 1.7 for v in x.tolist()]
    assert_close(warp(x.unsqueeze(1)).squeeze(1), numbers(*expected))


def test_inverse_of_a_warp_within_and_beyond_its_range() -> None:
    x, warp = torch.linspace(-9, 12, 85, dtype=torch.float64).unsqueeze(1).expand(-1, 5), warp_of(*EXPONENTS)
    assert_close(warp.inverse(warp(x)), x)
    assert (warp(x).diff(dim=0) > 0).all()


def test_log_slope_of_a_warp_is_its_derivative() -> None:
    x, warp = torch.linspace(-9, 12, 85, dtype=torch.float64).unsqueeze(1).expand(-1, 5) + 1e-3, warp_of(*EXPONENTS)
    slope = (warp(x + 1e-6) - warp(x - 1e-6)) / 2e-6
    assert_close(warp.log_slope(x), slope.log(), rtol=0, atol=1e-6)


def test_beyond_the_range_a_warp_is_a_line() -> None:
    warp = warp_of(*EXPONENTS)
    for end in (-2.0, 3.0):
        x = torch.full((5,), end, dtype=torch.float64) + math.copysign(1, end) * numbers(0, 1, 10).unsqueeze(1)
        steps = warp(x).diff(dim=0)
        assert_close(steps[1], 9 * steps[0])
        assert_close(warp.log_slope(x), warp.log_slope(x[:1]).expand(3, -1))


def test_a_warp_of_exponent_one_is_straight() -> None:
    x = randn(7, 3)
    straight = Warp.straight(numbers(-1, -1, -1), numbers(1, 1, 1))
    assert_close(straight(x), x)
    assert_close(straight.log_slope(x), torch.zeros_like(x))


def test_some_columns_keep_their_warp() -> None:
    x, warp = randn(7, 5), warp_of(*EXPONENTS)
    some = torch.tensor([4, 0])
    assert_close(warp.of(some)(x[:, some]), warp(x)[:, some])


def test_standardising_gives_what_is_observed_mean_0_and_variance_1() -> None:
    values, observed = randn(50, 2, 3) ** 2, torch.rand(50, 2, 3, generator=torch.Generator().manual_seed(3)) < 0.7
    observed[..., 2] = False
    base = Warp.straight(numbers(-1, -1, -1), numbers(2, 2, 2))
    warp = base.standardising(numbers(0.2, 1.3, 1), values, observed, no_relations(3))
    for column in (0, 1):
        y = warp(values)[..., column][observed[..., column]]
        assert_close(torch.stack([y.mean(), y.var(correction=0)]), numbers(0, 1))
    assert_close(warp(values)[..., 2], values[..., 2])  # nothing is observed


def test_standardising_keeps_relations_linear() -> None:
    relations, values = a_total(), 3 + randn(60, 1, 4)
    values[..., 3] = 0.5 - 2 * values[..., 0] + values[..., 1]
    observed = torch.rand(values.shape, generator=torch.Generator().manual_seed(3)) < 0.7
    base = Warp.straight(torch.full((4,), -9.0).double(), torch.full((4,), 9.0).double())
    y = base.standardising(numbers(1, 1, 0.5, 1), values, observed, relations)(values)
    assert_close(y[..., 3], y[..., 1] - 2 * y[..., 0])


def test_relations_complete_values_and_loadings() -> None:
    relations, base = a_total(), numbers(1, 2, 3, 0)
    assert relations.derived.tolist() == [False, False, False, True]
    assert relations.involved.tolist() == [True, True, False, True]
    assert_close(relations.completed(base), numbers(1, 2, 3, 0.5))
    assert_close(relations.completed(numbers(1, 2, 3, 99)), numbers(1, 2, 3, 0.5))
    loadings = randn(4, 6) * numbers(1, 1, 1, 0).unsqueeze(1)
    assert_close(relations.loadings(loadings)[3], loadings[1] - 2 * loadings[0])
    assert_close(relations.loadings(loadings)[:3], loadings[:3])


def test_rows_that_break_a_relation_are_those_that_are_complete_and_far_off() -> None:
    nan = math.nan
    x = torch.tensor(
        [
            [1, 2, 3, 0.5],
            [1, 2, 3, 0.59],
            [1, 2, 3, 0.61],
            [1, 2, nan, 0.39],
            [1, nan, 3, 50],
            [1, 2, 3, nan],
            [nan, nan, nan, nan],
        ]
    ).double()
    expected = torch.zeros(7, 4, dtype=torch.bool)
    expected[2:4, 3] = True
    assert torch.equal(a_total().broken(x), expected)


def test_doubts_are_about_every_column_of_a_relation() -> None:
    assert_close(a_total().doubts(), numbers(0.01, 0.01, 0, 0.01))


KINDS: tuple[Kind, ...] = ("oscillator", "exponential", "matern", "oscillator", "matern", "exponential", "oscillator")
SHARED = 4  # processes; the others belong to the columns 2, 0 and 0


def model_of(relations: Relations) -> FactorModel:
    """Kinds in any order, and columns with no process of their own, with one and with two."""
    weights = randn(4, 6, seed=4)
    weights[relations.derived] = 0
    return FactorModel(
        composition=Composition(KINDS, owner=(2, 0, 0)),
        length=3 * randn(7, seed=5).exp(),
        frequency=randn(7, seed=6).abs() * numbers(1, 0, 0, 1, 0, 0, 1),
        weights=weights,
        amplitude=randn(3, seed=7),
        noise=randn(4, seed=8).exp(),
        warp=warp_of(*EXPONENTS[:4]),
        relations=relations,
    )


def kernel(kind: Kind, lag: float, length: float, omega: float) -> float:
    if kind == "matern":
        return (1 + math.sqrt(3) * lag / length) * math.exp(-math.sqrt(3) * lag / length)
    return math.exp(-lag / length) * (math.cos(omega * lag) if kind == "oscillator" else 1)


def covariance_by_the_equation(model: FactorModel, lag: float) -> np.ndarray:
    """Cov(y(τ + lag), y(τ)) without noise, from Σ_j W_dj z_j + v_d, loop by loop."""
    weights, columns = model.weights.numpy(), len(model.noise)
    base, place = np.zeros((columns, columns)), 0
    for j, kind in enumerate(KINDS):
        length, omega = model.length[j].item(), model.frequency[j].item()
        same = kernel(kind, lag, length, omega)
        if j >= SHARED:
            owner = model.owner[j - SHARED]
            base[owner, owner] += model.amplitude[j - SHARED].item() ** 2 * same
        elif kind == "oscillator":  # a cos + b sin of a wave that decays: its phase turns with the lag
            a, b = weights[:, place], weights[:, place + 1]
            quarter = math.exp(-lag / length) * math.sin(omega * lag)
            base += same * (np.outer(a, a) + np.outer(b, b)) + quarter * (np.outer(b, a) - np.outer(a, b))
        else:
            base += same * np.outer(weights[:, place], weights[:, place])
        place += (1 + (kind == "oscillator")) * (j < SHARED)
    made = np.eye(columns) + model.relations.weights.numpy()
    return made @ base @ made.T


@pytest.mark.parametrize("relations", [no_relations(4), a_total()], ids=["none", "a total"])
def test_covariance_of_the_state_space_is_that_of_the_equation(relations: Relations) -> None:
    model = model_of(relations)
    lags = numbers(0, 0.3, 1, 7)
    expected = np.stack([covariance_by_the_equation(model, lag) for lag in lags.tolist()])
    assert_close(model.space.covariance(lags), torch.from_numpy(expected))
    assert_close(model.space.noise, model.noise)


def test_the_order_of_processes_does_not_matter() -> None:
    model, order = model_of(no_relations(4)), [2, 0, 3, 1]
    columns = [3, 0, 1, 4, 5, 2]  # of the weights of these
    composition = Composition((*(KINDS[j] for j in order), *KINDS[SHARED:]), model.owner)
    every = [*order, 4, 5, 6]
    moved = replace(
        model,
        composition=composition,
        length=model.length[every],
        frequency=model.frequency[every],
        weights=model.weights[:, columns],
    )
    assert_close(moved.space.covariance(numbers(0, 2)), model.space.covariance(numbers(0, 2)))


@pytest.mark.parametrize("relations", [no_relations(4), a_total()], ids=["none", "a total"])
def test_shares_are_parts_of_the_variance(relations: Relations) -> None:
    model = model_of(relations)
    shared, own, noise = model.shares()
    total = model.space.covariance(numbers(0))[0].diagonal() + model.noise
    assert_close(shared.sum(1) + own + noise, torch.ones_like(total))
    assert_close(noise, model.noise / total)
    for j in range(SHARED):
        only = torch.tensor([latent == j for latent in model.latent_of_weight])
        alone = replace(model, weights=model.weights * only, amplitude=0 * model.amplitude)
        assert_close(shared[:, j], alone.space.covariance(numbers(0))[0].diagonal() / total)


def test_a_model_without_shared_processes_and_with_nothing_but_noise() -> None:
    alone = FactorModel(
        Composition(("matern",), (1,)),
        numbers(3),
        numbers(0),
        randn(2, 0),
        numbers(2),
        numbers(1, 1),
        Warp.straight(numbers(0, 0), numbers(1, 1)),
        no_relations(2),
    )
    assert_close(alone.space.covariance(numbers(0))[0], numbers(0, 4).diag())
    assert alone.shares()[0].shape == (2, 0)


def test_tensors_and_composition_make_the_model_again() -> None:
    model = model_of(a_total())
    again = FactorModel.of(model.composition, model.tensors())
    assert again.tensors().keys() == model.tensors().keys()
    assert all(torch.equal(again.tensors()[name], value) for name, value in model.tensors().items())
    assert_close(again.space.covariance(numbers(1)), model.space.covariance(numbers(1)))
