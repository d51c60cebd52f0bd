"""Panels of data frames: gaps are filled in the original type, order and dtypes."""

import datetime as dt
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gpvae.data.panel import DataError, Panel

BIG = 2**53 + 1  # the first integer that float64 cannot represent
BERLIN = ZoneInfo("Europe/Berlin")
NULLABLE = {
    pa.int64(): pd.Int64Dtype(), pa.uint8(): pd.UInt8Dtype(), pa.float64(): pd.Float64Dtype(),
    pa.float32(): pd.Float32Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype(),
}  # fmt: skip
FRAMES = {
    "pandas": lambda table: table.to_pandas(),
    "pandas nullable": lambda table: table.to_pandas(types_mapper=NULLABLE.get),
    "pandas pyarrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "pyarrow": lambda table: table,
    "pyarrow in chunks": lambda table: pa.concat_tables([table[:2], table[2:3], table[3:]]),
}
WITH_NULLS = [name for name in FRAMES if name != "pandas"]  # a NumPy integer column cannot have gaps


@pytest.fixture(params=FRAMES)
def make(request: pytest.FixtureRequest) -> Any:
    return FRAMES[request.param]


@pytest.fixture(params=WITH_NULLS)
def make_with_nulls(request: pytest.FixtureRequest) -> Any:
    return FRAMES[request.param]


def as_arrow(frame: Any) -> pa.Table:
    if isinstance(frame, pd.DataFrame):
        return pa.Table.from_pandas(frame, preserve_index=False)
    return frame.to_arrow() if isinstance(frame, pl.DataFrame) else frame


def types(frame: Any) -> dict[Any, Any]:
    if isinstance(frame, pd.DataFrame):
        return frame.dtypes.to_dict()
    return dict(frame.schema) if isinstance(frame, pl.DataFrame) else {each.name: each.type for each in frame.schema}


def cells(frame: Any, name: str) -> list[Any]:
    """Cells as Python objects; None for null and NaN."""
    return [None if cell is None or cell != cell else cell for cell in as_arrow(frame)[name].to_pylist()]


def days(*numbers: int) -> list[dt.datetime]:
    return [dt.datetime(2020, 3, day, 1, 30, tzinfo=BERLIN) for day in numbers]


def long_table() -> pa.Table:
    """Two series of three, in no order; every second type that there is."""
    return pa.table(
        {
            "note": pa.array(["p", None, "NA", "", "q", "r"]),
            "x": pa.array([1.1, None, float("nan"), 0.1 + 0.2, -5.0, 6.0]),
            "who": pa.array(["b", "a", "b", "a", "a", "b"]),
            "narrow": pa.array([0.1, 0.2, 0.3, None, 0.5, 0.6], pa.float32()),
            "whole": pa.array([1, 2, 3, BIG, 5, 6], pa.int64()),
            "when": pa.array(days(30, 28, 27, 30, 29, 28), pa.timestamp("us", tz="Europe/Berlin")),
            "flag": pa.array([True, None, False, True, True, False]),
            "colour": pa.array(["red", "blue", None, "red", "red", "blue"]).dictionary_encode(),
            "price": pa.array([Decimal("1.10"), None, Decimal("2.20"), None, None, Decimal("3.00")]),
            "born": pa.array(days(1, 2, 3, 4, 5, 6), pa.timestamp("ms", tz="Asia/Tokyo")),
        }
    )


def numbered(panel: Panel) -> np.ndarray[Any, Any]:
    """A different value for each cell, none of which is in the data."""
    return 100.25 + np.arange(panel.values.size).reshape(panel.values.shape)


class TestEveryFrame:
    def test_rows_are_sorted_by_series_and_time(self, make: Any) -> None:
        panel = Panel.from_frame(make(long_table()), id="who", time="when")
        assert panel.columns == ("x", "narrow", "whole")
        assert panel.ids == ("b", "a")
        assert panel.clock == "datetime"
        np.testing.assert_array_equal(panel.lengths, [3, 3])
        day = 86400.0  # but the clocks go forward in the night to the 29th
        np.testing.assert_array_equal(panel.times, [0, day, 3 * day - 3600, day, 2 * day, 3 * day - 3600])
        np.testing.assert_array_equal(panel.values[:, 0], [np.nan, 6, 1.1, np.nan, -5, 0.1 + 0.2])

    def test_gaps_are_filled_in_the_original_frame(self, make: Any) -> None:
        frame = make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when")
        values = numbered(panel)
        filled = panel.fill(values)
        assert type(filled) is type(frame)
        assert types(filled) == types(frame)
        expected = panel.restore(np.where(panel.observed, panel.values, values))
        for j, name in enumerate(panel.columns):
            before, after = cells(frame, name), cells(filled, name)
            gaps = [row for row, cell in enumerate(before) if cell is None]
            assert gaps == {"x": [1, 2], "narrow": [3], "whole": []}[name]
            assert [after[row] for row in gaps] == [expected[row, j] for row in gaps]
            assert all(new == old for new, old in zip(after, before, strict=True) if old is not None)
        untouched = [name for name in types(frame) if name not in panel.columns]
        assert len(untouched) == 7
        assert as_arrow(filled).select(untouched).equals(as_arrow(frame).select(untouched))

    def test_the_original_frame_is_not_modified(self, make: Any) -> None:
        frame, twin = make(long_table()), make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when")
        panel.fill(numbered(panel), {"x_lower": panel.times})
        assert types(frame) == types(twin)
        assert all(cells(frame, name) == cells(twin, name) for name in types(twin))

    def test_nan_values_leave_gaps_missing(self, make: Any) -> None:
        frame = make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when")
        filled = panel.fill(np.full(panel.values.shape, np.nan))
        assert all(cells(filled, name) == cells(frame, name) for name in types(frame))
        assert [each.null_count for each in as_arrow(filled)] == [each.null_count for each in as_arrow(frame)]

    def test_extra_columns_are_appended(self, make: Any) -> None:
        frame = make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when")
        lower = np.where(panel.observed[:, 0], np.nan, panel.times)
        filled = panel.fill(numbered(panel), {"x_lower": lower, "x_upper": lower + 1})
        assert list(types(filled)) == [*types(frame), "x_lower", "x_upper"]
        expected = [None if np.isnan(cell) else cell for cell in panel.restore(lower[:, None])[:, 0]]
        assert cells(filled, "x_lower") == expected
        if not isinstance(frame, pd.DataFrame):
            assert as_arrow(filled)["x_lower"].null_count == 4

    def test_an_extra_column_with_an_existing_name_is_refused(self, make: Any) -> None:
        panel = Panel.from_frame(make(long_table()), id="who", time="when", columns=["x"])
        with pytest.raises(DataError, match="already has a column named 'note'"):
            panel.fill(numbered(panel), {"note": panel.times})

    def test_integers_with_gaps_stay_integers(self, make_with_nulls: Any) -> None:
        columns = {"n": [BIG, None, None, None, -BIG], "u": pa.array([7, None, None, None, 255], pa.uint8())}
        frame = make_with_nulls(pa.table(columns))
        panel = Panel.from_frame(frame)
        np.testing.assert_array_equal(panel.values[[0, 4]], [[float(BIG), 7], [-float(BIG), 255]])
        filled = panel.fill(np.array([[0, 0], [2.6, 300], [-1e30, -2.4], [np.nan, np.nan], [0, 0]]))
        assert types(filled) == types(frame)
        assert cells(filled, "n") == [BIG, 3, -(2**63), None, -BIG]
        assert cells(filled, "u") == [7, 255, 0, None, 255]

    def test_only_the_chosen_columns_change(self, make: Any) -> None:
        frame = make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when", columns=["narrow", "x"])
        assert panel.columns == ("narrow", "x")
        assert cells(panel.select(["narrow"]).fill(panel.values[:, :1] * 0), "x") == cells(frame, "x")
        hidden = panel.with_values(np.full(panel.values.shape, np.nan))
        filled = hidden.fill(np.full(panel.values.shape, 0.5))
        assert cells(filled, "x") == cells(filled, "narrow") == [0.5] * 6
        assert cells(filled, "whole") == cells(frame, "whole")

    @pytest.mark.parametrize(
        ("column", "clock"),
        [
            (pa.array([5, 1, 3, 2]), "number"),
            (pa.array([2.5, 0.5, 1.5, 1.0]), "number"),
            (pa.array([4, 0, 2, 1], pa.duration("s")), "number"),
            (pa.array([dt.date(2020, 1, day) for day in (5, 1, 3, 2)]), "datetime"),
            (pa.array([5, 1, 3, 2], pa.timestamp("s")), "datetime"),
            (pa.array([5, 1, 3, 2], pa.timestamp("ns", tz="Asia/Tokyo")), "datetime"),
            (pa.array(["2020-01-05", "2020-01-01", "2020-01-03", "2020-01-02"]), "datetime"),
            (pa.array(["2020-05", "2020-01", "2020-03", "2020-02"]).dictionary_encode(), "datetime"),
            (pa.array(["5", "1", "3", "2"]), "number"),
            (pa.array([BIG + 2 * k for k in (5, 1, 3, 2)]), "number"),
        ],
        ids=lambda value: str(value.type) if isinstance(value, pa.Array) else value,
    )
    def test_every_type_of_time(self, make: Any, column: pa.Array, clock: str) -> None:
        panel = Panel.from_frame(make(pa.table({"t": column, "x": [5.0, 1.0, 3.0, 2.0]})), time="t", columns=["x"])
        assert panel.clock == clock
        assert (np.diff(panel.times) > 0).all()
        np.testing.assert_array_equal(panel.values[:, 0], [1, 2, 3, 5])

    def test_the_only_date_column_is_the_time(self, make: Any) -> None:
        table = long_table().select(["when", "x", "who"])
        panel = Panel.from_frame(make(table), id="who")
        np.testing.assert_array_equal(panel.times, Panel.from_frame(make(table), id="who", time="when").times)
        with pytest.raises(DataError, match=r"several columns hold times \(when, born\): name the one to use"):
            Panel.from_frame(make(long_table()), id="who")

    def test_a_date_may_be_the_id(self, make: Any) -> None:
        table = pa.table({"day": pa.array([dt.date(2020, 1, 1 + day // 2) for day in range(4)]), "x": [1.0, 2, 3, 4]})
        panel = Panel.from_frame(make(table), id="day")
        assert len(panel) == 2
        assert panel.clock == "number"
        np.testing.assert_array_equal(panel.times, [0, 1, 2, 3])

    @pytest.mark.parametrize(
        ("change", "options", "message"),
        [
            ({}, {"id": "who"}, "two rows have the same time: who b, t 1.*, row 3"),
            (
                {},
                {},
                "two rows have the same time: t 1.*, row 3; if the table holds several series.*--id NAME.*id=NAME",
            ),
            ({}, {"id": "patient"}, "there is no column 'patient'; the columns are who, t, x, word"),
            ({}, {"time": "hour"}, "there is no column 'hour'"),
            ({}, {"columns": ["x", "y"]}, "there is no column 'y'"),
            ({}, {"columns": ["word"]}, "column 'word' must be numeric, got String"),
            ({}, {"columns": ["t"]}, "column 't' is the id or time and cannot be filled"),
            ({}, {"columns": []}, "at least one column"),
            ({}, {"columns": ["x", "x"]}, "none twice"),
            ({}, {"time": "word"}, "the time 'one' in column 'word', row 1, cannot be read"),
            ({"who": ["b", "b", None]}, {"id": "who"}, "the id in column 'who' is missing in row 3"),
            ({"who": [1.0, float("nan"), 1.0]}, {"id": "who"}, "the id in column 'who' is missing in row 2"),
            ({"t": [1, None, 2]}, {}, "the time in column 't' is missing.* in row 2"),
            ({"t": [1.0, float("nan"), 2.0]}, {}, "the time in column 't' is missing or infinite in row 2"),
            ({"t": [1.0, float("inf"), 2.0]}, {}, "the time in column 't' is missing or infinite in row 2"),
            ({"t": ["2020-01-01", None, "2020-01-02"]}, {}, "the time in column 't' is missing in row 2"),
            ({"t": [dt.datetime(2020, 1, 1), None, None]}, {}, "the time in column 't' is missing in row 2"),
            ({"t": [True, False, True]}, {}, "column 't' must hold times, got Boolean"),
            ({"t": [1, 2, 3], "x": [1.0, 2.0, float("-inf")]}, {}, "infinite value in column 'x', t 3, row 3"),
            ({"x": ["u", "v", "w"]}, {"time": None}, "no numeric column"),
        ],
    )
    def test_messages_name_the_invalid_input(self, make: Any, change: Any, options: Any, message: str) -> None:
        columns = {"who": ["b", "b", "b"], "t": [1, 2, 1], "x": [1.0, 2.0, 3.0], "word": ["one", "two", "three"]}
        if options.get("time", 0) is None:
            columns.pop("t")
        with pytest.raises(DataError, match=message) as error:
            Panel.from_frame(make(pa.table(columns | change)), **({"time": "t"} | options))
        assert "\n" not in str(error.value)

    def test_an_empty_frame_is_refused(self, make: Any) -> None:
        with pytest.raises(DataError, match="no rows"):
            Panel.from_frame(make(long_table()[:0]))


class TestPandas:
    frame = pd.DataFrame(
        {"x": [1.5, np.nan, 3.5, 4.5], "n": pd.array([BIG, None, 3, 4], dtype="Int64"), "s": list("abcd")}
    )

    @pytest.mark.parametrize(
        "index",
        [
            pd.Index(["a", "a", "b", "b"], name="label"),
            pd.Index([7, 7, 7, 7]),
            pd.RangeIndex(10, 2, -2),
            pd.DatetimeIndex(["2020-01-04", "2020-01-02", "2020-01-01", "2020-01-03"], tz="Asia/Tokyo", name="when"),
        ],
        ids=["text", "not unique", "range", "times"],
    )
    def test_the_index_is_kept(self, index: pd.Index) -> None:
        frame = self.frame.set_axis(index).rename_axis(columns="columns")
        panel = Panel.from_frame(frame)
        order = np.argsort(index) if isinstance(index, pd.DatetimeIndex) else np.arange(4)
        np.testing.assert_array_equal(panel.values[:, 0], frame["x"].to_numpy()[order])
        filled = panel.fill(np.full((4, 2), 9.75), {"x_lower": np.arange(4.0)})
        expected = frame.assign(x=[1.5, 9.75, 3.5, 4.5], n=pd.array([BIG, 10, 3, 4], dtype="Int64"))
        expected["x_lower"] = np.argsort(order).astype(float)
        pd.testing.assert_frame_equal(filled, expected, check_exact=True)

    def test_messages_name_invalid_indices(self) -> None:
        twice = pd.DatetimeIndex(["2020-01-01", "2020-01-02", "2020-01-01", "2020-01-03"])
        with pytest.raises(DataError, match="the same time: time 2020-01-01 00:00:00, row 3; if"):
            Panel.from_frame(self.frame.set_axis(twice))
        with pytest.raises(DataError, match="the time in the index is missing in row 2"):
            Panel.from_frame(self.frame.set_axis(twice.where(np.array([True, False, True, True]))))
        levels = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["who", "hour"])
        with pytest.raises(DataError, match=r"no column 'who' \(it is part of the index: call reset_index\(\) first\)"):
            Panel.from_frame(self.frame.set_axis(levels), id="who", time="hour")
        assert len(Panel.from_frame(self.frame.set_axis(levels).reset_index(), id="who", time="hour")) == 2

    def test_column_names_may_be_numbers(self) -> None:
        frame = pd.DataFrame({0: ["a", "a", "b"], 1: [2, 1, 1], 2: [1.0, np.nan, 3.0]})
        panel = Panel.from_frame(frame, id=0, time=1)  # type: ignore[arg-type]
        assert panel.ids == ("a", "b")
        np.testing.assert_array_equal(panel.values[:, 0], [np.nan, 1, 3])
        pd.testing.assert_frame_equal(panel.fill(np.full((3, 1), 7.0)), frame.fillna(7.0))

    def test_times_as_objects(self) -> None:
        frame = self.frame.assign(t=pd.Series([dt.date(2020, 1, 4 - i) for i in range(4)], dtype=object))
        np.testing.assert_array_equal(Panel.from_frame(frame, time="t").times, np.arange(4) * 86400.0)


@pytest.mark.parametrize(
    "frame",
    [pd.DataFrame([[1.0, 2.0]], columns=["x", "x"]), pa.table([pa.array([1.0]), pa.array([2.0])], names=["x", "x"])],
)
def test_duplicate_column_names_are_refused(frame: Any) -> None:
    with pytest.raises(DataError, match=r"different names, got 'x' 2 times$"):
        Panel.from_frame(frame)


@pytest.mark.parametrize("data", [{"x": [1.0]}, "file.csv", 3.0, None, pl.LazyFrame({"x": [1.0]}), pd.Series([1.0])])
def test_other_types_of_data_are_refused(data: Any) -> None:
    with pytest.raises(DataError, match="a Panel, an array, a list of arrays, or a pandas, polars or PyArrow frame"):
        Panel.of(data)


def test_nested_ids_are_refused_and_wide_integers_left_unchanged() -> None:
    frame = pl.DataFrame({"i": [[1], [2]], "x": [1.0, None], "w": pl.Series([2**100, None], dtype=pl.Int128)})
    with pytest.raises(DataError, match=r"id column 'i' must hold text or numbers, got List"):
        Panel.from_frame(frame, id="i")
    assert Panel.from_frame(frame).fill(np.full((2, 1), 5.0)).equals(frame.with_columns(x=pl.Series([1.0, 5.0])))
