"""Periods of data whose periods are known."""

import numpy as np
import pytest

from gpvae.training.periods import Stretch, periods


@pytest.mark.parametrize(("period", "cycles"), [(168, 6), (24, 40), (30, 20), (100, 5)])
def test_a_wave_beside_slow_noise_is_found_where_it_is(period: int, cycles: int) -> None:
    """Even with few cycles, where averages over neighbouring frequencies reach to slower ones."""
    rng = np.random.default_rng(0)
    rows = period * cycles
    drift = np.zeros(rows)
    for t in range(1, rows):
        drift[t] = 0.97 * drift[t - 1] + 0.24 * rng.normal()
    wave = np.cos(2 * np.pi * np.arange(rows) / period)
    values = np.stack([wave + 0.3 * rng.normal(size=rows), 0.5 * wave + drift, drift], axis=1)
    values[rng.random(values.shape) < 0.1] = np.nan
    found = periods([Stretch(np.arange(float(rows)), values / np.nanstd(values, axis=0))])
    assert found == pytest.approx([period], rel=0.15 / cycles)  # over all data, wrong by less than a sixth of a cycle
