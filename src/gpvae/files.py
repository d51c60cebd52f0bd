"""Tables in files: CSV and Parquet in, the same kind out; written whole or not at all."""

import csv
import gzip
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpvae.panel import DataError, Panel, parse_datetimes

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "#n/a"})
SEPARATORS = ",;\t|"
_WHOLE = re.compile(r"[+-]?(0|[1-9][0-9]{0,17})")


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
    if path.exists() and not force:
        raise DataError(f"{path} exists already and is kept; choose another name, or force to replace it")
    if not path.parent.is_dir():
        raise DataError(f"cannot write {path}: there is no folder {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise DataError(f"cannot write {path}: the folder {path.parent} is not writable")


def _replace(partial: Path, path: Path) -> None:
    """Swap in one rename for files; for folders, move the old one aside first, since a rename cannot cover it."""
    if not (path.is_dir() and partial.is_dir()):
        os.replace(partial, path)
        return
    aside = path.with_name(partial.name + ".old")
    os.rename(path, aside)
    os.rename(partial, path)
    shutil.rmtree(aside)


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
        self, *, id: str | None = None, time: str | None = None, columns: Sequence[str] | None = None
    ) -> Panel:
        try:
            return Panel.from_frame(self.table, id=id, time=time, columns=columns)
        except DataError as error:
            raise DataError(f"{self.path}: {error}{self._first_text(columns)}") from None

    def write(self, path: Path, filled: pa.Table, *, force: bool) -> None:
        """Write `filled`, made from this table, to `path`, as CSV or Parquet by its name."""
        kind = file_kind(path)
        with whole_or_not_at_all(path, force=force) as partial:
            if kind == "parquet":
                pq.write_table(filled.replace_schema_metadata(self.table.schema.metadata), partial)
            else:
                (self.text or CsvText.plain(self.table)).write(partial, self.table, filled, compress=path.suffix == ".gz")

    def _first_text(self, columns: Sequence[str] | None) -> str:
        """What keeps an asked-for column from being numeric."""
        for name in columns or []:
            if self.text and name in self.table.column_names and pa.types.is_string(self.table[name].type):
                row, cell = self.text.first_not_a_number(self.table.column_names.index(name))
                return f" ({cell!r} in row {row + 1})"
        return ""


def read(
    path: str | os.PathLike[str],
    *,
    id: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
) -> Panel:
    """A CSV (.csv, .tsv, .txt, also .gz) or Parquet file as a panel; see `Panel.from_frame` for the options."""
    return read_table(path).panel(id=id, time=time, columns=columns)


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
        except (pa.ArrowInvalid, OSError) as error:
            raise DataError(f"{path} is not a Parquet file, or a damaged one: {error}") from None
    text = CsvText.read(path)
    return TableFile(path, text.table(), text)


def file_kind(path: Path) -> str:
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    if suffixes and suffixes[-1] in (".csv", ".tsv", ".txt"):
        return "csv"
    if path.suffix in (".parquet", ".pq"):
        return "parquet"
    raise DataError(f"{path}: the name must end in .csv, .tsv, .txt (also with .gz), .parquet or .pq")


@dataclass(frozen=True)
class CsvText:
    """The cells of a CSV file exactly as written, so that what was measured goes back letter for letter."""

    header: list[str]
    columns: list[list[str]]
    separator: str = ","
    newline: str = "\n"
    commas: set[int] = field(default_factory=set)  # columns that write a decimal comma

    @classmethod
    def read(cls, path: Path) -> "CsvText":
        try:
            with _open_text(path, "rt") as file:
                first = file.readline()
                separator = max(SEPARATORS, key=lambda mark: len(next(csv.reader([first], delimiter=mark), [])))
                file.seek(0)
                lines = [(line, row) for line, row in enumerate(csv.reader(file, delimiter=separator), 1) if row]
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not a table: byte {error.start} is not UTF-8 text") from None
        except (csv.Error, EOFError, OSError) as error:
            raise DataError(f"{path} is not a table: {error}") from None
        if not lines:
            raise DataError(f"{path} is empty")
        (_, header), *rows = lines
        if not rows:
            raise DataError(f"{path} has a header but no rows")
        for line, row in rows:
            if len(row) != len(header):
                raise DataError(f"{path}, line {line}: {len(row)} cells where the header has {len(header)}")
        columns = [list(column) for column in zip(*[row for _, row in rows], strict=True)]
        return cls(header, columns, separator, "\r\n" if first.endswith("\r\n") else "\n")

    @classmethod
    def plain(cls, table: pa.Table) -> "CsvText":
        """For a table that never was text."""
        columns = [["" if cell is None else str(cell) for cell in column.to_pylist()] for column in table.columns]
        return cls(table.column_names, columns)

    def table(self) -> pa.Table:
        """Typed columns: whole numbers, numbers, times, or text; a column without a name gets one from its place."""
        names = [name.strip() or f"column {j + 1}" for j, name in enumerate(self.header)]
        for name in names:
            if names.count(name) > 1:
                raise DataError(f"two columns are named {name!r}")
        return pa.table([self._typed(j) for j in range(len(names))], names=names)

    def write(self, path: Path, original: pa.Table, filled: pa.Table, *, compress: bool) -> None:
        """Cells that were missing in `original` and are not in `filled` get new text; all others keep theirs."""
        columns = [
            self._refilled(j, original.column(j), filled.column(name)) for j, name in enumerate(original.column_names)
        ]
        extra = filled.column_names[len(original.column_names) :]
        columns += [self._added(filled.column(name), self._column_of(name, original.column_names)) for name in extra]
        with _open_text(path, "wt", compress=compress) as file:
            writer = csv.writer(file, delimiter=self.separator, lineterminator=self.newline)
            writer.writerow([*self.header, *extra])
            writer.writerows(zip(*columns, strict=True))

    def first_not_a_number(self, j: int) -> tuple[int, str]:
        for row, cell in enumerate(self.columns[j]):
            if not _is_missing(cell) and _to_floats([cell.replace(",", ".")]) is None:
                return row, cell
        return 0, self.columns[j][0]

    def _typed(self, j: int) -> pa.Array:
        cells = [None if _is_missing(cell) else cell.strip() for cell in self.columns[j]]
        present = [cell for cell in cells if cell is not None]
        absent = np.array([cell is None for cell in cells])
        if present and all(_WHOLE.fullmatch(cell) for cell in present):
            return pa.array([None if cell is None else int(cell) for cell in cells], pa.int64())
        numbers = _to_floats(["nan" if cell is None else cell for cell in cells])
        if numbers is None and self.separator != ",":
            numbers = _to_floats(["nan" if cell is None else cell.replace(",", ".") for cell in cells])
            if numbers is not None:
                self.commas.add(j)
        if numbers is not None:
            return pa.array(numbers, pa.float64(), mask=absent)
        return _datetimes_or_text(cells, present)

    def _refilled(self, j: int, before: pa.ChunkedArray, after: pa.ChunkedArray) -> list[str]:
        cells = self.columns[j]
        if before.null_count == after.null_count:
            return cells
        gaps = np.asarray(before.is_null()) & ~np.asarray(after.is_null())
        write = self._number_format(j)
        return [write(new) if gap else cell for cell, gap, new in zip(cells, gaps, after.to_pylist(), strict=True)]

    def _added(self, column: pa.ChunkedArray, like: int) -> list[str]:
        write = self._number_format(like, whole=False)
        return ["" if value is None else write(value) for value in column.to_pylist()]

    def _column_of(self, added: str, names: list[str]) -> int:
        """The column that an added one, such as temperature_lower, speaks of."""
        return names.index(added.rsplit("_", 1)[0])

    def _number_format(self, j: int, *, whole: bool = True) -> Any:
        """Two digits more than the column itself is written with."""
        mark = "," if j in self.commas else "."
        cells = [cell.strip() for cell in self.columns[j] if not _is_missing(cell)]
        if any("e" in cell.lower() for cell in cells):
            return lambda value: f"{value:.9g}".replace(".", mark)
        digits = max((len(cell.partition(mark)[2]) for cell in cells), default=0)
        if whole and digits == 0:
            return lambda value: f"{value:.0f}"
        return lambda value: f"{value:.{digits + 2}f}".replace(".", mark)


def _open_text(path: Path, mode: str, *, compress: bool | None = None) -> IO[str]:
    opened = gzip.open if (path.suffix == ".gz" if compress is None else compress) else open
    return opened(path, mode, encoding="utf-8-sig" if mode == "rt" else "utf-8", newline="")  # type: ignore[return-value]


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _to_floats(cells: list[str]) -> Any:
    try:
        return np.array(cells).astype(np.float64)
    except ValueError:
        return None


def _datetimes_or_text(cells: list[str | None], present: list[str]) -> pa.Array:
    as_text = pa.array(cells, pa.string())
    if len(present) < len(cells):
        return as_text
    try:
        moments = parse_datetimes(present, "the column")
    except DataError:
        return as_text
    return pa.array(moments, pa.timestamp("us", tz="UTC" if moments[0].tzinfo else None))
