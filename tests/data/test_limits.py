"""Limits of made-up columns: bounds, whole numbers, steps and two values, and columns that have none."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae.data.limits import Limits, on_grid, require_kinds
from gpvae.data.panel import DataError

Array = NDArray[Any]
ANY = Limits()
ROWS = 600


def columns(seed: int) -> dict[str, tuple[Array, Limits]]:
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=ROWS)
    return {
        "rain": (np.maximum(0, rng.gamma(0.5, 8, ROWS) - 3), Limits(lower=0)),
        "rain in tenths": (np.round(np.maximum(0, rng.gamma(0.5, 8, ROWS) - 3), 1), Limits(lower=0)),
        "wind": (rng.weibull(2, ROWS) * 4 + 0.5, ANY),
        "load": (np.exp(1.5 * normal), Limits(lower=0)),
        "cloud cover": (np.clip(60 + 40 * normal, 0, 100), Limits(0, 100)),
        "saturated": (np.minimum(5 + normal, 6.0), Limits(upper=6)),
        "detection limit": (np.maximum(normal, -0.7), Limits(lower=-0.7)),
        "celsius": (np.round(15 + 6 * normal, 1), ANY),
        "kelvin": (290 + 6 * normal, ANY),
        "walk": (normal.cumsum(), ANY),
        "visits": (rng.poisson(2.0, ROWS).astype(float), Limits(lower=0, step=1)),
        "many visits": (rng.poisson(400.0, ROWS).astype(float), Limits(step=1)),
        "rounded": (np.round(2 * normal), Limits(step=1)),
        "large whole numbers": (np.round(186_355 + 9_000 * normal), Limits(step=1)),
        "thousands": (1000 * np.round(200 + 30 * normal), Limits(step=1000)),
        "half steps": (np.round(2 * normal) / 2, Limits(step=0.5)),
        "tenths": (np.round(0.3 * normal, 1), Limits(step=0.1)),
        "odd numbers": (2 * np.round(10 * normal) + 1, Limits(step=2, origin=1)),
        "ratings": (rng.integers(1, 6, ROWS).astype(float), Limits(1, 5, 1)),
        "return": (rng.standard_t(3, ROWS), ANY),
        "price": (100 + normal.cumsum() / 10, ANY),
        "single precision": ((100 + normal).astype(np.float32).astype(float), ANY),
        "huge": (1e15 * normal, ANY),
        "flag": ((rng.random(ROWS) < 0.1).astype(float), Limits(0, 1, 1)),
        "two values": (rng.choice([2.25, 7.5], ROWS), Limits(2.25, 7.5, 5.25, 2.25)),
        "two odd values": (rng.choice([math.e, math.pi], ROWS), Limits(math.e, math.pi, math.pi - math.e, math.e)),
        "constant": (np.full(ROWS, 7.0), ANY),
        "few": (np.where(np.arange(ROWS) < 10, 0, np.nan), ANY),
    }


@pytest.mark.parametrize("name", columns(0))
@pytest.mark.parametrize("seed", range(6))
def test_limits_are_found_and_others_are_not(name: str, seed: int) -> None:
    values, expected = columns(seed)[name]
    assert Limits.of(values) == expected


def random_column(rng: np.random.Generator, n: int) -> tuple[Array, Limits]:
    """One of ten sorts, with parameters of its own."""
    normal, size = rng.normal(size=n), np.exp(rng.uniform(-2, 5))
    sort = rng.integers(10)
    if sort == 0:
        return np.maximum(0, size * (normal - rng.uniform(-1, 1))), Limits(lower=0)
    if sort == 1:
        return rng.poisson(rng.uniform(0.5, 3), n).astype(float), Limits(lower=0, step=1)
    if sort == 2:
        return np.round(rng.uniform(200, 1000) + rng.uniform(3, 40) * normal), Limits(step=1)
    if sort == 3:
        return (rng.random(n) < rng.uniform(0.03, 0.97)).astype(float), Limits(0, 1, 1)
    if sort == 4:
        return np.clip(50 + rng.uniform(40, 70) * normal, 0, 100), Limits(0, 100)
    if sort == 5:
        return np.exp(rng.uniform(1.4, 2) * normal), Limits(lower=0)
    if sort == 6:
        return rng.gamma(rng.uniform(6, 20), size, n), ANY
    if sort == 7:
        return np.round(size * rng.standard_t(4, n) + 100, 4), ANY
    if sort == 8:
        return rng.uniform(0.9, 1.1, n).cumsum() * size, ANY
    return np.sin(np.arange(n) * rng.uniform(0.05, 0.5)) * size + rng.normal(scale=size / 5, size=n), ANY


def test_few_mistakes_are_made_on_a_hundred_columns() -> None:
    """Limits that are missed, and limits that are not there."""
    rng = np.random.default_rng(42)
    missed, invented = 0, 0
    for _ in range(100):
        values, expected = random_column(rng, int(rng.integers(150, 3000)))
        found = Limits.of(np.where(rng.random(len(values)) < 0.2, np.nan, values))
        ends = [*zip(found[:2], expected[:2], strict=True), (found.step or math.inf, expected.step or math.inf)]
        missed += any(math.isinf(ours) and math.isfinite(theirs) for ours, theirs in ends)
        invented += any(math.isfinite(ours) and ours != theirs for ours, theirs in ends)
    assert missed <= 2
    assert invented <= 2


@pytest.mark.parametrize(
    ("origin", "step"), [(0.0, 0.1), (0.05, 0.1), (0.0, 1.0), (1.0, 3.0), (0.0, 0.25), (2.25, 5.25), (0.0, 5000.0)]
)
def test_values_are_put_on_the_grid_as_they_are_written(origin: float, step: float) -> None:
    numbers = np.arange(-40, 41)
    grid = np.array([float(f"{origin + step * k:.4f}") for k in numbers])
    rng = np.random.default_rng(0)
    assert on_grid(grid + step * rng.uniform(-0.49, 0.49, len(grid)), origin, step).tolist() == grid.tolist()


def test_declared_kinds() -> None:
    values = np.array([0.0, 1.0, 4.0, np.nan])
    assert Limits.declared("real", values, "x") == ANY
    assert Limits.declared("positive", values, "x") == Limits(lower=0)
    assert Limits.declared("count", values, "x") == Limits(lower=0, step=1)
    assert Limits.declared("binary", values[1:], "x") == Limits(1, 4, 3, 1)
    for kind, wrong, message in (
        ("positive", -1.0, "'x' is positive, so it must hold numbers from 0 on, got -1"),
        ("count", 1.5, "'x' is count, so it must hold whole numbers from 0 on, got 1.5"),
        ("binary", 2.0, "'x' is binary, so it must have 2 different values, got 4"),
    ):
        with pytest.raises(DataError, match=message):
            Limits.declared(kind, np.append(values, wrong), "x")
    with pytest.raises(DataError, match="GPNet fills only numbers; gp-vae fills categories such as 'x'"):
        require_kinds({"x": ["low", "high"]}, ("x",), "GPNet")
    with pytest.raises(DataError, match="the kind of column 'x' must be one of real, positive, count, binary"):
        require_kinds({"x": "wet"}, ("x",), "GPNet")
    with pytest.raises(DataError, match="kinds names a column 'y', but there is no such column of numbers; they are x"):
        require_kinds({"y": "count"}, ("x",), "GPNet")


@pytest.mark.parametrize(
    ("limits", "values", "words"),
    [
        (ANY, [1.5], ""),
        (Limits(lower=0), [0, 0, 2.5, 3], "never below 0, many zeros"),
        (Limits(lower=0), [1, 2.5, 3], "never below 0"),
        (Limits(0, 100), [100, 2.5, 3], "0 to 100, often 100"),
        (Limits(lower=0, step=1), [4, 3], "whole numbers, never below 0"),
        (Limits(1, 5, 1), [], "whole numbers, 1 to 5"),
        (Limits(upper=3, step=0.5), [], "steps of 0.5, never above 3"),
        (Limits(0, 1, 1), [0, 0, 1], "0 or 1"),
        (Limits(2.25, 7.5, 5.25, 2.25), [], "2.25 or 7.5"),
    ],
)
def test_limits_in_words(limits: Limits, values: list[float], words: str) -> None:
    assert limits.words(np.array(values) if values else None) == words
