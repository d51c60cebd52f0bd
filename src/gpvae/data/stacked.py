"""Several completed versions of one table in a file, below each other, with their number in the first column."""

import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpvae.data.atomic import atomic_write
from gpvae.data.csv_text import CsvText
from gpvae.data.files import TableFile
from gpvae.data.formats import file_kind
from gpvae.data.times import DataError


def require_stackable(path: Path) -> None:
    if file_kind(path) not in ("csv", "parquet"):
        raise DataError(f"{path}: the name must end in .csv, .tsv, .txt (also with .gz), .parquet or .pq")


def write_stacked(table: TableFile, path: Path, versions: Iterable[pa.Table], *, number: str, force: bool) -> None:
    """Write `versions` of the table, numbered from 1 in the new column `number`, holding one at a time."""
    table.require_no_columns([number])
    kind = file_kind(path)
    with atomic_write(path, force=force) as partial:
        if kind == "parquet":
            _write_parquet(partial, _numbered(table, versions, number))
        else:
            text = table.text or CsvText.from_table(table.table)
            rows = _numbered_rows(text, table.table, versions)
            _write_text(partial, text, number, rows, compress=path.suffix.lower() == ".gz")


def _numbered(table: TableFile, versions: Iterable[pa.Table], number: str) -> Iterator[pa.Table]:
    for i, version in enumerate(versions, start=1):
        yield table.with_metadata(version).add_column(0, number, pa.repeat(pa.scalar(i, pa.int64()), len(version)))


def _numbered_rows(text: CsvText, original: pa.Table, versions: Iterable[pa.Table]) -> Iterator[tuple[str, ...]]:
    for i, version in enumerate(versions, start=1):
        yield from ((str(i), *row) for row in text.rows(original, version))


def _write_parquet(path: Path, tables: Iterator[pa.Table]) -> None:
    first = next(tables)
    with pq.ParquetWriter(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def _write_text(path: Path, text: CsvText, number: str, rows: Iterable[Sequence[str]], *, compress: bool) -> None:
    with ExitStack() as stack:
        binary: Any = stack.enter_context(path.open("wb"))
        if compress:
            binary = stack.enter_context(gzip.GzipFile("", "wb", fileobj=binary, mtime=0))
        file = stack.enter_context(io.TextIOWrapper(binary, text.encoding, newline=""))
        file.write(text.preamble)
        writer = text.writer(file)
        writer.writerows([label, *cells] for label, cells in zip((number, ""), text.head(), strict=False))
        writer.writerows(rows)
