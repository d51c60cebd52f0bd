"""How good the default is on real tables: `python benchmarks/tables.py [--seeds 3]` writes results/tables.csv.

The same as `gpvae evaluate` with 10 % of the cells held out: Seattle's weather (one series of 1,461 days, 4 columns),
and, where GPVAE_DATA names a folder that has it, Beijing's air quality (12 stations × 35,064 hours, 11 columns).
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import provenance
import pyarrow as pa

from gpvae import GPVAE, Panel, demo, evaluation, missingness
from gpvae.files import read_table

BEIJING = ["PM2.5", "PM10", "SO2", "NO2", "CO", "O3", "TEMP", "PRES", "DEWP", "RAIN", "WSPM"]


def tables() -> Iterator[tuple[str, Panel]]:
    yield "seattle weather", read_table(demo.weather_file()).panel()
    folder = Path(os.environ.get("GPVAE_DATA", "")) / "beijing_multisite"
    files = sorted(folder.glob("PRSA_Data_*.csv*"))
    if "GPVAE_DATA" in os.environ and files:
        stations = pa.concat_tables([read_table(file).table for file in files], promote_options="permissive")
        yield "beijing multi-site", Panel.from_frame(stations, id="station", time="No", columns=BEIJING)
    else:
        print("beijing_multisite is skipped: GPVAE_DATA names no folder that has it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "tables.csv")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for name, panel in tables():
        for seed in range(options.seeds):
            held_out = missingness.random(panel, 0.1, seed)
            result = evaluation.evaluate(panel, held_out, GPVAE(seed=seed, verbose=True), seed=seed)
            for score in result.scores:
                rows.append({"table": name, "hold_out": 0.1, "seed": seed, "interval": 0.9, **asdict(score)})
                print(rows[-1], flush=True)
            provenance.write(options.output, rows)


if __name__ == "__main__":
    main()
