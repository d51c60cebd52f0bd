"""What was measured, kept in a CSV: a row for each run, with where it comes from; and tables made of it."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpvae import paper
from gpvae.files import whole_or_not_at_all
from gpvae.panel import DataError
from gpvae.paper import Cell, Published
from gpvae.reproduction.runs import CHANGED, Run

Row = dict[str, str]


@dataclass(frozen=True)
class Record:
    path: Path

    def rows(self) -> list[Row]:
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), reader.fieldnames or []
        if columns and not Run(paper.TABLES["T1"][0].task, 0).key.keys() <= set(columns):
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

    def average(self, run: Run, measure: str) -> Published | None:
        """Mean and standard error over the seeds that there are of a run."""
        wanted = {name: value for name, value in run.key.items() if name != "seed"}
        rows = [row for row in self.rows() if wanted.items() <= row.items()]
        numbers = [float(row[measure]) for row in rows if row.get(measure)]
        if not numbers:
            return None
        error = float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
        return Published(float(np.mean(numbers)), error)


@dataclass(frozen=True)
class Table:
    heading: list[str]
    lines: list[list[str]]

    def markdown(self) -> str:
        cells = [self.heading, ["---"] * 2 + ["---:"] * (len(self.heading) - 2), *self.lines]
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def beside(table: str, record: Record, *, quick: bool = False) -> Table:
    """A table of the paper: for each of its rows what was published, and below it what was measured."""
    cells = paper.TABLES[table]
    columns = list(dict.fromkeys(cell.column for cell in cells))
    lines: list[list[str]] = []
    for row in dict.fromkeys(cell.row for cell in cells):
        across = {cell.column: cell for cell in cells if cell.row == row}
        ordered = [across[column] for column in columns]
        lines.append([row, "published", *(_text(cell.published, _digits(cell)) for cell in ordered)])
        for whose, ours in (("paper's settings", False), ("ours", True)):
            line = [_measured(cell, record, ours=ours, quick=quick) for cell in ordered]
            if any(line):
                lines.append(["", whose, *line])
    return Table(["", "", *columns], lines)


def _measured(cell: Cell, record: Record, *, ours: bool, quick: bool) -> str:
    if ours and cell.task.method not in CHANGED:
        return ""
    changes = len(paper.CHANGES[cell.task.data]) if ours else 0
    found = record.average(Run(cell.task, 0, changes, quick), cell.measure)
    return "" if found is None else _text(found, _digits(cell))


def what_changes_bring(record: Record, *, quick: bool = False) -> Table:
    """GP-VAE on each data set, with one change to the paper's settings after the other."""
    measures = ("nll", "nll_mixture", "mse", "auroc")
    lines: list[list[str]] = []
    for data, changes in paper.CHANGES.items():
        for count, name in enumerate(["paper's settings", *(f"+ {change.name}" for change in changes)]):
            run = Run(paper.laddered(data), 0, count, quick)
            found = [record.average(run, measure) for measure in measures]
            lines.append([data if not count else "", name, *(_text(each, 4) if each else "" for each in found)])
    return Table(["", "", *measures], lines)


def _digits(cell: Cell) -> int:
    """Behind the point: as many as the paper prints."""
    return 4 if cell.measure == "nll_per_observed" else 3


def _text(number: Published | None, digits: int) -> str:
    if number is None:
        return "–"
    error = "" if math.isnan(number.error) else f" ± {number.error:.{digits}f}"
    return f"{number.value:.{digits}f}{error}"
