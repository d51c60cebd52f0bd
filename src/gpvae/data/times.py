"""Times in any common notation as float64: numbers unchanged, dates and times in seconds since the first."""

import datetime as dt
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Clock = Literal["number", "datetime"]
EXACT = 2**53  # float64 holds whole numbers up to this one exactly
Moment = int | float | dt.datetime  # one time; datetimes are in UTC if they have a zone

_DAYS = ("%Y-%m", "%Y/%m/%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%b-%Y", "%d %b %Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
DATETIME_FORMATS = [day + clock for day in _DAYS for clock in _CLOCKS]
_OF_DAY = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?")
_NANOSECONDS = re.compile(r"[.,][0-9]{6}([0-9]{1,3})[0-9]*(?:Z|[+-][0-9:]+)?$")


class ParsedTimes(NamedTuple):
    """Times as numbers; dates and times as seconds since the first, the `origin`."""

    clock: Clock
    times: Floats
    origin: float | None = None  # seconds since 1970, in UTC if the times have a zone, else in local time


class DataError(ValueError):
    """The data cannot be used; the message names the file, series, column or row at fault."""


def parse_moment(time: Any, clock: Clock) -> Moment:
    """One time, in any notation that arrays and columns of times may have."""
    try:
        moment = _number(time) if clock == "number" else _datetime(time)
    except (TypeError, ValueError) as error:
        wanted = "a number" if clock == "number" else "a date or time, such as 2024-03-01T06:00"
        raise error if isinstance(error, DataError) else DataError(f"a time must be {wanted}, got {time!r}") from None
    if not isinstance(moment, dt.datetime) and not math.isfinite(moment):
        raise DataError(f"a time must be finite, got {time!r}")
    return moment


def _number(time: Any) -> int | float:
    if isinstance(time, dt.timedelta | np.timedelta64):
        return float(np.timedelta64(time) / np.timedelta64(1, "s"))
    whole = isinstance(time, int | np.integer) or (isinstance(time, str) and time.strip().lstrip("+-").isdigit())
    return int(time) if whole else float(time)  # float64 cannot represent, say, nanoseconds since 1970 exactly


def _datetime(time: Any) -> dt.datetime:
    text = str(time).strip()
    moments = {*_parse_all([text], dt.datetime.fromisoformat)}
    if not moments:
        moments = {moment for pattern in DATETIME_FORMATS for moment in _parse_all([text], _reader(pattern))}
    if len(moments) > 1:
        raise DataError(f"the time {text} is ambiguous: day/month or month/day; write it as year-month-day")
    if not moments:
        raise ValueError(text)
    moment = moments.pop()
    return moment.astimezone(dt.UTC) if moment.tzinfo else moment


def time_between(earlier: Moment, later: Moment) -> float:
    """In the units of numbers, or in seconds."""
    if isinstance(earlier, dt.datetime) and isinstance(later, dt.datetime):
        if (earlier.tzinfo is None) != (later.tzinfo is None):
            raise DataError(f"both or neither of the times {earlier} and {later} must have a time zone")
        return (later - earlier) / dt.timedelta(seconds=1)
    assert not isinstance(earlier, dt.datetime)
    assert not isinstance(later, dt.datetime)
    return float(later - earlier)


def time_after(moment: Moment, span: float) -> Moment:
    return moment + dt.timedelta(seconds=span) if isinstance(moment, dt.datetime) else moment + span


def unit_steps(steps: Floats) -> Floats:
    """Time steps in time units, with those that differ from 1 by no more than rounding set to 1."""
    return np.where(np.abs(steps - 1) < 1e-6, 1.0, steps)


def array_times(flat: NDArray[Any]) -> ParsedTimes:
    """Parse an array of numbers, datetime64, timedelta64, datetimes or text."""
    if flat.dtype.kind == "M":
        flat = flat.astype(np.promote_types(flat.dtype, "M8[s]"))
        first, second = np.fmin.reduce(flat), np.timedelta64(1, "s")
        return ParsedTimes("datetime", (flat - first) / second, float((first - np.datetime64(0, "s")) / second))
    if flat.dtype.kind == "m":
        return ParsedTimes("number", flat / np.timedelta64(1, "s"))
    if flat.dtype.kind in "OU":
        return parse_times([None if item is None else str(item) for item in flat], "the list of times")
    return ParsedTimes("number", flat.astype(np.float64))


def column_times(column: nw.Series[Any], name: str) -> ParsedTimes:
    """Parse a column of numbers, datetimes, dates, durations or text."""
    invalid, problem = column.is_null(), "missing"
    if column.dtype.is_float():
        invalid, problem = invalid | ~column.is_finite(), "missing or infinite"
    if invalid.any():
        raise DataError(f"the time in {name} is {problem} in row {invalid.to_list().index(True) + 1}")
    if column.dtype in (nw.String, nw.Object, nw.Categorical, nw.Enum):
        return parse_times([str(item) for item in column.to_list()], name)
    if column.dtype.is_integer():
        ticks = column.to_numpy()
        # float64 cannot represent, say, nanoseconds since 1970 exactly: count from the first.
        return ParsedTimes("number", (ticks if ticks.max() < EXACT else ticks - ticks.min()).astype(np.float64))
    if column.dtype.is_numeric():
        return ParsedTimes("number", np.asarray(column.cast(nw.Float64).to_numpy(), dtype=np.float64))
    if column.dtype == nw.Date:
        column = column.cast(nw.Datetime("us"))
    if isinstance(column.dtype, nw.Datetime):
        unit = column.dtype.time_unit if column.dtype.time_unit != "s" else "ms"
        ticks = column.dt.timestamp(cast(Any, unit)).to_numpy().astype(np.int64)
        second = {"ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
        return ParsedTimes("datetime", (ticks - ticks.min()) / second, float(ticks.min() / second))
    if column.dtype == nw.Duration:
        return ParsedTimes("number", column.dt.total_microseconds().to_numpy().astype(np.float64) * 1e-6)
    raise DataError(f"{name} must hold times, got {column.dtype}")


def parse_times(texts: Sequence[str | None], name: str) -> ParsedTimes:
    """Parse numbers, ISO 8601 dates and times (with or without a zone), or one common format for all texts."""
    for row, text in enumerate(texts):
        if text is None or not text.strip():
            raise DataError(f"the time in {name} is missing in row {row + 1}")
    stripped = [text.strip() for text in texts if text is not None]
    try:
        numbers = np.array(stripped, dtype=np.float64)
    except ValueError:
        moments = parse_datetimes(stripped, name)
        first = min(moments)
        seconds = np.array([(moment - first) / dt.timedelta(seconds=1) for moment in moments])
        utc = first if first.tzinfo else first.replace(tzinfo=dt.UTC)
        return ParsedTimes("datetime", seconds + np.array(extra_nanoseconds(stripped)) * 1e-9, utc.timestamp())
    if np.abs(numbers).max() >= EXACT and all(text.lstrip("+-").isdigit() for text in stripped):
        ticks = [int(text) for text in stripped]
        first = min(ticks)
        return ParsedTimes("number", np.array([tick - first for tick in ticks], dtype=np.float64))
    if not np.isfinite(numbers).all():
        raise DataError(f"the time in {name} is not finite in row {int(np.argmin(np.isfinite(numbers))) + 1}")
    return ParsedTimes("number", numbers)


def parse_datetimes(texts: list[str], name: str) -> list[dt.datetime]:
    """Parse all texts by the one format that fits them all; where two fit, as for 03/04/2020 alone, refuse to guess."""
    tries = [_parse_all(texts, dt.datetime.fromisoformat)]
    tries += [_parse_all(texts, _reader(pattern)) for pattern in DATETIME_FORMATS]
    readings = [moments for moments in tries if len(moments) == len(texts)]
    if not readings:
        row = max(len(moments) for moments in tries)
        clock = "; a time of the day needs its date: --time DATE,TIME" if _OF_DAY.fullmatch(texts[row]) else ""
        reason = f"cannot be read as a number, date or time{clock}"
        raise DataError(f"the time {texts[row]!r} in {name}, row {row + 1}, {reason}")
    if any(other != readings[0] for other in readings[1:]):
        raise DataError(f"the times in {name} are ambiguous: day/month or month/day; write them as year-month-day")
    zoned = [moment.tzinfo is not None for moment in readings[0]]
    if any(zoned) and not all(zoned):
        raise DataError(
            f"{name} mixes times with and without a time zone; row {zoned.index(not zoned[0]) + 1} differs from row 1"
        )
    return readings[0]


def extra_nanoseconds(texts: Sequence[str]) -> list[int]:
    """What times have beyond microseconds, which `datetime` cuts off."""
    matches = [_NANOSECONDS.search(text) for text in texts]
    return [int(match[1].ljust(3, "0")) if match else 0 for match in matches]


def _reader(pattern: str) -> Callable[[str], dt.datetime]:
    return lambda text: dt.datetime.strptime(text, pattern)


def _parse_all(texts: list[str], parse: Callable[[str], dt.datetime]) -> list[dt.datetime]:
    """The parsed texts before the first that does not parse."""
    moments: list[dt.datetime] = []
    for text in texts:
        try:
            moments.append(parse(text))
        except ValueError:
            break
    return moments
