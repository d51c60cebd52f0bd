"""Mean, forward and linear imputation, over all series at once.

Where a series has no observation of a column there is nothing to carry or average: the mean of the column in the data
fitted on stands in. Categories, which have no mean, get the most common one, the last or the nearest.
"""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae.data.codec import from_json, to_json
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.scaling import Kinds, class_columns
from gpvae.data.schema import Schema
from gpvae.imputers.base import Imputer, Prediction


@dataclass(eq=False, repr=False)
class _Simple(Imputer):
    """Nothing is learned but what is usual in each column: the mean, of categories the most common.

    kinds: what columns hold, by name. Those of categories count, beside text; numbers are taken as they are.
    """

    _: KW_ONLY
    kinds: Kinds | None = None
    usual_: Floats = field(init=False)  # (feature,)

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        panel = self._read(data)
        self.schema_, self.history_ = self._new_schema(panel), []
        panel, classes = panel.with_labels(self.schema_.labels), self._is_class & self.schema_.scaling.known
        self.usual_ = self.schema_.scaling.shift.copy()
        self.usual_[classes] = [_commonest(column[~np.isnan(column)]) for column in panel.values[:, classes].T]
        return self

    def _read(self, data: Any) -> Panel:
        return Panel.of(data, categories=class_columns(self.kinds))

    def _new_schema(self, panel: Panel) -> Schema:
        kinds = self.kinds or {}
        return Schema.of(panel, standardise=True, kinds={name: kinds[name] for name in class_columns(kinds)})

    @property
    def _is_class(self) -> Bools:
        """Columns of categories, whether or not they varied in the data fitted on. (feature,)"""
        names = {*self.schema_.labels, *class_columns(self.kinds)}
        return np.array([name in names for name in self.schema_.columns])

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        values, classes = np.empty_like(panel.values), self._is_class
        for some, fill in ((~classes, self._numbers), (classes, self._classes)):
            part = panel.select([panel.columns[j] for j in np.flatnonzero(some)])
            values[:, some] = fill(part, self.usual_[some])
        return Prediction(values[missing])

    @abstractmethod
    def _numbers(self, panel: Panel, usual: Floats) -> Floats:
        """The values of columns of numbers without gaps; `usual` where a series has none. (row, feature)"""

    @abstractmethod
    def _classes(self, panel: Panel, usual: Floats) -> Floats:
        """The same, of columns of categories."""

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"kinds": to_json(self.kinds, Kinds | None)}

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], device: str) -> Self:
        kinds: Any = Kinds | None
        return super()._from_settings(settings | {"kinds": from_json(kinds, settings["kinds"])}, device)

    def _tensors(self) -> dict[str, Tensor]:
        return {"usual": torch.from_numpy(self.usual_)}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.usual_ = tensors["usual"].numpy() if tensors else self.schema_.scaling.shift  # format 6


@dataclass(eq=False, repr=False)
class Mean(_Simple):
    """The mean of the column in the same series; of categories the most common."""

    def _numbers(self, panel: Panel, usual: Floats) -> Floats:
        return mean(panel, usual)

    def _classes(self, panel: Panel, usual: Floats) -> Floats:
        return most_common(panel, usual)


@dataclass(eq=False, repr=False)
class Forward(_Simple):
    """The last observed value.

    before: what stands before the first observation of a series: the "mean" of the column in the data fitted on, the
        "first" observed value, carried back, or a number (the paper's images: 0, black). Of categories it is the
        most common, in place of the mean or a number.
    """

    before: Literal["mean", "first"] | float = "mean"

    def fit(self, data: Any, y: None = None, **places: Any) -> Self:
        number = isinstance(self.before, int | float) and not isinstance(self.before, bool) and np.isfinite(self.before)
        if not number and self.before not in ("mean", "first"):
            raise ValueError(f"before={self.before!r} makes no sense: it is 'mean', 'first' or a number")
        return super().fit(data, y, **places)

    def _numbers(self, panel: Panel, usual: Floats) -> Floats:
        return self._classes(panel, usual if isinstance(self.before, str) else np.full_like(usual, self.before))

    def _classes(self, panel: Panel, usual: Floats) -> Floats:
        return forward(panel, usual, back=self.before == "first")


@dataclass(eq=False, repr=False)
class Linear(_Simple):
    """On the line in time between neighbouring observations; beyond the outermost, and of categories, the nearest."""

    def _numbers(self, panel: Panel, usual: Floats) -> Floats:
        return linear(panel, usual)

    def _classes(self, panel: Panel, usual: Floats) -> Floats:
        return nearest(panel, usual)


def mean(panel: Panel, usual: Floats) -> Floats:
    """See `Mean`; `usual` (feature,) where a series has no observation."""
    count = np.add.reduceat(panel.observed, panel.starts, axis=0, dtype=np.float64)
    total = np.add.reduceat(np.where(panel.observed, panel.values, 0), panel.starts, axis=0)
    with np.errstate(invalid="ignore"):
        per_series = np.where(count > 0, total / count, usual)
    return np.where(panel.observed, panel.values, per_series[panel.series_of_row])


def most_common(panel: Panel, usual: Floats) -> Floats:
    """See `Mean`, of categories."""
    values = panel.values.copy()
    for _, rows in panel.series():
        for j, column in enumerate(values[rows].T):
            seen = column[~np.isnan(column)]
            column[np.isnan(column)] = _commonest(seen) if len(seen) else usual[j]
    return values


def forward(panel: Panel, usual: Floats, *, back: bool = False) -> Floats:
    """See `Forward`; `usual` before the first observation, or, carried `back`, that one."""
    last, following = neighbours(panel)
    return _take(panel, np.where((last < 0) & back, following, last), usual)


def linear(panel: Panel, usual: Floats) -> Floats:
    """See `Linear`."""
    last, following = neighbours(panel)
    before = _take(panel, np.where(last >= 0, last, following), usual)
    after = _take(panel, np.where(following >= 0, following, last), usual)
    start, end = panel.times[last], panel.times[following]
    inside = (last >= 0) & (following >= 0) & (end > start)
    share = np.where(inside, (panel.times[:, None] - start) / np.where(inside, end - start, 1), 0)
    return np.where(panel.observed, panel.values, before + share * (after - before))


def nearest(panel: Panel, usual: Floats) -> Floats:
    """See `Linear`, of categories; the earlier of two that are as near."""
    last, following = neighbours(panel)
    now = panel.times[:, None]
    later = (following >= 0) & ((last < 0) | (panel.times[following] - now < now - panel.times[last]))
    return _take(panel, np.where(later, following, last), usual)


def neighbours(panel: Panel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each cell, the row of the last observation at or before it and of the next at or after it; -1 = none."""
    rows = np.arange(len(panel.values))[:, None]
    first = panel.starts[panel.series_of_row][:, None]
    past_end = (panel.starts + panel.lengths)[panel.series_of_row][:, None]
    last = np.maximum.accumulate(np.where(panel.observed, rows, -1), axis=0)
    following = np.minimum.accumulate(np.where(panel.observed, rows, len(rows))[::-1], axis=0)[::-1]
    return np.where(last >= first, last, -1), np.where(following < past_end, following, -1)


def _take(panel: Panel, rows: NDArray[np.int64], usual: Floats) -> Floats:
    taken = np.take_along_axis(panel.values, np.maximum(rows, 0), axis=0)
    return np.where(rows >= 0, taken, usual)


def _commonest(values: Floats) -> float:
    found, counts = np.unique(values, return_counts=True)
    return float(found[np.argmax(counts)])
