"""From rows to tensors: series, or windows of long ones, padded to one length."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae.panel import Bools, Floats, Panel


@dataclass(frozen=True)
class Batch:
    values: Tensor  # (batch, time, feature) scaled; 0 where nothing is observed
    observed: Tensor  # (batch, time, feature) bool
    times: Tensor  # (time,) where one even grid serves all, else (batch, time); float64, in steps
    valid: Tensor  # (batch, time) bool; False is padding behind a shorter series

    @property
    def steps(self) -> Tensor:
        """How many time steps there are, padding aside."""
        return self.valid.sum()


@dataclass(frozen=True)
class Piece:
    """Some rows in a run: a whole series, or a window of it."""

    start: int
    length: int


@dataclass(frozen=True)
class Rows:
    """A panel's rows on a device, scaled, ready to be cut into batches."""

    values: Tensor  # (row, feature) float32, 0 where missing
    observed: Tensor  # (row, feature) bool
    times: Tensor  # (row,) float64, in steps
    spacing: float | None  # the one time step of an even grid

    @classmethod
    def of(cls, panel: Panel, scaled: Floats, observed: Bools, time_unit: float, device: torch.device) -> "Rows":
        """`scaled` values of the panel of which only those `observed` are used."""
        times = (panel.times - panel.times[panel.starts][panel.series_of_row]) / time_unit
        return cls(
            values=torch.from_numpy(np.where(observed, scaled, 0).astype(np.float32)).to(device),
            observed=torch.from_numpy(observed).to(device),
            times=torch.from_numpy(times).to(device),
            spacing=_even_spacing(panel, time_unit),
        )

    def batch(self, pieces: list[Piece]) -> Batch:
        device = self.values.device
        longest = max(piece.length for piece in pieces)
        start = torch.tensor([piece.start for piece in pieces], device=device).unsqueeze(-1)
        length = torch.tensor([piece.length for piece in pieces], device=device).unsqueeze(-1)
        step = torch.arange(longest, device=device)
        valid = step < length
        row = start + step.minimum(length - 1)
        return Batch(
            values=self.values[row] * valid.unsqueeze(-1),
            observed=self.observed[row] & valid.unsqueeze(-1),
            times=self._times(row, step - (length - 1)),
            valid=valid,
        )

    def _times(self, row: Tensor, beyond: Tensor) -> Tensor:
        """Padding goes on in unit steps behind the last row, so that no two times are the same."""
        if self.spacing is not None:
            return torch.arange(row.shape[-1], device=row.device, dtype=torch.float64) * self.spacing
        return self.times[row] + beyond.clamp(min=0)


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


def shuffled(pieces: list[Piece], size: int, generator: np.random.Generator) -> Iterator[list[Piece]]:
    order: NDArray[np.int64] = generator.permutation(len(pieces))
    for first in range(0, len(pieces), size):
        yield [pieces[i] for i in order[first : first + size]]


def whole_series(panel: Panel, rows: int) -> Iterator[list[Piece]]:
    """Every series in one piece, shortest first, in batches of at most `rows` padded rows (or one series)."""
    order = np.argsort(panel.lengths, kind="stable")
    group: list[Piece] = []
    for i in order.tolist():
        length = int(panel.lengths[i])
        if group and (len(group) + 1) * length > rows:
            yield group
            group = []
        group.append(Piece(int(panel.starts[i]), length))
    if group:
        yield group
