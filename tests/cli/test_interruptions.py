"""Commands that are interrupted, or run out of disk space."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Run

import gpvae
from gpvae.training.checkpoint import STAGES


@pytest.mark.parametrize("command", ["fit", "impute"])
def test_full_disk_keeps_the_checkpoint(run: Run, sensors: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """If the result does not fit on the disk, nothing is half written and the checkpoint remains."""
    words = [command, "sensors.csv", "-o", "out.csv", "--id", "sensor", "--epochs", "1", "--device", "cpu"]
    moves = {"replace": os.replace, "link": os.link}

    def failing(name: str) -> Callable[..., None]:
        def move(source: Path, target: Path, **options: Any) -> None:
            if Path(target).name in ("out.csv", "gpvae.json"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            moves[name](source, target, **options)

        return move

    with monkeypatch.context() as patch:
        for name in moves:
            patch.setattr(os, name, failing(name))
        result = run(*words)
    assert result.exit_code == 1
    assert "No space left on device; nothing was changed" in result.output
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv.checkpoint", "sensors.csv"]
    assert run(*words).exit_code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "sensors.csv"]


@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_to_resume_from(sensors: Path) -> None:
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
    assert "Run the same command again to resume from" in " ".join(complaints.split())
    assert checkpoint.exists()
    assert not (folder / "model").exists()
    resumed = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120)
    assert resumed.returncode == 0, resumed.stderr
    assert not checkpoint.exists()
    words[words.index("model")] = "unbroken"
    assert subprocess.run(words, cwd=folder, capture_output=True, timeout=120).returncode == 0
    weights = [(folder / name / "weights.safetensors").read_bytes() for name in ("model", "unbroken")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("words", [["fit", "-o", "model"], ["impute", "-o", "out.csv"]])
def test_checkpoints_of_all_stages_are_removed_at_the_end(
    run: Run, sensors: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    """A forked run has a file for each branch."""
    fit = gpvae.GPVAE.fit

    def forked(self: gpvae.GPVAE, data: object, y: None = None, **places: Any) -> gpvae.GPVAE:
        fitted = fit(self, data, **places)
        for stage in STAGES:
            Path(f"{places['checkpoint']}.{stage}").write_text("")
        return fitted

    monkeypatch.setattr(gpvae.GPVAE, "fit", forked)
    command, *output = words
    result = run(command, "sensors.csv", *output, "--id", "sensor", "--epochs", "1", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert [path for path in Path().iterdir() if ".checkpoint" in path.name] == []
