"""The data: series of their own lengths and times, numeric columns, NaN = missing; and the way in and back out.

A `Panel` keeps all rows in one array, series after series, each sorted by time. Its `source` remembers what the rows
came from, so that whatever is computed for them goes back in the same shape, order and kind.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpvae.data.frames import (
    ArraySource,
    Bools,
    Extra,
    FrameSource,
    Labels,
    ListSource,
    Source,
    column_values,
    concatenated_times,
    eager_frame,
    is_numeric,
    labels_of,
    numeric_array,
    only_time_column,
    require_columns,
    series_of_rows,
    spread_times,
    time_of_rows,
    value_columns,
)
from gpvae.data.times import Clock, DataError, Floats, array_times


@dataclass(frozen=True, repr=False)
class Panel:
    """N series, each with its own length and times; NaN = missing; columns of text as the numbers of their `labels`."""

    values: Floats  # (row, feature)
    times: Floats  # (row,) increasing within a series; seconds for datetimes
    lengths: NDArray[np.int64]  # (series,)
    columns: tuple[str, ...]
    ids: tuple[Any, ...]  # (series,)
    clock: Clock
    source: Source
    labels: Labels = field(default_factory=dict)
    origin: float | None = None  # of datetimes: the moment of time 0, in seconds since 1970

    def __post_init__(self) -> None:
        rows = self.values.shape[0]
        if self.values.shape[1] != len(self.columns) or self.times.shape != (rows,) or self.lengths.sum() != rows:
            raise DataError(
                f"values {self.values.shape}, times {self.times.shape}, {len(self.columns)} columns and lengths that "
                f"sum to {self.lengths.sum()} do not fit together"
            )
        infinite = np.argwhere(np.isinf(self.values))
        if len(infinite):
            row, column = infinite[0]
            raise DataError(f"infinite value in column {self.columns[column]!r}, {self.source.where(int(row))}")

    @classmethod
    def of(
        cls, data: Any, *, id: str | None = None, time: str | None = None, categories: Sequence[str] = ()
    ) -> "Panel":
        """A panel as it is; an array (time, feature) or (series, time, feature); a list of arrays; a data frame.

        `id`, `time` and `categories` name the columns of a frame that has them.
        """
        if isinstance(data, Panel):
            return data
        if isinstance(data, list | tuple):
            return cls.from_list(data)
        if isinstance(data, np.ndarray):
            return cls.from_array(data)
        names = eager_frame(data).columns
        return cls.from_frame(
            data,
            id=id if id in names else None,
            time=time if time in names else None,
            categories=[name for name in categories if name in names],
        )

    @classmethod
    def from_array(cls, array: ArrayLike, *, times: ArrayLike | None = None) -> "Panel":
        """(time, feature) or (series, time, feature); `times` (time,) or (series, time), by default 0, 1, 2, …"""
        array = numeric_array(array, "the array")
        if array.ndim not in (2, 3):
            raise DataError(f"the array must be (time, feature) or (series, time, feature), not of shape {array.shape}")
        stacked = array if array.ndim == 3 else array[None]
        given = None if times is None else spread_times(np.asarray(times), stacked.shape[:2])
        return cls._from_series(list(stacked), given, ArraySource(array))

    @classmethod
    def from_list(cls, arrays: Sequence[ArrayLike], *, times: Sequence[ArrayLike] | None = None) -> "Panel":
        """Arrays (time, feature) of different lengths; `times`, one array (time,) for each."""
        series = [numeric_array(array, f"series {i} of the list") for i, array in enumerate(arrays)]
        for i, array in enumerate(series):
            if array.ndim != 2 or array.shape[1] != series[0].shape[1] or not len(array):
                raise DataError(
                    f"series {i} of the list has shape {array.shape}; each must be (time, feature), with at least one "
                    "step and the same number of features"
                )
        given = None if times is None else [np.asarray(each) for each in times]
        return cls._from_series(series, given, ListSource(tuple(series)))

    @classmethod
    def _from_series(cls, series: list[Any], times: list[Any] | None, source: "ArraySource | ListSource") -> "Panel":
        lengths = np.array([len(array) for array in series], dtype=np.int64)
        if not lengths.sum() or not series[0].shape[1]:
            raise DataError("there are no rows, or no columns")
        if times is None:
            clock, flat_times, origin = (
                "number",
                np.concatenate([np.arange(n, dtype=np.float64) for n in lengths]),
                None,
            )
        else:
            clock, flat_times, origin = array_times(concatenated_times(times, lengths))
        values = np.concatenate(series).astype(np.float64, copy=False)
        panel = cls(
            values=values,
            times=flat_times,
            lengths=lengths,
            columns=tuple(f"x{j}" for j in range(values.shape[1])),
            ids=tuple(range(len(series))),
            clock=clock,
            source=source,
            origin=origin,
        )
        lost = np.flatnonzero(~np.isfinite(flat_times))
        if len(lost):
            raise DataError(f"the time at {source.where(int(lost[0]))} is missing or infinite")
        back = np.flatnonzero((np.diff(flat_times) <= 0) & ~panel._ends[:-1])
        if len(back):
            raise DataError(f"times must increase within a series; they do not at {source.where(int(back[0]) + 1)}")
        return panel

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        id: str | None = None,
        time: str | None = None,
        columns: Sequence[str] | None = None,
        categories: Sequence[str] = (),
    ) -> "Panel":
        """Any pandas, polars or PyArrow frame: long, with an `id` and a `time` column, or one series.

        Without `time`, a pandas DatetimeIndex serves, or the only column of dates or times, else the order of the
        rows. Without `columns`, all numeric columns are used; the others come back as they were. Numeric are integers
        up to 64 bits and floats, not booleans and decimals: cast those to have them filled. Columns of text and
        booleans are filled where `categories` names them.
        """
        table = eager_frame(frame)
        reserved = [name for name in (id, time) if name is not None]
        require_columns(table, [*reserved, *(columns or []), *categories])
        chosen = value_columns(table, reserved, columns, categories)
        labels = {name: labels_of(table.get_column(name)) for name in chosen if not is_numeric(table.schema[name])}
        values = np.column_stack([column_values(table.get_column(name), labels.get(name)) for name in chosen])
        names, codes = series_of_rows(table, id)
        time = only_time_column(table, id) if time is None else time
        clock, moments, origin = time_of_rows(table, time)
        order = np.lexsort((moments, codes))
        source = FrameSource(table, order, id, time)
        panel = cls(
            values=values[order],
            times=moments[order],
            lengths=np.bincount(codes, minlength=len(names)).astype(np.int64),
            columns=tuple(chosen),
            ids=names,
            clock=clock,
            source=source,
            labels=labels,
            origin=origin,
        )
        twins = np.flatnonzero((np.diff(panel.times) == 0) & ~panel._ends[:-1])
        if len(twins):
            hint = "; if the table holds several series, name the column that tells them apart as id"
            where = source.where(int(twins[0]) + 1)
            raise DataError(f"two rows with the same time: {where}{hint if id is None else ''}")
        return panel

    def __repr__(self) -> str:
        missing = 1 - self.observed.mean()
        return (
            f"Panel({len(self)} series, {len(self.values)} steps, {len(self.columns)} columns, {missing:.1%} missing)"
        )

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def observed(self) -> Bools:
        """(row, feature)"""
        return ~np.isnan(self.values)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each series."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]]).astype(np.int64)

    @cached_property
    def series_of_row(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def _ends(self) -> Bools:
        """True on the last row of each series."""
        ends = np.zeros(len(self.values), dtype=bool)
        ends[self.starts[self.lengths > 0] + self.lengths[self.lengths > 0] - 1] = True
        return ends

    @cached_property
    def time_steps(self) -> Floats:
        """All differences between neighbouring times of a series."""
        return np.diff(self.times)[~self._ends[:-1]]

    def series(self) -> Iterator[tuple[Any, slice]]:
        """Each series' id and rows."""
        for name, start, length in zip(self.ids, self.starts, self.lengths, strict=True):
            yield name, slice(int(start), int(start + length))

    def pick(self, series: NDArray[np.int64], steps: int | None = None) -> "Panel":
        """Some of the series, or of each the first steps, as if the data had held nothing else."""
        lengths = self.lengths[series] if steps is None else np.minimum(self.lengths[series], steps)
        rows = self.rows_of(series, lengths)
        values = self.values[rows]
        if isinstance(self.source, FrameSource):
            own = self.source
            source = FrameSource(own.table[own.order[rows]], np.arange(len(rows)), own.id, own.time)
        else:
            source = ListSource(tuple(np.split(values, np.cumsum(lengths)[:-1])))
        ids = tuple(self.ids[i] for i in series)
        return replace(self, values=values, times=self.times[rows], lengths=lengths, ids=ids, source=source)

    def rows_of(self, series: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first rows of some series, so many of each."""
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(self.starts[series], lengths) + within

    def with_values(self, values: Floats) -> "Panel":
        """The same rows holding other values."""
        return replace(self, values=values)

    def select(self, columns: Sequence[str]) -> "Panel":
        """Only these columns, in this order; the others are left out of what is filled."""
        if tuple(columns) == self.columns:
            return self
        places = [self.columns.index(name) for name in columns]
        labels = {name: labels for name, labels in self.labels.items() if name in columns}
        return replace(self, values=self.values[:, places], columns=tuple(columns), labels=labels)

    def relabelled(self, labels: Labels) -> "Panel":
        """The same with other labels, more of them or in another order, for columns of text."""
        changed = [name for name in labels if name in self.columns and self.labels.get(name) != labels[name]]
        if not changed:
            return self
        values = self.values.copy()
        for name in changed:
            self._relabel(values[:, self.columns.index(name)], name, labels[name])
        return replace(self, values=values, labels={**self.labels, **{name: labels[name] for name in changed}})

    def _relabel(self, column: Floats, name: str, labels: tuple[Any, ...]) -> None:
        seen, own = ~np.isnan(column), self.labels.get(name)
        if own is None:
            if seen.any():
                raise DataError(f"column {name!r} holds numbers where text is known ({labels[0]!r}, …): make them text")
            return
        place = {label: i for i, label in enumerate(labels)}
        codes = np.array([place.get(label, -1) for label in own], dtype=np.float64)
        before = column[seen].astype(np.int64)
        column[seen] = codes[before]
        if (column < 0).any():
            row = int(np.argmax(column < 0))
            label = own[before[(codes[before] < 0).argmax()]]
            where, known = self.source.where(row), ", ".join(map(repr, labels)) or "those known, there being none"
            raise DataError(f"column {name!r} holds {label!r} ({where}), which is none of {known}")

    def restore(self, rows: NDArray[Any]) -> Any:
        """(..., row, feature) of this panel in the shape the data came in."""
        return self.source.restore(rows)

    def fill(self, values: Floats, extra: Extra | None = None, extra_labels: Labels | None = None) -> Any:
        """The data as it came with `values` (row, feature) in its gaps; for frames, `extra` columns behind."""
        labels = {**self.labels, **(extra_labels or {})}
        return self.source.fill(self.columns, values, ~self.observed, extra or {}, labels)
