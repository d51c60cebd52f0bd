"""The pattern of missing values."""

from dataclasses import replace

import numpy as np
import pytest
from report_examples import fill_by_hand, panel_with_gaps, summary

from gpvae import (
    Panel,
)
from gpvae.missingness import hide
from gpvae.report.missing import pattern


def test_gap_lengths_are_counted_within_series() -> None:
    nan, one = np.nan, 1.0
    data = [
        np.array([[nan, one], [nan, one], [one, nan], [nan, one]]),
        np.array([[nan, one], [one, nan], [nan, nan]]),
    ]
    result = pattern(Panel.from_list(data))
    # x0: 2, 1 and, in the next series, 1, 1; x1: 1 and 2.
    assert [(each["name"], each["gaps"], each["values"]) for each in result["gaps"]["groups"]] == [
        ("1", 4, 4),
        ("2", 2, 4),
    ]
    assert result["longest"] == [2, 2]
    assert "Of 6 gaps, 67 % are single steps; the longest has 2." in result["gaps"]["sentence"]


def test_correlation_of_gaps() -> None:
    rng = np.random.default_rng(0)
    lost = rng.random((400, 3)) < 0.3
    lost[:, 1] = lost[:, 0]
    result = pattern(Panel.from_array(np.where(lost, np.nan, 1.0)))["together"]
    np.testing.assert_allclose(result["correlation"], np.corrcoef(lost.T), atol=1e-3)
    assert "where x0 is missing, x1 is also missing in 100 % of the steps" in result["sentence"]


def test_missing_shares_over_time_and_series() -> None:
    panel, _ = panel_with_gaps(series=4, steps=10)
    result = pattern(panel)
    gaps = ~panel.observed.reshape(4, 10, 3)
    np.testing.assert_allclose(result["over_time"]["shares"], gaps.mean(axis=0).T, atol=1e-3)
    shares = gaps.mean(axis=1)
    fullest = np.argsort(shares.sum(axis=1), kind="stable")
    np.testing.assert_allclose(result["over_series"]["shares"], shares[fullest], atol=1e-3)


def test_column_never_observed_is_not_counted_as_a_gap() -> None:
    values = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]])
    result = pattern(replace(Panel.from_array(values), columns=("a", "never")))
    assert result["gaps"]["groups"] == [{"name": "1", "gaps": 1, "values": 1}]
    assert result["gaps"]["sentence"].endswith("the longest has 1. Not counted: never, never observed.")


def test_series_names_are_listed_only_if_few() -> None:
    panel, _ = panel_with_gaps(series=3)
    assert {*pattern(panel)["over_series"]["names"]} == {"s0", "s1", "s2"}
    assert pattern(panel_with_gaps(series=30)[0])["over_series"]["names"] is None


def test_cells_hidden_for_the_test_do_not_count_as_missing() -> None:
    panel, truth = panel_with_gaps()
    hidden = ~panel.observed & (np.arange(len(truth)) % 2 == 0)[:, None]
    result = summary(fill_by_hand(panel, truth), truth=truth, held_out=hidden)
    own = ~panel.observed & ~hidden
    assert result["data"]["missing"] == own.sum() == sum(column["missing"] for column in result["columns"])
    assert result["series"]["missing"][0] == pytest.approx(own[:40].mean(), abs=1e-4)
    assert result["series"]["hidden"][0] == pytest.approx(hidden[:40].mean(), abs=1e-4)
    assert result["data"]["sentence"].endswith(f"For the test, {hidden.sum()} known values were hidden.")
    assert sum(group["values"] for group in result["missing"]["gaps"]["groups"]) == own.sum()
    complete = summary(fill_by_hand(panel, truth), truth=truth, held_out=~panel.observed)
    assert complete["data"]["sentence"].startswith("No values are missing. For the test")


def test_many_times_are_binned() -> None:
    result = pattern(Panel.from_array(np.where(np.arange(5000) < 2500, np.nan, 1.0)[:, None]))["over_time"]
    assert len(result["times"]) == len(result["shares"][0]) == 120
    assert result["shares"][0][0] == 1
    assert result["shares"][0][-1] == 0


def test_picking_series_keeps_their_rows_and_times() -> None:
    panel, _ = panel_with_gaps(series=4, steps=10)
    part = panel.pick(np.array([1, 3]), 6)
    assert part.ids == ("s1", "s3")
    np.testing.assert_array_equal(part.values, np.concatenate([panel.values[10:16], panel.values[30:36]]))
    assert part.origin == panel.origin
    np.testing.assert_array_equal(part.fill(part.values)["b"], part.values[:, 1])
    assert not hide(part, part.observed).observed.any()
