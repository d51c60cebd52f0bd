"""One series of 100,000 steps × 8 columns: fitted on windows, imputed whole, in less than 3 GB.

`python benchmarks/long_series.py` writes results/long_series.csv with seconds and the peak memory of the process.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import provenance

from gpvae import GPVAE

LIMIT = 3 * 2**30


def walk(steps: int, columns: int) -> np.ndarray:
    """Noisy mixtures of three random walks, with 20 % of the cells missing."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(steps, 3)).cumsum(axis=0) @ rng.normal(size=(3, columns)) + rng.normal(
        size=(steps, columns)
    )
    values[rng.random(values.shape) < 0.2] = np.nan
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "long_series.csv")
    options = parser.parse_args()
    data = walk(options.steps, options.columns)
    started = time.perf_counter()
    model = GPVAE(epochs=options.epochs, verbose=True).fit(data)
    fitted = time.perf_counter()
    filled = model.impute(data, samples=100)
    lower, upper = filled.interval(0.9)
    done = time.perf_counter()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert np.isfinite(filled.mean).all()
    assert (lower <= upper).all()
    row = {
        "steps": options.steps,
        "columns": options.columns,
        "epochs": options.epochs,
        "seconds_fit": round(fitted - started, 1),
        "seconds_impute_100_samples": round(done - fitted, 1),
        "peak_memory_gb": round(peak / 2**30, 2),
    }
    provenance.write(options.output, [row])
    print(row)
    if peak > LIMIT:
        raise SystemExit(f"peak memory {peak / 2**30:.2f} GB is above {LIMIT / 2**30:.0f} GB")


if __name__ == "__main__":
    main()
