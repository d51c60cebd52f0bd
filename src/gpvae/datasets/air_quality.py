"""Air quality in an Italian city (UCI 360): one series of 9,357 hours from March 2004, 13 variables; -200 = missing."""

import os

import numpy as np

from gpvae.data.panel import DataError
from gpvae.datasets import tables
from gpvae.datasets.dataset import DataSet, even_panel
from gpvae.datasets.raw import DatasetInfo, RawFiles, read

VARIABLES = (
    *("CO(GT)", "PT08.S1(CO)", "NMHC(GT)", "C6H6(GT)", "PT08.S2(NMHC)", "NOx(GT)", "PT08.S3(NOx)", "NO2(GT)"),
    *("PT08.S4(NO2)", "PT08.S5(O3)", "T", "RH", "AH"),
)
_NAME = "AirQualityUCI.csv"
_RAW = RawFiles(
    "air_quality_uci",
    "https://archive.ics.uci.edu/static/public/360/air+quality.zip",
    {_NAME: "52690e4d44e65cb651cc8c68009c950fe94ea1ddda67d588780b64c4ecf81c23"},
    archives="*.zip",
)
INFO = DatasetInfo(
    "air_quality",
    "UCI air quality (Italy): 9,357 hours, 13 variables, real gaps",
    "CC BY 4.0",
    (_RAW,),
)


def load(folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> DataSet:
    """One series. The last lines of the file, which have no date, are dropped."""
    content = read(_RAW, folder, verbose=verbose)[_NAME]
    dates, clocks = (tables.texts(content, name, _NAME, separator=";") for name in ("Date", "Time"))
    texts = [_iso(date, clock) for date, clock in zip(dates, clocks, strict=True) if date]
    values = tables.numbers(content, VARIABLES, _NAME, separator=";", decimal=",")
    if any(dates[len(texts) :]) or not np.isnan(values[len(texts) :]).all():
        raise DataError(f"{_NAME} has a row without a date before its end")
    values = values[: len(texts)]
    values = np.where(values == -200, np.nan, values)
    panel = even_panel(values[None], VARIABLES, [0], tables.datetimes(texts, _NAME))
    return DataSet(INFO.name, panel, panel.values)


def _iso(date: str, clock: str) -> str:
    """10/03/2004, 18.00.00 → 2004-03-10T18:00:00"""
    return "-".join(reversed(date.split("/"))) + "T" + clock.replace(".", ":")
