"""Periods that a table shows: peaks of its spectrum that stand out more than chance allows.

The spectrum is that of the values placed on a fine grid, at any times, with zeros elsewhere: a periodogram as good as
Lomb and Scargle's where there are many rows, for all frequencies at once. What is usual near a frequency, the level of
the smooth spectrum below the peaks, is the median of the neighbourhood. Where power is r times what is usual, averaged
over N independent numbers (series, and neighbouring frequencies: a wave that loses its phase has a broad peak), a wave
raises the log-likelihood of a column by N (r - 1 - log r). A peak counts where that exceeds log(rows), the price of two
numbers by BIC, and log(places looked at / 0.01). Series that are alike count as one: N is read from how much powers
scatter.
"""

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.fft import next_fast_len, rfft
from scipy.ndimage import uniform_filter1d

from gpvae.data.panel import Floats

MOST = 5
CHANCE = 0.01
BANDS, BAND = 40, 1.6  # of the spectrum, from centre / BAND to centre * BAND, that say what is usual
NEAR = 8  # at least so many frequencies, in units of the resolution, to each side
WEAK = 0.02  # of the strongest peak's power: not worth its states
WIDTHS = (1, 5, 15, 45)  # of peaks, in frequencies
LOBE = 5  # frequencies that a wave which keeps its phase spreads over
BINS = 3  # frequencies that depend on each other: twice as many as there are rows, tapered
WIDER = 1.25  # times as much must a wider peak gain
SCATTER = 1.5  # interquartile range of the logarithm of one power
CYCLES = 3.5  # that a series must hold
ALIKE = 0.02  # relative difference of frequencies that one damped wave has
SHORTEST = 2.2  # steps: shorter ones cannot be told from noise


@dataclass(frozen=True)
class Stretch:
    """One series: times in units of the median step, values standardised."""

    times: Floats  # (row,)
    values: Floats  # (row, column) NaN where missing

    def of(self, columns: NDArray[np.int64]) -> "Stretch":
        """Some of the columns."""
        return Stretch(self.times, self.values[:, columns])

    @property
    def span(self) -> float:
        return float(self.times[-1] - self.times[0])


def periods(stretches: list[Stretch]) -> list[float]:
    """Periods that stand out, in units of the times, the strongest first."""
    longest = max(each.span for each in stretches)
    same = [each for each in stretches if each.span > 0.7 * longest][:64]
    if longest < 16:
        return []
    even = all(np.allclose(each.times, np.rint(each.times), atol=1e-6) for each in same)
    fine = 1.0 if even else 0.25
    size = cast(int, next_fast_len(math.ceil(2 * longest / fine) + 2, real=True))
    power = np.mean([_power(each, fine, size) for each in same], axis=0)
    frequency = np.arange(len(power)) / (size * fine)
    rows = float(np.mean([np.sum(~np.isnan(each.values), axis=0) for each in same]))
    return _peaks(frequency, power, longest, len(same), rows)


def _power(stretch: Stretch, fine: float, size: int) -> Floats:
    """The spectrum of each column, less its line, tapered (Hann) so that slow parts stay slow. (frequency, column)"""
    times = stretch.times - stretch.times[0]
    known, grid = ~np.isnan(stretch.values), np.zeros((size, stretch.values.shape[1]))
    basis = np.stack([np.ones_like(times), times / times[-1] - 0.5], axis=1)
    taper = np.sin(np.pi * (times + 0.5) / (times[-1] + 1)) ** 2
    for j, (column, seen) in enumerate(zip(stretch.values.T, known.T, strict=True)):
        line, *_ = np.linalg.lstsq(basis[seen], column[seen], rcond=None)
        np.add.at(
            grid[:, j], np.rint(times[seen] / fine).astype(int), taper[seen] * (column[seen] - basis[seen] @ line)
        )
    weight = np.maximum((known * taper[:, None] ** 2).sum(0), 1)
    return np.abs(np.asarray(rfft(grid, axis=0))) ** 2 / weight


def _peaks(frequency: Floats, power: Floats, span: float, count: int, rows: float) -> list[float]:
    low, high = np.searchsorted(frequency, [CYCLES / span, 1 / SHORTEST])
    if high - low < 16:
        return []
    usual = _usual(frequency[1:], power[1:], span)[low - 1 : high - 1]
    inner, frequency = power[low:high], frequency[low:high]
    independent = _independent(inner / np.maximum(usual, 1e-12), count)
    price, chance = math.log(max(rows, 2)), math.log(len(frequency) / CHANCE)
    bin_width, found, powers = frequency[1] - frequency[0], list[float](), list[float]()
    while len(found) < 3 * MOST:
        ratio = inner / np.maximum(usual, 1e-12)
        gain, i, width = _highest(ratio, independent, price)
        if gain < chance:
            break
        i = _centre(ratio.sum(1), i, width)
        reach = 3 / span + ALIKE * frequency[i] + width / 2 * bin_width
        near = np.abs(frequency - frequency[i]) < reach
        found.append(_summit(frequency, uniform_filter1d(ratio.sum(1), min(width, LOBE)), i))
        powers.append(float((inner - usual)[near].sum()))
        inner = np.where(near[:, None], np.minimum(inner, usual), inner)
    strongest = sorted(zip(powers, found, strict=True), reverse=True)[:MOST]
    return [1 / each for strength, each in strongest if strength > WEAK * strongest[0][0]]


def _highest(ratio: Floats, count: float, price: float) -> tuple[float, int, int]:
    """The highest gain over all columns, less their price, its place and its width; narrow peaks are preferred."""
    best = (0.0, 0, 1)
    for width in WIDTHS:
        smooth = np.maximum(uniform_filter1d(ratio, width, axis=0, mode="constant", cval=1), 1)
        gain = count * max(1, width / BINS) * (smooth - 1 - np.log(smooth))
        gain = np.maximum(gain - price, 0).sum(1)
        i = int(gain.argmax())
        if gain[i] > WIDER * best[0]:
            best = (float(gain[i]), i, width)
    return best


def _centre(power: Floats, i: int, width: int) -> int:
    """Where the top of a wide peak is: the highest place of ever narrower averages."""
    for narrower in [each for each in WIDTHS[::-1] if LOBE <= each < width]:
        first = max(0, i - width // 2)
        i, width = first + int(uniform_filter1d(power, narrower)[first : i + width // 2 + 1].argmax()), narrower
    return i


def _independent(ratio: Floats, count: int) -> float:
    """How many independent powers each is the mean of, by the scatter of what is usual."""
    low, high = np.quantile(np.log(np.maximum(ratio, 1e-12)), [0.25, 0.75], axis=0)
    return float(np.clip((SCATTER / np.maximum(high - low, 1e-6)) ** 2, 1, count).min())


def _summit(frequency: Floats, power: Floats, i: int) -> float:
    """The frequency at the top of the parabola through the logarithms of three powers."""
    if not 0 < i < len(power) - 1:
        return float(frequency[i])
    left, middle, right = np.log(np.maximum(power[i - 1 : i + 2], 1e-300))
    bend = left - 2 * middle + right
    shift = np.clip((left - right) / (2 * bend), -1, 1) if bend < 0 else 0.0
    return float(frequency[i] + shift * (frequency[1] - frequency[0]))


def _usual(frequency: Floats, power: Floats, span: float) -> Floats:
    """The level of the spectrum around each frequency: medians of bands, joined by lines in logarithms."""
    centres = np.geomspace(frequency[0], frequency[-1], BANDS)
    medians = []
    for centre in centres:
        reach = max(centre * (BAND - 1 / BAND) / 2, NEAR / span)
        low, high = np.searchsorted(frequency, [centre - reach, centre + reach])
        medians.append(np.median(power[low : high + 1], axis=0))
    levels = np.log(np.maximum(medians, 1e-300)).T
    return np.exp([np.interp(np.log(frequency), np.log(centres), level) for level in levels]).T / math.log(2)
