"""Tables in files: CSV and Parquet in, the same kind out; written whole or not at all."""

import csv
import datetime as dt
import gzip
import io
import os
import re
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpvae.data.panel import DataError, Panel
from gpvae.data.times import column_times, parse_datetimes

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "#n/a"})
SEPARATORS = ",;\t|"
_WHOLE = re.compile(r"[+-]?[0-9]+")


@contextmanager
def whole_or_not_at_all(path: Path, *, force: bool) -> Iterator[Path]:
    """A place to write a file or folder that appears under `path` only once it is complete.

    What was there before is kept unless `force`, and in any case until the new one is whole.
    """
    require_writable(path, force=force)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield partial
        _replace(partial, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}; nothing was changed") from error
    finally:
        _remove(partial)


def require_writable(path: Path, *, force: bool) -> None:
    """Say at once what would only show after hours of training."""
    if not path.name:
        raise DataError(f"cannot write {path}: that is a place, not a name")
    if path.exists() and not force:
        replaced = "allow it to be replaced (--force; in Python overwrite=True)"
        raise DataError(f"{path} exists already and is kept; choose another name, or {replaced}")
    if not path.parent.is_dir():
        raise DataError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"cannot write {path}: the folder {path.parent} is not writable")


def _replace(partial: Path, path: Path) -> None:
    """Swap in one rename for files; for folders, move the old one aside first, since a rename cannot cover it."""
    if not (path.is_dir() and partial.is_dir()):
        partial.replace(path)
        return
    aside = partial.with_name(partial.name + ".old")
    path.rename(aside)
    try:
        partial.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)  # the new one is in place: what sticks here is no reason to fail


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class TableFile:
    """A table read from a file, with what is needed to write it again as it was."""

    path: Path
    table: pa.Table
    text: "CsvText | None" = None  # the cells as written, where the file is text

    def panel(
        self,
        *,
        id: str | None = None,
        time: str | None = None,
        columns: Sequence[str] | None = None,
        categories: Sequence[str] = (),
    ) -> Panel:
        """See `Panel.from_frame`; the index that pandas keeps in a Parquet file is no value unless asked for."""
        try:
            self._require_numbers([name for name in columns or [] if name not in categories])
            panel = Panel.from_frame(self.table, id=id, time=time, columns=columns, categories=categories)
            return panel if columns else self._without_index(panel)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None

    def with_categories(self, names: Sequence[str]) -> "TableFile":
        """The same, where NA and the like are gaps in these columns of text too, and not names of something."""
        table = self.table
        for j, name in enumerate(table.column_names):
            if name in names and pa.types.is_string(table[name].type):
                cells = [None if cell is None or _is_missing(cell) else cell for cell in table[name].to_pylist()]
                table = table.set_column(j, table.schema.field(j), pa.array(cells, pa.string()))
        return replace(self, table=table)

    def with_text(self, names: Sequence[str]) -> "TableFile":
        """The same, where these columns of a text file are text even if they look like numbers."""
        table = self.table
        for j, name in enumerate(table.column_names):
            if self.text and name in names:
                cells = [None if _is_missing(cell) else cell.strip() for cell in self.text.columns[j]]
                table = table.set_column(j, pa.field(name, pa.string()), pa.array(cells, pa.string()))
        return replace(self, table=table)

    def almost_times(self, names: Sequence[str]) -> list[str]:
        """Why columns of text that begin with a time are none: the cells at fault, in words."""
        reasons: list[str] = []
        for name in names:
            if pa.types.is_string(self.table[name].type) and _is_time(self.table[name][0].as_py()):
                try:
                    column_times(nw.from_native(self.table[name], series_only=True), f"column {name!r}")
                except DataError as error:
                    reasons.append(str(error))
        return reasons

    def almost_numbers(self, names: Sequence[str]) -> list[str]:
        """Why columns of text that are mostly numbers are none: the first cells at fault, in words."""
        reasons: list[str] = []
        for j, name in enumerate(self.table.column_names):
            if self.text and name in names and pa.types.is_string(self.table[name].type):
                present = [cell.strip() for cell in self.text.columns[j] if not _is_missing(cell)]
                numbers = [cell for cell in present if _to_floats([cell], self.text._decimal_mark([cell])) is not None]
                if 2 * len(numbers) > len(present):
                    row, cell = self.text.first_not_a_number(j)
                    reasons.append(f"column {name!r} is text, and left as it is: it holds {cell!r} in row {row + 1}")
        return reasons

    def require_no_columns(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self.table.column_names:
                raise DataError(f"{self.path}: the table already has a column named {name!r}; rename it first")

    def write(self, path: Path, filled: pa.Table, *, force: bool) -> None:
        """Write `filled`, made from this table, to `path`, as CSV or Parquet by its name."""
        kind = file_kind(path)
        with whole_or_not_at_all(path, force=force) as partial:
            if kind == "parquet":
                pq.write_table(self._with_metadata(filled), partial)
            else:
                text = self.text or CsvText.plain(self.table)
                text.write(partial, self.table, filled, compress=_is_gzip(path))

    def _with_metadata(self, filled: pa.Table) -> pa.Table:
        """Of the table and its columns; pandas keeps its index and dtypes there."""
        ours = self.table.schema
        schema = pa.schema([*ours, *list(filled.schema)[len(ours) :]], metadata=ours.metadata)
        return pa.Table.from_arrays(filled.columns, schema=schema)

    def _without_index(self, panel: Panel) -> Panel:
        index = (self.table.schema.pandas_metadata or {}).get("index_columns", [])
        values = [name for name in panel.columns if name not in index]
        if not values:
            raise DataError("the table has no numeric column to fill")
        return panel.select(values)

    def _require_numbers(self, columns: Sequence[str]) -> None:
        for name in columns:
            if self.text and name in self.table.column_names and pa.types.is_string(self.table[name].type):
                row, cell = self.text.first_not_a_number(self.table.column_names.index(name))
                raise DataError(f"column {name!r} is not numeric: it holds {cell!r} in row {row + 1}")


def read(
    path: str | os.PathLike[str],
    *,
    id: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
) -> Panel:
    """A CSV (.csv, .tsv, .txt, also .gz) or Parquet file as a panel; see `Panel.from_frame` for the options."""
    table = read_table(path).with_categories(categories)
    return table.panel(id=id, time=time, columns=columns, categories=categories)


def read_table(path: str | os.PathLike[str]) -> TableFile:
    path = Path(path)
    kind = file_kind(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty")
    if kind == "parquet":
        try:
            return TableFile(path, pq.read_table(path))
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path} is not a Parquet file, or a damaged one: {_one_line(error)}") from None
    text = CsvText.read(path)
    return TableFile(path, text.table(), text)


def file_kind(path: Path) -> str:
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file")
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        return "parquet"
    if name.removesuffix(".gz").endswith((".csv", ".tsv", ".txt")):
        return "csv"
    raise DataError(f"{path}: the name must end in .csv, .tsv, .txt (also with .gz), .parquet or .pq")


@dataclass(frozen=True)
class CsvText:
    """The cells of a CSV file exactly as written, so that what was measured goes back letter for letter."""

    header: list[str]
    columns: list[list[str]]
    separator: str = ","
    newline: str = "\n"
    encoding: str = "utf-8"  # or utf-8-sig: with a byte order mark

    @classmethod
    def read(cls, path: Path) -> "CsvText":
        text = _read_text(path)
        lines = list(io.StringIO(text.removeprefix("\ufeff"), newline=""))
        separator = _separator(lines)
        reader = csv.reader(lines, delimiter=separator)
        try:
            records = [(reader.line_num, row) for row in reader]
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}, is not a table: {error}") from None
        (line, header), columns = _header_and_columns(records, path)
        newline = lines[line - 1].removeprefix(lines[line - 1].rstrip("\r\n")) or "\n"
        return cls(header, columns, separator, newline, "utf-8-sig" if text.startswith("\ufeff") else "utf-8")

    @classmethod
    def plain(cls, table: pa.Table) -> "CsvText":
        """For a table that never was text."""
        return cls(table.column_names, [_as_text(column) for column in table.columns])

    def table(self) -> pa.Table:
        """Typed columns: whole numbers, numbers, times, or text."""
        return pa.table([self._typed(j) for j in range(len(self.header))], names=_names(self.header))

    def write(self, path: Path, original: pa.Table, filled: pa.Table, *, compress: bool) -> None:
        """Cells that were missing in `original` and are not in `filled` get new text; all others keep theirs."""
        names = original.column_names
        extra = filled.column_names[len(names) :]
        columns = [self._refilled(j, original.column(j), filled.column(name)) for j, name in enumerate(names)]
        columns += [self._added(name, filled.column(name), names) for name in extra]
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self.separator, lineterminator=self.newline)
        writer.writerow([*self.header, *extra])
        writer.writerows(zip(*columns, strict=True))
        encoded = text.getvalue().encode(self.encoding)
        path.write_bytes(gzip.compress(encoded, mtime=0) if compress else encoded)

    def first_not_a_number(self, j: int) -> tuple[int, str]:
        mark = self._decimal_mark(self._present(j))
        for row, cell in enumerate(self.columns[j]):
            if not _is_missing(cell) and _to_floats([cell.strip()], mark) is None:
                return row, cell
        return 0, self.columns[j][0]

    def _present(self, j: int) -> list[str]:
        return [cell.strip() for cell in self.columns[j] if not _is_missing(cell)]

    def _decimal_mark(self, present: list[str]) -> str:
        """A comma where nothing else speaks against it: the separator, or a cell with a point."""
        commas = self.separator != "," and any("," in cell for cell in present)
        return "," if commas and not any("." in cell for cell in present) else "."

    @cached_property
    def _writes_commas(self) -> bool:
        """Whether any column of numbers does; those without a fraction then get one with a comma."""
        columns = map(self._present, range(len(self.header)))
        return any(self._decimal_mark(cells) == "," and _to_floats(cells, ",") is not None for cells in columns)

    def _typed(self, j: int) -> pa.Array:
        present = self._present(j)
        absent = np.array([_is_missing(cell) for cell in self.columns[j]])
        if present and all(_WHOLE.fullmatch(cell) for cell in present):
            # What has more digits than an integer is a name, and a float would not tell it from the next.
            return self._text(j) if max(map(len, present)) > 18 else _spread(map(int, present), absent, pa.int64())
        numbers = _to_floats(present, self._decimal_mark(present))
        if numbers is not None:
            return _spread(numbers, absent, pa.float64())
        try:
            moments = parse_datetimes(present, "the column")
        except DataError:
            return self._text(j)
        return _spread(moments, absent, pa.timestamp("us", tz=_zone(moments)))

    def _text(self, j: int) -> pa.Array:
        return pa.array([cell.strip() or None for cell in self.columns[j]], pa.string())

    def _refilled(self, j: int, before: pa.ChunkedArray, after: pa.ChunkedArray) -> list[str]:
        gaps = np.asarray(before.is_null(nan_is_null=True)) & ~np.asarray(after.is_null(nan_is_null=True))
        if not gaps.any():
            return self.columns[j]
        write = self._number_format(j, after.type)
        return [
            write(new) if gap else cell for cell, gap, new in zip(self.columns[j], gaps, after.to_pylist(), strict=True)
        ]

    def _added(self, name: str, column: pa.ChunkedArray, names: list[str]) -> list[str]:
        """Written like the column that it speaks of: temperature_lower like temperature."""
        subject = name.rsplit("_", 1)[0]
        write = self._number_format(names.index(subject) if subject in names else None, column.type)
        return ["" if value is None else write(value) for value in column.to_pylist()]

    def _number_format(self, j: int | None, dtype: pa.DataType) -> Callable[[Any], str]:
        """Two digits more than the column itself is written with; whole numbers stay whole, and text is text."""
        if not pa.types.is_integer(dtype) and not pa.types.is_floating(dtype):
            return str
        present = [] if j is None else self._present(j)
        mark = "," if self._writes_commas and not any("." in cell for cell in present) else "."
        if not present or any("e" in cell.lower() for cell in present):
            return lambda value: f"{value:.9g}".replace(".", mark)
        digits = max(len(cell.partition(mark)[2]) for cell in present)
        places = 0 if pa.types.is_integer(dtype) else digits + 2
        return lambda value: f"{value:.{places}f}".replace(".", mark)


def _is_time(text: str | None) -> bool:
    try:
        return text is not None and bool(parse_datetimes([text.strip()], "the cell"))
    except DataError:
        return False


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _one_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _read_text(path: Path) -> str:
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if _is_gzip(path) else content).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a table: byte {error.start} is not UTF-8 text") from None
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {_one_line(error)}") from None
    if "\0" in text:
        raise DataError(f"{path} is not a table: byte {text.index(chr(0))} is not text")
    return text


def _separator(lines: list[str]) -> str:
    """The one that cuts the first line into most cells."""
    first = next((line for line in lines if line.strip()), "")
    return max(SEPARATORS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))


def _header_and_columns(
    records: list[tuple[int, list[str]]], path: Path
) -> tuple[tuple[int, list[str]], list[list[str]]]:
    """The header with its line, and the columns. An empty line is nothing, or a gap where there is but one column."""
    while records and not records[-1][1]:
        records.pop()
    full = [(line, row) for line, row in records if row]
    if not full:
        raise DataError(f"{path} is empty")
    (first, header), *rows = full
    if not rows:
        raise DataError(f"{path} has a header but no rows")
    if len(header) == 1:
        rows = [(line, row or [""]) for line, row in records if line > first]
    for line, row in rows:
        if len(row) != len(header):
            raise DataError(f"{path}, line {line}: {len(row)} cells where the header has {len(header)}")
    names = _names(header)
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path}: two columns are named {name!r}")
    return (first, header), [list(column) for column in zip(*[row for _, row in rows], strict=True)]


def _names(header: list[str]) -> list[str]:
    """A column without a name gets one from its place."""
    return [name.strip() or f"column {j + 1}" for j, name in enumerate(header)]


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _to_floats(cells: list[str], mark: str) -> Any:
    try:
        if any("_" in cell for cell in cells):
            return None  # to Python, but to nobody else, 1_000 is a number
        return np.array([float(cell.replace(mark, ".")) for cell in cells], dtype=np.float64)
    except ValueError:
        return None


def _spread(present: Iterable[Any], absent: NDArray[np.bool_], dtype: pa.DataType) -> pa.Array:
    """A column with nulls where values are `absent`."""
    values = iter(present)
    return pa.array([None if gap else next(values) for gap in absent], dtype)


def _zone(moments: list[dt.datetime]) -> str | None:
    zones = {str(moment.tzinfo) for moment in moments if moment.tzinfo}
    return None if not zones else "UTC" if len(zones) > 1 else zones.pop().removeprefix("UTC") or "UTC"


def _as_text(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_floating(column.type):
        return ["" if np.isnan(value) else str(value) for value in column.to_numpy()]  # in the fewest digits
    return ["" if value is None else str(value) for value in column.to_pylist()]
