"""`gpvae impute --draws`."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import Run, cells

WORDS = ("--id", "sensor", "--method", "gp-factor", "--samples", "19")


@pytest.mark.parametrize("name", ["draws.csv", "draws.csv.gz"])
def test_a_completed_table_for_each_draw(name: str, run: Run, sensors: Path) -> None:
    result = run("impute", "sensors.csv", "-o", "filled.csv", "--draws", name, *WORDS)
    assert result.exit_code == 0, result.output
    assert f"19 completed tables, one for each draw: {name}" in result.output
    if name.endswith(".gz"):
        Path("draws.csv").write_bytes(gzip.decompress(Path(name).read_bytes()))
    before, (header, *rows) = cells(sensors), cells(Path("draws.csv"))
    assert header == ["draw", *before[0]]
    assert [row[0] for row in rows] == [str(i) for i in range(1, 20) for _ in before[1:]]
    for old, new in zip(before[1:] * 19, rows, strict=True):
        for was, now in zip(old, new[1:], strict=True):
            assert now == was or (was in ("", "NA") and np.isfinite(float(now)))
    gap = next(i for i, row in enumerate(before) if row[2] in ("", "NA"))
    values = [float(row[3]) for row in rows[gap - 1 :: len(before) - 1]]
    assert len({*values}) > 4  # rounded as the column is
    lower, upper = (float(cells(Path("filled.csv"))[gap][i]) for i in (5, 6))
    assert (lower, upper) == pytest.approx((min(values), max(values)), abs=0.11)  # ends are rounded outward
    assert not [*Path().glob("*.partial"), *Path().glob(".*")]


def test_draws_as_parquet_with_the_index_of_pandas(run: Run, sensors: Path) -> None:
    frame: Any = pd.read_csv(sensors, parse_dates=["when"]).set_index(np.arange(10, 66))
    frame.to_parquet("sensors.parquet")
    result = run("impute", "sensors.parquet", "-o", "filled.parquet", "--draws", "draws.parquet", *WORDS)
    assert result.exit_code == 0, result.output
    draws: Any = pd.read_parquet("draws.parquet")
    assert [*draws.columns] == ["draw", *frame.columns]
    assert draws["draw"].tolist() == [i for i in range(1, 20) for _ in range(56)]
    assert not draws[["temp", "humidity"]].isna().any(axis=None)
    third = draws[draws["draw"] == 3].drop(columns="draw").set_index(frame.index)
    observed = frame["temp"].notna()
    pd.testing.assert_frame_equal(third[observed & frame["humidity"].notna()], frame.dropna())


def test_a_table_without_gaps_is_repeated(run: Run) -> None:
    Path("whole.csv").write_text("a,b\n" + "".join(f"{i % 7},{i % 5}\n" for i in range(40)))
    result = run("impute", "whole.csv", "-o", "filled.csv", "--draws", "draws.csv", *WORDS[2:])
    assert result.exit_code == 0, result.output
    _, *rows = cells(Path("draws.csv"))
    assert [row[1:] for row in rows] == cells(Path("whole.csv"))[1:] * 19


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--draws", "draws.csv", "--method", "linear"], "--draws: Linear gives single values, without draws"),
        (["--draws", "draws.csv", "--conformal"], "--draws: Conformal(GPFactor) gives single values, without draws"),
        (["--draws", "filled.csv"], "--draws: filled.csv is already used by this command"),
        (["--draws", "sensors.csv"], "--draws: sensors.csv is already used by this command"),
        (["--draws", "r.csv", "--report", "r.csv"], "--draws: r.csv is already used by this command"),
        (["--draws", "draws.xlsx"], "draws.xlsx: the name must end in .csv"),
        (["--draws", "old.csv"], "--draws: old.csv exists already"),
        (["--draws", "nowhere/draws.csv"], "--draws: cannot write nowhere/draws.csv: there is no folder nowhere"),
    ],
)
def test_what_cannot_be_drawn_or_written_is_said_before_training(
    words: list[str], message: str, run: Run, sensors: Path
) -> None:
    Path("old.csv").write_text("")
    result = run("impute", "sensors.csv", "-o", "filled.csv", "--id", "sensor", "--method", "gp-factor", *words)
    assert result.exit_code == 1
    assert message in result.output
    assert not Path("filled.csv").exists()


def test_a_column_named_draw_is_in_the_way(run: Run) -> None:
    Path("lots.csv").write_text("draw,a\n" + "".join(f"{i},{i % 5 or ''}\n" for i in range(40)))
    result = run("impute", "lots.csv", "-o", "filled.csv", "--draws", "draws.csv", *WORDS[2:])
    assert result.exit_code == 1
    assert "lots.csv: the table already has a column named 'draw'; rename it first" in result.output
