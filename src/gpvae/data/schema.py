"""What an imputer has to know of the data it was fitted on: columns, their kinds, times, scales."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from gpvae.data.batches import Rows, median_step
from gpvae.data.codec import from_json, to_json
from gpvae.data.panel import Bools, DataError, Floats, FrameSource, Panel
from gpvae.data.scaling import CLASSES, Kind, Kinds, Scaling
from gpvae.data.times import Clock


@dataclass(frozen=True)
class Schema:
    """What an imputer has to know of the data it was fitted on."""

    columns: tuple[Any, ...]  # text; in pandas, numbers too
    clock: Clock
    time_unit: float
    scaling: Scaling
    id: str | None  # the columns of a frame that told series and times
    time: str | None
    labels: Mapping[Any, tuple[Any, ...]] = field(default_factory=dict)  # of columns of text

    def __post_init__(self) -> None:
        scaling, count = self.scaling, len(self.columns)
        lengths = {len(each) for each in (scaling.shift, scaling.scale, scaling.kinds, scaling.levels)}
        if lengths != {count} or not self.time_unit > 0:
            raise ValueError("columns, scales and times do not fit together")

    @classmethod
    def of(cls, panel: Panel, *, standardise: bool, kinds: Kinds | None = None) -> "Schema":
        if not panel.observed.any():
            raise DataError("the data has no observed value at all")
        labels, by_column, levels = _understood(panel, kinds or {})
        panel = panel.relabelled(labels)
        _require_kinds(panel, by_column, levels)
        scaling = Scaling.of(panel, standardise=standardise, kinds=by_column, levels=levels)
        _warn_of(panel.columns, ~scaling.known, "has no observed value: it stays missing")
        constant = scaling.known & ~scaling.varies
        _warn_of(panel.columns, constant, "is constant: gaps get the same value, with an interval of no width")
        source = panel.source
        return cls(panel.columns, panel.clock, median_step(panel), scaling, source.id, source.time, labels)

    def panel(self, data: Any) -> Panel:
        """Data of any sort, read like the data fitted on; its labels are still its own."""
        return Panel.of(data, id=self.id, time=self.time, categories=tuple(self.labels))

    def select(self, panel: Panel, method: str) -> Panel:
        """The panel with these columns, or a reason why not; `method` is what to call the imputer."""
        lacking = [str(name) for name in self.columns if name not in panel.columns]
        if lacking:
            raise DataError(
                f"the model was fitted on the columns {', '.join(map(str, self.columns))}; "
                f"the data lacks {', '.join(lacking)}"
            )
        if not isinstance(panel.source, FrameSource) and len(panel.columns) != len(self.columns):
            raise DataError(f"the model was fitted on {len(self.columns)} columns, the data has {len(panel.columns)}")
        if panel.clock != self.clock and len(panel.time_steps):
            raise DataError(f"the model was fitted on times given as {self.clock}s, the data has {panel.clock}s")
        extra = np.array([name not in self.columns for name in panel.columns])
        _warn_of(
            panel.columns,
            extra & ~panel.observed.all(axis=0),
            f"is not one that {method} was fitted to: it is left as it is",
        )
        unknown = ~self.scaling.known
        _warn_of(self.columns, unknown, "had no observed value when the model was fitted: it stays missing")
        selected = panel.select(self.columns)
        _require_kinds(selected, self.scaling.kinds, dict(enumerate(self.scaling.levels)))
        return selected

    def places(self, panel: Panel) -> NDArray[np.int64]:
        """Where these columns stand in a panel."""
        return np.array([panel.columns.index(name) for name in self.columns])

    def rows(self, panel: Panel, observed: Bools, device: torch.device) -> Rows:
        """Scaled rows of which only the `observed` cells are used, and of those only the ones in columns that vary."""
        scaled = self.scaling.apply(panel.values)
        return Rows.of(panel, scaled, observed & self.scaling.varies, self.time_unit, device)

    def to_plain(self) -> dict[str, Any]:
        return to_json(self)

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> "Schema":
        return from_json(cls, {name: plain[name] for name in (each.name for each in fields(cls))})


def _understood(
    panel: Panel, kinds: Kinds
) -> tuple[dict[str, tuple[Any, ...]], tuple[Kind, ...], dict[int, tuple[float, ...]]]:
    """What the user says of the columns: labels of text, the kind of each column, and levels of numbers."""
    labels, levels, found = dict(panel.labels), dict[int, tuple[float, ...]](), list[Kind]()
    for name, kind in kinds.items():
        if isinstance(kind, str) and kind not in get_args(Kind):
            raise DataError(f"the kind of column {name!r} is one of {', '.join(get_args(Kind))}, not {kind!r}")
        if name not in panel.columns:
            numbers = "" if kind in CLASSES or not isinstance(kind, str) else " of numbers"
            columns = ", ".join(map(str, panel.columns))
            raise DataError(f"kinds names a column {name!r}, but there is no such column{numbers}: there are {columns}")
        if isinstance(kind, str):
            _require_order(panel, name, kind)
        elif len(set(kind)) < max(2, len(kind)):
            raise DataError(f"the levels of column {name!r} are at least two, and different, not {list(kind)}")
        elif name in labels:
            labels[name] = tuple(kind)
        elif list(kind) != sorted(kind):
            raise DataError(f"column {name!r} holds numbers, which have an order of their own, not {list(kind)}")
        else:
            levels[panel.columns.index(name)] = tuple(float(level) for level in kind)
    for name in panel.columns:
        kind = kinds.get(name, "categorical" if name in labels else "real")
        found.append(cast(Kind, kind) if isinstance(kind, str) else "ordinal")
    return labels, tuple(found), levels


def _require_order(panel: Panel, name: str, kind: str) -> None:
    source = panel.source
    if kind == "ordinal" and name in panel.labels and not (isinstance(source, FrameSource) and source.has_order(name)):
        example = '["low", "mid", "high"], on the command line low<mid<high'
        raise DataError(f"column {name!r} is text, whose order has to be told: its levels in a list, as {example}")


MOST = 2**24  # up to here float32, which draws are kept in, knows every whole number
_WANTED: dict[str, tuple[str, Callable[[Floats], Bools]]] = {
    "positive": ("numbers above 0", lambda x: x <= 0),
    "count": (f"whole numbers from 0 to {MOST:,}", lambda x: (x < 0) | (x > MOST) | ((x != np.rint(x)) & ~np.isnan(x))),
}


def _require_kinds(panel: Panel, kinds: Sequence[Kind], levels: Mapping[int, tuple[float, ...]]) -> None:
    """Every value suits the kind of its column, and is one of its levels if those are known."""
    for j, kind in enumerate(kinds):
        column = panel.values[:, j]
        if kind in _WANTED:
            wanted, wrong = _WANTED[kind][0], _WANTED[kind][1](column)
        elif kind in CLASSES and j in levels:
            known = ", ".join(f"{level:g}" for level in levels[j])
            wanted, wrong = f"one of {known}", ~np.isin(column, levels[j]) & ~np.isnan(column)
        else:
            continue
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"column {panel.columns[j]!r} is {kind}, so it holds {wanted}, not {column[row]:g} "
                f"({panel.source.where(row)})"
            )


def _warn_of(columns: tuple[str, ...], which: NDArray[np.bool_], what: str) -> None:
    for name in np.array(columns, dtype=object)[which]:
        warnings.warn(f"column {name!r} {what}", stacklevel=4)
