"""`gpvae stream`, and `gpvae impute --causal`."""

import csv
import io
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from commands import Run, cells
from typer.testing import CliRunner, Result

import gpvae
from gpvae import cli

HEADER = "when,temp,note,power\n"


@pytest.fixture(scope="module")
def table() -> Any:
    """Two stations, row by row, with gaps."""
    rng, steps = np.random.default_rng(0), np.arange(60)
    parts = []
    for station in ("north", "south"):
        x = 20 + np.sin(steps[:, None] / 4 + [0, 1]) * [3, 10] + 0.2 * rng.normal(size=(60, 2))
        x[rng.random(x.shape) < 0.2] = np.nan
        when = pd.date_range("2024-03-01", periods=60, freq="h").strftime("%Y-%m-%dT%H:%M")
        parts.append(pd.DataFrame({"when": when, "temp": x[:, 0].round(1), "note": "a, b", "power": x[:, 1].round(2)}))
        parts[-1]["station"] = station
    return pd.concat(parts).sort_values("when", kind="stable")


@pytest.fixture(scope="module")
def models(table: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `one`, of a table with a single series, and `two`."""
    folder = tmp_path_factory.mktemp("models")
    panel = gpvae.Panel.from_frame(dated(table), id="station", time="when")
    gpvae.GPFactor().fit(panel).save(folder / "two")
    north = table[table["station"] == "north"].drop(columns="station")
    gpvae.GPFactor().fit(gpvae.Panel.from_frame(dated(north), time="when")).save(folder / "one")
    return folder


def dated(table: Any) -> Any:
    return table.assign(when=pd.to_datetime(table["when"]))


def stream(text: str | bytes, *words: object) -> Result:
    return CliRunner().invoke(cli.app, ["stream", *map(str, words)], input=text)


def parsed(text: str, separator: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), delimiter=separator))


def as_csv(table: Any) -> str:
    return table.to_csv(index=False)


def test_lines_are_filled_and_the_rest_is_unchanged(table: Any, models: Path, tmp_path: Path) -> None:
    result = stream(as_csv(table), models / "two")
    assert result.exit_code == 0, result.output
    (header, *rows), (_, *given) = parsed(result.stdout), parsed(as_csv(table))
    assert header == [*table.columns, "temp_lower", "temp_upper", "power_lower", "power_upper"]
    panel = gpvae.Panel.from_frame(dated(table), id="station", time="when")
    expected = gpvae.load(models / "two").impute(panel, samples=1, causal=True).mean
    for row, old, filled in zip(rows, given, expected, strict=True):
        for j, mean, ends in ((1, filled[0], row[5:7]), (3, filled[1], row[7:9])):
            if old[j]:
                assert row[j] == old[j]
                assert ends == ["", ""]
            else:
                assert float(row[j]) == pytest.approx(mean, abs=0.006)  # written to a thousandth of a deviation
                assert float(ends[0]) < float(row[j]) < float(ends[1])
        assert [row[0], row[2], row[4]] == [old[0], old[2], old[4]]


def test_state_is_saved_and_resumed(table: Any, models: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    whole = stream(as_csv(table), models / "two").stdout.splitlines()
    first = stream(as_csv(table[:71]), models / "two", "--state", state).stdout.splitlines()
    second = stream(as_csv(table[71:]), models / "two", "--state", state).stdout.splitlines()
    assert [*first, *second[1:]] == whole
    fresh = stream(as_csv(table[71:]), models / "two").stdout.splitlines()
    assert fresh[1:] != second[1:]
    north = tmp_path / "north"
    stream("when,temp,power\n2024-03-01,20,25\n", models / "one", "--state", north)
    model = gpvae.GPFactor.load(models / "one")
    assert model.stream(resume=north).rows == 1


def test_broken_line_is_named_and_the_state_before_it_is_kept(models: Path, tmp_path: Path) -> None:
    start = "when,temp,power\n2024-03-01T00:00,20,25\n2024-03-01T01:00,,21\n"
    result = stream(
        start + "2024-03-01T02:00,wet,21\n2024-03-01T03:00,1,2\n", models / "one", "--state", tmp_path / "s"
    )
    assert result.exit_code == 1
    assert result.stderr == "Error: line 4: column 'temp' must be numeric, got 'wet'\n"
    assert result.stdout.splitlines() == stream(start, models / "one").stdout.splitlines()
    assert gpvae.GPFactor.load(models / "one").stream(resume=tmp_path / "s").rows == 2


ROW = "2024-03-01T00:00,20,a,25\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input is empty: its first line must be the header"),
        (HEADER + ROW + "2024-03-01T01:00,1\n", "line 3: expected 4 cells as in the header, got 2"),
        (HEADER + "\n" + ROW + "2024-02-01T01:00,1,,\n", "line 4: times must increase, but 2024-02-01 01:00:00 follow"),
        (HEADER + "soon,1,,\n", "line 2: a time must be a date or time, such as 2024-03-01T06:00, got 'soon'"),
        (HEADER + ROW.replace("20,", "1_0,"), "line 2: column 'temp' must be numeric, got '1_0'"),
        (HEADER + ROW.replace("20,", "inf,"), "line 2: infinite value in column 'temp'"),
        ("when,temp\n", "the model was fitted on the columns temp, power; the header lacks power"),
        ("temp,power\n", "there is no column 'when'; the columns are temp, power"),
        ("when,temp,power,temp\n", "two columns are named 'temp'; rename one"),
        ("when,temp,power,temp_lower\n", "two columns are named 'temp_lower'; rename one"),
        (HEADER.encode() + b"\xff\n", "line 2 is not UTF-8 text"),
    ],
)
def test_bad_lines_give_a_one_line_error(models: Path, text: str | bytes, message: str) -> None:
    result = stream(text, models / "one")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {message}")
    assert len(result.stderr.splitlines()) == 1


def test_missing_id_and_other_names(table: Any, models: Path) -> None:
    result = stream("station,when,temp,power\n,2024-03-01,1,2\n", models / "two")
    assert "line 2: the id in column 'station' is missing" in result.stderr
    renamed = table.rename(columns={"station": "who", "when": "t"})
    result = stream(as_csv(renamed), models / "two", "--id", "who", "--time", "t")
    plain = stream(as_csv(table), models / "two")
    assert result.stdout.splitlines()[1:] == plain.stdout.splitlines()[1:]


def test_format_of_the_input_is_kept(models: Path) -> None:
    text = "\ufeffwhen;temp;power\r\n2024-03-01T00:00;20,5;25\r\n2024-03-01T01:00;;NA\r\n"
    result = stream(text.encode(), models / "one", "--interval", "0")
    assert result.exit_code == 0, result.output
    header, first, second = result.stdout_bytes.decode().split("\r\n")[:-1]
    assert (header, first) == ("when;temp;power", "2024-03-01T00:00;20,5;25")
    assert [float(cell.replace(",", ".")) for cell in second.split(";")[1:]] == pytest.approx([20.5, 25], abs=3)
    assert second.count(",") == 2


def test_other_models_and_states_are_refused(models: Path, tmp_path: Path) -> None:
    gpvae.Linear().fit(np.arange(6.0).reshape(3, 2)).save(tmp_path / "linear")
    result = stream("", tmp_path / "linear")
    assert result.exit_code == 1
    assert "holds a Linear, which does not fill rows as they arrive; fit one by `gpvae fit" in result.stderr
    (tmp_path / "state").write_text("1,2")
    result = stream(HEADER + ROW, models / "one", "--state", tmp_path / "state")
    assert result.exit_code == 1
    assert "is not the state of a stream" in result.stderr
    assert (tmp_path / "state").read_text() == "1,2"
    assert "there is no folder" in stream(HEADER, models / "one", "--state", tmp_path / "no" / "state").stderr


def started(models: Path, *words: object) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "gpvae", "stream", str(models / "one"), *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_lines_are_written_at_once_and_the_state_at_the_end(
    models: Path, tmp_path: Path, number: int, code: int
) -> None:
    with started(models, "--state", tmp_path / "state") as process:
        assert process.stdin
        assert process.stdout
        for line in (HEADER, ROW):
            process.stdin.write(line.encode())
            process.stdin.flush()
            assert process.stdout.readline().startswith(line.strip().encode())
        process.send_signal(number)
        assert process.wait(timeout=60) == code
    assert gpvae.GPFactor.load(models / "one").stream(resume=tmp_path / "state").rows == 1


def test_closed_pipe_ends_it_quietly(models: Path, tmp_path: Path) -> None:
    with started(models, "--state", tmp_path / "state") as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write((HEADER + ROW).encode())
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(ROW.replace("T00", "T01").encode())
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 128 + signal.SIGPIPE
    assert gpvae.GPFactor.load(models / "one").stream(resume=tmp_path / "state").rows == 1  # of those that were read


CAUSAL = ("impute", "table.csv", "--method", "gp-factor", "--causal", "--time", "when", "--id", "station")


def test_impute_causal_knows_nothing_of_later_rows(run: Run, table: Any) -> None:
    later = (pd.to_datetime(table["when"]) >= "2024-03-02T12:00").to_numpy()
    table.to_csv("table.csv", index=False)
    assert run(*CAUSAL, "--fit-until", "2024-03-02T00:00", "-o", "one.csv").exit_code == 0
    changed = table.copy()
    changed.loc[later, ["temp", "power"]] = (changed.loc[later, ["power", "temp"]].to_numpy() * 5).round(1)
    changed.to_csv("table.csv", index=False)
    result = run(*CAUSAL, "--fit-until", "2024-03-02T00:00", "-o", "two.csv")
    assert result.exit_code == 0, result.output
    one, two = (np.array(cells(Path(name))[1:]) for name in ("one.csv", "two.csv"))
    assert np.array_equal(one[~later], two[~later])
    assert not np.array_equal(one[later], two[later])


def test_impute_causal_by_a_model(run: Run, table: Any, models: Path) -> None:
    table.to_csv("table.csv", index=False)
    words = ("impute", "table.csv", "--model", str(models / "two"))
    for name, option in (("all.csv", []), ("past.csv", ["--causal"])):
        assert run(*words, *option, "-o", name).exit_code == 0
    assert cells(Path("all.csv")) != cells(Path("past.csv"))


def test_fit_until_without_causal_fills_all_rows(run: Run, table: Any) -> None:
    table.to_csv("table.csv", index=False)
    words = ("impute", "table.csv", "--method", "mean", "--time", "when", "--id", "station", "-o", "out.csv")
    result = run(*words, "--fit-until", "2024-03-02")
    assert result.exit_code == 0, result.output
    assert "" not in [cell for row in cells(Path("out.csv")) for cell in row]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--causal", "--causal: gp-net does not fill from the past alone; methods that do: forward, gp-factor"),
        ("--causal --method linear --fit-until 2024-03-02", "--causal: linear does not fill from the past alone"),
        ("--causal --method forward --conformal", "--causal: forward --conformal does not fill from the past alone"),
        ("--causal --method gp-factor", "--causal: a method that is fitted on the whole table has learned from later"),
        ("--fit-until 2024-02-01 --method forward", "--fit-until: there is no row before 2024-02-01"),
        ("--fit-until soon --method forward", "--fit-until: a time must be a date or time, such as 2024-03-01T06:00"),
        ("--model m --fit-until 2024-02-01", "--model loads a trained imputer, so it cannot be combined with --method"),
    ],
)
def test_options_that_do_not_go_together(run: Run, table: Any, words: str, message: str) -> None:
    table.to_csv("table.csv", index=False)
    result = run("impute", "table.csv", "--id", "station", "--time", "when", "-o", "out.csv", *words.split())
    assert result.exit_code == 1
    assert f"Error: {message}" in result.output
    assert not Path("out.csv").exists()
