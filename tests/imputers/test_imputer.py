"""What GPVAE adds to the contract of imputers."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor

from gpvae import BRITS, GPVAE, VAE, DataError, ModelConfig, Panel, paper
from gpvae.data.batches import Batch, RowTensors
from gpvae.data.scaling import Scaling
from gpvae.gp.kernels import Cauchy
from gpvae.imputers import gpvae as latent
from gpvae.imputers import imputation
from gpvae.imputers import neural as trained
from gpvae.imputers.imputation import Draws
from gpvae.imputers.neural import Exam
from gpvae.imputers.registry import method
from gpvae.models.distributions import Gaussian, SelectiveBernoulli
from gpvae.models.model import LatentModel

Array = NDArray[Any]


def fresh(imputer: GPVAE) -> GPVAE:
    return cast(GPVAE, clone(imputer))


def missing(data: Array) -> Array:
    return np.isnan(data)


def test_summaries_agree_with_the_samples(plain: GPVAE, waves: Array) -> None:
    result = plain.fit(waves).impute(waves, samples=4000)
    gaps, samples = missing(waves), result.samples
    error = result.std[gaps] / np.sqrt(4000)
    assert (np.abs(samples.mean(0)[gaps] - result.mean[gaps]) < 5 * error).all()
    np.testing.assert_allclose(samples.std(0)[gaps], result.std[gaps], rtol=0.1)
    lower, upper = result.interval(0.8)
    inside = (lower <= samples) & (samples <= upper)
    np.testing.assert_allclose(inside[:, gaps].mean(0), 0.8, atol=0.005)
    np.testing.assert_allclose(lower, result.quantile(0.1), rtol=1e-6)


@pytest.mark.parametrize(("rows", "numbers"), [(1, 1), (1, 2**24), (40, 300), (2000, 2**24), (10**6, 300)])
def test_it_does_not_matter_how_much_is_drawn_and_decoded_at_once(
    plain: GPVAE, waves: Array, rows: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One row and sample at a time, some, or all; of different lengths, so that cells do not come in their order."""
    data = Panel.of([waves[0], waves[1, :5], waves[2, :17], waves[3], waves[4, :5]])
    plain.fit(waves)
    monkeypatch.setattr(latent, "_rows_at_once", lambda model: rows)
    monkeypatch.setattr(latent, "NUMBERS_AT_ONCE", {"cpu": numbers})
    result = plain.impute(data, samples=200)
    draws, gaps = result.draws_at(~data.observed), ~data.observed
    mean, std = result.mean_rows[gaps], result.std_rows[gaps]
    assert (np.abs(draws.mean(0) - mean) < 5 * std / np.sqrt(200)).all()
    np.testing.assert_allclose(draws.std(0), std, rtol=0.35)


def test_cells_of_series_that_are_not_decoded_in_their_order(tiny: GPVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    """Series go by length. Those of one group may be out of order and yet seem, by number, to be one run of cells."""
    data = [np.random.default_rng(n).normal(size=(n, 1)) for n in (100, 400, 120, 110)]
    for series, count in zip(data, (7, 10, 5, 10), strict=True):
        series[10 : 10 + count] = np.nan
    panel = Panel.of(data)
    tiny.fit(panel)
    monkeypatch.setattr(latent, "_rows_at_once", lambda model: 100 * 370)
    filled = tiny.impute(panel, samples=100)
    gaps = ~panel.observed
    mean, std, draws = filled.mean_rows[gaps], filled.std_rows[gaps], filled.draws_at(gaps)
    assert (std > 0).all()
    assert (np.abs(draws.mean(0) - mean) < 6 * std / 10).all()
    alone = [tiny.impute(series, samples=100) for series in data]
    expected = np.concatenate([each.mean[np.isnan(series)] for each, series in zip(alone, data, strict=True)])
    assert (np.abs(mean - expected) < 6 * std / 10 * np.sqrt(2)).all()


def test_uncertainty_includes_the_observation_noise(plain: GPVAE, waves: Array) -> None:
    result = plain.fit(waves).impute(waves, samples=50)
    assert isinstance(plain.model_.likelihood, Gaussian)
    noise = plain.model_.likelihood.noise.detach().numpy() * plain.schema_.scaling.scale
    assert (result.std[missing(waves)] >= 0.999 * np.broadcast_to(noise, waves.shape)[missing(waves)]).all()


def test_fills_better_than_the_mean_and_covers_what_it_says() -> None:
    """On smooth waves: half the error of the mean, and about nine in ten truths inside the 90 % interval."""
    rng = np.random.default_rng(1)
    truth = np.sin(np.arange(60)[None, :, None] / 5 + rng.uniform(0, 6, (40, 1, 2))) + 0.1 * rng.normal(
        size=(40, 60, 2)
    )
    gaps = rng.random(truth.shape) < 0.3
    data = np.where(gaps, np.nan, truth)
    model = ModelConfig(latent_dim=4, encoder_filters=32, encoder_widths=(32,), decoder_widths=(32,))
    result = GPVAE(model, epochs=80, learning_rate=3e-3, device="cpu").fit(data).impute(data)
    error = np.sqrt(np.mean((result.mean - truth)[gaps] ** 2))
    assert error < 0.5 * truth.std()
    lower, upper = result.interval(0.9)
    assert 0.85 < ((lower <= truth) & (truth <= upper))[gaps].mean() < 0.95


def test_intervals_widen_where_data_is_missing() -> None:
    """Inside a long gap the interval is wider than at single missing cells."""
    rng = np.random.default_rng(2)
    data = np.cumsum(rng.normal(size=(60, 64, 1)), axis=1)
    data[:, 25:41] = np.nan
    data[rng.random(data.shape) < 0.15] = np.nan
    model = ModelConfig(latent_dim=4, encoder_filters=32, encoder_layers=1, decoder_widths=(64,))
    result = GPVAE(model, epochs=150, learning_rate=1e-2, device="cpu").fit(data).impute(data)
    middle = result.std[:, 31:35, 0]
    single = missing(data) & ~np.roll(missing(data), 1, axis=1) & ~np.roll(missing(data), -1, axis=1)
    assert middle.mean() > 1.5 * result.std[single].mean()


def test_rare_values_are_not_ruled_out(plain: GPVAE) -> None:
    """A column that is zero but for a few showers: the noise covers nine of ten and still leaves room for a shower."""
    rng = np.random.default_rng(0)
    data = np.where(rng.random((40, 30, 1)) < 0.04, rng.exponential(5, (40, 30, 1)), 0.0)
    data = np.concatenate([data, rng.normal(size=(40, 30, 1))], axis=-1)
    plain.fit(np.where(rng.random(data.shape) < 0.1, np.nan, data))
    assert isinstance(plain.model_.likelihood, Gaussian)
    assert plain.model_.likelihood.noise[0] > 0.3


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


def test_series_without_any_observation_comes_from_the_prior_with_wide_intervals(plain: GPVAE, waves: Array) -> None:
    plain.fit(waves)
    data = waves.copy()
    data[3] = np.nan
    result = plain.impute(data, samples=200)
    assert np.isfinite(result.mean).all()
    seen = missing(data) & (np.arange(12) != 3)[:, None, None]
    for column in range(3):
        assert result.std[3, :, column].mean() > result.std[..., column][seen[..., column]].mean()


def test_scaling_of_large_numbers_keeps_their_digits(tiny: GPVAE, waves: Array) -> None:
    """Draws are kept as scaled float32: a column near 1e9 that varies by 1 must not become steps of 64."""
    data = waves[..., :1] + 1e9
    result = tiny.fit(data).impute(data, samples=50)
    draws = result.samples[:, missing(data)]
    assert len(np.unique(draws)) > 0.9 * draws.size
    assert result.std[missing(data)].max() < 5


def test_likelihood_of_the_truth_is_that_of_the_mixture(plain: GPVAE, waves: Array) -> None:
    panel = Panel.from_array(waves)
    truth = np.where(panel.observed, panel.values, np.nanmean(panel.values, axis=0))
    density = plain.fit(panel).log_likelihood(panel, truth, samples=500)
    assert np.array_equal(np.isnan(density), panel.observed)
    result, gaps = plain.impute(panel, samples=500), ~panel.observed
    mean, std = result.mean_rows[gaps], result.std_rows[gaps]
    gaussian = -0.5 * ((truth[gaps] - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi))
    assert abs(density[gaps].mean() - gaussian.mean()) < 0.05


def test_bernoulli_data(tiny: GPVAE, waves: Array) -> None:
    data = np.where(missing(waves), np.nan, (waves > np.nanmean(waves, axis=(0, 1))).astype(float))
    tiny.set_params(model=ModelConfig(latent_dim=3, likelihood="bernoulli", decoder_widths=(16,)))
    result = tiny.fit(data).impute(data, samples=20)
    assert set(np.unique(result.samples)) == {0.0, 1.0}
    assert ((result.mean >= 0) & (result.mean <= 1)).all()
    with pytest.raises(DataError, match=r"needs values between 0 and 1; column 'x1' holds .* at series 0, step"):
        tiny.fit(waves[..., [0, 1]] * 0 + [0.5, 2.0])


def test_scikit_learn_conventions(tiny: GPVAE, waves: Array) -> None:
    assert tiny.get_params()["epochs"] == 6
    copy = fresh(tiny).set_params(epochs=2, seed=9)
    assert isinstance(copy, GPVAE)
    assert (copy.epochs, copy.seed, tiny.epochs) == (2, 9, 6)
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert copy.fit(waves) is copy
    assert len(copy.history_) == 2
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        copy.set_params(colour="red")
    with pytest.raises(Exception, match="not fitted"):
        GPVAE().impute(waves)


def test_default_is_sized_to_the_data() -> None:
    assert ModelConfig().sized_for(3).latent_dim == 16
    assert ModelConfig().sized_for(20).latent_dim == 40
    assert ModelConfig().sized_for(1000).latent_dim == 64
    assert ModelConfig(kernel=Cauchy((2.0, 30.0))).sized_for(3).neighbours == 42


def test_presets_train(waves: Array) -> None:
    settings: dict[str, Any] = dict(paper.PHYSIONET) | {"epochs": 1, "device": "cpu"}
    assert np.isfinite(GPVAE(**settings).fit(waves).impute(waves, samples=1).mean).all()


def test_save_and_load_round_trip(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.set_params(model=ModelConfig(latent_dim=4, kernel=Cauchy((2.0, 5.0)), learn_kernel=True, decoder_widths=(8,)))
    expected = tiny.fit(waves).impute(waves, samples=3)
    tiny.save(tmp_path / "model")
    loaded = GPVAE.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.impute(waves, samples=3).samples, expected.samples)
    assert loaded.get_params() == tiny.get_params()
    assert loaded.history_ == tiny.history_
    kept = tiny.held_out(expected.panel)
    assert kept is not None
    assert kept.any()
    assert np.array_equal(loaded.held_out(expected.panel), kept)  # type: ignore[arg-type]
    assert loaded.held_out(Panel.of(waves + 1)) is None
    other_nans = np.where(np.isnan(waves), -np.float64(np.nan), waves)
    assert np.array_equal(loaded.held_out(Panel.of(other_nans)), kept)  # type: ignore[arg-type]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["gpvae.json", "weights.safetensors"]
    with pytest.raises(DataError, match="exists already"):
        tiny.save(tmp_path / "model")
    tiny.save(tmp_path / "model", overwrite=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(DataError, match="thesis is not a model, so it is not replaced"):
        tiny.save(tmp_path / "thesis", overwrite=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "gpvae.json").unlink(), "is not a gpvae model"),
        (lambda folder: (folder / "gpvae.json").write_text("{"), "is not a gpvae model"),
        (lambda folder: (folder / "gpvae.json").write_text("[]"), "has the model format None"),
        (lambda folder: (folder / "weights.safetensors").unlink(), "is not a gpvae model"),
        (lambda folder: (folder / "weights.safetensors").write_bytes(b"x" * 99), "is damaged: its checksum"),
        (lambda folder: edit(folder, format=99), "has the model format 99; this version reads 6 and 7"),
        (lambda folder: edit(folder, columns=["x0"]), "columns, scales and times do not fit together"),
        (lambda folder: edit(folder, imputer="Guess"), "does not hold a model that this version can read"),
        (lambda folder: edit(folder, settings={"colour": "red"}), "does not hold a model that this version can read"),
        (lambda folder: edit(folder, settings={"model": []}), "does not hold a model that this version can read"),
        (
            lambda folder: edit(folder, scaling={"shift": [0.0], "scale": [1.0]}),
            "columns, scales and times do not fit together",
        ),
        (lambda folder: edit(folder, time_unit=0), "columns, scales and times do not fit together"),
    ],
)
def test_damaged_or_foreign_folder_is_refused(
    damage: Any, message: str, tiny: GPVAE, waves: Array, tmp_path: Path
) -> None:
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    damage(tmp_path / "model")
    with pytest.raises(DataError, match=message):
        GPVAE.load(tmp_path / "model", device="cpu")


def edit(folder: Path, **changes: object) -> None:
    path = folder / "gpvae.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_no_such_model() -> None:
    with pytest.raises(DataError, match="there is no model folder nowhere"):
        GPVAE.load("nowhere")


def test_model_fitted_on_other_columns(tiny: GPVAE, waves: Array) -> None:
    frame = pd.DataFrame(waves[0], columns=["a", "b", "c"])
    tiny.fit(frame)
    with pytest.raises(DataError, match="fitted on the columns a, b, c; the data lacks b"):
        tiny.impute(frame[["a", "c"]])
    backwards = frame[["c", "b", "a"]]
    swapped = tiny.impute(backwards, samples=2)
    assert list(swapped.to_frame().columns) == ["c", "b", "a"]
    assert np.array_equal(swapped.mean, tiny.impute(frame, samples=2).mean[:, ::-1])
    truth = np.nan_to_num(frame.to_numpy())
    density = tiny.log_likelihood(frame, truth, samples=3)
    assert np.array_equal(tiny.log_likelihood(backwards, truth[:, ::-1], samples=3), density[:, ::-1], equal_nan=True)
    with pytest.warns(
        UserWarning, match="column 'd' was not among the columns that GPVAE was fitted on and is left unchanged"
    ):
        wider = tiny.impute(frame.assign(d=np.nan), samples=2).to_frame()
    assert wider["d"].isna().all()
    dated = frame.assign(day=pd.date_range("2020-01-01", periods=30))
    with pytest.raises(DataError, match="fitted on times given as numbers, the data has datetimes"):
        tiny.impute(dated)


def test_frame_is_read_as_the_one_fitted_on(tiny: GPVAE, waves: Array) -> None:
    frame = pd.DataFrame(waves.reshape(-1, 3), columns=["a", "b", "c"]).assign(who=np.repeat(range(12), 30))
    tiny.fit(Panel.from_frame(frame, id="who"))
    for kind in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        assert len(tiny.impute(kind, samples=2).panel) == 12
    assert repr(tiny.impute(frame, samples=2)).startswith("Imputation(")
    assert repr(Panel.of(waves)) == f"Panel(12 series, 360 steps, 3 columns, {np.isnan(waves).mean():.1%} missing)"


def test_arrays_must_have_the_width_the_model_knows(tiny: GPVAE, waves: Array) -> None:
    tiny.fit(waves)
    with pytest.raises(DataError, match="fitted on 3 columns, the data has 5"):
        tiny.impute(np.concatenate([waves, waves[..., :2]], axis=-1))


def test_failed_fit_leaves_the_fitted_model_alone(tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tiny.fit(waves).impute(waves, samples=2).mean
    monkeypatch.setattr("gpvae.imputers.neural.train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tiny.fit(waves * 1000 + 5)
    assert np.array_equal(tiny.impute(waves, samples=2).mean, expected)
    fresh_one = fresh(tiny)
    with pytest.raises(KeyboardInterrupt):
        fresh_one.fit(waves)
    with pytest.raises(Exception, match="not fitted"):
        fresh_one.impute(waves)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_constant_columns_have_no_say_in_training(tiny: GPVAE, waves: Array) -> None:
    still = np.concatenate([waves, np.full((12, 30, 4), 7.0)], axis=-1)
    with pytest.warns(UserWarning, match="is constant"):
        with_them = fresh(tiny).fit(still)
    scores = [entry["validation"] for entry in with_them.history_]
    assert scores == pytest.approx([entry["validation"] for entry in tiny.fit(waves).history_], abs=0.3)


def test_columns_too_large_to_scale_are_named(tiny: GPVAE, waves: Array) -> None:
    with pytest.raises(DataError, match="values of column 'x0' are too large"):
        tiny.fit(waves * [1e200, 1, 1])


def test_scaling_ignores_rounding_noise_in_a_constant_column() -> None:
    panel = Panel.from_array(np.array([[0.1 + 0.2, 1.0], [0.3, 2.0]]))
    assert (Scaling.of(panel, standardise=True).scale > 0).tolist() == [False, True]


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1])
def test_quantiles_outside_the_unit_interval(q: float, tiny: GPVAE, waves: Array) -> None:
    result = tiny.set_params(epochs=1).fit(waves).impute(waves, samples=18)
    with pytest.raises(DataError, match="between 0 and 1"):
        result.quantile(q)
    with pytest.raises(DataError, match=r"the quantile 0.05, .* 0.9 interval, needs at least 19 samples, got 18"):
        result.interval(0.9)
    with pytest.raises(DataError, match=r"between 0 and 1 \(0.9 is 90 %\), got 90"):
        result.interval(90)


def test_warm_up_that_makes_no_sense(tiny: GPVAE, waves: Array) -> None:
    with pytest.raises(ValueError, match="warm_up=2 makes no sense: it is between 0 and 1"):
        tiny.set_params(warm_up=2).fit(waves)


@pytest.mark.parametrize("method", ["hazen", "weibull"])
@pytest.mark.parametrize("samples", [1, 2, 19, 100])
def test_quantiles_are_numpys(samples: int, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imputation, "CELLS_PER_CHUNK", 3)
    scaled = np.random.default_rng(samples).normal(size=(8, samples)).astype(np.float32)
    draws = Draws(scaled, np.zeros(8, dtype=np.int64), Scaling(np.zeros(1), np.ones(1)), stratified=method == "hazen")
    q = [each for each in (0.05, 0.1, 0.37, 0.5, 0.95) if 1 <= each * (samples + 1) <= samples]
    np.testing.assert_allclose(draws.quantiles(q), np.quantile(scaled, q, axis=1, method=method), atol=1e-6)
    places = np.arange(samples, dtype=np.float64)
    some = [(each, place) for each, place in zip(draws.levels(places), places, strict=True) if 0.05 <= each <= 0.95]
    if samples > 2:  # what stands in a place is the quantile of its level
        found = draws.quantiles([level for level, _ in some])
        np.testing.assert_allclose(found, np.sort(scaled).T[[int(place) for _, place in some]], atol=1e-6)


@pytest.mark.parametrize(("latent", "samples", "least"), [(0.0, 100, 0.895), (0.0, 20, 0.895), (1.0, 100, 0.885)])
def test_coverage_of_the_truth_by_few_draws(latent: float, samples: int, least: float) -> None:
    """All of the uncertainty is in the noise, whose draws are spread; or in the latent series, whose are not."""
    likelihood, generator = Gaussian(1, 1.0), torch.Generator().manual_seed(0)
    cells, noise = 40_000, float(latent == 0)
    z = latent * torch.randn((samples, cells, 1), generator=generator)
    scaled = (z + noise * likelihood.sample(torch.zeros_like(z), generator)).squeeze(-1).T.numpy()
    draws = Draws(scaled, np.zeros(cells, dtype=np.int64), Scaling(np.zeros(1), np.ones(1)))
    truth = np.random.default_rng(1).normal(size=cells)
    lower, upper = draws.quantiles([0.05, 0.95])
    assert least < ((lower < truth) & (truth < upper)).mean() < 0.905 + 0.015 * (samples == 20)


def test_preset_that_was_not_unpacked_says_how_to_use_it(waves: Array) -> None:
    with pytest.raises(TypeError, match=r"presets are used as GPVAE\(\*\*paper.PHYSIONET\)"):
        GPVAE(cast(Any, paper.PHYSIONET)).fit(waves)


def scaled_batch(model: GPVAE, data: Array) -> Batch:
    """Series (series, time, feature) of one length as the model sees them, made by hand."""
    scaled = (data - model.schema_.scaling.shift) / model.schema_.scaling.scale
    observed = torch.from_numpy(~np.isnan(data))
    values = torch.from_numpy(np.nan_to_num(scaled).astype(np.float32))
    return Batch(values, observed, 1.0, torch.full((len(data),), data.shape[1]))


def decoded_mean(model: GPVAE, data: Array) -> Tensor:
    """What the posterior's mean decodes to. (series, time, output)"""
    posterior, context = model.model_.encode(scaled_batch(model, data))
    return model.model_.decode(posterior.mean, context)


def test_reconstruction_is_the_decoded_mean_of_the_posterior(plain: GPVAE, waves: Array) -> None:
    """Of every cell, observed or not, in the data's units; its deviation is that of the noise."""
    plain.fit(waves)
    mean, std = plain.reconstruct(waves)
    scaling, likelihood = plain.schema_.scaling, plain.model_.likelihood
    assert isinstance(likelihood, Gaussian)
    with torch.no_grad():
        decoded = decoded_mean(plain, waves).numpy().reshape(-1, 3)
    np.testing.assert_allclose((mean - scaling.shift) / scaling.scale, decoded, atol=1e-5)
    noise = likelihood.noise.detach().numpy() * scaling.scale
    np.testing.assert_allclose(std, np.broadcast_to(noise, std.shape), rtol=1e-5)
    assert not np.allclose(mean[~np.isnan(waves).reshape(-1, 3)], waves[~np.isnan(waves)], rtol=1e-3)


def test_sampled_reconstruction_agrees_with_what_impute_fills_in(plain: GPVAE, waves: Array) -> None:
    """Both are means over draws of their own; deviations have the noise and what the posterior leaves open."""
    plain.fit(waves)
    mean, std = (each.reshape(waves.shape) for each in plain.reconstruct(waves, samples=400, seed=5))
    filled, gaps = plain.impute(waves, samples=400), missing(waves)
    noise = plain.reconstruct(waves)[1].reshape(waves.shape)
    open_still = np.sqrt(std**2 - 0.999 * noise**2)
    assert (std > noise).all()
    assert (np.abs(mean - filled.mean)[gaps] < 6 * open_still[gaps] * np.sqrt(2 / 400)).all()
    np.testing.assert_allclose(std[gaps], filled.std[gaps], rtol=0.1)
    again = plain.reconstruct(waves, samples=400, seed=5)[0].reshape(waves.shape)
    assert np.array_equal(mean, again)
    assert not np.array_equal(mean, plain.reconstruct(waves, samples=400, seed=6)[0].reshape(waves.shape))


def test_series_are_reconstructed_each_for_itself(tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of different lengths, together or alone, many at once or few."""
    series = [waves[0], waves[1, :5], waves[2, :17], waves[3], waves[4, :1]]
    tiny.fit(waves)
    alone = [tiny.reconstruct(each[None])[0] for each in series]
    for rows in (1, 40, 10**6):
        monkeypatch.setattr(latent, "_rows_at_once", lambda model, rows=rows: rows)
        together, _ = tiny.reconstruct(Panel.of(series))
        np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-4, atol=1e-5)


def test_only_real_numbers_are_reconstructed(tiny: GPVAE, waves: Array) -> None:
    tiny.set_params(kinds={"x1": "positive"}, epochs=1).fit(waves)
    with pytest.raises(DataError, match="only columns of real numbers can be reconstructed"):
        tiny.reconstruct(waves)
    with pytest.raises(NotFittedError):
        fresh(tiny).reconstruct(waves)


def selective_pixels() -> tuple[Array, Array]:
    """Stripes that move, and the same with most of the ones and few of the zeros missing. (series, time, pixel)"""
    rng = np.random.default_rng(3)
    phase = rng.uniform(0, 6, (100, 1, 1))
    truth = (np.sin(np.arange(12)[None, :, None] / 2 + phase + np.arange(8) * 0.8) > 0.2) * 1.0
    return truth, np.where(rng.random(truth.shape) < np.where(truth > 0, 0.8, 0.3), np.nan, truth)


def test_cells_held_out_would_pass_for_missing_by_value() -> None:
    model = ModelConfig(likelihood="bernoulli", missing_by_value=True)
    with pytest.raises(ValueError, match=r"missing_by_value needs validation=0.0"):
        GPVAE(model).fit(selective_pixels()[1])


def test_learns_that_ones_go_missing_more_often_than_zeros() -> None:
    """The model that knows of it fills in more ones, and is less surprised by what was there."""
    truth, data = selective_pixels()
    gaps = missing(data)
    surprise: list[float] = []
    ones: list[float] = []
    for by_value in (False, True):
        model = ModelConfig(
            latent_dim=4,
            encoder_filters=24,
            encoder_window=5,
            encoder_widths=(24,),
            decoder_widths=(24,),
            likelihood="bernoulli",
            missing_by_value=by_value,
        )
        imputer = GPVAE(model, epochs=12, optimizer="adam", learning_rate=3e-3, validation=0.0, device="cpu").fit(data)
        density = imputer.log_likelihood(data, truth.reshape(-1, 8), samples=20)
        surprise.append(-float(density[gaps.reshape(-1, 8)].mean()))
        ones.append(float(imputer.impute(data, samples=20).mean[gaps].mean()))
        reconstructed = imputer.reconstruct(data)[0].reshape(data.shape)
        assert float(reconstructed[gaps].mean()) == pytest.approx(ones[-1], abs=0.05)
        if by_value:
            assert isinstance(imputer.model_.likelihood, SelectiveBernoulli)
            lost = imputer.model_.likelihood.gaps.detach().sigmoid()
            assert lost[1] - lost[0] > 0.2
            with torch.no_grad():
                plain = decoded_mean(imputer, data).numpy()
            odds = np.log(reconstructed) - np.log1p(-reconstructed)
            np.testing.assert_allclose(odds - plain, float(torch.log(lost[1] / lost[0])), rtol=0.01)
    assert surprise[1] < 0.7 * surprise[0]
    assert ones[1] > ones[0] + 0.2


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_without_held_out_cells_training_sees_all_and_is_asked_nothing(
    tiny: GPVAE, waves: Array, validation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    exams: list[Exam] = []
    monkeypatch.setattr(GPVAE, "_before", lambda self, network, exam: exams.append(exam))
    tiny.set_params(validation=validation, epochs=1).fit(waves)
    (exam,) = exams
    known = torch.from_numpy(~np.isnan(waves.reshape(-1, 3)))
    seen, asked = exam.rows.observed[:-1], exam.answers.observed[:-1]
    assert torch.equal(seen | asked, known)
    assert not (seen & asked).any()
    assert int(asked.sum()) == round(validation * int(known.sum()))
    assert ("validation" in tiny.history_[0]) is bool(validation)


def test_values_that_need_no_scaling_are_not_copied(waves: Array) -> None:
    values = waves.reshape(-1, 3)
    plain = Scaling.of(Panel.of(waves), standardise=False)
    assert plain.apply(values) is values
    for scaling in (
        Scaling(np.array([0.0, 0.0, 1.0]), np.ones(3)),
        Scaling(np.zeros(3), np.array([1.0, 2.0, 1.0])),
    ):
        expected = (values - scaling.shift) / scaling.scale
        np.testing.assert_allclose(scaling.apply(values), expected)
    classes = Scaling(np.zeros(1), np.ones(1), ("binary",), ((3.0, 5.0),))
    assert classes.apply(np.array([[5.0], [3.0]])).tolist() == [[1.0], [0.0]]
    positive = Scaling(np.zeros(1), np.ones(1), ("positive",))
    assert positive.apply(np.array([[np.e]])) == pytest.approx(1.0)


def test_half_of_what_is_held_out_lies_in_gaps_like_those_of_the_data() -> None:
    values = np.random.default_rng(0).normal(size=(3000, 2)).cumsum(axis=0)
    for first in range(100, 2900, 200):
        values[first : first + 20, 0] = np.nan
    panel = Panel.of(values)
    imputer = GPVAE(validation=0.1, seed=3)
    held = imputer._hold_out(panel, imputer._new_schema(panel))
    assert held.sum() == round(0.1 * panel.observed.sum())
    assert not (held & ~panel.observed).any()
    edges = np.diff(held[:, 0].astype(int), prepend=0, append=0)
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    assert lengths[lengths >= 10].sum() == pytest.approx(0.5 * held.sum(), rel=0.15)
    whole = Panel.of(np.random.default_rng(0).normal(size=(300, 2)))
    assert imputer._hold_out(whole, imputer._new_schema(whole)).sum() == 60  # nothing to imitate


@pytest.mark.parametrize(("series", "size"), [(10, 16), (1500, 30), (5000, 64)])
def test_batches_grow_with_the_data(series: int, size: int) -> None:
    assert trained._batch_size(series) == size


@pytest.mark.parametrize("gain", [0.1, -0.1])
def test_series_are_mixed_where_held_out_cells_are_predicted_better_by_it(
    gain: float, tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is forked behind three tenths of 80 epochs, as its scores never change but for the `gain` by mixtures."""
    monkeypatch.setattr(GPVAE, "_score", lambda _, network, exam: 1.0 - gain * float(network.mixing > 0))

    def fitted(**changes: Any) -> GPVAE:
        model = replace(tiny.model, mix=changes.pop("mix", 0.75), beta=0.01)
        return GPVAE(model, **{"epochs": 80, "device": "cpu", **changes}).fit(waves)

    def losses(imputer: GPVAE) -> list[float]:
        return [epoch["nll"] for epoch in imputer.history_]

    mixed, never = fitted(), fitted(mix=0.0)
    same = [one == other for one, other in zip(losses(mixed), losses(never), strict=True)]
    assert same == [True] * 24 + [gain < 0] * 56
    weights = (each.model_.state_dict() for each in (mixed, never))
    assert all(torch.equal(*each) for each in zip(*(each.values() for each in weights), strict=True)) == (gain < 0)
    assert losses(fitted(standardise=False)) == losses(fitted(standardise=False, mix=0.0))


@pytest.mark.parametrize(
    ("changes", "series", "even", "mixes"),
    [
        ({}, 2, True, True),
        ({}, 1, True, False),  # nothing to mix with
        ({}, 2, False, False),
        ({"standardise": False}, 2, True, False),
        ({"model": ModelConfig(mix=0.0)}, 2, True, False),
        ({"model": VAE}, 2, True, False),
    ],
)
def test_which_tables_are_practised_harder(changes: dict[str, Any], series: int, even: bool, mixes: bool) -> None:
    """Others would have nothing to gain from a learning rate that stays."""
    imputer, network = GPVAE(**changes), LatentModel(changes.get("model", ModelConfig()), 2)
    rows = RowTensors(torch.zeros(9, 2), torch.ones(9, 2, dtype=torch.bool), torch.arange(9.0), 1.0 if even else None)
    assert (imputer._harder(network, rows, series) is not None) is mixes


def test_whether_the_last_weights_are_kept() -> None:
    kept = {"default": GPVAE(), "patient": GPVAE(patience=9), "steady": GPVAE(anneal=False)}
    kept["copies"] = GPVAE(ModelConfig(hide=0.0))
    found = {name: each._training_config(10).keeps_last for name, each in kept.items()}
    assert found == {"default": True, "patient": False, "steady": False, "copies": False}
    assert not BRITS(anneal=True)._training_config(10).keeps_last


def test_a_weight_of_the_kl_that_is_left_to_us_rises_over_many_steps() -> None:
    """1,000 at least, so that in a short run it stays below; but not without warm-up, with a β to obey, or patience."""

    def warm_up(steps_per_epoch: int, model: ModelConfig = ModelConfig(), **settings: Any) -> int:
        return GPVAE(model, epochs=200, **settings)._training_config(steps_per_epoch).warm_up

    assert [warm_up(steps) for steps in (1, 3, 19, 20, 100)] == [1000, 334, 53, 50, 50]
    assert warm_up(1, warm_up=0.0) == 0
    assert warm_up(1, ModelConfig(beta=0.01)) == 50
    assert warm_up(1, patience=9) == warm_up(1, anneal=False) == 50


@pytest.mark.parametrize("anneal", [True, False])
def test_epochs_by_the_number_of_steps(anneal: bool) -> None:
    """Annealed: 10,000 steps, but at most 800 epochs, and 200 of up to three steps; else 3,000. Never below 40."""
    imputer = GPVAE(anneal=anneal)
    found = [imputer._training_config(steps).epochs for steps in (1, 3, 6, 12, 100, 5000)]
    assert found == ([200, 200, 400, 800, 100, 40] if anneal else [3000, 1000, 500, 250, 40, 40])
    assert GPVAE(epochs=7)._training_config(1).epochs == 7


def test_optimizer_decides_whether_matrices_are_treated_as_such(tiny: GPVAE, waves: Array) -> None:
    network = tiny.fit(waves).model_
    steps: dict[str, int] = {}
    for name in ("muon", "adam"):
        groups = GPVAE(optimizer=name)._groups(network)
        steps[name] = sum(len(group["params"]) for group in groups if group.get("matrices"))
    assert steps["muon"] > 2
    assert steps["adam"] == 0
    assert GPVAE().optimizer == "muon"
    assert paper.PHYSIONET["optimizer"] == method("vae").get_params()["optimizer"] == "adam"
