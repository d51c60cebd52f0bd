"""Rows beyond the last observation: the exact Gaussian process, whose intervals widen as it says."""

from statistics import NormalDist

import numpy as np
import pytest
import torch
from factors import dense_posterior, gappy_walk, known_imputer

from gpvae import GPFactor, Panel

TIMES = {"even": np.arange(50.0), "irregular": np.cumsum(np.random.default_rng(1).uniform(0.2, 3, 50))}
HORIZON = 15


def with_empty_end(times: np.ndarray) -> Panel:
    values = gappy_walk(len(times), 3)
    values[-HORIZON:] = np.nan
    return Panel.from_array(values, times=times)


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("causal", [False, True])
def test_forecasts_are_those_of_the_dense_gaussian_process(times: np.ndarray, causal: bool) -> None:
    panel = with_empty_end(times)
    imputer = known_imputer(panel, (0, 1, 2), bent=False)
    schema, space = imputer.schema_, imputer.blocks_[0].model.space
    filled = imputer.impute(panel, samples=4000, causal=causal)
    scaled = schema.scaling.apply(panel.values)
    for row in range(len(times) - HORIZON, len(times)):
        mean, covariance = dense_posterior(space, panel.times / schema.time_unit, scaled, row)
        std = np.sqrt(np.diag(covariance))
        np.testing.assert_allclose((filled.mean[row] - schema.scaling.shift) / schema.scaling.scale, mean, atol=1e-9)
        np.testing.assert_allclose(filled.std[row] / schema.scaling.scale, std, rtol=1e-9)
        draws = (filled.samples[:, row] - schema.scaling.shift) / schema.scaling.scale
        np.testing.assert_allclose(draws.mean(0), mean, atol=5 * std.max() / np.sqrt(4000))
        np.testing.assert_allclose(np.cov(draws.T), covariance, atol=6 * std.max() ** 2 / np.sqrt(4000))


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_streamed_intervals_are_the_exact_quantiles_through_the_warp(times: np.ndarray) -> None:
    panel = with_empty_end(times)
    imputer = known_imputer(panel, (0, 1, 2))
    schema, model = imputer.schema_, imputer.blocks_[0].model
    scaled = torch.from_numpy(schema.scaling.apply(panel.values))
    warped = torch.where(scaled.isnan(), torch.nan, model.warp(scaled)).numpy()
    stream, score = imputer.stream(level=0.8), NormalDist().inv_cdf(0.9)
    filled = [stream.step(row, time) for row, time in zip(panel.values, panel.times, strict=True)]
    for row in range(len(times) - HORIZON, len(times)):
        mean, covariance = dense_posterior(model.space, panel.times / schema.time_unit, warped, row)
        ends = mean + np.outer([-score, score], np.sqrt(np.diag(covariance)))
        got = torch.from_numpy(schema.scaling.apply(np.stack([filled[row].lower, filled[row].upper])))
        np.testing.assert_allclose(model.warp(got).numpy(), ends, atol=1e-8)


def test_intervals_widen_to_the_spread_of_the_column() -> None:
    values = gappy_walk(400, 2, missing=0.1)
    values[-200:] = np.nan
    panel = Panel.from_array(values)
    filled = known_imputer(panel, (0, 1), bent=False).impute(panel, samples=1000)
    lower, upper = filled.interval(0.9)
    assert ((upper - lower)[-1] > (upper - lower)[-200]).all()
    assert (np.diff(filled.std[-200::20], axis=0) > -1e-12).all()
    model = known_imputer(panel, (0, 1), bent=False).blocks_[0].model
    prior = (model.space.covariance(torch.zeros(1).double())[0].diagonal() + model.noise).sqrt().numpy()
    np.testing.assert_allclose(filled.std[-1], prior * np.nanstd(values, axis=0), rtol=1e-3)


def test_fitted_model_forecasts_with_widening_intervals() -> None:
    rng, steps = np.random.default_rng(0), np.arange(150)
    waves = np.sin(steps[:, None] / 8 + [0, 1]) + 0.1 * rng.normal(size=(150, 2)).cumsum(0) / 2
    waves[-40:] = np.nan
    filled = GPFactor().fit(waves).impute(waves, samples=400)
    lower, upper = filled.interval(0.9)
    width = upper - lower
    assert (width[-40] > 0).all()
    assert (width[-20:].mean(0) > 1.2 * width[-40:-36].mean(0)).all()
