"""The benchmark of the core: its gaps, its baselines, what a second run repeats, and when a target is met."""

import csv
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpvae import Panel
from gpvae.evaluation.joint import find_gaps

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
core, methods, tables, targets = map(importlib.import_module, ("core", "core_methods", "core_tables", "core_targets"))


@pytest.fixture
def panel() -> Panel:
    return Panel.from_array(np.random.default_rng(0).normal(size=(2, 2_500, 3)))


def test_a_third_of_the_tables_is_held_back_and_development_has_the_others() -> None:
    assert 0.3 <= len(tables.HELD_BACK) / len(tables.TABLES) <= 0.4
    assert not {*tables.HELD_BACK} & {*tables.names_of("development")}
    assert sorted([*tables.HELD_BACK, *tables.names_of("development")]) == sorted(tables.names_of("all"))
    assert tables.names_of("nile,P4") == ["nile", *tables.P4]


def test_runs_are_in_one_column_and_at_most_a_tenth_of_a_short_table(panel: Panel) -> None:
    cells = tables.PATTERNS["runs"](panel, 0)
    assert cells.mean() == pytest.approx(0.1, abs=0.001)
    assert np.median(find_gaps(panel, cells).length) in range(24, 49)
    short = Panel.from_array(np.zeros((60, 2)))
    assert find_gaps(short, tables.PATTERNS["runs"](short, 0)).length.max() <= 6


def test_one_column_is_out_at_a_time(panel: Panel) -> None:
    cells = tables.PATTERNS["one column out"](panel, 0)
    assert cells.sum(axis=1).max() == 1
    assert cells.any(axis=1).mean() == pytest.approx(0.5, abs=0.001)


def test_ten_outages_of_64_rows_in_each_long_series(panel: Panel) -> None:
    cells = tables.PATTERNS["outages of 64"](panel, 3)
    gaps = find_gaps(panel, cells)
    assert (gaps.length == 64).all()
    assert len(gaps.length) == 2 * 10 * 3
    assert not cells[panel.starts].any()
    assert not tables.PATTERNS["outages of 64"](panel.pick(np.arange(2), 1_999), 3).any()


def test_the_season_before_or_after_is_filled_in_and_else_the_line() -> None:
    values = np.arange(12.0)[:, None] * np.ones((2, 1, 1))
    values[:, [0, 5, 6, 9, 10], 0] = np.nan
    filled = methods.SeasonalNaive(period=4).fit(values).impute(values).mean[..., 0]
    expected = np.arange(12.0)
    expected[[0, 5, 6, 9, 10]] = [4, 1, 2, 1, 2]  # row 5 is missing, too: two seasons before row 9
    np.testing.assert_array_equal(filled, [expected, expected])
    lines = methods.SeasonalNaive(period=40).fit(values).impute(values).mean[0, 1:, 0]
    np.testing.assert_allclose(lines, np.arange(1.0, 12.0))
    last = methods.SeasonalNaive(period=1).fit(values).impute(values).mean[0, :, 0]
    assert last.tolist() == [1, 1, 2, 3, 4, 4, 4, 7, 8, 8, 8, 11]


def test_seasons_at_uneven_times_take_the_nearest_row() -> None:
    times = np.array([0.0, 0.9, 2.1, 3.0, 4.2, 4.9, 6.0])
    assert methods.nearest_rows(times, 3, 10).tolist() == [13, 14, 15, 16, -1, -1, -1]
    assert methods.nearest_rows(times, -3, 10).tolist() == [-1, -1, -1, 10, 11, 12, 13]


def test_iterative_recovers_a_column_from_another() -> None:
    values = np.random.default_rng(0).normal(size=(100, 1)) @ np.array([[1.0, 2.0]])
    hidden = np.where(np.arange(100)[:, None] % 7 == [0, 3], np.nan, values)
    np.testing.assert_allclose(methods.Iterative().fit(hidden).impute(hidden).mean, values, atol=1e-3)


def test_a_second_run_adds_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "core.csv"
    arguments = ["--tables", "white_noise", "--small", "60", "--methods", "linear,conformal linear", "--seeds", "0,1"]
    arguments += ["--patterns", "runs,outages", "--output", str(output)]
    core.main(arguments)
    first = output.read_text()
    core.main(arguments)
    assert output.read_text() == first
    rows = list(csv.DictReader(first.splitlines()))
    assert len(rows) == 2 * 2 * 2
    assert {row["coverage_90_lo"] == "" for row in rows if row["method"] == "linear"} == {True}
    assert all(float(row["coverage_90_lo"]) <= float(row["coverage_90"]) for row in rows if row["coverage_90_lo"])
    capsys.readouterr()
    core.main(["--summary", "--of", "conformal linear", "--small", "60", "--output", str(output)])
    assert "not measured" in capsys.readouterr().out


def record(method: str, mae: float, table: str = "ett_h1", pattern: str = "runs", **more: Any) -> dict[str, str]:
    return {"method": method, "label": "", "table": table, "pattern": pattern, "seed": "0", "mae": str(mae), **more}


def test_the_worst_ratio_decides() -> None:
    rows = [
        record("linear", 1.0),
        record("ours", 0.4),
        record("linear", 1.0, "beijing"),
        record("ours", 0.6, "beijing"),
    ]
    ratios = targets.Results(rows, "ours", "").ratios("linear")
    assert targets.at_most("", 0.6, ratios).met is True
    target = targets.at_most("", 0.5, ratios)
    assert target.met is False
    assert "0.600 (beijing, runs); 1 of 2 meet it" in target.measured
    assert targets.at_most("", 0.6, ratios, strict=True).met is False
    assert targets.at_most("", 0.6, []).met is None


@pytest.mark.parametrize(("low", "high", "met"), [("0.80", "0.86", False), ("0.80", "0.88", True), ("", "", None)])
def test_a_coverage_is_met_by_its_interval(low: str, high: str, met: bool | None) -> None:
    rows = [record("ours", 1.0, coverage_90="0.83", coverage_90_lo=low, coverage_90_hi=high)]
    assert targets.in_band("", rows, "coverage_90", (0.87, 0.93)).met is met
