"""Rows that a table on a regular grid lacks altogether: found, and added without values."""

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpvae.data.files import CsvText, TableFile
from gpvae.data.gaps import duration_text
from gpvae.data.panel import FrameSource, Panel
from gpvae.data.times import DataError, Floats, datetime_formats

REGULAR = 0.5  # share of the time steps that must be equal, and all others multiples of them
TOLERANCE = 1e-6  # of a time step
MOST_ADDED = 10  # times the rows that are there
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
    if not isinstance(panel.source, FrameSource) or panel.source.time is None or not len(panel.time_steps):
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
    times = _Times(panel, absent)
    before, order = source.order[absent.before], _order(panel, absent)
    table = pa.table(
        {
            name: _extended(
                file.table[name],
                times.typed(file.table[name], before) if name == source.time else None,
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
            new = times.like([cells[row] for row in before])
        both = [*cells, *new]
        columns.append([both[row] for row in order])
    return replace(file.text, columns=columns)


class _Times:
    """The times of absent rows, written as those of the rows before them."""

    def __init__(self, panel: Panel, absent: AbsentRows):
        self.known, self.new, self.origin = panel.times[absent.before], absent.times, panel.origin
        self.name = panel.source.time

    def typed(self, column: pa.ChunkedArray, before: NDArray[np.intp]) -> pa.Array:
        """Cells of the column's type."""
        cells, kind = column.take(pa.array(before)).to_pylist(), column.type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            moved = (cell + later for cell, later in zip(cells, self.new - self.known, strict=True))
            return pa.array([round(cell) if pa.types.is_integer(kind) else cell for cell in moved], kind)
        if pa.types.is_temporal(kind):
            return pa.array([_later(cell, later) for cell, later in zip(cells, self._later(), strict=True)], kind)
        return pa.array(self.like([str(cell) for cell in cells]), pa.string()).cast(kind)

    def like(self, texts: list[str]) -> list[str]:
        if self.origin is None:
            return [_number_like(text, after) for text, after in zip(texts, self.new, strict=True)]
        start = EPOCH + dt.timedelta(seconds=self.origin)
        known = (start + dt.timedelta(seconds=time) for time in self.known)
        return [
            _moment_like(text.strip(), moment, later, f"column {self.name!r}")
            for text, moment, later in zip(texts, known, self._later(), strict=True)
        ]

    def _later(self) -> list[dt.timedelta]:
        return [dt.timedelta(seconds=seconds) for seconds in self.new - self.known]


def _later(cell: Any, later: dt.timedelta) -> Any:
    """In UTC, where there is a zone: a day has not always 24 hours."""
    if isinstance(cell, dt.datetime) and cell.tzinfo is not None:
        return (cell.astimezone(dt.UTC) + later).astimezone(cell.tzinfo)
    return cell + later


def _number_like(text: str, value: float) -> str:
    mark = "," if "," in text else "."
    return f"{value:.{len(text.strip().partition(mark)[2])}f}".replace(".", mark)


def _moment_like(text: str, known: dt.datetime, later: dt.timedelta, column: str) -> str:
    """The time `later` than that of `text`, which is `known` (in UTC if it has a zone), written in the same way."""
    for read, write in _notations(text):
        try:
            moment = read(text)
        except ValueError:
            continue
        plain = moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo else moment
        is_known = abs(plain - known) < dt.timedelta(milliseconds=1)
        if is_known and write(moment) == text and read(write(moment + later)) == moment + later:
            return write(moment + later)
    raise DataError(f"{column}: cannot write a time {later} later than {text!r} in the same way; use ISO 8601")


def _notations(text: str) -> Iterator[tuple[Any, Any]]:
    """Pairs of functions that read a time and write it."""
    read = dt.datetime.fromisoformat
    zulu = (lambda written: written.replace("+00:00", "Z")) if text.endswith("Z") else str
    for separator in ("T", " "):
        for digits in ("minutes", "seconds", "milliseconds", "microseconds"):
            yield read, lambda moment, s=separator, d=digits: zulu(moment.isoformat(s, d))
    for pattern in ("%Y-%m-%d", *datetime_formats()):
        parse = partial(_parse, pattern)
        yield parse, lambda moment, pattern=pattern: moment.strftime(pattern)
        yield parse, lambda moment, pattern=pattern: _unpadded(moment.strftime(pattern))


def _parse(pattern: str, text: str) -> dt.datetime:
    return dt.datetime.strptime(text, pattern)


def _unpadded(text: str) -> str:
    """03/04/2020 → 3/4/2020"""
    return re.sub(r"\b0(?=\d[./])", "", text)
