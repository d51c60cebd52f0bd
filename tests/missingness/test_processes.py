"""Mechanisms that follow a random process in space or time, against its definition."""

from itertools import combinations

import numpy as np
import pytest
from panels import correlation, deviation, even, over_time, ragged
from scipy.stats import chisquare

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.missingness import MECHANISMS, fields, repulsion
from gpvae.missingness.grids import rbf


def sign_correlation(distance: float, length_scale: float) -> float:
    """Two normals of correlation ρ have signs of correlation 2/π arcsin ρ."""
    return 2 / np.pi * np.arcsin(np.exp(-((distance / length_scale) ** 2) / 2))


@pytest.mark.parametrize(("series", "steps"), [(2000, 12), (20, 1200)])
@pytest.mark.parametrize("length_scale", [0.7, 3.0])
@pytest.mark.parametrize("lag", [1, 2, 4])
def test_temporal_positive_neighbours(series: int, steps: int, length_scale: float, lag: int) -> None:
    cells = missingness.temporal_positive(even(series, steps, 20), 0.5, 0, length_scale=length_scale)
    assert over_time(cells, steps, lag) == pytest.approx(sign_correlation(lag, length_scale), abs=0.015)
    frames = cells.reshape(series, steps, 20)
    assert abs(correlation(frames[..., 1:], frames[..., :-1])) < 0.015
    assert abs(correlation(frames[1:], frames[:-1])) < 0.015


@pytest.mark.parametrize("name", ["random", "not-at-random"])
def test_neighbours_are_independent(name: str) -> None:
    assert abs(over_time(MECHANISMS[name](even(2000, 12, 20), 0.5, 0), 12)) < 0.01


@pytest.mark.parametrize("length_scale", [0.7, 3.0])
def test_spatial_neighbours(length_scale: float) -> None:
    cells = missingness.spatial(even(100, 10, 3 * 8 * 12), 0.5, 0, (3, 8, 12), length_scale=length_scale)
    frames = cells.reshape(1000, 3, 8, 12)
    assert (frames == frames[:, :1]).all()
    pixels = frames[:, 0]
    for lag in (1, 2, 3):
        expected = pytest.approx(sign_correlation(lag, length_scale), abs=0.03)
        assert correlation(pixels[:, lag:], pixels[:, :-lag]) == expected
        assert correlation(pixels[:, :, lag:], pixels[:, :, :-lag]) == expected
    diagonal = pytest.approx(sign_correlation(2**0.5, length_scale), abs=0.03)
    assert correlation(pixels[:, 1:, 1:], pixels[:, :-1, :-1]) == diagonal
    assert abs(correlation(pixels[1:], pixels[:-1])) < 0.03


@pytest.mark.parametrize("shape", [(6,), (2, 2), (1, 2, 2, 2), (0, 6), (3, 2, 2)])
def test_an_image_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"image_shape must be .* of 6 columns, got"):
        missingness.spatial(ragged(0), 0.5, 0, shape)


@pytest.mark.parametrize("paths", ["even", "dense"])
def test_paths_have_the_covariance_of_the_kernel(paths: str) -> None:
    times, rng = np.linspace(0, 9.5, 20), np.random.default_rng(0)
    draw = fields.even_paths(20, 3.0 / 0.5) if paths == "even" else fields.dense_paths(times, 3.0, 1e-6)
    samples = draw(rng, 500, 40).swapaxes(1, 2).reshape(-1, 20)  # (draw, time)
    covariance = samples.T @ samples / len(samples)
    np.testing.assert_allclose(covariance, rbf(times, 3.0, 0), atol=4 * np.sqrt(2 / len(samples)))


def test_long_uneven_grids_are_drawn_in_blocks() -> None:
    times = np.cumsum(np.random.default_rng(0).exponential(size=2 * fields.BLOCK + 5))
    paths = fields.gp_paths(times, 50.0, 1e-6)(np.random.default_rng(0), 1, 400)[0]
    assert paths.shape == (len(times), 400)
    inside, across = (np.corrcoef(paths[i], paths[i + 1])[0, 1] for i in (fields.BLOCK - 2, fields.BLOCK - 1))
    assert inside > 0.95
    assert abs(across) < 0.2


def test_correlation_depends_on_times_not_on_row_numbers() -> None:
    """Two steps at nearly the same time, then even ones, then a long pause."""
    times = np.array([0, 0.01, 1, 2, 3, 4, 5, 50])
    panel = Panel.from_array(even(500, 8, 20).values.reshape(500, 8, 20), times=times)
    together, apart = (
        MECHANISMS[name](panel, 0.5, 0).reshape(500, 8, 20).swapaxes(0, 1) for name in ("temporal+", "temporal-")
    )
    assert correlation(together[0], together[1]) > 0.98
    assert correlation(together[5], together[6]) > 0.7
    assert abs(correlation(together[6], together[7])) < 0.04
    assert np.mean(apart[0] & apart[1]) < 0.01
    assert abs(correlation(apart[6], apart[7])) < 0.04


GRIDS = [np.arange(4.0), np.arange(6.0), np.array([0, 0.3, 1, 3, 3.5]), np.array([0, 1, 1.2, 2, 2.5, 6])]


def ensemble(times: Floats, rate: float, length_scale: float) -> tuple[Floats, Floats]:
    return repulsion.ensemble(times, rate, length_scale, 1e-6)


def fits(draws: Bools, subsets: Bools, probabilities: Floats) -> bool:
    """χ² test of draws (draw, time) against the probabilities of the subsets, the rarest ones pooled."""
    binary = 2 ** np.arange(draws.shape[1])
    counts = np.bincount(draws @ binary, minlength=len(subsets))[subsets @ binary]
    rare = probabilities * len(draws) < 10
    expected = np.append(probabilities[~rare], probabilities[rare].sum()) * len(draws)
    seen = np.append(counts[~rare], counts[rare].sum())
    if expected[-1] < 5:
        expected, seen = np.append(expected[:-2], expected[-2:].sum()), np.append(seen[:-2], seen[-2:].sum())
    return float(chisquare(seen, expected).pvalue) > 1e-3


@pytest.mark.parametrize("times", GRIDS, ids=str)
@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("length_scale", [0.5, 2.0])
def test_subsets_have_the_probabilities_of_a_determinantal_process(
    times: Floats, rate: float, length_scale: float
) -> None:
    (weighted, marginal), steps = ensemble(times, rate, length_scale), len(times)
    subsets, probabilities = repulsion.subset_probabilities(weighted)
    found = {tuple(np.flatnonzero(subset).tolist()): p for subset, p in zip(subsets, probabilities, strict=True)}
    for size in range(steps + 1):
        for chosen in combinations(range(steps), size):
            expected = np.linalg.det(weighted[np.ix_(chosen, chosen)]) / np.linalg.det(weighted + np.eye(steps))
            assert found[chosen] == pytest.approx(expected, rel=1e-6, abs=1e-15)
    assert len(found) == 2**steps
    assert probabilities.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(probabilities @ subsets, rate, atol=2e-7)
    np.testing.assert_allclose(marginal, weighted @ np.linalg.inv(weighted + np.eye(steps)), atol=1e-7)
    correlations = weighted / np.sqrt(np.outer(np.diag(weighted), np.diag(weighted)))
    np.testing.assert_allclose(correlations, rbf(times, length_scale, 1e-6) / (1 + 1e-6))


@pytest.mark.parametrize("times", GRIDS, ids=str)
@pytest.mark.parametrize("rate", [0.3, 0.7])
@pytest.mark.parametrize("length_scale", [0.7, 2.0])
def test_both_samplers_draw_from_that_distribution(times: Floats, rate: float, length_scale: float) -> None:
    steps = len(times)
    weighted, marginal = ensemble(times / np.median(np.diff(times)), rate, length_scale)
    subsets, probabilities = repulsion.subset_probabilities(weighted)
    panel = Panel.from_array(even(500, steps, 40).values.reshape(500, steps, 40), times=times)
    cells = missingness.temporal_negative(panel, rate, 0, length_scale=length_scale).reshape(500, steps, 40)
    assert fits(cells.swapaxes(1, 2).reshape(-1, steps), subsets, probabilities)
    lags = [np.pad(np.diag(marginal, k), (k, 0)) for k in range(steps)]
    chain = repulsion.sample_chain(np.stack(lags, axis=1), 20000, np.random.default_rng(0))
    assert fits(chain.T, subsets, probabilities)
    assert not fits(np.random.default_rng(0).random((20000, steps)) < rate, subsets, probabilities)


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_the_chain_has_the_marginals_of_the_process(rate: float) -> None:
    """E x_i = K_ii = rate, cov(x_i, x_j) = -K_ij²."""
    panel = even(500, 30, 40)
    cells = missingness.temporal_negative(panel, rate, 0).reshape(500, 30, 40).swapaxes(1, 2).reshape(-1, 30)
    _, marginal = ensemble(np.arange(30.0), rate, 2.0)
    error = 4.5 * np.sqrt(0.25 / len(cells))
    np.testing.assert_allclose(cells.mean(axis=0), rate, atol=error)
    pairs = ~np.eye(30, dtype=bool)
    np.testing.assert_allclose(np.cov(cells.T)[pairs], -(marginal[pairs] ** 2), atol=error)


@pytest.mark.parametrize("steps", [10, 12])
def test_temporal_negative_neighbours(steps: int) -> None:
    cells = missingness.temporal_negative(even(2000, steps, 20), 0.5, 0)
    assert over_time(cells, steps) < -0.3
    frames = cells.reshape(2000, steps, 20)
    assert abs(correlation(frames[..., 1:], frames[..., :-1])) < 0.015
    assert abs(correlation(frames[1:], frames[:-1])) < 0.015


@pytest.mark.parametrize("uneven", [False, True])
def test_windows_of_a_long_series_agree_with_the_whole_series(uneven: bool) -> None:
    times = np.arange(700.0)
    times += uneven * np.random.default_rng(0).uniform(-0.4, 0.4, size=700)
    band = repulsion.marginal_band(times, 0.4, 2.0, 1e-6)
    _, whole = ensemble(times, 0.4, 2.0)
    for lag in range(band.shape[1]):
        np.testing.assert_allclose(band[lag:, lag], np.diag(whole, lag), atol=1e-6)
        assert not band[:lag, lag].any()
    assert abs(np.triu(whole, band.shape[1])).max() < 2e-6


def test_temporal_negative_on_long_series() -> None:
    cells = missingness.temporal_negative(even(1, 3000, 8), 0.3, 0)
    assert cells.mean() == pytest.approx(0.3, abs=0.01)
    assert over_time(cells, 3000) < -0.2
    counts = cells.reshape(60, 50, 8).sum(axis=1)
    inside = ensemble(np.arange(250.0), 0.3, 2.0)[1][100:150, 100:150]
    assert counts.var() == pytest.approx(50 * 0.3 - (inside**2).sum(), rel=4.5 * np.sqrt(2 / counts.size))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("length_scale", [0.1, 2.0, 10.0, 1000.0])
def test_every_step_has_the_same_marginal_probability(seed: int, rate: float, length_scale: float) -> None:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(size=rng.integers(1, 80)))
    weighted, marginal = ensemble(times, rate, length_scale)
    np.testing.assert_allclose(np.diag(marginal), rate, atol=1e-7)
    assert (np.diag(weighted) > 0).all()


@pytest.mark.parametrize("rate", [0.001, 0.999])
@pytest.mark.parametrize("steps", [2, 10, 30])
def test_any_rate_can_be_reached(rate: float, steps: int) -> None:
    """Where the kernel cannot hold so many steps, the jitter adds independent ones."""
    panel = even(1000, steps, 10)
    assert deviation(panel, missingness.temporal_negative(panel, rate, 0, length_scale=100.0), rate) < 4


def test_a_tiny_rate_removes_nothing() -> None:
    assert missingness.temporal_negative(even(10, 30, 5), 1e-7, 0).sum() == 0
