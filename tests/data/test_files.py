"""CSV and Parquet files: observed values are written back unchanged, and messages name what is wrong."""

import csv
import datetime as dt
import gzip
import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gpvae.data.files import read, read_table
from gpvae.data.formats import file_kind
from gpvae.data.panel import DataError
from gpvae.data.reading import Reading


def written(folder: Path, text: str | bytes, name: str = "in.csv") -> Path:
    path = folder / name
    content = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


def filled(source: Path, target: Path, value: float, extra: list[str] | None = None, **options: Any) -> Path:
    """Read, put one value into all gaps and extra columns, and write."""
    table = read_table(source)
    panel = table.panel(**options)
    columns = {name: np.full(len(panel.values), value) for name in extra or []}
    table.write(target, panel.fill(np.full(panel.values.shape, value), columns), force=False)
    return target


class TestCsv:
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ("x,y\n1.10,+2\n,3\n1e3,\n", "x,y\n1.10,+2\n7.75,3\n1e3,8\n"),
            ("x;y\n1,10;a\n;b\n-0,5;c\n", "x;y\n1,10;a\n7,75;b\n-0,5;c\n"),
            ("x\ty\n1.5\t2\nNA\t3\n", "x\ty\n1.5\t2\n7.8\t3\n"),
            ("x|y\n1.5|2\n ? | 3 \n", "x|y\n1.5|2\n7.8| 3 \n"),
            ("\ufeffx,y\n1.5,é\n,ü\n", "\ufeffx,y\n1.5,é\n7.8,ü\n"),
            ("x,y\r\n1,2\r\nnull,3\r\n", "x,y\r\n1,2\r\n8,3\r\n"),
            ("x,y\r1,2\r,3\r", "x,y\r1,2\r8,3\r"),
            ('"x, in\nm",note\n1.5,"a, ""b""\nc"\n,\'d\'\n', '"x, in\nm",note\n1.5,"a, ""b""\nc"\n7.8,\'d\'\n'),
            ('"x\nm",y\r\n1,"a\nb"\r\n,c\r\n', '"x\nm",y\r\n1,"a\nb"\r\n8,c\r\n'),
            (",x\na,1.5\nb,\n", ",x\na,1.5\nb,7.8\n"),
            ("x , y\n007,1\n,2\n", "x , y\n007,1\n8,2\n"),
            ("\nx,y\n\n1,2\n,3\n\n\n", "x,y\n1,2\n8,3\n"),
            ("x\n1.5\n\n2.5\n\n", "x\n1.5\n7.8\n2.5\n"),
            ("x,y\n1.5,2\n,3", "x,y\n1.5,2\n7.8,3\n"),
            ("x,y\n123456789012345678,0\n,1\n", "x,y\n123456789012345678,0\n8,1\n"),
            ("x,y\n1.,0\n,1\n", "x,y\n1.,0\n8,1\n"),
            ("x,y\n1.5,\n,\n", "x,y\n1.5,7.75\n7.8,7.75\n"),
        ],
        ids=[
            "mixed", "decimal comma", "tab", "bar", "byte order mark", "crlf", "cr", "quotes", "quotes and crlf",
            "no name", "spaces and zeros", "empty lines", "one column", "no last newline", "long", "point", "empty",
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("end", ["", ".gz"])
    def test_observed_cells_are_written_back_unchanged(self, tmp_path: Path, before: str, after: str, end: str) -> None:
        source = written(tmp_path, before, "in.csv" + end)
        content = filled(source, tmp_path / ("out.csv" + end), 7.75).read_bytes()
        assert (gzip.decompress(content) if end else content).decode() == after

    def test_cells_that_stay_missing_keep_their_text(self, tmp_path: Path) -> None:
        text = "x,y\nNA,nan\n-nan,#N/A\n1.5,2\n"
        assert filled(written(tmp_path, text), tmp_path / "out.csv", np.nan).read_text() == text

    def test_extra_columns_are_formatted_like_their_column(self, tmp_path: Path) -> None:
        source = written(tmp_path, "x;n\n1,5;1\n2,5;\n")
        out = filled(source, tmp_path / "out.csv", 7.75, ["x_lower", "n_upper", "other"])
        assert out.read_text() == "x;n;x_lower;n_upper;other\n1,5;1;7,7;8;7,75\n2,5;8;7,7;8;7,75\n"

    def test_ends_of_intervals_are_rounded_outward(self, tmp_path: Path) -> None:
        source = written(tmp_path, "x,n\n0.29,1\n,\n")
        for value, x, n in ((0.29, "0.29,0.29", "0,1"), (-0.291, "-0.30,-0.29", "-1,0"), (1e20, None, None)):
            names = ["x_lower", "x_upper", "n_lower", "n_upper"]
            out = filled(source, tmp_path / f"{value}.csv", value, names).read_text().splitlines()
            if x:
                assert out[1] == f"0.29,1,{x},{n}"
            else:
                assert out[1].startswith("0.29,1,100000000000000000000.00,1000")

    def test_a_comma_in_text_is_not_a_decimal_mark(self, tmp_path: Path) -> None:
        source = written(tmp_path, "x;n;s\n1.5;1;a, b\n2.5;;c\n")
        out = filled(source, tmp_path / "out.csv", 7.75, ["n_upper"])
        assert out.read_text() == "x;n;s;n_upper\n1.5;1;a, b;8\n2.5;8;c;8\n"

    def test_only_the_chosen_columns_change(self, tmp_path: Path) -> None:
        source = written(tmp_path, "x,y\n1,2\n,\n")
        assert filled(source, tmp_path / "out.csv", 7.75, columns=["y"]).read_text() == "x,y\n1,2\n,8\n"

    def test_rows_keep_their_order(self, tmp_path: Path) -> None:
        source = written(tmp_path, "who,t,x\nb,2,1\na,3,\nb,1,2\na,2,4\n")
        table = read_table(source)
        panel = table.panel(id="who", time="t")
        np.testing.assert_array_equal(panel.values[:, 0], [2, 1, 4, np.nan])
        table.write(tmp_path / "out.csv", panel.fill(np.arange(4.0)[:, None]), force=False)
        assert (tmp_path / "out.csv").read_text() == "who,t,x\nb,2,1\na,3,3\nb,1,2\na,2,4\n"

    @pytest.mark.parametrize(
        ("cells", "dtype"),
        [
            (["1", "-2", "NA"], pa.int64()),
            (["1", "2.5", ""], pa.float64()),
            (["1,5", "2", "?"], pa.float64()),
            (["", "", ""], pa.float64()),
            (["1.234,5", "6,7", "8"], pa.float64()),
            (["1.234", "5,6", "8"], pa.string()),
            (["1_000", "2", "3"], pa.string()),
            (["9" * 19, "9" * 18 + "8", "1"], pa.string()),
            (["NA", "a", "b"], pa.string()),
            (["2020-01-01", "", "2020-01-03"], pa.timestamp("us")),
            (["31.12.2020 13:45", "01.01.2021 00:00", "NA"], pa.timestamp("us")),
            (["2020-01-01T00:00Z", "2020-01-01T01:00Z", "NA"], pa.timestamp("us", tz="UTC")),
            (["2020-01-01T00:00+02:00", "2020-01-02T00:00+02:00", "NA"], pa.timestamp("us", tz="+02:00")),
            (["2020-01-01T00:00+02:00", "2020-01-02T00:00+01:00", "NA"], pa.timestamp("us", tz="UTC")),
            (["03/04/2020", "05/06/2020", "07/08/2020"], pa.string()),
        ],
    )
    def test_types(self, tmp_path: Path, cells: list[str], dtype: pa.DataType) -> None:
        table = read_table(written(tmp_path, "\n".join(["x;y", *(f"{cell};1" for cell in cells)]))).table
        assert table.schema.field("x").type == dtype
        absent = {"", "?", "NA"} if dtype != pa.string() else {""}
        assert [cell is None for cell in table["x"].to_pylist()] == [cell in absent for cell in cells]

    def test_long_integers_are_read_as_text(self, tmp_path: Path) -> None:
        names = ["9" * 20, "9" * 19 + "8"]
        panel = read(written(tmp_path, f"who,x\n{names[0]},1\n{names[1]},2\n"), id="who")
        assert panel.ids == tuple(names)

    def test_the_only_date_column_is_the_time(self, tmp_path: Path) -> None:
        panel = read(written(tmp_path, "x,day\n2,2012/01/03\n1,2012/01/01\n"))
        assert panel.columns == ("x",)
        assert panel.clock == "datetime"
        np.testing.assert_array_equal(panel.values[:, 0], [1, 2])
        np.testing.assert_array_equal(panel.times, [0, 172800])

    def test_a_large_table_of_special_characters(self, tmp_path: Path) -> None:
        """Against the csv module alone: only gaps differ."""
        rng = np.random.default_rng(0)
        cells = [[f"{number:.{digits}f}" for digits, number in enumerate(row)] for row in rng.normal(size=(300, 5))]
        for row, column in zip(rng.integers(300, size=200), rng.integers(5, size=200), strict=True):
            cells[row][column] = rng.choice(["", "NA", "NaN"])
        lines = "\n".join(",".join(row) for row in [list("abcde"), *cells]) + "\n"
        out = filled(written(tmp_path, lines), tmp_path / "out.csv", 0.125)
        new = ["0", "0.1", "0.12", "0.125", "0.1250"]
        expected = [[new[j] if cell in ("", "NA", "NaN") else cell for j, cell in enumerate(row)] for row in cells]
        assert list(csv.reader(io.StringIO(out.read_text())))[1:] == expected


def pandas_frame() -> pd.DataFrame:
    times = pd.date_range("2020-03-28", periods=4, tz="Europe/Berlin")
    return pd.DataFrame(
        {
            "x": [1.5, np.nan, 3.5, 4.5],
            "f": np.array([0.1, 0.2, np.nan, 0.4], np.float32),
            "n": pd.array([2**53 + 1, None, 3, 4], dtype="Int64"),
            "c": pd.Categorical(["u", "v", None, "u"], categories=["v", "u"], ordered=True),
            "seen": times[::-1].as_unit("ms"),
            "s": ["a", None, "NA", ""],
        }
    )


class TestParquet:
    @pytest.mark.parametrize(
        "index",
        [
            pd.RangeIndex(3, 11, 2),
            pd.Index([4, 4, 2, 1]),
            pd.Index([4, 3, 2, 1], name="key"),
            pd.Index(list("wxyz"), name="label"),
            pd.date_range("2020-01-04", periods=4, freq="-1D", tz="Asia/Tokyo", name="when").as_unit("us"),
        ],
        ids=["range", "numbers", "named numbers", "text", "times"],
    )
    def test_pandas_reads_back_what_it_wrote(self, tmp_path: Path, index: pd.Index) -> None:
        frame = pandas_frame().set_axis(index)
        frame.to_parquet(tmp_path / "in.parquet")
        options: dict[str, Any] = {"time": "seen"} if isinstance(index, pd.DatetimeIndex) else {}
        assert read(tmp_path / "in.parquet", **options).columns == ("x", "f", "n")
        out = filled(tmp_path / "in.parquet", tmp_path / "out.parquet", 7.75, ["x_lower"], **options)
        expected = frame.assign(
            x=[1.5, 7.75, 3.5, 4.5],
            f=np.array([0.1, 0.2, 7.75, 0.4], np.float32),
            n=pd.array([2**53 + 1, 8, 3, 4], dtype="Int64"),
            x_lower=7.75,
        )
        pd.testing.assert_frame_equal(pd.read_parquet(out), expected, check_exact=True, check_freq=False)

    def test_a_numeric_index_is_filled_only_on_request(self, tmp_path: Path) -> None:
        pd.DataFrame({"s": ["a", "b"]}, index=[5, 7]).to_parquet(tmp_path / "in.parquet")
        with pytest.raises(DataError, match=r"in\.parquet: the table has no numeric column"):
            read(tmp_path / "in.parquet")
        assert read(tmp_path / "in.parquet", columns=["__index_level_0__"]).values.tolist() == [[5.0], [7.0]]

    def test_types_and_metadata_are_kept(self, tmp_path: Path) -> None:
        fields = [
            pa.field("x", pa.float64(), metadata={"unit": "m"}),
            pa.field("c", pa.dictionary(pa.int32(), pa.string())),
            pa.field("t", pa.timestamp("ms", tz="Europe/Berlin"), nullable=False),
        ]
        times = [dt.datetime(2020, 3, day, tzinfo=dt.UTC) for day in (29, 28, 27)]
        columns = [[1.5, None, float("nan")], ["a", None, "b"], times]
        table = pa.table(columns, schema=pa.schema(fields, metadata={"origin": "here"}))
        pq.write_table(table, tmp_path / "in.parquet")
        before = pq.read_table(tmp_path / "in.parquet")
        after = pq.read_table(filled(tmp_path / "in.parquet", tmp_path / "out.parquet", 7.75))
        assert after.schema.equals(before.schema, check_metadata=True)
        assert before.schema.metadata == {b"origin": b"here"}
        assert after.select(["c", "t"]).equals(before.select(["c", "t"]))
        assert after["x"].to_pylist() == [1.5, 7.75, 7.75]

    def test_to_csv(self, tmp_path: Path) -> None:
        columns = {
            "x": pa.array([0.1, None, float("nan")], pa.float32()),
            "y": [4.0, 5.0, None],
            "n": [2**53 + 1, None, 3],
            "s": ["a;b", "c,d", None],
            "b": [True, None, False],
            "t": pa.array([dt.datetime(2020, 1, day) for day in (1, 3, 2)], pa.timestamp("us", tz="UTC")),
        }
        pq.write_table(pa.table(columns), tmp_path / "in.parquet")
        out = filled(tmp_path / "in.parquet", tmp_path / "out.csv", 7.75, ["x_lower"])
        assert out.read_text().splitlines() == [
            "x,y,n,s,b,t,x_lower",
            "0.1,4.0,9007199254740993,a;b,True,2020-01-01 00:00:00+00:00,7.7",
            '7.8,5.0,8,"c,d",,2020-01-03 00:00:00+00:00,7.7',
            "7.8,7.8,3,,False,2020-01-02 00:00:00+00:00,7.7",
        ]

    def test_from_csv(self, tmp_path: Path) -> None:
        source = written(tmp_path, "t;x;n;s\n2020-01-02T00:00+02:00;1,5;;NA\n2020-01-01T00:00+02:00;;3;b\n")
        table = pq.read_table(filled(source, tmp_path / "out.parquet", 7.75, ["x_lower"]))
        zone = dt.timezone(dt.timedelta(hours=2))
        assert table["t"].to_pylist() == [dt.datetime(2020, 1, day, tzinfo=zone) for day in (2, 1)]
        assert table.drop_columns("t").to_pydict() == {
            "x": [1.5, 7.75],
            "n": [8, 3],
            "s": ["NA", "b"],
            "x_lower": [7.75, 7.75],
        }


class TestBadFiles:
    @pytest.mark.parametrize(
        ("name", "content", "options", "message"),
        [
            ("in.csv", b"", {}, "is empty"),
            ("in.csv", b"\n\n", {}, "is empty"),
            ("in.csv.gz", b"", {}, "is empty"),
            ("in.csv", b"\x89PNG\r\n\xff", {}, "is not a table: byte 0 is not UTF-8 text"),
            ("in.csv", b"x,y\n1,\xe9\n", {}, "is not a table: byte 6 is not UTF-8 text"),
            ("in.csv", b"PK\x03\x04\x00\x00", {}, "is not a table: byte 4 is not text"),
            ("in.csv", b"x,y\n" + b"1" * 200_000, {}, "line 2, is not a table: field larger than field limit"),
            ("in.csv", b"x,y\n", {}, "has a header but no rows"),
            ("in.csv", b"x,y\n1,2\n3\n", {}, "line 3: expected 2 cells as in the header, got 1"),
            ("in.csv", b'x,y\n1,"a\nb"\n3,4,5\n', {}, "line 4: expected 2 cells as in the header, got 3"),
            ("in.csv", b"x,x\n1,2\n", {}, ": two columns are named 'x'"),
            ("in.csv", b"x,y\na,b\n", {}, ": the table has no numeric column"),
            ("in.csv", b"x,y\n1,2\nno,b\n", {"columns": ["x"]}, ": column 'x' must be numeric, got 'no' in row 2"),
            ("in.csv", b"x,y\n1,a\n2,b\n", {"columns": ["y"], "id": "z"}, ": column 'y' must be numeric, got 'a'"),
            ("in.csv", b"x,y\n1,2\n", {"id": "who"}, ": there is no column 'who'; the columns are x, y"),
            ("in.csv", b"x,y\n1,2\n", {"time": "when"}, ": there is no column 'when'"),
            ("in.csv", b"x,y\n1,2\n", {"columns": ["z"]}, ": there is no column 'z'"),
            ("in.csv", b"w,t,x\na,1,2\na,1,3\n", {"id": "w", "time": "t"}, "same time: w a, t 1, row 2"),
            ("in.csv", b"t,x\n2020-01-01,2\nsoon,3\n", {"time": "t"}, "the time 'soon' in column 't', row 2, cannot"),
            ("in.csv", b"t,x\n2020-01-01,2\n,3\n", {}, "the time in column 't' is missing in row 2"),
            ("in.csv", b"t,x\n03/04/2020,2\n04/05/2020,3\n", {"time": "t"}, "are ambiguous: day/month or month/day"),
            ("in.csv", b"t,x\n2020-01-01,2\n2020-01-01T00:00Z,3\n", {"time": "t"}, "mixes times with and without"),
            ("in.csv", b"a,b,x\n2020-01-01,2020-01-02,3\n", {}, r"several columns hold times \(a, b\)"),
            ("in.csv", b"w,x\na,2\n,3\n", {"id": "w"}, "the id in column 'w' is missing in row 2"),
            ("in.csv", b"x,y\n1,2\n3,-inf\n", {}, "infinite value in column 'y', row 2"),
            ("in.csv", b"x,y\n1,2\n1e999,3\n", {}, "infinite value in column 'x', row 2"),
            ("in.parquet", b"x,y\n1,2\n", {}, "is damaged or not a Parquet file"),
            ("in.parquet", b"", {}, "is empty"),
        ],
    )  # fmt: skip
    def test_messages_are_one_line_and_name_the_file(
        self, tmp_path: Path, name: str, content: bytes, options: Any, message: str
    ) -> None:
        path = written(tmp_path, content, name)
        with pytest.raises(DataError, match=message) as error:
            read(path, **options)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)

    def test_missing_files_and_unknown_suffixes(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"there is no file .*lost\.csv"):
            read(tmp_path / "lost.csv")
        with pytest.raises(DataError, match=r"table\.ods: the name must end in \.csv.*; save it as"):
            read(written(tmp_path, "x\n1\n", "table.ods"))
        (tmp_path / "folder.csv").mkdir()
        with pytest.raises(DataError, match=r"folder\.csv is a folder without tables"):
            read(tmp_path / "folder.csv")

    def test_damaged_files(self, tmp_path: Path) -> None:
        lines = "x,y\n" + "".join(f"{i},{i * i % 97}\n" for i in range(500))
        packed = written(tmp_path, lines, "in.csv.gz").read_bytes()
        pq.write_table(pa.table({"x": np.random.default_rng(0).normal(size=5000)}), tmp_path / "in.parquet")
        table = (tmp_path / "in.parquet").read_bytes()
        middle = len(packed) // 2
        damaged = {
            "cut.csv.gz": packed[:middle],
            "changed.csv.gz": packed[:middle] + bytes(16) + packed[middle + 16 :],
            "garbled.csv.gz": packed[:10] + b"\xff" * 16 + packed[26:],
            "plain.csv.gz": lines.encode(),
            "cut.parquet": table[:-20],
            "changed.parquet": table[:4] + bytes(60) + table[64:],
        }
        for name, content in damaged.items():
            (tmp_path / name).write_bytes(content)
            with pytest.raises(DataError, match=name) as error:
                read(tmp_path / name)
            assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("name", "kind"),
        [("a.csv", "csv"), ("a.b.TSV", "csv"), ("a.txt.gz", "csv"), ("a.CSV.GZ", "csv"), ("a.Parquet", "parquet"),
         ("a.csv.pq", "parquet"), ("a", None), ("a.gz", None), ("a.csv.bak", None), ("a.parquet.gz", None)],
    )  # fmt: skip
    def test_file_kinds(self, name: str, kind: str | None) -> None:
        if kind:
            assert file_kind(Path(name)) == kind
        else:
            with pytest.raises(DataError, match="the name must end in"):
                file_kind(Path(name))


class TestSources:
    def test_python_reads_several_files_a_pattern_and_a_folder(self, tmp_path: Path) -> None:
        for name, codes in (("a", "1,-9\n2,5\n"), ("b", "1,3\n2,-9\n")):
            written(tmp_path, f"t,x\n{codes}", f"{name}.csv.gz")
        reading = Reading(missing=("-9",))
        for paths in (tmp_path, f"{tmp_path}/*.gz", [tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"]):
            panel = read(paths, time="t", reading=reading)
            assert (panel.ids, panel.columns) == (("a", "b"), ("x",))
            np.testing.assert_array_equal(panel.values[:, 0], [np.nan, 5, 3, np.nan])

    def test_files_with_the_same_name_are_told_apart_by_their_folders(self, tmp_path: Path) -> None:
        for folder in "ab":
            (tmp_path / folder).mkdir()
            written(tmp_path / folder, "x\n1\n", "01.csv")
        panel = read([tmp_path / "a" / "01.csv", tmp_path / "b" / "01.csv"])
        assert panel.ids == (f"{tmp_path}/a/01", f"{tmp_path}/b/01")

    def test_files_of_other_columns_and_types_are_joined(self, tmp_path: Path) -> None:
        written(tmp_path, "t,x\n1,2\n2,3\n", "a.csv")
        pq.write_table(pa.table({"t": [1.5, 2.5], "y": [4, 5]}), tmp_path / "b.parquet")
        panel = read(tmp_path, time="t")
        assert panel.columns == ("x", "y")
        np.testing.assert_array_equal(panel.values, [[2, np.nan], [3, np.nan], [np.nan, 4], [np.nan, 5]])
        pq.write_table(pa.table({"t": ["soon"], "y": [4]}), tmp_path / "c.parquet")
        with pytest.raises(DataError, match="the files do not fit together"):
            read(tmp_path, time="t")
