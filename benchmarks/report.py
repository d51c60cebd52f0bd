"""The time to write reports of large data, and their size.

`python benchmarks/report.py` writes results/report.csv; with `--data`, only those rows are replaced. A report
of 1,000 series × 48 steps × 35 columns with 80 % missing must take at most 15 MB, and 30 s on two cores.
"""

import argparse
import csv
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import provenance

from gpvae import GPVAE

SIZES = {"patients": (1_000, 48, 35, 0.8), "many": (10_000, 48, 5, 0.5), "long": (1, 100_000, 8, 0.2)}
LIMITS = {"patients": (15.0, 30.0)}  # megabytes, seconds


def walks(series: int, steps: int, columns: int, missing: float) -> np.ndarray:
    """Noisy mixtures of three random walks in each series, with a share of `missing` cells."""
    rng = np.random.default_rng(0)
    slow = rng.normal(size=(series, steps, 3)).cumsum(axis=1) / np.sqrt(steps)
    values = slow @ rng.normal(size=(3, columns)) + 0.3 * rng.normal(size=(series, steps, columns))
    return np.where(rng.random(values.shape) < missing, np.nan, np.round(values, 3))


def measure(name: str) -> dict[str, object]:
    series, steps, columns, missing = SIZES[name]
    data = walks(series, steps, columns, missing)
    filled = GPVAE(epochs=1, verbose=True).fit(data).impute(data)
    with tempfile.TemporaryDirectory() as folder:
        path, started = Path(folder) / "report.html", time.perf_counter()
        filled.report(path)
        seconds, megabytes = time.perf_counter() - started, path.stat().st_size / 1e6
    return {
        "data": name,
        "series": series,
        "steps": steps,
        "columns": columns,
        "missing": missing,
        "seconds": round(seconds, 1),
        "megabytes": round(megabytes, 2),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", choices=[*SIZES], default=[*SIZES])
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "report.csv")
    options = parser.parse_args()
    rows = read_rows(options.output)
    for name in options.data:
        rows[name] = {**measure(name), **provenance.STARTED_AS}
        print(rows[name], flush=True)
        provenance.write(options.output, [rows[each] for each in SIZES if each in rows], keep=True)
        megabytes, seconds = LIMITS.get(name, (np.inf, np.inf))
        if float(str(rows[name]["megabytes"])) > megabytes or float(str(rows[name]["seconds"])) > seconds:
            raise SystemExit(f"{name}: the report must take at most {megabytes:g} MB and {seconds:g} s")


def read_rows(path: Path) -> dict[str, dict[str, object]]:
    """The rows of an existing file, by data."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {row["data"]: dict(row) for row in csv.DictReader(file)}


if __name__ == "__main__":
    main()
