"""Seconds and memory of series of 1,000 to 1,000,000 rows × 8: `core.py rows` writes results/core_rows.csv.

Each length is measured in a process of its own, after a small table that pays for imports and first calls.
"""

import resource
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from long_series import walk

from gpvae.imputers.registry import method

LENGTHS, WIDTH, SAMPLES = (1_000, 10_000, 100_000, 1_000_000), 8, 20
Row = dict[str, Any]


def cost(name: str, rows: int) -> Row:
    """Fit and fill one walk, in this process."""
    method(name, seed=0, device="cpu").fit(walk(200, WIDTH)).impute(walk(200, WIDTH), samples=SAMPLES)
    data, imputer = walk(rows, WIDTH), method(name, seed=0, device="cpu")
    started = time.perf_counter()
    imputer.fit(data)
    fitted = time.perf_counter()
    imputation = imputer.impute(data, samples=SAMPLES)
    filled = time.perf_counter()
    assert np.isfinite(imputation.mean).all()
    return {
        **{"method": name, "rows": rows, "columns": WIDTH, "samples": SAMPLES},
        "fit_seconds": fitted - started,
        "impute_seconds": filled - fitted,
        "microseconds_per_row": 1e6 * (filled - started) / rows,
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def costs(name: str, lengths: Sequence[int] = LENGTHS) -> Iterator[Row]:
    for rows in lengths:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            yield process.submit(cost, name, rows).result()
