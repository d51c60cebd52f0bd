"""Tables in files: read with everything needed to write them back."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import narwhals as nw
import pyarrow as pa

from gpvae.data import formats
from gpvae.data.atomic import atomic_write
from gpvae.data.csv_text import CsvText
from gpvae.data.formats import file_kind
from gpvae.data.panel import DataError, Panel
from gpvae.data.reading import Reading
from gpvae.data.times import column_times, parse_datetimes

_NUMBER = re.compile(r"[+-]?[0-9][0-9.,]*")
_NUMBER_AND_UNIT = re.compile(r"[$€£¥]? ?[+-]?[0-9][0-9.,]*(?: ?(?:%|°?[A-Za-z/]{1,5}|[$€£¥]))?")


@dataclass(frozen=True)
class TableFile:
    """A table read from a file, with what is needed to write it back unchanged."""

    path: Path  # or what else the table is called in messages
    table: pa.Table
    text: CsvText | None = None  # the cells as written, if the file is text
    id: str | None = None  # the column that tells files apart, if there are several

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
            raise DataError(f"{self.path}: {error}{self._advice(str(error))}") from None

    def with_categories(self, names: Sequence[str]) -> "TableFile":
        """The same with NA and the like in these text columns read as missing, not as labels."""
        table, is_missing = self.table, (self.text.reading if self.text else Reading()).is_missing
        for j, name in enumerate(table.column_names):
            if name in names and pa.types.is_string(table[name].type):
                cells = [None if cell is None or is_missing(cell) else cell for cell in table[name].to_pylist()]
                table = table.set_column(j, table.schema.field(j), pa.array(cells, pa.string()))
        return replace(self, table=table)

    def with_text(self, names: Sequence[str]) -> "TableFile":
        """The same with these columns of a text file as text, even if they look like numbers."""
        table = self.table
        for j, name in enumerate(table.column_names):
            if self.text and name in names:
                table = table.set_column(j, pa.field(name, pa.string()), self.text.as_text(j))
        return replace(self, table=table)

    def with_id(self, name: str | None) -> "TableFile":
        """The same with an id column as text if its numbers would merge names: 01 and 1, or 1.0 and 1."""
        if not self.text or name is None or name not in self.table.column_names:
            return self
        j = self.table.column_names.index(name)
        is_text = pa.types.is_string(self.table[name].type)
        merged = not is_text and len({*self.text.present(j)}) > len(self.table[name].drop_null().unique())
        return self.with_text([name]) if merged else self

    def escaping_formulas(self, escaped: bool = True) -> "TableFile":
        """The same, with a ' before text that spreadsheets would compute when it is written as CSV."""
        if not escaped:
            return self
        return replace(self, text=replace(self.text or CsvText.from_table(self.table), escaped=True))

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
                reason = _not_a_number(self.text, j)
                reasons += [f"column {name!r} is text and left unchanged: {reason}"] if reason else []
        return reasons

    @property
    def header_is_data(self) -> bool:
        """Whether the names of the columns look like numbers, as the first row does of a table without a header."""
        text = self.text
        if text is None or not text.reading.header:
            return False
        cells = [cell.strip() for cell in text.header if not text.reading.is_missing(cell)]
        numbers = [text.is_number(cell) for cell in cells]
        return any(numbers) and all(number or _is_time(cell) for cell, number in zip(cells, numbers, strict=True))

    def require_no_columns(self, names: Sequence[str]) -> None:
        present = {*self.table.column_names}
        for name in names:
            if name in present:
                raise DataError(f"{self.path}: the table already has a column named {name!r}; rename it first")

    def write(self, path: Path, filled: pa.Table, *, force: bool) -> None:
        """Write `filled`, derived from this table, to `path`, in the format of its suffix."""
        kind = file_kind(path)
        text = self.text or CsvText.from_table(self.table)
        with atomic_write(path, force=force) as partial:
            table = self.with_metadata(filled)
            formats.write(kind, partial, table, text, self.table, compress=path.suffix.lower() == ".gz")

    def encoded(self, filled: pa.Table) -> bytes:
        """`filled`, derived from this table, as CSV."""
        return (self.text or CsvText.from_table(self.table)).encoded(self.table, filled)

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

    def _advice(self, error: str) -> str:
        """Which option may help where nothing is a number."""
        if "infinite value" in error and self.text:
            return "; if it marks a missing value, say --missing inf (or -inf)"
        if "no numeric column" not in error or not self.text:
            return ""
        texts = [j for j, kind in enumerate(self.table.schema.types) if pa.types.is_string(kind)]
        named = ((self.text.names[j], _not_a_number(self.text, j)) for j in texts)
        found = next((f": in column {name!r} {reason}" for name, reason in named if reason), "")
        if not found and len(self.text.header) == 1 and any(mark in self.text.header[0] for mark in " :/#^"):
            return "; if its cells are separated by another mark than , ; tab or |, name it by --separator"
        return found


def read(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    id: str | None = None,
    time: str | None = None,
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
    reading: Reading = Reading(),
) -> Panel:
    """Read a table as a panel; for the options see `Panel.from_frame`, and `Reading` for how text is read.

    path: a file (.csv, .tsv, .txt, .dat or .jsonl, also .gz; .parquet, .feather, .xlsx), several, a pattern such as
        "data/*.csv", or a folder. Of several files each is a series with the name of its file, unless `id` is given.
    """
    from gpvae.data.sources import read_tables

    paths = [path] if isinstance(path, str | os.PathLike) else path
    table = read_tables([os.fspath(each) for each in paths], reading).with_id(id).with_categories(categories)
    return table.panel(id=id or table.id, time=time, columns=columns, categories=categories)


def read_table(path: str | os.PathLike[str], reading: Reading = Reading()) -> TableFile:
    path = Path(path)
    kind = file_kind(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    content = formats.content_of(path)
    return TableFile(path, *formats.parse(content, kind, str(path), reading))


def _not_a_number(text: CsvText, j: int) -> str | None:
    """Why a column that is mostly numbers is text, and what to do about it."""
    present = text.present(j)
    if present and j in text.quoted and all(map(text.is_number, present)):
        return "its numbers are stored as text"
    if sum(map(text.is_number, present)) * 2 <= len(present):
        return _about_units(present) if len(present) < len(text.columns[j]) else None
    row, cell = text.first_not_a_number(j)
    if text.ambiguous(j):
        example = next(cell for cell in present if "," in cell)
        return f"{example!r} may be a decimal fraction or thousands; say --decimal , or --decimal ."
    if all(map(text.is_number, present)) and any(mark in other for other in present for mark in ",."):
        return "its numbers have decimal points and commas; say --decimal . or --decimal ,"
    if all(map(text.is_number, present)):
        return f"it holds whole numbers of up to {max(map(len, present))} digits, which are taken for names"
    if row == 0 and not text.is_number(cell.strip()) and all(map(text.is_number, present[1:])):
        return f"it holds {cell!r} in row 1; if that is a unit, say --units-row"
    return f"it holds {cell!r} in row {row + 1}; if that marks a missing value, say --missing {_quoted(cell.strip())}"


def _about_units(cells: list[str]) -> str | None:
    """10%, 5 mm, $3: all with the same unit."""
    units = {_NUMBER.sub("", cell, count=1) for cell in cells if _NUMBER_AND_UNIT.fullmatch(cell)}
    if len(units) != 1 or not all(map(_NUMBER_AND_UNIT.fullmatch, cells)):
        return None
    return f"it holds {cells[0]!r}; to have it filled, leave the unit out of its cells"


def _quoted(text: str) -> str:
    return text if text.isalnum() else f"'{text}'"


def _is_time(text: str | None) -> bool:
    try:
        return text is not None and bool(parse_datetimes([text.strip()], "the cell"))
    except DataError:
        return False
