"""Fixtures of the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest
from commands import Run
from typer.testing import CliRunner, Result

from gpvae import cli
from gpvae.cli import printing


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `gpvae …` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    # Wide enough that no message is wrapped.
    monkeypatch.setattr(printing.console, "_width", 500)
    monkeypatch.setattr(printing.error_console, "_width", 500)

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


@pytest.fixture(autouse=True)
def brief_corrections(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network of GPNet trains for an instant."""
    from gpvae.training import correction

    monkeypatch.setattr(correction, "FIRST_STEPS", 20)
    monkeypatch.setattr(correction, "ROUNDS", 1)
