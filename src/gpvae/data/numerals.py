"""How numbers are written: with a decimal point or comma, with or without marks between thousands."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_GROUPED = {
    mark: re.compile(rf"[+-]?[0-9]{{1,3}}(?:{re.escape(mark)}[0-9]{{3}})+(?:{re.escape(decimal)}[0-9]*)?")
    for mark, decimal in ((",", "."), (".", ","))
}
_TWICE = {mark: re.compile(rf"{re.escape(mark)}[0-9]{{3}}{re.escape(mark)}[0-9]{{3}}") for mark in ",."}


class Numerals(NamedTuple):
    """The marks in the numbers of a column."""

    decimal: str = "."
    grouped: bool = False  # the other mark separates thousands

    @property
    def group(self) -> str:
        return "," if self.decimal == "." else "."

    def plain(self, cells: Sequence[str]) -> list[str] | None:
        """The same numbers with a decimal point only; None if a cell is not written in this way."""
        if self == Numerals():
            return list(cells)
        plain: list[str] = []
        for cell in cells:
            if self.group in cell:
                if not self.grouped or not _GROUPED[self.group].fullmatch(cell):
                    return None
                cell = cell.replace(self.group, "")
            plain.append(cell.replace(self.decimal, "."))
        return plain

    def floats(self, cells: Sequence[str]) -> NDArray[np.float64] | None:
        """None if a cell is not a number."""
        plain = self.plain(cells)
        return None if plain is None else plain_floats(plain)

    def styled(self, text: str) -> str:
        """A number with a decimal point, and commas between thousands, in this style."""
        return text if self.decimal == "." else text.translate(str.maketrans(".,", ",."))


def plain_floats(cells: Sequence[str]) -> NDArray[np.float64] | None:
    try:
        if any("_" in cell for cell in cells):
            return None  # Python alone reads 1_000 as a number
        return np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        return None


def declared(cells: Sequence[str], decimal: str) -> Numerals:
    """Of a column whose decimal mark is known."""
    numerals = Numerals(decimal, grouped=True)
    return numerals if any(numerals.group in cell for cell in cells) else Numerals(decimal)


def guess(cells: Sequence[str], separator: str) -> Numerals | None:
    """The marks that the cells leave no doubt about; None if 1,234 may be either number.

    A comma in cells that are not separated by commas is a decimal comma.
    """
    text = "\n".join(cells)  # of which most columns need only a glance
    if "," not in text:
        return Numerals(",", True) if _are_grouped(cells, ".", text) else Numerals()
    if "." in text:
        return _of_both_marks(cells)
    if _are_grouped(cells, ",", text):
        return Numerals(".", True)
    if separator == "," and all(_GROUPED[","].fullmatch(cell) for cell in cells if "," in cell):
        return None
    return Numerals(",")


def _are_grouped(cells: Sequence[str], mark: str, text: str) -> bool:
    """Whether a number has the mark twice, which only a mark of thousands has."""
    if not _TWICE[mark].search(text):
        return False
    return any(cell.count(mark) > 1 and _GROUPED[mark].fullmatch(cell) for cell in cells)


def _of_both_marks(cells: Sequence[str]) -> Numerals:
    """The last mark of a cell with both is the decimal one; without such a cell there is none that fits all."""
    both = next((cell for cell in cells if "," in cell and "." in cell), None)
    if both is None:
        return Numerals()
    return Numerals(max(",.", key=both.rfind), grouped=True)
