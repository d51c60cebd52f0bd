"""Text files of cells: read with everything needed to write them back unchanged."""

import csv
import datetime as dt
import decimal
import gzip
import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpvae.data import numerals
from gpvae.data.numerals import Numerals, plain_floats
from gpvae.data.reading import SEPARATORS, SPACES, Reading
from gpvae.data.times import DataError, extra_nanoseconds, parse_datetimes

ROUNDING = {"lower": decimal.ROUND_FLOOR, "upper": decimal.ROUND_CEILING}  # of the ends of intervals
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a text begins with that spreadsheets compute
_WHOLE = re.compile(r"[+-]?[0-9]+")
LONGEST_WHOLE = 18  # digits; more are an identifier: float64 would merge neighbouring ones


@dataclass(frozen=True)
class CsvText:
    """The cells of a text file exactly as written, so that observed values are written back unchanged."""

    header: list[str]
    columns: list[list[str]]
    separator: str = ","
    newline: str = "\n"
    encoding: str = "utf-8"  # or utf-8-sig: with a byte order mark
    reading: Reading = field(default_factory=Reading)
    units: list[str] | None = None  # the row under the header
    preamble: str = ""  # lines above the header
    empty_rows: int = 0  # that were left out at the end
    quoted: frozenset[int] = frozenset()  # columns that are text though they look like numbers: JSON's "01"
    escaped: bool = False  # text that spreadsheets would compute is written after a '

    @classmethod
    def parse(cls, content: bytes, name: str, reading: Reading) -> "CsvText":
        """`name` is that of the file, for messages."""
        text, encoding = _decoded(content, name, reading)
        lines = list(io.StringIO(text.removeprefix("\ufeff"), newline=""))
        preamble, lines = "".join(lines[: reading.skip_rows]), lines[reading.skip_rows :]
        separator = reading.separator or _separator(lines)
        records = _records(lines, separator, name, reading.skip_rows)
        (line, header), columns = _header_and_columns(records, name, reading)
        ending = lines[line - reading.skip_rows - 1]
        newline = ending.removeprefix(ending.rstrip("\r\n")) or "\n"
        units = [column.pop(0) for column in columns] if reading.units_row else None
        if units and not columns[0]:
            raise DataError(f"{name} has a header and a row of units, but no other rows")
        empty = _empty_rows_at_end(columns)
        columns = [column[: len(column) - empty] for column in columns]
        return cls(header, columns, separator, newline, encoding, reading, units, preamble, empty)

    @classmethod
    def from_table(cls, table: pa.Table) -> "CsvText":
        """For a table that was not read from a text file."""
        return cls(table.column_names, [_as_text(column) for column in table.columns])

    @property
    def names(self) -> list[str]:
        return column_names(self.header)

    def table(self) -> pa.Table:
        """Columns typed as integers, floats, times or text."""
        return pa.table([self._typed(j) for j in range(len(self.header))], names=self.names)

    def as_text(self, j: int) -> pa.Array:
        """A column as text, whatever it looks like."""
        return pa.array([None if self._is_missing(cell) else cell.strip() for cell in self.columns[j]], pa.string())

    def write(self, path: Path, original: pa.Table, filled: pa.Table, *, compress: bool) -> None:
        encoded = self.encoded(original, filled)
        path.write_bytes(gzip.compress(encoded, mtime=0) if compress else encoded)

    def encoded(self, original: pa.Table, filled: pa.Table) -> bytes:
        """Format the cells that are missing in `original` but not in `filled`; copy the text of all others."""
        text = io.StringIO(newline="")
        text.write(self.preamble)
        writer = self.writer(text)
        writer.writerows(self.head(filled.column_names[len(self.header) :]))
        writer.writerows(self.rows(original, filled))
        return text.getvalue().encode(self.encoding)

    def writer(self, file: Any) -> Any:
        """For cells in the notation of this text."""
        return csv.writer(file, delimiter=self.separator, lineterminator=self.newline)

    def head(self, added: Sequence[str] = ()) -> list[list[str]]:
        """The header and the units, as far as the file has them."""
        rows = [self._escape([*self.header, *added])] if self.reading.header else []
        if self.units:
            subjects = [self._subject(name) for name in added]
            rows.append([*self.units, *("" if j is None else self.units[j] for j in subjects)])
        return rows

    def rows(self, original: pa.Table, filled: pa.Table) -> Iterator[tuple[str, ...]]:
        """The cells to write, row by row; see `encoded`."""
        names = original.column_names
        columns = [self._refilled(j, original.column(j), filled.column(name)) for j, name in enumerate(names)]
        columns += [self._added(name, filled.column(name)) for name in filled.column_names[len(names) :]]
        if self.separator == SPACES:
            columns = [[cell or "NA" for cell in column] for column in columns]
        return zip(*columns, strict=True)

    def first_not_a_number(self, j: int) -> tuple[int, str]:
        style = self._numerals(j) or Numerals()
        for row, cell in enumerate(self.columns[j]):
            if not self._is_missing(cell) and style.floats([cell.strip()]) is None:
                return row, cell
        return 0, self.columns[j][0]

    def ambiguous(self, j: int) -> bool:
        """Whether the commas of a column may be decimal marks or stand between thousands."""
        return self._numerals(j) is None

    def is_number(self, cell: str) -> bool:
        mark = self.reading.decimal
        style = numerals.declared([cell], mark) if mark else numerals.guess([cell], self.separator)
        return (style or Numerals(".", True)).floats([cell]) is not None

    def present(self, j: int) -> list[str]:
        """The cells of a column that are not missing."""
        return self.reading.present(self.columns[j])

    def _is_missing(self, cell: str) -> bool:
        return self.reading.is_missing(cell)

    def _numerals(self, j: int, present: list[str] | None = None) -> Numerals | None:
        """The marks of a column's numbers; None where 1,234 may be a thousand or a decimal fraction."""
        present = self.present(j) if present is None else present
        if self.reading.decimal:
            return numerals.declared(present, self.reading.decimal)
        found = numerals.guess(present, self.separator)
        if found is None and self.decimal_marks:
            return Numerals(",") if "," in self.decimal_marks else Numerals(".", True)
        return found

    @cached_property
    def decimal_marks(self) -> set[str]:
        """The decimal marks of the columns that leave no doubt about theirs; empty if there are both."""
        marks: set[str] = set()
        for cells in map(self.present, range(len(self.header))):
            style = numerals.guess(cells, self.separator)
            if style and any(style.decimal in cell for cell in cells) and style.floats(cells) is not None:
                marks.add(style.decimal)
        return marks if len(marks) == 1 else set()

    @cached_property
    def _writes_commas(self) -> bool:
        """Whether any column of numbers uses a decimal comma; columns of whole numbers then do so too."""
        columns = [self.present(j) for j in range(len(self.header))]
        styles = [(cells, self._numerals(j, cells)) for j, cells in enumerate(columns) if cells]
        return any(style and style.decimal == "," and style.floats(cells) is not None for cells, style in styles)

    def _typed(self, j: int) -> pa.Array:
        present = self.present(j)
        absent = np.array([self._is_missing(cell) for cell in self.columns[j]])
        if j in self.quoted:
            return self._times(present, absent) or self._text(j)
        style = self._numerals(j, present)
        plain = style.plain(present) if style else None
        if plain and all(_WHOLE.fullmatch(cell) for cell in plain):
            whole = max(map(len, plain)) <= LONGEST_WHOLE
            return spread(map(int, plain), absent, pa.int64()) if whole else self._text(j)
        floats = None if plain is None else plain_floats(plain)
        if floats is not None:
            return spread(floats, absent, pa.float64())
        return self._times(present, absent) or self._text(j)

    def _times(self, present: list[str], absent: NDArray[np.bool_]) -> pa.Array | None:
        try:
            moments = parse_datetimes(present, "the column")
        except DataError:
            return None
        extra, zone = extra_nanoseconds(present), _zone(moments)
        column = spread(moments, absent, pa.timestamp("us", tz=zone))
        if not any(extra):
            return column
        ticks = spread(extra, absent, pa.int64()).to_numpy(zero_copy_only=False)
        precise = np.where(absent, 0, column.cast(pa.int64()).fill_null(0).to_numpy() * 1000 + np.nan_to_num(ticks))
        return pa.array(precise.astype(np.int64), mask=absent).cast(pa.timestamp("ns", tz=zone))

    def _text(self, j: int) -> pa.Array:
        codes = self.reading.missing
        cells = [cell.strip() for cell in self.columns[j]]
        return pa.array([cell if cell and cell not in codes else None for cell in cells], pa.string())

    def _refilled(self, j: int, before: pa.ChunkedArray, after: pa.ChunkedArray) -> list[str]:
        gaps = np.asarray(before.is_null(nan_is_null=True)) & ~np.asarray(after.is_null(nan_is_null=True))
        cells = self._escape(self.columns[j]) if self.escaped and pa.types.is_string(before.type) else self.columns[j]
        if not gaps.any():
            return cells
        write = self._number_format(j, after.type)
        return [write(new) if gap else cell for cell, gap, new in zip(cells, gaps, after.to_pylist(), strict=True)]

    def _added(self, name: str, column: pa.ChunkedArray) -> list[str]:
        """Formatted like the column that it belongs to: temperature_lower like temperature, but rounded outward."""
        part = name.rpartition("_")[2]
        write = self._number_format(self._subject(name), column.type, ROUNDING.get(part, decimal.ROUND_HALF_EVEN))
        return ["" if value is None else write(value) for value in column.to_pylist()]

    def _subject(self, name: str) -> int | None:
        """The column whose interval ends in the column `name`."""
        subject, _, part = name.rpartition("_")
        return self._places.get(subject) if part in ROUNDING else None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: j for j, name in enumerate(self.names)}

    def _number_format(
        self, j: int | None, dtype: pa.DataType, rounding: str = decimal.ROUND_HALF_EVEN
    ) -> Callable[[Any], str]:
        """As many decimals as the column has; text stays text."""
        if not pa.types.is_integer(dtype) and not pa.types.is_floating(dtype):
            return lambda value: self._escape([str(value)])[0]
        present = [] if j is None else self.present(j)
        style = None if j is None else self._numerals(j, present)
        if self._writes_commas and not any("." in cell or "," in cell for cell in present):
            style = Numerals(",")
        style = style or Numerals()
        plain = style.plain(present)
        if not plain or any("e" in cell or "E" in cell for cell in plain):
            return lambda value: style.styled(f"{value:.9g}")
        unit = decimal.Decimal(1).scaleb(-max(len(cell.partition(".")[2]) for cell in plain))
        spec = "z,f" if style.grouped else "zf"
        return lambda value: style.styled(f"{_rounded(value, unit, rounding):{spec}}")

    def _escape(self, cells: list[str]) -> list[str]:
        return [f"'{cell}" if self.escaped and cell.startswith(FORMULA) else cell for cell in cells]


def column_names(header: Sequence[str]) -> list[str]:
    """A column without a name is named by its position."""
    return [name.strip() or f"column {j + 1}" for j, name in enumerate(header)]


def spread(present: Iterable[Any], absent: NDArray[np.bool_], dtype: pa.DataType) -> pa.Array:
    """A column with nulls where values are `absent`."""
    values = iter(present)
    return pa.array([None if gap else next(values) for gap in absent], dtype)


def _rounded(value: float, unit: decimal.Decimal, rounding: str) -> decimal.Decimal:
    return decimal.Decimal(repr(value)).quantize(unit, rounding, decimal.Context(prec=1000))


def _decoded(content: bytes, name: str, reading: Reading) -> tuple[str, str]:
    """The text and its encoding."""
    marked = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    encoding = reading.encoding or ("utf-16" if marked else "utf-8")
    wide = content.count(0) > len(content) // 4
    advice = "utf-16-le or utf-16-be" if wide else "latin-1 or cp1252" if encoding == "utf-8" else "NAME"
    try:
        text = content.decode(encoding)
    except UnicodeError as error:
        at = f"byte {error.start}" if isinstance(error, UnicodeDecodeError) else "its beginning"
        reason = f"{at} is not {encoding.upper()} text; if it has another encoding, name it: --encoding {advice}"
        raise DataError(f"{name} is not a table: {reason}") from None
    if "\0" in text:
        reason = f"byte {text.index(chr(0))} is not text"
        raise DataError(f"{name} is not a table: {reason}{f'; say --encoding {advice}' if wide else ''}")
    return text, "utf-8-sig" if encoding == "utf-8" and text.startswith("\ufeff") else encoding


def _separator(lines: list[str]) -> str:
    """The separator that splits the first line into the most cells; spaces, if they split the first lines alike."""
    full = [line for line in lines[:100] if line.strip()]
    cells = {mark: len(next(csv.reader(full[:1], delimiter=mark), [])) for mark in SEPARATORS}
    best = max(SEPARATORS, key=lambda mark: cells[mark])
    return SPACES if cells.get(best, 0) < 2 and _are_spaced(full) else best


def _are_spaced(lines: list[str]) -> bool:
    """Whether spaces split all these lines into as many cells, at least two."""
    widths = {len(line.split()) for line in lines}
    return len(lines) > 1 and len(widths) == 1 and widths != {1}


def _without_indents(lines: Iterable[str]) -> Iterator[str]:
    return (re.sub(r"[ \t]+", " ", line.strip()) + "\n" for line in lines)


def _records(lines: list[str], separator: str, name: str, skipped: int) -> list[tuple[int, list[str]]]:
    """The rows with their line numbers."""
    spaced = separator == SPACES
    reader = csv.reader(_without_indents(lines) if spaced else lines, delimiter=separator, skipinitialspace=spaced)
    try:
        return [(skipped + reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise DataError(f"{name}, line {skipped + reader.line_num}, is not a table: {error}") from None


def _header_and_columns(
    records: list[tuple[int, list[str]]], name: str, reading: Reading
) -> tuple[tuple[int, list[str]], list[list[str]]]:
    """The header with its line number, and the columns. An empty line is skipped; in a single column it is a gap."""
    while records and not records[-1][1]:
        records.pop()
    full = [(line, row) for line, row in records if row]
    if not full:
        raise DataError(f"{name} is empty")
    (first, header), *rows = full
    if len(header) == 1:
        rows = [(line, row or [""]) for line, row in records if line > first]
    if not reading.header:
        header, rows = [""] * len(header), [full[0], *rows]
    if not rows:
        raise DataError(f"{name} has a header but no rows; if that line is data, say --no-header")
    _require_widths(rows, len(header), name, reading)
    repeated = [column for column, count in Counter(column_names(header)).items() if count > 1]
    if repeated:
        raise DataError(f"{name}: two columns are named {repeated[0]!r}; rename one")
    return (first, header), [list(column) for column in zip(*[row for _, row in rows], strict=True)]


def _require_widths(rows: list[tuple[int, list[str]]], width: int, name: str, reading: Reading) -> None:
    for line, row in rows:
        if len(row) != width:
            model = "as in the header" if reading.header else "as in the first line"
            usual = Counter(len(row) for _, row in rows).most_common(1)[0][0]
            advice = "; pass over the lines above the header by --skip-rows, or name the --separator"
            raise DataError(
                f"{name}, line {line}: expected {width} cells {model}, got {len(row)}{advice if usual != width else ''}"
            )


def _empty_rows_at_end(columns: list[list[str]]) -> int:
    """Rows without a single cell, under a table with a column of text or times that has no other gap."""
    counts = [next((i for i, cell in enumerate(reversed(column)) if cell.strip()), len(column)) for column in columns]
    empty = min(counts)
    above = (column[: len(column) - empty] for column, count in zip(columns, counts, strict=True) if count == empty)
    complete = (cells for cells in above if empty and cells and all(cell.strip() for cell in cells))
    return empty if any(numerals.Numerals().floats([cells[0]]) is None for cells in complete) else 0


def _zone(datetimes: list[dt.datetime]) -> str | None:
    zones = {str(each.tzinfo) for each in datetimes if each.tzinfo}
    return None if not zones else "UTC" if len(zones) > 1 else zones.pop().removeprefix("UTC") or "UTC"


def _as_text(column: pa.ChunkedArray) -> list[str]:
    if pa.types.is_floating(column.type):
        return ["" if np.isnan(value) else str(value) for value in column.to_numpy()]  # shortest digits that round-trip
    return ["" if value is None else str(value) for value in column.to_pylist()]
