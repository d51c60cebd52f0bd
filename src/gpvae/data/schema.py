"""The schema that an imputer keeps of its training data: columns, their kinds, labels, scaling and times."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from gpvae.data.batches import RowTensors, median_step
from gpvae.data.panel import Bools, DataError, Floats, FrameSource, Panel
from gpvae.data.scaling import CLASSES, Kind, Kinds, Scaling
from gpvae.data.times import Clock


@dataclass(frozen=True)
class Schema:
    """What an imputer keeps of its training data, saved with it."""

    columns: tuple[Any, ...]  # names; pandas allows numbers too
    clock: Clock
    time_unit: float  # the median time step
    scaling: Scaling
    id: str | None  # columns of the data frame that hold series ids and times
    time: str | None
    labels: Mapping[Any, tuple[Any, ...]] = field(default_factory=dict)  # of text columns

    def __post_init__(self) -> None:
        scaling, count = self.scaling, len(self.columns)
        of_columns = (scaling.shift, scaling.scale, scaling.kinds, scaling.levels)
        of_limits = (scaling.lower, scaling.upper, scaling.step, scaling.origin)
        lengths = {len(each) for each in (*of_columns, *of_limits)}
        if lengths != {count} or not self.time_unit > 0:
            raise ValueError("columns, scales and times do not fit together")

    @classmethod
    def of(cls, panel: Panel, *, standardise: bool, kinds: Kinds | None = None) -> "Schema":
        if not panel.observed.any():
            raise DataError("the data has no observed value at all")
        labels, column_kinds, levels = _resolve_kinds(panel, kinds or {})
        panel = panel.with_labels(labels)
        _require_kinds(panel, column_kinds, levels)
        scaling = Scaling.of(panel, standardise=standardise, kinds=column_kinds, levels=levels)
        _warn(panel.columns, ~scaling.known, "has no observed value: it stays missing")
        constant = scaling.known & ~scaling.varies
        _warn(panel.columns, constant, "is constant: its gaps get the same value and an interval of zero width")
        source = panel.source
        return cls(panel.columns, panel.clock, median_step(panel), scaling, source.id, source.time, labels)

    def panel(self, data: Any) -> Panel:
        """Data of any type, read with the same id, time and text columns; labels are not aligned yet."""
        return Panel.of(data, id=self.id, time=self.time, categories=tuple(self.labels))

    def select(self, panel: Panel, method: str) -> Panel:
        """The panel with these columns; a `DataError` if it does not fit. `method` names the imputer in messages."""
        absent = [str(name) for name in self.columns if name not in panel.columns]
        if absent:
            raise DataError(
                f"the model was fitted on the columns {', '.join(map(str, self.columns))}; "
                f"the data lacks {', '.join(absent)}"
            )
        if not isinstance(panel.source, FrameSource) and len(panel.columns) != len(self.columns):
            raise DataError(f"the model was fitted on {len(self.columns)} columns, the data has {len(panel.columns)}")
        if panel.clock != self.clock and len(panel.time_steps):
            raise DataError(f"the model was fitted on times given as {self.clock}s, the data has {panel.clock}s")
        extra = np.array([name not in self.columns for name in panel.columns])
        _warn(
            panel.columns,
            extra & ~panel.observed.all(axis=0),
            f"was not among the columns that {method} was fitted on and is left unchanged",
        )
        unknown = ~self.scaling.known
        _warn(self.columns, unknown, "had no observed value when the model was fitted: it stays missing")
        selected = panel.select(self.columns)
        _require_kinds(selected, self.scaling.kinds, dict(enumerate(self.scaling.levels)))
        return selected

    def column_index(self, panel: Panel) -> NDArray[np.int64]:
        """The positions of these columns in a panel."""
        return np.array([panel.columns.index(name) for name in self.columns])

    def rows(self, panel: Panel, observed: Bools, device: torch.device) -> RowTensors:
        """Scaled rows, of which only `observed` cells in columns that vary are visible."""
        scaled = self.scaling.apply(panel.values)
        return RowTensors.of(panel, scaled, observed & self.scaling.varies, self.time_unit, device)


def _resolve_kinds(
    panel: Panel, kinds: Kinds
) -> tuple[dict[str, tuple[Any, ...]], tuple[Kind, ...], dict[int, tuple[float, ...]]]:
    """Labels of text columns, the kind of each column, and the levels given for columns of numbers."""
    labels, levels, resolved = dict(panel.labels), dict[int, tuple[float, ...]](), list[Kind]()
    for name, kind in kinds.items():
        if isinstance(kind, str) and kind not in get_args(Kind):
            raise DataError(f"the kind of column {name!r} must be one of {', '.join(get_args(Kind))}, got {kind!r}")
        if name not in panel.columns:
            numbers = "" if kind in CLASSES or not isinstance(kind, str) else " of numbers"
            columns = ", ".join(map(str, panel.columns))
            raise DataError(
                f"kinds names a column {name!r}, but there is no such column{numbers}; the columns are {columns}"
            )
        if isinstance(kind, str):
            _require_order(panel, name, kind)
        elif len(set(kind)) < max(2, len(kind)):
            raise DataError(f"column {name!r} must have at least two different levels, got {list(kind)}")
        elif name in labels:
            labels[name] = tuple(kind)
        elif list(kind) != sorted(kind):
            raise DataError(f"the levels of column {name!r} are numbers and must increase, got {list(kind)}")
        else:
            levels[panel.columns.index(name)] = tuple(float(level) for level in kind)
    for name in panel.columns:
        kind = kinds.get(name, "categorical" if name in labels else "real")
        resolved.append(cast(Kind, kind) if isinstance(kind, str) else "ordinal")
    return labels, tuple(resolved), levels


def _require_order(panel: Panel, name: str, kind: str) -> None:
    source = panel.source
    if kind == "ordinal" and name in panel.labels and not (isinstance(source, FrameSource) and source.has_order(name)):
        example = '["low", "mid", "high"], on the command line low<mid<high'
        raise DataError(f"column {name!r} is text, so its order is unknown: list its levels in order, as {example}")


MAX_COUNT = 2**24  # the largest whole number up to which float32, the type of draws, is exact
_ALLOWED: dict[str, tuple[str, Callable[[Floats], Bools]]] = {
    "positive": ("numbers above 0", lambda x: x <= 0),
    "count": (
        f"whole numbers from 0 to {MAX_COUNT:,}",
        lambda x: (x < 0) | (x > MAX_COUNT) | ((x != np.rint(x)) & ~np.isnan(x)),
    ),
}


def _require_kinds(panel: Panel, kinds: Sequence[Kind], levels: Mapping[int, tuple[float, ...]]) -> None:
    """Check that values fit the kinds of their columns, and are among the levels where those are known."""
    for j, kind in enumerate(kinds):
        column = panel.values[:, j]
        if kind in _ALLOWED:
            allowed, wrong = _ALLOWED[kind][0], _ALLOWED[kind][1](column)
        elif kind in CLASSES and j in levels:
            known = ", ".join(f"{level:g}" for level in levels[j])
            allowed, wrong = f"one of {known}", ~np.isin(column, levels[j]) & ~np.isnan(column)
        else:
            continue
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"column {panel.columns[j]!r} is {kind}, so it must hold {allowed}, got {column[row]:g} "
                f"({panel.source.where(row)})"
            )


def _warn(columns: tuple[str, ...], affected: NDArray[np.bool_], message: str) -> None:
    for name in np.array(columns, dtype=object)[affected]:
        warnings.warn(f"column {name!r} {message}", stacklevel=4)
