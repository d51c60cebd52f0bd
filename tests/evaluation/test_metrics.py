"""Elementwise scores against their definitions."""

from typing import Any

import numpy as np
import pytest

from gpvae.evaluation import metrics


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 10, 101])
def test_crps_equals_its_definition_over_all_pairs(n: int, dtype: Any) -> None:
    rng = np.random.default_rng(n)
    samples, truth = rng.normal(size=(n, 20)).astype(dtype), rng.normal(size=20)
    before, exact = samples.copy(), samples.astype(np.float64)
    pairs = np.abs(exact[:, None] - exact[None]).mean(axis=(0, 1))
    expected = np.abs(exact - truth).mean(axis=0) - pairs / 2
    scores = metrics.crps(truth, samples)
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(samples, before)  # not sorted in place


def test_crps_of_one_sample_is_the_absolute_error() -> None:
    truth, point = np.array([1.0, -2.0]), np.array([3.0, -2.5])
    np.testing.assert_array_equal(metrics.crps(truth, point[None]), metrics.absolute_error(truth, point))


def test_crps_of_gaussian_samples_matches_the_closed_form() -> None:
    """σ (z (2 Φ(z) - 1) + 2 φ(z) - 1/√π) at z = 0, within Monte-Carlo error."""
    samples = 2.0 * np.random.default_rng(0).normal(size=(4000, 50))
    scores = metrics.crps(np.zeros(50), samples)
    expected = 2.0 * (2 / np.sqrt(2 * np.pi) - 1 / np.sqrt(np.pi))
    assert abs(scores.mean() - expected) < 4 * scores.std() / np.sqrt(50)


def test_errors_and_coverage() -> None:
    truth, point = np.array([1.0, 2.0, 3.0]), np.array([1.5, 0.0, 3.0])
    np.testing.assert_array_equal(metrics.absolute_error(truth, point), [0.5, 2, 0])
    np.testing.assert_array_equal(metrics.squared_error(truth, point), [0.25, 4, 0])
    inside = metrics.covered(truth, np.array([1, 2.5, 0]), np.array([1, 3, 2.9]))
    np.testing.assert_array_equal(inside, [True, False, False])


def test_quantile_score_equals_the_pinball_loss_in_a_loop() -> None:
    rng = np.random.default_rng(0)
    truth, samples = rng.normal(size=6), rng.normal(size=(30, 6))
    for y, draws, score in zip(truth, samples.T, metrics.quantile_score(truth, samples), strict=True):
        losses: list[float] = []
        for i in range(1, 20):
            quantile = float(np.quantile(draws, i / 20))
            losses.append(2 * abs((quantile - y) * ((y <= quantile) - i / 20)))
        assert score == pytest.approx(sum(losses) / 19, rel=1e-12)


def test_quantile_score_of_one_sample_is_the_absolute_error() -> None:
    truth, point = np.random.default_rng(1).normal(size=(2, 200))
    np.testing.assert_allclose(metrics.quantile_score(truth, point[None]), np.abs(truth - point), rtol=1e-12)


def test_quantile_score_approximates_the_crps() -> None:
    rng = np.random.default_rng(1)
    truth, samples = rng.normal(size=200), rng.normal(size=(500, 200))
    ratio = metrics.quantile_score(truth, samples).mean() / metrics.crps(truth, samples).mean()
    assert ratio == pytest.approx(1, abs=0.05)
