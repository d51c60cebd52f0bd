"""What the GP-VAE makes of observed cells, as if they were missing; and pixels that go missing by their value."""

from typing import Any

import numpy as np
import pytest
import torch
from battery import fresh
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from torch import Tensor

from gpvae import GPVAE, DataError, Masking, ModelConfig, Panel, Recipe
from gpvae.data.batches import Batch
from gpvae.imputers.latent import LatentMethod
from gpvae.models.encoders import Convolution
from gpvae.models.likelihoods import Bernoulli, GaussianLikelihood, Params, SelectiveBernoulliLikelihood

Array = NDArray[Any]


def scaled_batch(imputer: GPVAE, data: Array) -> Batch:
    """Series (series, time, feature) of one length as the model sees them, made by hand."""
    scaled = (data - imputer.schema_.scaling.shift) / imputer.schema_.scaling.scale
    observed = torch.from_numpy(~np.isnan(data))
    values = torch.from_numpy(np.nan_to_num(scaled).astype(np.float32))
    return Batch(values, observed, 1.0, torch.full((len(data),), data.shape[1]))


@torch.no_grad()
def decoded_mean(imputer: GPVAE, data: Array) -> Params:
    """What the posterior's mean decodes to, before calibration."""
    network = imputer.method_.network
    posterior, context = network.encode(scaled_batch(imputer, data))
    return network.decode(posterior.mean, context)


def test_reconstruction_is_the_decoded_mean_of_the_posterior(plain: GPVAE, waves: Array) -> None:
    """Of every cell, observed or not, in the data's units; its deviation is that of the calibrated noise."""
    plain.fit(waves)
    mean, std = plain.reconstruct(waves)
    scaling, likelihood = plain.schema_.scaling, plain.method_.network.likelihood
    assert isinstance(likelihood, GaussianLikelihood)
    decoded = decoded_mean(plain, waves).location.numpy().reshape(-1, 3)
    np.testing.assert_allclose((mean - scaling.shift) / scaling.scale, decoded, atol=1e-5)
    noise = (likelihood.noise.detach() * plain.method_.calibration.scale_factor).numpy() * scaling.scale
    np.testing.assert_allclose(std, np.broadcast_to(noise, std.shape), rtol=1e-5)
    assert not np.allclose(mean[~np.isnan(waves).reshape(-1, 3)], waves[~np.isnan(waves)], rtol=1e-3)


def test_sampled_reconstruction_agrees_with_what_impute_fills_in(plain: GPVAE, waves: Array) -> None:
    """Both are means over draws of their own; deviations have the noise and what the posterior leaves open."""
    plain.fit(waves)
    mean, std = (each.reshape(waves.shape) for each in plain.reconstruct(waves, samples=400, seed=5))
    filled, gaps = plain.impute(waves, samples=400), np.isnan(waves)
    noise = plain.reconstruct(waves)[1].reshape(waves.shape)
    posterior_std = np.sqrt(std**2 - 0.999 * noise**2)
    assert (std > noise).all()
    assert (np.abs(mean - filled.mean)[gaps] < 6 * posterior_std[gaps] * np.sqrt(2 / 400)).all()
    np.testing.assert_allclose(std[gaps], filled.std[gaps], rtol=0.1)
    again = plain.reconstruct(waves, samples=400, seed=5)[0].reshape(waves.shape)
    assert np.array_equal(mean, again)
    assert not np.array_equal(mean, plain.reconstruct(waves, samples=400, seed=6)[0].reshape(waves.shape))


def test_reconstruction_of_a_series_does_not_depend_on_the_others(
    tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of different lengths, together or alone, many at once or few."""
    series = [waves[0], waves[1, :5], waves[2, :17], waves[3], waves[4, :1]]
    tiny.fit(waves)
    alone = [tiny.reconstruct(each[None])[0] for each in series]
    for rows in (1, 40, 10**6):
        monkeypatch.setattr(LatentMethod, "rows_at_once", rows)
        together, _ = tiny.reconstruct(Panel.of(series))
        np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-4, atol=1e-5)


def test_only_real_numbers_are_reconstructed(tiny: GPVAE, waves: Array) -> None:
    tiny.set_params(kinds={"x1": "positive"}, epochs=1).fit(waves)
    with pytest.raises(DataError, match="only columns of real numbers can be reconstructed"):
        tiny.reconstruct(waves)
    with pytest.raises(NotFittedError):
        fresh(tiny).reconstruct(waves)


def test_number_of_samples_must_not_be_negative(tiny: GPVAE, waves: Array) -> None:
    with pytest.raises(ValueError, match="samples must not be negative, got -1"):
        tiny.set_params(epochs=1).fit(waves).reconstruct(waves, samples=-1)


def selective_pixels() -> tuple[Array, Array]:
    """Stripes that move, and the same with most of the ones and few of the zeros missing. (series, time, pixel)"""
    rng = np.random.default_rng(3)
    phase = rng.uniform(0, 6, (100, 1, 1))
    truth = (np.sin(np.arange(12)[None, :, None] / 2 + phase + np.arange(8) * 0.8) > 0.2) * 1.0
    return truth, np.where(rng.random(truth.shape) < np.where(truth > 0, 0.8, 0.3), np.nan, truth)


def fit_pixels(data: Array, *, missing_by_value: bool) -> GPVAE:
    model = ModelConfig(
        latent_dim=4,
        encoder=Convolution(24, window=5, widths=(24,)),
        decoder_widths=(24,),
        likelihood=Bernoulli(missing_by_value),
    )
    recipe = Recipe(learning_rate=3e-3, anneal=True, kl_warm_up=0.25, validation=0.0, masking=Masking())
    return GPVAE(model, recipe=recipe, epochs=12, device="cpu").fit(data)


def logits(probability: Array) -> Array:
    return np.log(probability) - np.log1p(-probability)


def test_learns_that_ones_go_missing_more_often_than_zeros() -> None:
    """The model that knows of it fills in more ones, and is less surprised by what was there."""
    truth, data = selective_pixels()
    gaps = np.isnan(data)
    surprise, ones = list[float](), list[float]()
    for by_value in (False, True):
        imputer = fit_pixels(data, missing_by_value=by_value)
        density = imputer.log_likelihood(data, truth.reshape(-1, 8), samples=20)
        surprise.append(-float(density[gaps.reshape(-1, 8)].mean()))
        ones.append(float(imputer.impute(data, samples=20).mean[gaps].mean()))
        reconstructed = imputer.reconstruct(data)[0].reshape(data.shape)
        assert float(reconstructed[gaps].mean()) == pytest.approx(ones[-1], abs=0.05)
    likelihood = imputer.method_.network.likelihood
    assert isinstance(likelihood, SelectiveBernoulliLikelihood)
    lost: Tensor = likelihood.missing_logit.detach().sigmoid()
    assert lost[1] - lost[0] > 0.2
    shift = logits(reconstructed) - decoded_mean(imputer, data).numpy()
    np.testing.assert_allclose(shift, float(torch.log(lost[1] / lost[0])), rtol=0.01)
    assert surprise[1] < 0.7 * surprise[0]
    assert ones[1] > ones[0] + 0.2


def test_held_out_cells_would_pass_for_missing_by_value() -> None:
    model = ModelConfig(likelihood=Bernoulli(missing_by_value=True))
    with pytest.raises(ValueError, match="missing_by_value needs validation=0"):
        GPVAE(model).fit(selective_pixels()[1])
