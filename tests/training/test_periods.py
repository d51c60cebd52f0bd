"""Periods: found where a table has them, at any times and with gaps; none in noise, walks and autoregressions."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

from gpvae.training.periods import MOST, Stretch, periods

Array = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def even(values: Array) -> list[Stretch]:
    return [Stretch(np.arange(float(len(values))), values)]


def wave(period: float, times: Array, columns: int = 3, seed: int = 0) -> Array:
    return np.sin(2 * np.pi * times[:, None] / period + rng(seed).uniform(0, 6, columns))


def noise(rows: int, columns: int = 3, seed: int = 1) -> Array:
    return rng(seed).normal(size=(rows, columns))


def autoregression(memory: float, rows: int, columns: int, seed: int) -> Array:
    return np.asarray(lfilter([1], [1, -memory], noise(rows, columns, seed), axis=0))


@pytest.mark.parametrize("rows", [60, 500, 3000])
@pytest.mark.parametrize("memory", [0, 0.5, 0.9, 0.98, 1])
def test_noise_autoregressions_and_random_walks_have_no_period(memory: float, rows: int) -> None:
    found = [periods(even(autoregression(memory, rows, 5, seed))) for seed in range(4)]
    assert found == [[]] * 4


def test_uneven_noise_has_no_period() -> None:
    times = rng(2).uniform(0, 1000, 1000)
    times.sort()
    assert [periods([Stretch(times - times[0], noise(1000, seed=seed))]) for seed in range(4)] == [[]] * 4


@pytest.mark.parametrize("period", [3, 7, 24, 37.5, 200])
def test_a_period_in_noise(period: float) -> None:
    times = np.arange(1500.0)
    assert periods(even(wave(period, times) + noise(1500))) == [pytest.approx(period, rel=0.01)]


@pytest.mark.parametrize("period", [4, 37])
def test_a_period_at_uneven_times(period: float) -> None:
    times = rng(3).uniform(0, 2000, 2000)
    times.sort()
    times -= times[0]
    slow = np.interp(times, np.arange(2001), autoregression(0.97, 2001, 1, 4)[:, 0])[:, None]
    assert periods([Stretch(times, wave(period, times) + 0.1 * slow + 0.5 * noise(2000))]) == [
        pytest.approx(period, rel=0.01)
    ]


def test_the_strongest_period_comes_first() -> None:
    times = np.arange(1200.0)
    found = periods(even(wave(24, times) + 2 * wave(100, times, seed=5) + 0.5 * noise(1200)))
    assert found == [pytest.approx(100, rel=0.01), pytest.approx(24, rel=0.01)]


@pytest.mark.parametrize("share", [0.5, 0.8])
def test_a_period_under_gaps(share: float) -> None:
    values = wave(12, np.arange(800.0)) + 0.5 * noise(800)
    values[rng(6).random(values.shape) < share] = np.nan
    assert periods(even(values)) == [pytest.approx(12, rel=0.01)]


def test_a_period_of_one_column_of_many() -> None:
    values = noise(1000, 12)
    values[:, 7] += wave(30, np.arange(1000.0), 1)[:, 0]
    assert periods(even(values)) == [pytest.approx(30, rel=0.01)]


def test_a_wave_that_loses_its_phase_is_one_period() -> None:
    turn, state, states = np.exp(2j * np.pi / 25 - 0.02), 0j, []
    for shock in rng(7).normal(size=(2000, 2)):
        state = turn * state + complex(*shock)
        states.append([state.real, state.imag])
    values = np.array(states) @ rng(8).normal(size=(2, 4))
    assert periods(even(values / values.std() + 0.3 * noise(2000, 4))) == [pytest.approx(25, rel=0.05)]


def test_a_period_of_many_short_series() -> None:
    """Each too short to tell; with phases of their own. One of them is shorter, and one is empty."""
    series = [
        Stretch(np.arange(48.0), wave(8, np.arange(48.0), 2, seed) + 1.5 * noise(48, 2, seed + 100))
        for seed in range(60)
    ]
    short, empty = Stretch(np.arange(5.0), noise(5, 2)), Stretch(np.arange(48.0), np.full((48, 2), np.nan))
    assert periods([*series, short, empty]) == [pytest.approx(8, rel=0.02)]
    assert periods(series[:1]) == []


def test_a_trend_and_two_cycles_are_no_period() -> None:
    times = np.arange(400.0)
    assert periods(even(times[:, None] / 50 + noise(400))) == []
    assert periods(even(wave(200, times) + 0.3 * noise(400))) == []


def test_columns_that_are_alike_count_once() -> None:
    """Twenty copies of a peak that one column has by chance are no better evidence than one."""
    values = autoregression(0.7, 300, 1, seed=11)
    copies = [Stretch(np.arange(300.0), values + 0.01 * noise(300, 1, seed)) for seed in range(20)]
    assert periods(copies) == []


def test_no_more_than_a_few() -> None:
    times = np.arange(3000.0)
    values = sum(wave(period, times, seed=period) for period in (5, 7, 11, 17, 29, 53, 97, 211))
    found = periods(even(np.asarray(values) + noise(3000)))
    assert len(found) == MOST


@pytest.mark.parametrize("rows", [1, 2, 15])
def test_series_of_a_few_rows_have_none(rows: int) -> None:
    assert periods(even(noise(rows))) == []


def test_the_order_of_columns_and_of_series_does_not_matter() -> None:
    values = [wave(9, np.arange(90.0), 3, seed) + noise(90, 3, seed) for seed in range(6)]
    stretches = [Stretch(np.arange(90.0), each) for each in values]
    expected = periods(stretches)
    assert expected == [pytest.approx(9, rel=0.02)]
    assert periods(stretches[::-1]) == pytest.approx(expected)
    assert periods([each.of(np.array([2, 0, 1])) for each in stretches]) == pytest.approx(expected)
