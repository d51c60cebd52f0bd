"""Errors, notes and help."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from commands import Run

from gpvae import missingness
from gpvae.cli import options
from gpvae.cli.methods import METHODS
from gpvae.imputers import registry


@pytest.mark.parametrize("command", ["impute", "fit", "stream", "evaluate"])
def test_help_has_an_example(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"gpvae {command} " in result.output


def test_unknown_method_is_refused(run: Run) -> None:
    result = run("impute", "table.csv", "-o", "out.csv", "--method", "magic")
    assert result.exit_code == 2
    assert "unknown method 'magic'; choose from mean" in result.output


def test_version(run: Run) -> None:
    from importlib.metadata import version

    assert run("--version").output.strip() == f"gpvae {version('gpvae')}"


def test_methods_and_gaps_match_the_library() -> None:
    assert METHODS is registry.METHODS
    assert {gaps.value for gaps in options.Gaps} == set(missingness.MECHANISMS) - {"spatial"}  # for images


def test_datasets_are_listed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GPVAE_DATA", raising=False)
    listed = run("datasets")
    assert listed.exit_code == 0, listed.output
    for word in ("healing_mnist", "sprites", "physionet2012", "ett_h1", "to be"):
        assert word in listed.output
    wrong = run("datasets", "imagenet")
    assert wrong.exit_code == 1
    assert "Error: there is no data set 'imagenet'; the data sets are healing_mnist, sprites" in wrong.output


BAD_TABLES = {
    "two.csv": "t,x\n1,5\n1,6\n",
    "infinite.csv": "t,x\n1,5\n2,inf\n",
    "text.csv": "name,word\na,b\n",
    "times.csv": "day,x\n2020-01-01,1\nsoon,2\n",
    "ragged.csv": "a,b\n1,2\n3\n",
    "empty.csv": "",
    "good.csv": "t,x\n1,5\n2,\n3,7\n",
}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("impute nowhere.csv -o out.csv", "there is no file nowhere.csv"),
        ("impute empty.csv -o out.csv", "empty.csv is empty"),
        ("impute ragged.csv -o out.csv", "ragged.csv, line 3: expected 2 cells as in the header, got 1"),
        ("impute text.csv -o out.csv", "text.csv: the table has no numeric column"),
        ("impute good.csv -o out.csv --id patient", "good.csv: there is no column 'patient'"),
        ("impute good.csv -o out.csv --time hour", "there is no column 'hour'"),
        ("impute good.csv -o out.csv --columns x,y", "there is no column 'y'"),
        ("impute two.csv -o out.csv --time t", "two.csv: two rows have the same time: t 1"),
        ("impute times.csv -o out.csv --time day", "the time 'soon' in column 'day', row 2"),
        ("impute infinite.csv -o out.csv --time t", "infinite value in column 'x', t 2"),
        ("impute good.csv -o good.csv", "good.csv exists already"),
        ("impute good.csv -o nowhere/out.csv", "cannot write nowhere/out.csv: there is no folder nowhere"),
        ("impute good.csv -o out.ods", "out.ods: the name must end in"),
        (
            "impute good.csv -o out.csv --samples 5",
            "end of the 0.9 interval, needs at least 19 samples, got 5",
        ),
        ("impute good.csv -o out.csv --model nowhere", "there is no model folder nowhere"),
        (
            "impute good.csv -o out.csv --model m --epochs 3",
            "--model loads a trained imputer, so it cannot",
        ),
        (
            "impute good.csv -o out.csv --model m --method brits",
            "--model loads a trained imputer, so it cannot",
        ),
        ("impute good.csv -o out.csv --method linear --interval 0.5", "Linear gives single values without intervals"),
        (
            "impute good.csv -o out.csv --method linear --kind x=count",
            "--kind needs one of vae, hi-vae, gp-vae (for numbers also gp-net; for categories also mean,",
        ),
        ("impute good.csv -o out.csv --method brits --kind x=categorical", "brits treats every column as real numbers"),
        (
            "impute good.csv -o out.csv --method brits --preset physionet",
            "works only with gp-vae, not with brits",
        ),
        ("impute good.csv -o out.csv --kind x", "--kind: 'x' is not NAME=kind, such as visits=count"),
        ("impute good.csv -o out.csv --kind x=wet", "the kind of column 'x' must be one of real, positive"),
        ("impute good.csv -o out.csv --kind y=count", "kinds names a column 'y'"),
        ("impute good.csv -o out.csv --kind y=categorical", "there is no column 'y'"),
        (
            "evaluate good.csv --methods linear,brits --kind x=count",
            "--kind needs one of vae, hi-vae, gp-vae (for numbers also gp-net; for categories also mean,",
        ),
        ("evaluate good.csv --methods linear,magic", "--methods: unknown method 'magic'; choose from mean"),
        ("impute good.csv -o out.csv --preset sprites", "frames of shape (3, 64, 64) have 12288 values"),
        ("fit good.csv -o good.csv", "good.csv exists already"),
        ("fit good.csv -o good.csv --force", "good.csv is not a model, so it is not replaced"),
        ("evaluate good.csv --hold-out 0", "must be between 0 and 1"),
        (
            "reproduce nonsense",
            "there is no table or figure 'nonsense'; there are T1, T2, T3, S4, S5, smoothness, F2, F3, changes",
        ),
        ("reproduce T3 -o good.csv", "the folder good.csv cannot be made: File exists"),
    ],
)
def test_bad_input_gives_a_one_line_error(run: Run, words: str, message: str) -> None:
    for name, text in BAD_TABLES.items():
        Path(name).write_text(text)
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    result = run(*words.split())
    assert result.exit_code == 1, result.output
    errors = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in result.output
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--method linear --interval 0.5", "Linear gives single values"),
        ("--method brits --preset physionet", "--preset works only with gp-vae"),
        ("--kind x=wet", "the kind of column 'x' must be one of"),
        ("--method gp-vae --kind x=positive", "column 'x' is positive, so it must hold numbers above 0, got 0"),
        ("--kind x=binary", "column 'x' is binary, so it must have 2 different values, got 7"),
        ("--samples 2", "needs at least 19 samples, got 2"),
    ],
)
def test_options_are_checked_even_without_gaps(run: Run, options: str, message: str) -> None:
    Path("whole.csv").write_text("t,x\n" + "".join(f"{i},{i % 7}\n" for i in range(60)))
    result = run("impute", "whole.csv", "-o", "out.csv", *options.split())
    assert result.exit_code == 1
    assert message in result.output
    assert not Path("out.csv").exists()


@pytest.mark.parametrize("command", ["impute sensors.csv -o out.csv", "evaluate sensors.csv"])
def test_interval_in_per_cent_is_refused(run: Run, sensors: Path, command: str) -> None:
    result = run(*command.split(), "--interval", "90")
    assert result.exit_code == 2
    assert "0.9 is" in result.output
    assert "got 90" in result.output


def test_report_does_not_overwrite_the_table(run: Run) -> None:
    Path("table.csv").write_text("x\n1\n\n3\n4\n")
    before = Path("table.csv").read_bytes()
    for command in (["impute", "table.csv", "-o", "out.csv", "--method", "linear"], ["evaluate", "table.csv"]):
        result = run(*command, "--report", "table.csv", "--force")
        assert result.exit_code == 1
        assert "--report: table.csv is already used by this command" in result.output
    assert Path("table.csv").read_bytes() == before
    assert not Path("out.csv").exists()


def test_bad_date_is_pointed_out(run: Run) -> None:
    days = ["2024-01-01", "2024-13-45", "2024-01-03", "2024-01-04"]
    Path("bad.csv").write_text("day,x\n" + "".join(f"{day},{i}\n" for i, day in enumerate(days)) + "2024-01-05,\n")
    result = run("impute", "bad.csv", "-o", "out.csv", "--epochs", "1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Note: not used as the time column: the time '2024-13-45' in column 'day', row 2" in result.output


def test_column_with_one_text_cell_is_pointed_out(run: Run) -> None:
    lines = [f"{i},{'abc' if i == 7 else i * 2}" for i in range(30)]
    Path("table.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    result = run("evaluate", "table.csv", "--methods", "linear")
    assert result.exit_code == 0, result.output
    assert "Note: column 'y' is text and left unchanged: it holds 'abc' in row 8" in result.output


def test_name_clash_is_found_before_training(run: Run) -> None:
    Path("clash.csv").write_text("x,x_lower\n1,2\n,3\n4,5\n")
    result = run("impute", "clash.csv", "-o", "out.csv", "--epochs", "100000")
    assert result.exit_code == 1
    assert "already has a column named 'x_lower'" in result.output


def test_warnings_are_printed_as_notes(run: Run) -> None:
    rows = [f"{t},{t % 7},3," for t in range(40)]
    rows[5], rows[9] = "5,,3,", "9,2,,"
    Path("notes.csv").write_text("t,x,still,never\n" + "\n".join(rows) + "\n")
    result = run("impute", "notes.csv", "-o", "out.csv", "--time", "t", "--epochs", "1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Note: column 'never' has no observed value: it stays missing" in result.output
    assert "Note: column 'still' is constant" in result.output
    filled: Any = pd.read_csv("out.csv")
    assert filled["never"].isna().all()
    assert (filled["still"] == 3).all()
    assert filled["x"].notna().all()
