"""How good the default is on real tables: `python benchmarks/tables.py [--seeds 3]` writes results/<table>.csv.

Seattle's weather is one series of 1,461 days and 4 columns; Beijing's air quality, where GPVAE_DATA names a folder that
has it, 12 stations × 35,064 hours and 11 columns. A tenth of the cells is held out, one by one, as `gpvae evaluate`
does, or as outages of ten rows.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import provenance
import pyarrow as pa

from gpvae import Panel, demo, evaluation, missingness
from gpvae.files import read_table
from gpvae.methods import COMPARED, method
from gpvae.panel import Bools

BEIJING = ["PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM"]


OUTAGE = 10  # rows in which all columns are missing


def outages(panel: Panel, seed: int) -> Bools:
    """A tenth of the rows lost in runs of OUTAGE, in all columns at once: the hardest gaps to fill."""
    rng = np.random.default_rng([seed, 2])
    cells = np.zeros(panel.values.shape, dtype=bool)
    for start, length in zip(panel.starts, panel.lengths, strict=True):
        slots = np.arange(length // OUTAGE)
        for slot in rng.choice(slots, round(len(slots) / 10), replace=False):
            cells[start + slot * OUTAGE : start + (slot + 1) * OUTAGE] = True
    return cells & panel.observed


def tables() -> Iterator[tuple[str, Panel]]:
    yield "seattle", read_table(demo.weather_file()).panel()
    folder = Path(os.environ.get("GPVAE_DATA", "")) / "beijing_multisite"
    files = sorted(folder.glob("PRSA_Data_*.csv*"))
    if "GPVAE_DATA" in os.environ and files:
        stations = pa.concat_tables([read_table(file).table for file in files], promote_options="permissive")
        yield "beijing", Panel.from_frame(stations, id="station", time="No", columns=BEIJING)
    else:
        print("beijing_multisite is skipped: GPVAE_DATA names no folder that has it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--patterns", nargs="+", choices=("cells", "outages"), default=["cells", "outages"])
    parser.add_argument("--tables", nargs="+", choices=("seattle", "beijing"), default=["seattle", "beijing"])
    options = parser.parse_args()
    for name, panel in tables():
        if name not in options.tables:
            continue
        rows: list[dict[str, object]] = []
        for seed in range(options.seeds):
            gaps = {"cells": missingness.random(panel, 0.1, seed), "outages": outages(panel, seed)}
            methods = {each: method(each, seed=seed, verbose=True) for each in COMPARED}
            for pattern in options.patterns:
                result = evaluation.evaluate(panel, gaps[pattern], methods, seed=seed)
                for score in result.scores:
                    rows.append({"table": name, "gaps": pattern, "seed": seed, "interval": 0.9, **asdict(score)})
                    print(rows[-1], flush=True)
                provenance.write(provenance.ROOT / "results" / f"{name}.csv", rows)


if __name__ == "__main__":
    main()
