"""Periods of time that rows fall into: hours, days, weeks, months, years, durations such as 15min, plain numbers."""

import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import DataError, Panel

NAMED = {"hour": (1, "h"), "day": (1, "D"), "week": (1, "W"), "month": (1, "M"), "year": (1, "Y")}
UNITS = {"s": "s", "min": "m", "h": "h", "d": "D", "w": "W"}
MONDAY = np.datetime64("1969-12-29", "us")  # the Monday before 1970: weeks begin on Mondays
_DURATION = re.compile(r"([1-9][0-9]*) ?([a-z]+)")


class Periods(NamedTuple):
    """Of each row the period that it falls into; `end` is the start of the next one."""

    start: NDArray[Any]  # (row,) dates, or numbers in the units of the times
    end: NDArray[Any]  # (row,)


def periods_of(panel: Panel, length: str | float) -> Periods:
    """The periods of the panel's rows: of dates by a name or a duration, of times that are numbers by a number."""
    if isinstance(length, str):
        count, unit = _parse(length)
        if panel.origin is None:
            raise DataError(f"by={length!r} needs dates, but the times of this data are numbers: give a number")
        return _calendar(panel.wall_clock(), count, unit)
    if panel.origin is not None:
        raise DataError(
            f"by={length!r} is a number, but the times of this data are dates: give 'day', '6h' or the like"
        )
    if not 0 < length < np.inf:
        raise DataError(f"by must be a number above 0, got {length:g}")
    start = np.floor(panel.times / length) * length
    return Periods(start, start + length)


def _parse(text: str) -> tuple[int, str]:
    """A name or a duration → how many of a unit of NumPy."""
    if text in NAMED:
        return NAMED[text]
    match = _DURATION.fullmatch(text.lower())
    if not match or match[2] not in UNITS:
        raise DataError(
            f"by must be 'gap', 'series', 'column', a period ({', '.join(NAMED)}) or a duration such as '15min', '6h', "
            f"'1d' or '2w', got {text!r}"
        )
    return int(match[1]), UNITS[match[2]]


def _calendar(moments: NDArray[np.datetime64], count: int, unit: str) -> Periods:
    if unit in "MY":
        start = moments.astype(f"datetime64[{unit}]")
        return Periods(start.astype("datetime64[us]"), (start + 1).astype("datetime64[us]"))
    length = np.timedelta64(count, unit).astype("timedelta64[us]")
    start = MONDAY + (moments - MONDAY) // length * length
    return Periods(start, start + length)
