"""Single times, and panels cut by time."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpvae import DataError, Panel
from gpvae.data.times import Clock, parse_moment, time_after, time_between, unit_steps

NOON = dt.datetime(2024, 3, 1, 12)


@pytest.mark.parametrize(
    "time",
    [
        NOON,
        "2024-03-01T12:00",
        " 2024-03-01 12:00:00 ",
        np.datetime64("2024-03-01T12"),
        np.datetime64("2024-03-01T12:00:00.000000000"),
        pd.Timestamp("2024-03-01 12:00"),
        "2024/03/01 12:00",
    ],
)
def test_one_date_and_time_in_many_notations(time: Any) -> None:
    assert parse_moment(time, "datetime") == NOON


def test_times_with_a_zone_are_in_utc() -> None:
    assert parse_moment("2024-03-01T14:00+02:00", "datetime") == NOON.replace(tzinfo=dt.UTC)
    before, after = (pd.Timestamp(f"2024-03-31 {hour}:30", tz="Europe/Berlin") for hour in (1, 3))
    assert time_between(parse_moment(before, "datetime"), parse_moment(after, "datetime")) == 3600
    assert parse_moment(dt.date(2024, 3, 1), "datetime") == dt.datetime(2024, 3, 1)


@pytest.mark.parametrize(
    ("time", "number"),
    [(3, 3), (2.5, 2.5), ("2.5", 2.5), (np.float32(0.5), 0.5), (" 7 ", 7), (dt.timedelta(minutes=1), 60)],
)
def test_one_number_in_many_notations(time: Any, number: float) -> None:
    assert parse_moment(time, "number") == number
    assert parse_moment(np.timedelta64(1500, "ms"), "number") == 1.5


def test_large_whole_numbers_are_exact() -> None:
    """Nanoseconds since 1970, as numbers or text."""
    start = 1_700_000_000_123_456_789
    for first, second in ((start, start + 1), (str(start), str(start + 1)), (np.int64(start), np.int64(start + 1))):
        assert time_between(parse_moment(first, "number"), parse_moment(second, "number")) == 1


@pytest.mark.parametrize(
    ("time", "clock", "message"),
    [
        ("soon", "datetime", "a time must be a date or time, such as 2024-03-01T06:00, got 'soon'"),
        ("", "number", "a time must be a number, got ''"),
        (None, "number", "a time must be a number, got None"),
        ("2024-03-01", "number", "a time must be a number, got '2024-03-01'"),
        (3.5, "datetime", "a time must be a date or time"),
        (np.inf, "number", "a time must be finite, got inf"),
        ("03/04/2020", "datetime", "the time 03/04/2020 is ambiguous: day/month or month/day"),
    ],
)
def test_what_is_no_time_is_refused(time: Any, clock: Clock, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_moment(time, clock)


def test_times_with_and_without_a_zone_cannot_be_compared() -> None:
    with pytest.raises(DataError, match="both or neither of the times"):
        time_between(NOON, NOON.replace(tzinfo=dt.UTC))


def test_time_after() -> None:
    assert time_after(NOON, 90.0) == dt.datetime(2024, 3, 1, 12, 1, 30)
    assert time_after(3, 0.5) == 3.5


def test_steps_that_differ_from_the_unit_by_rounding_are_that_unit() -> None:
    assert unit_steps(np.array([1 + 1e-9, 1 - 1e-9, 1.001, 0.0])).tolist() == [1, 1, 1.001, 0]


def test_a_panel_until_a_number() -> None:
    panel = Panel.from_list([np.arange(6.0).reshape(3, 2), np.ones((4, 2))], times=[[5, 6, 8], [1, 2, 3, 7]])
    cut = panel.until(6)
    assert cut.lengths.tolist() == [1, 3]
    assert cut.times.tolist() == [5, 1, 2, 3]
    assert cut.ids == (0, 1)
    assert panel.until("4").ids == (1,)  # the other series begins later
    assert [len(each) for each in cut.restore(cut.values)] == [1, 3]
    assert np.array_equal(panel.until(100).values, panel.values)
    with pytest.raises(DataError, match=r"there is no row before 1$"):
        panel.until(1)


def test_a_panel_does_not_know_large_numbers() -> None:
    """Nanoseconds since 1970 are counted from the first."""
    panel = Panel.from_frame(pd.DataFrame({"t": 1_700_000_000_000_000_000 + np.arange(4), "x": 1.0}), time="t")
    with pytest.raises(DataError, match="a panel cannot be cut at 1700000000000000002: it counts such large times"):
        panel.until(1_700_000_000_000_000_002)


@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_a_frame_until_a_date(zone: str | None) -> None:
    when = pd.date_range("2024-02-28T00:00:00.1", periods=96, freq="h", tz=zone)
    frame = pd.DataFrame({"when": when, "x": np.arange(96.0), "note": "a"}).sample(frac=1, random_state=0)
    panel = Panel.from_frame(frame)
    for time in (when[30], str(when[30]), when[30].to_pydatetime()):
        cut = panel.until(time)
        assert cut.values[:, 0].tolist() == list(range(30))  # not the row at that time
        assert {*cut.fill(cut.values)["x"]} == {*range(30)}
    if zone is None:
        assert len(panel.until("2024-02-29").values) == 24
