"""Runs of rows in one column, such as gaps or days, and what is computed from the cells of each."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats, Panel

Index = NDArray[np.int64]


class Runs(NamedTuple):
    """Consecutive rows of one column each. (run,)"""

    column: Index
    first: Index  # row
    length: Index

    @property
    def offsets(self) -> Index:
        """The place of the first cell of each run, when the cells of all runs stand in a row."""
        return np.cumsum(self.length) - self.length

    def cells(self) -> tuple[Index, Index]:
        """Row and column of all cells, run after run. (cell,)"""
        step = np.arange(self.length.sum()) - np.repeat(self.offsets, self.length)
        return np.repeat(self.first, self.length) + step, np.repeat(self.column, self.length)

    def at(self, chosen: slice | Index | Bools) -> "Runs":
        return Runs(*(field[chosen] for field in self))

    def chunks(self, cells: int) -> Iterator["Runs"]:
        """With some `cells` cells at a time, to save memory."""
        chunk = self.offsets // cells
        ends = np.append(np.flatnonzero(np.diff(chunk)) + 1, len(chunk))
        for first, end in zip(np.append(0, ends), ends, strict=False):
            yield self.at(slice(first, end))

    # Of values (cell, ...) of all cells, run after run. (run, ...)

    def sum(self, values: Floats) -> Floats:
        return np.add.reduceat(values, self.offsets, axis=0)

    def mean(self, values: Floats) -> Floats:
        return (self.sum(values).T / self.length).T

    def minimum(self, values: Floats) -> Floats:
        return np.minimum.reduceat(values, self.offsets, axis=0)

    def maximum(self, values: Floats) -> Floats:
        return np.maximum.reduceat(values, self.offsets, axis=0)


def find_runs(panel: Panel, cells: Bools) -> Runs:
    """The maximal runs that cells (row, feature) make within series, column after column."""
    column, row = np.nonzero(cells.T)
    starts_series = np.zeros(len(cells) + 1, dtype=bool)
    starts_series[panel.starts] = True
    continues = (np.diff(column, prepend=-1) == 0) & (np.diff(row, prepend=-1) == 1) & ~starts_series[row]
    begins = np.flatnonzero(~continues)
    return Runs(column[begins], row[begins], np.diff(begins, append=len(row)))
