"""Aggregates of completed tables against loops over draws; completed tables; shifted draws."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from gpvae import Conformal, DataError, GPFactor, Imputation, Linear, Panel
from gpvae.imputers import aggregate
from gpvae.imputers.aggregate import Aggregate

Floats = NDArray[np.float64]
KINDS = {"pandas": pd.DataFrame, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}


@pytest.fixture(scope="module")
def stations() -> pd.DataFrame:
    """Two stations in Berlin, six-hourly over the night in which clocks are put forward, with gaps; rows shuffled."""
    rng = np.random.default_rng(0)
    when = pd.date_range("2024-03-29", periods=24, freq="6h", tz="Europe/Berlin")
    parts = [
        pd.DataFrame({"station": name, "when": when, "temp": 10 + rng.normal(size=24).cumsum(), "wind": rng.random(24)})
        for name in ("north", "south")
    ]
    table = pd.concat(parts, ignore_index=True)
    table.loc[[3, 4, 5, 23, 24, 25, 40], "temp"] = np.nan
    table.loc[[0, 5, 47], "wind"] = np.nan
    return table.sample(frac=1, random_state=3)


@pytest.fixture(scope="module")
def filled(stations: pd.DataFrame) -> Imputation:
    panel = Panel.from_frame(stations, id="station", time="when")
    return GPFactor().fit(panel).impute(panel, samples=39)


def expected(draws: Floats, level: float = 0.9) -> tuple[float, float, float, float]:
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], method="weibull")
    return float(draws.mean()), float(draws.std()), float(low), float(high)


def numbers(row: Any) -> tuple[float, ...]:
    return row["estimate"], row["std"], row["lower"], row["upper"]


@pytest.mark.parametrize("name", ["mean", "sum", "min", "max"])
@pytest.mark.parametrize("chunk", [2, 2**20])
def test_gaps(name: str, chunk: int, filled: Imputation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregate, "CELLS_AT_ONCE", chunk)
    found = filled.aggregate(name, by="gap", level=0.8)
    assert [*found.columns] == [
        *("series", "column", "start", "end", "cells", "filled", "estimate", "std", "lower", "upper")
    ]
    tables = [table.sort_values(["station", "when"], ignore_index=True) for table in filled.tables()]
    gaps = {  # by first row
        **{("north", "temp"): [(3, 6), (23, 24)], ("north", "wind"): [(0, 1), (5, 6)]},
        **{("south", "temp"): [(24, 26), (40, 41)], ("south", "wind"): [(47, 48)]},
    }
    rows = [(*key, *gap) for key, several in gaps.items() for gap in several]
    assert len(found) == len(rows)
    for (series, column, first, end), (_, row) in zip(rows, found.iterrows(), strict=True):
        assert (row["series"], row["column"], row["cells"], row["filled"]) == (series, column, *[end - first] * 2)
        assert (row["start"], row["end"]) == (tables[0]["when"][first], tables[0]["when"][end - 1])
        draws = np.array([getattr(table[column][first:end], name)() for table in tables])
        assert numbers(row) == pytest.approx(expected(draws, 0.8))


def test_days_are_those_of_the_place(filled: Imputation) -> None:
    found = filled.aggregate("max", by="day")
    tables = [table.assign(day=table["when"].dt.tz_localize(None).dt.floor("D")) for table in filled.tables()]
    by_draw = [table.groupby(["station", "day"])["temp"].max() for table in tables]
    temp = found[found["column"] == "temp"].set_index(["series", "start"])
    assert [*temp.index] == [*by_draw[0].index]
    draws = np.array([draw.to_numpy() for draw in by_draw])  # (draw, day)
    for i, (_, row) in enumerate(temp.iterrows()):
        assert numbers(row) == pytest.approx(expected(draws[:, i]))
    assert (temp["end"] - temp.index.get_level_values("start") == pd.Timedelta("1D")).all()
    complete = temp[temp["filled"] == 0]
    assert (complete["std"] == 0).all()
    assert (complete["lower"] == complete["upper"]).all()
    assert (complete["lower"] == complete["estimate"]).all()
    assert temp["cells"].sum() == 48


@pytest.mark.parametrize(
    ("by", "frequency"), [("12h", "12h"), ("week", "W-MON"), ("month", "MS"), ("90min", "90min"), ("year", "YS")]
)
def test_periods_are_those_of_pandas(by: str, frequency: str, filled: Imputation, stations: pd.DataFrame) -> None:
    found = filled.aggregate("mean", by=by)
    local = stations.assign(when=stations["when"].dt.tz_localize(None))
    starts, sizes = [], []
    for _, station in local.set_index("when").groupby("station"):
        resampled: Any = station["wind"].resample(frequency, label="left", closed="left")
        present = {start: len(rows) for start, rows in resampled if len(rows)}
        starts += present.keys()
        sizes += present.values()
    wind = found[found["column"] == "wind"]
    assert wind["start"].tolist() == starts
    assert wind["cells"].tolist() == sizes


def test_series_and_columns(filled: Imputation) -> None:
    tables = [*filled.tables()]
    by_series, by_column = filled.aggregate("sum", by="series"), filled.aggregate("sum")
    assert by_series["series"].tolist() == ["north", "north", "south", "south"]
    for _, row in by_series.iterrows():
        draws = [table.loc[table["station"] == row["series"], row["column"]].sum() for table in tables]
        assert numbers(row) == pytest.approx(expected(np.array(draws)))
    assert by_column["column"].tolist() == ["temp", "wind"]
    assert by_column["cells"].tolist() == [48, 48]
    assert by_column["filled"].tolist() == [7, 3]
    assert numbers(by_column.iloc[0]) == pytest.approx(expected(np.array([table["temp"].sum() for table in tables])))


def test_any_function_of_the_completed_table(filled: Imputation) -> None:
    found = filled.aggregate(lambda table: table["temp"].corr(table["wind"]), level=0.8)
    draws = np.array([table["temp"].corr(table["wind"]) for table in filled.tables()])
    assert isinstance(found, Aggregate)
    np.testing.assert_allclose(found.draws, draws)
    assert (found.estimate, found.std, found.lower, found.upper) == pytest.approx(expected(draws, 0.8))
    several = filled.aggregate(lambda table: table[["temp", "wind"]].max())
    assert several.lower.shape == (2,)
    assert several.draws.shape == (39, 2)


def test_any_function_of_the_values_of_a_group(filled: Imputation) -> None:
    by_function, by_name = (filled.aggregate(each, by="day") for each in (np.max, "max"))
    pd.testing.assert_frame_equal(by_function, by_name)


@pytest.mark.parametrize("kind", KINDS)
def test_results_are_frames_of_the_same_library(kind: str, stations: pd.DataFrame) -> None:
    make: Callable[[pd.DataFrame], Any] = KINDS[kind]
    frame = make(stations.reset_index(drop=True))
    panel = Panel.from_frame(frame, id="station", time="when")
    filled = GPFactor().fit(panel).impute(panel, samples=19)
    for by in ("gap", "6h", "series", "column"):
        found = filled.aggregate(by=by)
        assert type(found) is type(frame)
    gaps = filled.aggregate(by="gap")
    assert gaps["start"].to_pylist()[0].tzinfo if kind == "pyarrow" else gaps["start"].dtype == frame["when"].dtype
    table = filled.completed(3)
    assert type(table) is type(frame)
    assert np.array_equal(np.asarray(table["temp"]), filled.samples[3][:, 0])


def test_arrays_give_dicts_of_columns_and_times_that_are_numbers() -> None:
    x = np.random.default_rng(0).normal(size=(2, 30, 1))
    x[0, 4:7] = x[1, 29] = np.nan
    filled = GPFactor().fit(x).impute(x, samples=19)
    gaps = filled.aggregate("mean", by="gap")
    assert {name: gaps[name].tolist() for name in ("series", "column", "start", "end", "cells")} == {
        **{"series": [0, 1], "column": ["x0", "x0"]},
        **{"start": [4, 29], "end": [6, 29], "cells": [3, 1]},
    }
    np.testing.assert_allclose(gaps["estimate"][0], filled.samples[:, 0, 4:7].mean())
    tens = filled.aggregate("mean", by=10)
    assert tens["start"].tolist() == [0, 10, 20] * 2
    assert tens["filled"].tolist() == [3, 0, 0, 0, 0, 1]
    np.testing.assert_allclose(tens["lower"][1], x[0, 10:20].mean())
    with pytest.raises(DataError, match="by='day' needs dates, but the times of this data are numbers: give a number"):
        filled.aggregate("mean", by="day")
    dated = Panel.from_array(x, times=np.arange("2024-01-01T18", "2024-01-03T00", dtype="M8[h]"))
    days = GPFactor().fit(dated).impute(dated, samples=19).aggregate(by="day")
    assert days["start"].astype(str).tolist() == ["2024-01-01T00:00:00.000000", "2024-01-02T00:00:00.000000"] * 2
    assert days["cells"].tolist() == [6, 24] * 2


def test_a_table_without_gaps_and_a_column_that_stays_missing() -> None:
    table = pd.DataFrame({"a": np.arange(30.0) % 7, "b": np.arange(30.0) % 5})
    model = GPFactor().fit(table)
    whole = model.impute(table, samples=19)
    assert whole.aggregate(by="gap").empty
    assert whole.aggregate("sum")["upper"].tolist() == [table["a"].sum(), table["b"].sum()]
    more = table.assign(c=np.nan)
    with pytest.warns(UserWarning, match="'c' was not among the columns"):
        found = model.impute(more, samples=19).aggregate()
    assert found["estimate"].isna().tolist() == [False, False, True]
    assert found["lower"].isna().tolist() == [False, False, True]


def test_text_is_left_out() -> None:
    table = pd.DataFrame({"a": np.sin(np.arange(30.0)), "ward": ["x", "y", None] * 10})
    panel = Panel.from_frame(table, columns=["a"], categories=["ward"])
    with pytest.warns(UserWarning, match="'ward'"):
        model = GPFactor().fit(panel)
    assert model.impute(panel, samples=19).aggregate()["column"].tolist() == ["a"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("median",), "the function must be one of mean, sum, min, max, or a function, got 'median'"),
        (("mean", "fortnight"), r"by must be 'gap', .* or a duration such as '15min', .*, got 'fortnight'"),
        (("mean", "0d"), "got '0d'"),
        (("mean", "gap", 0.99), "needs at least 199 samples, got 39"),
        (("mean", "gap", 90), r"between 0 and 1 \(0.9 is 90 %\), got 90"),
        (("mean", 24), "by=24 is a number, but the times of this data are dates"),
        ((lambda table: "high",), "must return a number or an array of numbers, got <class 'str'>"),
        ((lambda values: values, "gap"), "must return one number for each group, got an array of shape"),
        ((lambda table: table["temp"][table["temp"] > 10],), "the same shape for every completed table"),
    ],
)
def test_what_cannot_be_aggregated_is_refused(arguments: Any, message: str, filled: Imputation) -> None:
    with pytest.raises(DataError, match=message):
        filled.aggregate(*arguments)


def test_single_values_have_no_aggregates_with_intervals() -> None:
    x = np.where(np.arange(60) % 7 == 0, np.nan, np.sin(np.arange(60.0)))[:, None]
    for imputation in (Linear().fit(x).impute(x), Conformal(Linear()).fit(x).impute(x)):
        with pytest.raises(DataError, match="gives single values, without samples"):
            imputation.aggregate()
        with pytest.raises(DataError, match="gives single values, without samples"):
            imputation.tables()


def test_shifted_values_and_draws(filled: Imputation, stations: pd.DataFrame) -> None:
    moved = filled.shift({"temp": -5})
    missing = stations["temp"].isna()
    before, after = filled.to_frame(interval=0.9), moved.to_frame(interval=0.9)
    for name in ("temp", "temp_lower", "temp_upper"):
        np.testing.assert_allclose(after[name][missing], before[name][missing] - 5, rtol=1e-5)
    pd.testing.assert_series_equal(after["temp"][~missing], before["temp"][~missing])
    pd.testing.assert_frame_equal(after[["wind", "wind_lower"]], before[["wind", "wind_lower"]])
    moves = np.where(np.isnan(stations[["temp", "wind"]]), [-5, 0], 0)
    np.testing.assert_allclose(moved.samples, filled.samples + moves, atol=1e-5)
    np.testing.assert_array_equal(moved.std, filled.std)
    assert moved.imputer is None
    assert filled.shift({}).draws is not None


def test_conformal_intervals_move_with_the_values() -> None:
    x = np.where(np.arange(120) % 7 == 0, np.nan, np.sin(np.arange(120.0)))[:, None]
    before = Conformal(Linear()).fit(x).impute(x)
    after = before.shift({"x0": 2.5})
    gaps = np.isnan(x)
    for old, new in zip((before.mean, *before.interval(0.8)), (after.mean, *after.interval(0.8)), strict=True):
        np.testing.assert_allclose(new - old, np.where(gaps, 2.5, 0), atol=1e-12)


def test_what_cannot_be_shifted_is_refused(filled: Imputation) -> None:
    with pytest.raises(DataError, match="there is no column 'bp' to shift; the columns are temp, wind"):
        filled.shift({"bp": 1})
    with pytest.raises(DataError, match="column 'temp' must be shifted by a finite number, got nan"):
        filled.shift({"temp": np.nan})
    x = np.array([[1.0], [np.nan], [1.0], [1.0]])
    with pytest.warns(UserWarning, match="is constant"):
        constant = GPFactor().fit(x).impute(x, samples=3)
    with pytest.raises(DataError, match="column 'x0' cannot be shifted: it must hold real numbers that vary"):
        constant.shift({"x0": 1})
