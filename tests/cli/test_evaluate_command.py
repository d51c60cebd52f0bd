"""`gpvae evaluate` and `gpvae demo`."""

import re
from pathlib import Path

import numpy as np
import pytest
from commands import Run, cells

from gpvae.cli import options


def test_evaluate_prints_all_scores_and_baselines(run: Run, sensors: Path) -> None:
    result = run("evaluate", "sensors.csv", "--id", "sensor", "--epochs", "2", "--device", "cpu")
    assert result.exit_code == 0, result.output
    for word in ("MAE", "MSE", "CRPS", "NLL", "90% interval", "mean", "forward", "linear", "gp-vae"):
        assert word in result.output
    row = next(line for line in result.output.splitlines() if "gp-vae" in line)
    assert (
        len([word for word in row.replace("│", " ").split() if word.strip("%").replace(".", "").lstrip("-").isdigit()])
        == 6
    )


def test_a_preset_is_compared_with_other_methods(run: Run, sensors: Path) -> None:
    words = [
        "--id",
        "sensor",
        "--preset",
        "physionet",
        "--methods",
        "linear,gp-vae",
        "--epochs",
        "1",
        "--device",
        "cpu",
    ]
    result = run("evaluate", "sensors.csv", *words)
    assert result.exit_code == 0, result.output
    assert all(name in result.output for name in ("linear", "gp-vae"))


@pytest.mark.parametrize("gaps", list(options.Gaps))
def test_evaluate_with_gaps_of_every_kind(run: Run, gaps: str) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f}" if i % 11 else f",{b:.3f}" for i, (a, b) in enumerate(rng.normal(size=(150, 2)))]
    Path("table.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    result = run("evaluate", "table.csv", "--methods", "mean,linear", "--gaps", gaps, "--hold-out", "0.2")
    assert result.exit_code == 0, result.output
    assert "hidden cells" in result.output


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
    assert "left unchanged: shift (13 gaps); to fill categories: --method gp-vae --kind shift=categ" in left.output
    kinds = ("--time", "t", "--kind", "load=count,shift=categorical", "--epochs", "3", "--device", "cpu")
    result = run("impute", "shift.csv", "-o", "out.csv", *kinds)
    assert result.exit_code == 0, result.output
    header, *rows = cells(Path("out.csv"))
    assert header == ["t", "load", "shift", "load_lower", "load_upper", "shift_probability"]
    assert {row[2] for row in rows} == {"day", "night"}
    assert all(row[1].isdigit() for row in rows)
    assert all((row[5] != "") == (i % 9 == 4) for i, row in enumerate(rows))
    scores = run("evaluate", "shift.csv", "--methods", "mean,linear,gp-factor,gp-vae", *kinds)
    assert scores.exit_code == 0, scores.output
    assert "categories right" in scores.output
    assert scores.output.count("'shift'") == 1
    assert "Note: GPFactor fills only numbers and leaves 'shift' unchanged; mean," in scores.output
    right = {
        line.split("│")[1].strip(): line.split("│")[-3].strip() for line in scores.output.splitlines() if "│" in line
    }
    assert right["gp-factor"] == "–"
    cells_in_all, categories = map(int, re.findall(r"(\d+) hidden cells, (\d+) of", scores.output)[0])
    margin = 1.96 * (0.9 * 0.1 / (cells_in_all - categories)) ** 0.5
    assert f"share in the interval: at least ± {margin:.1%}" in scores.output
    counts = [round(float(right[name].rstrip("%")) / 100 * categories) for name in ("mean", "linear", "gp-vae")]
    margin = max(1.96 * (count * (categories - count) / categories**3) ** 0.5 for count in counts)
    assert f"share of categories right: at least ± {margin:.1%}" in scores.output
    assert right["mean"].endswith("%")
    assert right["linear"].endswith("%")


def test_demo_writes_tables_and_a_plot(run: Run) -> None:
    result = run("demo", "--minutes", "0.1")
    assert result.exit_code == 0, result.output
    assert "gp-net" in result.output
    assert Path("demo/filled.png").read_bytes().startswith(b"\x89PNG")
    with_gaps, filled = cells(Path("demo/weather.csv")), cells(Path("demo/filled.csv"))
    assert sum(cell == "" for row in with_gaps for cell in row) > 500
    assert all(cell != "" for row in filled for cell in row[:6])
    again = run("demo", "--minutes", "0.1")
    assert again.exit_code == 1
    assert "demo/weather.csv exists already" in again.output


def test_methods_that_draw_are_scored_over_gaps(run: Run) -> None:
    waves = np.sin(np.arange(200) / 5)[:, None] + np.random.default_rng(0).normal(size=(200, 2)) / 10
    Path("waves.csv").write_text("x,y\n" + "".join(f"{a:.3f},{b:.3f}\n" for a, b in waves))
    words = ["evaluate", "waves.csv", "--methods", "linear,gp-factor"]
    result = run(*words, "--gaps", "blocks")
    assert result.exit_code == 0, result.output
    scores, gaps = result.output.split(": do draws hold together?")
    assert re.search(r"\d+ hidden gaps of \d+ to \d+ cells$", scores)
    assert "linear" in scores
    assert "linear" not in gaps
    assert re.search(r"gp-factor(\s*│\s*[\d.]+%){2}(\s*│\s*[\d.]+){3}\s*│\s*-?[\d.]+ / -?[\d.]+", gaps)
    apart = run(*words, "--gaps", "random", "--hold-out", "0.01")
    assert apart.exit_code == 0, apart.output
    assert "4 hidden cells" in apart.output
    assert "gaps" not in apart.output
    assert "gaps" not in run("evaluate", "waves.csv", "--methods", "linear", "--gaps", "blocks").output
