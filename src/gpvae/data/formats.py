"""Tables in other files than CSV: Parquet, Feather, JSON lines, Excel."""

import datetime as dt
import gzip
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq

from gpvae.data.csv_text import CsvText, column_names
from gpvae.data.reading import Reading
from gpvae.data.times import DataError

TEXT_ENDINGS = (".csv", ".tsv", ".txt", ".dat")
ENDINGS = {
    **dict.fromkeys(TEXT_ENDINGS, "csv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    **dict.fromkeys((".feather", ".arrow"), "feather"),
    **dict.fromkeys((".xlsx", ".xlsm"), "xlsx"),
}
LONGEST_IN_EXCEL = 10**15  # it keeps fifteen digits of a number
COMPRESSIBLE = ("csv", "jsonl")
INSTEAD = {
    ".xls": "; save it as .xlsx in your spreadsheet program",
    ".ods": "; save it as .xlsx or .csv in your spreadsheet program",
    ".json": "; write one JSON object in each line and name it .jsonl",
    ".zip": "; unpack it first",
}


def file_kind(path: Path) -> str:
    """csv, jsonl, parquet, feather or xlsx, by the name."""
    if path.is_dir():
        raise DataError(f"{path} is a folder, not a file")
    kind = kind_of_name(path.name)
    if kind is None:
        names = ".csv, .tsv, .txt, .dat or .jsonl (also with .gz), .parquet, .feather or .xlsx"
        raise DataError(f"{path}: the name must end in {names}{INSTEAD.get(path.suffix.lower(), '')}")
    return kind


def kind_of_name(name: str) -> str | None:
    name = name.lower()
    kind = ENDINGS.get(Path(name.removesuffix(".gz")).suffix)
    return kind if kind in COMPRESSIBLE or not name.endswith(".gz") else None


def kind_of_content(content: bytes) -> str:
    """Of a table without a name."""
    starts = {b"PAR1": "parquet", b"ARROW1": "feather", b"PK\x03\x04": "xlsx", b"{": "jsonl"}
    return next((kind for start, kind in starts.items() if content.lstrip()[: len(start)] == start), "csv")


def content_of(path: Path) -> bytes:
    """Of a file, unpacked if it ends in .gz."""
    try:
        content = path.read_bytes()
        if not content:
            raise DataError(f"{path} is empty")
        return gzip.decompress(content) if path.suffix.lower() == ".gz" else content
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {str(error).partition(chr(10))[0]}") from None


def parse(content: bytes, kind: str, name: str, reading: Reading) -> tuple[pa.Table, CsvText | None]:
    """The typed table and, of all but Parquet and Feather, its cells as text; `name` is that of the file."""
    if kind in ("parquet", "feather"):
        return _without_codes(_arrow_table(content, kind, name), reading), None
    if kind == "csv":
        text = _text(content, name, reading)
    else:
        read = _json_lines if kind == "jsonl" else _excel
        text = _as_text(*read(content, name, reading), name, reading)
    return text.table(), text


def write(kind: str, path: Path, table: pa.Table, text: CsvText, original: pa.Table, *, compress: bool) -> None:
    """`text` holds the cells of `original`, of which `table` is the filled version."""
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "feather":
        feather.write_feather(table, str(path))
    elif kind == "xlsx":
        _write_excel(path, table, text.head(table.column_names[len(text.header) :]))
    elif kind == "jsonl":
        lines = "".join(f"{line}\n" for line in _json_rows(table, text, original)).encode()
        path.write_bytes(gzip.compress(lines, mtime=0) if compress else lines)
    else:
        text.write(path, original, table, compress=compress)


def _text(content: bytes, name: str, reading: Reading) -> CsvText:
    try:
        return CsvText.parse(content, name, reading)
    except DataError as error:
        looks = kind_of_content(content)
        hint = "" if looks in ("csv", "jsonl") else f"; it looks like a .{looks} file: rename it"
        raise DataError(f"{error}{hint}") from None


def _arrow_table(content: bytes, kind: str, name: str) -> pa.Table:
    shown = kind.capitalize()
    try:
        source = pa.BufferReader(content)
        return pq.read_table(source) if kind == "parquet" else feather.read_table(source)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(f"{name} is damaged or not a {shown} file: {reason}") from None


def _without_codes(table: pa.Table, reading: Reading) -> pa.Table:
    """With nulls for the codes of missing values."""
    for j, column in enumerate(table.columns) if reading.missing else ():
        kind, cells = column.type, column.to_pylist()
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            cells = [None if cell in reading.codes else cell for cell in cells]
        elif pa.types.is_string(kind):
            cells = [None if cell in reading.missing else cell for cell in cells]
        else:
            continue
        table = table.set_column(j, table.schema.field(j), pa.array(cells, kind))
    return table


def _as_text(header: list[str], rows: Iterable[Sequence[str]], name: str, reading: Reading) -> CsvText:
    """Cells that are typed as those of a CSV file are."""
    columns = [list(column) for column in zip(*rows, strict=True)]
    if not columns or not columns[0]:
        raise DataError(f"{name} has no rows")
    names = column_names(header)
    repeated = next((column for column in names if names.count(column) > 1), None)
    if repeated is not None:
        raise DataError(f"{name}: two columns are named {repeated!r}; rename one")
    units = [column.pop(0) for column in columns] if reading.units_row else None
    reading = replace(reading, decimal=".")
    quoted = frozenset(j for j, column in enumerate(columns) if _is_quoted(column, reading))
    return CsvText(header, columns, reading=reading, units=units, quoted=quoted)


class _Unquoted(str):
    """A cell that is not text in its file."""


def _is_quoted(cells: list[str], reading: Reading) -> bool:
    """Whether all cells with something in them are text."""
    present = [cell for cell in cells if not reading.is_missing(cell)]
    return bool(present) and not any(isinstance(cell, _Unquoted) for cell in present)


# JSON lines


def _json_lines(content: bytes, name: str, reading: Reading) -> tuple[list[str], Iterator[list[str]]]:
    records: list[dict[str, Any]] = []
    try:
        lines = content.decode(reading.encoding or "utf-8-sig").splitlines()
    except UnicodeError as error:
        raise DataError(f"{name} is not a table: {error}; name its encoding by --encoding") from None
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                record = json.loads(line, parse_float=_Unquoted, parse_int=_Unquoted, parse_constant=_Unquoted)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{name}, line {number}, is not JSON: {error}") from None
            records.append(_require_flat(record, f"{name}, line {number}"))
    header = list(dict.fromkeys(key for record in records for key in record))
    return header, ([_json_text(record.get(key)) for key in header] for record in records)


def _require_flat(record: Any, where: str) -> dict[str, Any]:
    if not isinstance(record, dict):
        raise DataError(f'{where}: each line must hold an object, such as {{"time": 1, "x": 2.5}}')
    nested = next((key for key, value in record.items() if isinstance(value, list | dict)), None)
    if nested is not None:
        raise DataError(f"{where}: {nested!r} must hold a number or text, not a list or an object")
    return record


def _json_text(value: Any) -> str:
    return "" if value is None else _Unquoted(str(value).lower()) if isinstance(value, bool) else value


def _json_rows(table: pa.Table, text: CsvText, original: pa.Table) -> Iterator[str]:
    """Numbers as they are written, text in quotes, null for what is missing."""
    writers = [_json_writer(field.type) for field in table.schema]
    names = [json.dumps(name, ensure_ascii=False) for name in table.column_names]
    for row in text.rows(original, table):
        cells = (write(cell, text.reading) for write, cell in zip(writers, row, strict=True))
        yield "{" + ", ".join(f"{name}: {cell}" for name, cell in zip(names, cells, strict=True)) + "}"


def _json_writer(kind: pa.DataType) -> Callable[[str, Reading], str]:
    if pa.types.is_boolean(kind):
        return lambda cell, reading: cell.lower() or "null"
    return _json_number if pa.types.is_integer(kind) or pa.types.is_floating(kind) else _json_string


def _json_number(cell: str, reading: Reading) -> str:
    if reading.is_missing(cell):
        return "null"
    try:
        json.loads(cell)
    except ValueError:
        return json.dumps(cell)  # 1,5 or 007
    return cell


def _json_string(cell: str, reading: Reading) -> str:
    if cell in ("", "true", "false"):
        return cell or "null"
    return json.dumps(cell, ensure_ascii=False)


# Excel


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ImportError:
        raise DataError("Excel files need openpyxl: pip install 'gpvae[excel]', or save the sheet as .csv") from None
    return openpyxl


def _excel(content: bytes, name: str, reading: Reading) -> tuple[list[str], Iterator[list[str]]]:
    book = _open_workbook(content, name)
    if reading.sheet is not None and reading.sheet not in book.sheetnames:
        raise DataError(f"{name} has no sheet {reading.sheet!r}; there are {', '.join(book.sheetnames)}: see --sheet")
    sheet = book[reading.sheet] if reading.sheet else book.worksheets[0]
    rows = [[_excel_text(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    rows = [row for row in rows[reading.skip_rows :] if any(row)]
    if not rows:
        raise DataError(f"{name}: the sheet {sheet.title!r} is empty; choose another by --sheet")
    width = max(j + 1 for row in rows for j, cell in enumerate(row) if cell)
    header, *rest = [row[:width] for row in rows] if reading.header else [[""] * width, *(row[:width] for row in rows)]
    return header, iter(rest)


def _open_workbook(content: bytes, name: str) -> Any:
    try:
        return _openpyxl().load_workbook(io.BytesIO(content), read_only=True, data_only=True)
    except DataError:
        raise
    except Exception as error:  # openpyxl lets through whatever a damaged part raises
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{name} is damaged or not an Excel file: {reason}") from None


def _excel_text(value: Any) -> str:
    if isinstance(value, bool):
        return _Unquoted(str(value).lower())
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return _Unquoted(value.isoformat())
    return "" if value is None else value if isinstance(value, str) else _Unquoted(value)


def _write_excel(path: Path, table: pa.Table, head: list[list[str]]) -> None:
    openpyxl = _openpyxl()
    from openpyxl.cell import WriteOnlyCell

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()

    def cell(value: Any) -> Any:
        if isinstance(value, dt.datetime) and value.tzinfo is not None:
            value = value.isoformat()  # Excel knows no time zones
        if isinstance(value, int) and abs(value) >= LONGEST_IN_EXCEL:
            value = str(value)
        made = WriteOnlyCell(sheet, value=value)
        if isinstance(value, str):
            made.data_type = "s"  # text that looks like a formula stays text
        return made

    for row in head:
        sheet.append([cell(name) for name in row])
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        sheet.append([cell(value) for value in row])
    with path.open("wb") as file:
        book.save(file)
