"""PhysioNet/CinC Challenge 2012: two days in intensive care, 35 variables on an hourly grid.

A set is an archive of one text file for each patient, `Time,Parameter,Value` with times from 00:00 to 48:00. Of several
values in an hour the last one counts; what was measured at 48:00 has no hour left and is dropped.
"""

import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpvae.panel import DataError, Floats

HOURS = 48
VARIABLES = (
    *("ALP", "ALT", "AST", "Albumin", "BUN", "Bilirubin", "Cholesterol", "Creatinine", "DiasABP", "FiO2", "GCS"),
    *("Glucose", "HCO3", "HCT", "HR", "K", "Lactate", "MAP", "Mg", "NIDiasABP", "NIMAP", "NISysABP", "Na", "PaCO2"),
    *("PaO2", "Platelets", "RespRate", "SaO2", "SysABP", "Temp", "TroponinI", "TroponinT", "Urine", "WBC", "pH"),
)
_PLACE = {name: j for j, name in enumerate(VARIABLES)}


@dataclass(frozen=True)
class Patients:
    ids: tuple[int, ...]
    values: Floats  # (patient, hour, variable) NaN = not measured


def read(archive: Path) -> Patients:
    """All patients of a set, sorted by their number."""
    found: dict[int, Floats] = {}
    try:
        with tarfile.open(archive) as files:
            for member in files:
                file = files.extractfile(member) if member.name.endswith(".txt") else None
                if file is not None:
                    found[int(Path(member.name).stem)] = _hourly(file.read().decode(), f"{archive}: {member.name}")
    except (OSError, EOFError, tarfile.TarError, ValueError) as error:
        raise DataError(f"{archive} is not a set of patients, or a damaged one: {error}") from None
    if not found:
        raise DataError(f"{archive} holds no patients")
    ids = sorted(found)
    return Patients(tuple(ids), np.stack([found[each] for each in ids]))


def _hourly(text: str, where: str) -> Floats:
    values = np.full((HOURS, len(VARIABLES)), np.nan)
    header, *lines = text.splitlines()
    if header != "Time,Parameter,Value":
        raise DataError(f"{where} begins with {header!r}, not with 'Time,Parameter,Value'")
    for line in lines:  # in the order of time
        time, variable, value = line.split(",")
        place, hour = _PLACE.get(variable), int(time[:2])
        if place is not None and hour < HOURS:
            values[hour, place] = float(value)
    return values
