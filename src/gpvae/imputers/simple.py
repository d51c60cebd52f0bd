"""Mean, forward and linear imputation, of all series at once.

Where a series has no observation of a column, the column's mean in the training data is the fallback. Categories, which
have no mean, get the most common, the last or the nearest one.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae.data.gaps import neighbours
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import Kinds, class_columns
from gpvae.data.schema import Schema
from gpvae.imputers.base import Imputer, Prediction


@dataclass(eq=False, repr=False)
class _Simple(Imputer):
    """Learns only a fallback for each column: its mean, or its most common category.

    kinds: kinds of columns by name. Only categories matter; other columns are numbers.
    """

    _: KW_ONLY
    kinds: Kinds | None = None
    fallback_: Floats = field(init=False)  # (feature,)

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        panel = self._read(data)
        self.schema_, self.history_ = self._new_schema(panel), []
        panel, classes = panel.with_labels(self.schema_.labels), self._is_class & self.schema_.scaling.known
        self.fallback_ = self.schema_.scaling.shift.copy()
        self.fallback_[classes] = [_mode(column[~np.isnan(column)]) for column in panel.values[:, classes].T]
        return self

    def _read(self, data: Any) -> Panel:
        return Panel.of(data, categories=class_columns(self.kinds))

    def _new_schema(self, panel: Panel) -> Schema:
        kinds = self.kinds or {}
        return Schema.of(panel, standardise=True, kinds={name: kinds[name] for name in class_columns(kinds)})

    @property
    def _is_class(self) -> Bools:
        """Columns of categories, even if they are constant in the training data. (feature,)"""
        names = {*self.schema_.labels, *class_columns(self.kinds)}
        return np.array([name in names for name in self.schema_.columns])

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        values, classes = np.empty_like(panel.values), self._is_class
        for columns, fill in ((~classes, self._fill_numbers), (classes, self._fill_classes)):
            part = panel.select([panel.columns[j] for j in np.flatnonzero(columns)])
            values[:, columns] = fill(part, self.fallback_[columns])
        return Prediction(values[missing])

    @abstractmethod
    def _fill_numbers(self, panel: Panel, fallback: Floats) -> Floats:
        """The values of numeric columns with gaps filled; `fallback` where a series has no value. (row, feature)"""

    @abstractmethod
    def _fill_classes(self, panel: Panel, fallback: Floats) -> Floats:
        """The same for columns of categories."""

    def _tensors(self) -> dict[str, Tensor]:
        return {"fallback": torch.from_numpy(self.fallback_)}

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        self.fallback_ = tensors["fallback"].numpy()
        if self.fallback_.shape != (len(self.schema_.columns),):
            raise ValueError("its fallbacks do not fit its columns")


@dataclass(eq=False, repr=False)
class Mean(_Simple):
    """The mean of the column in the same series; for categories, the most common one."""

    def _fill_numbers(self, panel: Panel, fallback: Floats) -> Floats:
        return mean(panel, fallback)

    def _fill_classes(self, panel: Panel, fallback: Floats) -> Floats:
        return most_common(panel, fallback)


@dataclass(eq=False, repr=False)
class Forward(_Simple):
    """The last observed value.

    before: the value before the first observation of a series: the "mean" of the column in the training data, the
        "first" observed value, or a number (for the paper's images 0, black). For categories, the most common one
        replaces the mean and the number.
    """

    before: Literal["mean", "first"] | float = "mean"

    def fit(self, data: Any, y: None = None, **paths: Any) -> Self:
        number = isinstance(self.before, int | float) and not isinstance(self.before, bool) and np.isfinite(self.before)
        if not number and self.before not in ("mean", "first"):
            raise ValueError(f"before must be 'mean', 'first' or a number, got {self.before!r}")
        return super().fit(data, y, **paths)

    def _fill_causally(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        if self.before == "first":
            raise DataError("Forward(before='first') uses a later value before the first one: set before to 'mean'")
        return self._fill(panel, missing, samples, seed)

    def _fill_numbers(self, panel: Panel, fallback: Floats) -> Floats:
        return self._fill_classes(
            panel, fallback if isinstance(self.before, str) else np.full_like(fallback, self.before)
        )

    def _fill_classes(self, panel: Panel, fallback: Floats) -> Floats:
        return forward(panel, fallback, backfill=self.before == "first")


@dataclass(eq=False, repr=False)
class Linear(_Simple):
    """Linear interpolation in time; the nearest value beyond the outermost observations, and for categories."""

    def _fill_numbers(self, panel: Panel, fallback: Floats) -> Floats:
        return linear(panel, fallback)

    def _fill_classes(self, panel: Panel, fallback: Floats) -> Floats:
        return nearest(panel, fallback)


def mean(panel: Panel, fallback: Floats) -> Floats:
    """See `Mean`; `fallback` (feature,) is used where a series has no observation."""
    count = np.add.reduceat(panel.observed, panel.starts, axis=0, dtype=np.float64)
    total = np.add.reduceat(np.where(panel.observed, panel.values, 0), panel.starts, axis=0)
    with np.errstate(invalid="ignore"):
        per_series = np.where(count > 0, total / count, fallback)
    return np.where(panel.observed, panel.values, per_series[panel.series_of_row])


def most_common(panel: Panel, fallback: Floats) -> Floats:
    """See `Mean`, for categories."""
    values = panel.values.copy()
    for _, rows in panel.series():
        for j, column in enumerate(values[rows].T):
            seen = column[~np.isnan(column)]
            column[np.isnan(column)] = _mode(seen) if len(seen) else fallback[j]
    return values


def forward(panel: Panel, fallback: Floats, *, backfill: bool = False) -> Floats:
    """See `Forward`; before the first observation, `fallback`, or with `backfill` that observation."""
    last, following = neighbours(panel)
    return _take(panel, np.where((last < 0) & backfill, following, last), fallback)


def linear(panel: Panel, fallback: Floats) -> Floats:
    """See `Linear`."""
    last, following = neighbours(panel)
    before = _take(panel, np.where(last >= 0, last, following), fallback)
    after = _take(panel, np.where(following >= 0, following, last), fallback)
    start, end = panel.times[last], panel.times[following]
    inside = (last >= 0) & (following >= 0) & (end > start)
    share = np.where(inside, (panel.times[:, None] - start) / np.where(inside, end - start, 1), 0)
    return np.where(panel.observed, panel.values, before + share * (after - before))


def nearest(panel: Panel, fallback: Floats) -> Floats:
    """See `Linear`, for categories; the earlier of two equally near values."""
    last, following = neighbours(panel)
    now = panel.times[:, None]
    later = (following >= 0) & ((last < 0) | (panel.times[following] - now < now - panel.times[last]))
    return _take(panel, np.where(later, following, last), fallback)


def _take(panel: Panel, rows: NDArray[np.int64], fallback: Floats) -> Floats:
    taken = np.take_along_axis(panel.values, np.maximum(rows, 0), axis=0)
    return np.where(rows >= 0, taken, fallback)


def _mode(values: Floats) -> float:
    distinct, counts = np.unique(values, return_counts=True)
    return float(distinct[np.argmax(counts)])
