"""The data: series of their own lengths and times, numeric columns, NaN = missing; and the way in and back out.

A `Panel` keeps all rows in one array, series after series, each sorted by time. Its `source` remembers what the rows
came from, so that whatever is computed for them goes back in the same shape, order and kind.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, cast

import narwhals as nw
import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Clock = Literal["number", "datetime"]


class DataError(ValueError):
    """The data cannot be used as given; the message names the file, series, column or row at fault."""


class Source(Protocol):
    """Where rows came from."""

    def restore(self, rows: NDArray[Any]) -> Any:
        """(..., row, feature) in the panel's order → in the source's own shape: an array, or a list of arrays."""
        ...

    def fill(self, columns: Sequence[str], values: Floats, missing: Bools, extra: dict[str, Floats]) -> Any:
        """The source with `values` (row, feature) where `missing`, and `extra` columns (row,) behind it."""
        ...

    def where(self, row: int) -> str:
        """How to tell a person which row this is."""
        ...


@dataclass(frozen=True)
class Panel:
    """N series, each with its own length and times; `columns` numeric columns; NaN = missing."""

    values: Floats  # (row, feature)
    times: Floats  # (row,) increasing within a series; seconds for datetimes
    lengths: NDArray[np.int64]  # (series,)
    columns: tuple[str, ...]
    ids: tuple[Any, ...]  # (series,)
    clock: Clock
    source: Source

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
    def of(cls, data: Any) -> "Panel":
        """A panel as it is; an array (time, feature) or (series, time, feature); a list of arrays; a data frame."""
        if isinstance(data, Panel):
            return data
        if isinstance(data, list | tuple):
            return cls.from_list(data)
        if isinstance(data, np.ndarray) or hasattr(data, "__array_interface__"):
            return cls.from_array(data)
        return cls.from_frame(data)

    @classmethod
    def from_array(cls, array: ArrayLike, *, times: ArrayLike | None = None) -> "Panel":
        """(time, feature) or (series, time, feature); `times` (time,) or (series, time), by default 0, 1, 2, …"""
        array = _numeric_array(array)
        if array.ndim not in (2, 3):
            raise DataError(f"an array of shape (time, feature) or (series, time, feature) is needed, not {array.shape}")
        stacked = array.reshape(-1, *array.shape[-2:])
        series, steps, _ = stacked.shape
        given = None if times is None else list(np.broadcast_to(np.asarray(times), (series, steps)))
        return cls._from_series(list(stacked), given, _ArraySource(array.shape, array.dtype, steps))

    @classmethod
    def from_list(cls, arrays: Sequence[ArrayLike], *, times: Sequence[ArrayLike] | None = None) -> "Panel":
        """Arrays (time, feature) of different lengths; `times`, one array (time,) for each."""
        series = [_numeric_array(array) for array in arrays]
        if not series:
            raise DataError("an empty list has no series")
        for i, array in enumerate(series):
            if array.ndim != 2 or array.shape[1] != series[0].shape[-1] or not len(array):
                raise DataError(f"series {i} has shape {array.shape}; all must be (time, {series[0].shape[-1]}) with at least one step")
        given = None if times is None else [np.asarray(each) for each in times]
        return cls._from_series(series, given, _ListSource(tuple(len(array) for array in series)))

    @classmethod
    def _from_series(cls, series: list[Any], times: list[Any] | None, source: "_ArraySource | _ListSource") -> "Panel":
        lengths = np.array([len(array) for array in series], dtype=np.int64)
        if not lengths.sum() or not series[0].shape[1]:
            raise DataError("there are no rows, or no columns")
        if times is None:
            clock, flat_times = "number", np.concatenate([np.arange(n, dtype=np.float64) for n in lengths])
        else:
            clock, flat_times = _series_times(times, lengths)
        values = np.concatenate(series).astype(np.float64)
        panel = cls(
            values=values,
            times=flat_times,
            lengths=lengths,
            columns=tuple(f"x{j}" for j in range(values.shape[1])),
            ids=tuple(range(len(series))),
            clock=clock,
            source=source,
        )
        if (np.diff(flat_times)[~panel._ends[:-1]] <= 0).any():
            row = int(np.flatnonzero((np.diff(flat_times) <= 0) & ~panel._ends[:-1])[0]) + 1
            raise DataError(f"times must increase within a series; they do not at {source.where(row)}")
        return panel

    @classmethod
    def from_frame(
        cls, frame: Any, *, id: str | None = None, time: str | None = None, columns: Sequence[str] | None = None
    ) -> "Panel":
        """Any pandas, polars or PyArrow frame: long, with an `id` and a `time` column, or one series.

        Without `time`, a pandas DatetimeIndex serves, or the only column of dates or times, else the order of the
        rows. Without `columns`, all numeric columns are used; the others come back as they were.
        """
        table = _eager_frame(frame)
        _require_columns(table, [*filter(None, [id, time]), *(columns or [])])
        chosen = _value_columns(table, {id, time}, columns)
        values = np.column_stack([_column_values(table[name]) for name in chosen])
        names, codes = _series_of_rows(table, id)
        time = time or _only_time_column(table)
        clock, moments = _time_of_rows(table, time)
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
        )
        twins = np.flatnonzero((np.diff(panel.times) == 0) & ~panel._ends[:-1])
        if len(twins):
            hint = "" if id else "; if the table holds several series, name the column that tells them apart as id"
            raise DataError(f"two rows with the same time: {source.where(int(twins[0]) + 1)}{hint}")
        return panel

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

    def with_values(self, values: Floats) -> "Panel":
        """The same rows holding other values."""
        return replace(self, values=values)

    def select(self, columns: Sequence[str]) -> "Panel":
        """Only these columns, in this order; the others are left out of what is filled."""
        places = [self.columns.index(name) for name in columns]
        return replace(self, values=self.values[:, places], columns=tuple(columns))

    def restore(self, rows: NDArray[Any]) -> Any:
        """(..., row, feature) of this panel in the shape the data came in."""
        return self.source.restore(rows)

    def fill(self, values: Floats, extra: dict[str, Floats] | None = None) -> Any:
        """The data as it came with `values` (row, feature) in its gaps; for frames, `extra` columns behind."""
        return self.source.fill(self.columns, values, ~self.observed, extra or {})


@dataclass(frozen=True)
class _ArraySource:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    steps: int

    def restore(self, rows: NDArray[Any]) -> NDArray[Any]:
        return rows.reshape(*rows.shape[:-2], *self.shape).astype(self.dtype, copy=False)

    def fill(self, columns: Sequence[str], values: Floats, missing: Bools, extra: dict[str, Floats]) -> NDArray[Any]:
        return self.restore(values)

    def where(self, row: int) -> str:
        series, step = divmod(row, self.steps)
        return f"series {series}, step {step}" if len(self.shape) == 3 else f"step {step}"


@dataclass(frozen=True)
class _ListSource:
    lengths: tuple[int, ...]

    def restore(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        return np.split(rows, np.cumsum(self.lengths)[:-1], axis=-2)

    def fill(
        self, columns: Sequence[str], values: Floats, missing: Bools, extra: dict[str, Floats]
    ) -> list[NDArray[Any]]:
        return self.restore(values)

    def where(self, row: int) -> str:
        ends = np.cumsum(self.lengths)
        series = int(np.searchsorted(ends, row, side="right"))
        return f"series {series}, step {row - int(ends[series]) + self.lengths[series]}"


@dataclass(frozen=True)
class FrameSource:
    table: nw.DataFrame[Any]
    order: NDArray[np.intp]  # the panel's row i is the frame's row order[i]
    id: str | None
    time: str | None

    def restore(self, rows: NDArray[Any]) -> NDArray[Any]:
        restored = np.empty_like(rows)
        restored[..., self.order, :] = rows
        return restored

    def fill(self, columns: Sequence[str], values: Floats, missing: Bools, extra: dict[str, Floats]) -> Any:
        values, missing = self.restore(values), self.restore(missing)
        taken = [name for name in extra if name in self.table.columns]
        if taken:
            raise DataError(f"the table already has a column named {taken[0]!r}; rename it first")
        filled = [
            _fill_column(self.table[name], values[:, j], missing[:, j])
            for j, name in enumerate(columns)
            if missing[:, j].any()
        ]
        added = [
            _new_column(self.table, name, self.restore(values[:, None])[:, 0]) for name, values in extra.items()
        ]
        return self.table.with_columns(*filled, *added).to_native()

    def where(self, row: int) -> str:
        place = int(self.order[row])
        named = [f"{name} {self.table[name].to_list()[place]!s}" for name in (self.id, self.time) if name]
        return ", ".join([*named, f"row {place + 1}"])


def _numeric_array(data: ArrayLike) -> NDArray[Any]:
    array = np.asarray(data)
    if array.dtype.kind not in "fiu":
        try:
            return array.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(f"numbers are needed, not an array of {array.dtype}") from None
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _series_times(times: list[Any], lengths: NDArray[np.int64]) -> tuple[Clock, Floats]:
    shapes = [np.shape(each) for each in times]
    if shapes != [(n,) for n in lengths]:
        raise DataError(f"times of shapes {shapes[:3]}… do not fit series of lengths {lengths.tolist()[:3]}…")
    flat = np.concatenate(times)
    if flat.dtype.kind == "M":
        clock, flat = "datetime", (flat - flat.min()) / np.timedelta64(1, "s")
    else:
        clock, flat = "number", flat.astype(np.float64)
    if not np.isfinite(flat).all():
        raise DataError("a time is missing or infinite")
    return clock, flat


def _eager_frame(frame: Any) -> nw.DataFrame[Any]:
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise DataError(
            f"a Panel, an array, a list of arrays, or a pandas, polars or PyArrow frame is needed, not {type(frame)}"
        ) from None
    if not len(table):
        raise DataError("the table has no rows")
    repeated = {name for name in table.columns if table.columns.count(name) > 1}
    if repeated:
        raise DataError(f"two columns are named {sorted(repeated)[0]!r}")
    return table


def _require_columns(table: nw.DataFrame[Any], names: Sequence[str]) -> None:
    for name in names:
        if name not in table.columns:
            index = nw.maybe_get_index(table)
            levels = [] if index is None else list(getattr(index, "names", []))
            hint = " (it is part of the index: use reset_index() first)" if name in levels else ""
            raise DataError(f"there is no column {name!r}{hint}; the columns are {', '.join(map(str, table.columns))}")


def _value_columns(
    table: nw.DataFrame[Any], reserved: set[str | None], columns: Sequence[str] | None
) -> list[str]:
    schema = table.schema
    if columns is None:
        chosen = [name for name in table.columns if name not in reserved and _is_numeric(schema[name])]
        if not chosen:
            raise DataError("the table has no numeric column to fill")
        return chosen
    for name in columns:
        if name in reserved:
            raise DataError(f"column {name!r} cannot be both a value and an id or time")
        if not _is_numeric(schema[name]):
            raise DataError(f"column {name!r} is not numeric but {schema[name]}")
    return list(columns)


def _is_numeric(dtype: Any) -> bool:
    return dtype.is_float() or dtype.is_integer()


def _column_values(column: nw.Series[Any]) -> Floats:
    return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _fill_column(column: nw.Series[Any], values: Floats, missing: Bools) -> nw.Series[Any]:
    """`values` where `missing`, the column's own entries, untouched, elsewhere. Integers stay integers."""
    whole = column.dtype.is_integer()
    usable = missing & ~np.isnan(values)
    new = nw.new_series(
        column.name, np.where(usable, np.rint(values) if whole else values, 0), backend=column.implementation
    ).cast(column.dtype)
    replaced = nw.new_series("replaced", usable, backend=column.implementation)
    return column.zip_with(~replaced, new)


def _new_column(table: nw.DataFrame[Any], name: str, values: Floats) -> nw.Series[Any]:
    column = nw.new_series(name, values, nw.Float64(), backend=table.implementation)
    # NaN says "nothing here"; frames that have nulls say it with those.
    return column if table.implementation.is_pandas() else column.fill_nan(None)


def _series_of_rows(table: nw.DataFrame[Any], id: str | None) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    if id is None:
        return (0,), np.zeros(len(table), dtype=np.int64)
    column = table[id]
    if column.is_null().any():
        row = column.is_null().to_list().index(True)
        raise DataError(f"the id in column {id!r} is missing in row {row + 1}")
    code: dict[Any, int] = {}
    codes = np.array([code.setdefault(name, len(code)) for name in column.to_list()], dtype=np.int64)
    return tuple(code), codes


def _only_time_column(table: nw.DataFrame[Any]) -> str | None:
    if _datetime_index(table) is not None:
        return None
    times = [name for name, dtype in table.schema.items() if dtype == nw.Date or isinstance(dtype, nw.Datetime)]
    if len(times) > 1:
        raise DataError(f"several columns hold times ({', '.join(times)}): say which one is the time")
    return times[0] if times else None


def _datetime_index(table: nw.DataFrame[Any]) -> Any:
    index = nw.maybe_get_index(table)
    dtype = getattr(index, "dtype", None)
    return index if dtype is not None and dtype.kind == "M" else None


def _time_of_rows(table: nw.DataFrame[Any], time: str | None) -> tuple[Clock, Floats]:
    if time is not None:
        return _moments(table[time], f"column {time!r}")
    index = _datetime_index(table)
    if index is not None:
        return _moments(nw.from_native(index.to_series(), series_only=True), "the index")
    return "number", np.arange(len(table), dtype=np.float64)


def _moments(column: nw.Series[Any], name: str) -> tuple[Clock, Floats]:
    """Numbers as they are; datetimes, dates and text that says a time as seconds since the first."""
    if column.dtype in (nw.String, nw.Object, nw.Categorical):
        return parse_times([None if item is None else str(item) for item in column.to_list()], name)
    missing = column.is_null()
    if column.dtype.is_float():
        missing = missing | ~column.is_finite()
    if missing.any():
        raise DataError(f"the time in {name} is missing in row {missing.to_list().index(True) + 1}")
    if column.dtype.is_numeric():
        return "number", column.cast(nw.Float64).to_numpy().astype(np.float64)
    if column.dtype == nw.Date:
        column = column.cast(nw.Datetime("us"))
    if isinstance(column.dtype, nw.Datetime):
        unit = column.dtype.time_unit if column.dtype.time_unit != "s" else "ms"
        ticks = column.dt.timestamp(cast(Any, unit)).to_numpy().astype(np.int64)
        return "datetime", (ticks - ticks.min()) * {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit]
    if column.dtype == nw.Duration:
        return "number", column.dt.total_microseconds().to_numpy().astype(np.float64) * 1e-6
    raise DataError(f"{name} holds {column.dtype}, not times")


_DAYS = ("%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f")


def parse_times(texts: Sequence[str | None], name: str) -> tuple[Clock, Floats]:
    """Numbers, ISO 8601 dates and times (with or without a zone), or one of the usual formats, the same for all."""
    for row, text in enumerate(texts):
        if text is None or not text.strip():
            raise DataError(f"the time in {name} is missing in row {row + 1}")
    stripped = [text.strip() for text in texts if text is not None]
    try:
        numbers = np.array(stripped, dtype=np.float64)
    except ValueError:
        moments = parse_datetimes(stripped, name)
        first = min(moments)
        return "datetime", np.array([(moment - first) / dt.timedelta(seconds=1) for moment in moments])
    if not np.isfinite(numbers).all():
        raise DataError(f"the time in {name} is not finite in row {int(np.argmin(np.isfinite(numbers))) + 1}")
    return "number", numbers


def parse_datetimes(texts: list[str], name: str) -> list[dt.datetime]:
    """All texts by one format: the only one that fits them all, so 03/04/2020 alone is refused, not guessed."""
    patterns = [day + clock for day in _DAYS for clock in _CLOCKS]
    tries = [_parse_all(texts, dt.datetime.fromisoformat)]
    tries += [_parse_all(texts, lambda text, pattern=pattern: dt.datetime.strptime(text, pattern)) for pattern in patterns]
    readings = [moments for moments in tries if len(moments) == len(texts)]
    if not readings:
        row = max(len(moments) for moments in tries)
        raise DataError(f"the time {texts[row]!r} in {name}, row {row + 1}, cannot be read as a number, date or time")
    if any(other != readings[0] for other in readings[1:]):
        raise DataError(f"the times in {name} may be day/month or month/day; write them as year-month-day")
    zoned = [moment.tzinfo is not None for moment in readings[0]]
    if any(zoned) and not all(zoned):
        raise DataError(f"{name} mixes times with and without a zone: row {zoned.index(not zoned[0]) + 1} differs")
    return readings[0]


def _parse_all(texts: list[str], parse: Callable[[str], dt.datetime]) -> list[dt.datetime]:
    """As many as can be read, up to the first that cannot."""
    moments: list[dt.datetime] = []
    for text in texts:
        try:
            moments.append(parse(text))
        except ValueError:
            break
    return moments
