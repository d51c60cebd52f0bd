"""The factor model: relations, and a state space whose covariance is that of the model's equation."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from gpvae.gp.state_space import Kind
from gpvae.models.factor import Composition, Extent, FactorModel, Relations, Warp

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


LONG = Extent(series=1.0, span=1e9)  # every process shows all of its variance


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


def any_warp() -> Warp:
    """Of numbers that differ."""
    exponent, centre, spread = randn(3, 4, seed=9)
    tail, edges, extent = randn(3, 4, 2, seed=10)
    return Warp(exponent, tail, centre, spread, edges, extent)


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
        warp=any_warp(),
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
    shared, own, noise = model.shares(LONG)
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
        Warp.straight(*torch.tensor([[[0, 1], [0, 1]]] * 2).double()),
        no_relations(2),
    )
    assert_close(alone.space.covariance(numbers(0))[0], numbers(0, 4).diag())
    assert alone.shares(LONG)[0].shape == (2, 0)


def test_tensors_and_composition_make_the_model_again() -> None:
    """The same ones before and after the model is used."""
    model = model_of(a_total())
    again = FactorModel.of(model.composition, model.tensors())
    assert model.space.kinds == again.space.kinds
    assert model_of(a_total()).tensors().keys() == again.tensors().keys() == model.tensors().keys()
    assert all(torch.equal(again.tensors()[name], value) for name, value in model.tensors().items())
    assert_close(again.space.covariance(numbers(1)), model.space.covariance(numbers(1)))
