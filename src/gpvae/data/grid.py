"""Rows that a table on a regular grid lacks altogether: found, and added without values."""

import datetime as dt
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpvae.data.csv_text import CsvText
from gpvae.data.files import TableFile
from gpvae.data.gaps import duration_text
from gpvae.data.panel import FrameSource, Panel
from gpvae.data.times import DATETIME_FORMATS, DataError, Floats

REGULAR = 0.5  # share of the time steps that must be equal, and all others multiples of them
TOLERANCE = 1e-6  # of a time step
MOST_ADDED = 10  # times the rows that are there
MOMENT = dt.timedelta(milliseconds=1)
DIGITS = ("minutes", "seconds", "milliseconds", "microseconds")
EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True)
class AbsentRows:
    """Rows that are on the grid, but not in the table."""

    step: float  # of the grid
    before: NDArray[np.int64]  # (absent row,) the panel's row before it
    times: Floats  # (absent row,)

    def __len__(self) -> int:
        return len(self.times)

    def describe(self, panel: Panel) -> str:
        step = duration_text(self.step) if panel.clock == "datetime" else f"{self.step:g}"
        rows = "1 row is" if len(self) == 1 else f"{len(self):,} rows are"
        return f"{rows} absent from the time steps of {step}, the first after {panel.source.where(int(self.before[0]))}"


def absent_rows(panel: Panel) -> AbsentRows | None:
    """Within the series whose times lie on the grid; None where there is no grid."""
    source = panel.source
    if not isinstance(source, FrameSource) or source.time not in source.table.columns or not len(panel.time_steps):
        return None
    sizes, counts = np.unique(panel.time_steps, return_counts=True)
    step = float(sizes[np.argmax(counts)])
    if counts.max() < REGULAR * counts.sum():
        return None
    before: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    times: list[Floats] = [np.empty(0)]
    for _, rows in panel.series():
        skipped = np.diff(panel.times[rows]) / step
        if len(skipped) and np.abs(skipped - np.rint(skipped)).max() < TOLERANCE * max(1.0, skipped.max()):
            absent = np.rint(skipped).astype(np.int64) - 1
            within = np.arange(absent.sum()) - np.repeat(np.cumsum(absent) - absent, absent) + 1
            before.append(np.repeat(np.arange(rows.start, rows.stop - 1), absent))
            times.append(panel.times[before[-1]] + step * within)
    found = AbsentRows(step, np.concatenate(before), np.concatenate(times))
    return found if len(found) else None


def with_rows(file: TableFile, panel: Panel, absent: AbsentRows) -> TableFile:
    """The table with these rows, in its order; they hold their series and time, and no values."""
    if len(absent) > MOST_ADDED * len(panel.values):
        raise DataError(
            f"{file.path}: {absent.describe(panel)}; that is too many to add to {len(panel.values):,}: check the times"
        )
    source = panel.source
    assert isinstance(source, FrameSource)
    assert source.time is not None
    before, order = source.order[absent.before], _order(panel, absent)
    times = _Times(panel, absent, before)
    table = pa.table(
        {
            name: _extended(
                file.table[name],
                times.typed(file.table[name]) if name == source.time else None,
                before if name == source.id else None,
                order,
            )
            for name in file.table.column_names
        },
        schema=file.table.schema,
    )
    return replace(file, table=table, text=file.text and _with_text_rows(file, source, times, before, order))


def _order(panel: Panel, absent: AbsentRows) -> NDArray[np.int64]:
    """Rows of the new table: those of the old one, and len(old) + k for the absent row k."""
    assert isinstance(panel.source, FrameSource)
    place = panel.source.order
    by_row = np.empty(len(place))
    by_row[place] = panel.times
    before, after = place[absent.before], place[absent.before + 1]
    if (np.diff(by_row) >= 0).all():
        position = np.searchsorted(by_row, absent.times, side="right")
    else:
        position = np.where(after > before, before + 1, before)
    inserted = np.lexsort((np.where(after > before, absent.times, -absent.times), position))
    return np.insert(np.arange(len(place)), position[inserted], len(place) + inserted)


def _extended(
    column: pa.ChunkedArray, new: pa.Array | None, copied: NDArray[np.intp] | None, order: NDArray[np.int64]
) -> pa.ChunkedArray:
    """A column with `new` cells at its end, or copies of some rows, or nulls; then in another order."""
    if copied is not None:
        added = column.take(pa.array(copied)).chunks
    else:
        added = [pa.nulls(len(order) - len(column), column.type) if new is None else new]
    return pa.chunked_array([*column.chunks, *added], column.type).take(pa.array(order))


def _with_text_rows(
    file: TableFile, source: FrameSource, times: "_Times", before: NDArray[np.intp], order: NDArray[np.int64]
) -> CsvText:
    assert file.text is not None
    columns: list[list[str]] = []
    for name, cells in zip(file.table.column_names, file.text.columns, strict=True):
        new = [""] * len(before)
        if name == source.id:
            new = [cells[row] for row in before]
        elif name == source.time:
            new = times.like(cells)
        both = [*cells, *new]
        columns.append([both[row] for row in order])
    return replace(file.text, columns=columns)


class _Times:
    """The times of absent rows, written as those of the rows before them."""

    def __init__(self, panel: Panel, absent: AbsentRows, before: NDArray[np.intp]):
        assert isinstance(panel.source, FrameSource)
        self.name, self.origin, self.before = panel.source.time, panel.origin, before
        self.new, known = absent.times, panel.times[absent.before]
        self.later = [dt.timedelta(seconds=seconds) for seconds in self.new - known]
        self.by_row = np.empty(len(panel.times))  # of the table
        self.by_row[panel.source.order] = panel.times

    def typed(self, column: pa.ChunkedArray) -> pa.Array:
        """Cells of the column's type."""
        kind, cells = column.type, column.take(pa.array(self.before)).to_pylist()
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            moved = cells + (self.new - self.by_row[self.before])
            return pa.array(np.rint(moved) if pa.types.is_integer(kind) else moved).cast(kind)
        if pa.types.is_temporal(kind):
            return pa.array([_moved(cell, later) for cell, later in zip(cells, self.later, strict=True)], kind)
        return pa.array(self.like([str(cell) for cell in column.to_pylist()]), pa.string()).cast(kind)

    def like(self, cells: list[str]) -> list[str]:
        """Text like that of the whole column: 2/3/2024 may be of February or of March."""
        cells = [cell.strip() for cell in cells]
        if self.origin is None:
            return [_number_like(cells[row], after) for row, after in zip(self.before, self.new, strict=True)]
        start = EPOCH + dt.timedelta(seconds=self.origin)
        known = [start + dt.timedelta(seconds=time) for time in self.by_row]
        notations = [notation for notation in _notations(cells[0]) if _reads(notation, cells, known)]
        return [
            self._moment_like(cells[row], later, notations) for row, later in zip(self.before, self.later, strict=True)
        ]

    def _moment_like(self, text: str, later: dt.timedelta, notations: "list[_Notation]") -> str:
        for notation in notations:
            moment = notation.read(text)
            for write in notation.writes:
                if write(moment) == text and notation.read(write(moment + later)) == moment + later:
                    return write(moment + later)
        reason = f"cannot write a time {later} later than {text!r} in the same way; use ISO 8601"
        raise DataError(f"column {self.name!r}: {reason}")


def _moved(cell: Any, later: dt.timedelta) -> Any:
    """In UTC, where there is a zone: a day has not always 24 hours."""
    if isinstance(cell, dt.datetime) and cell.tzinfo is not None:
        return (cell.astimezone(dt.UTC) + later).astimezone(cell.tzinfo)
    return cell + later


def _number_like(text: str, value: float) -> str:
    mark = "," if "," in text else "."
    return f"{value:.{len(text.partition(mark)[2])}f}".replace(".", mark)


class _Notation(NamedTuple):
    """A way to read times, and ways to write them."""

    read: Callable[[str], dt.datetime]
    writes: list[Callable[[dt.datetime], str]]


def _notations(text: str) -> list[_Notation]:
    """Those that a text like this may have."""
    patterns = [_Notation(partial(_parse, pattern), _writers(pattern)) for pattern in DATETIME_FORMATS]
    return [_Notation(dt.datetime.fromisoformat, _iso_writers(zulu=text.endswith("Z"))), *patterns]


def _reads(notation: _Notation, cells: list[str], known: list[dt.datetime]) -> bool:
    """Whether all cells are the times that are known, in UTC if they have a zone."""
    try:
        return all(abs(_plain(notation.read(cell)) - time) < MOMENT for cell, time in zip(cells, known, strict=True))
    except ValueError:
        return False


def _plain(moment: dt.datetime) -> dt.datetime:
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _iso_writers(*, zulu: bool) -> list[Callable[[dt.datetime], str]]:
    def write(separator: str, digits: str, moment: dt.datetime) -> str:
        text = moment.isoformat(separator, digits)
        return text.replace("+00:00", "Z") if zulu else text

    precise = [partial(write, separator, digits) for separator in "T " for digits in DIGITS]
    return [*precise, lambda moment: moment.strftime("%Y-%m-%d")]


def _writers(pattern: str) -> list[Callable[[dt.datetime], str]]:
    """With zeros before single digits, and without them in dates."""
    return [
        lambda moment: moment.strftime(pattern),
        lambda moment: re.sub(r"\b0(?=\d[./])", "", moment.strftime(pattern)),
    ]


def _parse(pattern: str, text: str) -> dt.datetime:
    return dt.datetime.strptime(text, pattern)
