"""Tables in odd notations, for `robustness_files.py`: each is filled without changing a value, or refused with advice.

A table of two series, with dates, numbers, text and gaps, is written in every combination of separators, decimal marks,
encodings, headers, notations of time and codes for missing values; with the options that say so it must be filled, and
without them filled, or refused in a line that names an option. Then come small oddities, one by one.
"""

import csv
import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from typer.testing import CliRunner, Result

from gpvae import cli

ROWS = 12
SEPARATORS = {",": [], ";": [], "\t": [], "|": [], ":": ["--separator", ":"]}
ENCODINGS = {"utf-8": [], "utf-8-sig": [], "utf-16": [], "latin-1": ["--encoding", "latin-1"]}
GAPS = {"": [], "NA": [], "-999": ["--missing", "-999"], "-": ["--missing", "-"]}
TIMES = {"%Y-%m-%d": [], "%d.%m.%Y": [], "%Y%m%dT%H%M": [], "apart": ["--time", "day,clock"]}
HEADERS: dict[str, list[str]] = {
    "plain": [],
    "none": ["--no-header"],
    "units": ["--units-row"],
    "title": ["--skip-rows", "1"],
}

Count = tuple[int, int]


class Odd(NamedTuple):
    content: bytes
    options: list[str]
    cells: int  # gaps


def table(separator: str, decimal: str, encoding: str, gap: str, time: str, header: str) -> Odd:
    """Days, sites and numbers in one notation."""
    names = ["day", "site", "härte", "count"]
    rows = [[f"{1 + i // 2:02d}", "AB"[i % 2], f"{i * 1.5:.1f}".replace(".", decimal), str(i)] for i in range(2 * ROWS)]
    for i in (5, 8, 15):
        rows[i][2 + i % 2] = gap
    for row in rows:
        row[:1] = [f"2024-02-{row[0]}", "06:00"] if time == "apart" else [_moment(row[0], time)]
    names[:1] = ["day", "clock"] if time == "apart" else ["day"]
    head = {"none": [], "units": [names, ["-"] * len(names)], "title": [["Station 7"], names]}.get(header, [names])
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator, lineterminator="\n").writerows([*head, *rows])
    site = f"column {len(names) - 2}" if header == "none" else "site"
    when = TIMES[time] if header != "none" else (["--time", "column 1,column 2"] if time == "apart" else [])
    options = [*SEPARATORS[separator], *ENCODINGS[encoding], *GAPS[gap], *when, *HEADERS[header], "--id", site]
    return Odd(text.getvalue().encode(encoding), options, 3)


def _moment(day: str, pattern: str) -> str:
    return pattern.replace("%Y", "2024").replace("%m", "02").replace("%d", day).replace("%H", "06").replace("%M", "00")


def combinations() -> Iterator[Odd]:
    marks = [(mark, decimal) for mark in SEPARATORS for decimal in ".,"]
    for (mark, decimal), encoding, gap, time, header in itertools.product(marks, ENCODINGS, GAPS, TIMES, HEADERS):
        yield table(mark, decimal, encoding, gap, time, header)


ODDITIES: list[bytes] = [
    b"", b"\n\n\n", b"x", b"x\n", b",\n,\n", b"x,x\n1,2\n", b"x,y\n1\n", b"x,y\n1,2,3\n", b'x\n"1\n', b"x\n1\n\0\n",
    b"\xff\xfe", b"\xef\xbb\xbf", b"\x1f\x8b\x08", b"PK\x03\x04", b"PAR1", b"ARROW1", b"{}", b"[]", b'{"a":[1]}',
    b"x\ninf\n1\n", b"x\n1e999\n1\n", b"x\n1_000\n2\n", b"x\n0x10\n2\n", b"x\n1%\n2%\n", b"x\n$1\n$2\n",
    b"x\n1 m\n2 m\n",
    b"x,t\n1,2024-13-45\n,2024-01-02\n", b"t,x\n2024-01-01,1\n2024-01-01,\n", b"t,x\n03/04/2024,1\n04/05/2024,\n",
    b"t,x\n2024-01-01T00:00Z,1\n2024-01-02,\n", b"t,x\n,1\n2024-01-01,\n", b"t,x\n24:00,1\n25:00,\n",
    b"x\n" + b"9" * 400 + b"\n1\n\n", b"x\n" + b"1\n" * 5, b"x,y\n" + b"1" * 200_000 + b"\n", b"x\n-\n-\n",
    b"a b\n1 2\n3\n", b"a  b\n1  2\n3  NA\n", b"1\n2\n\n4\n", b"x;y\n1,5;2\n;3\n", b'x,y\n"1,5",2\n,3\n',
    b'x\n"1,234"\n\n',
    b"x,y\n1,=1+1\n,@a\n3,-b\n", b"x\n=1\n", b"\xd0\xe9,x\n1,2\n", "温度,x\n1,\n3,4\n".encode(), b"x\r1\r\r3\r",
]  # fmt: skip


def filled(odd: Odd, *, told: bool) -> Result:
    Path("in.csv").write_bytes(odd.content)
    Path("out.csv").unlink(missing_ok=True)
    options = odd.options if told else []
    return CliRunner().invoke(cli.app, ["impute", "in.csv", "-o", "out.csv", "--method", "linear", *options])


def is_filled(odd: Odd, result: Result) -> bool:
    """Whether all gaps were filled, and everything else is as it was."""
    encoding = dict(zip(odd.options[::2], odd.options[1::2], strict=False)).get("--encoding", "")
    if result.exit_code or f"filled {odd.cells} cells" not in result.output:
        return False
    before, after = odd.content, Path("out.csv").read_bytes()
    for name in (encoding, "utf-16" if before[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8"):
        if name:
            lines = zip(before.decode(name).splitlines(), after.decode(name).splitlines(), strict=True)
            return sum(old != new for old, new in lines) == odd.cells
    return False


def is_said(result: Result) -> bool:
    """Whether a table was filled, or refused in one line; never with a traceback."""
    errors = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    known = result.exception is None or isinstance(result.exception, SystemExit)
    return known and (result.exit_code == 0 or (result.exit_code == 1 and len(errors) == 1))


def inputs() -> Count:
    """In the current folder."""
    tried = handled = 0
    for odd in combinations():
        result, untold = filled(odd, told=True), None
        good = is_filled(odd, result)
        untold = filled(odd, told=False)
        good &= is_said(untold)
        if not good:
            print(
                f"  not handled: {odd.options} {odd.content[:90]!r}: {result.output[-200:]!r} {untold.output[-200:]!r}"
            )
        tried, handled = tried + 1, handled + good
    for content in ODDITIES:
        result = filled(Odd(content, [], 0), told=False)
        if not is_said(result):
            print(f"  not handled: {content[:60]!r}: {result.output[-300:]} {result.exception!r}")
        tried, handled = tried + 1, handled + is_said(result)
    return tried, handled
