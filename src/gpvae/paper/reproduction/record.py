"""What was measured, kept in a CSV: a row for each run, with where it comes from; and tables made of it."""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpvae import paper
from gpvae.data.files import whole_or_not_at_all
from gpvae.data.panel import DataError
from gpvae.paper import Cell, Published
from gpvae.paper.reproduction.runs import LATENT, Run, versions

Row = dict[str, str]


@dataclass(frozen=True)
class Record:
    path: Path

    def rows(self) -> list[Row]:
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), reader.fieldnames or []
        if columns and not {"data", "gaps", "rate", "method", "changes", "settings", "size", "seed"} <= set(columns):
            raise DataError(f"{self.path} is not a record of runs: it has the columns {', '.join(columns)}")
        return rows

    def has(self, run: Run) -> bool:
        return any(run.key.items() <= row.items() for row in self.rows())

    def add(self, run: Run, measures: Mapping[str, float], provenance: Mapping[str, str]) -> None:
        """One more row; what stands in others is as it was."""
        rows = [row for row in self.rows() if not run.key.items() <= row.items()]
        rows.append({**run.key, **{name: f"{value:.6g}" for name, value in measures.items()}, **provenance})
        names = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
        with (
            whole_or_not_at_all(self.path, force=True) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, names, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def of(self, run: Run) -> list[Row]:
        """The run with all seeds that there are."""
        wanted = {name: value for name, value in run.key.items() if name != "seed"}
        return [row for row in self.rows() if wanted.items() <= row.items()]

    def average(self, run: Run, measure: str) -> Published | None:
        """Mean and standard error over the seeds that there are of a run."""
        numbers = [float(row[measure]) for row in self.of(run) if row.get(measure)]
        if not numbers:
            return None
        error = float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
        return Published(float(np.mean(numbers)), error)


@dataclass(frozen=True)
class Table:
    heading: list[str]
    lines: list[list[str]]
    notes: list[str]  # what the numbers are, and where they come from

    def markdown(self) -> str:
        cells = [self.heading, ["---"] * 2 + ["---:"] * (len(self.heading) - 2), *self.lines]
        rows = [f"| {' | '.join(line)} |\n" for line in cells]
        return "".join([*rows, *(f"\n{note}\n" for note in self.notes)])


def origins(rows: Sequence[Row]) -> str:
    """Where numbers come from, in a line."""
    if not rows:
        return "Nothing has been run."
    names = {"seeds": "seed", "commit": "commit", "on": "hardware", "PyTorch": "torch"}
    found = {name: sorted({row.get(column, "") for row in rows}) for name, column in names.items()}
    return "; ".join(f"{name} {', '.join(values)}" for name, values in found.items()) + "."


def beside(table: str, record: Record, *, quick: bool = False) -> Table:
    """A table of the paper: for each of its rows what was published, and below it what was measured."""
    cells = paper.TABLES[table]
    columns = list(dict.fromkeys(cell.column for cell in cells))
    lines: list[list[str]] = []
    for row in dict.fromkeys(cell.row for cell in cells):
        across = {cell.column: cell for cell in cells if cell.row == row}
        ordered = [across[column] for column in columns]
        lines.append([row, "published", *(_text(cell.published, _digits(cell)) for cell in ordered)])
        latent = any(cell.task.method in LATENT for cell in ordered)
        for whose, ours in (("paper's settings" if latent else "measured", False), ("ours", True)):
            line = [_measured(cell, record, ours=ours, quick=quick) for cell in ordered]
            if any(line):
                lines.append(["", whose, *line])
    used = [row for cell in cells for run in _runs(cell, quick=quick) for row in record.of(run)]
    return Table(["", "", *columns], lines, [*_warning(quick), paper.NOTES[table], origins(used)])


def _warning(quick: bool) -> list[str]:
    small = "A small version, to see it work: few series, small networks, two epochs. Its numbers mean nothing."
    return [small] if quick else []


def _runs(cell: Cell, *, quick: bool) -> list[Run]:
    """With the paper's settings, and with ours where there are any."""
    return [Run(cell.task, 0, count, quick) for count in versions(cell.task)]


def _measured(cell: Cell, record: Record, *, ours: bool, quick: bool) -> str:
    runs = _runs(cell, quick=quick)
    found = record.average(runs[ours], cell.measure) if ours < len(runs) else None
    return "" if found is None else _text(found, _digits(cell))


def what_changes_bring(record: Record, *, quick: bool = False) -> Table:
    """GP-VAE on some tasks, with one change to the paper's settings after the other."""
    measures = ("nll", "nll_mixture", "mse", "auroc")
    lines, used = list[list[str]](), list[Row]()
    for task in paper.LADDERS:
        for count, name in enumerate(["paper's settings", *(f"+ {each.name}" for each in paper.changes(task))]):
            run = Run(task, 0, count, quick)
            found = [record.average(run, measure) for measure in measures]
            lines.append(
                [
                    f"{task.data}, {task.gaps}" if not count else "",
                    name,
                    *(_text(each, 4) if each else "" for each in found),
                ]
            )
            used += record.of(run)
    return Table(["", "", *measures], lines, [*_warning(quick), paper.NOTES["changes"], origins(used)])


def _digits(cell: Cell) -> int:
    """Behind the point: as many as the paper prints."""
    return 4 if cell.measure == "nll_per_observed" else 3


def _text(number: Published | None, digits: int) -> str:
    if number is None:
        return "–"
    error = "" if math.isnan(number.error) else f" ± {number.error:.{digits}f}"
    return f"{number.value:.{digits}f}{error}"
