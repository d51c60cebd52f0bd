"""The results folder: a CSV with one row for each run and its provenance, the settings, and examples for figures."""

import csv
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpvae.data.atomic import atomic_write
from gpvae.data.panel import DataError
from gpvae.paper.reproduction.experiment import Example, Outcome
from gpvae.paper.reproduction.runs import Run, in_figures
from gpvae.paper.tables import Estimate

Row = dict[str, str]
KEY = {"data", "gaps", "rate", "method", "changes", "settings", "size", "seed"}


@dataclass(frozen=True)
class Record:
    """A CSV file with the measures of every run."""

    path: Path

    def rows(self) -> list[Row]:
        if not self.path.exists():
            return []
        with self.path.open(newline="", encoding="utf-8", errors="replace") as file:
            reader = csv.DictReader(file)
            rows, columns = list(reader), reader.fieldnames or []
        if columns and not set(columns) >= KEY:
            raise DataError(f"{self.path} is not a record of runs: it has the columns {', '.join(columns)}")
        return rows

    def has(self, run: Run) -> bool:
        return any(run.key.items() <= row.items() for row in self.rows())

    def add(self, run: Run, measures: Mapping[str, float], provenance: Mapping[str, str]) -> None:
        """Add a row, in place of an earlier one of the same run."""
        rows = [row for row in self.rows() if not run.key.items() <= row.items()]
        rows.append({**run.key, **{name: f"{value:.6g}" for name, value in measures.items()}, **provenance})
        columns = dict.fromkeys(name for row in sorted(rows, key=len, reverse=True) for name in row)
        with (
            atomic_write(self.path, force=True) as partial,
            partial.open("w", newline="", encoding="utf-8") as file,
        ):
            writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def of(self, run: Run) -> list[Row]:
        """The rows of a run, of every seed."""
        wanted = {name: value for name, value in run.key.items() if name != "seed"}
        return [row for row in self.rows() if wanted.items() <= row.items()]

    def strays(self, runs: Iterable[Run]) -> list[Row]:
        """Rows that belong to none of these runs, of any seed."""
        keys = [{name: value for name, value in run.key.items() if name != "seed"} for run in runs]
        return [row for row in self.rows() if not any(key.items() <= row.items() for key in keys)]

    def average(self, run: Run, measure: str, baseline: Run | None = None) -> Estimate | None:
        """Mean and standard error over the seeds in the record; of the difference to a baseline, seed by seed."""
        measured = self._by_seed(run, measure)
        if baseline is not None:
            subtracted = self._by_seed(baseline, measure)
            measured = {seed: value - subtracted[seed] for seed, value in measured.items() if seed in subtracted}
        numbers = list(measured.values())
        if not numbers:
            return None
        error = float(np.std(numbers, ddof=1)) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
        return Estimate(float(np.mean(numbers)), error)

    def _by_seed(self, run: Run, measure: str) -> dict[str, float]:
        return {row["seed"]: float(row[measure]) for row in self.of(run) if row.get(measure)}


@dataclass(frozen=True)
class Results:
    """Everything that is kept of the runs in a folder."""

    folder: Path

    @property
    def record(self) -> Record:
        return Record(self.folder / "runs.csv")

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """The runs that still have to be made: figures need the examples of theirs, too."""
        shown = set(in_figures())
        needed = [(run, replace(run, quick=False) in shown) for run in runs]
        return [run for run, drawn in needed if not (self.record.has(run) and (not drawn or self.has_example(run)))]

    def keep(self, run: Run, outcome: Outcome, provenance: Mapping[str, str]) -> None:
        """The row in the record comes last: it marks the run as done."""
        if replace(run, quick=False) in in_figures():
            self._keep_example(run, outcome.example)
        settings = self.folder / "settings" / f"{run.digest}.json"
        settings.parent.mkdir(exist_ok=True)
        settings.write_text(json.dumps(run.settings, indent=1) + "\n", encoding="utf-8")
        self.record.add(run, outcome.measures, provenance)

    def has_example(self, run: Run) -> bool:
        return self._example_path(run).exists()

    def example(self, run: Run) -> Example:
        with np.load(self._example_path(run), allow_pickle=False) as arrays:
            return Example(**arrays)

    def _keep_example(self, run: Run, example: Example) -> None:
        path = self._example_path(run)
        path.parent.mkdir(exist_ok=True)
        arrays = {name: value for name, value in vars(example).items() if value is not None}
        with atomic_write(path, force=True) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **arrays)

    def _example_path(self, run: Run) -> Path:
        return self.folder / "examples" / f"{'_'.join(run.key.values()).replace(', ', '-')}.npz"


def provenance_of(rows: Sequence[Row]) -> str:
    """Where the numbers of these rows come from, in one line."""
    if not rows:
        return "Nothing has been run."
    columns = {"seeds": "seed", "commit": "commit", "on": "hardware", "PyTorch": "torch"}
    values = {name: sorted({row.get(column, "") for row in rows}) for name, column in columns.items()}
    return "; ".join(f"{name} {', '.join(each)}" for name, each in values.items()) + "."
