"""Numbers that look like codes for missing values."""

from typing import Any

import numpy as np
import pytest

from gpvae.data.codes import suspected_codes
from gpvae.data.panel import Panel

RNG = np.random.default_rng(0)
TEMPERATURE = RNG.normal(15, 8, size=400)
PEOPLE = RNG.poisson(4, size=400).astype(float)


def with_code(values: Any, code: float, every: int = 20) -> Any:
    return np.where(np.arange(len(values)) % every == 0, code, values)


@pytest.mark.parametrize(
    ("values", "codes"),
    [
        (with_code(TEMPERATURE, -999), [-999]),
        (with_code(TEMPERATURE, 9.96921e36), [9.96921e36]),
        (with_code(TEMPERATURE, 1e20), [1e20]),
        (with_code(np.abs(TEMPERATURE) * 60, -200), [-200]),  # as in a table of air quality
        (with_code(PEOPLE, 99), [99]),
        (with_code(with_code(TEMPERATURE, -999), -9999, every=30), [-9999, -999]),
        (with_code(TEMPERATURE, 1e25, every=400), [1e25]),
        (TEMPERATURE, []),
        (PEOPLE, []),
        (RNG.exponential(size=400) ** 4, []),
        (np.exp(RNG.normal(size=400) * 4), []),
        (RNG.standard_cauchy(size=400), []),
        (with_code(RNG.gamma(0.3, 20, size=400), 0, every=2), []),  # rain
        (with_code(np.zeros(400), 1000), []),  # on and off
        (with_code(PEOPLE % 3, 1000), []),
        (with_code(TEMPERATURE, 60), []),
        (np.full(400, -999.0), []),
        (np.full(400, np.nan), []),
    ],
)
def test_suspected_codes(values: Any, codes: list[float]) -> None:
    panel = Panel.from_array(np.column_stack([values, TEMPERATURE]))
    assert [code.value for code in suspected_codes(panel)] == codes
    np.testing.assert_array_equal(panel.values[:, 0], values)


def test_columns_with_one_code_are_described_together() -> None:
    (code,) = suspected_codes(Panel.from_array(np.column_stack([with_code(TEMPERATURE, -999)] * 5)))
    assert code.describe() == (
        "columns 'x0', 'x1', 'x2' and 2 more hold -999 in 100 cells, far from their other values; if it marks missing "
        "values, say --missing -999"
    )
