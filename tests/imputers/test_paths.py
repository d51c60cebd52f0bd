"""Draws are paths: what is drawn for neighbouring steps goes together as the chain of the posterior says."""

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from gpvae import GPVAE, ModelConfig, Recipe
from gpvae.imputers.latent import LatentMethod
from gpvae.models.encoders import Convolution
from gpvae.models.inputs import StepDecoder
from gpvae.models.likelihoods import Gaussian
from gpvae.models.posterior import CORR_LIMIT, ChainHead

Array = NDArray[Any]
NOISE, STD, STEPS, DRAWS = 0.1, 0.8, 12, 4000


def series() -> Array:
    """The first column is missing, the second one there, so that the encoder has a say in every step."""
    values = np.random.default_rng(0).normal(size=(2, STEPS, 2))
    values[0, :, 0] = np.nan
    return values


def with_known_posterior(corr: float) -> GPVAE:
    """The first column is z + noise; steps of z have the deviation `STD` and correlate by `corr` with their neighbours.

    Its encoder sees nothing of the data, its decoder is the identity: relu(z) - relu(-z).
    """
    model = ModelConfig(1, encoder=Convolution(4, 5, ()), decoder_widths=(2,), likelihood=Gaussian(noise=NOISE))
    recipe = Recipe(validation=0.0)
    imputer = GPVAE(model, recipe=recipe, epochs=1, standardise=False, device="cpu").fit(series())
    network = imputer.method_.network
    with torch.no_grad():
        for parameter in [*network.encoder.parameters(), *network.decoder.parameters()]:
            parameter.zero_()
        network.encoder.head.bias[1] = math.log(math.expm1(STD - ChainHead.STD_FLOOR))
        network.encoder.head.bias[2] = math.atanh(corr)
        first, _, last = (cast(nn.Linear, layer) for layer in cast(StepDecoder, network.decoder).mlp)
        first.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        last.weight.copy_(torch.tensor([[1.0, -1.0], [0.0, 0.0]]))
    return imputer


@pytest.mark.parametrize(("corr", "rows"), [(0.9, STEPS), (0.9, 5), (-0.6, STEPS), (0.0, STEPS)])
def test_draws_of_neighbouring_steps_correlate_like_the_posterior(
    corr: float, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Corr(x_s, x_t) = c^|s - t| σ² / (σ² + noise²): within four Monte-Carlo errors at every lag.

    Also where only some rows of a series are decoded at once.
    """
    imputer = with_known_posterior(corr)
    monkeypatch.setattr(LatentMethod, "rows_at_once", rows * DRAWS)
    drawn = imputer.impute(series(), samples=DRAWS).samples[:, 0, :, 0]
    lags = np.abs(np.arange(STEPS)[:, None] - np.arange(STEPS))
    reliability = STD**2 / (STD**2 + NOISE**2)
    expected = np.where(lags == 0, 1.0, reliability * (CORR_LIMIT * corr) ** lags)
    assert np.abs(np.corrcoef(drawn.T) - expected).max() < 4 / math.sqrt(DRAWS)
    np.testing.assert_allclose(drawn.std(axis=0), math.sqrt(STD**2 + NOISE**2), rtol=4 / math.sqrt(2 * DRAWS))


def test_draws_of_different_series_are_independent() -> None:
    data = np.repeat(series()[:1], 2, axis=0)
    first, second = with_known_posterior(0.9).impute(data, samples=DRAWS).samples[..., 0].swapaxes(0, 1)
    assert abs(np.corrcoef(first[:, 5], second[:, 5])[0, 1]) < 4 / math.sqrt(DRAWS)
