"""What a `FactorModel` says of variances, against dense covariances."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gpvae.models.factor import Composition, Extent, FactorModel
from gpvae.training.factor_start import first_model
from gpvae.training.periods import Stretch

LONG = Extent(series=1.0, span=1e9)


def tensor(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def model() -> FactorModel:
    """Two columns; a shared exponential and a shared oscillator; of the first a slow process and a white one."""
    rows = np.random.default_rng(0).normal(size=(80, 2))
    return replace(
        first_model([Stretch(np.arange(80.0), rows)]),
        composition=Composition(("exponential", "oscillator", "matern", "exponential"), (0, 0)),
        length=tensor(40.0, 500.0, 60.0, 0.3),
        frequency=tensor(0.0, 0.3, 0.0, 0.0),
        weights=tensor([0.5, 0.3, 0.4], [-0.8, 0.6, -0.8]),
        amplitude=tensor(0.6, 0.2),
        noise=tensor(0.1, 0.3),
    )


def test_visible_variance_is_what_samples_of_that_extent_have(model: FactorModel) -> None:
    span, series = 100.0, 3
    times = np.linspace(0, span, 500)
    lags = np.abs(times[:, None] - times)
    kernels = [np.exp(-lags / 40), (1 + np.sqrt(3) * lags / 60) * np.exp(-np.sqrt(3) * lags / 60), np.exp(-lags / 0.3)]
    expected = [1 - kernel.mean() / series for kernel in kernels]
    found = model.visible(Extent(series, span))
    np.testing.assert_allclose(found[[0, 2, 3]], expected, atol=2e-3)
    assert found[1] == 1
    np.testing.assert_allclose(model.visible(LONG), 1, atol=1e-3)


def test_extent_of_series() -> None:
    assert Extent.of(torch.tensor([50, 50]), tensor(49.0, 49.0)) == Extent(2.0, 49.0)
    one_long = Extent.of(torch.tensor([1000, 1]), tensor(999.0, 0.0))
    assert one_long.series == pytest.approx(1, abs=0.01)
    assert one_long.span == pytest.approx(999, rel=1e-3)


def test_shares_are_those_of_the_covariance(model: FactorModel) -> None:
    latent, own, noise = model.shares(LONG)
    signal = model.space.covariance(tensor(0.0).squeeze()).diagonal()
    total = signal + model.noise
    np.testing.assert_allclose(latent * total.unsqueeze(1), tensor([0.25, 0.25], [0.64, 1.0]), rtol=2e-3)
    np.testing.assert_allclose(own * total, tensor(0.36, 0.0), rtol=2e-3)
    np.testing.assert_allclose(noise * total, tensor(0.1 + 0.04, 0.3), rtol=2e-3)  # with the column's white process
    np.testing.assert_allclose(latent.sum(1) + own + noise, 1)


def test_latents_have_unit_variance_and_the_sign_and_phase_of_their_strongest_column(model: FactorModel) -> None:
    outputs = model.latents()
    np.testing.assert_allclose(outputs.norm(dim=1), 1)
    along = model.space.loadings @ outputs.T  # covariance of columns and latents
    np.testing.assert_allclose(along[1], [0.8, 1.0])
    np.testing.assert_allclose(along[0, 0], -0.5)


def test_latents_without_weights_still_have_unit_variance(model: FactorModel) -> None:
    silent = replace(model, weights=torch.zeros_like(model.weights))
    np.testing.assert_allclose(silent.latents().norm(dim=1), 1)
    assert not silent.shares(LONG)[0].any()


def test_trends_are_slow_processes_beside_another_one(model: FactorModel) -> None:
    beside = replace(
        model,
        composition=Composition(("exponential", "oscillator", "exponential", "matern"), (0, 0)),
        length=tensor(40.0, 500.0, 5.0, 60.0),
    )
    short = Extent(1.0, 100.0)
    assert beside.trends(short, 0.01) == [0]
    assert beside.trends(Extent(1.0, 1000.0), 0.01) == []  # it is not slow for such data
    assert replace(beside, amplitude=tensor(0.6, 0.05)).trends(short, 0.01) == []  # it does not show
    assert model.trends(short, 0.01) == []  # a smooth column is no trend
