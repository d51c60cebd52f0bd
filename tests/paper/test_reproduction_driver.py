"""`reproduce`: only missing runs are made, finished ones survive failures, and the command reports what it did."""

import csv
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch
from stand_ins import FakeExecute
from typer.testing import CliRunner

from gpvae import DataError, Masking, cli
from gpvae.cli import printing
from gpvae.evaluation import provenance
from gpvae.paper import presets
from gpvae.paper.reproduction import NAMES, Outcome, Record, Run, driver, reproduce, runs_of, workers
from gpvae.training.config import TrainingError

pytestmark = pytest.mark.usefixtures("blank_figures")
COUNT = len(runs_of("T3", 1))


def test_only_missing_runs_are_made(executed: FakeExecute, tmp_path: Path) -> None:
    lines: list[str] = []
    reproduce(["T3"], tmp_path, seeds=2, report=lines.append)
    assert len(executed.done) == len(set(executed.done)) == 2 * COUNT
    assert lines[0] == f"{2 * COUNT} runs, 0 of them done before"
    assert lines[-1].startswith(f"{2 * COUNT}/{2 * COUNT}  physionet2012, random 0.1, ")
    assert any("gp-vae, 4 changes, seed 1: nll 0.91, mse 0.091, auroc 0.91" in line for line in lines)
    reproduce(["T3", "F3"], tmp_path, seeds=2)
    assert len(executed.done) == 2 * COUNT
    reproduce(["T3"], tmp_path, seeds=3)
    assert {run.seed for run in executed.done[2 * COUNT :]} == {2}
    assert len(executed.done) == 3 * COUNT


def test_a_run_without_its_example_is_made_again(executed: FakeExecute, tmp_path: Path) -> None:
    reproduce(["T3"], tmp_path, seeds=2)
    lost = next((tmp_path / "examples").glob("*brits_0_*"))
    lost.unlink()
    reproduce(["F3"], tmp_path)
    assert [(run.task.method, run.seed) for run in executed.done[2 * COUNT :]] == [("brits", 0)]
    assert lost.exists()
    assert len(Record(tmp_path / "runs.csv").rows()) == 2 * COUNT


def test_a_run_with_other_settings_is_another_run(
    executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many changes as before, but not the same ones."""
    reproduce(["T3"], tmp_path, seeds=1)
    ours = next(run for run in executed.done if run.changes and run.task.method == "gp-vae")
    settings = json.loads((tmp_path / "settings" / f"{ours.digest}.json").read_text())
    assert settings["settings"]["recipe"]["masking"]["cells"] == [0.3, 0.3]
    *others, last = presets.CHANGES["physionet2012"]
    changes = (*others, replace(last, settings={"recipe.masking": Masking(cells=(0.5, 0.5))}))
    monkeypatch.setattr(presets, "CHANGES", {**presets.CHANGES, "physionet2012": changes})
    reproduce(["T3"], tmp_path, seeds=1)
    assert [run.task.method for run in executed.done[COUNT:]] == ["hi-vae", "gp-vae"]


def test_runs_with_the_same_gaps_follow_each_other(executed: FakeExecute, tmp_path: Path) -> None:
    reproduce(["T1", "T2"], tmp_path, seeds=2)
    gaps = [(run.seed, run.task.data, run.task.mechanism, run.task.rate) for run in executed.done]
    changes = 1 + sum(first != second for first, second in pairwise(gaps))
    assert changes == len(set(gaps)) == 2 * 6


def test_a_failed_run_is_named_and_the_others_are_kept(executed: FakeExecute, tmp_path: Path) -> None:
    executed.fails_at = 7
    with pytest.raises(TrainingError, match=r"^physionet2012, random 0.1, brits, 0 changes, seed 0: .*out of memory$"):
        reproduce(["T3", "F3"], tmp_path, seeds=1)
    assert len(Record(tmp_path / "runs.csv").rows()) == COUNT - 1
    assert "| BRITS | published | 0.742 ± 0.008 | 0.039 ± 0.008 | – | – |\n| " in (tmp_path / "T3.md").read_text(
        encoding="utf-8"
    )
    assert not (tmp_path / "F3.png").exists()
    reproduce(["T3", "F3"], tmp_path, seeds=1)
    assert len(executed.done) == len(set(executed.done)) == COUNT
    assert (tmp_path / "F3.png").exists()


def test_an_interrupted_command_writes_tables_of_the_finished_runs(
    executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(run: Run, *, device: str, verbose: bool) -> Outcome:
        if run.task.method == "gp":
            raise KeyboardInterrupt
        return executed(run)

    monkeypatch.setattr(workers, "execute", interrupted)
    with pytest.raises(KeyboardInterrupt):
        reproduce(["T3"], tmp_path, seeds=1)
    assert (tmp_path / "T3.md").read_text(encoding="utf-8").count("measured") == 2


@pytest.mark.parametrize("names", [["T4"], ["T3", "nonsense"], ["all"]])
def test_an_unknown_name_is_refused_before_anything_is_done(names: list[str], tmp_path: Path) -> None:
    message = f"there is no table or figure '{names[-1]}'; there are T1, T2, T3, S4, S5, smoothness, F2, F3, changes"
    with pytest.raises(DataError, match=message):
        reproduce(names, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_missing_device_or_data_set_is_an_error_before_the_first_run(
    executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, **_: object) -> None:
        raise DataError(f"there are no files of {name}")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainingError, match="PyTorch finds no CUDA GPU"):
        reproduce(["T3"], tmp_path / "new", device="cuda")
    assert not (tmp_path / "new").exists()
    monkeypatch.setattr(driver, "load", missing)
    with pytest.raises(DataError, match="there are no files of physionet2012"):
        reproduce(["T3"], tmp_path)
    assert not executed.done


def test_a_second_command_on_the_same_folder_is_refused(
    executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second_command(*_: object, **__: object) -> Outcome:
        monkeypatch.setattr(workers, "execute", executed)
        reproduce(["T3"], tmp_path, seeds=1)
        raise AssertionError

    monkeypatch.setattr(workers, "execute", second_command)
    with pytest.raises(TrainingError, match="another command is writing to"):
        reproduce(["T3"], tmp_path, seeds=1)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads in place of processes: they start at once and see what is patched."""
    monkeypatch.setattr(workers, "ProcessPoolExecutor", lambda jobs, context: ThreadPoolExecutor(jobs))


@pytest.mark.usefixtures("threads")
def test_several_jobs_make_the_same_record(executed: FakeExecute, tmp_path: Path) -> None:
    records: list[list[tuple[str, ...]]] = []
    for jobs in (1, 3):
        reproduce(["T3"], tmp_path / str(jobs), seeds=2, jobs=jobs)
        records.append(sorted(tuple(row.values()) for row in Record(tmp_path / str(jobs) / "runs.csv").rows()))
    assert records[0] == records[1]
    assert (tmp_path / "1" / "T3.md").read_bytes() == (tmp_path / "3" / "T3.md").read_bytes()
    assert len(list((tmp_path / "3" / "examples").iterdir())) == len(runs_of("F3", 1))
    reproduce(["T1"], tmp_path / "3", seeds=1, jobs=50)  # more jobs than runs


@pytest.mark.usefixtures("threads")
def test_a_failure_stops_neither_the_job_beside_it_nor_those_after_it(
    executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    both_run = Barrier(2)

    def one_fails(run: Run, *, device: str, verbose: bool) -> Outcome:
        started.append(run.task.method)
        if len(started) <= 2:
            both_run.wait(10)
            if run.task.method == "mean":
                raise RuntimeError("out of memory")
        return executed(run)

    monkeypatch.setattr(workers, "execute", one_fails)
    with pytest.raises(TrainingError, match=r"mean, 0 changes, seed 0: RuntimeError: out of memory"):
        reproduce(["T3"], tmp_path, seeds=1, jobs=2)
    assert len(started) == COUNT
    assert {row["method"] for row in Record(tmp_path / "runs.csv").rows()} == set(started) - {"mean"}


def test_a_row_carries_its_provenance(executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPVAE_COMMIT", "v1-2-gabc")
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)  # has no git history
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    monkeypatch.setattr(driver, "make_fabric", lambda *_: None)
    reproduce(["T3"], tmp_path, seeds=1)
    with (tmp_path / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == COUNT
    assert {row["commit"] for row in rows} == {"v1-2-gabc"}
    assert {row["hardware"] for row in rows} == {"a card"}
    assert all(row[name] for row in rows for name in ("date", "python", "torch"))


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(printing.console, "_width", 200)
    monkeypatch.setattr(printing.error_console, "_width", 200)
    return lambda *arguments: CliRunner().invoke(cli.app, ["reproduce", *arguments])


def test_the_command_prints_tables_and_names_files(executed: FakeExecute, command: Callable[..., Any]) -> None:
    result = command("T3", "F3", "--quick", "--seeds", "2", "--output", "a[b]", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert {run.seed for run in executed.done} == {0, 1}
    assert all(run.quick for run in executed.done)
    for text in (
        f"{2 * COUNT} runs, 0 of them done before",
        "minus mean imputation's",
        "0.742 ± 0.008",
        "0.905 ± 0.005",
        "a[b]/quick/T3.md",
    ):
        assert text in result.output
    assert f"F3: {Path('a[b]') / 'quick' / 'F3.png'}" in result.output
    written = sorted(path.name for path in Path("a[b]/quick").iterdir())
    assert written == [".lock", "F3.png", "T3.md", "examples", "runs.csv", "settings"]


def test_all_makes_every_table_and_figure(executed: FakeExecute, command: Callable[..., Any]) -> None:
    result = command("t3", "all", "--quick", "--seeds", "1")
    assert result.exit_code == 0, result.output
    made = {path.stem for path in Path("reproduction/quick").iterdir() if path.suffix in (".md", ".png")}
    assert made == set(NAMES)


def test_ctrl_c_says_how_to_continue(
    executed: FakeExecute, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "execute", interrupted)
    result = command("T3")
    assert result.exit_code == 130
    assert "the same command again to continue; finished runs are in reproduction" in result.output
