"""Options of `gpvae impute` that choose gaps, and absent rows."""

from pathlib import Path

import numpy as np
from commands import Run, cells


def hourly(name: str, *, absent: tuple[int, ...] = ()) -> None:
    """Columns x and y of a day and a half; x lacks 2 values, and 8, and its last 3."""
    rows = []
    for hour in range(36):
        x = "" if hour in (4, 5, *range(10, 18), 33, 34, 35) else f"{20 + np.sin(hour / 3):.1f}"
        y = "" if hour == 20 else str(round(50 + 9 * np.cos(hour / 3)))
        rows.append(f"2024-03-{1 + hour // 24:02d} {hour % 24:02d}:00,{x},{y}")
    Path(name).write_text("when,x,y\n" + "".join(f"{row}\n" for i, row in enumerate(rows) if i not in absent))


def filled_rows(path: str, column: int) -> list[int]:
    return [i for i, row in enumerate(cells(Path(path))[1:]) if row[column]]


def test_longer_gaps_and_other_choices_are_left_empty(run: Run) -> None:
    hourly("table.csv")
    words = ("impute", "table.csv", "--method", "linear")
    result = run(*words, "-o", "a.csv", "--max-gap", "6h")
    assert result.exit_code == 0, result.output
    assert "filled 6 cells" in result.output
    assert "left 1 gap longer than 6h empty" in result.output
    assert filled_rows("a.csv", 1) == [*range(10), *range(18, 36)]
    result = run(*words, "-o", "b.csv", "--only", "x", "--no-trailing", "--not-before", "2024-03-01 12:00")
    assert result.exit_code == 0, result.output
    for sentence in ("in other columns", "after the last value of a column", "before 2024-03-01 12:00"):
        assert f"{sentence} empty" in result.output
    assert filled_rows("b.csv", 1) == [*range(4), *range(6, 10), *range(12, 33)]
    assert filled_rows("b.csv", 2) == [*range(20), *range(21, 36)]


def test_a_choice_is_checked_before_training(run: Run) -> None:
    hourly("table.csv")
    for option, value, message in (
        ("--max-gap", "6", "'6' is not a duration"),
        ("--only", "z", "there is no column 'z' to fill"),
        ("--not-before", "noon", "the time 'noon'"),
    ):
        result = run("impute", "table.csv", "-o", "out.csv", option, value, "--epochs", "100000")
        assert result.exit_code == 1
        assert message in result.output
        assert not Path("out.csv").exists()


def test_absent_rows_are_noted_or_added(run: Run) -> None:
    hourly("holes.csv", absent=(2, 7, 8))
    words = ("impute", "holes.csv", "--method", "linear")
    noted = run(*words, "-o", "a.csv")
    assert "Note: 3 rows are absent from the time steps of 1h, the first after when 2024-03-01 01:00:00" in noted.output
    assert len(cells(Path("a.csv"))) == 34
    added = run(*words, "-o", "b.csv", "--add-rows")
    assert added.exit_code == 0, added.output
    assert "added 3 rows that were absent from regular times" in added.output
    hourly("whole.csv")
    assert [row[0] for row in cells(Path("b.csv"))] == [row[0] for row in cells(Path("whole.csv"))]
    assert filled_rows("b.csv", 1) == list(range(36))


def test_quiet_prints_only_warnings(run: Run) -> None:
    hourly("table.csv")
    words = ("impute", "table.csv", "--method", "linear", "--interval", "0")
    assert run(*words, "-o", "a.csv", "--quiet").output == ""
    assert "filled" in run(*words, "-o", "b.csv").output
    assert Path("a.csv").read_bytes() == Path("b.csv").read_bytes()


def test_fit_ends_with_how_far_to_trust_it(run: Run, sensors: Path) -> None:
    result = run("fit", "sensors.csv", "-o", "model", "--id", "sensor", "--epochs", "1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Checked against" in result.output.splitlines()[-3] + result.output.splitlines()[-2]
    plain = run("fit", "sensors.csv", "-o", "line", "--id", "sensor", "--method", "linear")
    assert "Linear holds out no cells that could be checked. To check it, run gpvae evaluate" in plain.output
