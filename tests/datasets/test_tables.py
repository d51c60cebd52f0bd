"""PhysioNet and the data sets that are tables."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from published import checked, lay, tar, zipped

from gpvae import DataError
from gpvae.datasets import air_quality, beijing, ett, load, physionet, pm25
from gpvae.datasets.dataset import DataSet

pytestmark = pytest.mark.usefixtures("cache")

PATIENTS = {
    "set-a/200.txt": b"Time,Parameter,Value\n00:00,RecordID,200\n00:00,HR,70\n",
    "set-a/100.txt": b"Time,Parameter,Value\n00:00,RecordID,100\n00:00,Weight,-1\n00:07,HR,73\n"
    b"00:59,HR,75\n01:00,HR,80\n03:00,,5\n03:10,MechVent,1\n47:59,pH,7.4\n48:00,HR,99\n",
}
OUTCOMES = {
    "Outcomes-a.txt": b"RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n100,6,1,5,-1,0\n200,6,1,5,3,1\n"
}


class TestPhysioNet:
    def files(self, folder: Path, monkeypatch: pytest.MonkeyPatch, patients: Mapping[str, bytes] = PATIENTS) -> None:
        lay(folder / "physionet2012", {"set-a.tar.gz": tar(patients, "w:gz"), **OUTCOMES})
        a = physionet._SETS["train"]
        chosen = physionet._Set(checked(a.patients, patients), checked(a.outcomes, OUTCOMES))
        monkeypatch.setitem(physionet._SETS, "train", chosen)

    def test_hourly_grid(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files(tmp_path, monkeypatch)
        data = physionet.load(tmp_path, splits=["train"])
        assert (data.panel.ids, data.panel.columns) == ((100, 200), physionet.VARIABLES)
        assert data.labels is not None
        assert data.labels.tolist() == [0, 1]
        hour, variable = np.nonzero(data.panel.observed)
        found = zip(hour.tolist(), [physionet.VARIABLES[j] for j in variable], strict=True)
        assert [*found] == [(0, "HR"), (1, "HR"), (47, "pH"), (48, "HR")]
        assert data.panel.values[data.panel.observed].tolist() == [75, 80, 7.4, 70]
        assert physionet.load(tmp_path, splits=["train"], count=1).panel.ids == (100,)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "300.txt must begin with 'Time,Parameter,Value', got ''"),
            (
                b"Time,Parameter,Value\n00:07,HR\n",
                "300.txt: each line must be time, parameter and value, got '00:07,HR'",
            ),
            (
                b"Time,Parameter,Value\n00:07,HR,high\n",
                "300.txt: each line must be time, parameter and value, got '00:07,HR,high'",
            ),
            (b"Time,Parameter,Value\n", "Outcomes-a.txt has no outcome for patient 300"),
        ],
    )
    def test_files_that_are_not_patients_are_refused(
        self, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.files(tmp_path, monkeypatch, {**PATIENTS, "set-a/300.txt": content})
        with pytest.raises(DataError, match=message):
            physionet.load(tmp_path, splits=["train"])

    def test_one_archive(self, tmp_path: Path) -> None:
        lay(tmp_path, {"a.tar": tar(PATIENTS, "w"), "b.tar": tar({"x.csv": b""}, "w"), "c.tar": b"nothing"})
        lay(tmp_path, {"d.tar": tar({"set-a/names.txt": b""}, "w")})
        assert physionet.read(tmp_path / "a.tar").ids == (100, 200)
        with pytest.raises(DataError, match=r"b.tar has no patients"):
            physionet.read(tmp_path / "b.tar")
        with pytest.raises(DataError, match=r"c.tar is damaged"):
            physionet.read(tmp_path / "c.tar")
        with pytest.raises(DataError, match=r"d.tar: the file name names.txt must be a patient's number"):
            physionet.read(tmp_path / "d.tar")


def station(name: str, rows: str) -> dict[str, bytes]:
    names = ["No", "year", "month", "day", "hour", *beijing.VARIABLES[:-1], "wd", "WSPM", "station"]
    header = ",".join(f'"{name}"' for name in names) + "\n"
    return {f"PRSA_Data_{name}_20130301-20170228.csv": (header + rows).encode()}


class TestTables:
    def test_beijing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        row = '2013,3,1,{},4,8,NA,7,300,77,-0.7,1023,-18.8,0,"NNW",4.4,"x"\n'
        files = {
            **station("B", f"1,{row.format(0)}2,{row.format(1)}"),
            **station("A", f"1,{row.format(0)}2,{row.format(1)}"),
        }
        monkeypatch.setattr(beijing, "_RAW", checked(replace(beijing._RAW, files=dict.fromkeys(files, "")), files))
        lay(tmp_path / "beijing_multisite", {"data.zip": zipped({"PRSA2017.zip": zipped(files)})})
        data = load("beijing", tmp_path)
        assert (data.panel.ids, data.panel.columns) == (("A", "B"), beijing.VARIABLES)
        assert data.panel.times.tolist() == [0, 3600] * 2
        expected = [4, 8, np.nan, 7, 300, 77, -0.7, 1023, -18.8, 0, 4.4]
        assert np.array_equal(data.panel.values, [expected] * 4, equal_nan=True)
        files |= station("B", f"1,{row.format(0)}2,{row.format(2)}")
        monkeypatch.setattr(beijing, "_RAW", checked(beijing._RAW, files))
        lay(tmp_path / "beijing_multisite", {"data.zip": zipped(files)})
        with pytest.raises(DataError, match=r"PRSA_Data_B_.* must have the same hours as the other stations"):
            load("beijing", tmp_path)

    def test_pm25(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ground = b"datetime,001001,001002\r\n2014/05/01 01:00:00,138,\r\n2014/05/01 02:00:00,124,85\r\n"
        files = {"pm25_ground.txt": ground, "pm25_missing.txt": ground.replace(b",138,", b",,")}
        lay(tmp_path / "pm25_stmvl", files)
        monkeypatch.setattr(pm25, "_RAW", checked(pm25._RAW, files))
        data = load("pm25", tmp_path)
        assert data.panel.columns == ("001001", "001002")
        assert np.array_equal(data.truth, [[138, np.nan], [124, 85]], equal_nan=True)
        assert data.held_out.tolist() == [[True, False], [False, False]]
        files["pm25_missing.txt"] = ground.replace(b"124", b"125")
        lay(tmp_path / "pm25_stmvl", files)
        monkeypatch.setattr(pm25, "_RAW", checked(pm25._RAW, files))
        with pytest.raises(DataError, match=r"pm25_missing.txt must be pm25_ground.txt with some cells removed"):
            load("pm25", tmp_path)

    def test_air_quality(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        header = f"Date;Time;{';'.join(air_quality.VARIABLES)};;\n"
        rows = "10/03/2004;18.00.00;2,6;1360;150;11,9;1046;166;1056;113;1692;1268;13,6;48,9;0,7578;;\n"
        rows += "10/03/2004;19.00.00;-200;1292;112;9,4;955;103;1174;92;1559;972;13,3;47,7;0,7255;;\n"

        def lay_and_load(text: str) -> DataSet:
            files = {"AirQualityUCI.csv": text.encode()}
            lay(tmp_path / "air_quality_uci", files)
            monkeypatch.setattr(air_quality, "_RAW", checked(air_quality._RAW, files))
            return load("air_quality", tmp_path)

        data = lay_and_load(header + rows + 2 * (";" * 16 + "\n"))
        assert data.panel.values.shape == (2, 13)
        assert data.panel.values[0].tolist()[:4] == [2.6, 1360, 150, 11.9]
        assert data.panel.observed[1].tolist() == [False, *[True] * 12]
        assert data.panel.times.tolist() == [0, 3600]
        with pytest.raises(DataError, match=r"AirQualityUCI.csv has a row without a date before its end"):
            lay_and_load(header + ";" * 16 + "\n" + rows)
        with pytest.raises(DataError, match=r"AirQualityUCI.csv is not the expected table"):
            lay_and_load(header + rows.replace("1360", "many"))
        with pytest.raises(DataError, match=r"AirQualityUCI.csv: .*32"):
            lay_and_load(header + rows.replace("10/03", "32/03"))

    def test_ett(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        files = {"ETTm2.csv": b"date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n2016-07-01 00:00:00,1,2,3,4,5,6,7.5\n"}
        about = ett.INFO["m2"]
        monkeypatch.setitem(ett.INFO, "m2", replace(about, raw_files=(checked(about.raw_files[0], files),)))
        lay(tmp_path / "ett", files)
        assert load("ett_m2", tmp_path).panel.values.tolist() == [[1, 2, 3, 4, 5, 6, 7.5]]
