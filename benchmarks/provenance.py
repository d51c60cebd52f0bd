"""Result files that say where their numbers come from."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpvae.data.files import whole_or_not_at_all
from gpvae.evaluation.provenance import describe

ROOT = Path(__file__).parents[1]
STARTED_AS = describe()  # what is imported now is what runs, whatever happens to the checkout meanwhile


def write(path: Path, rows: Sequence[Mapping[str, object]], *, keep: bool = False) -> None:
    """A CSV with the provenance in every row; with `keep`, rows have their own already."""
    with whole_or_not_at_all(path, force=True) as partial, partial.open("w", newline="") as file:
        names = dict.fromkeys([*rows[0], *STARTED_AS])
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row if keep else {**row, **STARTED_AS} for row in rows)
