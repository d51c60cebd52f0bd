"""Tables as people have them: notations, formats and places, and the option that helps where one is misread."""

import datetime as dt
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from commands import Run, cells
from typer.testing import CliRunner

from gpvae import cli

HOURS = "2024-01-01 00:00 1\n2024-01-01 01:00 NA\n2024-01-01 02:00 3\n"
CODED = "t,x\n" + "".join(f"{i},{'' if i == 5 else -999 if i % 7 == 0 else 15 + i % 5}\n" for i in range(40))


def impute(run: Run, name: str, content: str | bytes, *options: str) -> tuple[str, str | None]:
    """What is printed, and the filled table, if there is one."""
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    result = run("impute", name, "-o", "out.csv", "--method", "linear", *options)
    out = Path("out.csv")
    assert result.exit_code == (0 if out.exists() else 1), result.output
    return result.output, out.read_bytes().decode("latin-1") if out.exists() else None


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("a  b   c\n1  2   3\n4  NA  6\n7  8   9\n", "", "a b c\n1 2 3\n4 5 6\n7 8 9\n"),
        ("  a b\n  1 2\n 10 NA\n", "", "a b\n1 2\n10 2\n"),
        ("a:b\n1:2\n3:\n5:6\n", "--separator :", "a:b\n1:2\n3:4\n5:6\n"),
        ("a\tb\n1\t2\n3\t\n5\t6\n", "--separator tab", "a\tb\n1\t2\n3\t4\n5\t6\n"),
        (f"date time v\n{HOURS}", "--time date,time", "date time v\n" + HOURS.replace("NA", "2")),
        (
            "year,month,day,hour,pm\n2010,1,1,0,5\n2010,1,1,1,\n2010,1,1,3,8\n",
            "--time year,month,day,hour",
            "year,month,day,hour,pm\n2010,1,1,0,5\n2010,1,1,1,6\n2010,1,1,3,8\n",
        ),
        (
            "Date;Time;CO\n13/03/2004;18.00.00;2,0\n13/03/2004;19.00.00;-200\n13/03/2004;20.00.00;3,0\n",
            "--time Date,Time --missing -200",
            "Date;Time;CO\n13/03/2004;18.00.00;2,0\n13/03/2004;19.00.00;2,5\n13/03/2004;20.00.00;3,0\n",
        ),
        ("day,hour,x\n2024-01-01,1,5\n2024-01-01,2,\n2024-01-01,4,8\n", "--time day,hour", None),
        ("day,clock,x\n2024-01-01,100,5\n2024-01-01,230,\n2024-01-01,400,9\n", "--time day,clock", None),
        ("t,x\n31/01/2024 1:00 PM,1\n31/01/2024 2:00 PM,\n31/01/2024 3:00 PM,5\n", "--max-gap 1h", None),
        ("t,x\n01-Jan-2024,1\n02-Jan-2024,\n03-Jan-2024,5\n", "--max-gap 1d", None),
        ('x,y\n"-200,0",1\n"2,5",2\n', "--missing -200", 'x,y\n"2,5",1\n"2,5",2\n'),
        ('x,y\n"-9,999",1\n"2,500",2\n', "--missing -9999 --decimal .", 'x,y\n"2,500",1\n"2,500",2\n'),
        ("d;x;\n2024-01-01;1;\n2024-01-03;;\n;;\n;;\n", "", "d;x;\n2024-01-01;1;\n2024-01-03;1;\n"),
        ("x;y\n1;2\n2;3\n;\n", "", "x;y\n1;2\n2;3\n2;3\n"),
        ("1,5\n2,\n3,7\n", "--no-header", "1,5\n2,6\n3,7\n"),
        ("x,y\ndegC,hPa\n1,5\n,6\n3,7\n", "--units-row", "x,y\ndegC,hPa\n1,5\n2,6\n3,7\n"),
        ("Station 7\nx,y\n1,5\n,6\n3,7\n", "--skip-rows 1", "Station 7\nx,y\n1,5\n2,6\n3,7\n"),
        ("é,x\na,1\nb,\nc,3\n".encode("latin-1"), "--encoding latin-1", "é,x\na,1\nb,2\nc,3\n"),
        ('x,y\n"1,5",1\n,2\n"2,5",3\n', "", 'x,y\n"1,5",1\n"2,0",2\n"2,5",3\n'),
        ('x,y\n"1,5","1,234"\n"2,5",\n', "", 'x,y\n"1,5","1,234"\n"2,5","1,234"\n'),
        ('x,y\n1.5,"1,234"\n2.5,\n3.5,"2,000"\n', "", 'x,y\n1.5,"1,234"\n2.5,"1,617"\n3.5,"2,000"\n'),
        ('x\n"1,234,567"\n\n"1,234,569"\n', "", 'x\n"1,234,567"\n"1,234,568"\n"1,234,569"\n'),
        ("x;y\n1.234,5;1\n;2\n1.235,5;3\n", "", "x;y\n1.234,5;1\n1.235,0;2\n1.235,5;3\n"),
        ('x,y\n1,"1,234"\n2,\n3,"1,236"\n', "--decimal .", 'x,y\n1,"1,234"\n2,"1,235"\n3,"1,236"\n'),
        ('x,y\n1,"1,234"\n2,\n3,"1,236"\n', "--decimal ,", 'x,y\n1,"1,234"\n2,"1,235"\n3,"1,236"\n'),
        ("id,x\n1234567890123456789,1\n1234567890123456788,\n", "--id id", None),
        ("s,x\n=1+1,1\n@a,\n-b,3\n", "", "s,x\n=1+1,1\n@a,2\n-b,3\n"),
        ("s,x\n=1+1,-1\n@a,\n-b,-3\n", "--escape-formulas", "s,x\n'=1+1,-1\n'@a,-2\n'-b,-3\n"),
    ],
)  # fmt: skip
def test_notations(run: Run, content: str | bytes, options: str, expected: str | None) -> None:
    _, out = impute(run, "in.csv", content, *options.split())
    assert out is not None
    if expected is not None:
        assert out == expected


def test_ends_of_intervals_are_na_between_spaces_and_have_units(run: Run) -> None:
    lines = "".join(f"{i} {'NA' if i == 3 else i % 5}\n" for i in range(60))
    _, out = impute(run, "in.txt", f"t x\ns K\n{lines}", "--conformal", "--interval", "0.5", "--units-row")
    assert out is not None
    assert out.splitlines()[:3] == ["t x x_lower x_upper", "s K K K", "0 0 NA NA"]


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ("2024-01-01,5\n2024-01-02,\n2024-01-03,7\n", "the first row looks like data, but is taken for the names"),
        ("x,y\ndegC,5\n1,\n2,6\n3,7\n", "holds 'degC' in row 1; if that is a unit, say --units-row"),
        ("x,y\n1,5\n-,\n2,6\n3,7\n", "holds '-' in row 2; if that marks a missing value, say --missing '-'"),
        ('x,y\n1,"1,234"\n2,\n', "'1,234' may be a decimal fraction or thousands; say --decimal , or --decimal ."),
        (",x\n0,5\n1,\n2,7\n", "'column 1' counts the rows: it is left unchanged"),
        ("x,p\n1,10%\n2,\n3,30%\n", "column 'p' is text and left unchanged: it holds '10%'; to have it filled, leave"),
        ("x;p\n1;1.5\n2;\n3;2,5\n", "its numbers have decimal points and commas; say --decimal . or --decimal ,"),
        (
            "year,month,day,x\n2024,1,1,5\n2024,1,2,\n",
            "columns year, month, day look like times, but are taken for val",
        ),
        ("timestamp,x\n1600000000,5\n1600003600,\n", "'timestamp' holds unix times in seconds and is used as the time"),
        ("ts,x\n1600000000000,5\n1600000003600,\n", "unix times in milliseconds"),
        ("time,x\n1600000000000000001,5\n1600000000000000002,\n", "unix times in nanoseconds"),
        (
            "id,x\n1234567890123456789,1\n1234567890123456788,\n",
            "whole numbers of up to 19 digits, which are taken for",
        ),
        (CODED, "column 'x' holds -999 in 6 cells, far from its other values; if it marks missing values, say --miss"),
        (CODED.replace("-999", "9.96921e+36"), "say --missing 9.96921e+36"),
        (CODED.replace("7,-999", "7,1e25").replace("-999", "16"), "'x' holds 1e+25 in 1 cell"),
    ],
)
def test_what_is_doubtful_is_noted_with_the_option(run: Run, content: str, note: str) -> None:
    output, out = impute(run, "in.csv", content)
    assert [line for line in output.splitlines() if line.startswith("Note: ") and note in line], output
    assert out is not None
    given = [line.split(",") for line in content.splitlines()]
    kept = [line.split(",") for line in out.splitlines()]
    for was, now in zip(given, kept, strict=True):
        assert all(old in ("", new) for old, new in zip(was, now, strict=False))  # nothing was changed


@pytest.mark.parametrize(
    ("name", "content", "options", "error"),
    [
        ("in.csv", b"x,y\n1,\xe9\n", "", "is not UTF-8 text; if it has another encoding, name it: --encoding latin-1"),
        ("in.csv", "x,é\n1,2\n".encode("utf-16-le"), "", "name it: --encoding utf-16-le or utf-16-be"),
        ("in.csv", "x,y\n1,2\n".encode("utf-16-le"), "", "is not text; say --encoding utf-16-le or utf-16-be"),
        ("in.csv", b"x,y\n1,2\n", "--encoding latin-99", "there is no text encoding 'latin-99'"),
        ("in.csv", b"x,y\n1,2\n", "--separator ab", "the separator must be one mark, such as ; or tab, got 'ab'"),
        ("in.csv", b"x,y\n1,2\n", "--decimal x", "the decimal mark must be . or , got 'x'"),
        ("in.csv", b"x,y\n1,2\n", "--no-header --units-row", "--units-row does not go with --no-header"),
        ("in.csv", b"x\ta\n", "", "has a header but no rows; if that line is data, say --no-header"),
        ("in.csv", b"Station 7\nx,y\n1,5\n2,6\n", "", "got 2; pass over the lines above the header by --skip-rows"),
        ("in.csv", b"x,y\nm,K\n1,5\n2,6\n", "", "no numeric column to fill: in column 'x' it holds 'm' in row 1; if"),
        ("in.csv", b"x,y\n1,2\n3,inf\n", "", "column 'y', row 2; if it marks a missing value, say --missing inf"),
        ("in.csv", b"PK\x03\x04\0\0", "", "it looks like a .xlsx file: rename it"),
        ("in.csv", b"a:b\n1:2\n3:4\n", "", "separated by another mark than , ; tab or |, name it by --sep"),
        ("in.csv", f"date,time,v\n{HOURS.replace(' ', ',')}".encode(), "", "the time of day: --time DATE,TIME"),
        ("in.csv", f"date,time,v\n{HOURS.replace(' ', ',')}".encode(), "--time date,time --add-rows",
         "--add-rows needs the time in one column"),
        ("in.csv", b"t,x\n00:00,1\n01:00,2\n", "--time t", "a time of the day needs its date: --time DATE,TIME"),
        ("in.csv", b"a,b,x\n1,2,3\n2,3,4\n", "--time a,b", "whole numbers: a time needs at least year, month and day"),
        ("in.csv", b"a,b,x\n2024-01-01,,3\n", "--time a,b", "the time in column 'b' is missing in row 1"),
        ("in.json", b"{}", "", "write one JSON object in each line and name it .jsonl"),
        ("in.xls", b"", "", "save it as .xlsx in your spreadsheet program"),
        ("in.jsonl", b'{"a":1}\n[1]\n', "", 'in.jsonl, line 2: each line must hold an object, such as {"time": 1'),
        ("in.jsonl", b'{"a":1}\n{"a":\n', "", "in.jsonl, line 2, is not JSON: Expecting value"),
        ("in.jsonl", b'{"a":1,"b":{"c":2}}\n', "", "line 1: 'b' must hold a number or text, not a list or an object"),
        ("in.feather", b"ARROW1", "", "in.feather is damaged or not a Feather file"),
        ("in.xlsx", b"PK\x03\x04", "", "in.xlsx is damaged or not an Excel file"),
    ],
)  # fmt: skip
def test_refusals_name_the_culprit_and_the_option(
    run: Run, name: str, content: bytes, options: str, error: str
) -> None:
    output, out = impute(run, name, content, *options.split())
    assert out is None
    (line,) = [line for line in output.splitlines() if line.startswith("Error: ")]
    assert error in line


def test_nanoseconds_are_different_times(run: Run) -> None:
    for times in ("2024-01-01T00:00:00.00000000{}", "160000000000000000{}"):
        content = "time,x\n" + "".join(f"{times.format(i)},{'' if i == 3 else i}\n" for i in (1, 2, 3, 5))
        _, out = impute(run, "in.csv", content, "--time", "time")
        assert out == content.replace("3,\n", "3,3\n")
        Path("out.csv").unlink()


def test_missing_codes_are_filled_and_columns_of_text_become_numbers(run: Run) -> None:
    content = CODED.replace("39,19", "39,-")
    output, out = impute(run, "in.csv", content, "--missing", "-999.0,-")
    assert "filled 8 cells" in output
    assert out is not None
    assert "-" not in out


def test_missing_codes_in_parquet_and_feather(run: Run) -> None:
    table = pa.table({"x": [1.0, -999.0, 3.0], "n": [1, 2, -999], "s": ["a", "-999", "b"]})
    feather.write_feather(table, "in.feather")
    result = run("impute", "in.feather", "-o", "out.feather", "--method", "linear", "--missing", "-999")
    assert result.exit_code == 0, result.output
    assert feather.read_table("out.feather").to_pydict() == {"x": [1, 2, 3], "n": [1, 2, 2], "s": ["a", None, "b"]}


def test_ids_that_differ_only_as_text_are_several_series(run: Run) -> None:
    content = "id,t,x\n01,1,5\n01,2,\n01,3,7\n1,1,100\n1,2,\n1,3,200\n1.0,1,1000\n1.0,2,\n1.0,3,2000\n"
    output, out = impute(run, "in.csv", content, "--id", "id", "--time", "t")
    assert "3 series" in output
    assert out == content.replace("01,2,", "01,2,6").replace("\n1,2,", "\n1,2,150").replace("\n1.0,2,", "\n1.0,2,1500")


@pytest.mark.parametrize("names", [["folder"], ["folder/*.csv"], ["folder/south.csv", "folder/north.csv"]])
def test_several_files_are_series_named_by_their_files(run: Run, names: list[str]) -> None:
    Path("folder").mkdir()
    Path("folder/notes.md").write_text("not a table")
    Path("folder/north.csv").write_text("t,x\n1,5.0\n2,\n3,7.0\n")
    Path("folder/south.csv").write_text("t,x,y\n1,15,1\n2,,2\n3,17,3\n")
    result = run("impute", *names, "-o", "out.csv", "--time", "t", "--method", "linear")
    assert result.exit_code == 0, result.output
    assert "2 series, 6 steps, 2 columns" in result.output
    header, *rows = cells(Path("out.csv"))
    assert sorted(header) == ["file", "t", "x", "y"]
    values = [(row[0], row[header.index("t")], row[header.index("x")]) for row in sorted(rows)]
    assert values[:3] == [("north", "1", "5.0"), ("north", "2", "6.0"), ("north", "3", "7.0")]
    assert values[4] == ("south", "2", "16.0")


def test_a_model_of_several_files_fills_one(run: Run) -> None:
    Path("a.csv").write_text("t,x\n1,5\n2,6\n3,7\n")
    Path("b.csv").write_text("t,x\n1,5\n2,\n3,9\n")
    fitted = run("fit", "a.csv", "b.csv", "-o", "model", "--time", "t", "--method", "linear")
    assert fitted.exit_code == 0, fitted.output
    result = run("impute", "b.csv", "--model", "model", "-o", "out.csv")
    assert result.exit_code == 0, result.output
    assert Path("out.csv").read_text() == "t,x\n1,5\n2,7\n3,9\n"


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["a.csv", "a.csv"], "a.csv is named twice"),
        (["x*.csv"], "no file matches x*.csv"),
        (["empty"], "empty is a folder without tables"),
        (["a.csv", "nowhere.csv"], "there is no file nowhere.csv"),
        (["a.csv", "f.csv"], "f.csv: it has a column named 'file'"),
        (["-", "-"], "standard input is named twice"),
        (["points.csv", "commas.csv"], "decimal points in points.csv and decimal commas in commas.csv: convert one"),
    ],
)
def test_files_that_are_not_there(run: Run, names: list[str], error: str) -> None:
    Path("empty").mkdir()
    Path("a.csv").write_text("x\n1\n")
    Path("f.csv").write_text("file,x\n1,2\n")
    Path("points.csv").write_text("x\n1.5\n")
    Path("commas.csv").write_text("x;y\n1,5;2\n")
    result = run("impute", *names, "-o", "out.csv", "--method", "linear")
    assert result.exit_code == 1
    assert error in result.output


def test_json_lines_come_back_as_they_were(run: Run) -> None:
    lines = [
        '{"t": "2024-01-01", "x": 1.10, "id": "01", "ok": true, "z": 4}',
        '{"t": "2024-01-02", "x": null, "id": "1", "ok": false, "z": 5}',
        '{"t": "2024-01-03", "x": 3.0, "id": "01", "ok": null}',
    ]
    Path("in.jsonl").write_text("\n".join(lines))
    result = run("impute", "in.jsonl", "-o", "out.jsonl.gz", "--method", "linear")
    assert result.exit_code == 0, result.output
    written = gzip.decompress(Path("out.jsonl.gz").read_bytes()).decode().splitlines()
    assert written[0] == lines[0]
    assert written[1] == lines[1].replace("null", "2.05")
    assert json.loads(written[2]) == json.loads(lines[2]) | {"z": 5}


@pytest.mark.parametrize("suffix", ["jsonl", "xlsx", "feather", "parquet"])
def test_from_parquet_to_other_formats_and_back(run: Run, suffix: str) -> None:
    moments = [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in range(3)]
    columns = {
        "t": moments,
        "x": [0.1, None, 0.3],
        "n": [2**53 + 1, 4, 5],
        "b": [True, None, False],
        "s": ["=a", "", "c"],
    }
    feather.write_feather(pa.table(columns), "in.feather")
    result = run("impute", "in.feather", "-o", f"a.{suffix}", "--method", "linear")
    assert result.exit_code == 0, result.output
    again = run("impute", f"a.{suffix}", "-o", "b.csv", "--method", "linear")
    assert again.exit_code == 0, again.output
    header, *rows = cells(Path("b.csv"))
    assert header == ["t", "x", "n", "b", "s"]
    assert [row[1:3] for row in rows] == [["0.1", "9007199254740993"], ["0.2", "4"], ["0.3", "5"]]
    assert [row[3].lower() for row in rows] == ["true", "", "false"]
    assert [row[4] for row in rows] == ["=a", "", "c"]
    assert [dt.datetime.fromisoformat(row[0]) for row in rows] == moments


def workbook(rows: list[list[Any]]) -> None:
    book = openpyxl.Workbook()
    assert book.active
    book.active.title = "notes"
    sheet = book.create_sheet("values")
    for row in rows:
        sheet.append(row)
    book.save("in.xlsx")


def test_excel_comes_back_as_it_was(run: Run) -> None:
    days = [dt.datetime(2024, 1, day, 6) for day in range(1, 5)]
    workbook([["when", "x", "id", "note"], *([day, day.day * 1.5, "01", "a"] for day in days)])
    book = openpyxl.load_workbook("in.xlsx")
    book["values"]["B3"].value = None
    book["values"]["D2"].value, book["values"]["D2"].data_type = "=1+1", "s"
    book.save("in.xlsx")
    words = ("impute", "in.xlsx", "--method", "linear", "--sheet", "values")
    result = run(*words, "-o", "out.xlsx")
    assert result.exit_code == 0, result.output
    assert "time: when" in result.output
    sheet = openpyxl.load_workbook("out.xlsx").active
    assert sheet
    assert [[cell.value for cell in row] for row in sheet.iter_rows()] == [
        ["when", "x", "id", "note"],
        [days[0], 1.5, "01", "=1+1"],
        [days[1], 3, "01", "a"],
        [days[2], 4.5, "01", "a"],
        [days[3], 6, "01", "a"],
    ]
    assert sheet["D2"].data_type == "s"  # not a formula
    empty = run("impute", "in.xlsx", "-o", "b.xlsx", "--method", "linear")
    assert "in.xlsx: the sheet 'notes' is empty; choose another by --sheet" in empty.output
    unknown = run("impute", "in.xlsx", "-o", "b.xlsx", "--method", "linear", "--sheet", "3")
    assert "in.xlsx has no sheet '3'; there are notes, values: see --sheet" in unknown.output


def test_without_openpyxl_the_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    workbook([["x"], [1], [2]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    result = run("impute", "in.xlsx", "-o", "out.csv", "--method", "linear")
    assert "Excel files need openpyxl: pip install 'gpvae[excel]'" in result.output


@pytest.mark.parametrize("packed", [False, True])
def test_standard_input_and_output(packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = b"x,y\n1,2\n,3\n5,4\n"
    words = ["impute", "-", "-o", "-", "--method", "linear"]
    result = CliRunner().invoke(cli.app, words, input=gzip.compress(table) if packed else table)
    assert result.exit_code == 0, result.output
    assert result.stdout == "x,y\n1,2\n3,3\n5,4\n"
    assert "standard input: 1 series, 3 steps" in result.stderr
    assert "filled 1 cells" in result.stderr
    assert not [*Path().iterdir()]
    empty = CliRunner().invoke(cli.app, words, input=b"")
    assert "Error: standard input is empty" in empty.output


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of another kind")
def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x,word\n" + "".join(f"{i or ''},{'w' * 100}\n" for i in range(30_000)))
    words = [sys.executable, "-m", "gpvae", "impute", "in.csv", "-o", "-", "--method", "linear", "--quiet"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert b"Broken" not in process.stderr.read()
        assert process.wait(timeout=60) == 141


@pytest.mark.parametrize("value", ["1e25", "-1e200", "1e308"])
def test_one_huge_cell_does_not_empty_its_column(run: Run, value: str) -> None:
    Path("in.csv").write_text(
        "x\n" + "".join(f"{value if i == 7 else 15 + i % 5 if i % 3 else 'NA'}\n" for i in range(60))
    )
    for method in ("linear", "gp-factor") if value == "1e25" else ("linear",):
        result = run("impute", "in.csv", "-o", f"{method}.csv", "--method", method)
        assert result.exit_code == 0, result.output
        assert "filled 20 cells" in result.output
        assert "stay empty" not in result.output
        assert all(row[0] for row in cells(Path(f"{method}.csv")))


@pytest.mark.parametrize("numbers", [("1000000000000000", "1000000000000001"), ("1e-300", "2e-300"), ("0.1", "0.2")])
def test_close_and_tiny_numbers_are_not_constant(run: Run, numbers: tuple[str, str]) -> None:
    Path("in.csv").write_text("x\n" + "".join(f"{'NA' if i == 9 else numbers[i // 2 % 2]}\n" for i in range(60)))
    result = run("impute", "in.csv", "-o", "out.csv", "--method", "linear")
    assert result.exit_code == 0, result.output
    assert "is constant" not in result.output


def test_cells_that_stay_empty_are_counted(run: Run) -> None:
    output, _ = impute(run, "in.csv", "x,z\n1,\n,\n3,\n")
    assert "filled 1 cells" in output
    assert "3 cells stay empty: no value could be found for them in z" in output
