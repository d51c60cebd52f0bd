"""Filling from the past alone: whatever comes later changes nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factors import dense_posterior, gappy_walk, known_imputer
from numpy.typing import NDArray

from gpvae import Conformal, DataError, Forward, GPFactor, Imputer, Panel, load
from gpvae.imputers.imputation import Imputation

Array = NDArray[Any]
TIME, NOW = 300, 170  # rows in all, and rows whose results must not depend on later ones
TIMES = {
    "even": np.arange(TIME) * 0.1,
    "irregular": np.cumsum(np.random.default_rng(1).uniform(0.2, 3, TIME)),
    "dates": np.datetime64("2020-02-28T12:00") + np.arange(TIME) * np.timedelta64(7, "m"),
}


def imputers(panel: Panel) -> list[Imputer]:
    return [known_imputer(panel, (0, 2), (1,)), Forward().fit(panel)]


def changed_later(values: Array) -> Array:
    """Other values, and other cells missing, in the later rows."""
    return np.concatenate([values[:NOW], 3 * gappy_walk(TIME, 3, seed=9)[NOW:]])


def early(result: Imputation) -> list[Array]:
    """Values and deviations of the early rows, in units of the columns."""
    found = [result.mean, *([result.std] if result.draws else [])]
    return [part[:NOW] / np.nanstd(result.panel.values[:NOW], axis=0) for part in found]


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_later_values_change_nothing(times: Array) -> None:
    """Draws bit for bit; vectorised sums over other numbers of cells round means and deviations differently."""
    values = gappy_walk(TIME, 3)
    panel, other = (Panel.from_array(each, times=times) for each in (values, changed_later(values)))
    for imputer in imputers(panel):
        before, after = (imputer.impute(each, samples=20, causal=True) for each in (panel, other))
        np.testing.assert_allclose(early(after), early(before), atol=1e-14)
        if before.draws:
            assert np.array_equal(before.samples[:, :NOW], after.samples[:, :NOW])
        assert not np.array_equal(before.mean[NOW:], after.mean[NOW:])


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_later_rows_and_times_change_nothing(times: Array) -> None:
    """Series of another length are cut into other chunks, so sums are rounded differently; draws are float32."""
    values = gappy_walk(TIME, 3)
    panel = Panel.from_array(values, times=times)
    late = np.concatenate([times[:NOW], times[NOW:] + (times[-1] - times[NOW])])
    others = [Panel.from_array(values[:NOW], times=times[:NOW]), Panel.from_array(values, times=late)]
    for imputer in imputers(panel):
        whole, *results = (imputer.impute(each, samples=20, causal=True) for each in (panel, *others))
        for result in results:
            np.testing.assert_allclose(early(result), early(whole), atol=1e-11)
            if whole.draws:
                np.testing.assert_allclose(result.samples[:, :NOW], whole.samples[:, :NOW], rtol=1e-5)


def test_smoothing_uses_later_rows_and_filtering_is_less_sure() -> None:
    panel = Panel.from_array(gappy_walk(TIME, 3))
    imputer = known_imputer(panel, (0, 1, 2), bent=False)
    smoothed, filtered = (imputer.impute(panel, samples=20, causal=causal) for causal in (False, True))
    gaps = ~panel.observed
    assert (filtered.std[gaps] > smoothed.std[gaps] - 1e-9).all()
    assert (filtered.std[gaps] > 1.01 * smoothed.std[gaps]).mean() > 0.5
    changed = imputer.impute(Panel.from_array(changed_later(panel.values)), samples=20).mean
    assert not np.array_equal(changed[:NOW], smoothed.mean[:NOW])


def test_draws_of_a_row_are_those_of_its_filtering_distribution() -> None:
    values = gappy_walk(30, 3)
    panel = Panel.from_array(values)
    imputer = known_imputer(panel, (0, 1, 2), bent=False)
    filled, scaling = imputer.impute(panel, samples=4000, causal=True), imputer.schema_.scaling
    scaled, space = scaling.apply(values), imputer.blocks_[0].model.space
    for row in (10, 13, 29):  # the first two are missing whole
        known = np.where(np.arange(30)[:, None] <= row, scaled, np.nan)
        mean, covariance = dense_posterior(space, panel.times, known, row)
        gaps = np.isnan(values[row])
        assert gaps.any()
        draws = scaling.apply(filled.samples[:, row])[:, gaps]
        np.testing.assert_allclose(draws.mean(0), mean[gaps], atol=5 / np.sqrt(4000))
        np.testing.assert_allclose(np.cov(draws.T), covariance[gaps][:, gaps].squeeze(), atol=6 / np.sqrt(4000))


def test_several_series_each_have_their_own_past() -> None:
    series = [gappy_walk(length, 3, seed) for seed, length in enumerate((40, 1, 25))]
    panel = Panel.from_list(series)
    for imputer in imputers(panel):
        together = imputer.impute(panel, causal=True).mean
        for each, alone in zip(together, series, strict=True):
            np.testing.assert_allclose(each, imputer.impute(alone, causal=True).mean, rtol=1e-9)


def test_forward_uses_no_later_value_before_the_first_one() -> None:
    data = np.array([[np.nan], [5.0], [np.nan], [7.0]])
    for imputer, first in ((Forward(), 6.0), (Forward(before=0.0), 0.0)):
        assert imputer.fit(data).impute(data, causal=True).mean[:, 0].tolist() == [first, 5, 5, 7]
    with pytest.raises(DataError, match=r"Forward\(before='first'\) uses a later value .*: set before to 'mean'"):
        Forward(before="first").fit(data).impute(data, causal=True)


def test_conformal_intervals_are_refused() -> None:
    data = gappy_walk(100, 2)
    fitted = Conformal(Forward()).fit(data)
    with pytest.raises(DataError, match=r"Conformal\(Forward\) does not fill from the past alone; methods that do: f"):
        fitted.impute(data, causal=True)


@pytest.mark.filterwarnings("ignore:column 'x1'")
def test_constant_and_unknown_columns() -> None:
    data = gappy_walk(60, 3)
    data[:, 1] = np.where(np.isnan(data[:, 1]), np.nan, 4.5)
    filled = GPFactor().fit(data).impute(data, causal=True)
    assert (filled.mean[:, 1] == 4.5).all()
    assert not filled.std[:, 1].any()
    data[:, 1] = np.nan
    filled = GPFactor().fit(data).impute(data, causal=True)
    assert np.isnan(filled.mean[:, 1]).all()
    assert np.isfinite(filled.mean[:, [0, 2]]).all()


def test_fit_on_the_past_knows_nothing_of_later_rows(tmp_path: Path) -> None:
    values = gappy_walk(TIME, 3)
    panel, other = (Panel.from_array(each, times=TIMES["dates"]) for each in (values, changed_later(values)))
    now = TIMES["dates"][NOW]
    first, second = (GPFactor().fit(each.until(now)) for each in (panel, other))
    first.save(tmp_path / "model")
    results = [model.impute(panel, causal=True).std for model in (first, second, load(tmp_path / "model"))]
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
