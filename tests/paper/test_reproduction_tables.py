"""Tables with our numbers below the published ones."""

from pathlib import Path
from typing import cast

import pytest
from stand_ins import CHANGE_COUNTS, FakeExecute, task

from gpvae.evaluation import provenance
from gpvae.paper.reproduction import Record, Run, Table, reproduce, runs_of
from gpvae.paper.reproduction.runs import every_run
from gpvae.paper.reproduction.tables import ablation_table, comparison_table
from gpvae.paper.tables import ABLATION_TASKS, NOTES, TABLES

COUNT = len(runs_of("T3", 1))
COMMITTED = Path(__file__).parents[2] / "results" / "reproduction"


@pytest.mark.parametrize("name", [*TABLES, "changes"])
def test_committed_tables_are_what_the_record_says(name: str) -> None:
    """`gpvae reproduce all --tables-only -o results/reproduction` writes them again."""
    record = Record(COMMITTED / "runs.csv")
    table = ablation_table(record) if name == "changes" else comparison_table(name, record)
    assert (COMMITTED / f"{name}.md").read_text(encoding="utf-8") == table.markdown()


def test_committed_record_has_no_row_of_other_settings() -> None:
    assert Record(COMMITTED / "runs.csv").strays(every_run()) == []


def test_tables_say_what_the_record_lacks_and_what_it_has_of_other_settings(record: Record) -> None:
    record.add(Run(task("physionet2012", "brits"), 1), {"auroc": 0.5}, {})
    assert (
        f"{3 * COUNT - 1} of {3 * COUNT} runs, 3 seeds each, have not been made."
        in comparison_table("T3", record).notes
    )
    text = record.path.read_text().replace(Run(task("physionet2012", "brits"), 0).digest, "01234567")
    record.path.write_text(text)
    notes = comparison_table("T3", record).notes
    assert "Rows of runs.csv that have other settings and are not used: 1." in notes
    assert notes[-1] == "Nothing has been run."


def test_tables_are_written_again_from_the_record_alone(executed: FakeExecute, tmp_path: Path) -> None:
    reproduce(["T3", "F3"], tmp_path, seeds=1)
    made, written = len(executed.done), (tmp_path / "T3.md").read_bytes()
    for name in ("T3.md", "F3.png"):
        (tmp_path / name).unlink()
    reproduce(["T3", "F3", "T1"], tmp_path, train=False)
    assert len(executed.done) == made
    assert (tmp_path / "T3.md").read_bytes() == written
    assert (tmp_path / "F3.png").exists()
    assert "Nothing has been run" in (tmp_path / "T1.md").read_text(encoding="utf-8")


def test_a_table_is_written_as_markdown(executed: FakeExecute, tmp_path: Path) -> None:
    table = reproduce(["T3"], tmp_path, seeds=2)["T3"]
    measured, papers = (
        f"|  | {whose} | 0.505 ± 0.005 | 0.000 ± 0.000 |  |  |" for whose in ("measured", "paper's settings")
    )
    ours = "|  | ours | 0.905 ± 0.005 | 0.400 ± 0.000 |  |  |"
    origin = provenance.describe()
    text = (tmp_path / "T3.md").read_text(encoding="utf-8")
    assert text.splitlines() == [
        "|  |  | AUROC | minus mean imputation's | AUROC, ten divisions | minus mean imputation's, ten divisions |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        *("| mean imputation | published | 0.703 ± 0.000 | 0.000 ± 0.000 | – | – |", measured),
        *("| forward imputation | published | 0.710 ± 0.000 | 0.007 ± 0.000 | – | – |", measured),
        *("| GP | published | 0.704 ± 0.007 | 0.001 ± 0.007 | – | – |", measured),
        *("| VAE | published | 0.677 ± 0.002 | -0.026 ± 0.002 | – | – |", papers),
        *("| HI-VAE | published | 0.686 ± 0.010 | -0.017 ± 0.010 | – | – |", papers, ours),
        *("| GRUI-GAN | published | 0.702 ± 0.009 | -0.001 ± 0.009 | – | – |", measured),
        *("| BRITS | published | 0.742 ± 0.008 | 0.039 ± 0.008 | – | – |", measured),
        measured.replace("|  |", "| BRITS, taught the first half's labels |", 1),
        measured.replace("|  |", "| BRITS, taught all labels |", 1),
        *("| GP-VAE | published | 0.730 ± 0.006 | 0.027 ± 0.006 | – | – |", papers, ours),
        measured.replace("|  |", "| today's default (gp-net) |", 1),
        *("", NOTES["T3"], "", f"{COUNT} of {3 * COUNT} runs, 3 seeds each, have not been made.", ""),
        f"seeds 0, 1; commit {origin['commit']}; on {origin['hardware']}; PyTorch {origin['torch']}.",
    ]
    assert isinstance(table, Table)
    assert table.markdown() == text


def test_tables_by_method_and_by_task(executed: FakeExecute, tmp_path: Path) -> None:
    made = reproduce(["T1", "T2", "S5"], tmp_path, seeds=1)
    t1, t2, s5 = (cast(Table, table).lines for table in made.values())
    assert t1[0] == ["mean imputation", "published", "–", "0.168 ± 0.000", "0.938 ± 0.000", "0.013 ± 0.000"]
    assert t1[1] == ["", "measured", "0.500", "0.050", "0.500", "0.050"]
    assert t1[-2] == ["", "paper's settings", "0.500", "0.050", "0.500", "0.050"]
    digits, sprites = (0.5 + 0.1 * CHANGE_COUNTS[data] for data in ("healing_mnist", "sprites"))  # see FakeExecute
    assert t1[-1] == ["", "ours", f"{digits:.3f}", f"{digits / 10:.3f}", f"{digits:.3f}", f"{sprites / 10:.3f}"]
    assert t2[0][:4] == ["random", "published", "0.069 ± 0.000", "0.099 ± 0.000"]
    assert t2[2] == ["", "ours", "", "", "", *["0.090"] * 2, ""]  # four changes
    assert s5[-3] == ["not at random", "published", "0.4798 ± 0.0016", "0.2896 ± 0.0010", "0.2606 ± 0.0008"]
    assert s5[-2] == ["", "paper's settings", "0.0050", "0.0050", "0.0050"]


def test_the_table_of_changes_has_a_line_for_each(executed: FakeExecute, tmp_path: Path) -> None:
    table = reproduce(["changes"], tmp_path, seeds=1)["changes"]
    assert isinstance(table, Table)
    assert table.heading[2:] == ["nll", "nll_mixture", "mse", "auroc"]
    assert table.lines[0] == ["healing_mnist, random", "paper's settings", "0.5000", "", "0.0500", "0.5000"]
    assert table.lines[1] == ["", "the same with our posterior", "0.5000", "", "0.0500", "0.5000"]
    assert table.lines[3] == ["", "+ β rises over the first third of training", "0.7000", "", "0.0700", "0.7000"]
    assert table.lines[6] == ["", "all of them with our posterior", "0.9000", "", "0.0900", "0.9000"]
    assert table.lines[7][:2] == ["healing_mnist, not-at-random", "paper's settings"]
    assert [line[0] for line in table.lines if line[0]] == [f"{each.data}, {each.mechanism}" for each in ABLATION_TASKS]


def test_without_runs_a_table_has_the_published_numbers_only(record: Record) -> None:
    table = comparison_table("T1", record)
    assert [line[1] for line in table.lines] == ["published"] * 5


@pytest.mark.parametrize(("method", "row"), [("vae", []), ("hi-vae", ["HI-VAE"])])
def test_only_methods_with_changes_have_a_line_of_ours(method: str, row: list[str], record: Record) -> None:
    record.add(Run(task("physionet2012", method), 0, 4), {"auroc": 0.5}, {})
    lines = comparison_table("T3", record).lines
    assert [lines[i - 1][0] for i, line in enumerate(lines) if line[1] == "ours"] == row


def test_quick_and_full_runs_do_not_mix(executed: FakeExecute, tmp_path: Path) -> None:
    quick = reproduce(["T3"], tmp_path, seeds=1, quick=True)["T3"]
    written = (tmp_path / "quick" / "T3.md").read_bytes()
    assert all(run.quick for run in executed.done)
    full = reproduce(["T3"], tmp_path, seeds=2)["T3"]
    assert [run.quick for run in executed.done].count(False) == 2 * len(runs_of("T3", 1))
    assert isinstance(quick, Table)
    assert isinstance(full, Table)
    assert ["", "paper's settings", "0.500", "0.000", "", ""] in quick.lines
    assert ["", "paper's settings", "0.505 ± 0.005", "0.000 ± 0.000", "", ""] in full.lines
    assert not any("0.500" in line for line in full.lines)
    assert b"numbers mean nothing" in written
    assert b"numbers mean nothing" not in (tmp_path / "T3.md").read_bytes()
    assert (tmp_path / "quick" / "T3.md").read_bytes() == written
