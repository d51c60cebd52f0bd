"""The panel: what goes in comes out, filled, in its own kind, shape, order and types."""

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
from gpvae.data.times import parse_times

BIG = 2**53 + 1  # the first integer that a float64 cannot hold
BERLIN = ZoneInfo("Europe/Berlin")
NULLABLE = {
    pa.int64(): pd.Int64Dtype(), pa.uint8(): pd.UInt8Dtype(), pa.float64(): pd.Float64Dtype(),
    pa.float32(): pd.Float32Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype(),
}  # fmt: skip
KINDS = {
    "pandas": lambda table: table.to_pandas(),
    "pandas nullable": lambda table: table.to_pandas(types_mapper=NULLABLE.get),
    "pandas pyarrow": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_arrow,
    "pyarrow": lambda table: table,
    "pyarrow in chunks": lambda table: pa.concat_tables([table[:2], table[2:3], table[3:]]),
}
WITH_NULLS = [name for name in KINDS if name != "pandas"]  # a NumPy integer column cannot have gaps


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


@pytest.fixture(params=WITH_NULLS)
def make_with_nulls(request: pytest.FixtureRequest) -> Any:
    return KINDS[request.param]


def as_arrow(frame: Any) -> pa.Table:
    if isinstance(frame, pd.DataFrame):
        return pa.Table.from_pandas(frame, preserve_index=False)
    return frame.to_arrow() if isinstance(frame, pl.DataFrame) else frame


def types(frame: Any) -> dict[Any, Any]:
    if isinstance(frame, pd.DataFrame):
        return frame.dtypes.to_dict()
    return dict(frame.schema) if isinstance(frame, pl.DataFrame) else {each.name: each.type for each in frame.schema}


def cells(frame: Any, name: str) -> list[Any]:
    """As Python objects; None for null and NaN."""
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


class TestEveryKindOfFrame:
    def test_is_sorted_inside(self, make: Any) -> None:
        panel = Panel.from_frame(make(long_table()), id="who", time="when")
        assert panel.columns == ("x", "narrow", "whole")
        assert panel.ids == ("b", "a")
        assert panel.clock == "datetime"
        np.testing.assert_array_equal(panel.lengths, [3, 3])
        day = 86400.0  # but the clocks go forward in the night to the 29th
        np.testing.assert_array_equal(panel.times, [0, day, 3 * day - 3600, day, 2 * day, 3 * day - 3600])
        np.testing.assert_array_equal(panel.values[:, 0], [np.nan, 6, 1.1, np.nan, -5, 0.1 + 0.2])

    def test_comes_back_filled(self, make: Any) -> None:
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

    def test_is_not_changed_itself(self, make: Any) -> None:
        frame, twin = make(long_table()), make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when")
        panel.fill(numbered(panel), {"x_lower": panel.times})
        assert types(frame) == types(twin)
        assert all(cells(frame, name) == cells(twin, name) for name in types(twin))

    def test_what_cannot_be_filled_stays_missing(self, make: Any) -> None:
        frame = make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when")
        filled = panel.fill(np.full(panel.values.shape, np.nan))
        assert all(cells(filled, name) == cells(frame, name) for name in types(frame))
        assert [each.null_count for each in as_arrow(filled)] == [each.null_count for each in as_arrow(frame)]

    def test_takes_extra_columns_behind(self, make: Any) -> None:
        frame = make(long_table())
        panel = Panel.from_frame(frame, id="who", time="when")
        lower = np.where(panel.observed[:, 0], np.nan, panel.times)
        filled = panel.fill(numbered(panel), {"x_lower": lower, "x_upper": lower + 1})
        assert list(types(filled)) == [*types(frame), "x_lower", "x_upper"]
        expected = [None if np.isnan(cell) else cell for cell in panel.restore(lower[:, None])[:, 0]]
        assert cells(filled, "x_lower") == expected
        if not isinstance(frame, pd.DataFrame):
            assert as_arrow(filled)["x_lower"].null_count == 4

    def test_refuses_an_extra_name_that_is_taken(self, make: Any) -> None:
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

    def test_only_the_asked_columns_change(self, make: Any) -> None:
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
    def test_every_kind_of_time(self, make: Any, column: pa.Array, clock: str) -> None:
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
            ({}, {}, "two rows have the same time: t 1.*, row 3; if the table holds several series.* as id"),
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
    def test_bad_input_is_named(self, make: Any, change: Any, options: Any, message: str) -> None:
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
    def test_keeps_its_index(self, index: pd.Index) -> None:
        frame = self.frame.set_axis(index).rename_axis(columns="columns")
        panel = Panel.from_frame(frame)
        order = np.argsort(index) if isinstance(index, pd.DatetimeIndex) else np.arange(4)
        np.testing.assert_array_equal(panel.values[:, 0], frame["x"].to_numpy()[order])
        filled = panel.fill(np.full((4, 2), 9.75), {"x_lower": np.arange(4.0)})
        expected = frame.assign(x=[1.5, 9.75, 3.5, 4.5], n=pd.array([BIG, 10, 3, 4], dtype="Int64"))
        expected["x_lower"] = np.argsort(order).astype(float)
        pd.testing.assert_frame_equal(filled, expected, check_exact=True)

    def test_bad_indices_are_named(self) -> None:
        twice = pd.DatetimeIndex(["2020-01-01", "2020-01-02", "2020-01-01", "2020-01-03"])
        with pytest.raises(DataError, match="the same time: time 2020-01-01 00:00:00, row 3; if"):
            Panel.from_frame(self.frame.set_axis(twice))
        with pytest.raises(DataError, match="the time in the index is missing in row 2"):
            Panel.from_frame(self.frame.set_axis(twice.where(np.array([True, False, True, True]))))
        levels = pd.MultiIndex.from_product([["a", "b"], [1, 2]], names=["who", "hour"])
        with pytest.raises(DataError, match=r"several levels: call reset_index\(\)"):
            Panel.from_frame(self.frame.set_axis(levels))
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
def test_columns_of_one_name_are_refused(frame: Any) -> None:
    with pytest.raises(DataError, match=r"different names, got 'x' 2 times$"):
        Panel.from_frame(frame)


@pytest.mark.parametrize("data", [{"x": [1.0]}, "file.csv", 3.0, None, pl.LazyFrame({"x": [1.0]}), pd.Series([1.0])])
def test_what_is_no_data_is_refused(data: Any) -> None:
    with pytest.raises(DataError, match="a Panel, an array, a list of arrays, or a pandas, polars or PyArrow frame"):
        Panel.of(data)


def test_nested_ids_and_wide_integers_are_no_trouble() -> None:
    frame = pl.DataFrame({"i": [[1], [2]], "x": [1.0, None], "w": pl.Series([2**100, None], dtype=pl.Int128)})
    with pytest.raises(DataError, match=r"id column 'i' must hold text or numbers, got List"):
        Panel.from_frame(frame, id="i")
    assert Panel.from_frame(frame).fill(np.full((2, 1), 5.0)).equals(frame.with_columns(x=pl.Series([1.0, 5.0])))


def irregular(dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(dtype)
    values[0, 1, 0] = values[1, :, 1] = values[2] = np.nan
    return values


class TestArrays:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
    @pytest.mark.parametrize("shape", [(3, 4, 2), (12, 2)])
    def test_come_back_filled(self, dtype: Any, shape: tuple[int, ...]) -> None:
        array = irregular(dtype).reshape(shape)
        panel = Panel.of(array)
        assert panel.columns == ("x0", "x1")
        assert len(panel) == (3 if len(shape) == 3 else 1)
        np.testing.assert_array_equal(panel.times, np.tile(np.arange(shape[-2]), len(panel)))
        filled = panel.fill(numbered(panel))
        assert filled.dtype == dtype
        np.testing.assert_array_equal(filled, np.where(np.isnan(array), numbered(panel).reshape(shape), array))
        assert np.isnan(array).sum() == 13  # as it was

    def test_restore_gives_any_rows_their_shape(self) -> None:
        array = irregular(np.float32)
        panel = Panel.of(array)
        samples = np.stack([panel.values, panel.values + 1])
        restored = panel.restore(samples)
        assert restored.dtype == np.float32
        np.testing.assert_array_equal(restored[0], array)
        np.testing.assert_array_equal(panel.restore(panel.observed), ~np.isnan(array))
        assert panel.restore(panel.observed).dtype == bool
        np.testing.assert_array_equal(panel.select(["x1"]).restore(panel.values[:, 1:]), array[..., 1:])

    def test_a_selection_fills_its_own_columns(self) -> None:
        array = irregular()
        filled = Panel.of(array).select(["x1"]).fill(np.zeros((12, 1)))
        np.testing.assert_array_equal(filled[..., 0], array[..., 0])
        np.testing.assert_array_equal(filled[..., 1], np.nan_to_num(array[..., 1]))

    @pytest.mark.parametrize(
        ("given", "values"),
        [
            (np.array([[1, 2], [3, 4]], dtype=np.uint8), [[1, 2], [3, 4]]),
            (np.array([[True, False]]), [[1, 0]]),
            (np.array([[None, 1.5]], dtype=object), [[np.nan, 1.5]]),
            (np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]]), [[1, np.nan], [3, 4]]),
            (np.ma.masked_array([[1.5, 2.5]], mask=[[True, False]]), [[np.nan, 2.5]]),
        ],
        ids=["integers", "booleans", "objects", "masked integers", "masked floats"],
    )
    def test_other_numbers_become_floats(self, given: Any, values: Any) -> None:
        panel = Panel.of(given)
        np.testing.assert_array_equal(panel.values, values)
        assert type(panel.fill(panel.values)) is np.ndarray

    @pytest.mark.parametrize(
        ("times", "clock", "seconds"),
        [
            ([0.0, 0.5, 4.0], "number", [0, 0.5, 4]),
            (np.array(["2020-01-01", "2020-01-02", "2020-01-04"], "M8[D]"), "datetime", [0, 86400, 3 * 86400]),
            (np.array([0, 1, 90], "m8[m]"), "number", [0, 60, 5400]),
            (pd.DatetimeIndex(["2020-03-28", "2020-03-29", "2020-03-30"], tz=BERLIN), "datetime", [0, 86400, 169200]),
            (days(28, 29, 30), "datetime", [0, 86400, 169200]),
            (["2020-01-01", "2020-01-02", "2020-01-04"], "datetime", [0, 86400, 3 * 86400]),
        ],
        ids=["numbers", "datetime64", "timedelta64", "pandas", "datetime", "text"],
    )
    def test_times_of_every_kind(self, times: Any, clock: str, seconds: list[float]) -> None:
        panel = Panel.from_array(np.zeros((2, 3, 1)), times=times)
        assert panel.clock == clock
        np.testing.assert_array_equal(panel.times, seconds * 2)

    @pytest.mark.parametrize(
        ("array", "times", "message"),
        [
            (np.zeros(3), None, r"the array must be .* got shape \(3,\)"),
            (np.zeros((1, 2, 3, 4)), None, r"got shape \(1, 2, 3, 4\)"),
            (np.zeros((2, 0, 3)), None, "no rows"),
            (np.zeros((0, 2, 3)), None, "no rows"),
            (np.zeros((2, 2, 0)), None, "no columns"),
            ([["a", "b"]], None, "the array must hold numbers, got <U1"),
            (np.array([["2020-01-01"]], "M8[D]"), None, r"must hold numbers, got datetime64\[D\]"),
            (np.array([[1j]]), None, "must hold numbers, got complex128"),
            (np.array([[{}]]), None, "the array must hold numbers"),
            ([[1.0], [1.0, 2.0]], None, "in rows of equal length"),
            (np.array([[[0.0], [1.0]], [[2.0], [np.inf]]]), None, "infinite value in column 'x0', series 1, step 1"),
            (np.array([[0.0, -np.inf]]), None, "infinite value in column 'x1', step 0"),
            (np.zeros((2, 3, 1)), np.zeros(4), r"times must have shape \(2, 3\) or \(3,\), got \(4,\)"),
            (np.zeros((2, 3, 1)), np.zeros((2, 1)), r"times must have shape .*, got \(2, 1\)"),
            (np.zeros((2, 3, 1)), [[0, 1, 2], [0, 1, 1]], "times must increase .* at series 1, step 2"),
            (np.zeros((3, 1)), [0, 2, 1], "times must increase .* at step 2"),
            (np.zeros((3, 1)), [0, np.nan, 1], "the time at step 1 is missing or infinite"),
            (np.zeros((3, 1)), np.array(["NaT", "2020", "2021"], "M8[Y]"), "the time at step 0 is missing"),
            (np.zeros((2, 1)), ["2020-01-01", "soon"], "the time 'soon' in the list of times, row 2, cannot be read"),
        ],
    )
    def test_bad_input_is_named(self, array: Any, times: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            Panel.from_array(array, times=times)

    def test_have_no_place_for_extra_columns(self) -> None:
        for panel in (Panel.of(irregular()), Panel.of(list(irregular()))):
            with pytest.raises(DataError, match="cannot add the column 'x0_lower' to an array"):
                panel.fill(panel.values, {"x0_lower": panel.times})


class TestLists:
    arrays = (np.array([[1.0, np.nan]], np.float32), np.array([[np.nan, 3], [4, 5], [6, np.nan]]), np.array([[7, 8]]))

    def test_come_back_filled(self) -> None:
        panel = Panel.of(list(self.arrays))
        np.testing.assert_array_equal(panel.lengths, [1, 3, 1])
        np.testing.assert_array_equal(panel.times, [0, 0, 1, 2, 0])
        filled = panel.fill(np.full((5, 2), 0.5))
        assert [each.dtype for each in filled] == [np.float32, np.float64, np.float64]
        for new, old in zip(filled, self.arrays, strict=True):
            np.testing.assert_array_equal(new, np.where(np.isnan(old), 0.5, old))
        samples = panel.restore(np.zeros((7, 5, 2)))
        assert [each.shape for each in samples] == [(7, 1, 2), (7, 3, 2), (7, 1, 2)]

    def test_times_of_their_own(self) -> None:
        panel = Panel.from_list(self.arrays, times=[[9.0], [0.0, 0.25, 7.0], [-3.0]])
        np.testing.assert_array_equal(panel.times, [9, 0, 0.25, 7, -3])
        np.testing.assert_array_equal(panel.time_steps, [0.25, 6.75])
        assert [(name, rows) for name, rows in panel.series()] == [(0, slice(0, 1)), (1, slice(1, 4)), (2, slice(4, 5))]

    @pytest.mark.parametrize(
        ("arrays", "times", "message"),
        [
            ([], None, "no rows"),
            ([1.0, 2.0], None, r"series 0 of the list has shape \(\)"),
            ([[1.0, 2.0]], None, r"series 0 of the list has shape \(2,\)"),
            ([np.zeros((2, 2)), np.zeros((2, 3))], None, r"series 1 of the list has shape \(2, 3\)"),
            ([np.zeros((2, 2)), np.zeros((0, 2))], None, r"series 1 of the list has shape \(0, 2\)"),
            ([np.zeros((2, 2)), [[1.0], [1.0, 2.0]]], None, "series 1 of the list must hold numbers, in rows of equal"),
            ([np.zeros((2, 1)), [["a"], ["b"]]], None, "series 1 of the list must hold numbers, got <U1"),
            ([np.zeros((2, 1)), [[1.0], [np.inf]]], None, "infinite value in column 'x0', series 1, step 1"),
            (
                [np.zeros((2, 1))],
                [[0.0, 1.0, 2.0]],
                r"times of shapes \[\(3,\)\]… do not match series of lengths \[2\]",
            ),
            ([np.zeros((2, 1))], [[0.0, 1.0], [0.0]], r"do not match series of lengths \[2\]"),
            ([np.zeros((2, 1))] * 2, [[0.0, 1.0], [1.0, 0.0]], "times must increase .* at series 1, step 1"),
        ],
    )
    def test_bad_input_is_named(self, arrays: Any, times: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            Panel.from_list(arrays, times=times)


class TestReadingTimes:
    @pytest.mark.parametrize(
        ("texts", "clock", "times"),
        [
            (["1", " 2.5 ", "-3e1"], "number", [1, 2.5, -30]),
            (["2020-01-01", "2020-01-03"], "datetime", [0, 172800]),
            (["2020-01-01T00:00:10Z", "2020-01-01T01:00:00+01:00"], "datetime", [10, 0]),
            (["2020-01-01 00:00:00.25", "2020-01-01 00:01"], "datetime", [0, 59.75]),
            (["2012/01/01", "2012/03/01"], "datetime", [0, 60 * 86400]),
            (["31.12.2020 13:45", "01.01.2021 00:00"], "datetime", [0, 36900]),
            (["2020-01", "2020-02"], "datetime", [0, 31 * 86400]),
            (["13/02/2020", "01/02/2020"], "datetime", [12 * 86400, 0]),
            (["02/13/2020", "02/01/2020"], "datetime", [12 * 86400, 0]),
        ],
    )
    def test_usual_formats(self, texts: list[str], clock: str, times: list[float]) -> None:
        found, seconds, _ = parse_times(texts, "t")
        assert found == clock
        np.testing.assert_array_equal(seconds, times)

    @pytest.mark.parametrize(
        ("texts", "origin"),
        [
            (["0.5", "7"], None),
            (["2020-01-02", "2020-01-01"], "2020-01-01T00:00"),
            (["2020-01-01T02:30+02:00", "2020-01-01T03:00+02:00"], "2020-01-01T00:30"),
        ],
    )
    def test_the_first_moment_is_kept(self, texts: list[str], origin: str | None) -> None:
        expected = None if origin is None else float(np.datetime64(origin, "s").astype(int))
        assert parse_times(texts, "t").origin == expected
        assert Panel.from_frame(pd.DataFrame({"t": texts, "x": [1.0, 2.0]}), time="t").origin == expected
        if origin and "+" not in texts[0]:
            moments = np.array(texts, dtype="M8[ns]")
            assert Panel.from_list([np.ones((2, 1))], times=[np.sort(moments)]).origin == expected

    @pytest.mark.parametrize(
        ("texts", "message"),
        [
            (["2020-01-01", "yesterday"], "the time 'yesterday' in t, row 2, cannot be read as a number, date or time"),
            (["2020-01-01", "2020-02-30"], "the time '2020-02-30' in t, row 2"),
            (["2020-01-01", "31.12.2020"], "the time '31.12.2020' in t, row 2"),
            (["2020-01-01", None], "the time in t is missing in row 2"),
            (["2020-01-01", "  "], "the time in t is missing in row 2"),
            (["1", "inf"], "the time in t is not finite in row 2"),
            (["03/04/2020", "05/06/2020"], "the times in t are ambiguous: day/month or month/day"),
            (["2020-01-01T00:00Z", "2020-01-01T01:00"], "t mixes times with and without a time zone; row 2 differs"),
        ],
    )
    def test_no_guessing(self, texts: list[str | None], message: str) -> None:
        with pytest.raises(DataError, match=message):
            parse_times(texts, "t")


def test_parts_that_do_not_fit_are_refused() -> None:
    panel = Panel.of(irregular())
    with pytest.raises(DataError, match=r"values \(12, 1\), times \(12,\), 2 columns"):
        panel.with_values(panel.values[:, :1])
    assert Panel.of(panel) is panel
