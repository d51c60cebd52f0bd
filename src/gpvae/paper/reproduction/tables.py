"""The paper's tables with our numbers below the published ones, and what each of our changes brings."""

import math
from dataclasses import dataclass

from gpvae.paper.reproduction.record import Record, Row, provenance_of
from gpvae.paper.reproduction.runs import LATENT, SEEDS, Run, change_counts, every_run, runs_of, steps_of
from gpvae.paper.tables import ABLATION_TASKS, NOTES, TABLES, Cell, Estimate

QUICK_WARNING = "A small version, to see it work: few series, small networks, two epochs. Its numbers mean nothing."
ABLATION_MEASURES = ("nll", "nll_mixture", "mse", "auroc")


@dataclass(frozen=True)
class Table:
    heading: list[str]
    lines: list[list[str]]
    notes: list[str]  # what the numbers are, and where they come from

    def markdown(self) -> str:
        cells = [self.heading, ["---"] * 2 + ["---:"] * (len(self.heading) - 2), *self.lines]
        rows = [f"| {' | '.join(line)} |\n" for line in cells]
        return "".join([*rows, *(f"\n{note}\n" for note in self.notes)])


def comparison_table(name: str, record: Record, *, quick: bool = False) -> Table:
    """A table of the paper. Below each row of published numbers stands what was measured."""
    cells = TABLES[name]
    columns = list(dict.fromkeys(cell.column for cell in cells))
    lines: list[list[str]] = []
    for row in dict.fromkeys(cell.row for cell in cells):
        by_column = {cell.column: cell for cell in cells if cell.row == row}
        lines += _lines([by_column[column] for column in columns], record, quick=quick)
    used = [row for cell in cells for run in _runs(cell, quick=quick) for row in record.of(run)]
    return Table(["", "", *columns], lines, _notes(name, record, used, quick=quick))


def _lines(cells: list[Cell], record: Record, *, quick: bool) -> list[list[str]]:
    """One row of the paper's table: published, with the paper's settings, with ours; without lines that are empty."""
    lines = list[list[str]]()
    if any(cell.published for cell in cells) or not any(_measured(cell, record, 0, quick=quick) for cell in cells):
        lines.append([cells[0].row, "published", *(_text(cell.published, _digits(cell)) for cell in cells)])
    latent = any(cell.task.method in LATENT for cell in cells)
    for whose, version in (("paper's settings" if latent else "measured", 0), ("ours", 1)):
        measured = [_measured(cell, record, version, quick=quick) for cell in cells]
        if any(measured):
            lines.append(["" if lines else cells[0].row, whose, *measured])
    return lines


def _runs(cell: Cell, *, quick: bool) -> list[Run]:
    """With the paper's settings, and with ours where there are any."""
    return [Run(cell.task, 0, count, quick) for count in change_counts(cell.task)]


def _measured(cell: Cell, record: Record, version: int, *, quick: bool) -> str:
    runs = _runs(cell, quick=quick)[version : version + 1]
    baseline = Run(cell.baseline, 0, 0, quick) if cell.baseline else None
    estimates = [record.average(run, cell.measure, baseline) for run in runs]
    return "".join(_text(estimate, _digits(cell)) for estimate in estimates if estimate)


def ablation_table(record: Record, *, quick: bool = False) -> Table:
    """GP-VAE on some tasks, with one change to the paper's settings after the other."""
    lines, used = list[list[str]](), list[Row]()
    for task in ABLATION_TASKS:
        for name, version in steps_of(task).items():
            run = Run(version[0], 0, version[1], quick)
            estimates = [record.average(run, measure) for measure in ABLATION_MEASURES]
            title = f"{task.data}, {task.mechanism}" if version == (task, 0) else ""
            lines.append([title, name, *(_text(estimate, 4) if estimate else "" for estimate in estimates)])
            used += record.of(run)
    return Table(["", "", *ABLATION_MEASURES], lines, _notes("changes", record, used, quick=quick))


def _notes(name: str, record: Record, used: list[Row], *, quick: bool) -> list[str]:
    return [*([QUICK_WARNING] if quick else []), NOTES[name], *_gaps(name, record, quick=quick), provenance_of(used)]


def _gaps(name: str, record: Record, *, quick: bool) -> list[str]:
    """What the record lacks of the table, and what it has of no table."""
    wanted, others = runs_of(name, SEEDS, quick=quick), record.strays(every_run(quick=quick))
    missing = sum(not record.has(run) for run in wanted)
    notes = [f"{missing} of {len(wanted)} runs, {SEEDS} seeds each, have not been made."] if missing else []
    return [
        *notes,
        *([f"Rows of runs.csv that have other settings and are not used: {len(others)}."] if others else []),
    ]


def _digits(cell: Cell) -> int:
    """Decimal places: as many as the paper prints."""
    return 4 if cell.measure == "nll_per_observed" else 3


def _text(number: Estimate | None, digits: int) -> str:
    if number is None:
        return "–"
    error = "" if math.isnan(number.error) else f" ± {number.error:.{digits}f}"
    return f"{number.value:.{digits}f}{error}"
