"""Beijing PM2.5 of ST-MVL: one series of 36 stations, 8,759 hours from May 2014, with the standard held-out cells.

`pm25_missing.txt` is `pm25_ground.txt` without them: the panel holds the former, `truth` the latter.
"""

import os

import numpy as np

from gpvae.data.panel import DataError
from gpvae.datasets import tables
from gpvae.datasets.dataset import DataSet, even_panel
from gpvae.datasets.raw import DatasetInfo, RawFiles, read

_GROUND, _MISSING = "pm25_ground.txt", "pm25_missing.txt"
_RAW = RawFiles(
    "pm25_stmvl",
    "https://www.microsoft.com/en-us/research/wp-content/uploads/2016/06/STMVL-Release.zip",
    {
        _GROUND: "8f77b738ae4c50621705a308e606e6229564ad7ad20358986bd6031355f0ab5f",
        _MISSING: "3f991eab5bbc5e644e61360e6b71ce45179c86cf650b3bb9a53771d8f9953fe3",
    },
    archives="*.zip",
)
INFO = DatasetInfo(
    "pm25",
    "Beijing PM2.5 of ST-MVL: 36 stations as columns, 8,759 hours, fixed held-out cells",
    "research release",
    (_RAW,),
)


def load(folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> DataSet:
    """One series, with a column per station."""
    files = read(_RAW, folder, verbose=verbose)
    stations = files[_GROUND].partition(b"\n")[0].decode().strip().split(",")[1:]
    truth, visible = (tables.numbers(files[name], stations, name) for name in (_GROUND, _MISSING))
    times, visible_times = (tables.texts(files[name], "datetime", name) for name in (_GROUND, _MISSING))
    expected = np.where(np.isnan(visible), np.nan, truth)
    if times != visible_times or not np.array_equal(expected, visible, equal_nan=True):
        raise DataError(f"{_MISSING} must be {_GROUND} with some cells removed")
    moments = tables.datetimes([time.replace("/", "-") for time in times], _GROUND)
    return DataSet(INFO.name, even_panel(visible[None], stations, [0], moments), truth)
