"""Rows as they arrive: the batch filter, one row at a time, with a state that can be saved."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from factors import gappy_walk, known_imputer
from numpy.typing import NDArray
from safetensors.torch import save_file

from gpvae import DataError, GPFactor, Panel, load
from gpvae.imputers.stream import FilledRow, Stream, load_streams, save_streams

Array = NDArray[Any]
TIME = 300
TIMES = {
    "rows": np.arange(TIME),
    "even": np.arange(TIME) * 0.1,
    "irregular": np.cumsum(np.random.default_rng(1).uniform(0.2, 3, TIME)),
    "dates": np.datetime64("2020-02-28T12:00") + np.arange(TIME) * np.timedelta64(7, "m"),
}


@pytest.fixture
def panel() -> Panel:
    return Panel.from_array(gappy_walk(TIME, 4))


@pytest.fixture
def model(panel: Panel) -> GPFactor:
    return known_imputer(panel, (0, 2, 3), (1,))


def stepped(stream: Stream, panel: Panel, times: Any = None) -> FilledRow:
    """All rows of a panel, (row, column) each."""
    given = [None] * len(panel.values) if times is None else times
    rows = [stream.step(row, time) for row, time in zip(panel.values, given, strict=True)]
    return FilledRow(*(np.stack(parts) for parts in zip(*rows, strict=True)))


def same(one: FilledRow, two: FilledRow) -> bool:
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_rows_one_by_one_give_what_the_batch_gives(times: Array) -> None:
    panel = Panel.from_array(gappy_walk(TIME, 4), times=times)
    model = known_imputer(panel, (0, 2, 3), (1,))
    batch = model.impute(panel, samples=2, causal=True)
    filled = stepped(model.stream(), panel, times)
    unit = np.nanstd(panel.values, axis=0)
    np.testing.assert_allclose(filled.values / unit, batch.mean / unit, atol=1e-9)
    np.testing.assert_allclose(filled.std / unit, batch.std / unit, atol=1e-9)


@pytest.mark.parametrize("name", ["rows", "even", "dates"])
def test_by_default_rows_are_one_time_step_apart(name: str) -> None:
    panel = Panel.from_array(gappy_walk(TIME, 4), times=TIMES[name])
    model = known_imputer(panel, (0, 1, 2, 3))
    assert same(stepped(model.stream(), panel), stepped(model.stream(), panel, TIMES[name]))
    stream, other = model.stream(), model.stream()
    stream.step({}, TIMES[name][0])
    stream.step({})
    other.step({}, TIMES[name][0])
    other.step({}, TIMES[name][1])
    ends = [np.stack(each.step({"x0": 1.0}, TIMES[name][5])) for each in (stream, other)]
    np.testing.assert_allclose(*ends, rtol=1e-9)


def test_a_fitted_model_streams_what_it_fills(waves: Array) -> None:
    model = GPFactor().fit(waves)
    filled, batch = stepped(model.stream(), Panel.from_array(waves[3])), model.impute(waves[3], causal=True)
    np.testing.assert_allclose(filled.values, batch.mean, rtol=1e-9)
    np.testing.assert_allclose(filled.std, batch.std, rtol=1e-9)


def test_intervals_are_those_of_many_draws(model: GPFactor) -> None:
    panel = Panel.from_array(gappy_walk(60, 4))
    filled = stepped(model.stream(level=0.8), panel)
    lower, upper = model.impute(panel, samples=4000, causal=True).interval(0.8)
    error = 4 * np.where(panel.observed, 0, filled.std) / np.sqrt(4000) * 2
    assert (np.abs(filled.lower - lower) <= error + 1e-6 * np.abs(lower)).mean() > 0.99
    assert (np.abs(filled.upper - upper) <= error + 1e-6 * np.abs(upper)).mean() > 0.99
    wider = stepped(model.stream(level=0.95), panel)
    gaps = ~panel.observed
    assert (wider.lower[gaps] < filled.lower[gaps]).all()
    assert (wider.upper[gaps] > filled.upper[gaps]).all()


def test_observed_values_come_back_bit_for_bit(panel: Panel, model: GPFactor) -> None:
    filled = stepped(model.stream(), panel)
    for part in (filled.values, filled.lower, filled.upper):
        assert np.array_equal(part[panel.observed], panel.values[panel.observed])
        assert np.isfinite(part).all()
    assert not filled.std[panel.observed].any()
    assert (filled.std[~panel.observed] > 0).all()


def test_rows_by_name_or_in_order(model: GPFactor) -> None:
    stream = model.stream()
    filled = stream.copy().step([1.0, np.nan, None, 2])
    assert same(filled, stream.copy().step({"x3": 2, "x0": np.float32(1)}))
    assert same(filled, stream.copy().step({"x0": "1", "x1": None, "x2": np.nan, "x3": 2}))
    assert filled.values[[0, 3]].tolist() == [1, 2]


@pytest.mark.parametrize("kind", [None, "copy", "save", "saved model"])
def test_a_stream_goes_on_where_it_stopped_bit_for_bit(
    panel: Panel, model: GPFactor, tmp_path: Path, kind: str
) -> None:
    times, stream, whole = TIMES["irregular"], model.stream(), model.stream()
    early, late = Panel.from_array(panel.values[:170]), Panel.from_array(panel.values[170:])
    stepped(whole, early, times[:170])
    stepped(stream, early, times[:170])
    if kind == "copy":
        stream = stream.copy()
    elif kind is not None:
        stream.save(tmp_path / "state")
        if kind == "saved model":
            model.save(tmp_path / "model")
            model = GPFactor.load(tmp_path / "model")
        stream = model.stream(resume=tmp_path / "state")
    assert (stream.rows, stream.time) == (170, times[169])
    assert same(stepped(stream, late, times[170:]), stepped(whole, late, times[170:]))


@pytest.mark.parametrize("time", [None, 3, 2.5, 10**18 + 1, "2024-03-01T06:00:00.000001", "2024-03-01T06:00+09:00"])
def test_times_are_saved_exactly(model: GPFactor, panel: Panel, tmp_path: Path, time: Any) -> None:
    if isinstance(time, str):
        model = known_imputer(Panel.from_array(panel.values, times=TIMES["dates"]), (0, 1, 2, 3))
    stream = model.stream()
    stream.step({"x0": 1}, time)
    stream.save(tmp_path / "state")
    assert model.stream(resume=tmp_path / "state").time == stream.time


def test_state_does_not_grow(panel: Panel, model: GPFactor, tmp_path: Path) -> None:
    stream, sizes = model.stream(), []
    for rows in (slice(0, 10), slice(10, 100), slice(100, 299)):  # row numbers of as many digits
        stepped(stream, Panel.from_array(panel.values[rows]))
        stream.save(tmp_path / "state", overwrite=True)
        sizes.append((tmp_path / "state").stat().st_size)
    assert max(sizes) - min(sizes) <= 8  # of padding
    assert {name for name, value in vars(stream).items() if isinstance(value, list)} == {"blocks", "states"}


def test_copies_forecast_without_touching_the_stream(panel: Panel, model: GPFactor) -> None:
    stream, undisturbed = model.stream(), model.stream()
    stepped(stream, panel)
    stepped(undisturbed, panel)
    ahead = stream.copy()
    forecast = FilledRow(*(np.stack(x) for x in zip(*(ahead.step({}) for _ in range(400)), strict=True)))
    longer = np.concatenate([panel.values, np.full((400, 4), np.nan)])
    batch = model.impute(longer, samples=2)  # after the last observation smoothing is filtering
    np.testing.assert_allclose(forecast.values, batch.mean[TIME:], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(forecast.std, batch.std[TIME:], rtol=1e-9)
    assert ((forecast.upper - forecast.lower)[-1] > (forecast.upper - forecast.lower)[0]).all()
    assert same(stream.step({"x0": 1.0}), undisturbed.step({"x0": 1.0}))


@pytest.mark.filterwarnings("ignore:column 'x[12]'")
def test_constant_and_unknown_columns() -> None:
    data = gappy_walk(60, 4)
    data[:, 1], data[:, 2] = 4.5, np.nan
    data[5, 1] = np.nan
    model = GPFactor().fit(data)
    filled, batch = stepped(model.stream(), Panel.from_array(data)), model.impute(data, causal=True)
    for mine, other in ((filled.values, batch.mean), (filled.std, batch.std)):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)
    assert [part[5, 1] for part in filled] == [4.5, 0, 4.5, 4.5]
    assert np.isnan([part[:, 2] for part in filled]).all()
    assert model.stream().step({"x1": 7}).values[1] == 7  # whatever it was so far


@pytest.mark.parametrize(
    ("row", "time", "message"),
    [
        ([1, 2, 3], 5, "the model was fitted on 4 columns, the row has 3 values"),
        ({"x0": 1, "y": 2}, 5, "the row has a column 'y'; the model was fitted on the columns x0, x1, x2, x3"),
        ({"x2": "wet"}, 5, "column 'x2' must be numeric, got 'wet'"),
        ({"x2": pd.NA}, 5, "column 'x2' must be numeric, got <NA>"),
        ({"x1": np.inf}, 5, "infinite value in column 'x1'"),
        ([1e308] * 4, 5, r"the value of column 'x\d' is too large for the model: 1e\+308"),
        ({"x0": 1}, 3, "times must increase, but 3 follows 4"),
        ({"x0": 1}, 4, "times must increase, but 4 follows 4"),
        ({"x0": 1}, "2024-03-01", "a time must be a number, got '2024-03-01'"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(model: GPFactor, row: Any, time: Any, message: str) -> None:
    stream, undisturbed = model.stream(), model.stream()
    for each in (stream, undisturbed):
        each.step({"x0": 1.0}, 4)
    with pytest.raises(DataError, match=message):
        stream.step(row, time)
    assert same(stream.step({"x1": 1.0}, 5.5), undisturbed.step({"x1": 1.0}, 5.5))


def test_times_cannot_begin_later(model: GPFactor) -> None:
    stream = model.stream()
    stream.step({})
    with pytest.raises(DataError, match="the rows before came without times"):
        stream.step({}, 3)


def test_times_with_a_zone_do_not_mix_with_others(panel: Panel) -> None:
    model = known_imputer(Panel.from_array(panel.values, times=TIMES["dates"]), (0, 1, 2, 3))
    stream = model.stream()
    stream.step({}, "2024-03-01T06:00")
    stream.step({}, dt.datetime(2024, 3, 1, 7))
    with pytest.raises(DataError, match="both or neither"):
        stream.step({}, "2024-03-01T08:00Z")


def test_bad_states_are_refused(model: GPFactor, panel: Panel, tmp_path: Path) -> None:
    path, stream = tmp_path / "state", model.stream()
    stream.step({"x0": 1})
    stream.save(path)
    with pytest.raises(DataError, match="exists already"):
        stream.save(path)
    other = known_imputer(panel, (0, 1), (2, 3))
    with pytest.raises(DataError, match="was saved by a stream of another model"):
        other.stream(resume=path)
    with pytest.raises(DataError, match=r"there is no file .*nowhere"):
        model.stream(resume=tmp_path / "nowhere")
    for content in (b"", b"1,2,3", path.read_bytes()[:-8]):
        path.write_bytes(content)
        with pytest.raises(DataError, match="is not the state of a stream"):
            model.stream(resume=path)
    for metadata, message in (
        (None, "is not the state of a stream"),
        ({"gpvae": json.dumps({"format": 99})}, "has the format 99, this version reads 1"),
        (
            {"gpvae": json.dumps({"format": 1, "model": stream.fingerprint, "series": [{"id": None}]})},
            "is not the state of a stream",
        ),
    ):
        save_file({}, path, metadata)
        with pytest.raises(DataError, match=message):
            model.stream(resume=path)


def test_streams_of_several_series_share_a_file(model: GPFactor, panel: Panel, tmp_path: Path) -> None:
    streams: dict[str | None, Stream] = {"north": model.stream(), "south": model.stream(), "new": model.stream()}
    stepped(streams["north"], panel)
    streams["south"].step({"x0": 3}, 5)
    save_streams(streams, tmp_path / "state")
    loaded = load_streams(model.stream(), tmp_path / "state")
    assert [*loaded] == ["north", "south", "new"]
    for name, stream in loaded.items():
        assert same(stream.step({"x1": 2.0}), streams[name].step({"x1": 2.0}))
    with pytest.raises(DataError, match="holds several series"):
        model.stream(resume=tmp_path / "state")


def test_level_and_fit_are_checked(model: GPFactor) -> None:
    with pytest.raises(DataError, match="the level of an interval must be between 0 and 1"):
        model.stream(level=90)
    with pytest.raises(Exception, match="not fitted"):
        GPFactor().stream()


def test_the_stream_of_a_loaded_model_is_that_of_the_model(model: GPFactor, panel: Panel, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, GPFactor)
    assert loaded.stream().fingerprint == model.stream().fingerprint
    assert same(stepped(loaded.stream(), panel), stepped(model.stream(), panel))
