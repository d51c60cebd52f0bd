"""Quantiles and intervals read from draws, and the scaling between the data's units and a model's."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpvae import GPVAE, DataError, Panel
from gpvae.data.scaling import Scaling
from gpvae.imputers.draws import Draws
from gpvae.models.likelihoods import GaussianLikelihood, RealParams

Array = NDArray[Any]


@pytest.mark.parametrize("q", [0.0, 1.0, -0.1])
def test_quantiles_outside_the_unit_interval_are_refused(q: float, tiny: GPVAE, waves: Array) -> None:
    result = tiny.set_params(epochs=1).fit(waves).impute(waves, samples=18)
    with pytest.raises(DataError, match="between 0 and 1"):
        result.quantile(q)
    with pytest.raises(DataError, match=r"the quantile 0.05, .* 0.9 interval, needs at least 19 samples, got 18"):
        result.interval(0.9)
    with pytest.raises(DataError, match=r"between 0 and 1 \(0.9 is 90 %\), got 90"):
        result.interval(90)


@pytest.mark.parametrize("method", ["hazen", "weibull"])
@pytest.mark.parametrize("samples", [1, 2, 19, 100])
def test_quantiles_are_those_of_numpy(samples: int, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpvae.imputers.draws.CELLS_PER_CHUNK", 3)
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
def test_few_draws_cover_the_truth_as_often_as_they_say(latent: float, samples: int, least: float) -> None:
    """All of the uncertainty is in the noise, whose draws are stratified; or in the latent series, whose are not."""
    likelihood, generator = GaussianLikelihood(1, 1.0), torch.Generator().manual_seed(0)
    cells, noise = 40_000, float(latent == 0)
    z = latent * torch.randn((samples, cells, 1), generator=generator)
    drawn = likelihood.sample(RealParams(torch.zeros_like(z)), generator)
    scaled = (z + noise * drawn).squeeze(-1).T.detach().numpy()
    draws = Draws(scaled, np.zeros(cells, dtype=np.int64), Scaling(np.zeros(1), np.ones(1)))
    truth = np.random.default_rng(1).normal(size=cells)
    lower, upper = draws.quantiles([0.05, 0.95])
    assert least < ((lower < truth) & (truth < upper)).mean() < 0.905 + 0.015 * (samples == 20)


def test_scaling_ignores_rounding_noise_in_a_constant_column() -> None:
    panel = Panel.from_array(np.array([[0.1 + 0.2, 1.0], [0.3, 2.0]]))
    assert (Scaling.of(panel, standardise=True).scale > 0).tolist() == [False, True]


def test_columns_too_large_to_scale_are_named(tiny: GPVAE, waves: Array) -> None:
    with pytest.raises(DataError, match="values of column 'x0' are too large"):
        tiny.fit(waves * [1.2e308, 1, 1])


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
