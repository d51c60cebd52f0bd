"""`gpvae impute` and `gpvae fit`."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import Run, cells


def test_impute_fills_every_gap_and_changes_nothing_else(run: Run, sensors: Path) -> None:
    result = run("impute", "sensors.csv", "-o", "filled.csv", "--id", "sensor", "--epochs", "3", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "2 series, 56 steps, 2 columns" in result.output
    assert "time: when" in result.output
    before, after = cells(sensors), cells(Path("filled.csv"))
    assert after[0] == [*before[0], "temp_lower", "temp_upper", "humidity_lower", "humidity_upper"]
    for old, new in zip(before[1:], after[1:], strict=True):
        for column, (was, now) in enumerate(zip(old, new, strict=False)):
            assert now == was or (was in ("", "NA") and column in (2, 3) and np.isfinite(float(now)))
        for column, bounds in ((2, new[5:7]), (3, new[7:9])):
            if old[column] in ("", "NA"):
                assert float(bounds[0]) - 1 <= float(new[column]) <= float(bounds[1]) + 1
            else:
                assert bounds == ["", ""]
    assert all(row[3].lstrip("-").isdigit() for row in after[1:])
    assert sorted(path.name for path in Path().iterdir()) == ["filled.csv", "sensors.csv"]


def test_fit_then_impute_with_the_model(run: Run, sensors: Path) -> None:
    assert run("fit", "sensors.csv", "-o", "model", "--id", "sensor", "--epochs", "2", "--device", "cpu").exit_code == 0
    words = ["impute", "sensors.csv", "--model", "model", "--id", "sensor", "--device", "cpu"]
    assert run(*words, "-o", "bare.csv", "--interval", "0").exit_code == 0
    assert run(*words, "-o", "a.csv").exit_code == 0
    assert run(*words, "-o", "b.csv").exit_code == 0
    assert run(*words, "-o", "c.csv", "--seed", "1").exit_code == 0
    a, b, c = (Path(name).read_bytes() for name in ("a.csv", "b.csv", "c.csv"))
    assert a == b != c
    assert cells(Path("bare.csv"))[0] == cells(sensors)[0]


def test_parquet_and_chosen_columns(run: Run, sensors: Path) -> None:
    frame: Any = pd.read_csv(sensors, parse_dates=["when"])
    frame.to_parquet("sensors.parquet")
    options = ["--id", "sensor", "--time", "when", "--epochs", "1", "--device", "cpu"]
    result = run("impute", "sensors.parquet", "-o", "filled.parquet", "--columns", "temp", *options)
    assert result.exit_code == 0, result.output
    assert "left unchanged: humidity (11 gaps), note" in result.output
    filled: Any = pd.read_parquet("filled.parquet")
    assert not filled["temp"].isna().any()
    pd.testing.assert_frame_equal(
        filled[["sensor", "when", "humidity", "note"]], frame[["sensor", "when", "humidity", "note"]]
    )


def test_model_remembers_id_and_time_columns(run: Run, sensors: Path) -> None:
    frame = pd.read_csv(sensors).rename(columns={"when": "moment"}).assign(day=range(56))
    frame.drop(columns="moment").to_csv("numbered.csv", index=False)
    options = ["--id", "sensor", "--time", "day", "--epochs", "1", "--device", "cpu"]
    assert run("fit", "numbered.csv", "-o", "model", *options).exit_code == 0
    result = run("impute", "numbered.csv", "-o", "out.csv", "--model", "model", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "2 series" in result.output
    assert "time: day" in result.output


@pytest.mark.parametrize("method", ["linear", "gp", "brits"])
def test_conformal_intervals_for_other_methods(run: Run, sensors: Path, method: str) -> None:
    settings = ("--id", "sensor", "--epochs", "2", "--device", "cpu")
    result = run(
        "impute", "sensors.csv", "--method", method, "--conformal", "--interval", "0.5", "-o", "a.csv", *settings
    )
    assert result.exit_code == 0, result.output
    assert "with 50% intervals: a.csv" in result.output
    plain = run("impute", "sensors.csv", "--method", method, "-o", "b.csv", *settings)
    assert plain.exit_code == 0, plain.output
    said = "gives single values without intervals; add --conformal to get intervals" in plain.output
    assert said == (method != "gp")
    assert len(cells(Path("b.csv"))[0]) == len(cells(Path("a.csv"))[0]) - (0 if method == "gp" else 4)


def test_fit_and_impute_print_in_one_line_what_was_found(run: Run) -> None:
    t, rng = np.arange(480), np.random.default_rng(0)
    celsius = (15 + 5 * np.sin(2 * np.pi * t / 24) + rng.normal(size=480)).round(2)
    frame = pd.DataFrame({"celsius": celsius, "kelvin": 273.15 + celsius, "load": rng.normal(size=480)})
    frame = frame.mask(rng.random(frame.shape) < 0.1)
    frame.assign(when=pd.date_range("2024-01-01", periods=480, freq="h")).to_csv("hourly.csv", index=False)
    for words in (("impute", "-o", "out.csv"), ("impute", "-o", "b.csv", "--conformal"), ("fit", "-o", "model")):
        result = run(words[0], "hourly.csv", "--method", "gp-factor", *words[1:])
        assert result.exit_code == 0, result.output
        (found,) = [line for line in result.output.splitlines() if line.startswith("Found")]
        assert re.fullmatch(r"Found: a daily pattern; .*(kelvin|celsius) is determined by (kelvin|celsius)\.", found)
    assert "Found" not in run("impute", "hourly.csv", "--method", "linear", "-o", "c.csv").output


def test_kinds_of_columns_are_said_before_training_and_can_be_changed(run: Run) -> None:
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(200) / 5)
    columns = [np.maximum(0, wave + rng.normal(size=200)), rng.poisson(3 + wave), wave > 0, wave]
    rows = [
        ",".join("" if (i + 3 * j) % 11 == 0 else f"{x:.3f}" for j, x in enumerate(row))
        for i, row in enumerate(np.column_stack(columns))
    ]
    Path("t.csv").write_text("\n".join(["rain,visits,flag,wave", *rows]) + "\n")
    found = run("impute", "t.csv", "-o", "found.csv").output.splitlines()
    kinds = "rain: never below 0, many zeros; visits: whole numbers, never below 0; flag: 0 or 1"
    assert found[1] == f"{kinds} (change with --kind rain=real)"
    filled = pd.read_csv("found.csv")
    assert np.nanmin(filled["rain_lower"].to_numpy()) >= 0
    assert {*filled["flag"]} == {0, 1}
    visits = filled[["visits", "visits_lower", "visits_upper"]].to_numpy()
    assert (np.nan_to_num(visits) % 1 == 0).all()
    changed = run("impute", "t.csv", "-o", "changed.csv", "--kind", "rain=real,flag=real").output.splitlines()
    assert changed[1] == "visits: whole numbers, never below 0 (change with --kind visits=real)"
    assert np.nanmin(pd.read_csv("changed.csv")["rain_lower"].to_numpy()) < 0
    assert "never below" not in run("impute", "t.csv", "-o", "quiet.csv", "--quiet").output
    refused = run("impute", "t.csv", "-o", "x.csv", "--method", "gp-net", "--kind", "flag=categorical").output
    assert "gp-net fills only numbers" in refused


def test_impute_prints_how_reliable_it_is(run: Run) -> None:
    rng, day = np.random.default_rng(0), np.arange(400)
    table = np.stack([np.sin(day / 5), np.cos(day / 5)], axis=1) + 0.1 * rng.standard_normal((400, 2))
    frame = pd.DataFrame(table.round(3), columns=["a", "b"]).mask(rng.random((400, 2)) < 0.2)
    frame.assign(c=np.where(table[:, 0] > 0, "up", "down")).mask(rng.random((400, 3)) < 0.1).to_csv("waves.csv")
    words = ("impute", "waves.csv", "--kind", "c=categorical", "--epochs", "3", "--device", "cpu")
    lines = run(*words, "-o", "out.csv").output.splitlines()
    assert re.match(r"Checked against \d+ held-out cells:", lines[-5]), lines
    assert re.match(r"The mean absolute error of GPVAE is \d\.\d\d standard deviations", lines[-4]), lines
    assert re.match(r"Of \d+ held-out cells, [\d.]+ % lie in their 90 % interval", lines[-3]), lines
    assert re.match(r"In their 90 % interval, by kind of gap – single cells and pairs: \d+ % of \d+", lines[-2]), lines
    assert re.match(r"c: \d+ % of \d+ held-out cells got the right category; .* the nearest in time in", lines[-1]), (
        lines
    )
    bare = run(*words, "-o", "bare.csv", "--interval", "0").output
    assert "error of GPVAE is" in bare
    assert "interval" not in bare
    plain = run("impute", "waves.csv", "-o", "line.csv", "--method", "linear").output  # holds out no cells
    assert plain.splitlines()[-1].startswith("filled ") or "Note:" in plain.splitlines()[-1]
    assert "absolute error" not in plain


def test_model_of_another_method(run: Run, sensors: Path) -> None:
    settings = ("--id", "sensor", "--epochs", "2", "--device", "cpu")
    assert run("fit", "sensors.csv", "--method", "brits", "--conformal", "-o", "model", *settings).exit_code == 0
    result = run("impute", "sensors.csv", "--model", "model", "--interval", "0.5", "-o", "out.csv")
    assert result.exit_code == 0, result.output
    assert "with 50% intervals" in result.output


def test_table_without_gaps_is_returned_unchanged(run: Run) -> None:
    Path("whole.csv").write_text("t,x,y\n" + "".join(f"{i},{i % 7},{i % 5}\n" for i in range(60)))
    Path("out[b]1.csv.checkpoint").touch()
    result = run("impute", "whole.csv", "-o", "out[b]1.csv")
    assert result.exit_code == 0, result.output
    assert "no gaps to fill, table unchanged: out[b]1.csv" in result.output
    assert Path("out[b]1.csv").read_bytes() == Path("whole.csv").read_bytes()
    assert not Path("out[b]1.csv.checkpoint").exists()
    again = run("impute", "whole.csv", "-o", "out[b]1.csv")
    assert again.exit_code == 1
    assert "exists already" in again.output
    shown = run("impute", "whole.csv", "-o", "b.csv", "--report", "b.html", "--epochs", "1", "--device", "cpu")
    assert shown.exit_code == 0, shown.output
    assert Path("b.html").exists()
    assert run("fit", "whole.csv", "-o", "model", "--columns", "y", "--method", "mean").exit_code == 0
    Path("other.csv").write_text("t,x\n1,2\n2,3\n")
    assert "the data lacks y" in run("impute", "other.csv", "--model", "model", "-o", "c.csv").output
