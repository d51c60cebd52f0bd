"""The data: series of any lengths and times in numeric columns; NaN means missing.

A `Panel` keeps all rows in one array, series after series, each sorted by time. Its `source` remembers where the rows
came from, so that results are returned in the same shape, order and type.
"""

import datetime as dt
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
    plain,
    require_columns,
    series_of_rows,
    spread_times,
    value_columns,
)
from gpvae.data.time_columns import find_time, time_parts, times_of, usual_names
from gpvae.data.times import Clock, DataError, Floats, ParsedTimes, array_times, parse_moment, time_between


@dataclass(frozen=True, repr=False)
class Panel:
    """N series, each with its own length and times. NaN means missing; text is stored as the index of its label."""

    values: Floats  # (row, feature)
    times: Floats  # (row,) increasing within a series; seconds for datetimes
    lengths: NDArray[np.int64]  # (series,)
    columns: tuple[str, ...]
    ids: tuple[Any, ...]  # (series,)
    clock: Clock
    source: Source
    labels: Labels = field(default_factory=dict)
    origin: float | None = None  # of datetimes: time 0, in seconds since 1970

    def __post_init__(self) -> None:
        rows = self.values.shape[0]
        if self.values.shape[1] != len(self.columns) or self.times.shape != (rows,) or self.lengths.sum() != rows:
            raise DataError(
                f"values {self.values.shape}, times {self.times.shape}, {len(self.columns)} columns and lengths that "
                f"sum to {self.lengths.sum()} do not match"
            )
        infinite = np.argwhere(np.isinf(self.values))
        if len(infinite):
            row, column = infinite[0]
            raise DataError(f"infinite value in column {self.columns[column]!r}, {self.source.where(int(row))}")

    @classmethod
    def of(
        cls, data: Any, *, id: str | None = None, time: str | None = None, categories: Sequence[str] = ()
    ) -> "Panel":
        """From an array (time, feature) or (series, time, feature), a list of arrays, a data frame, or a panel.

        `id`, `time` and `categories` are column names of a data frame; names that it does not have are ignored.
        """
        if isinstance(data, Panel):
            return data
        data = plain(data)
        if isinstance(data, list | tuple):
            return cls.from_list(data)
        if isinstance(data, np.ndarray):
            return cls.from_array(data)
        names = eager_frame(data).columns
        return cls.from_frame(
            data,
            id=id if id in names else None,
            time=time if {*time_parts(names, time)} <= {*names} else None,
            categories=[name for name in categories if name in names],
        )

    @classmethod
    def from_array(cls, array: ArrayLike, *, times: ArrayLike | None = None) -> "Panel":
        """(time, feature) or (series, time, feature); `times` (time,) or (series, time), by default 0, 1, 2, …"""
        array = numeric_array(array, "the array")
        if array.ndim not in (2, 3):
            column = "; Reshape your data with reshape(-1, 1) if it is one column" if array.ndim == 1 else ""
            shape = f"got shape {array.shape}{column}"
            raise DataError(f"the array must be (time, feature) or (series, time, feature), {shape}")
        stacked = array if array.ndim == 3 else array[None]
        given = None if times is None else spread_times(np.asarray(times), stacked.shape[:2])
        return cls._from_series(list(stacked), given, ArraySource(array))

    @classmethod
    def from_list(cls, arrays: Sequence[ArrayLike], *, times: Sequence[ArrayLike] | None = None) -> "Panel":
        """Arrays (time, feature) of any lengths; `times` holds one array (time,) for each."""
        series = [numeric_array(array, f"series {i} of the list") for i, array in enumerate(arrays)]
        for i, array in enumerate(series):
            if array.ndim != 2 or array.shape[1] != series[0].shape[1] or not len(array):
                raise DataError(
                    f"series {i} of the list has shape {array.shape}; each must be (time, feature), with at least one "
                    "step and the same number of features"
                )
        given = None if times is None else [np.asarray(series_times) for series_times in times]
        return cls._from_series(series, given, ListSource(tuple(series)))

    @classmethod
    def _from_series(cls, series: list[Any], times: list[Any] | None, source: "ArraySource | ListSource") -> "Panel":
        lengths = np.array([len(array) for array in series], dtype=np.int64)
        if not lengths.sum() or not series[0].shape[1]:
            count = f"{series[0].shape[1] if series else 0} feature(s) (shape={series[0].shape if series else (0, 0)})"
            raise DataError(f"the data has no rows, or no columns: {count} while a minimum of 1 is required.")
        if times is None:
            clock, flat_times, origin = ParsedTimes("number", np.concatenate([np.arange(float(n)) for n in lengths]))
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
        invalid = np.flatnonzero(~np.isfinite(flat_times))
        if len(invalid):
            raise DataError(f"the time at {source.where(int(invalid[0]))} is missing or infinite")
        decreasing = np.flatnonzero((np.diff(flat_times) <= 0) & ~panel._ends[:-1])
        if len(decreasing):
            where = source.where(int(decreasing[0]) + 1)
            raise DataError(f"times must increase within a series; they do not at {where}")
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
        """From a pandas, polars or PyArrow frame in long format, with an `id` and a `time` column, or with one series.

        id: by default the levels of a pandas MultiIndex but for its times, or the column unique_id of Nixtla's format.
        time: a column, or several that make a time together, as "date,time" or "year,month,day,hour". By default the
            index of a pandas frame, if it holds dates, periods or several levels, else the column ds of Nixtla's
            format, else the only column of dates or times, else the only one of dates as text, else the only one of
            unix times that is named like a time, else the row order.
        columns: by default all numeric ones, that is floats and integers up to 64 bits. Other columns are returned
            unchanged; cast booleans and decimals to have them filled.
        categories: columns of text or booleans that are filled too.
        """
        table = eager_frame(frame)
        require_columns(table, [*([] if id is None else [id]), *time_parts(table.columns, time)])
        require_columns(table, [*(columns or []), *categories])
        id, time = usual_names(table, id, time)
        time = find_time(table, id, [*(columns or []), *categories]) if time is None else time
        reserved = [*([] if id is None else [id]), *time_parts(table.columns, time)]
        chosen = value_columns(table, reserved, columns, categories)
        schema = table.schema
        labels = {name: labels_of(table.get_column(name)) for name in chosen if not is_numeric(schema[name])}
        values = np.column_stack([column_values(table.get_column(name), labels.get(name)) for name in chosen])
        names, codes = series_of_rows(table, id)
        clock, times, origin = times_of(table, time)
        order = np.lexsort((times, codes))
        source = FrameSource(table, order, id, time)
        panel = cls(
            values=values[order],
            times=times[order],
            lengths=np.bincount(codes, minlength=len(names)).astype(np.int64),
            columns=tuple(chosen),
            ids=names,
            clock=clock,
            source=source,
            labels=labels,
            origin=origin,
        )
        repeated = np.flatnonzero((np.diff(panel.times) == 0) & ~panel._ends[:-1])
        if len(repeated):
            raise DataError(f"two rows have the same time: {source.where(int(repeated[0]) + 1)}{_advice(panel)}")
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

    def id_at(self, row: int) -> Any:
        """The id of the series that a row belongs to."""
        return self.ids[self.series_of_row[row]]

    @cached_property
    def _ends(self) -> Bools:
        """True on the last row of each series."""
        ends = np.zeros(len(self.values), dtype=bool)
        ends[self.starts[self.lengths > 0] + self.lengths[self.lengths > 0] - 1] = True
        return ends

    @cached_property
    def time_steps(self) -> Floats:
        """The differences between neighbouring times, of all series."""
        return np.diff(self.times)[~self._ends[:-1]]

    def wall_clock(self) -> NDArray[np.datetime64]:
        """Date and time of each row, in local time; of text or an array with a time zone, in UTC. (row,)"""
        if self.origin is None:
            raise DataError("the times of this data are numbers, not dates")
        local = self.source.wall_clock() if isinstance(self.source, FrameSource) else None
        if local is not None:
            return local
        microseconds = np.rint((self.times + self.origin) * 1e6).astype(np.int64)
        return microseconds.astype("datetime64[us]")

    def times_at(self, rows: NDArray[np.int64]) -> Any:
        """The times of these rows as the data holds them: of a frame a series, else numbers or dates."""
        held = self.source.times_at(rows) if isinstance(self.source, FrameSource) else None
        if held is not None:
            return held
        if self.origin is not None:
            return self.wall_clock()[rows]
        times = self.times[rows]
        return times.astype(np.int64) if (times % 1 == 0).all() else times

    def series(self) -> Iterator[tuple[Any, slice]]:
        """The id and rows of each series."""
        for name, start, length in zip(self.ids, self.starts, self.lengths, strict=True):
            yield name, slice(int(start), int(start + length))

    def pick(self, series: NDArray[np.int64], steps: int | NDArray[np.int64] | None = None) -> "Panel":
        """A panel of these series only, or of their first `steps` rows."""
        lengths = self.lengths[series] if steps is None else np.minimum(self.lengths[series], steps)
        rows = self.rows_of(series, lengths)
        values = self.values[rows]
        if isinstance(self.source, FrameSource):
            frame = self.source
            source = FrameSource(frame.table[frame.order[rows]], np.arange(len(rows)), frame.id, frame.time)
        else:
            source = ListSource(tuple(np.split(values, np.cumsum(lengths)[:-1])))
        ids = tuple(self.ids[i] for i in series)
        return replace(self, values=values, times=self.times[rows], lengths=lengths, ids=ids, source=source)

    def until(self, time: Any) -> "Panel":
        """The rows before `time`: a date or time (in UTC if the data's have a zone), or a number as in the data."""
        moment = parse_moment(time, self.clock)
        if not isinstance(moment, dt.datetime) and abs(moment) >= 2**53:
            raise DataError(f"a panel cannot be cut at {time}: it counts such large times from the first; use dates")
        if isinstance(moment, dt.datetime):
            assert self.origin is not None
            first = dt.datetime.fromtimestamp(self.origin, dt.UTC)
            moment = time_between(first, moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC))
        lengths = np.bincount(self.series_of_row[self.times < moment], minlength=len(self))
        if not lengths.any():
            raise DataError(f"there is no row before {time}")
        return self.pick(np.flatnonzero(lengths), lengths[lengths > 0])

    def rows_of(self, series: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first `lengths` rows of each of these series."""
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return np.repeat(self.starts[series], lengths) + within

    def with_values(self, values: Floats) -> "Panel":
        """The same rows with other values."""
        return replace(self, values=values)

    def select(self, columns: Sequence[str]) -> "Panel":
        """Only these columns, in this order; other columns of a data frame are returned unchanged."""
        if tuple(columns) == self.columns:
            return self
        index = [self.columns.index(name) for name in columns]
        labels = {name: labels for name, labels in self.labels.items() if name in columns}
        return replace(self, values=self.values[:, index], columns=tuple(columns), labels=labels)

    def with_labels(self, labels: Labels) -> "Panel":
        """The same text encoded by other labels: more of them, or in another order."""
        changed = [name for name in labels if name in self.columns and self.labels.get(name) != labels[name]]
        if not changed:
            return self
        values = self.values.copy()
        for name in changed:
            self._relabel(values[:, self.columns.index(name)], name, labels[name])
        return replace(self, values=values, labels={**self.labels, **{name: labels[name] for name in changed}})

    def _relabel(self, column: Floats, name: str, labels: tuple[Any, ...]) -> None:
        observed, old_labels = ~np.isnan(column), self.labels.get(name)
        if old_labels is None:
            if observed.any():
                raise DataError(
                    f"column {name!r} must hold text, such as {labels[0]!r}, got numbers: convert it to text"
                )
            return
        code = {label: i for i, label in enumerate(labels)}
        new_codes = np.array([code.get(label, -1) for label in old_labels], dtype=np.float64)
        old_codes = column[observed].astype(np.int64)
        column[observed] = new_codes[old_codes]
        if (column < 0).any():
            label = old_labels[old_codes[(new_codes[old_codes] < 0).argmax()]]
            where, known = self.source.where(int(np.argmax(column < 0))), ", ".join(map(repr, labels))
            raise DataError(f"column {name!r} holds {label!r} ({where}), which is not among its known labels: {known}")

    def unfilled(self) -> list[str]:
        """Columns of the data frame with gaps, of another type than numbers, that are not among the panel's."""
        return self.source.unfilled(self.columns) if isinstance(self.source, FrameSource) else []

    def restore(self, rows: NDArray[Any]) -> Any:
        """An array (..., row, feature) in the panel's layout → in the shape of the original data."""
        return self.source.restore(rows)

    def fill(self, values: Floats, extra: Extra | None = None, extra_labels: Labels | None = None) -> Any:
        """The original data with `values` (row, feature) in its gaps; `extra` columns go at the end of a data frame."""
        labels = {**self.labels, **(extra_labels or {})}
        return self.source.fill(self.columns, values, ~self.observed, extra or {}, labels)


def _advice(panel: Panel) -> str:
    """What to do if times are repeated."""
    if panel.source.id is not None:
        return ""
    several = "if the table holds several series, name the column that tells them apart"
    clock = "; if another column holds the time of day: --time DATE,TIME" if _are_days(panel) else ""
    return f"; {several}: --id NAME, in Python Panel.from_frame(…, id=NAME){clock}"


def _are_days(panel: Panel) -> bool:
    return panel.clock == "datetime" and bool((np.diff(panel.times) % 86400 == 0).all())
