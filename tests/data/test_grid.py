"""Rows that are absent from a regular grid."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpvae import DataError, Panel
from gpvae.data.files import TableFile, read_table
from gpvae.data.grid import absent_rows, with_rows

NOTATIONS = {
    "iso": "%Y-%m-%dT%H:%M",
    "seconds": "%Y-%m-%d %H:%M:%S",
    "milliseconds": "%Y-%m-%dT%H:%M:%S.000",
    "zulu": "%Y-%m-%dT%H:%M:%SZ",
    "zone": "%Y-%m-%dT%H:%M+02:00",
    "german": "%d.%m.%Y %H:%M",
    "american": "%m/%d/%Y %H:%M",
}


def completed(file: TableFile, **options: Any) -> TableFile:
    panel = file.panel(**options)
    absent = absent_rows(panel)
    assert absent is not None
    return with_rows(file, panel, absent)


def written(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("notation", NOTATIONS.values(), ids=NOTATIONS)
def test_times_are_written_like_their_neighbours(tmp_path: Path, notation: str) -> None:
    times = [dt.datetime(2024, 2, 28, 20) + dt.timedelta(hours=3 * i) for i in range(20)]
    lines = [f"{time.strftime(notation)},{i},old" for i, time in enumerate(times)]
    whole = written(tmp_path / "whole.csv", ["when,x,note", *lines])
    holes = written(tmp_path / "holes.csv", ["when,x,note", *lines[:5], *lines[8:15], *lines[16:]])
    table = completed(read_table(holes))
    table.write(tmp_path / "out.csv", table.panel().fill(table.panel().values), force=False)
    expected = whole.read_text()
    for i in (5, 6, 7, 15):
        expected = expected.replace(f",{i},old", ",,")
    assert (tmp_path / "out.csv").read_text() == expected
    assert absent_rows(table.panel()) is None


MONTH = [f"{month}/{day}/2024" for month, day in ((1, 30), (1, 31), *((2, day) for day in range(1, 18)))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["1", "2", "4", "5", "6"], ["1", "2", "3", "4", "5", "6"]),
        (["0,5", "1,0", "2,0", "2,5"], ["0,5", "1,0", "1,5", "2,0", "2,5"]),
        ([*MONTH[:4], *MONTH[15:]], MONTH),
    ],
)
def test_numbers_and_dates_without_zeros(tmp_path: Path, before: list[str], after: list[str]) -> None:
    path = written(tmp_path / "a.csv", ["t;x", *(f"{time};{i}" for i, time in enumerate(before))])
    table = completed(read_table(path), time="t")
    assert table.text is not None
    assert table.text.columns[0] == after


@pytest.mark.parametrize("order", ["by series", "by time", "descending"])
def test_rows_are_added_in_the_order_of_the_table(tmp_path: Path, order: str) -> None:
    rows = [(who, hour) for who in "ab" for hour in range(8)]
    if order == "by time":
        rows.sort(key=lambda row: row[1])
    if order == "descending":
        rows = rows[::-1]
    holes = [row for row in rows if row not in (("a", 3), ("a", 4), ("b", 5))]
    path = written(tmp_path / "a.csv", ["who,hour,x", *(f"{who},{hour},1" for who, hour in holes)])
    table = completed(read_table(path), id="who", time="hour")
    assert table.text is not None
    found = [(who, int(hour)) for who, hour in zip(*table.text.columns[:2], strict=True)]
    if order == "by time":  # of the same time, whoever comes first
        assert sorted(found, key=lambda row: (row[1], row[0])) == rows
        assert [hour for _, hour in found] == [hour for _, hour in rows]
    else:
        assert found == rows
    assert table.table["x"].null_count == 3
    assert table.table["who"].to_pylist() == [who for who, _ in found]


KINDS = [pa.timestamp("us"), pa.timestamp("ns", tz="Europe/Berlin"), pa.date32(), pa.string(), pa.int32(), pa.float32()]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_parquet_keeps_its_types(tmp_path: Path, kind: pa.DataType) -> None:
    days = [1, 2, 3, 5, 6, 9]
    values: list[Any] = [dt.datetime(2024, 3, 25, tzinfo=dt.UTC) + dt.timedelta(days=day) for day in days]
    if kind == pa.date32():
        values = [value.date() for value in values]
    elif kind == pa.string():
        values = [value.strftime("%Y-%m-%d") for value in values]
    elif not pa.types.is_timestamp(kind):
        values = days
    elif kind.tz is None:
        values = [value.replace(tzinfo=None) for value in values]
    columns = {
        "t": pa.array(values, kind),
        "x": pa.array([1.0] * 6),
        "kind": pa.array(["u", "v"] * 3).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    file = read_table(tmp_path / "a.parquet")
    table = completed(file, time="t")
    assert table.table.schema == file.table.schema
    assert table.table["x"].to_pylist() == [1, 1, 1, None, 1, 1, None, None, 1]
    panel = table.panel(time="t")
    assert np.ptp(np.diff(panel.times)) == 0


def test_irregular_times_have_no_absent_rows() -> None:
    rng = np.random.default_rng(0)
    times = np.cumsum(rng.integers(1, 9, size=50)).astype(float)
    frame = pa.table({"t": times, "x": np.ones(50)})
    assert absent_rows(Panel.from_frame(frame, time="t")) is None
    assert absent_rows(Panel.from_frame(frame.drop_columns("t"))) is None
    even = pa.table({"t": [0.0, 1, 2, 2.5, 3.5], "x": np.ones(5)})
    assert absent_rows(Panel.from_frame(even, time="t")) is None


def test_a_jump_of_a_century_is_pointed_out(tmp_path: Path) -> None:
    days = [f"2024-01-{day:02d}" for day in range(1, 20)]
    path = written(tmp_path / "a.csv", ["day,x", "1924-01-01,1", *(f"{day},1" for day in days)])
    message = r"a\.csv: 36,\d\d\d rows are absent from the time steps of 1d, the first after day 1924.*check the times"
    with pytest.raises(DataError, match=message):
        completed(read_table(path))


def test_a_notation_that_cannot_be_continued_is_refused(tmp_path: Path) -> None:
    table = pa.table({"day": ["2024W101", "2024W102", "2024W104", "2024W105"], "x": [1.0, 2, 3, 4]})
    with pytest.raises(DataError, match=r"column 'day': cannot write a time .* later than '2024W102' in the same way"):
        completed(TableFile(tmp_path / "a.parquet", table), time="day")
