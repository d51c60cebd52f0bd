"""The type that every loader returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.frames import ArraySource
from gpvae.data.panel import Bools, DataError, Panel
from gpvae.data.times import array_times

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class DataSet:
    """Series of equal length with their true values, labels and splits."""

    name: str
    panel: Panel  # NaN = missing
    truth: NDArray[Any]  # (row, feature) including values hidden from the panel; NaN = unknown
    labels: NDArray[np.int64] | None = None  # (series,)
    splits: Mapping[str, NDArray[np.int64]] = field(
        default_factory=dict
    )  # indices of series; empty if there are no splits
    image_shape: tuple[int, int, int] | None = None  # (channel, height, width) of a row

    def __post_init__(self) -> None:
        if self.truth.shape != self.panel.values.shape:
            raise DataError(f"{self.name}: truth must have shape {self.panel.values.shape}, got {self.truth.shape}")
        if self.labels is not None and len(self.labels) != len(self.panel):
            raise DataError(
                f"{self.name}: there must be {len(self.panel)} labels, one for each series, got {len(self.labels)}"
            )

    @property
    def held_out(self) -> Bools:
        """Cells that are known but hidden from the panel. (row, feature)"""
        return ~self.panel.observed & ~np.isnan(self.truth)

    def only(self, split: str) -> "DataSet":
        """The series of one split; consecutive series are not copied."""
        if split not in self.splits:
            raise DataError(f"{self.name} has no split {split!r}; it has {', '.join(self.splits) or 'none'}")
        series = self.splits[split]
        return replace(self.part(series), splits={split: np.arange(len(series))})

    def part(self, index: NDArray[np.int64]) -> "DataSet":
        """The series at `index`, without splits; consecutive series are not copied."""
        series = _slice_if_consecutive(index)
        values, truth = (self._by_series(rows)[series] for rows in (self.panel.values, self.truth))
        ids = tuple(self.panel.ids[i] for i in index)
        panel = even_panel(values, self.panel.columns, ids, self.panel.times[: values.shape[1]])
        return replace(
            self,
            panel=replace(panel, clock=self.panel.clock, origin=self.panel.origin),
            truth=panel.values if self.truth is self.panel.values else truth.reshape(panel.values.shape),
            labels=None if self.labels is None else self.labels[series],
            splits={},
        )

    def _by_series(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(len(self.panel), -1, rows.shape[1])  # (series, time, feature)


def even_panel(
    values: NDArray[Any], columns: Sequence[str], ids: Sequence[Any], times: NDArray[Any] | None = None
) -> Panel:
    """A panel of values (series, time, feature) that share their `times` (time,); values are not copied."""
    series, steps, features = values.shape
    clock, grid, origin = array_times(np.arange(steps) if times is None else times)
    if (np.diff(grid) <= 0).any():
        raise DataError(f"times must increase; they do not at step {int(np.argmax(np.diff(grid) <= 0)) + 1}")
    return Panel(
        values=values.reshape(-1, features),
        times=np.tile(grid, series),
        lengths=np.full(series, steps, dtype=np.int64),
        columns=tuple(columns),
        ids=tuple(ids),
        clock=clock,
        source=ArraySource(values),
        origin=origin,
    )


def consecutive_splits(counts: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Splits of these sizes, one after another."""
    ends = np.cumsum(list(counts.values()))
    return {name: np.arange(end - n, end) for (name, n), end in zip(counts.items(), ends, strict=True)}


def require_splits(name: str, splits: Sequence[str], count: int | None) -> None:
    unknown = [split for split in splits if split not in SPLITS]
    if unknown or not splits or len(set(splits)) < len(splits):
        raise DataError(f"{name}: splits must be among {', '.join(SPLITS)}, each once, got {list(splits)}")
    if count is not None and count < 1:
        raise DataError(f"{name}: count must be at least 1, got {count}")


def _slice_if_consecutive(index: NDArray[np.int64]) -> Any:
    consecutive = len(index) and index[0] >= 0 and np.array_equal(index, index[0] + np.arange(len(index)))
    return slice(int(index[0]), int(index[0]) + len(index)) if consecutive else index
