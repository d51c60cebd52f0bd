"""The values of a report's series in few bytes: quantised, one plane after the other, compressed.

A pack holds several series. Its cells are ordered by series, then by column, then by step:

times     float64 for each row
state     uint8 for each cell: MISSING, OBSERVED or FILLED; + HELD_OUT if its true value is known
observed  float32 for observed cells
truth     float32 for held-out cells
scale     uint8 for each column: LOGARITHM if what follows are logarithms, + FINE + NOT_NEGATIVE
ranges    float32 for each series and column: lowest filled value, their range, widest 90 % interval
mean      uint16 for filled cells: position in that range, in LEVELS steps, or 65535 if FINE
width     uint8: the 90 % interval is exp(-width / 32) of the widest; 254: a point; 255: no interval
place     uint8: position of the mean in the interval, (mean - lower) / width = place / 32 - 2
quarters  2 × uint8: ends of the 50 % interval in 32nds of the width, from the lower end
samples   uint8 each: in 16ths of the width, from 7.5 of it below the lower end
certainty uint8: probability of the filled class times 255; only if there are classes

This is just finer than a plot can show; finer detail would not compress. Numbers of several bytes are stored byte by
byte: all lowest bytes first, then all second bytes, and so on.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.scaling import CLASSES, DISCRETE
from gpvae.imputers.imputation import Imputation

MISSING, OBSERVED, FILLED, HELD_OUT = 0, 1, 2, 4
LOGARITHM, FINE, NOT_NEGATIVE = 1, 2, 4
LEVELS = 2047
BAND = (0.05, 0.25, 0.75, 0.95)
CELLS_PER_PACK = 150_000


@dataclass(frozen=True)
class Packer:
    """What a report includes of each filled cell, the same for all of its series."""

    bands: bool
    samples: int
    certainty: bool

    def pack(self, imputation: Imputation, truth: Floats | None, held_out: Bools | None) -> bytes:
        """Pack the series of an imputation; `truth` (row, feature) is used at the cells `held_out`."""
        panel, order = imputation.panel, _order(imputation.panel)
        state = np.where(panel.observed, OBSERVED, MISSING).astype(np.uint8).ravel()
        state[imputation.cells] = FILLED
        if held_out is not None:
            state |= np.where(held_out.ravel(), HELD_OUT, 0).astype(np.uint8)
        state = state[order]
        planes = [_bytes(panel.times), state.tobytes()]
        planes.append(_bytes(panel.values.ravel()[order][state & 3 == OBSERVED].astype(np.float32)))
        if truth is not None:
            planes.append(_bytes(truth.ravel()[order][state & HELD_OUT > 0].astype(np.float32)))
        number = np.full(len(order), -1)
        number[imputation.cells] = np.arange(len(imputation.cells))
        places = number[order]
        packed = b"".join([*planes, *self._filled(imputation, places[places >= 0])])
        return gzip.compress(packed, compresslevel=6, mtime=0)  # level 9 takes twice as long and saves one per cent

    def _filled(self, imputation: Imputation, order: NDArray[np.int64]) -> Iterator[bytes]:
        width = len(imputation.panel.columns)
        rows, column = np.divmod(imputation.cells[order], width)
        group = imputation.panel.series_of_row[rows] * width + column
        groups = len(imputation.panel) * width
        mean = imputation.values[order]
        bands = imputation.quantiles(*BAND)[:, order] if self.bands else np.full((4, len(order)), np.nan)
        scale = _scale(imputation, column[np.fmin(mean, bands[0]) <= 0])
        yield scale.tobytes()
        is_log = scale[column] & LOGARITHM > 0
        mean, bands = _on_scale(mean, is_log), _on_scale(bands, is_log)
        lowest, highest = (_by_group(end, mean, group, groups) for end in (np.minimum, np.maximum))
        widths = bands[3] - bands[0]
        widest = _by_group(np.fmax, widths, group, groups)
        yield from (_bytes(ends.astype(np.float32)) for ends in (lowest, highest - lowest, widest))
        levels = np.where(scale[column] & FINE, 65535, LEVELS)
        yield _bytes(np.rint(levels * _share(mean - lowest[group], (highest - lowest)[group])).astype(np.uint16))
        if self.bands:
            yield _widths(widths, widest[group])
            yield _places(mean - bands[0], widths, 32, 2.0)
            yield from (_places(quarter - bands[0], widths, 32, 0.0) for quarter in bands[1:3])
            draws = _on_scale(self._first_draws(imputation, order), is_log)
            yield from (_places(draw - bands[0], widths, 16, 7.5) for draw in draws)
        if self.certainty:
            assert imputation.draws is not None
            classes = imputation.of_kind(*CLASSES)[imputation.cells % width]
            shares = np.zeros(len(classes))
            shares[classes] = imputation.draws.at(classes).share_of(imputation.values[classes])
            yield np.rint(255 * shares[order]).astype(np.uint8).tobytes()

    def _first_draws(self, imputation: Imputation, order: NDArray[np.int64]) -> Floats:
        draws = imputation.draws
        if draws is None or not self.samples:
            return np.empty((0, len(order)))
        return draws.scaling.undo(draws.scaled[order, : self.samples], draws.feature[order]).T


def runs_of_series(panel: Panel, kept: int) -> Iterator[tuple[int, int]]:
    """Split the first `kept` series into runs [first, last) of about CELLS_PER_PACK cells."""
    first, cells = 0, 0
    for i in range(kept):
        size = int(panel.lengths[i]) * len(panel.columns)
        if i > first and cells + size > CELLS_PER_PACK:
            yield first, i
            first, cells = i, 0
        cells += size
    if kept > first:
        yield first, kept


def pack_latents(mean: NDArray[Any], std: NDArray[Any]) -> bytes:
    """Pack the latent series (row, latent) of one series.

    First the lowest mean, the range of the means and the largest deviation of each latent as float32; then, latent by
    latent, means as uint16 in their range and deviations as uint8 relative to the largest.
    """
    lowest, span, largest = mean.min(axis=0), np.ptp(mean, axis=0), std.max(axis=0)
    heads = [_bytes(head.astype(np.float32)) for head in (lowest, span, largest)]
    means = np.rint(LEVELS * _share(mean - lowest, span)).astype(np.uint16)
    deviations = np.rint(255 * _share(std, largest)).astype(np.uint8)
    return gzip.compress(b"".join([*heads, _bytes(means.T.ravel()), deviations.T.tobytes()]), mtime=0)


def _order(panel: Panel) -> NDArray[np.int64]:
    """Flat indices of the cells (row, feature) in the order of a pack."""
    columns = np.arange(len(panel.columns))[:, None]
    runs = [(np.arange(rows.start, rows.stop) * len(columns) + columns).ravel() for _, rows in panel.series()]
    return np.concatenate(runs)


def _positive(imputation: Imputation) -> Bools:
    """Columns that draws or margins say have no values below 0. (feature,)"""
    positive = imputation.of_kind("positive")
    if imputation.conformal is not None:
        positive[np.unique(imputation.cells[imputation.conformal.lower_bound == 0] % len(positive))] = True
    return positive


def _scale(imputation: Imputation, with_zero: NDArray[np.int64]) -> NDArray[np.uint8]:
    """The scale of each column: logarithms of positive columns, which are skewed, unless they are `with_zero`."""
    positive = _positive(imputation)
    logarithm = positive & ~np.isin(np.arange(len(positive)), with_zero)
    fine = imputation.of_kind(*DISCRETE) | positive & ~logarithm
    floor = positive | imputation.of_kind("count")
    return (LOGARITHM * logarithm + FINE * fine + NOT_NEGATIVE * floor).astype(np.uint8)


def _on_scale(values: Floats, is_log: Bools) -> Floats:
    """Logarithms of the cells that are stored so. (…, cell)"""
    return np.where(is_log, np.log(np.maximum(values, np.finfo(np.float32).tiny)), values) if is_log.any() else values


def _widths(widths: Floats, widest: Floats) -> bytes:
    share = _share(widths, widest)
    code = np.clip(np.rint(-32 * np.log(np.maximum(share, 1e-9))), 0, 253)
    code = np.where(share > 0, code, 254)
    return np.where(np.isfinite(widths), code, 255).astype(np.uint8).tobytes()


def _by_group(reduce: np.ufunc, values: Floats, group: NDArray[np.int64], groups: int) -> Floats:
    """Reduce the values of each group, which must be consecutive; 0 for groups without values."""
    reduced = np.zeros(groups)
    if len(values):
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        reduced[group[starts]] = reduce.reduceat(values, starts)
    return np.where(np.isfinite(reduced), reduced, 0.0)


def _share(part: NDArray[Any], whole: NDArray[Any]) -> NDArray[Any]:
    part, whole = np.broadcast_arrays(part, whole)
    usable = (whole > 0) & np.isfinite(part)
    return np.clip(np.divide(part, whole, out=np.zeros(part.shape), where=usable), 0, 1)


def _places(distance: Floats, width: Floats, parts: int, before: float) -> bytes:
    """Positions in the interval, in `parts` per width, counted from `before` widths below its lower end."""
    usable = (width > 0) & np.isfinite(distance)
    share = np.divide(distance, width, out=np.zeros_like(width), where=usable)
    return np.clip(np.rint(parts * (share + before)), 0, 255).astype(np.uint8).tobytes()


def _bytes(numbers: NDArray[Any]) -> bytes:
    """Byte by byte: the highest bytes of neighbours are often equal, so they compress well."""
    little = np.ascontiguousarray(numbers, dtype=numbers.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, little.itemsize).T.tobytes()
