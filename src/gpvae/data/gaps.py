"""Which gaps to fill: runs of missing values, by their length, column and place."""

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpvae.data.frames import FrameSource
from gpvae.data.panel import Bools, Panel
from gpvae.data.times import Clock, DataError, Floats, parse_times

Duration = float | str | dt.timedelta  # in the units of the times; of dates a timedelta, or text such as 6h
Moment = float | str | dt.date  # a time as the data has it

SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?) *(ms|s|min|h|d|w) *")


@dataclass(frozen=True)
class GapSelection:
    """Which gaps to fill; by default all.

    A gap is a run of missing values of one column in one series. Its length is the time between the values around it,
    less one time step, so that six missing rows of an hourly table are six hours.

    max_gap: gaps longer than this stay empty, whole.
    only: the columns to fill; the others still inform them.
    not_before: cells before this time stay empty.
    leading, trailing: whether to fill gaps before the first and after the last value of a column in a series.
    """

    max_gap: Duration | None = None
    only: Sequence[str] | None = None
    not_before: Moment | None = None
    leading: bool = True
    trailing: bool = True

    def wanted(self, panel: Panel) -> Bools:
        """The missing cells that are to be filled. (row, feature)"""
        wanted = ~panel.observed
        for _, cells in self.left_out(panel):
            wanted &= ~cells
        return wanted

    def left_out(self, panel: Panel) -> Iterator[tuple[str, Bools]]:
        """Missing cells that are to stay empty, with the reason in words. (row, feature)"""
        missing = ~panel.observed
        last, following = neighbours(panel)
        if self.only is not None:
            yield "in other columns", missing & ~_is_one_of(panel, self.only)
        if self.not_before is not None:
            yield f"before {self.not_before}", missing & (panel.times < _time_of(self.not_before, panel))[:, None]
        if not self.leading:
            yield "before the first value of a column", missing & (last < 0)
        if not self.trailing:
            yield "after the last value of a column", missing & (following < 0)
        if self.max_gap is not None:
            longest = _in_units(self.max_gap, panel.clock) * (1 + 1e-9)
            yield f"longer than {self.max_gap}", missing & (_lengths(panel, last, following) > longest)

    def summary(self, panel: Panel) -> list[str]:
        """How many gaps stay empty, and why."""
        counted = [(reason, count_gaps(panel, cells)) for reason, cells in self.left_out(panel)]
        return [
            f"left {count:,} {'gap' if count == 1 else 'gaps'} {reason} empty" for reason, count in counted if count
        ]


def count_gaps(panel: Panel, cells: Bools) -> int:
    """How many runs these cells form."""
    before = np.zeros_like(cells)
    before[1:] = cells[:-1]
    before[panel.starts] = False
    return int((cells & ~before).sum())


def neighbours(panel: Panel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each cell, the rows of the last observation at or before it and of the next at or after it; -1 if none."""
    rows = np.arange(len(panel.values))[:, None]
    first = panel.starts[panel.series_of_row][:, None]
    past_end = (panel.starts + panel.lengths)[panel.series_of_row][:, None]
    last = np.maximum.accumulate(np.where(panel.observed, rows, -1), axis=0)
    following = np.minimum.accumulate(np.where(panel.observed, rows, len(rows))[::-1], axis=0)[::-1]
    return np.where(last >= first, last, -1), np.where(following < past_end, following, -1)


def parse_duration(text: str) -> float:
    """6h, 30min, 1d 12h → seconds."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        raise DataError(f"{text!r} is not a duration: write it as 30min, 6h, 2d or 1w")
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def duration_text(seconds: float) -> str:
    """In the largest unit that divides it: 3600 → 1h."""
    for unit, size in sorted(SECONDS.items(), key=lambda item: -item[1]):
        if abs(seconds / size - round(seconds / size)) < 1e-9 and round(seconds / size):
            return f"{round(seconds / size)}{unit}"
    return f"{seconds:g}s"


def _in_units(duration: Duration, clock: Clock) -> float:
    """In the units of the panel's times."""
    if isinstance(duration, dt.timedelta):
        duration = duration.total_seconds() if clock == "datetime" else str(duration)
    elif clock == "datetime":
        duration = parse_duration(str(duration).strip())
    try:
        length = float(duration)
    except ValueError:
        raise DataError(f"the longest gap must be a number, as the times or rows are, got {duration!r}") from None
    if not 0 < length < np.inf:
        raise DataError(f"the longest gap must be above 0, got {duration!r}")
    return length


def _time_of(moment: Moment, panel: Panel) -> float:
    """In the units of the panel's times. A date without a zone is taken as UTC where the data has zones."""
    text = moment.isoformat() if isinstance(moment, dt.date) else str(moment)
    clock, (time,), origin = parse_times([text], "the time before which nothing is filled")
    if clock != panel.clock:
        wanted = "a date" if panel.clock == "datetime" else "a number, as the times are"
        raise DataError(f"the time before which nothing is filled must be {wanted}, got {text!r}")
    return float(time) if origin is None or panel.origin is None else origin - panel.origin


def _is_one_of(panel: Panel, names: Sequence[str]) -> Bools:
    """(feature,)"""
    for name in names:
        if name not in panel.columns:
            raise DataError(f"there is no column {name!r} to fill; there are {', '.join(map(str, panel.columns))}")
    return np.isin(np.array(panel.columns, dtype=object), list(names))


def _lengths(panel: Panel, last: NDArray[np.int64], following: NDArray[np.int64]) -> Floats:
    """Of the gap of each cell. (row, feature)"""
    times, step = _times(panel), _steps(panel)[panel.series_of_row][:, None]
    first_row = panel.starts[panel.series_of_row]
    final_row = first_row + panel.lengths[panel.series_of_row] - 1
    begin = np.where(last >= 0, times[last], times[first_row][:, None] - step)
    end = np.where(following >= 0, times[following], times[final_row][:, None] + step)
    return end - begin - step


def _times(panel: Panel) -> Floats:
    """Row numbers, where a table has no times."""
    if isinstance(panel.source, FrameSource) and panel.source.time is None and panel.clock == "number":
        return (np.arange(len(panel.values)) - panel.starts[panel.series_of_row]).astype(np.float64)
    return panel.times


def _steps(panel: Panel) -> Floats:
    """The median time step of each series; of those with one row, that of all. (series,)"""
    times = _times(panel)
    steps = [np.diff(times[rows]) for _, rows in panel.series()]
    every = np.concatenate(steps)
    usual = float(np.median(every)) if len(every) else 1.0
    return np.array([np.median(each) if len(each) else usual for each in steps])
