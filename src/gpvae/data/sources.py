"""What the user names, as one table: a file, several, a pattern, a folder, or - for standard input."""

import gzip
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from glob import glob, has_magic
from pathlib import Path

import pyarrow as pa

from gpvae.data import formats
from gpvae.data.csv_text import CsvText
from gpvae.data.files import TableFile, read_table
from gpvae.data.reading import Reading
from gpvae.data.times import DataError

STDIN = "-"
STANDARD_INPUT = "standard input"
FILE = "file"  # the column that says which file a row is from


@dataclass(frozen=True)
class Source:
    """What the user names, and how it is to be read."""

    names: tuple[str, ...]
    reading: Reading = Reading()

    def read(self) -> TableFile:
        return read_tables(self.names, self.reading)

    @property
    def files(self) -> list[Path]:
        """Those on the disk, whether they exist or not."""
        return [path for path in find_files(self.names) if path]


def read_tables(names: Sequence[str], reading: Reading = Reading()) -> TableFile:
    """One table; the rows of several files are below each other, and their first column is the file's name."""
    paths = find_files(names)
    tables = [read_stdin(reading) if path is None else read_table(path, reading) for path in paths]
    if len(names) == 1 and tables and _is_one_file(names[0]):
        return tables[0]
    return _joined(tables, " ".join(names))


def find_files(names: Sequence[str]) -> list[Path | None]:
    """The files that these names stand for; None for standard input."""
    paths: list[Path | None] = []
    for name in names:
        paths += [None] if name == STDIN else _expanded(name)
    twice = [str(path or STANDARD_INPUT) for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise DataError(f"{twice[0]} is named twice")
    return paths


def _is_one_file(name: str) -> bool:
    return name == STDIN or (not Path(name).is_dir() and (Path(name).exists() or not has_magic(name)))


def _expanded(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        files = sorted(each for each in path.iterdir() if each.is_file() and formats.kind_of_name(each.name))
        files = [each for each in files if not each.name.startswith(".")]
        if not files:
            raise DataError(f"{path} is a folder without tables (.csv, .jsonl, .parquet, .feather, .xlsx)")
        return files
    if path.exists() or not has_magic(name):
        return [path]
    files = sorted(Path(each) for each in glob(name, recursive=True))  # noqa: PTH207 Path.glob refuses /a/*
    if not files:
        raise DataError(f"no file matches {name}")
    return [each for each in files if each.is_file()]


def read_stdin(reading: Reading) -> TableFile:
    name = STANDARD_INPUT
    content = sys.stdin.buffer.read()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    if not content:
        raise DataError(f"{name} is empty")
    return TableFile(Path(name), *formats.parse(content, formats.kind_of_content(content), name, reading))


def _joined(tables: Sequence[TableFile], name: str) -> TableFile:
    """The rows of all; a column that a table lacks is empty there."""
    for table in tables:
        if FILE in table.table.column_names:
            raise DataError(f"{table.path}: it has a column named {FILE!r}, which is to hold the names of the files")
    _require_same_marks(tables)
    stems = _stems([table.path for table in tables])
    if all(table.text for table in tables):
        text = _joined_text([table.text for table in tables if table.text], stems)
        return TableFile(Path(name), text.table(), text, FILE).with_text([FILE])
    frames = [
        table.table.add_column(0, FILE, pa.array([stem] * len(table.table), pa.string()))
        for table, stem in zip(tables, stems, strict=True)
    ]
    try:
        joined = pa.concat_tables(frames, promote_options="permissive").combine_chunks()
    except pa.ArrowException as error:
        raise DataError(f"{name}: the files do not fit together: {str(error).partition(chr(10))[0]}") from None
    return TableFile(Path(name), joined, None, FILE)


def _require_same_marks(tables: Sequence[TableFile]) -> None:
    marks = {mark: table.path for table in tables if table.text for mark in table.text.decimal_marks}
    if len(marks) > 1:
        raise DataError(f"numbers have decimal points in {marks['.']} and decimal commas in {marks[',']}: convert one")


def _joined_text(texts: Sequence[CsvText], stems: Sequence[str]) -> CsvText:
    header = list(dict.fromkeys(name for text in texts for name in text.names))
    columns: list[list[str]] = [[] for _ in header]
    for text in texts:
        cells = dict(zip(text.names, text.columns, strict=True))
        absent = [""] * len(text.columns[0])
        for column, name in zip(columns, header, strict=True):
            column += cells.get(name, absent)
    files = [stem for stem, text in zip(stems, texts, strict=True) for _ in text.columns[0]]
    first = texts[0]
    quoted = {text.names[j] for text in texts for j in text.quoted}
    units = dict(zip(first.names, first.units or [], strict=False))
    return replace(
        first,
        header=[FILE, *header],
        columns=[files, *columns],
        units=["", *(units.get(name, "") for name in header)] if first.units else None,
        preamble="",
        quoted=frozenset(j + 1 for j, name in enumerate(header) if name in quoted),
    )


def _stems(paths: Sequence[Path]) -> list[str]:
    """The names of the files without endings; with their folders, where they are alike."""
    stems = [path.with_name(path.name.removesuffix(".gz")).with_suffix("") for path in paths]
    counts = Counter(stem.name for stem in stems)
    return [stem.name if counts[stem.name] == 1 else str(stem) for stem in stems]
