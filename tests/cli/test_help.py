"""`gpvae help`, completion of the shell, and `--dry-run`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Run

import gpvae
from gpvae.imputers.registry import METHODS


def test_help_is_that_of_the_option(run: Run) -> None:
    for words in ([], ["impute"], ["stream"]):
        asked, option = run("help", *words), run(*words, "--help")
        assert asked.exit_code == option.exit_code == 0
        assert asked.output.split() == option.output.replace("Usage: root", "Usage: gpvae").split()
    assert "No such command 'impuet'" in run("help", "impuet").output


@pytest.mark.parametrize(
    ("line", "expected"), [("gpvae ev", {"evaluate"}), ("gpvae impute x.csv --method gp-", {*METHODS} & {"gp-net"})]
)
def test_the_shell_completes_commands_and_methods(line: str, expected: set[str]) -> None:
    words = line.split()
    complete = {"_GPVAE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    program = "from gpvae.cli import app; app(prog_name='gpvae')"
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | complete, capture_output=True, text=True, check=False
    )
    assert expected <= {*done.stdout.split()}, done.stderr
    assert all(word.startswith(words[-1]) for word in done.stdout.split())


def test_a_dry_run_says_what_would_be_done_and_writes_nothing(run: Run, sensors: Path) -> None:
    before = {*sensors.parent.iterdir()}
    options = ["--id", "sensor", "--time", "when", "-o", "filled.csv", "--report", "report.html"]
    done = run("impute", str(sensors), *options, "--dry-run")
    assert done.exit_code == 0, done.output
    panel = gpvae.read(sensors, id="sensor", time="when")
    cells = int((~panel.observed).sum())
    assert f"would fill {cells} cells in " in done.output
    assert f"  temp: {int((~panel.observed[:, 0]).sum())} cells in " in done.output
    assert "would use GPNet: about 10 seconds to a few minutes" in done.output
    assert "would write filled.csv, report.html; nothing is written now" in done.output
    assert {*sensors.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "linear"], "would use Linear: a few seconds at most"),
        (["--method", "gp-factor"], "would use GPFactor: about 10 seconds"),
        (["--method", "gp-vae"], "would use GPVAE: minutes on a GPU"),
        (["--minutes", "2"], "minutes"),
        (["--only", "temp"], "in other columns empty"),
    ],
)
def test_the_plan_follows_the_options(run: Run, sensors: Path, options: list[str], said: str) -> None:
    named = ["--id", "sensor", "--time", "when", "-o", "filled.csv", "--dry-run"]
    assert said in run("impute", str(sensors), *named, *options).output


def test_a_dry_run_finds_mistakes(run: Run, sensors: Path) -> None:
    done = run("impute", str(sensors), "-o", "filled.csv", "--id", "sensr", "--dry-run")
    assert done.exit_code == 1
    assert "there is no column 'sensr'" in done.output
    Path("filled.csv").write_text("mine")
    done = run("impute", str(sensors), "-o", "filled.csv", "--id", "sensor", "--time", "when", "--dry-run")
    assert "exists already" in done.output


def test_a_dry_run_with_a_saved_model_trains_nothing(run: Run, sensors: Path) -> None:
    named = ["--id", "sensor", "--time", "when"]
    assert run("fit", str(sensors), *named, "--method", "linear", "-o", "model").exit_code == 0
    done = run("impute", str(sensors), "--model", "model", "-o", "filled.csv", "--dry-run")
    assert "would use Linear: it is trained already" in done.output
