"""From rows to tensors: series, or windows of long ones, padded to one length."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from gpvae.data.panel import Bools, Floats, Panel


@dataclass(frozen=True)
class Batch:
    values: Tensor  # (batch, time, feature) scaled; 0 where nothing is observed
    observed: Tensor  # (batch, time, feature) bool
    times: Tensor | float  # (batch, time) float64, in steps; or the one step of an even grid
    lengths: Tensor  # (batch,) how many steps there are; behind them is padding
    usual_steps: Tensor | None = None  # of an epoch's batches on average, where this is one of many

    @property
    def valid(self) -> Tensor:
        """Steps that are not padding. (batch, time) bool"""
        return torch.arange(self.values.shape[-2], device=self.lengths.device) < self.lengths.unsqueeze(-1)

    @property
    def steps(self) -> Tensor:
        """What sums over the batch are divided by: its time steps, or those of the usual batch.

        The latter gives every time step the same weight, whether its batch is made of short pieces or of long ones.
        """
        return self.lengths.sum() if self.usual_steps is None else self.usual_steps


@dataclass(frozen=True)
class Piece:
    """Some rows in a run: a whole series, or a window of it."""

    start: int
    length: int


class Cut(NamedTuple):
    """Pieces that make one batch, on the device; pieces of no length fill it up."""

    starts: Tensor  # (batch,)
    lengths: Tensor  # (batch,)
    time: int  # steps of the batch, padding included
    usual_steps: Tensor | None = None  # of an epoch's batches on average

    @classmethod
    def of(cls, pieces: list[Piece], device: torch.device) -> "Cut":
        starts, lengths = torch.tensor([[piece.start, piece.length] for piece in pieces], device=device).T.contiguous()
        return cls(starts, lengths, max(piece.length for piece in pieces))


@dataclass(frozen=True)
class Rows:
    """A panel's rows on a device, scaled, ready to be cut into batches; behind them an empty one, for padding."""

    values: Tensor  # (row + 1, feature) float32, 0 where missing
    observed: Tensor  # (row + 1, feature) bool
    times: Tensor  # (row,) float64, in steps
    spacing: float | None  # the one time step of an even grid

    @classmethod
    def of(cls, panel: Panel, scaled: Floats, observed: Bools, time_unit: float, device: torch.device) -> "Rows":
        """`scaled` values of the panel of which only those `observed` are used."""
        times = (panel.times - panel.times[panel.starts][panel.series_of_row]) / time_unit
        shape = (len(scaled) + 1, scaled.shape[1])
        values, seen = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=bool)
        np.copyto(values[:-1], scaled, where=observed, casting="same_kind")
        seen[:-1] = observed
        return cls(
            values=torch.from_numpy(values).to(device),
            observed=torch.from_numpy(seen).to(device),
            times=torch.from_numpy(times).to(device),
            spacing=_even_spacing(panel, time_unit),
        )

    def batch(self, cut: Cut) -> Batch:
        step = torch.arange(cut.time, device=self.values.device)
        row = cut.starts.unsqueeze(-1) + step
        row = torch.where(step < cut.lengths.unsqueeze(-1), row, len(self.values) - 1)
        return Batch(self.values[row], self.observed[row], self.times_of(cut), cut.lengths, cut.usual_steps)

    def times_of(self, cut: Cut) -> Tensor | float:
        """Padding goes on in unit steps behind the last row, so that no two times are the same."""
        if self.spacing is not None:
            return self.spacing
        step, last = torch.arange(cut.time, device=self.times.device), (cut.lengths - 1).clamp(min=0).unsqueeze(-1)
        return self.times[cut.starts.unsqueeze(-1) + step.minimum(last)] + (step - last).clamp(min=0)


def elapsed(times: Tensor, observed: Tensor) -> Tensor:
    """δ: time since the last observation before each step, or since the start where there was none.

    δ_1 = 0,  δ_t = s_t - s_{t-1} + (0 if observed at t-1, else δ_{t-1})

    Steps are the second dimension of both; times rise along it.
    """
    start = times[:, :1].expand_as(observed[:, :1])
    latest = torch.where(observed[:, :-1], times[:, :-1], start).cummax(1).values
    return times - torch.cat([start, latest], dim=1)


def median_step(panel: Panel) -> float:
    """The usual distance between two rows: the unit that length scales are counted in."""
    return float(np.median(panel.time_steps)) if len(panel.time_steps) else 1.0


def _even_spacing(panel: Panel, time_unit: float) -> float | None:
    steps = panel.time_steps / time_unit
    if not len(steps):
        return 1.0
    spacing = float(np.median(steps))
    return spacing if np.allclose(steps, spacing, rtol=1e-6, atol=0) else None


def windows(panel: Panel, size: int, generator: np.random.Generator | None = None) -> list[Piece]:
    """Every series cut into runs of at most `size` rows; with a generator, at cuts that differ from call to call."""
    pieces: list[Piece] = []
    for start, length in zip(panel.starts.tolist(), panel.lengths.tolist(), strict=True):
        shift = int(generator.integers(size)) if generator is not None and length > size else 0
        cuts = [0, *range(size - shift, length, size), length]
        pieces += [Piece(start + a, b - a) for a, b in pairwise(cuts) if b > a]
    return pieces


PILE = 8  # batches that are sorted by length together


@dataclass(frozen=True)
class Batches:
    """How a panel's windows go into batches of few shapes, every epoch in another order."""

    panel: Panel
    window: int
    size: int  # at most so many pieces in a batch

    @property
    def even_size(self) -> int:
        """Pieces in each batch, such that the last one is about as full as the others."""
        long = self.panel.lengths > self.window
        most = int(np.where(long, -(-self.panel.lengths // self.window) + 1, 1).sum())
        return -(-most // -(-most // self.size))

    @property
    def shapes(self) -> int:
        """About how many different lengths batches have."""
        return len(np.unique(self._buckets(np.minimum(self.panel.lengths, self.window))))

    def _buckets(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(_bucket(lengths), min(self.window, self.panel.lengths.max()))

    def epoch(self, generator: np.random.Generator, device: torch.device) -> Iterator[Cut]:
        """Every piece once, in random order.

        Pieces of like length go together as far as that leaves chance its say: a shuffled pile of a few batches is
        sorted by bucket, cut, and the batches shuffled again. All numbers go to the device in one copy.
        """
        pieces, size = windows(self.panel, self.window, generator), self.even_size
        starts, lengths = np.array([(piece.start, piece.length) for piece in pieces], dtype=np.int64).T
        buckets = self._buckets(lengths)
        order = generator.permutation(len(pieces))
        order = order[np.lexsort((buckets[order], np.arange(len(order)) // (PILE * size)))]
        count = -(-len(order) // size)
        cuts = np.zeros((2, count * size), dtype=np.int64)
        cuts[:, : len(order)] = starts[order], lengths[order]
        times = np.maximum.reduceat(buckets[order], np.arange(0, len(order), size))
        on_device = torch.from_numpy(cuts).to(device).unflatten(-1, (count, size))
        usual = torch.tensor(lengths.sum() / count, dtype=torch.float32, device=device)
        for i in generator.permutation(count).tolist():
            yield Cut(on_device[0, i], on_device[1, i], int(times[i]), usual)


def _bucket(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """The next larger of 2, 4, … 16, 20, 24, 28, 32, 40, …: beyond 8 at most a fifth is padding."""
    grain = 2 ** np.maximum(np.ceil(np.log2(lengths)).astype(np.int64) - 3, 1)
    return -(-lengths // grain) * grain


Part = tuple[Piece, slice]  # a piece to look at, and the steps of it to predict


def whole_pieces(panel: Panel) -> list[Piece]:
    """Every series in one piece."""
    return [Piece(*each) for each in zip(panel.starts.tolist(), panel.lengths.tolist(), strict=True)]


def in_windows(piece: Piece, window: int) -> list[Part]:
    """How to predict a long piece: shorter ones, and the part to keep of each. Together they keep every step once.

    Each keeps at most `window` steps, with half as many around them on either side, or more on one where the piece
    ends on the other: all are of one length. What is drawn in different windows is independent.
    """
    if piece.length <= window:
        return [(piece, slice(0, piece.length))]
    around = window // 2
    size = min(piece.length, window + 2 * around)
    parts: list[Part] = []
    for first in range(0, piece.length, window):
        start = min(max(first - around, 0), piece.length - size)
        keep = slice(first - start, min(first + window, piece.length) - start)
        parts.append((Piece(piece.start + start, size), keep))
    return parts


def grouped(parts: list[Part], steps: int) -> Iterator[list[Part]]:
    """Parts, shortest pieces first, in groups of at most so many padded steps (or one part)."""
    parts = sorted(parts, key=lambda part: part[0].length)
    first = 0
    for i in range(1, len(parts) + 1):
        if i == len(parts) or (i + 1 - first) * parts[i][0].length > steps:
            yield parts[first:i]
            first = i


def whole_series(panel: Panel, steps: int) -> Iterator[list[Piece]]:
    """Every series in one piece, shortest first, in groups of at most so many padded steps (or one series)."""
    parts = [(piece, slice(0, piece.length)) for piece in whole_pieces(panel)]
    for group in grouped(parts, steps):
        yield [piece for piece, _ in group]


class Surroundings(NamedTuple):
    """For each cell the nearest visible values of its column, strictly before and after it. (batch, time, feature)"""

    between: Tensor  # what a straight line between them has at the cell; one of them alone goes on; none: 0
    before: Tensor  # 0 where there is none
    after: Tensor
    since: Tensor  # closeness, 1 / √(1 + distance): 0 where there is none
    until: Tensor

    @classmethod
    def of(cls, values: Tensor, observed: Tensor, times: Tensor | float) -> "Surroundings":
        step = torch.arange(values.shape[1], device=values.device).unsqueeze(-1)
        at_or_before = torch.where(observed, step, -1).cummax(1).values
        at_or_after = torch.where(observed, step, len(step)).flip(1).cummin(1).values.flip(1)
        place_before = pad(at_or_before[:, :-1], (0, 0, 1, 0), value=-1)
        place_after = pad(at_or_after[:, 1:], (0, 0, 0, 1), value=len(step))
        has_before, has_after = place_before >= 0, place_after < len(step)
        place_before, place_after = place_before.clamp(min=0), place_after.clamp(max=len(step) - 1)
        before, after = values.gather(1, place_before) * has_before, values.gather(1, place_after) * has_after
        since, until = (_distance(place, step, times, values.dtype) for place in (place_before, place_after))
        both = since + until  # of two neighbours, each weighs as much as the other is far
        share = torch.where(has_before & has_after, until / torch.where(both > 0, both, 1.0), 1.0 * has_before)
        between = share * before + torch.where(has_after, 1 - share, 0.0) * after
        return cls(between, before, after, has_before * (1 + since).rsqrt(), has_after * (1 + until).rsqrt())


def _distance(place: Tensor, step: Tensor, times: Tensor | float, dtype: torch.dtype) -> Tensor:
    """In time, of each step from the one at `place`. (batch, time, feature)"""
    if not isinstance(times, Tensor):
        return times * (place - step).abs().to(dtype)
    there = times.unsqueeze(-1).expand(place.shape).gather(1, place)
    return (there - times.unsqueeze(-1)).abs().to(dtype)
