"""Beijing multi-site air quality (UCI 501): 12 stations, 35,064 hours from March 2013, 11 variables, real gaps.

The wind direction, which is text, is left out.
"""

import os

import numpy as np

from gpvae.data.panel import DataError, Floats
from gpvae.datasets import tables
from gpvae.datasets.dataset import DataSet, even_panel
from gpvae.datasets.raw import DatasetInfo, RawFiles, read

VARIABLES = ("PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM")
_CLOCK = ("year", "month", "day", "hour")
_SHA256 = {
    "Aotizhongxin": "8f8457efef51dea61dd3c38ebbccd9fa25f5a6ba2a23e90e5b500b25015f4f27",
    "Changping": "dbac77681385b631d093823afdeea3ec96d2d234442afd5f8fb91bcc526d5863",
    "Dingling": "bc2dcda191a790a5cbc1af71f142b7cdf96759e500c0dde07dbe5c826d54dfa0",
    "Dongsi": "f56e7cf80603f10d627bcd51f7f3a36b108ed6aec898dc92376ee4d30387f9ac",
    "Guanyuan": "bbe31877c38679a71ba8df202ffb6c1f531f2aadf1d6180efd28fc25c112bb13",
    "Gucheng": "589cff73621c521a28557f4c093c8df47825606232f614d07b52970fc2e2b336",
    "Huairou": "e0dd971c8b5d87cf0ebf548edd1b9e0c94ca6dc1af13ffee2e487732b4270544",
    "Nongzhanguan": "0a348fe79a8923ab84fb093a50f61eb64cb083c70f5a934971c99de28fdba749",
    "Shunyi": "8d27b386d14db242a1dd0183809841685e34e1a7a354499238532c5e12f82949",
    "Tiantan": "1865d4b500b55e5d8587c233e68126e9af6cbebc800a951022c778da1c3a0e2c",
    "Wanliu": "f3e0954a64c31937a86a0aa51e8df7f99626fc04ea46c09ae91c9a20317f47af",
    "Wanshouxigong": "f77c09bff941ce907aefd0281df52bffc25604f16205f55c65e00ca3d39e0800",
}
_RAW = RawFiles(
    "beijing_multisite",
    "https://archive.ics.uci.edu/static/public/501/beijing+multi+site+air+quality+data.zip",
    {f"PRSA_Data_{station}_20130301-20170228.csv": sha256 for station, sha256 in _SHA256.items()},
    archives="*.zip",
)
INFO = DatasetInfo(
    "beijing",
    "Beijing multi-site air quality: 12 stations × 35,064 hours, 11 variables, real gaps",
    "CC BY 4.0",
    (_RAW,),
)


def load(folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> DataSet:
    """One series per station."""
    files = read(_RAW, folder, verbose=verbose)
    names = sorted(files)
    clock = tables.numbers(files[names[0]], _CLOCK, names[0])
    values = np.stack([_values(files[name], name, clock) for name in names])
    stations = [name.split("_")[2] for name in names]
    times = tables.datetimes([f"{y:04.0f}-{m:02.0f}-{d:02.0f}T{h:02.0f}" for y, m, d, h in clock], names[0])
    panel = even_panel(values, VARIABLES, stations, times)
    return DataSet(INFO.name, panel, panel.values)


def _values(content: bytes, name: str, clock: Floats) -> Floats:
    table = tables.numbers(content, [*_CLOCK, *VARIABLES], name)
    if not np.array_equal(table[:, : len(_CLOCK)], clock):
        raise DataError(f"{name} must have the same hours as the other stations")
    return table[:, len(_CLOCK) :]
