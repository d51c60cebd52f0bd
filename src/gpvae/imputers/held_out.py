"""Cells that are held out from training: to validate and to calibrate by."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator

from gpvae import missingness
from gpvae.data.batches import Batch, BatchIndex, RowTensors, Window
from gpvae.data.panel import Bools, Panel
from gpvae.training.seeds import step_generator


class HeldOutCells(NamedTuple):
    """Which cells were held out, and the data that they are of: saved with an imputer."""

    bits: NDArray[np.uint8]  # (row, byte) one bit for each column of the model, each row from a new byte on
    data: str  # fingerprint of the panel

    @classmethod
    def of(cls, cells: Bools, data: str) -> "HeldOutCells":
        return cls(np.packbits(cells, axis=1), data)

    def cells(self, columns: int) -> Bools:
        """(row, column)"""
        return np.unpackbits(self.bits, axis=1, count=columns).astype(bool)


def hold_out(panel: Panel, share: float, seed: int, columns: Bools) -> Bools:
    """A share of the observed cells of `columns`: half of it in gaps like the panel's own, if there are any."""
    learnable = panel.observed & columns
    wanted = round(share * learnable.sum())
    if wanted < 1:
        return np.zeros(panel.values.shape, dtype=bool)
    known = panel.with_values(np.where(learnable, panel.values, np.nan))
    gaps = np.zeros(learnable.shape, dtype=bool)
    if not panel.observed.all():
        gaps = missingness.like_own(known, share / 2, [seed, 2])
    rest = (wanted - gaps.sum()) / (learnable.sum() - gaps.sum())
    return gaps | missingness.random(missingness.hide(known, gaps), rest, [seed, 1])


@dataclass(frozen=True)
class HeldOut:
    """Held-out cells on a device, window by window."""

    rows: RowTensors  # what is visible
    targets: RowTensors  # the held-out cells
    windows: list[Window]
    seed: int

    @property
    def exists(self) -> bool:
        return bool(self.targets.observed.any())

    def subset(self, count: int) -> "HeldOut":
        """At most `count` windows that have held-out cells, spread over the data."""
        if count >= len(self.windows):
            return self
        rows_with_any = self.targets.observed[:-1].any(-1).cumsum(0).cpu().numpy()
        before = np.concatenate([[0], rows_with_any])
        useful = [window for window in self.windows if before[window.start + window.length] > before[window.start]]
        return replace(self, windows=useful[:: -(-len(useful) // count)])

    def folds(self, count: int) -> Iterator["HeldOut"]:
        """The held-out cells in `count` parts; the cells of the other parts are visible in each.

        With all of them hidden at once there would be more gaps than there are in the end. A run of held-out steps
        stays together, in all columns where it begins at the same row.
        """
        held = self.targets.observed
        begins = held & ~held.roll(1, dims=0)
        row = torch.arange(len(held), device=held.device).unsqueeze(-1)
        first = torch.where(begins, row, 0).cummax(0).values
        fold = torch.from_numpy(np.random.default_rng(self.seed).integers(count, size=len(held))).to(held.device)
        for number in range(count):
            hidden = held & (fold[first] == number)
            shown, values = held & ~hidden, self.targets.values
            rows = replace(self.rows, values=self.rows.values + values * shown, observed=self.rows.observed | shown)
            yield replace(self, rows=rows, targets=replace(self.targets, values=values * hidden, observed=hidden))

    def batches(self, steps_at_once: int) -> Iterator[tuple[Batch, Batch, Generator]]:
        """What is visible, the held-out cells of the same steps, and random numbers."""
        size = max(1, steps_at_once // max(window.length for window in self.windows))
        for first in range(0, len(self.windows), size):
            index = BatchIndex.of(self.windows[first : first + size], self.rows.values.device)
            targets = self.targets.batch(index)
            yield self.rows.batch(index), targets, step_generator(self.seed, first, targets.values.device)
