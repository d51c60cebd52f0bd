"""Which gaps are filled."""

import datetime as dt
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpvae import DataError, GapSelection, GPFactor, Linear, Panel
from gpvae.data.gaps import count_gaps, duration_text, parse_duration

HOURS = 30
NAN = np.nan


def hourly(gaps: dict[str, list[tuple[int, int]]], **columns: Any) -> pd.DataFrame:
    """Two sensors in 30 rows each; runs of missing values from and to (excluded) a row of the first one."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(2 * HOURS, 2)).cumsum(0), columns=["a", "b"])
    for name, runs in gaps.items():
        for start, stop in runs:
            frame.loc[start : stop - 1, name] = NAN
    when = [*pd.date_range("2024-03-01", periods=HOURS, freq="h")] * 2
    return frame.assign(who=["x"] * HOURS + ["y"] * HOURS, when=when, **columns)


def panel(frame: pd.DataFrame) -> Panel:
    return Panel.from_frame(frame, id="who", time="when")


GAPS = {"a": [(0, 2), (5, 11), (15, 22), (28, 30)], "b": [(10, 13)]}


def wanted(selection: GapSelection, frame: pd.DataFrame) -> dict[str, list[int]]:
    cells = selection.wanted(panel(frame))
    return {name: np.flatnonzero(cells[:, j]).tolist() for j, name in enumerate("ab")}


@pytest.mark.parametrize(
    "longest", ["6h", "360min", "0.25d", dt.timedelta(hours=6), pd.Timedelta(hours=6), "5h 60 min"]
)
def test_longer_gaps_stay_empty(longest: Any) -> None:
    """Six missing rows are six hours, seven are more."""
    chosen = wanted(GapSelection(max_gap=longest), hourly(GAPS))
    assert chosen == {"a": [0, 1, *range(5, 11), 28, 29], "b": [10, 11, 12]}
    assert wanted(GapSelection(max_gap="2h"), hourly(GAPS)) == {"a": [0, 1, 28, 29], "b": []}
    assert wanted(GapSelection(max_gap="119min"), hourly(GAPS)) == {"a": [], "b": []}


def test_a_gap_counts_the_time_of_rows_that_are_absent() -> None:
    frame = hourly({"a": [(5, 7)]}).drop(index=range(7, 12)).reset_index(drop=True)
    assert wanted(GapSelection(max_gap="6h"), frame)["a"] == []
    assert wanted(GapSelection(max_gap="7h"), frame)["a"] == [5, 6]


def test_rows_count_where_there_are_no_times() -> None:
    """Of each series, also where rows of two series alternate."""
    frame = hourly(GAPS).drop(columns="when")
    mixed = frame.iloc[[row for pair in zip(range(HOURS), range(HOURS, 2 * HOURS), strict=True) for row in pair]]
    for table in (frame, mixed.reset_index(drop=True)):
        cells = GapSelection(max_gap=6).wanted(Panel.from_frame(table, id="who"))
        assert cells.sum(0).tolist() == [10, 3]
    cells = GapSelection(max_gap="2").wanted(Panel.from_array(frame[["a", "b"]].to_numpy()))
    assert cells.sum(0).tolist() == [4, 0]


def test_other_choices() -> None:
    frame = hourly(GAPS)
    everything = {"a": [0, 1, *range(5, 11), *range(15, 22), 28, 29], "b": [10, 11, 12]}
    assert wanted(GapSelection(), frame) == everything
    assert wanted(GapSelection(only=["b"]), frame) == everything | {"a": []}
    assert wanted(GapSelection(leading=False), frame)["a"] == everything["a"][2:]
    assert wanted(GapSelection(trailing=False), frame)["a"] == everything["a"][:-2]
    moments = ["2024-03-01T18:00", "2024-03-01 18:00:00", dt.datetime(2024, 3, 1, 18)]
    for moment in moments:
        assert wanted(GapSelection(not_before=moment), frame) == {"a": [*range(18, 22), 28, 29], "b": []}
    empty = frame.assign(a=NAN)
    assert wanted(GapSelection(leading=False), empty)["a"] == []
    assert len(wanted(GapSelection(max_gap="30h"), empty)["a"]) == 60
    assert wanted(GapSelection(max_gap="29h"), empty)["a"] == []


def test_a_summary_counts_gaps() -> None:
    selection = GapSelection(max_gap="6h", only=["a"], trailing=False)
    assert selection.summary(panel(hourly(GAPS))) == [
        "left 1 gap in other columns empty",
        "left 1 gap after the last value of a column empty",
        "left 1 gap longer than 6h empty",
    ]
    assert GapSelection(max_gap="8h").summary(panel(hourly(GAPS))) == []
    both = hourly({"a": [(28, 32)]})  # the end of one series and the beginning of the next
    assert count_gaps(panel(both), np.isnan(both[["a", "b"]].to_numpy())) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_gap": 6}, "'6' is not a duration: write it as 30min, 6h, 2d or 1w"),
        ({"max_gap": "6 hours and"}, "'6 hours and' is not a duration"),
        ({"max_gap": "0h"}, "the longest gap must be above 0"),
        ({"only": ["c"]}, "there is no column 'c' to fill; there are a, b"),
        ({"not_before": "12"}, "the time before which nothing is filled must be a date, got '12'"),
        ({"not_before": "soon"}, "the time 'soon' in the time before which nothing is filled"),
    ],
)
def test_choices_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        GapSelection(**options).wanted(panel(hourly(GAPS)))


def test_numbers_have_no_hours() -> None:
    array = Panel.from_array(np.where(np.arange(20)[:, None] % 5, 1.0, NAN))
    with pytest.raises(DataError, match="the longest gap must be a number, as the times or rows are, got '6h'"):
        GapSelection(max_gap="6h").wanted(array)
    with pytest.raises(DataError, match="must be a number, as the times are, got '2024-01-01'"):
        GapSelection(not_before="2024-01-01").wanted(array)


def test_durations() -> None:
    assert parse_duration("1d 12h") == 36 * 3600
    for seconds in (3600.0, 90.0, 86400.0, 604800.0, 0.5, 2 * 3600 + 60):
        assert parse_duration(duration_text(seconds)) == seconds


@pytest.mark.parametrize("imputer", [Linear(), GPFactor()], ids=lambda imputer: imputer.name)
def test_what_is_left_out_stays_empty_and_the_rest_is_the_same(imputer: Any) -> None:
    frame = hourly(GAPS)
    everything = imputer.fit(panel(frame)).impute(panel(frame))
    short = imputer.impute(panel(frame), max_gap="6h")
    chosen = GapSelection(max_gap="6h").wanted(panel(frame))
    np.testing.assert_allclose(short.mean[chosen], everything.mean[chosen], rtol=1e-12)
    left_out = np.isnan(frame[["a", "b"]].to_numpy()) & ~chosen
    assert np.isnan(short.mean[left_out]).all()
    again = imputer.impute(panel(frame), gaps=GapSelection(max_gap="6h"))
    assert np.array_equal(again.cells, short.cells)
    interval = 0.9 if short.draws else None
    table = short.to_frame(interval=interval)
    assert table["a"].isna().sum() == left_out[:, 0].sum()
    if interval:
        assert table["a_lower"].notna().sum() == chosen[:, 0].sum()
        assert np.isnan(short.samples[:, left_out]).all()
