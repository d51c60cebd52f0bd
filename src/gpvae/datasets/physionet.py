"""PhysioNet/CinC Challenge 2012: two days in intensive care, 35 variables on an hourly grid.

A set is an archive of one text file per patient, `Time,Parameter,Value` with times from 00:00 to 48:00. The last value
of an hour is used; measurements at 48:00 are dropped. Outliers are kept. The splits are the challenge's sets: a for
training, b for validation, c for the test.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import DataError, Floats
from gpvae.datasets import tables
from gpvae.datasets.dataset import SPLITS, DataSet, consecutive_splits, even_panel, require_splits
from gpvae.datasets.raw import Contents, DatasetInfo, RawFiles, unpacked
from gpvae.datasets.raw import read as read_raw

HOURS = 48
VARIABLES = (
    *("ALP", "ALT", "AST", "Albumin", "BUN", "Bilirubin", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS"),
    *("Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "Mg", "NIDiasABP", "NIMAP", "NISysABP", "Na", "PaCO2"),
    *("PaO2", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC", "pH"),
)
_COLUMN = {name: j for j, name in enumerate(VARIABLES)}
_URL = "https://physionet.org/files/challenge-2012/1.0.0"


@dataclass(frozen=True)
class _Set:
    patients: RawFiles
    outcomes: RawFiles


def _set(letter: str, patients: str, outcomes: str) -> _Set:
    archive, table = f"set-{letter}.tar.gz", f"Outcomes-{letter}.txt"
    files = RawFiles("physionet2012", f"{_URL}/{archive}", {f"set-{letter}/*.txt": patients}, f"set-{letter}.*")
    return _Set(files, RawFiles("physionet2012", f"{_URL}/{table}", {table: outcomes}))


_SETS = {
    "train": _set(
        "a",
        "3c3a698ffe5748c2b5706ed5a4b8c6f171c3a833b0da35202b2f110756ec32e2",
        "2613ea60ccda29f87571a7d6b09ad130858a8ccd66325bd073365925026883c2",
    ),
    "validation": _set(
        "b",
        "55c193cec70678c004a1f1515d512b5b03a7562c29be38efd1877c8761da2a03",
        "1305f29734da374a809483229a99f33a9230aa8d4fa74b1a2d6ad788136423d5",
    ),
    "test": _set(
        "c",
        "45101a55a2af1608a58110c0904b002da0f13ec035dd8f65887b3fa3e7c031d6",
        "0b32dcb7753c0f18f2f5fde498a28618b8879c5e527ce0dae8ad120dd7e205c9",
    ),
}
INFO = DatasetInfo(
    "physionet2012",
    "PhysioNet 2012: 12,000 stays in intensive care, 48 hours × 35 variables, labels = died in hospital",
    "ODC-BY 1.0",
    tuple(raw for each in _SETS.values() for raw in (each.patients, each.outcomes)),
)


@dataclass(frozen=True)
class Patients:
    ids: tuple[int, ...]
    values: Floats  # (patient, hour, variable) NaN = not measured


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    splits: Sequence[str] = SPLITS,
    count: int | None = None,
    verbose: bool = False,
) -> DataSet:
    """The first `count` patients of each split, sorted by number."""
    require_splits(INFO.name, splits, count)
    groups: dict[str, Patients] = {}
    labels: list[NDArray[np.int64]] = []
    for name in splits:
        chosen = _SETS[name]
        patients = _patients(_first(read_raw(chosen.patients, folder, verbose=verbose), count))
        groups[name] = patients
        labels.append(_died(read_raw(chosen.outcomes, folder, verbose=verbose), patients.ids))
    ids = [number for group in groups.values() for number in group.ids]
    panel = even_panel(np.concatenate([group.values for group in groups.values()]), VARIABLES, ids)
    sizes = {name: len(group.ids) for name, group in groups.items()}
    return DataSet(INFO.name, panel, panel.values, np.concatenate(labels), consecutive_splits(sizes))


def read(archive: Path) -> Patients:
    """All patients of an archive, sorted by number."""
    files = unpacked(archive, ["*.txt"])
    if not files:
        raise DataError(f"{archive} has no patients")
    try:
        return _patients(files)
    except DataError as error:
        raise DataError(f"{archive}: {error}") from None


def _first(files: Contents, count: int | None) -> Contents:
    return {name: files[name] for name in sorted(files, key=_number)[:count]}


def _number(name: str) -> int:
    try:
        return int(PurePosixPath(name).stem)
    except ValueError:
        raise DataError(f"the file name {name} must be a patient's number") from None


def _patients(files: Contents) -> Patients:
    names = sorted(files, key=_number)
    return Patients(tuple(map(_number, names)), np.stack([_hourly(files[name], name) for name in names]))


def _hourly(content: bytes, where: str) -> Floats:
    values = np.full((HOURS, len(VARIABLES)), np.nan)
    header, *lines = content.decode().splitlines() or [""]
    if header != "Time,Parameter,Value":
        raise DataError(f"{where} must begin with 'Time,Parameter,Value', got {header!r}")
    for line in lines:  # in temporal order
        try:
            time, variable, value = line.split(",")
            column, hour = _COLUMN.get(variable), int(time[:2])
            if column is not None and hour < HOURS:
                values[hour, column] = float(value)
        except ValueError:
            raise DataError(f"{where}: each line must be time, parameter and value, got {line!r}") from None
    return values


def _died(files: Contents, ids: Sequence[int]) -> NDArray[np.int64]:
    """1 for patients who died in hospital. (patient,)"""
    ((name, content),) = files.items()
    died = {int(number): int(dead) for number, dead in tables.numbers(content, ["RecordID", "In-hospital_death"], name)}
    unknown = [number for number in ids if number not in died]
    if unknown:
        raise DataError(f"{name} has no outcome for patient {unknown[0]}")
    return np.array([died[number] for number in ids], dtype=np.int64)
