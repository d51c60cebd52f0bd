"""Series and times in the index of a pandas frame, and the long format of Nixtla: read without naming them."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from gpvae import DataError, GapSelection, Linear, Panel

STEPS = 12
DATES = pd.date_range("2024-01-31", periods=STEPS, freq="ME")
IN_ROWS = pd.DataFrame(
    {
        "who": np.repeat(["u", "v"], STEPS),
        "when": np.tile(DATES, 2),
        "x": np.where(np.arange(2 * STEPS) % 5 == 2, np.nan, np.arange(2.0 * STEPS) ** 2),
    }
)


def filled(frame: Any, **names: str) -> np.ndarray[Any, Any]:
    fit: Any = Linear().fit
    return Linear.impute(fit(frame, **names), frame).to_frame()["x"].to_numpy()


EXPECTED = filled(IN_ROWS, id="who", time="when")
ONE = filled(IN_ROWS[:STEPS], time="when")


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("levels", [["who", "when"], ["when", "who"]])
@pytest.mark.parametrize("named", [True, False])
def test_levels_are_series_and_times(levels: list[str], shuffled: bool, named: bool) -> None:
    frame = IN_ROWS.sample(frac=1, random_state=1) if shuffled else IN_ROWS
    indexed = frame.set_index(levels)
    indexed.index.names = levels if named else [None, None]
    panel = Panel.of(indexed)
    assert sorted(panel.ids) == ["u", "v"]
    assert panel.clock == "datetime"
    result = Linear().fit(indexed).impute(indexed).to_frame()
    assert result.index.equals(indexed.index)
    np.testing.assert_allclose(result["x"].to_numpy(), EXPECTED[frame.index])


def test_more_levels_name_series_by_tuples() -> None:
    ward = pd.concat({"icu": IN_ROWS, "ward": IN_ROWS}, names=["unit"]).reset_index("unit")
    indexed = ward.set_index(["unit", "who", "when"])
    panel = Panel.of(indexed)
    assert panel.ids == (("icu", "u"), ("icu", "v"), ("ward", "u"), ("ward", "v"))
    np.testing.assert_allclose(filled(indexed), np.tile(EXPECTED, 2))
    gaps = Linear().fit(indexed).impute(indexed)
    assert gaps.part(2, 3).panel.ids == (("ward", "u"),)


def test_whole_numbers_in_the_last_level_are_times() -> None:
    uneven = IN_ROWS.assign(when=np.tile(np.arange(STEPS) ** 2, 2))
    expected = filled(uneven, id="who", time="when")
    assert not np.allclose(expected, EXPECTED)
    np.testing.assert_allclose(filled(uneven.set_index(["who", "when"])), expected)


@pytest.mark.parametrize("frequency", ["M", "D", "W"])
def test_periods_are_times(frequency: str) -> None:
    periods = pd.period_range("2024-01", periods=STEPS, freq=frequency)
    rows = IN_ROWS[["x"]].head(STEPS)
    frame = rows.set_axis(periods)
    by_start = rows.set_axis(periods.to_timestamp())
    assert Panel.of(frame).clock == "datetime"
    np.testing.assert_allclose(filled(frame), filled(by_start))
    levels = pd.MultiIndex.from_product([["u"], periods])
    np.testing.assert_allclose(filled(frame.set_axis(levels)), filled(by_start))
    at = Panel.of(frame).times_at(np.array([0]))
    assert at.to_list()[0] == periods[0].to_timestamp()


def test_max_gap_counts_in_dates() -> None:
    indexed = IN_ROWS.set_index(["who", "when"])
    left = Linear().fit(indexed).impute(indexed, gaps=GapSelection(max_gap="3d")).to_frame()
    assert left["x"].isna().sum() == indexed["x"].isna().sum() > 0


@pytest.mark.parametrize("make", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_long_format_of_nixtla_needs_no_names(make: Any) -> None:
    frame = make(IN_ROWS.rename(columns={"who": "unique_id", "when": "ds"}))
    panel = Panel.of(frame)
    assert (panel.source.id, panel.source.time) == ("unique_id", "ds")
    np.testing.assert_allclose(filled(frame), EXPECTED)


def test_long_format_of_nixtla_with_numbers_and_in_the_index() -> None:
    steps = IN_ROWS.assign(unique_id=IN_ROWS["who"], ds=np.tile(np.arange(STEPS) ** 2, 2)).drop(columns=["who", "when"])
    expected = filled(IN_ROWS.assign(when=steps["ds"]), id="who", time="when")
    np.testing.assert_allclose(filled(steps), expected)
    indexed = steps.set_index("unique_id")
    assert Panel.of(indexed).ids == ("u", "v")
    np.testing.assert_allclose(filled(indexed), expected)
    assert Panel.of(steps.rename(columns={"ds": "hour"})).ids == (0,)  # unique_id alone says nothing


def test_named_columns_have_the_last_word() -> None:
    frame = IN_ROWS.rename(columns={"who": "unique_id", "when": "ds"}).assign(
        other=np.tile(["a", "b"], STEPS), hour=np.arange(2 * STEPS)
    )
    panel = Panel.of(frame, id="other", time="hour")
    assert (panel.ids, panel.source.time) == (("a", "b"), "hour")


def test_messages_name_the_series() -> None:
    indexed = IN_ROWS.set_index(["who", "when"])
    with pytest.raises(DataError, match=r"the same time: series u, time 2024-01-31 00:00:00"):
        Panel.of(pd.concat([indexed, indexed[:1]]))
    nameless = IN_ROWS.assign(who=IN_ROWS["who"].where(IN_ROWS.index != 3)).set_index(["who", "when"])
    with pytest.raises(DataError, match="the series is missing in the index, in row 4"):
        Panel.of(nameless)
