"""What a row costs in a stream, in CPU milliseconds: its median and its 99th percentile, after any number of rows.

`python benchmarks/streaming.py` writes results/streaming.csv.
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import provenance
import torch

from gpvae import GPFactor
from gpvae.imputers.stream import Stream


def table(rows: int, columns: int) -> np.ndarray:
    """Noisy mixtures of three waves, with a fifth of the cells missing."""
    rng = np.random.default_rng(0)
    waves = np.sin(np.arange(rows)[:, None] / [5, 17, 60])
    values = waves @ rng.normal(size=(3, columns)) + 0.2 * rng.normal(size=(rows, columns))
    return np.where(rng.random(values.shape) < 0.2, np.nan, values)


def seconds(stream: Stream, rows: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Of each row."""
    found = np.empty(len(rows))
    for i, (row, now) in enumerate(zip(rows, times, strict=True)):
        started = time.thread_time()
        stream.step(row, now)
        found[i] = time.thread_time() - started
    return found


def measured(columns: int, rows: int, *, even: bool) -> dict[str, object]:
    data = table(rows, columns)
    times = np.arange(rows) if even else np.random.default_rng(1).uniform(0.5, 2, rows).cumsum()
    model = GPFactor().fit(data[:500])
    stream = model.stream()
    spent = 1000 * seconds(stream, data, times)
    with TemporaryDirectory() as folder:
        stream.save(Path(folder) / "state")
        size = (Path(folder) / "state").stat().st_size
    return {
        "columns": columns,
        "states": sum(block.model.space.loadings.shape[1] for block in model.blocks_),
        "times": "even" if even else "irregular",
        "rows": rows,
        "ms_median": round(float(np.median(spent)), 2),
        "ms_99th_percentile": round(float(np.quantile(spent, 0.99)), 2),
        "ms_median_of_last_tenth": round(float(np.median(spent[-rows // 10 :])), 2),
        "state_kb": round(size / 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--columns", type=int, nargs="+", default=[4, 13])
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "streaming.csv")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [measured(columns, options.rows, even=even) for columns in options.columns for even in (True, False)]
    provenance.write(options.output, found)
    for row in found:
        print(row)


if __name__ == "__main__":
    main()
