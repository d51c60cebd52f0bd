"""Result files that say where their numbers come from."""

import csv
import datetime as dt
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from gpvae.files import whole_or_not_at_all

ROOT = Path(__file__).parents[1]


def _processor() -> str:
    names = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {names[0] if names else platform.processor()}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def describe() -> dict[str, str]:
    """Commit, date, hardware and versions of this run."""
    return {
        "commit": os.environ.get("GPVAE_COMMIT") or _commit(),  # named where the checkout has no history
        "date": dt.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


STARTED_AS = describe()  # what is imported now is what runs, whatever happens to the checkout meanwhile


def write(path: Path, rows: Sequence[Mapping[str, object]], *, keep: bool = False) -> None:
    """A CSV with the provenance in every row; with `keep`, rows have their own already."""
    with whole_or_not_at_all(path, force=True) as partial, partial.open("w", newline="") as file:
        names = dict.fromkeys([*rows[0], *STARTED_AS])
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(row if keep else {**row, **STARTED_AS} for row in rows)
