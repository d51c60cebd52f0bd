"""What every loader returns."""

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
    """Series of one length, what is known of them beyond what a method may see, and how they are divided."""

    name: str
    panel: Panel  # NaN = missing
    truth: NDArray[Any]  # (row, feature) also where it is hidden from the panel; NaN = never known
    labels: NDArray[np.int64] | None = None  # (series,)
    splits: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)  # numbers of series; none: not divided
    image_shape: tuple[int, int, int] | None = None  # (channel, height, width) of a row

    def __post_init__(self) -> None:
        if self.truth.shape != self.panel.values.shape:
            raise DataError(f"{self.name}: truth {self.truth.shape} for values {self.panel.values.shape}")
        if self.labels is not None and len(self.labels) != len(self.panel):
            raise DataError(f"{self.name}: {len(self.labels)} labels for {len(self.panel)} series")

    @property
    def held_out(self) -> Bools:
        """Cells that are known but hidden from the panel. (row, feature)"""
        return ~self.panel.observed & ~np.isnan(self.truth)

    def only(self, split: str) -> "DataSet":
        """The series of one split; where they lie in a run, without a copy."""
        if split not in self.splits:
            has = f"has {', '.join(self.splits)}" if self.splits else "is not divided"
            raise DataError(f"{self.name} has no split {split!r}: it {has}")
        series = self.splits[split]
        return replace(self.part(series), splits={split: np.arange(len(series))})

    def part(self, numbers: NDArray[np.int64]) -> "DataSet":
        """Some of the series, undivided; where they lie in a run, without a copy."""
        series = _run(numbers)
        values, truth = (self._stacked(each)[series] for each in (self.panel.values, self.truth))
        ids = tuple(self.panel.ids[i] for i in numbers)
        panel = even_panel(values, self.panel.columns, ids, self.panel.times[: values.shape[1]])
        return replace(
            self,
            panel=replace(panel, clock=self.panel.clock, origin=self.panel.origin),
            truth=panel.values if self.truth is self.panel.values else truth.reshape(panel.values.shape),
            labels=None if self.labels is None else self.labels[series],
            splits={},
        )

    def _stacked(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(len(self.panel), -1, rows.shape[1])  # (series, time, feature)


def even_panel(
    values: NDArray[Any], columns: Sequence[str], ids: Sequence[Any], times: NDArray[Any] | None = None
) -> Panel:
    """(series, time, feature) with the same `times` (time,) in all, without a copy: float32 stays float32."""
    series, steps, features = values.shape
    clock, moments, origin = array_times(np.arange(steps) if times is None else times)
    if (np.diff(moments) <= 0).any():
        raise DataError(f"times must increase; they do not at step {int(np.argmax(np.diff(moments) <= 0)) + 1}")
    return Panel(
        values=values.reshape(-1, features),
        times=np.tile(moments, series),
        lengths=np.full(series, steps, dtype=np.int64),
        columns=tuple(columns),
        ids=tuple(ids),
        clock=clock,
        source=ArraySource(values),
        origin=origin,
    )


def runs(counts: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Splits of so many series each, one behind the other."""
    ends = np.cumsum(list(counts.values()))
    return {name: np.arange(end - n, end) for (name, n), end in zip(counts.items(), ends, strict=True)}


def require_splits(name: str, splits: Sequence[str], count: int | None) -> None:
    unknown = [split for split in splits if split not in SPLITS]
    if unknown or not splits or len(set(splits)) < len(splits):
        raise DataError(f"{name}: splits must be some of {', '.join(SPLITS)}, each once, not {list(splits)}")
    if count is not None and count < 1:
        raise DataError(f"{name}: count must be at least 1, not {count}")


def _run(series: NDArray[np.int64]) -> Any:
    together = len(series) and series[0] >= 0 and np.array_equal(series, series[0] + np.arange(len(series)))
    return slice(int(series[0]), int(series[0]) + len(series)) if together else series
