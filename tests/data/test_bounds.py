"""Bounds of made-up columns, and of columns that have none."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae.data.bounds import find_bounds

Array = NDArray[Any]
NONE = (-math.inf, math.inf)


def columns(seed: int) -> dict[str, tuple[Array, tuple[float, float]]]:
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=600)
    return {
        "rain": (np.maximum(0, rng.gamma(0.5, 8, 600) - 3), (0, math.inf)),
        "wind": (rng.weibull(2, 600) * 4 + 0.5, NONE),
        "load": (np.exp(1.5 * normal), (0, math.inf)),
        "cloud cover": (np.clip(60 + 40 * normal, 0, 100), (0, 100)),
        "saturated": (np.minimum(5 + normal, 6.0), (-math.inf, 6)),
        "detection limit": (np.maximum(normal, -0.7), (-0.7, math.inf)),
        "celsius": (np.round(15 + 6 * normal, 1), NONE),
        "kelvin": (290 + 6 * normal, NONE),
        "walk": (normal.cumsum(), NONE),
        "visits": (rng.poisson(2.0, 600).astype(float), (0, math.inf)),
        "rounded": (np.round(2 * normal), NONE),
        "return": (rng.standard_t(3, 600), NONE),
        "price": (100 + normal.cumsum() / 10, NONE),
        "two values": (rng.integers(3, 5, 600).astype(float), NONE),
        "constant": (np.full(600, 7.0), NONE),
        "few": (np.where(np.arange(600) < 10, 0, np.nan), NONE),
    }


@pytest.mark.parametrize("name", columns(0))
@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_found_and_others_are_not(name: str, seed: int) -> None:
    values, expected = columns(seed)[name]
    assert find_bounds(values[:, None]).tolist() == [list(expected)]


def test_all_columns_at_once() -> None:
    made = columns(9)
    found = find_bounds(np.column_stack([values for values, _ in made.values()]))
    assert found.tolist() == [list(expected) for _, expected in made.values()]
    assert find_bounds(np.empty((3, 0))).shape == (0, 2)
