"""How a table is to be read where the file does not say it itself."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gpvae.data.times import DataError

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "#n/a"})
SEPARATORS = ",;\t|"
SPACES = " "  # as a separator: one or more spaces or tabs
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": SPACES, "spaces": SPACES}


@dataclass(frozen=True)
class Reading:
    """How to read a table. On the command line each field is an option of the same name.

    header: whether the first line holds the names of the columns.
    units_row: whether the first row under the header holds units; it is written back as it is.
    skip_rows: how many lines above the header to pass over; they are written back, too.
    separator: of a text file; by default the one of , ; tab | that splits the first line into the most cells, else
        spaces.
    decimal: the decimal mark; the other one of point and comma then groups thousands.
    encoding: of a text file; by default UTF-8, or UTF-16 if the file begins with a byte order mark.
    missing: entries that mark missing values, besides empty cells, NA, N/A, NaN, null, none, ? and #N/A.
    sheet: of an Excel file; by default the first.
    """

    header: bool = True
    units_row: bool = False
    skip_rows: int = 0
    separator: str | None = None
    decimal: Literal[".", ","] | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    sheet: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", tuple(str(code).strip() for code in self.missing))
        if self.separator is not None:
            separator = _NAMED_SEPARATORS.get(self.separator.lower(), self.separator)
            object.__setattr__(self, "separator", separator)
            if len(separator) != 1 or separator in '"\r\n' or separator.isalnum():
                raise DataError(f"the separator must be one mark, such as ; or tab, got {self.separator!r}")
        if self.decimal not in (None, ".", ","):
            raise DataError(f"the decimal mark must be . or , got {self.decimal!r}")
        if self.units_row and not self.header:
            raise DataError("a row of units stands under a header: --units-row does not go with --no-header")
        if self.skip_rows < 0:
            raise DataError(f"skip_rows must be at least 0, got {self.skip_rows}")
        _require_encoding(self.encoding)

    def is_missing(self, cell: str) -> bool:
        """Whether a cell of text marks a missing value."""
        text = cell.strip()
        return text.lower() in MISSING or (bool(self.missing) and self._is_code(text))

    def present(self, cells: Sequence[str]) -> list[str]:
        """The cells that do not mark missing values, without spaces around them."""
        stripped = [cell.strip() for cell in cells]
        if self.missing:
            return [cell for cell in stripped if not self.is_missing(cell)]
        return [cell for cell in stripped if cell.lower() not in MISSING]

    def _is_code(self, text: str) -> bool:
        """By its text, or as a number: with a decimal point, a decimal comma or commas between thousands."""
        numbers = {_number(text), _number(text.replace(",", ".")), _number(text.replace(",", ""))} if self.codes else {}
        return text in self.missing or not self.codes.isdisjoint(numbers)

    @cached_property
    def codes(self) -> frozenset[float]:
        """Numbers that mark missing values."""
        return frozenset(number for code in self.missing if (number := _number(code)) is not None)


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _require_encoding(name: str | None) -> None:
    try:
        if name is not None:
            "".encode(codecs.lookup(name).name)
    except (LookupError, TypeError):
        raise DataError(f"there is no text encoding {name!r}; common ones are utf-8, latin-1, cp1252, utf-16") from None
