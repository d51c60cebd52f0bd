"""Tables in CSV and Parquet files: read with everything needed to write them back."""

import csv
import datetime as dt
import decimal
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from gpvae.data.atomic import atomic_write
from gpvae.data.panel import DataError, Panel
from gpvae.data.times import column_times, parse_datetimes

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "#n/a"})
SEPARATORS = ",;\t|"
ROUNDING = {"lower": decimal.ROUND_FLOOR, "upper": decimal.ROUND_CEILING}  # of the ends of intervals
_WHOLE = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class TableFile:
    """A table read from a file, with what is needed to write it back unchanged."""

    path: Path
    table: pa.Table
    text: "CsvText | None" = None  # the cells as written, if the file is text

    def panel(
        self,
        *,
        id: str | None = None,
        time: str | None = None,
        columns: Sequence[str] | None = None,
        categories: Sequence[str] = (),
    ) -> Panel:
        """See `Panel.from_frame`. The index that pandas stores in a Parquet file is used only if `columns` names it."""
        try:
            self._require_numbers([name for name in columns or [] if name not in categories])
            panel = Panel.from_frame(self.table, id=id, time=time, columns=columns, categories=categories)
            return panel if columns else self._without_index(panel)
        except DataError as error:
            raise DataError(f"{self.path}: {error}") from None

    def with_categories(self, names: Sequence[str]) -> "TableFile":
        """The same with NA and the like in these text columns read as missing, not as labels."""
        table = self.table
        for j, name in enumerate(table.column_names):
            if name in names and pa.types.is_string(table[name].type):
                cells = [None if cell is None or _is_missing(cell) else cell for cell in table[name].to_pylist()]
                table = table.set_column(j, table.schema.field(j), pa.array(cells, pa.string()))
        return replace(self, table=table)

    def with_text(self, names: Sequence[str]) -> "TableFile":
        """The same with these columns of a CSV file as text, even if they look like numbers."""
        table = self.table
        for j, name in enumerate(table.column_names):
            if self.text and name in names:
                cells = [None if _is_missing(cell) else cell.strip() for cell in self.text.columns[j]]
                table = table.set_column(j, pa.field(name, pa.string()), pa.array(cells, pa.string()))
        return replace(self, table=table)

    def almost_times(self, names: Sequence[str]) -> list[str]:
        """For text columns whose first cell is a time: messages that name the cell that is not."""
        reasons: list[str] = []
        for name in names:
            if pa.types.is_string(self.table[name].type) and _is_time(self.table[name][0].as_py()):
                try:
                    column_times(nw.from_native(self.table[name], series_only=True), f"column {name!r}")
                except DataError as error:
                    reasons.append(str(error))
        return reasons

    def almost_numbers(self, names: Sequence[str]) -> list[str]:
        """For text columns that are mostly numbers: messages that name the first cell that is not."""
        reasons: list[str] = []
        for j, name in enumerate(self.table.column_names):
            if self.text and name in names and pa.types.is_string(self.table[name].type):
                present = [cell.strip() for cell in self.text.columns[j] if not _is_missing(cell)]
                numbers = [cell for cell in present if _to_floats([cell], self.text._decimal_mark([cell])) is not None]
                if 2 * len(numbers) > len(present):
                    row, cell = self.text.first_not_a_number(j)
                    reasons.append(f"column {name!r} is text and left unchanged: it holds {cell!r} in row {row + 1}")
        return reasons

    def require_no_columns(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self.table.column_names:
                raise DataError(f"{self.path}: the table already has a column named {name!r}; rename it first")

    def write(self, path: Path, filled: pa.Table, *, force: bool) -> None:
        """Write `filled`, derived from this table, to `path`, as CSV or Parquet by its suffix."""
        kind = file_kind(path)
        with atomic_write(path, force=force) as partial:
            if kind == "parquet":
                pq.write_table(self.with_metadata(filled), partial)
            else:
                text = self.text or CsvText.from_table(self.table)
                text.write(partial, self.table, filled, compress=_is_gzip(path))

    def with_metadata(self, filled: pa.Table) -> pa.Table:
        """With the metadata of the original table and its columns, where pandas keeps its index and dtypes."""
        original = self.table.schema
        schema = pa.schema([*original, *list(filled.schema)[len(original) :]], metadata=original.metadata)
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
                raise DataError(f"column {name!r} must be numeric, got {cell!r} in row {row + 1}")


def read(
    path: str | os.PathLike[str],
    *,
    id: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
) -> Panel:
    """Read a CSV (.csv, .tsv, .txt, also .gz) or Parquet file as a panel; for the options see `Panel.from_frame`."""
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
            raise DataError(f"{path} is damaged or not a Parquet file: {_one_line(error)}") from None
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
    """The cells of a CSV file exactly as written, so that observed values are written back unchanged."""

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
    def from_table(cls, table: pa.Table) -> "CsvText":
        """For a table that was not read from a CSV file."""
        return cls(table.column_names, [_as_text(column) for column in table.columns])

    def table(self) -> pa.Table:
        """Columns typed as integers, floats, times or text."""
        return pa.table([self._typed(j) for j in range(len(self.header))], names=_names(self.header))

    def write(self, path: Path, original: pa.Table, filled: pa.Table, *, compress: bool) -> None:
        """Format the cells that are missing in `original` but not in `filled`; copy the text of all others."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, delimiter=self.separator, lineterminator=self.newline)
        writer.writerow([*self.header, *filled.column_names[len(self.header) :]])
        writer.writerows(self.rows(original, filled))
        encoded = text.getvalue().encode(self.encoding)
        path.write_bytes(gzip.compress(encoded, mtime=0) if compress else encoded)

    def rows(self, original: pa.Table, filled: pa.Table) -> Iterator[tuple[str, ...]]:
        """The cells to write, row by row; see `write`."""
        names = original.column_names
        columns = [self._refilled(j, original.column(j), filled.column(name)) for j, name in enumerate(names)]
        columns += [self._added(name, filled.column(name), names) for name in filled.column_names[len(names) :]]
        return zip(*columns, strict=True)

    def first_not_a_number(self, j: int) -> tuple[int, str]:
        mark = self._decimal_mark(self._present(j))
        for row, cell in enumerate(self.columns[j]):
            if not _is_missing(cell) and _to_floats([cell.strip()], mark) is None:
                return row, cell
        return 0, self.columns[j][0]

    def _present(self, j: int) -> list[str]:
        return [cell.strip() for cell in self.columns[j] if not _is_missing(cell)]

    def _decimal_mark(self, present: list[str]) -> str:
        """A comma if cells have one, none has a point, and the comma is not the separator; else a point."""
        commas = self.separator != "," and any("," in cell for cell in present)
        return "," if commas and not any("." in cell for cell in present) else "."

    @cached_property
    def _writes_commas(self) -> bool:
        """Whether any column of numbers uses a decimal comma; columns of whole numbers then do so too."""
        columns = map(self._present, range(len(self.header)))
        return any(self._decimal_mark(cells) == "," and _to_floats(cells, ",") is not None for cells in columns)

    def _typed(self, j: int) -> pa.Array:
        present = self._present(j)
        absent = np.array([_is_missing(cell) for cell in self.columns[j]])
        if present and all(_WHOLE.fullmatch(cell) for cell in present):
            # More digits than int64 holds are an identifier; float64 would merge neighbouring ones.
            return self._text(j) if max(map(len, present)) > 18 else _spread(map(int, present), absent, pa.int64())
        numbers = _to_floats(present, self._decimal_mark(present))
        if numbers is not None:
            return _spread(numbers, absent, pa.float64())
        try:
            datetimes = parse_datetimes(present, "the column")
        except DataError:
            return self._text(j)
        return _spread(datetimes, absent, pa.timestamp("us", tz=_zone(datetimes)))

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
        """Formatted like the column that it belongs to: temperature_lower like temperature, but rounded outward."""
        subject, _, part = name.rpartition("_")
        j = names.index(subject) if subject in names and part in ROUNDING else None
        write = self._number_format(j, column.type, ROUNDING.get(part, decimal.ROUND_HALF_EVEN))
        return ["" if value is None else write(value) for value in column.to_pylist()]

    def _number_format(
        self, j: int | None, dtype: pa.DataType, rounding: str = decimal.ROUND_HALF_EVEN
    ) -> Callable[[Any], str]:
        """As many decimals as the column has; text stays text."""
        if not pa.types.is_integer(dtype) and not pa.types.is_floating(dtype):
            return str
        present = [] if j is None else self._present(j)
        mark = "," if self._writes_commas and not any("." in cell for cell in present) else "."
        if not present or any("e" in cell.lower() for cell in present):
            return lambda value: f"{value:.9g}".replace(".", mark)
        unit = decimal.Decimal(1).scaleb(-max(len(cell.partition(mark)[2]) for cell in present))
        return lambda value: f"{_rounded(value, unit, rounding):zf}".replace(".", mark)


def _rounded(value: float, unit: decimal.Decimal, rounding: str) -> decimal.Decimal:
    return decimal.Decimal(repr(value)).quantize(unit, rounding, decimal.Context(prec=1000))


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
    """The separator that splits the first line into the most cells."""
    first = next((line for line in lines if line.strip()), "")
    return max(SEPARATORS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))


def _header_and_columns(
    records: list[tuple[int, list[str]]], path: Path
) -> tuple[tuple[int, list[str]], list[list[str]]]:
    """The header with its line number, and the columns. An empty line is skipped; in a single column it is a gap."""
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
            raise DataError(f"{path}, line {line}: expected {len(header)} cells as in the header, got {len(row)}")
    names = _names(header)
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"{path}: two columns are named {name!r}")
    return (first, header), [list(column) for column in zip(*[row for _, row in rows], strict=True)]


def _names(header: list[str]) -> list[str]:
    """A column without a name is named by its position."""
    return [name.strip() or f"column {j + 1}" for j, name in enumerate(header)]


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _to_floats(cells: list[str], mark: str) -> Any:
    try:
        if any("_" in cell for cell in cells):
            return None  # Python alone reads 1_000 as a number
        return np.array([float(cell.replace(mark, ".")) for cell in cells], dtype=np.float64)
    except ValueError:
        return None


def _spread(present: Iterable[Any], absent: NDArray[np.bool_], dtype: pa.DataType) -> pa.Array:
    """A column with nulls where values are `absent`."""
    values = iter(present)
    return pa.array([None if gap else next(values) for gap in absent], dtype)


def _zone(datetimes: list[dt.datetime]) -> str | None:
    zones = {str(each.tzinfo) for each in datetimes if each.tzinfo}
    return None if not zones else "UTC" if len(zones) > 1 else zones.pop().removeprefix("UTC") or "UTC"


def _as_text(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_floating(column.type):
        return ["" if np.isnan(value) else str(value) for value in column.to_numpy()]  # shortest digits that round-trip
    return ["" if value is None else str(value) for value in column.to_pylist()]
