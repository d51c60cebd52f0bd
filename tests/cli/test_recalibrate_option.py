"""`--recalibrate`: the intervals of a model, set by another table."""

from pathlib import Path

import numpy as np
from commands import Run, cells


def noisy(path: str, noise: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    lines = [f"{t},{np.sin(t / 9) + noise * rng.normal():.3f}," for t in range(1500)]
    gaps = [
        line + ("" if t % 50 == 9 else f"{np.cos(t / 9) + noise * rng.normal():.3f}") for t, line in enumerate(lines)
    ]
    Path(path).write_text("hour,a,b\n" + "\n".join(gaps) + "\n")


def width(path: str) -> float:
    rows = [row for row in cells(Path(path))[1:] if row[3]]
    assert len(rows) == 30
    return float(np.mean([float(row[4]) - float(row[3]) for row in rows]))


def test_intervals_are_those_of_the_new_table(run: Run) -> None:
    noisy("old.csv", 0.05, 0)
    noisy("new.csv", 0.4, 1)
    assert run("fit", "old.csv", "--time", "hour", "-o", "model").exit_code == 0
    words = ("impute", "new.csv", "--model", "model")
    assert run(*words, "-o", "a.csv").exit_code == 0
    result = run(*words, "--recalibrate", "-o", "b.csv")
    assert result.exit_code == 0, result.output
    assert width("b.csv") > 2 * width("a.csv")


def test_other_models_and_training_are_refused(run: Run) -> None:
    noisy("old.csv", 0.05, 0)
    assert run("fit", "old.csv", "--time", "hour", "--method", "linear", "-o", "model").exit_code == 0
    result = run("impute", "old.csv", "--model", "model", "--recalibrate", "-o", "a.csv")
    assert result.exit_code == 1
    assert "--recalibrate works only with models of gp-net, not of Linear" in result.output
    result = run("impute", "old.csv", "--recalibrate", "-o", "a.csv")
    assert result.exit_code == 1
    assert "--recalibrate is for --model" in result.output
