"""What the GP-VAE fills in: means, deviations and draws that agree, however much is computed at once."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from battery import SMALL
from numpy.typing import NDArray

from gpvae import DEFAULT, GPVAE, DataError, ModelConfig, Panel
from gpvae.imputers import latent
from gpvae.imputers.latent import LatentMethod
from gpvae.models.encoders import Attention
from gpvae.models.likelihoods import Bernoulli, GaussianLikelihood
from gpvae.training import recipe as recipes

Array = NDArray[Any]


def test_summaries_agree_with_the_samples(plain: GPVAE, waves: Array) -> None:
    result = plain.fit(waves).impute(waves, samples=4000)
    gaps, samples = np.isnan(waves), result.samples
    error = result.std[gaps] / np.sqrt(4000)
    assert (np.abs(samples.mean(0)[gaps] - result.mean[gaps]) < 5 * error).all()
    np.testing.assert_allclose(samples.std(0)[gaps], result.std[gaps], rtol=0.1)
    lower, upper = result.interval(0.8)
    inside = (lower <= samples) & (samples <= upper)
    np.testing.assert_allclose(inside[:, gaps].mean(0), 0.8, atol=0.005)
    np.testing.assert_allclose(lower, result.quantile(0.1), rtol=1e-6)


@pytest.mark.parametrize(("rows", "numbers"), [(1, 1), (1, 2**24), (40, 300), (2000, 2**24), (10**6, 300)])
def test_chunks_of_rows_and_samples_change_nothing(
    plain: GPVAE, waves: Array, rows: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row and sample at a time, some, or all; of different lengths, so that cells do not come in their order."""
    data = Panel.of([waves[0, :9], waves[1, :4], waves[2, :12], waves[3, :9], waves[4, :4]])
    plain.fit(waves)
    monkeypatch.setattr(LatentMethod, "rows_at_once", rows)
    monkeypatch.setattr(latent, "NUMBERS_AT_ONCE", {"cpu": numbers})
    result = plain.impute(data, samples=200)
    draws, gaps = result.draws_at(~data.observed), ~data.observed
    mean, std = result.mean_rows[gaps], result.std_rows[gaps]
    assert (np.abs(draws.mean(0) - mean) < 5 * std / np.sqrt(200)).all()
    np.testing.assert_allclose(draws.std(0), std, rtol=0.35)


def test_cells_of_series_that_are_decoded_out_of_order(tiny: GPVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    """Series go by length. Those of one group may be out of order and yet seem, by number, to be one run of cells."""
    data = [np.random.default_rng(n).normal(size=(n, 1)) for n in (100, 400, 120, 110)]
    for series, count in zip(data, (7, 10, 5, 10), strict=True):
        series[10 : 10 + count] = np.nan
    panel = Panel.of(data)
    tiny.fit(panel)
    monkeypatch.setattr(LatentMethod, "rows_at_once", 100 * 370)
    filled = tiny.impute(panel, samples=100)
    gaps = ~panel.observed
    mean, std, draws = filled.mean_rows[gaps], filled.std_rows[gaps], filled.draws_at(gaps)
    assert (std > 0).all()
    assert (np.abs(draws.mean(0) - mean) < 6 * std / 10).all()
    alone = [tiny.impute(series, samples=100) for series in data]
    expected = np.concatenate([each.mean[np.isnan(series)] for each, series in zip(alone, data, strict=True)])
    assert (np.abs(mean - expected) < 6 * std / 10 * np.sqrt(2)).all()


def noise_of(imputer: GPVAE) -> Array:
    """The deviation of the calibrated Gaussian noise of each column, in the data's units."""
    likelihood = imputer.method_.network.likelihood
    assert isinstance(likelihood, GaussianLikelihood)
    noise = likelihood.noise.detach() * imputer.method_.calibration.scale_factor
    return noise.numpy() * imputer.schema_.scaling.scale


def test_uncertainty_includes_the_observation_noise(plain: GPVAE, waves: Array) -> None:
    result = plain.fit(waves).impute(waves, samples=50)
    gaps = np.isnan(waves)
    assert (result.std[gaps] >= 0.999 * np.broadcast_to(noise_of(plain), waves.shape)[gaps]).all()


def test_calibration_reaches_the_draws(plain: GPVAE, waves: Array) -> None:
    """With twice the factor, the deviation is that of twice the noise; means stay."""
    gaps, before = np.isnan(waves), plain.fit(waves).impute(waves, samples=50)
    method, noise = plain.method_, np.broadcast_to(noise_of(plain), waves.shape)
    method.calibration = replace(method.calibration, scale_factor=2 * method.calibration.scale_factor)
    after = plain.impute(waves, samples=50)
    np.testing.assert_allclose(after.std[gaps] ** 2, (before.std**2 + 3 * noise**2)[gaps], rtol=1e-4)
    assert np.array_equal(after.mean, before.mean)
    assert (np.ptp(after.samples, axis=0) > np.ptp(before.samples, axis=0))[gaps].mean() > 0.9


BRISK = replace(recipes.DEFAULT_RECIPE, learning_rate=1e-2)
NARROW = replace(DEFAULT, latent_dim=4, encoder=Attention(width=16, layers=1), decoder_widths=(32,))


@pytest.mark.slow
def test_fills_better_than_the_mean_and_covers_what_it_says() -> None:
    """On smooth waves: half the error of the mean, and about nine in ten truths inside the 90 % interval."""
    rng = np.random.default_rng(1)
    phase = rng.uniform(0, 6, (20, 1, 2))
    truth = np.sin(np.arange(40)[None, :, None] / 5 + phase) + 0.1 * rng.normal(size=(20, 40, 2))
    gaps = rng.random(truth.shape) < 0.3
    data = np.where(gaps, np.nan, truth)
    result = GPVAE(NARROW, recipe=BRISK, epochs=40, device="cpu").fit(data).impute(data)
    error = np.sqrt(np.mean((result.mean - truth)[gaps] ** 2))
    assert error < 0.5 * truth.std()
    lower, upper = result.interval(0.9)
    assert 0.85 < ((lower <= truth) & (truth <= upper))[gaps].mean() < 0.95


@pytest.mark.slow
def test_intervals_widen_where_data_is_missing() -> None:
    """Inside a long gap the interval is wider than at single missing cells."""
    rng = np.random.default_rng(2)
    data = np.cumsum(rng.normal(size=(24, 48, 1)), axis=1)
    data[:, 18:34] = np.nan
    data[rng.random(data.shape) < 0.15] = np.nan
    result = GPVAE(NARROW, recipe=BRISK, epochs=40, device="cpu").fit(data).impute(data)
    middle, missing = result.std[:, 24:28, 0], np.isnan(data)
    single = missing & ~np.roll(missing, 1, axis=1) & ~np.roll(missing, -1, axis=1)
    assert middle.mean() > 1.5 * result.std[single].mean()


def test_rare_values_are_not_ruled_out(plain: GPVAE) -> None:
    """A column that is zero but for a few showers: the noise covers nine of ten and still leaves room for a shower."""
    rng = np.random.default_rng(0)
    data = np.where(rng.random((40, 30, 1)) < 0.04, rng.exponential(5, (40, 30, 1)), 0.0)
    data = np.concatenate([data, rng.normal(size=(40, 30, 1))], axis=-1)
    plain.fit(np.where(rng.random(data.shape) < 0.1, np.nan, data))
    assert noise_of(plain)[0] > 0.3 * plain.schema_.scaling.scale[0]


def test_unseen_series_of_other_lengths(tiny: GPVAE, waves: Array) -> None:
    tiny.fit(waves)
    long = np.tile(waves[0], (20, 1))
    result = tiny.impute([waves[0, :1], waves[1, :7], long], samples=3)
    assert [filled.shape for filled in result.mean] == [(1, 3), (7, 3), (600, 3)]
    assert all(np.isfinite(filled).all() for filled in result.mean)
    assert [sample.shape for sample in result.samples] == [(3, 1, 3), (3, 7, 3), (3, 600, 3)]


def test_irregular_times_matter(tiny: GPVAE, waves: Array) -> None:
    times = np.cumsum(np.random.default_rng(0).uniform(0.5, 3, (12, 30)), axis=1)
    panel = Panel.from_array(waves, times=times)
    result = tiny.fit(panel).impute(panel, samples=3)
    assert np.isfinite(result.mean).all()
    assert tiny.schema_.time_unit == pytest.approx(np.median(np.diff(times, axis=1)))
    slower = tiny.impute(Panel.from_array(waves, times=times * 5), samples=3)
    assert not np.allclose(result.mean, slower.mean)


def test_long_gap_gets_the_width_of_the_prior(plain: GPVAE, waves: Array) -> None:
    """Far from any observation, intervals are as wide as for a series without any, though training had no such gap."""
    plain.fit(waves)
    long = np.tile(waves[0], (6, 1))
    long[60:120] = np.nan
    empty = np.full((180, 3), np.nan)
    result, prior = plain.impute(long, samples=500), plain.impute(empty, samples=500)
    np.testing.assert_allclose(result.std[80:100].mean(axis=0), prior.std[80:100].mean(axis=0), rtol=0.1)
    assert (result.std[80:100].mean(axis=0) > result.std[:60].max(axis=0)).all()


def test_series_without_any_observation_has_the_wide_intervals_of_the_prior(plain: GPVAE, waves: Array) -> None:
    plain.fit(waves)
    data = waves.copy()
    data[3] = np.nan
    result = plain.impute(data, samples=200)
    assert np.isfinite(result.mean).all()
    elsewhere = np.isnan(data) & (np.arange(12) != 3)[:, None, None]
    for column in range(3):
        assert result.std[3, :, column].mean() > result.std[..., column][elsewhere[..., column]].mean()


def test_large_numbers_keep_their_digits(tiny: GPVAE, waves: Array) -> None:
    """Draws are kept as scaled float32: a column near 1e9 that varies by 1 must not become steps of 64."""
    data = waves[..., :1] + 1e9
    result = tiny.fit(data).impute(data, samples=50)
    draws = result.samples[:, np.isnan(data)]
    assert len(np.unique(draws)) > 0.9 * draws.size
    assert result.std[np.isnan(data)].max() < 5


def test_likelihood_of_the_truth_is_that_of_the_mixture(plain: GPVAE, waves: Array) -> None:
    panel = Panel.from_array(waves)
    truth = np.where(panel.observed, panel.values, np.nanmean(panel.values, axis=0))
    density = plain.fit(panel).log_likelihood(panel, truth, samples=500)
    assert np.array_equal(np.isnan(density), panel.observed)
    result, gaps = plain.impute(panel, samples=500), ~panel.observed
    mean, std = result.mean_rows[gaps], result.std_rows[gaps]
    gaussian = -0.5 * ((truth[gaps] - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
    assert abs(density[gaps].mean() - gaussian.mean()) < 0.05


def test_bernoulli_data(waves: Array) -> None:
    data = np.where(np.isnan(waves), np.nan, (waves > np.nanmean(waves, axis=(0, 1))).astype(float))
    imputer = GPVAE(ModelConfig(latent_dim=3, decoder_widths=(16,), likelihood=Bernoulli()), epochs=6, device="cpu")
    result = imputer.fit(data).impute(data, samples=20)
    assert set(np.unique(result.samples)) == {0.0, 1.0}
    assert ((result.mean >= 0) & (result.mean <= 1)).all()
    with pytest.raises(DataError, match=r"needs values between 0 and 1; column 'x1' holds .* at series 0, step"):
        imputer.fit(waves[..., [0, 1]] * 0 + [0.5, 2.0])


def test_bfloat16_training_fills_with_finite_numbers(waves: Array) -> None:
    result = GPVAE(SMALL, epochs=2, precision="bf16-mixed", device="cpu").fit(waves).impute(waves, samples=3)
    assert np.isfinite(result.mean).all()
    assert result.draws is not None
    assert result.draws.scaled.dtype == np.float32
