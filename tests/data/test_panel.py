"""Panels of arrays and lists, and the parsing of times."""

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from gpvae.data.panel import DataError, Panel
from gpvae.data.times import parse_times

BERLIN = ZoneInfo("Europe/Berlin")


def days(*numbers: int) -> list[dt.datetime]:
    return [dt.datetime(2020, 3, day, 1, 30, tzinfo=BERLIN) for day in numbers]


def numbered(panel: Panel) -> np.ndarray[Any, Any]:
    """A different value for each cell, none of which is in the data."""
    return 100.25 + np.arange(panel.values.size).reshape(panel.values.shape)


def irregular(dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    values = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(dtype)
    values[0, 1, 0] = values[1, :, 1] = values[2] = np.nan
    return values


class TestArrays:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
    @pytest.mark.parametrize("shape", [(3, 4, 2), (12, 2)])
    def test_gaps_are_filled(self, dtype: Any, shape: tuple[int, ...]) -> None:
        array = irregular(dtype).reshape(shape)
        panel = Panel.of(array)
        assert panel.columns == ("x0", "x1")
        assert len(panel) == (3 if len(shape) == 3 else 1)
        np.testing.assert_array_equal(panel.times, np.tile(np.arange(shape[-2]), len(panel)))
        filled = panel.fill(numbered(panel))
        assert filled.dtype == dtype
        np.testing.assert_array_equal(filled, np.where(np.isnan(array), numbered(panel).reshape(shape), array))
        assert np.isnan(array).sum() == 13  # as it was

    def test_restore_returns_the_original_shape(self) -> None:
        array = irregular(np.float32)
        panel = Panel.of(array)
        samples = np.stack([panel.values, panel.values + 1])
        restored = panel.restore(samples)
        assert restored.dtype == np.float32
        np.testing.assert_array_equal(restored[0], array)
        np.testing.assert_array_equal(panel.restore(panel.observed), ~np.isnan(array))
        assert panel.restore(panel.observed).dtype == bool
        np.testing.assert_array_equal(panel.select(["x1"]).restore(panel.values[:, 1:]), array[..., 1:])

    def test_a_selection_fills_only_its_columns(self) -> None:
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
    def test_times_of_every_type(self, times: Any, clock: str, seconds: list[float]) -> None:
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
    def test_messages_name_the_invalid_input(self, array: Any, times: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            Panel.from_array(array, times=times)

    def test_extra_columns_are_refused(self) -> None:
        for panel in (Panel.of(irregular()), Panel.of(list(irregular()))):
            with pytest.raises(DataError, match="cannot add the column 'x0_lower' to an array"):
                panel.fill(panel.values, {"x0_lower": panel.times})


class TestLists:
    arrays = (np.array([[1.0, np.nan]], np.float32), np.array([[np.nan, 3], [4, 5], [6, np.nan]]), np.array([[7, 8]]))

    def test_gaps_are_filled(self) -> None:
        panel = Panel.of(list(self.arrays))
        np.testing.assert_array_equal(panel.lengths, [1, 3, 1])
        np.testing.assert_array_equal(panel.times, [0, 0, 1, 2, 0])
        filled = panel.fill(np.full((5, 2), 0.5))
        assert [each.dtype for each in filled] == [np.float32, np.float64, np.float64]
        for new, old in zip(filled, self.arrays, strict=True):
            np.testing.assert_array_equal(new, np.where(np.isnan(old), 0.5, old))
        samples = panel.restore(np.zeros((7, 5, 2)))
        assert [each.shape for each in samples] == [(7, 1, 2), (7, 3, 2), (7, 1, 2)]

    def test_each_array_has_its_times(self) -> None:
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
    def test_messages_name_the_invalid_input(self, arrays: Any, times: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            Panel.from_list(arrays, times=times)


class TestParsingTimes:
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
    def test_common_formats(self, texts: list[str], clock: str, times: list[float]) -> None:
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
    def test_the_origin_is_kept(self, texts: list[str], origin: str | None) -> None:
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
    def test_ambiguous_and_invalid_times_are_refused(self, texts: list[str | None], message: str) -> None:
        with pytest.raises(DataError, match=message):
            parse_times(texts, "t")


def test_mismatched_shapes_are_refused() -> None:
    panel = Panel.of(irregular())
    with pytest.raises(DataError, match=r"values \(12, 1\), times \(12,\), 2 columns"):
        panel.with_values(panel.values[:, :1])
    assert Panel.of(panel) is panel
