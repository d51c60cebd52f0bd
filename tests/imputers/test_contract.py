"""The contract of imputers: one battery over all of them."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from battery import ANY_NUMBERS, IMPUTERS, fresh, has_intervals
from numpy.typing import NDArray

from gpvae import DataError, Imputer, Linear, Mean, Panel, load

Array = NDArray[Any]
pytestmark = pytest.mark.filterwarnings("ignore:.*calibrated on single cells")


@pytest.fixture(params=IMPUTERS)
def imputer(request: pytest.FixtureRequest) -> Imputer:
    return IMPUTERS[request.param]()


def test_observed_values_come_back_bit_for_bit_and_the_rest_is_finite(imputer: Imputer, waves: Array) -> None:
    result = imputer.fit(waves).impute(waves, samples=40)
    gaps = np.isnan(waves)
    filled = [result.mean, *(result.interval(0.8) if has_intervals(imputer) else ())]
    for each in filled:
        assert each.shape == waves.shape
        assert np.isfinite(each).all()
        assert np.array_equal(each[~gaps], waves[~gaps])
    assert not np.array_equal(result.mean[gaps][1:], result.mean[gaps][:-1])


def test_uncertainty_is_given_or_refused_with_a_reason(imputer: Imputer, waves: Array) -> None:
    result = imputer.fit(waves).impute(waves, samples=40)
    gaps = np.isnan(waves)
    if imputer.gives_distributions:
        assert (result.std[gaps] > 0).all()
        assert not result.std[~gaps].any()
        assert result.samples.shape == (40, *waves.shape)
        assert np.array_equal(result.samples[7][~gaps], waves[~gaps])
    else:
        with pytest.raises(DataError, match=r"gives single values, without samples"):
            _ = result.samples
        with pytest.raises(DataError, match="gives single values, not distributions"):
            imputer.log_likelihood(waves, np.zeros((360, 3)))
    if has_intervals(imputer):
        lower, upper = result.interval(0.8)
        assert (lower[gaps] <= result.mean[gaps] + 1e-6).mean() > 0.9
        assert (lower[gaps] < upper[gaps]).all()
        np.testing.assert_allclose(lower, result.quantile(0.1), rtol=1e-6)
    else:
        with pytest.raises(DataError, match="without intervals; Conformal"):
            result.interval(0.9)
        with pytest.raises(DataError, match="without deviations; Conformal"):
            _ = result.std


def test_the_same_seed_gives_the_same_result(imputer: Imputer, waves: Array) -> None:
    first, second = (fresh(imputer).fit(waves).impute(waves, samples=5, seed=3) for _ in range(2))
    assert np.array_equal(first.mean, second.mean)
    if imputer.gives_distributions:
        other = imputer.fit(waves).impute(waves, samples=5, seed=4)
        assert np.array_equal(first.samples, second.samples)
        assert not np.array_equal(first.samples, other.samples)
        assert not np.array_equal(first.samples[0], first.samples[1])


def test_neither_fit_nor_impute_touches_global_random_state(imputer: Imputer, waves: Array) -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    expected = float(torch.rand(())), np.random.random()
    torch.manual_seed(1)
    np.random.seed(1)
    imputer.fit(waves).impute(waves, samples=2)
    assert (float(torch.rand(())), np.random.random()) == expected


def test_complete_data_comes_back_unchanged(imputer: Imputer, waves: Array) -> None:
    whole = np.where(np.isnan(waves), 0.5, waves)
    result = imputer.fit(waves).impute(whole)
    assert np.array_equal(result.mean, whole)
    if has_intervals(imputer):
        assert np.array_equal(result.quantile(0.3), whole)


def test_unseen_series_of_other_lengths_and_without_any_value(imputer: Imputer, waves: Array) -> None:
    imputer.fit(waves)
    long, empty = np.tile(waves[0], (5, 1)), np.full((9, 3), np.nan)
    result = imputer.impute([waves[0, :1], waves[1, :7], long, empty], samples=3)
    assert [filled.shape for filled in result.mean] == [(1, 3), (7, 3), (150, 3), (9, 3)]
    assert all(np.isfinite(filled).all() for filled in result.mean)


def test_fit_on_series_of_different_lengths(imputer: Imputer, waves: Array) -> None:
    ragged = [waves[0], waves[1, :1], waves[2, :17], np.tile(waves[3], (4, 1)), np.full((5, 3), np.nan), waves[4, :2]]
    result = imputer.fit(ragged).impute(ragged, samples=2)
    for filled, given in zip(result.mean, ragged, strict=True):
        assert np.isfinite(filled).all()
        assert np.array_equal(filled[~np.isnan(given)], given[~np.isnan(given)])


@pytest.mark.parametrize("name", [name for name in IMPUTERS if name != "grui-gan"])
def test_result_for_a_series_does_not_depend_on_the_others(name: str, waves: Array) -> None:
    """Padding and batching change nothing. (GRUI-GAN's search starts from noise that depends on the batch.)"""
    imputer = IMPUTERS[name]().fit(waves)
    parts = [waves[0], waves[1, :5], waves[2, :17]]
    mixed = imputer.impute(parts, samples=2000)
    for together, part in zip(mixed.mean, parts, strict=True):
        single = imputer.impute(part, samples=2000)
        drawn = single.std / np.sqrt(2000) if single.stds is not None else 0.0
        assert (np.abs(together - single.mean) <= 9 * drawn + 1e-5 * np.nanstd(waves, axis=(0, 1))).all()


def test_irregular_times(imputer: Imputer, waves: Array) -> None:
    times = np.cumsum(np.random.default_rng(0).uniform(0.5, 3, (12, 30)), axis=1)
    panel = Panel.from_array(waves, times=times)
    result = imputer.fit(panel).impute(panel, samples=3)
    assert np.isfinite(result.mean).all()
    assert imputer.schema_.time_unit == pytest.approx(np.median(np.diff(times, axis=1)))


@pytest.mark.parametrize("name", ["linear", "gp", "gp-vae", "brits", "grui-gan"])
def test_methods_that_model_time_use_the_times(name: str, waves: Array) -> None:
    times = np.cumsum(np.random.default_rng(0).uniform(0.5, 3, (12, 30)), axis=1)
    imputer = IMPUTERS[name]().fit(Panel.from_array(waves, times=times))
    other = np.cumsum(np.random.default_rng(1).uniform(0.5, 3, (12, 30)), axis=1)
    one, two = (imputer.impute(Panel.from_array(waves, times=each), samples=3).mean for each in (times, other))
    assert not np.allclose(one, two, rtol=1e-7)


def test_column_without_values_stays_missing_with_a_warning(imputer: Imputer, waves: Array) -> None:
    waves[..., 1] = np.nan
    with pytest.warns(UserWarning, match="column 'x1' has no observed value: it stays missing"):
        imputer.fit(waves)
    with pytest.warns(UserWarning, match="column 'x1' had no observed value when the model was fitted"):
        result = imputer.impute(waves, samples=30)
    assert np.isnan(result.mean[..., 1]).all()
    assert np.isfinite(result.mean[..., [0, 2]]).all()
    if has_intervals(imputer):
        assert np.isnan(result.interval(0.9)[0][..., 1]).all()


def test_constant_column_is_filled_with_its_value(imputer: Imputer, waves: Array) -> None:
    waves[..., 1] = np.where(np.isnan(waves[..., 1]), np.nan, 42.5)
    with pytest.warns(UserWarning, match="column 'x1' is constant"):
        result = imputer.fit(waves).impute(waves, samples=20)
    np.testing.assert_allclose(result.mean[..., 1], 42.5)
    if has_intervals(imputer):
        lower, upper = result.interval(0.8)
        np.testing.assert_allclose([lower[..., 1], upper[..., 1]], 42.5)


def test_column_that_new_data_lacks_is_filled(imputer: Imputer, waves: Array) -> None:
    imputer.fit(waves)
    waves[..., 1] = np.nan
    filled = imputer.impute(waves, samples=20).mean
    assert np.isfinite(filled).all()
    assert 450 < filled[..., 1].mean() < 550


@pytest.mark.parametrize("name", ANY_NUMBERS)
def test_scaling_is_undone(name: str, waves: Array) -> None:
    imputer = IMPUTERS[name]()
    result = imputer.fit(waves).impute(waves, samples=5)
    scaled = fresh(imputer).fit(waves * 1000 + 7).impute(waves * 1000 + 7, samples=5)
    np.testing.assert_allclose(scaled.mean, result.mean * 1000 + 7, rtol=1e-3)


@pytest.mark.parametrize("name", ANY_NUMBERS)
def test_series_of_length_one(name: str) -> None:
    imputer = IMPUTERS[name]()
    data = np.random.default_rng(0).normal(size=(60, 1, 2))
    data[::3, 0, 0] = np.nan
    assert np.isfinite(imputer.fit(data).impute(data, samples=2).mean).all()


def test_data_without_any_value_is_refused(imputer: Imputer) -> None:
    with pytest.raises(DataError, match=r"no observed value at all|leaves nothing"):
        imputer.fit(np.full((2, 5, 3), np.nan))


@pytest.mark.parametrize("name", ANY_NUMBERS)
def test_frames_come_back_as_the_same_type(name: str, waves: Array) -> None:
    imputer = IMPUTERS[name]()
    frame = pd.DataFrame(waves.reshape(-1, 3), columns=["a", "b", "c"]).assign(who=np.repeat(range(12), 30), note="x")
    imputer.fit(Panel.from_frame(frame, id="who"))
    for kind in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        result = imputer.impute(kind, samples=20)
        assert len(result.panel) == 12
        filled = result.to_frame(interval=0.8 if has_intervals(imputer) else None)
        assert isinstance(filled, type(kind))
        assert len(cast(Any, filled).columns) == (11 if has_intervals(imputer) else 5)
    if not has_intervals(imputer):
        with pytest.raises(DataError, match="without intervals"):
            imputer.impute(frame).to_frame(interval=0.8)
    with pytest.raises(DataError, match="fitted on the columns a, b, c; the data lacks b"):
        imputer.impute(frame[["a", "c", "who"]])
    backwards = imputer.impute(frame[["who", "c", "b", "a"]], samples=2)
    assert np.array_equal(backwards.mean, imputer.impute(frame, samples=2).mean[:, ::-1])


def test_save_and_load_round_trip(imputer: Imputer, waves: Array, tmp_path: Path) -> None:
    expected = imputer.fit(waves).impute(waves, samples=20)
    imputer.save(tmp_path / "model")
    for loaded in (load(tmp_path / "model", device="cpu"), type(imputer).load(tmp_path / "model", device="cpu")):
        again = loaded.impute(waves, samples=20)
        assert np.array_equal(again.mean, expected.mean)
        if has_intervals(imputer):
            assert np.array_equal(again.interval(0.8)[0], expected.interval(0.8)[0])
        assert loaded.history_ == imputer.history_
        assert repr(loaded) == repr(imputer)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["gpvae.json", "weights.safetensors"]
    with pytest.raises(DataError, match="exists already"):
        imputer.save(tmp_path / "model")
    other = Linear if not isinstance(imputer, Linear) else Mean
    with pytest.raises(DataError, match=f"not a {other.__name__}; gpvae.load takes either"):
        other.load(tmp_path / "model")
    path = tmp_path / "model" / "gpvae.json"
    path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(DataError, match="is damaged: its checksum is not the one that was saved"):
        load(tmp_path / "model")


def test_scikit_learn_conventions(imputer: Imputer, waves: Array) -> None:
    copy = fresh(imputer)
    assert repr(copy) == repr(imputer)
    assert not [name for name in vars(copy) if name.endswith("_")]
    with pytest.raises(Exception, match="not fitted"):
        copy.impute(waves)
    assert copy.fit(waves) is copy
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        copy.set_params(colour="red")
    with pytest.raises(ValueError, match="at least one sample"):
        copy.impute(waves, samples=0)
