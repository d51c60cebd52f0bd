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


def test_a_second_run_is_told_who_writes(run: Run, sensors: Path) -> None:
    """Before it reads, let alone trains."""
    command = "from gpvae.data.atomic import claim; from pathlib import Path\n"
    command += "with claim(Path('out.csv')): print('held', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        for words in (["impute", "--method", "linear"], ["fit"]):
            result = run(*words, "sensors.csv", "-o", "out.csv")
            assert result.exit_code == 1
            assert f"out.csv is being written by another run (process {other.pid} on " in result.output
        other.kill()
    assert run("impute", "--method", "linear", "sensors.csv", "--id", "sensor", "-o", "out.csv").exit_code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["out.csv", "sensors.csv"]


def test_more_samples_than_memory_holds(run: Run, sensors: Path) -> None:
    words = ("impute", "sensors.csv", "-o", "out.csv", "--id", "sensor", "--samples", "1000000000")
    result = run(*words, "--epochs", "100000")
    assert result.exit_code == 1
    assert "1,000,000,000 samples of 18 cells take 72 GB" in result.output
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")]
)
def test_no_memory_is_one_line(run: Run, sensors: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(gpvae.Linear, "_fill", fail)
    result = run("impute", "sensors.csv", "-o", "out.csv", "--id", "sensor", "--method", "linear")
    assert result.exit_code == 1
    assert result.output.splitlines()[-1].startswith("Error: not enough memory: use fewer --samples")


PIPES = pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")


@PIPES
def test_a_closed_pipe_is_no_error(sensors: Path) -> None:
    words = [sys.executable, "-m", "gpvae", "impute", "sensors.csv", "-o", "out.csv", "--method", "linear"]
    words += ["--id", "sensor"]
    with subprocess.Popen(words, cwd=sensors.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        complaints = process.stderr.read().decode()
    assert process.returncode == 128 + signal.SIGPIPE
    assert "Error" not in complaints
    assert "Traceback" not in complaints
    assert [path.name for path in sensors.parent.iterdir()] == ["sensors.csv"]


@PIPES
def test_a_terminal_that_knows_ascii_only(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("when,温度\n1,2.5\n2,\n3,4.5\n4,4\n5,3\n6,2\n", encoding="utf-8")
    words = [sys.executable, "-m", "gpvae", "impute", "a.csv", "-o", "out.csv", "--method", "linear", "--columns"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "200"}
    for column, code in (("温度", 0), ("湿度", 1)):
        run = subprocess.run([*words, column, "--force"], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == code, run.stderr
        assert "Traceback" not in run.stderr
    assert "there is no column '??'" in run.stderr
