"""CSV files of results, with the provenance in every row."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpvae.data.atomic import atomic_write
from gpvae.evaluation.provenance import describe

ROOT = Path(__file__).parents[1]
STARTED_AS = describe()  # at import: later edits of the checkout do not change the code that runs


def write(path: Path, rows: Sequence[Mapping[str, object]], *, keep: bool = False) -> None:
    """Write a CSV with the provenance in every row; with `keep`, the rows already have their own."""
    with atomic_write(path, force=True) as partial, partial.open("w", newline="") as file:
        names = dict.fromkeys([*rows[0], *STARTED_AS])
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row if keep else {**row, **STARTED_AS} for row in rows)
