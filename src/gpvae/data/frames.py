"""Where rows come from, and how results are returned in the same form: arrays, lists of arrays, data frames."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Protocol

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from gpvae.data.time_columns import index_series, index_times, is_blank, is_row_number, joined_times, time_parts
from gpvae.data.times import DataError, Floats

Bools = NDArray[np.bool_]
Labels = Mapping[str, tuple[Any, ...]]  # by text column: the labels that the codes 0, 1, … stand for
Extra = Mapping[str, Floats]  # columns to append to a table, (row,) each


class Source(Protocol):
    """The original data of a panel."""

    @property
    def id(self) -> str | None:
        """The name of the column of series ids."""
        ...

    @property
    def time(self) -> str | None:
        """The name of the column of times."""
        ...

    def restore(self, rows: NDArray[Any]) -> Any:
        """(..., row, feature) in the panel's row order → in the source's shape: an array, or a list of arrays."""
        ...

    def fill(self, columns: Sequence[str], values: Floats, missing: Bools, extra: Extra, labels: Labels) -> Any:
        """The source with `values` (row, feature) where `missing`, and with `extra` columns at its end."""
        ...

    def where(self, row: int) -> str:
        """A description of a row for messages."""
        ...


@dataclass(frozen=True)
class ArraySource:
    array: NDArray[Any]  # (time, feature) or (series, time, feature)

    id = time = None

    def restore(self, rows: NDArray[Any]) -> NDArray[Any]:
        shaped = rows.reshape(*rows.shape[:-2], *self.array.shape[:-1], rows.shape[-1])
        return _floats_as(shaped, self.array.dtype)

    def fill(
        self, columns: Sequence[str], values: Floats, missing: Bools, extra: Extra, labels: Labels
    ) -> NDArray[Any]:
        _require_no_extra(extra)
        return _fill_array(self.array, columns, self.restore(values), self.restore(missing))

    def where(self, row: int) -> str:
        series, step = divmod(row, self.array.shape[-2])
        return f"series {series}, step {step}" if self.array.ndim == 3 else f"step {step}"


@dataclass(frozen=True)
class ListSource:
    arrays: tuple[NDArray[Any], ...]  # (time, feature) each

    @property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum([len(array) for array in self.arrays])

    id = time = None

    def restore(self, rows: NDArray[Any]) -> list[NDArray[Any]]:
        parts = np.split(rows, self._ends[:-1], axis=-2)
        return [_floats_as(part, array.dtype) for part, array in zip(parts, self.arrays, strict=True)]

    def fill(
        self, columns: Sequence[str], values: Floats, missing: Bools, extra: Extra, labels: Labels
    ) -> list[NDArray[Any]]:
        _require_no_extra(extra)
        parts = zip(self.arrays, self.restore(values), self.restore(missing), strict=True)
        return [_fill_array(array, columns, new, gaps) for array, new, gaps in parts]

    def where(self, row: int) -> str:
        series = int(np.searchsorted(self._ends, row, side="right"))
        return f"series {series}, step {row - int(self._ends[series]) + len(self.arrays[series])}"


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

    def fill(self, columns: Sequence[str], values: Floats, missing: Bools, extra: Extra, labels: Labels) -> Any:
        values, missing = self.restore(values), self.restore(missing)
        present = {*self.table.columns}
        taken = [name for name in extra if name in present]
        if taken:
            raise DataError(f"the table already has a column named {taken[0]!r}; rename it first")
        filled = [
            _fill_column(self.table.get_column(name), values[:, j], missing[:, j], labels.get(name))
            for j, name in enumerate(columns)
            if missing[:, j].any()
        ]
        added = [
            _new_column(self.table, name, self.restore(column[:, None])[:, 0], labels.get(name))
            for name, column in extra.items()
        ]
        return _with_columns(self.table, filled, added)

    def unfilled(self, filled: Sequence[str]) -> list[str]:
        """Columns with gaps that are neither among the `filled` nor numbers or times."""
        others = [
            name
            for name, dtype in self.table.schema.items()
            if name not in filled and not (is_numeric(dtype) or dtype.is_temporal() or dtype.is_nested())
        ]
        return [name for name in others if name != self.id and self.table.get_column(name).null_count()]

    def holds_numbers(self, column: str) -> bool:
        """Whether a column of another type than numbers holds numbers, such as Decimal."""
        if self.table.schema[column] == nw.Decimal:
            return True
        entries = self.table.get_column(column).drop_nulls().to_list()
        return bool(entries) and all(isinstance(e, Number) and not isinstance(e, bool) for e in entries)

    def times_at(self, rows: NDArray[np.int64]) -> nw.Series[Any] | None:
        """The times of these rows of the panel as the frame holds them; None if it holds none."""
        times = self._times
        return None if times is None else nw.maybe_reset_index(times[self.order[rows].tolist()])

    def wall_clock(self) -> NDArray[np.datetime64] | None:
        """What a clock on the spot shows in each row of the panel; None if times are not of a type for dates."""
        times = self._times
        if times is None or times.dtype not in (nw.Date, nw.Datetime):
            return None
        local = times.cast(nw.Datetime("us")) if times.dtype == nw.Date else times.dt.replace_time_zone(None)
        return local.to_numpy()[self.order].astype("datetime64[us]")

    @property
    def _times(self) -> nw.Series[Any] | None:
        parts = time_parts(self.table.columns, self.time)
        if parts:
            return joined_times(self.table, parts) if len(parts) > 1 else self.table.get_column(parts[0])
        index = index_times(self.table)
        return None if index is None else nw.from_native(index.to_series(), series_only=True)

    def has_order(self, column: str) -> bool:
        """Whether the type of a column orders its categories."""
        return self.table.schema[column] in (nw.Enum, nw.Boolean)

    def where(self, row: int) -> str:
        position = int(self.order[row])
        names = [*([] if self.id is None else [self.id]), *time_parts(self.table.columns, self.time)]
        parts = [f"{name} {self.table.get_column(name)[position]}" for name in names]
        series, index = index_series(self.table), index_times(self.table)
        if self.id is None and series is not None:
            parts.append(f"series {series[position]}")
        if self.time is None and index is not None:
            parts.append(f"time {index[position]}")
        return ", ".join([*parts, f"row {position + 1}"])


def table_like(source: Source, columns: Mapping[str, Any]) -> Any:
    """A frame of the library that the data came from; for arrays a dict of columns."""
    if not isinstance(source, FrameSource):
        return {name: np.asarray(column) for name, column in columns.items()}
    held = {name: column for name, column in columns.items() if isinstance(column, nw.Series)}
    plain_columns = {name: column for name, column in columns.items() if name not in held}
    frame = nw.from_dict(plain_columns, backend=source.table.implementation)
    with_times = frame.with_columns(*(column.alias(name) for name, column in held.items()))
    return with_times.select(*columns).to_native()


def _with_columns(table: nw.DataFrame[Any], filled: list[nw.Series[Any]], added: list[nw.Series[Any]]) -> Any:
    """The native frame with some columns replaced and others appended."""
    if not table.implementation.is_pyarrow():
        return table.with_columns(*filled, *added).to_native()
    native = table.to_native()  # which narwhals would copy once for each column
    new = {column.name: column.to_native() for column in filled}
    columns = [new.get(name, column) for name, column in zip(native.column_names, native.columns, strict=True)]
    fields = [f.with_type(column.type) for f, column in zip(native.schema, columns, strict=True)]
    tail = [column.to_native() for column in added]
    fields += [pa.field(column.name, values.type) for column, values in zip(added, tail, strict=True)]
    return pa.Table.from_arrays([*columns, *tail], schema=pa.schema(fields, metadata=native.schema.metadata))


def plain(data: Any) -> Any:
    """Rows in a list, tensors and other array-likes as arrays; everything else unchanged."""
    if isinstance(data, list | tuple):
        return numeric_array(data, "the list") if len(data) and all(np.ndim(row) == 1 for row in data) else data
    if isinstance(data, np.ndarray) or nw.dependencies.is_into_dataframe(data) or nw.dependencies.is_into_series(data):
        return data
    return np.asarray(data) if hasattr(data, "__array__") else data


class EntryError(DataError, TypeError):
    """An entry that is no number, which NumPy calls a TypeError."""


def numeric_array(data: ArrayLike, name: str) -> NDArray[Any]:
    """Floats unchanged, integers as float64; None and masked values as NaN."""
    try:
        array = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
        if array.dtype.kind in "biuO":
            array = array.astype(np.float64)
    except TypeError as error:
        raise EntryError(f"{name} must hold numbers, in rows of equal length: {error}") from None
    except ValueError:
        raise DataError(f"{name} must hold numbers, in rows of equal length") from None
    if array.dtype.kind == "c":
        raise DataError(f"{name} must hold numbers, got {array.dtype}: Complex data not supported")
    if array.dtype.kind != "f":
        raise DataError(f"{name} must hold numbers, got {array.dtype}")
    return np.ma.filled(array, np.nan)


def _floats_as(rows: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return rows.astype(dtype, copy=False) if rows.dtype.kind == "f" else rows


def _fill_array(
    array: NDArray[Any], columns: Sequence[str], values: NDArray[Any], missing: NDArray[Any]
) -> NDArray[Any]:
    index = [int(name.removeprefix("x")) for name in columns]
    filled = array.copy()
    filled[..., index] = np.where(missing, values, array[..., index])
    return filled


def _require_no_extra(extra: Extra) -> None:
    if extra:
        raise DataError(f"cannot add the column {next(iter(extra))!r} to an array: use a data frame")


def spread_times(times: NDArray[Any], shape: tuple[int, ...]) -> list[Any]:
    """One row of times for each series."""
    if times.shape not in (shape, shape[1:]):
        raise DataError(f"times must have shape {shape} or {shape[1:]}, got {times.shape}")
    return list(np.broadcast_to(times, shape))


def concatenated_times(times: list[NDArray[Any]], lengths: NDArray[np.int64]) -> NDArray[Any]:
    shapes = [series_times.shape for series_times in times]
    if shapes != [(n,) for n in lengths]:
        raise DataError(f"times of shapes {shapes[:3]}… do not match series of lengths {lengths.tolist()[:3]}…")
    return np.concatenate(times)


def eager_frame(frame: Any) -> nw.DataFrame[Any]:
    try:
        table = nw.from_native(frame, eager_only=True)
    except TypeError:
        raise DataError(
            f"data must be a Panel, an array, a list of arrays, or a pandas, polars or PyArrow frame, got {type(frame)}"
        ) from None
    except nw.exceptions.DuplicateError as error:
        raise DataError(f"columns must have different names, got {str(error).splitlines()[-1].lstrip('- ')}") from None
    if not len(table):
        raise DataError("the table has no rows")
    return table


def require_columns(table: nw.DataFrame[Any], names: Sequence[str]) -> None:
    known = set(table.columns)
    for name in names:
        if name not in known:
            index = nw.maybe_get_index(table)
            levels = [] if index is None else list(getattr(index, "names", []))
            hint = " (it is part of the index: call reset_index() first)" if name in levels else ""
            raise DataError(f"there is no column {name!r}{hint}; the columns are {', '.join(map(str, table.columns))}")


def value_columns(
    table: nw.DataFrame[Any], reserved: list[str], columns: Sequence[str] | None, categories: Sequence[str]
) -> list[str]:
    schema = table.schema
    for name in categories:
        if name in reserved:
            raise DataError(f"column {name!r} is the id or time and cannot be filled")
        if not is_numeric(schema[name]) and schema[name] not in _CATEGORICAL:
            raise DataError(f"column {name!r} must hold numbers or categories, got {schema[name]}")
    if columns is None:
        usable = {name for name in table.columns if is_numeric(schema[name])} | {*categories}
        chosen = [name for name in table.columns if name not in reserved and name in usable]
        return _without_row_numbers(table, chosen)
    columns = [*columns, *[name for name in categories if name not in columns]]
    if not columns or len(set(columns)) < len(columns):
        raise DataError(f"columns must name at least one column, and none twice, got {list(columns)}")
    for name in columns:
        if name in reserved:
            raise DataError(f"column {name!r} is the id or time and cannot be filled")
        if not is_numeric(schema[name]) and name not in categories:
            hint = "; name it in `categories` to have it filled" if schema[name] in _CATEGORICAL else ""
            raise DataError(f"column {name!r} must be numeric, got {schema[name]}{hint}")
    return list(columns)


_CATEGORICAL = (nw.String, nw.Categorical, nw.Enum, nw.Boolean, nw.Object)


def _without_row_numbers(table: nw.DataFrame[Any], chosen: list[str]) -> list[str]:
    """Columns to fill; a column without name and values is none. Nor is an index that was written, as is said."""
    chosen = [name for name in chosen if not is_blank(table.get_column(name))]
    counting = [name for name in chosen if is_row_number(table.get_column(name))]
    for name in counting:
        advice = "it is left unchanged; to use it, name it among the columns (--columns) or as the time (--time)"
        warnings.warn(f"{str(name) or 'the column without a name'!r} counts the rows: {advice}", stacklevel=4)
    chosen = [name for name in chosen if name not in counting]
    if not chosen:
        raise DataError("the table has no numeric column to fill")
    return chosen


def is_numeric(dtype: Any) -> bool:
    return dtype.is_float() or (dtype.is_integer() and dtype not in (nw.Int128, nw.UInt128))


def labels_of(column: nw.Series[Any]) -> tuple[Any, ...]:
    """The different entries, in the order of the column's type (pandas: if it is ordered), else sorted."""
    present = set(column.drop_nulls().to_list())
    types = {type(label) for label in present}
    if not (types <= {str} or types <= {bool}):
        names = ", ".join(sorted(each.__name__ for each in types))
        raise DataError(f"categories must be text or booleans, but column {column.name!r} holds {names}")
    if isinstance(column.dtype, nw.Enum):
        return tuple(label for label in column.dtype.categories if label in present)
    return tuple(sorted(present))


def column_values(column: nw.Series[Any], labels: tuple[Any, ...] | None = None) -> Floats:
    if labels is not None:
        code = {label: i for i, label in enumerate(labels)}
        return np.array([code.get(entry, np.nan) for entry in column.to_list()], dtype=np.float64)
    if column.dtype.is_float():
        return np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64)
    # A cast would fail: Arrow refuses integers that float64 cannot represent exactly.
    return np.where(column.is_null().to_numpy(), np.nan, column.fill_null(0).to_numpy().astype(np.float64))


def _fill_column(
    column: nw.Series[Any], values: Floats, missing: Bools, labels: tuple[Any, ...] | None = None
) -> nw.Series[Any]:
    """`values` where `missing`, the column's entries unchanged elsewhere. Integers stay integers."""
    usable = missing & ~np.isnan(values)
    new = np.where(usable, values, 0)
    if labels is not None:
        return _fill_with_labels(column, new.astype(np.int64), usable, labels)
    if column.dtype.is_integer():
        new = _nearest_integers(new, np.dtype(str(column.dtype).lower()))
    backend = column.implementation
    replaced = nw.new_series("replaced", usable, backend=backend)
    return column.zip_with(~replaced, nw.new_series(column.name, new, column.dtype, backend=backend))


def _fill_with_labels(
    column: nw.Series[Any], codes: NDArray[np.int64], usable: Bools, labels: tuple[Any, ...]
) -> nw.Series[Any]:
    """Copy entries from other rows, which keeps the column's type; text where a label occurs in no row."""
    entries = column.to_list()
    first = {entry: row for row, entry in reversed(list(enumerate(entries)))}
    wanted = {labels[code] for code in np.unique(codes[usable])}
    if wanted <= first.keys():
        rows = np.arange(len(entries))
        rows[usable] = np.array([first.get(label, -1) for label in labels])[codes[usable]]
        return column[rows.tolist()]
    kept = [None if entry is None or entry != entry else entry for entry in entries]
    filled = [labels[code] if gap else entry for entry, code, gap in zip(kept, codes, usable, strict=True)]
    dtype = column.dtype if column.dtype in (nw.String, nw.Boolean) else nw.String()
    return nw.new_series(column.name, filled, dtype, backend=column.implementation)


def _nearest_integers(values: Floats, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rounded, and clipped to the range of the type: unsigned counts stay at least 0."""
    limits = np.iinfo(dtype)
    return np.clip(np.rint(values), limits.min, np.nextafter(float(limits.max) + 1, 0)).astype(dtype)


def _new_column(
    table: nw.DataFrame[Any], name: str, values: Floats, labels: tuple[Any, ...] | None = None
) -> nw.Series[Any]:
    if labels is not None:
        named = [None if np.isnan(value) else str(labels[int(value)]) for value in values]
        return nw.new_series(name, named, nw.String(), backend=table.implementation)
    column = nw.new_series(name, values, nw.Float64(), backend=table.implementation)
    # Pandas marks missing values by NaN, other frames by null.
    return column if table.implementation.is_pandas() else column.fill_nan(None)


def series_of_rows(table: nw.DataFrame[Any], id: str | None) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    if id is None:
        named = index_series(table)
        if named is None:
            return (0,), np.zeros(len(table), dtype=np.int64)
        _require_named(named)
        return _coded(named)
    column = table.get_column(id)
    if column.dtype.is_nested():
        raise DataError(f"the id column {id!r} must hold text or numbers, got {column.dtype}")
    missing = column.is_null() | column.is_nan() if column.dtype.is_float() else column.is_null()
    if missing.any():
        raise DataError(f"the id in column {id!r} is missing in row {missing.to_list().index(True) + 1}")
    return _coded(column.to_list())


def _require_named(names: list[Any]) -> None:
    for row, name in enumerate(names):
        if any(part is None or part != part for part in (name if isinstance(name, tuple) else (name,))):
            raise DataError(f"the series is missing in the index, in row {row + 1}")


def _coded(names: list[Any]) -> tuple[tuple[Any, ...], NDArray[np.int64]]:
    """The different names in their order, and the place of each row's among them."""
    code: dict[Any, int] = {}
    entries = [entry.item() if isinstance(entry, np.generic) else entry for entry in names]
    # 1, True and 1.0 are equal, but not the same name.
    codes = np.array([code.setdefault((type(name), name), len(code)) for name in entries], dtype=np.int64)
    return tuple(name for _, name in code), codes
