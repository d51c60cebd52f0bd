"""What values a column can take: none below 0 is rain, none above 100 is a percentage, and visits are whole numbers.

A bound is exact, and the data must show it. The least value is one where it piles up: it is there far more often than
the next one. 0 is one if it is the least value and there often enough, or if all values are positive, skewed, and some
of them tiny beside the usual ones. The greatest value is one where it piles up, and 1 and 100 are where they bound
shares and percentages, which 0 bounds, too.

Steps are those of a grid that all values lie on: 1 of whole numbers, 0.5 of 3.5, 4.0 and 5.5. Steps of decimals count
only where they are coarse beside the column's deviation; elsewhere they are those of its rounding. On coarse steps an
end that is there often is a bound. A column of two values is one of a single step, with both as bounds.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from gpvae.data.times import DataError, Floats

OFTEN, PILE, TIMES = 0.02, 0.05, 3  # shares of a column's values; a pile is so many times as high as what is next to it
TINY, SKEWED = 0.1, 1.1  # of the median: a tiny value, and a mean that is far above it
MANY = 0.2  # share of values at a bound that is worth a word
LEAST = 20  # values that a column must have
DECIMALS = 4  # of steps, at most
COARSE, FINE = 0.1, 1e-5  # deviations: steps of decimals, and those of whole numbers, are at least so long
EXACT = 1e-9  # relative error of numbers that are read as decimals
KINDS = ("real", "positive", "count", "binary")  # that a user may declare


class Limits(NamedTuple):
    """Of one column."""

    lower: float = -math.inf
    upper: float = math.inf
    step: float = 0.0  # 0: any number between the bounds
    origin: float = 0.0  # from which steps are counted

    @classmethod
    def of(cls, values: Floats) -> Self:
        """As these values show; NaN is missing. (row,)"""
        seen = values[~np.isnan(values)]
        if len(seen) < LEAST or seen.min() == seen.max():
            return cls()
        distinct, count = np.unique(seen, return_counts=True)
        share = count / len(seen)
        if len(distinct) == 2:
            return cls.of_two(*distinct.tolist())
        step, origin = _grid(distinct, float(seen.std()))
        lower, upper = _bounds(distinct, share, float(np.median(seen)))
        if step >= COARSE * seen.std():
            lower = float(distinct[0]) if share[0] >= PILE and count[0] >= LEAST else lower
            upper = float(distinct[-1]) if share[-1] >= PILE and count[-1] >= LEAST else upper
        return cls(lower, upper, step, origin)

    @classmethod
    def of_two(cls, lower: float, upper: float) -> Self:
        """Two values."""
        return cls(lower, upper, upper - lower, lower)

    @classmethod
    def declared(cls, kind: str, values: Floats, name: Any) -> Self:
        """Those of one of `KINDS`."""
        seen = values[~np.isnan(values)]
        if kind == "binary":
            distinct = np.unique(seen)
            if len(distinct) != 2:
                found = f"it must have 2 different values, got {len(distinct)}"
                raise DataError(f"column {name!r} is binary, so {found}")
            return cls.of_two(*distinct.tolist())
        wrong = seen[(seen < 0) | ((kind == "count") & (seen != np.rint(seen)))] if kind != "real" else seen[:0]
        if len(wrong):
            allowed = "whole numbers from 0 on" if kind == "count" else "numbers from 0 on"
            raise DataError(f"column {name!r} is {kind}, so it must hold {allowed}, got {wrong[0]:g}")
        return {"real": cls(), "positive": cls(lower=0.0), "count": cls(lower=0.0, step=1.0)}[kind]

    def words(self, values: Floats | None = None) -> str:
        """Empty where there are none; of a column's values it is said whether many of them lie at a bound."""
        ends = [x for x in (self.lower, self.upper) if math.isfinite(x)]
        if len(ends) == 2 and self.step == self.upper - self.lower:
            return f"{self.lower:g} or {self.upper:g}"
        whole = "whole numbers" if self.step == 1 else f"steps of {self.step:g}" if self.step else ""
        below = f"never below {self.lower:g}" if math.isfinite(self.lower) else ""
        above = f"never above {self.upper:g}" if math.isfinite(self.upper) else ""
        if len(ends) == 2:
            below, above = f"{self.lower:g} to {self.upper:g}", ""
        often = [end for end in ends if values is not None and np.mean(values[~np.isnan(values)] == end) >= MANY]
        many = ", ".join("many zeros" if end == 0 else f"often {end:g}" for end in often)
        return ", ".join(part for part in (whole, below, above, many) if part)


def is_of_numbers(kind: Any) -> bool:
    """Whether a column of this kind, which need not be a known one, holds numbers."""
    return isinstance(kind, str) and kind not in ("categorical", "ordinal")


def require_kinds(kinds: Mapping[Any, Any], columns: tuple[Any, ...], method: str) -> None:
    """Check what a user declares, for a method that fills only numbers."""
    for name, kind in kinds.items():
        if not is_of_numbers(kind):
            raise DataError(f"{method} fills only numbers; gp-vae fills categories such as {name!r}")
        if kind not in KINDS:
            known = f"{', '.join(KINDS)} (with gp-vae also categorical, ordinal)"
            raise DataError(f"the kind of column {name!r} must be one of {known}, got {kind!r}")
        if name not in columns:
            known = ", ".join(map(str, columns))
            raise DataError(f"kinds names a column {name!r}, but there is no such column of numbers; they are {known}")


def on_grid(values: Floats, origin: float, step: float) -> Floats:
    """The nearest values on the grid, with no more decimals than it has."""
    nearest = origin + step * np.rint((values - origin) / step)
    decimals = _decimals(np.array([origin, step]))
    return nearest if decimals is None else np.round(nearest, decimals)


def _grid(distinct: Floats, deviation: float) -> tuple[float, float]:
    """Step and origin; a step of 0 where there is none. `distinct` increases."""
    decimals = _decimals(distinct)
    if decimals is None:
        return 0.0, 0.0
    units = np.rint(distinct * 10.0**decimals).astype(np.int64)
    step = int(np.gcd.reduce(np.diff(units)))
    if step < (COARSE if decimals else FINE) * deviation * 10.0**decimals:
        return 0.0, 0.0
    return step / 10**decimals, int(units[0]) % step / 10**decimals


def _decimals(numbers: Floats) -> int | None:
    """That all of them have, at most; None if they have more than `DECIMALS`."""
    for decimals in range(DECIMALS + 1):
        units = numbers * 10.0**decimals
        size = np.abs(units)
        if size.max() > 2**52:
            return None
        if (np.abs(units - np.rint(units)) <= EXACT * np.maximum(1, size)).all():
            return decimals
    return None


def _bounds(distinct: Floats, share: Floats, median: float) -> tuple[float, float]:
    low = _least(distinct, share, median)
    if low == 0 and distinct[-1] in (1, 100) and share[-1] >= OFTEN:
        return low, float(distinct[-1])
    return low, float(distinct[-1]) if _piles_up(share[::-1]) else math.inf


def _least(distinct: Floats, share: Floats, median: float) -> float:
    if distinct[0] == 0 and share[0] >= OFTEN:
        return 0.0
    if distinct[0] > 0 and share[distinct < TINY * median].sum() >= OFTEN and distinct @ share > SKEWED * median:
        return 0.0
    return float(distinct[0]) if _piles_up(share) else -math.inf


def _piles_up(share: Floats) -> bool:
    """Whether the first of these is far more than its neighbours."""
    return bool(share[0] >= PILE and share[0] >= TIMES * share[1:3].max())
