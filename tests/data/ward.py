"""A table with columns of every kind."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


def ward(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """A hospital ward: columns of every kind that follow one hidden wave."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows) / 6 + rng.uniform(0, 6))
    level = np.digitize(wave + 0.1 * rng.normal(size=rows), [-0.5, 0.5])
    return pd.DataFrame(
        {
            "dose": np.exp(2 + wave + 0.1 * rng.normal(size=rows)),
            "visits": rng.poisson(np.exp(1 + wave)).astype(float),
            "alarm": wave + 0.2 * rng.normal(size=rows) > 0,
            "unit": np.array(["heart", "lung", "skin"])[level],
            "grade": np.array(["low", "mid", "high"])[level],
            "heat": 37 + wave + 0.1 * rng.normal(size=rows),
        }
    )


KINDS: dict[str, Any] = {
    "dose": "positive",
    "visits": "count",
    "alarm": "binary",
    "unit": "categorical",
    "grade": ["low", "mid", "high"],
}


def with_gaps(frame: pd.DataFrame, share: float = 0.2) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    gaps = np.random.default_rng(9).random(frame.shape) < share
    holey = frame.astype({"alarm": object}).mask(gaps)
    return holey.assign(alarm=holey["alarm"].astype("boolean")), gaps
