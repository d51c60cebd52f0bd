"""Conformal intervals have their nominal coverage, for any imputer and any data."""

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import DEFAULT, GPVAE, Conformal, DataError, Forward, Imputer, Linear, Mean, ModelConfig, Panel, missingness
from gpvae.imputers.draws import ConformalIntervals
from gpvae.models.encoders import Attention, Convolution
from gpvae.models.likelihoods import Bernoulli, Gaussian

SERIES, STEPS = 40, 60


def skewed(seed: int) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A heavy-tailed, a skewed and a smooth column, in different units; a fifth is missing at random."""
    rng = np.random.default_rng(seed)
    heavy = rng.standard_t(2, (SERIES, STEPS)) * 100
    smooth = np.sin(np.arange(STEPS) / 5 + rng.uniform(0, 6, (SERIES, 1))) / 1000
    truth = np.stack([heavy, rng.exponential(5, (SERIES, STEPS)) ** 2, smooth], axis=-1)
    return truth, rng.random(truth.shape) < 0.2


def coverage(imputer: Conformal, level: float, seeds: range, *, hide_again: bool) -> NDArray[np.float64]:
    """Of each column over several data sets; `hide_again` hides the calibration cells when gaps are filled."""
    inside = []
    for seed in seeds:
        truth, gaps = skewed(seed)
        panel = Panel.from_array(np.where(gaps, np.nan, truth))
        fitted = cast(Conformal, imputer.set_params(seed=seed)).fit(panel)
        given = missingness.hide(panel, missingness.random(panel, 0.1, [seed, 2])) if hide_again else panel
        lower, upper = fitted.impute(given).interval(level)
        covered = (lower <= truth) & (truth <= upper)
        inside.append([covered[..., j][gaps[..., j]].mean() for j in range(3)])
    return np.mean(inside, axis=0)


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("method", [Mean(), Forward(), Linear()], ids=lambda method: method.name)
def test_every_column_has_the_nominal_coverage(method: Imputer, level: float) -> None:
    """The mean over twenty data sets, each with about 190 calibration cells per column, within three standard errors.

    It is exact if gaps are filled with the calibration cells hidden: the coverage of a data set then has about the
    standard deviation √(level (1 - level) (1/190 + 1/480)). With those cells visible, coverage is higher.
    """
    deviation = np.sqrt(level * (1 - level) * (1 / 190 + 1 / 480) / 20)
    alike = coverage(Conformal(method), level, range(20), hide_again=True)
    assert (np.abs(alike - level) < 3 * deviation + 1 / 190).all()
    used = coverage(Conformal(method), level, range(20), hide_again=False)
    assert (used > level - 3 * deviation).all()
    assert (used < level + 0.1).all()


def test_coverage_of_an_imputer_with_standard_deviations() -> None:
    """A hardly trained model, whose own intervals mean little."""
    small = Convolution(filters=16, widths=(16,))
    model = ModelConfig(latent_dim=3, encoder=small, decoder_widths=(16,), likelihood=Gaussian(noise=0.05))
    found = coverage(Conformal(GPVAE(model, epochs=3, device="cpu")), 0.9, range(6), hide_again=True)
    assert (np.abs(found - 0.9) < 3 * np.sqrt(0.09 * (1 / 190 + 1 / 480) / 6) + 0.02).all()


def test_the_half_width_is_the_kth_smallest_error() -> None:
    centre, scale, lower_bound = (
        np.array([10.0, 0.0, 3.0]),
        np.array([2.0, 1.0, 5.0]),
        np.array([-np.inf, -np.inf, 0.0]),
    )
    errors = np.arange(1.0, 10), np.ones(9), np.ones(3)
    columns, pooled = np.array([0, 1, 2]), np.arange(1.0, 16)
    intervals = ConformalIntervals(centre, scale, lower_bound, columns, errors, pooled)
    lower, middle, upper = intervals.quantiles([0.05, 0.5, 0.95])
    assert lower.tolist() == [-8, -1, 0]  # the third uses the pooled errors, and ends at its lower bound
    assert middle.tolist() == [10, 0, 3]
    assert upper.tolist() == [28, 1, 3 + 5 * 15]
    assert intervals.quantiles([0.75])[0].tolist() == [20, 1, 8]
    with pytest.raises(DataError, match="a 95 % interval needs at least 19 held-out cells, got 15"):
        intervals.quantiles([0.025])


def test_a_column_with_few_held_out_cells_uses_the_errors_of_all() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(20, 50, 2)) * [1, 1000]
    data[..., 1][rng.random((20, 50)) < 0.9] = np.nan
    fitted = Conformal(Linear()).fit(data)
    assert len(fitted.errors_[1]) < 19 < len(fitted.errors_[0])
    lower, upper = fitted.impute(data).interval(0.95)
    assert 1000 < np.median((upper - lower)[np.isnan(data)]) < 8000


def test_the_last_values_of_a_column_are_not_held_out() -> None:
    data = np.random.default_rng(0).normal(size=(60, 2))
    data[2:, 1] = np.nan
    for seed in range(20):
        filled = Conformal(Linear(), seed=seed).fit(data).impute(data)
        assert np.isfinite(filled.mean).all()


def test_positive_columns_stay_positive_and_values_are_checked_by_the_method() -> None:
    rng = np.random.default_rng(0)
    data = np.where(rng.random((20, 40, 1)) < 0.2, np.nan, rng.lognormal(0, 2, (20, 40, 1)))
    model = replace(DEFAULT, latent_dim=3, encoder=Attention(width=16), decoder_widths=(16,))
    lower, _ = (
        Conformal(GPVAE(model, kinds={"x0": "positive"}, epochs=3, device="cpu")).fit(data).impute(data).interval()
    )
    assert (lower >= 0).all()
    bits = np.where(np.isnan(data), np.nan, data > 1)
    black_and_white = ModelConfig(latent_dim=3, decoder_widths=(16,), likelihood=Bernoulli())
    fitted = Conformal(GPVAE(black_and_white, epochs=1, device="cpu")).fit(bits)
    with pytest.raises(DataError, match="needs values between 0 and 1"):
        fitted.impute(bits * 7)


def test_counts_are_refused_before_anything_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpvae.imputers.neural.train", None)
    data = np.random.default_rng(0).poisson(3, (40, 2)).astype(float)
    with pytest.raises(DataError, match="conformal intervals need columns of real numbers"):
        Conformal(GPVAE(kinds={"x0": "count"}, device="cpu")).fit(data)


def test_empty_series_of_a_column_give_a_warning() -> None:
    data = np.random.default_rng(0).normal(size=(20, 30, 2))
    data[3, :, 1] = np.nan
    fitted = Conformal(Linear()).fit(data)
    with pytest.warns(
        UserWarning, match="column 'x1' has no value in 1 series: intervals there, .*, are likely too narrow"
    ):
        fitted.impute(data)


def test_too_few_held_out_cells_are_an_error() -> None:
    data = np.random.default_rng(0).normal(size=(20, 1))
    data[3] = np.nan
    with pytest.raises(DataError, match="needs at least 9 held-out cells, got 2"):
        Conformal(Linear()).fit(data).impute(data).interval(0.9)
    with pytest.raises(ValueError, match="share must lie between 0 and 1, got 2"):
        Conformal(Linear(), share=2).fit(data)
