"""Lines of CSV that are filled one at a time."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from gpvae.data.reading import SEPARATORS, Reading
from gpvae.data.times import DataError

if TYPE_CHECKING:
    from gpvae.imputers.stream import FilledRow, Stream

Format = Callable[[float], str]


class Lines:
    """The rows of a CSV table as they arrive; `line` is the number of the last line that was read."""

    def __init__(self, source: Iterable[bytes]):
        self.line = 0
        lines = self._decoded(source)
        first = next((line for line in lines if line.strip()), None)
        if first is None:
            raise DataError("standard input is empty: its first line must be the header")
        self.separator = max(SEPARATORS, key=lambda mark: len(next(csv.reader([first], delimiter=mark))))
        self.newline = "\r\n" if first.endswith("\r\n") else "\n"
        self._reader = csv.reader(chain([first], lines), delimiter=self.separator)
        self.header = next(self._reader)

    def __iter__(self) -> Iterator[list[str]]:
        """The cells of each row. An empty line is skipped; in a single column it is a gap."""
        try:
            for cells in self._reader:
                if cells or len(self.header) == 1:
                    yield self._require_width(cells or [""])
        except csv.Error as error:
            raise DataError(f"line {self.line} is not a row of a table: {error}") from None

    def written(self, cells: list[str]) -> bytes:
        """A line in the same format."""
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self.separator, lineterminator=self.newline).writerow(cells)
        return text.getvalue().encode()

    def _decoded(self, source: Iterable[bytes]) -> Iterator[str]:
        for line in source:
            self.line += 1
            try:
                yield line.decode("utf-8-sig" if self.line == 1 else "utf-8")
            except UnicodeDecodeError:
                raise DataError(f"line {self.line} is not UTF-8 text") from None

    def _require_width(self, cells: list[str]) -> list[str]:
        if len(cells) != len(self.header):
            expected = f"expected {len(self.header)} cells as in the header, got {len(cells)}"
            raise DataError(f"line {self.line}: {expected}")
        return cells


class LineFiller:
    """Fills the cells of each row, and adds the ends of intervals, by a stream for each series.

    streams: those of the series so far, by id; the others begin as copies of `fresh`.
    """

    def __init__(
        self,
        lines: Lines,
        fresh: "Stream",
        streams: "dict[str | None, Stream]",
        reading: Reading,
        *,
        id: str | None,
        time: str | None,
        intervals: bool,
    ):
        self.lines, self.fresh, self.streams, self.intervals = lines, fresh, streams, intervals
        self.reading = reading
        self.names = [name.strip() for name in lines.header]
        self.ends = [f"{name}_{end}" for name in fresh.schema.columns for end in ("lower", "upper")] * intervals
        self._require_names(id, time)
        self.id, self.time = (None if name is None else self.names.index(name) for name in (id, time))
        self.columns = [self.names.index(name) for name in fresh.schema.columns]
        self.formats = [_format(scale) for scale in fresh.schema.scaling.scale.tolist()]
        self.mark = "."

    def __iter__(self) -> Iterator[bytes]:
        """Filled lines. A row counts as seen once the next one is asked for, so that none is lost unwritten."""
        yield self.lines.written([*self.lines.header, *self.ends])
        for cells in self.lines:
            try:
                series = self._series(cells)
                stream = self.streams.get(series, self.fresh).copy()
                values = [self._number(cells[j], name) for j, name in zip(self.columns, self._columns, strict=True)]
                row = stream.step(values, None if self.time is None else cells[self.time])
            except DataError as error:
                raise DataError(f"line {self.lines.line}: {error}") from None
            yield self.lines.written(self._filled(cells, row, [math.isnan(value) for value in values]))
            self.streams[series] = stream

    @property
    def _columns(self) -> tuple[str, ...]:
        return self.fresh.schema.columns

    def _require_names(self, id: str | None, time: str | None) -> None:
        for name in (id, time):
            if name is not None and name not in self.names:
                several = "; a stream needs its time in one column" if name == time and "," in name else ""
                raise DataError(f"there is no column {name!r}; the columns are {', '.join(self.names)}{several}")
        if absent := [str(name) for name in self._columns if name not in self.names]:
            fitted = ", ".join(map(str, self._columns))
            raise DataError(f"the model was fitted on the columns {fitted}; the header lacks {', '.join(absent)}")
        for name in (*self.names, *self.ends):
            if [*self.names, *self.ends].count(name) > 1:
                raise DataError(f"two columns are named {name!r}; rename one")

    def _series(self, cells: list[str]) -> str | None:
        if self.id is None:
            return None
        if not cells[self.id].strip():
            raise DataError(f"the id in column {self.names[self.id]!r} is missing")
        return cells[self.id].strip()

    def _number(self, cell: str, name: str) -> float:
        text = cell.strip()
        if self.reading.is_missing(text):
            return math.nan
        if self.lines.separator != "," and "," in text and "." not in text:
            self.mark = ","
        number = None
        with suppress(ValueError):
            number = float(text.replace(self.mark, "."))
        if number is None or "_" in text:  # Python alone reads 1_000 as a number
            raise DataError(f"column {name!r} must be numeric, got {text!r}")
        return number

    def _filled(self, cells: list[str], row: "FilledRow", missing: list[bool]) -> list[str]:
        cells, ends = list(cells), list[str]()
        for i, (j, write) in enumerate(zip(self.columns, self.formats, strict=True)):
            known = missing[i] and not math.isnan(row.values[i])
            cells[j] = self._text(row.values[i], write) if known else cells[j]
            ends += [self._text(end[i], write) if known else "" for end in (row.lower, row.upper)] * self.intervals
        return cells + ends

    def _text(self, value: float, write: Format) -> str:
        return write(value).replace(".", self.mark)


def _format(scale: float) -> Format:
    """Decimals down to a thousandth of a column's standard deviation."""
    if not scale > 0:
        return lambda value: f"{value:.9g}"
    decimals = max(0, 3 - math.floor(math.log10(scale)))
    return lambda value: f"{value:.{decimals}f}"
