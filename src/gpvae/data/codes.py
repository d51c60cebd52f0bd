"""Numbers that look like codes for missing values, such as -999: found, named, and left as they are."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from gpvae.data.panel import Floats, Panel

USUAL = {-200.0, 1e20, 1e30, 1e36, 32767.0, -32768.0, 2147483647.0, -2147483648.0}
REPEATED = 3  # times, at least
OTHERS = 5  # different other values, at least
FAR = 5  # times the range of the other values: how far a number lies outside if it is far
ABSURD = 1e6  # times that range: so far that one cell is enough


class SuspectedCode(NamedTuple):
    """A number far outside the rest of some columns, which repeats exactly or is absurdly large."""

    value: float
    columns: tuple[str, ...]
    cells: int

    def describe(self) -> str:
        shown = ", ".join(map(repr, self.columns[:3])) + (
            f" and {len(self.columns) - 3} more" * (len(self.columns) > 3)
        )
        columns, hold = ("column", "holds") if len(self.columns) == 1 else ("columns", "hold")
        number = repr(self.value).removesuffix(".0")
        cells = "1 cell" if self.cells == 1 else f"{self.cells:,} cells"
        outside = f"{number} in {cells}, far from {'its' if hold == 'holds' else 'their'} other values"
        return f"{columns} {shown} {hold} {outside}; if it marks missing values, say --missing {number}"


def suspected_codes(panel: Panel) -> list[SuspectedCode]:
    """Over all columns of numbers; nothing is changed."""
    found: dict[float, list[tuple[str, int]]] = defaultdict(list)
    for j, name in enumerate(panel.columns):
        values = panel.values[:, j]
        seen = values[~np.isnan(values)]
        if name not in panel.labels and len(seen):
            for code in _codes(seen):
                found[code].append((str(name), int((seen == code).sum())))
    return [
        SuspectedCode(code, tuple(name for name, _ in places), sum(count for _, count in places))
        for code, places in found.items()
    ]


def _codes(seen: Floats) -> list[float]:
    """The lowest and the highest value, if they are suspected; without them, the next ones."""
    codes = [code for code in (float(seen.min()), float(seen.max())) if _is_suspected(seen, code)]
    return codes + _codes(seen[~np.isin(seen, codes)]) if codes else []


def _is_suspected(seen: Floats, code: float) -> bool:
    rest = seen[seen != code]
    if code == 0 or len(np.unique(rest[:1000])) < OTHERS:
        return False
    low, high = float(rest.min()), float(rest.max())
    distance = low - code if code < low else code - high
    if len(seen) - len(rest) < REPEATED:
        return distance > ABSURD * (high - low)
    if distance > FAR * (high - low):
        return True
    return _is_usual(code) and (distance > high - low or (code < 0 <= low))


def _is_usual(code: float) -> bool:
    """-999, 9999, -99.9 and the like, or one of those that sensors and file formats use."""
    digits = f"{abs(code):.7g}".replace(".", "")
    return code in USUAL or (len(digits) > 1 and set(digits) == {"9"})
