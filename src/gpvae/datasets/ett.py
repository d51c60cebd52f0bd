"""ETT: temperature of two electricity transformers and six loads, two years from July 2016, complete.

h1 and h2 have 17,420 hours, m1 and m2 the same two transformers' 69,680 quarters of an hour.
"""

import os

from gpvae.datasets import tables
from gpvae.datasets.dataset import DataSet, even_panel
from gpvae.datasets.raw import DatasetInfo, RawFiles, read

VARIABLES = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
_SHA256 = {
    "h1": "f18de3ad269cef59bb07b5438d79bb3042d3be49bdeecf01c1cd6d29695ee066",
    "h2": "a3dc2c597b9218c7ce1cd55eb77b283fd459a1d09d753063f944967dd6b9218b",
    "m1": "6ce1759b1a18e3328421d5d75fadcb316c449fcd7cec32820c8dafda71986c9e",
    "m2": "db973ca252c6410a30d0469b13d696cf919648d0f3fd588c60f03fdbdbadd1fd",
}


def _about(which: str) -> DatasetInfo:
    steps = "17,420 hours" if which.startswith("h") else "69,680 quarters of an hour"
    url = f"https://raw.githubusercontent.com/zhouhaoyi/ETDataset/main/ETT-small/ETT{which}.csv"
    raw = RawFiles("ett", url, {f"ETT{which}.csv": _SHA256[which]})
    text = f"Electricity transformer temperature {which}: {steps}, 7 variables, complete"
    return DatasetInfo(f"ett_{which}", text, "CC BY-ND 4.0", (raw,))


INFO = {which: _about(which) for which in _SHA256}


def load(which: str, folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> DataSet:
    """One series; `which` is h1, h2, m1 or m2."""
    about = INFO[which]
    ((name, content),) = read(about.raw_files[0], folder, verbose=verbose).items()
    times = tables.datetimes(tables.texts(content, "date", name), name)
    panel = even_panel(tables.numbers(content, VARIABLES, name)[None], VARIABLES, [0], times)
    return DataSet(about.name, panel, panel.values)
