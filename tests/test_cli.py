"""The command line, as a person meets it."""

import csv
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from gpvae import cli, missingness
from gpvae.imputers import registry as methods

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`gpvae …` in an empty folder, on the CPU."""
    monkeypatch.chdir(tmp_path)
    # Wide enough that no message is folded.
    monkeypatch.setattr(cli.console, "_width", 500)
    monkeypatch.setattr(cli.complaints, "_width", 500)

    def command(*words: str) -> Result:
        return CliRunner().invoke(cli.app, list(words))

    return command


@pytest.fixture
def sensors(tmp_path: Path) -> Path:
    """Two sensors, rows shuffled, a text column, gaps."""
    rng = np.random.default_rng(0)
    lines = [
        [
            name,
            f"2024-03-{day + 1:02d}T06:00",
            f"{20 + 3 * np.sin(day / 3):.1f}",
            f"{round(50 + 9 * np.cos(day / 3))}",
            note,
        ]
        for name, note in (("north", "old, repaired"), ("south", "new"))
        for day in range(28)
    ]
    for line in lines:
        if rng.random() < 0.3:
            line[2 + rng.integers(2)] = rng.choice(["", "NA"])
    rng.shuffle(lines)
    path = tmp_path / "sensors.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["sensor", "when", "temp", "humidity", "note"], *lines])
    return path


def cells(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_impute_fills_every_hole_and_leaves_the_rest(run: Run, sensors: Path) -> None:
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
    assert "left as they are: humidity (with 11 gaps), note" in result.output
    filled: Any = pd.read_parquet("filled.parquet")
    assert not filled["temp"].isna().any()
    pd.testing.assert_frame_equal(
        filled[["sensor", "when", "humidity", "note"]], frame[["sensor", "when", "humidity", "note"]]
    )


def test_evaluate_prints_every_score_beside_the_baselines(run: Run, sensors: Path) -> None:
    result = run("evaluate", "sensors.csv", "--id", "sensor", "--epochs", "2", "--device", "cpu")
    assert result.exit_code == 0, result.output
    for word in ("MAE", "MSE", "CRPS", "NLL", "90% interval", "mean", "forward", "linear", "gp-vae"):
        assert word in result.output
    row = next(line for line in result.output.splitlines() if "gp-vae" in line)
    assert (
        len([word for word in row.replace("│", " ").split() if word.strip("%").replace(".", "").lstrip("-").isdigit()])
        == 6
    )


def test_demo_writes_tables_and_a_picture(run: Run) -> None:
    result = run("demo", "--epochs", "1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "gp-vae" in result.output
    assert Path("demo/filled.png").read_bytes().startswith(b"\x89PNG")
    with_gaps, filled = cells(Path("demo/weather.csv")), cells(Path("demo/filled.csv"))
    assert sum(cell == "" for row in with_gaps for cell in row) > 500
    assert all(cell != "" for row in filled for cell in row[:6])
    again = run("demo", "--epochs", "1")
    assert again.exit_code == 1
    assert "demo/weather.csv exists already" in again.output


@pytest.mark.parametrize("command", ["impute", "fit", "evaluate"])
def test_help_teaches_by_example(run: Run, command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert f"gpvae {command} " in result.output


def test_version(run: Run) -> None:
    from importlib.metadata import version

    assert run("--version").output.strip() == f"gpvae {version('gpvae')}"


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
        ("impute ragged.csv -o out.csv", "ragged.csv, line 3: 1 cells where the header has 2"),
        ("impute text.csv -o out.csv", "text.csv: the table has no numeric column"),
        ("impute good.csv -o out.csv --id patient", "good.csv: there is no column 'patient'"),
        ("impute good.csv -o out.csv --time hour", "there is no column 'hour'"),
        ("impute good.csv -o out.csv --columns x,y", "there is no column 'y'"),
        ("impute two.csv -o out.csv --time t", "two.csv: two rows with the same time: t 1"),
        ("impute times.csv -o out.csv --time day", "the time 'soon' in column 'day', row 2"),
        ("impute infinite.csv -o out.csv --time t", "infinite value in column 'x', t 2"),
        ("impute good.csv -o good.csv", "good.csv exists already and is kept"),
        ("impute good.csv -o nowhere/out.csv", "cannot write nowhere/out.csv: there is no folder nowhere"),
        ("impute good.csv -o out.xlsx", "out.xlsx: the name must end in"),
        (
            "impute good.csv -o out.csv --samples 5",
            "end of the 0.9 interval, needs at least 19 samples, not 5",
        ),
        ("impute good.csv -o out.csv --model nowhere", "there is no model folder nowhere"),
        ("impute good.csv -o out.csv --model m --epochs 3", "--model brings a method that is trained"),
        ("impute good.csv -o out.csv --model m --method brits", "--model brings a method that is trained"),
        ("impute good.csv -o out.csv --method linear --interval 0.5", "Linear gives single values, without intervals"),
        (
            "impute good.csv -o out.csv --method linear --kind x=count",
            "--kind is for vae, hi-vae, gp-vae, and if it is a category for mean, forward, linear; linear takes",
        ),
        ("impute good.csv -o out.csv --method brits --kind x=categorical", "brits takes numbers for real ones"),
        ("impute good.csv -o out.csv --method brits --preset physionet", "--preset is for gp-vae, not for brits"),
        ("impute good.csv -o out.csv --kind x", "--kind: 'x' is not NAME=kind, such as visits=count"),
        ("impute good.csv -o out.csv --kind x=wet", "the kind of column 'x' is one of real, positive"),
        ("impute good.csv -o out.csv --kind y=count", "kinds names a column 'y'"),
        ("impute good.csv -o out.csv --kind y=categorical", "there is no column 'y'"),
        (
            "evaluate good.csv --methods linear,brits --kind x=count",
            "--kind is for vae, hi-vae, gp-vae, and if it is a category for mean, forward, linear; linear takes",
        ),
        ("evaluate good.csv --methods linear,magic", "--methods: 'magic' is not a valid Method; there are mean"),
        ("impute good.csv -o out.csv --preset sprites", "image_shape (3, 64, 64) has 12288 values"),
        ("fit good.csv -o good.csv", "good.csv exists already and is kept"),
        ("fit good.csv -o good.csv --force", "good.csv is not a model, so it is not replaced"),
        ("evaluate good.csv --hold-out 0", "must lie between 0 and 1"),
        ("reproduce nonsense", "there is no table or figure 'nonsense'; there are T1, T2, T3, S4, S5, F2, F3, changes"),
        ("reproduce T3 -o good.csv", "the folder good.csv cannot be made: File exists"),
    ],
)
def test_bad_input_is_one_line_that_names_the_culprit(run: Run, words: str, message: str) -> None:
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


@pytest.mark.parametrize("command", ["fit", "impute"])
def test_full_disk_loses_nothing(run: Run, sensors: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """No room for the result: nothing half written, and the checkpoint of the fit is still there."""
    words = [command, "sensors.csv", "-o", "out.csv", "--id", "sensor", "--epochs", "1", "--device", "cpu"]
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if Path(target).name == "out.csv":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr("gpvae.data.files.os.replace", full)
        result = run(*words)
    assert result.exit_code == 1
    assert "No space left on device; nothing was changed" in result.output
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv.checkpoint", "sensors.csv"]
    assert run(*words).exit_code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "sensors.csv"]


def test_a_bad_date_is_not_passed_over_in_silence(run: Run) -> None:
    days = ["2024-01-01", "2024-13-45", "2024-01-03", "2024-01-04"]
    Path("bad.csv").write_text("day,x\n" + "".join(f"{day},{i}\n" for i, day in enumerate(days)) + "2024-01-05,\n")
    result = run("impute", "bad.csv", "-o", "out.csv", "--epochs", "1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "Note: not used as the time: the time '2024-13-45' in column 'day', row 2" in result.output


def test_model_remembers_which_columns_told_series_and_times(run: Run, sensors: Path) -> None:
    frame = pd.read_csv(sensors).rename(columns={"when": "moment"}).assign(day=range(56))
    frame.drop(columns="moment").to_csv("numbered.csv", index=False)
    options = ["--id", "sensor", "--time", "day", "--epochs", "1", "--device", "cpu"]
    assert run("fit", "numbered.csv", "-o", "model", *options).exit_code == 0
    result = run("impute", "numbered.csv", "-o", "out.csv", "--model", "model", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "2 series" in result.output
    assert "time: day" in result.output


def test_name_clash_is_found_before_training(run: Run) -> None:
    Path("clash.csv").write_text("x,x_lower\n1,2\n,3\n4,5\n")
    result = run("impute", "clash.csv", "-o", "out.csv", "--epochs", "100000")
    assert result.exit_code == 1
    assert "already has a column named 'x_lower'" in result.output


def test_notes_are_printed_and_do_not_stop_the_work(run: Run) -> None:
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


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_ctrl_c_leaves_a_checkpoint_that_the_same_command_goes_on_from(sensors: Path) -> None:
    folder = sensors.parent
    words = [sys.executable, "-m", "gpvae", "fit", "sensors.csv", "-o", "model", "--id", "sensor", "--epochs", "60"]
    words += ["--device", "cpu"]
    process = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    checkpoint = folder / "model.checkpoint"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in " ".join(complaints.split())
    assert checkpoint.exists()
    assert not (folder / "model").exists()
    resumed = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert not checkpoint.exists()
    words[words.index("model")] = "unbroken"
    assert subprocess.run(words, cwd=folder, capture_output=True, timeout=120).returncode == 0
    weights = [(folder / name / "weights.safetensors").read_bytes() for name in ("model", "unbroken")]
    assert weights[0] == weights[1]


def test_column_that_one_cell_makes_text_is_pointed_out(run: Run) -> None:
    lines = [f"{i},{'abc' if i == 7 else i * 2}" for i in range(30)]
    Path("table.csv").write_text("x,y\n" + "\n".join(lines) + "\n")
    result = run("evaluate", "table.csv", "--methods", "linear")
    assert result.exit_code == 0, result.output
    assert "Note: column 'y' is text, and left as it is: it holds 'abc' in row 8" in result.output


def test_methods_and_gaps_are_those_of_the_library() -> None:
    assert {method.value for method in cli.Method} == set(methods.NAMES)
    assert {gaps.value for gaps in cli.Gaps} == set(missingness.MECHANISMS) - {"spatial"}  # for images


@pytest.mark.parametrize("gaps", list(cli.Gaps))
def test_evaluate_with_gaps_of_every_kind(run: Run, gaps: str) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f}" if i % 11 else f",{b:.3f}" for i, (a, b) in enumerate(rng.normal(size=(150, 2)))]
    Path("table.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    result = run("evaluate", "table.csv", "--methods", "mean,linear", "--gaps", gaps, "--hold-out", "0.2")
    assert result.exit_code == 0, result.output
    assert "hidden cells" in result.output


def test_data_sets_are_listed_and_fetched(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GPVAE_DATA", raising=False)
    listed = run("datasets")
    assert listed.exit_code == 0, listed.output
    for word in ("healing_mnist", "sprites", "physionet2012", "ett_h1", "to be"):
        assert word in listed.output
    wrong = run("datasets", "imagenet")
    assert wrong.exit_code == 1
    assert "Error: there is no data set 'imagenet'; there are healing_mnist, sprites" in wrong.output


@pytest.mark.parametrize("command", ["impute sensors.csv -o out.csv", "evaluate sensors.csv"])
def test_an_interval_in_per_cent_is_told_what_it_should_be(run: Run, sensors: Path, command: str) -> None:
    result = run(*command.split(), "--interval", "90")
    assert result.exit_code == 2
    assert "0.9 is" in result.output
    assert "not at 90" in result.output


@pytest.mark.parametrize("method", ["linear", "gp", "brits"])
def test_another_method_with_conformal_intervals(run: Run, sensors: Path, method: str) -> None:
    settings = ("--id", "sensor", "--epochs", "2", "--device", "cpu")
    result = run(
        "impute", "sensors.csv", "--method", method, "--conformal", "--interval", "0.5", "-o", "a.csv", *settings
    )
    assert result.exit_code == 0, result.output
    assert "with 50% intervals: a.csv" in result.output
    plain = run("impute", "sensors.csv", "--method", method, "-o", "b.csv", *settings)
    assert plain.exit_code == 0, plain.output
    said = "gives single values, without intervals; --conformal puts some around them" in plain.output
    assert said == (method != "gp")
    assert len(cells(Path("b.csv"))[0]) == len(cells(Path("a.csv"))[0]) - (0 if method == "gp" else 4)


def test_impute_ends_with_how_far_to_trust_it(run: Run) -> None:
    rng, day = np.random.default_rng(0), np.arange(400)
    table = np.stack([np.sin(day / 5), np.cos(day / 5)], axis=1) + 0.1 * rng.standard_normal((400, 2))
    frame = pd.DataFrame(table.round(3), columns=["a", "b"]).mask(rng.random((400, 2)) < 0.2)
    frame.assign(c=np.where(table[:, 0] > 0, "up", "down")).mask(rng.random((400, 3)) < 0.1).to_csv("waves.csv")
    words = ("impute", "waves.csv", "--kind", "c=categorical", "--epochs", "3", "--device", "cpu")
    told = run(*words, "-o", "out.csv").output.splitlines()
    assert re.match(r"How far to trust it, by \d+ known cells that had been kept aside:", told[-4]), told
    assert re.match(r"GPVAE is off by \d\.\d\d standard deviations", told[-3]), told
    assert re.match(r"Of \d+ cells that it had kept aside, [\d.]+ % lie in their 90 % interval", told[-2]), told
    assert re.match(r"c: \d+ % of \d+ held-out cells got the right category; .* the nearest in time in", told[-1]), told
    bare = run(*words, "-o", "bare.csv", "--interval", "0").output
    assert "GPVAE is off by" in bare
    assert "interval" not in bare
    plain = run("impute", "waves.csv", "-o", "line.csv", "--method", "linear").output  # keeps no cells aside
    assert plain.splitlines()[-1].startswith("filled ") or "Note:" in plain.splitlines()[-1]
    assert "off by" not in plain


def test_model_of_another_method(run: Run, sensors: Path) -> None:
    settings = ("--id", "sensor", "--epochs", "2", "--device", "cpu")
    assert run("fit", "sensors.csv", "--method", "brits", "--conformal", "-o", "model", *settings).exit_code == 0
    result = run("impute", "sensors.csv", "--model", "model", "--interval", "0.5", "-o", "out.csv")
    assert result.exit_code == 0, result.output
    assert "with 50% intervals" in result.output


def test_categories_are_filled_and_scored(run: Run) -> None:
    lines = [
        f"{i},{i % 7 if i % 5 else ''},{'' if i % 9 == 4 else 'day' if i % 7 < 4 else 'night'}" for i in range(120)
    ]
    Path("shift.csv").write_text("t,load,shift\n" + "\n".join(lines) + "\n")
    by_hand = run("impute", "shift.csv", "-o", "last.csv", "--method", "forward", "--kind", "shift=categorical")
    assert by_hand.exit_code == 0, by_hand.output
    header, *rows = cells(Path("last.csv"))
    assert header == ["t", "load", "shift"]
    assert [row[2] for row in rows][3:5] == ["day", "day"]
    left = run("impute", "shift.csv", "-o", "left.csv", "--method", "linear")
    assert "left as they are: shift (with 13 gaps)" in left.output
    kinds = ("--time", "t", "--kind", "load=count,shift=categorical", "--epochs", "3", "--device", "cpu")
    result = run("impute", "shift.csv", "-o", "out.csv", *kinds)
    assert result.exit_code == 0, result.output
    header, *rows = cells(Path("out.csv"))
    assert header == ["t", "load", "shift", "load_lower", "load_upper", "shift_probability"]
    assert {row[2] for row in rows} == {"day", "night"}
    assert all(row[1].isdigit() for row in rows)
    assert all((row[5] != "") == (i % 9 == 4) for i, row in enumerate(rows))
    scores = run("evaluate", "shift.csv", "--methods", "mean,linear,gp,gp-vae", *kinds)
    assert scores.exit_code == 0, scores.output
    assert "categories" in scores.output
    assert scores.output.count("column 'shift' is not one that") == 1
    assert "column 'shift' is not one that GP was fitted to" in scores.output
    right = {
        line.split("│")[1].strip(): line.split("│")[-3].strip() for line in scores.output.splitlines() if "│" in line
    }
    assert right["gp"] == "–"
    cells_in_all, categories = map(int, re.findall(r"(\d+) hidden cells, (\d+) of", scores.output)[0])
    margin = 1.96 * (0.9 * 0.1 / (cells_in_all - categories)) ** 0.5
    assert f"shares in the interval differ by ± {margin:.1%}" in scores.output
    counts = [round(float(right[name].rstrip("%")) / 100 * categories) for name in ("mean", "linear", "gp-vae")]
    margin = max(1.96 * (count * (categories - count) / categories**3) ** 0.5 for count in counts)
    assert f"shares of categories right differ by ± {margin:.1%}" in scores.output
    assert right["mean"].endswith("%")
    assert right["linear"].endswith("%")


def test_a_table_without_gaps_comes_back_at_once(run: Run) -> None:
    Path("whole.csv").write_text("t,x,y\n" + "".join(f"{i},{i % 7},{i % 5}\n" for i in range(60)))
    Path("out[b]1.csv.checkpoint").touch()
    result = run("impute", "whole.csv", "-o", "out[b]1.csv")
    assert result.exit_code == 0, result.output
    assert "nothing to fill, so nothing learned; as it was: out[b]1.csv" in result.output
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--method linear --interval 0.5", "Linear gives single values"),
        ("--method brits --preset physionet", "--preset is for gp-vae"),
        ("--kind x=wet", "the kind of column 'x' is one of"),
        ("--kind x=positive", "column 'x' is positive, so it holds numbers above 0, not 0"),
        ("--samples 2", "needs at least 19 samples, not 2"),
    ],
)
def test_options_are_checked_though_there_are_no_gaps(run: Run, options: str, message: str) -> None:
    Path("whole.csv").write_text("t,x\n" + "".join(f"{i},{i % 7}\n" for i in range(60)))
    result = run("impute", "whole.csv", "-o", "out.csv", *options.split())
    assert result.exit_code == 1
    assert message in result.output
    assert not Path("out.csv").exists()


def test_report_does_not_take_the_place_of_the_table(run: Run) -> None:
    Path("table.csv").write_text("x\n1\n\n3\n4\n")
    before = Path("table.csv").read_bytes()
    for command in (["impute", "table.csv", "-o", "out.csv", "--method", "linear"], ["evaluate", "table.csv"]):
        result = run(*command, "--report", "table.csv", "--force")
        assert result.exit_code == 1
        assert "--report: table.csv is another file of this command" in result.output
    assert Path("table.csv").read_bytes() == before
    assert not Path("out.csv").exists()
