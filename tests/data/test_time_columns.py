"""Which columns are times: of text, in two columns, unix times; and what counts rows."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from gpvae.data.panel import DataError, Panel

HOURS = [0.0, 3600.0, 10800.0]
DAYS = [0.0, 86400.0, 2 * 86400.0]


@pytest.fixture(params=["pandas", "polars", "pyarrow"])
def make(request: pytest.FixtureRequest) -> Any:
    makers: dict[str, Any] = {
        "pandas": pd.DataFrame,
        "polars": pl.DataFrame,
        "pyarrow": lambda columns: pl.DataFrame(columns).to_arrow(),
    }
    return makers[request.param]


@pytest.mark.parametrize(
    ("columns", "time", "times"),
    [
        ({"day": ["2024-01-01", "2024-01-02", "2024-01-03"]}, None, DAYS),
        ({"day": ["31/01/2024", "01/02/2024", "02/02/2024"]}, None, DAYS),
        ({"day": ["2024-01-01"] * 3, "clock": ["00:00", "01:00", "03:00"]}, "day,clock", HOURS),
        ({"day": ["2024-01-01"] * 3, "clock": ["00.00.00", "01.00.00", "03.00.00"]}, "day, clock", HOURS),
        ({"day": ["2024-01-01"] * 3, "hour": [1, 2, 4]}, "day,hour", HOURS),
        ({"day": ["2024-01-01"] * 3, "clock": [30, 130, 330]}, "day,clock", HOURS),
        ({"y": [2024] * 3, "m": [2] * 3, "d": [28, 29, 29], "h": [23, 0, 2]}, "y,m,d,h", HOURS),
        ({"y": [2024] * 3, "m": [2, 2, 3], "d": [28, 29, 1]}, "y,m,d", DAYS),
        ({"ns": ["1600000000000000001", "1600000000000000002", "1600000000000000004"]}, "ns", [0.0, 1.0, 3.0]),
        ({"ns": [f"2024-01-01T00:00:00.00000000{i}Z" for i in (1, 2, 4)]}, "ns", [0.0, 1e-9, 3e-9]),
    ],
)
def test_times(make: Any, columns: dict[str, Any], time: str | None, times: list[float]) -> None:
    panel = Panel.from_frame(make({**columns, "x": [1.0, None, 3.0]}), time=time)
    np.testing.assert_allclose(panel.times - panel.times[0], times, rtol=1e-6)
    assert panel.columns == ("x",)
    assert panel.source.time == (time or "day")
    assert len(panel.times_at(np.arange(3))) == 3


@pytest.mark.parametrize(("size", "unit"), [(1, "seconds"), (10**3, "milliseconds"), (10**6, "micro"), (10**9, "nano")])
def test_unix_times_are_used_and_said(make: Any, size: int, unit: str) -> None:
    moments = [(1_600_000_000 + second) * size for second in (0, 60, 180)]
    with pytest.warns(UserWarning, match=f"'unix_time' holds unix times in {unit}"):
        panel = Panel.from_frame(make({"unix_time": moments, "x": [1.0, None, 3.0]}))
    np.testing.assert_array_equal(panel.times - panel.times[0], np.array([0.0, 60, 180]) * size)


@pytest.mark.parametrize(
    "column",
    [
        {"lifetimes": [1_600_000_000, 1_600_000_001, 1_600_000_002]},  # named otherwise
        {"time": [1, 2, 3]},
        {"time": [1_600_000_000] * 3},
        {"time": [1_600_000_000, None, 1_600_000_002]},
        {"time": [1_600_000_000, 2, 3]},
    ],
)
def test_other_whole_numbers_are_values(make: Any, column: dict[str, Any]) -> None:
    assert Panel.from_frame(make({**column, "x": [1.0, 2.0, 3.0]})).columns == (*column, "x")


def test_named_columns_are_values_whatever_they_hold(make: Any) -> None:
    frame = make({"time": [1_600_000_000, 1_600_000_001], "x": [1.0, 2.0]})
    assert Panel.from_frame(frame, columns=["time", "x"]).source.time is None


def test_several_columns_of_dates_as_text_are_named(make: Any) -> None:
    frame = make({"a": ["2024-01-01", "2024-01-02"], "b": ["2024-01-01", "2024-01-02"], "x": [1.0, 2.0]})
    with pytest.warns(UserWarning, match="columns 'a', 'b' hold dates as text; none is used as the time: name one"):
        assert Panel.from_frame(frame).source.time is None


def test_text_that_is_no_date_or_ambiguous_is_not_a_time(make: Any) -> None:
    for days in (["03/04/2024", "04/05/2024"], ["2024-01-01", "soon"], ["2024-01-01", None], ["a", "b"]):
        assert Panel.from_frame(make({"day": days, "x": [1.0, 2.0]})).source.time is None


@pytest.mark.parametrize(
    ("columns", "time", "message"),
    [
        ({"a": ["2024-01-01", None], "b": ["00:00", "01:00"]}, "a,b", "the time in column 'a' is missing in row 2"),
        ({"a": ["2024-01-01"] * 2, "b": [0.5, 1.5]}, "a,b", "column 'b' must hold times of the day such as 06:00"),
        ({"a": [2024, 2025], "b": [1, 2]}, "a,b", "a time needs at least year, month and day"),
        ({"a": ["2024-01-01"] * 2, "b": ["25:00", "26:00"]}, "a,b", "the time '2024-01-01 25:00' in columns a, b, row"),
        ({"a": [1, 2], "b": [1, 2]}, "a,c", "there is no column 'c'"),
        ({"a": ["2024-01-01"] * 2, "b": [1, 2]}, None, "same time.* id=NAME.*; if another column holds the time of d"),
    ],
)
def test_messages(make: Any, columns: dict[str, Any], time: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Panel.from_frame(make({**columns, "x": [1.0, 2.0]}), time=time)


@pytest.mark.parametrize(("name", "counts"), [("Unnamed: 0", True), ("column 1", True), ("", True), ("n", False)])
def test_an_index_that_was_written_is_no_value(name: str, counts: bool) -> None:
    frame = pd.DataFrame({name: [0, 1, 0, 1, 2], "x": [1.0, 2, 3, 4, 5]})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        columns = Panel.from_frame(frame).columns
    assert columns == (("x",) if counts else (name, "x"))
    assert any("counts the rows" in str(each.message) for each in said) == counts


def test_names_that_are_equal_as_numbers_are_several_series() -> None:
    ids = pd.Series([1, 1, True, True, 1.0, 1.0, "1", "1", np.int64(1)], dtype=object)
    panel = Panel.from_frame(pd.DataFrame({"id": ids, "t": [1, 2] * 4 + [3], "x": range(9)}), id="id", time="t")
    assert [(type(name), length) for name, length in zip(panel.ids, panel.lengths, strict=True)] == [
        (int, 3),
        (bool, 2),
        (float, 2),
        (str, 2),
    ]
