"""Which column of a frame, or which two, hold the times, and what they say."""

import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

import narwhals as nw
import numpy as np

from gpvae.data.times import DataError, ParsedTimes, column_times, parse_datetimes, parse_times

_TIME_WORDS = {"time", "timestamp", "ts", "t", "date", "datetime", "epoch", "unix", "unixtime", "utc", "stamp"}
_CALENDAR = ("year", "month", "day", "hour", "minute", "second")
_UNITS = {1: "seconds", 10**3: "milliseconds", 10**6: "microseconds", 10**9: "nanoseconds"}
_YEAR_1990, _YEAR_2100 = 631_152_000, 4_102_444_800  # in seconds since 1970
_NO_NAME = re.compile(r"column [0-9]+|Unnamed: [0-9]+|")
_DOTTED = re.compile(r"\b([0-9]{2})\.([0-9]{2})(?=\.[0-9]{2}$|$)")  # 18.00.00
NIXTLA = ("unique_id", "ds")
_TEXT = (nw.String, nw.Object, nw.Categorical, nw.Enum)


def time_parts(names: Sequence[str], time: str | None) -> list[str]:
    """The columns that hold the time: DATE,TIME names two, unless a column has that very name."""
    if time is None or time in names or not isinstance(time, str) or "," not in time:
        return [] if time is None else [time]
    return [part.strip() for part in time.split(",")]


def index_times(table: nw.DataFrame[Any]) -> Any:
    """The times in the index of a pandas frame, if it holds any. Periods are their starts.

    Of several levels, the times are the only one of dates or periods, else the last.
    """
    index: Any = nw.maybe_get_index(table)
    if index is None:
        return None
    if index.nlevels > 1:
        return _as_dates(index.get_level_values(_time_level(index)))
    return _as_dates(index) if _holds_dates(index) else None


def index_series(table: nw.DataFrame[Any]) -> list[Any] | None:
    """The series of each row, if the index of a pandas frame says it: its levels without the times, or unique_id."""
    index: Any = nw.maybe_get_index(table)
    if index is None:
        return None
    if index.nlevels > 1:
        return index.droplevel(_time_level(index)).tolist()
    return index.tolist() if index.name == NIXTLA[0] and NIXTLA[1] in table.columns else None


def _time_level(index: Any) -> int:
    dates = [level for level, entries in enumerate(index.levels) if _holds_dates(entries)]
    return dates[0] if len(dates) == 1 else index.nlevels - 1


def _holds_dates(index: Any) -> bool:
    return _is_of_periods(index) or index.dtype.kind == "M"


def _is_of_periods(index: Any) -> bool:
    return str(index.dtype).startswith("period[")


def _as_dates(index: Any) -> Any:
    return index.to_timestamp() if _is_of_periods(index) else index


def usual_names(table: nw.DataFrame[Any], id: str | None, time: str | None) -> tuple[str | None, str | None]:
    """Names of the columns of series and times; those of Nixtla's long format, where a table has it, need no naming."""
    series, times = NIXTLA
    in_index = getattr(nw.maybe_get_index(table), "name", None) == series
    if times not in table.columns or not (in_index or series in table.columns):
        return id, time
    return id or (series if series in table.columns else None), time or times


def find_time(table: nw.DataFrame[Any], id: str | None, columns: Sequence[str]) -> str | None:
    """The only column of times: of a type for times, else of text, else of unix times. `columns` are to be filled."""
    if index_times(table) is not None:
        return None
    schema = {name: dtype for name, dtype in table.schema.items() if name != id and name not in columns}
    times = [name for name, dtype in schema.items() if dtype in (nw.Date, nw.Datetime)]
    if len(times) > 1:
        raise DataError(
            f"several columns hold times ({', '.join(map(str, times))}): name the one to use as time (--time)"
        )
    if times:
        return times[0]
    written = [name for name, dtype in schema.items() if dtype in _TEXT and _are_dates(table.get_column(name))]
    if len(written) == 1:
        return written[0]
    if written:
        shown = ", ".join(map(repr, written))
        warnings.warn(f"columns {shown} hold dates as text; none is used as the time: name one (--time)", stacklevel=4)
        return None
    return _unix_time(table, [name for name, dtype in schema.items() if dtype.is_integer() or dtype == nw.String])


def times_of(table: nw.DataFrame[Any], time: str | None) -> ParsedTimes:
    parts = time_parts(table.columns, time)
    if len(parts) > 1:
        return parse_times(joined_times(table, parts).to_list(), f"columns {', '.join(parts)}")
    if parts:
        return column_times(table.get_column(parts[0]), f"column {time!r}")
    index = index_times(table)
    if index is not None:
        return column_times(nw.from_native(index.to_series(), series_only=True), "the index")
    return ParsedTimes("number", np.arange(len(table), dtype=np.float64))


def joined_times(table: nw.DataFrame[Any], parts: Sequence[str]) -> nw.Series[Any]:
    """Date and time in two columns, or year, month, day, hour, … in whole numbers, as text."""
    columns = [table.get_column(name) for name in parts]
    for name, column in zip(parts, columns, strict=True):
        if column.is_null().any():
            raise DataError(
                f"the time in column {name!r} is missing in row {column.is_null().to_list().index(True) + 1}"
            )
    if all(column.dtype.is_integer() for column in columns):
        texts = _from_numbers(columns)
    else:
        texts = [" ".join(cells) for cells in zip(*map(_part_texts, columns), strict=True)]
    return nw.new_series("time", texts, nw.String(), backend=table.implementation)


def is_row_number(column: nw.Series[Any]) -> bool:
    """Whether a column without a name counts the rows, as the index of a data frame that was written with it does."""
    if not _NO_NAME.fullmatch(str(column.name)) or not column.dtype.is_integer() or column.is_null().any():
        return False
    numbers = column.to_numpy().astype(np.float64)
    return len(numbers) > 1 and bool(((np.diff(numbers) == 1) | (numbers[1:] == numbers[0])).all())


def is_blank(column: nw.Series[Any]) -> bool:
    """Whether a column has neither a name nor values, as after a separator at the end of each line."""
    return bool(_NO_NAME.fullmatch(str(column.name))) and column.null_count() == len(column)


def calendar_columns(names: Sequence[str]) -> list[str]:
    """Columns named year, month, day and perhaps hour, minute, second, as far as they are there in this order."""
    found = {name.lower(): name for name in names if isinstance(name, str)}
    parts = list(takewhile(lambda part: part in found, _CALENDAR))
    return [found[part] for part in parts] if len(parts) > 2 else []


def _are_dates(column: nw.Series[Any]) -> bool:
    """Whether all entries are dates, written in one way."""
    first = column[0]
    if not isinstance(first, str) or not _reads([first]) or column.is_null().any():
        return False
    return _reads([str(entry) for entry in column.to_list()])


def _reads(texts: list[str]) -> bool:
    """03/04/2020 alone is not a date: it may be of March or of April."""
    with suppress(DataError):
        return bool(parse_datetimes([text.strip() for text in texts], "the column"))
    return False


def _unix_time(table: nw.DataFrame[Any], names: Sequence[str]) -> str | None:
    units = {name: unit for name in names if (unit := _unix_unit(table.get_column(name)))}
    if len(units) != 1:
        return None
    ((name, unit),) = units.items()
    advice = "to fill it instead, name it among the columns (--columns)"
    warnings.warn(f"column {name!r} holds unix times in {unit} and is used as the time; {advice}", stacklevel=5)
    return name


def _unix_unit(column: nw.Series[Any]) -> str | None:
    """Seconds, milliseconds, … if a column named like a time holds moments between 1990 and 2100."""
    words = re.split(r"[^a-z]+", str(column.name).lower())
    if not {*words} & _TIME_WORDS or column.is_null().any() or column.n_unique() < 2:
        return None
    entries = column.to_list()
    if column.dtype == nw.String and not all(entry.isdigit() for entry in entries):
        return None
    numbers = [int(entry) for entry in entries]
    low, high = min(numbers), max(numbers)
    return next((unit for size, unit in _UNITS.items() if _YEAR_1990 * size <= low and high <= _YEAR_2100 * size), None)


def _from_numbers(columns: Sequence[nw.Series[Any]]) -> list[str]:
    rows = zip(*(column.to_list() for column in columns), strict=True)
    if len(columns) < 3:
        names = ", ".join(column.name for column in columns)
        raise DataError(f"columns {names} are whole numbers: a time needs at least year, month and day")
    texts: list[str] = []
    for year, month, day, *clock in rows:
        hour, minute, second = (*clock, 0, 0, 0)[:3]
        texts.append(f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}")
    return texts


def _part_texts(column: nw.Series[Any]) -> list[str]:
    """2024-03-01 of dates; 06:00 of times, of hours, and of numbers such as 600."""
    if column.dtype == nw.Date or isinstance(column.dtype, nw.Datetime):
        return [str(entry)[:10] for entry in column.to_list()]
    if column.dtype.is_integer():
        numbers = column.to_list()
        hours = max(numbers) <= 24
        return [f"{n:02d}:00" if hours else f"{n // 100:02d}:{n % 100:02d}" for n in numbers]
    if column.dtype.is_numeric():
        raise DataError(f"column {column.name!r} must hold times of the day such as 06:00 or whole hours, got numbers")
    return [_DOTTED.sub(r"\1:\2", str(entry).strip()) for entry in column.to_list()]
