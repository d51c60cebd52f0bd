"""The default on a small table: `python benchmarks/tables.py [--seeds 3]` writes results/seattle.csv.

Seattle's weather is one series of 1,461 days and 4 columns. A tenth of the cells is held out, one by one, as `gpvae
evaluate` does, or as outages of ten rows. `protocols.py P4` has larger tables.
"""

import argparse
from dataclasses import asdict

import numpy as np
import provenance

from gpvae import Panel, demo, evaluation, missingness
from gpvae.data.files import read_table
from gpvae.data.panel import Bools
from gpvae.imputers.registry import COMPARED, method

OUTAGE = 10  # rows in which all columns are missing


def outages(panel: Panel, seed: int) -> Bools:
    """A tenth of the rows, in runs of OUTAGE rows, missing in all columns: the hardest gaps to fill."""
    rng = np.random.default_rng([seed, 2])
    cells = np.zeros(panel.values.shape, dtype=bool)
    for start, length in zip(panel.starts, panel.lengths, strict=True):
        slots = np.arange(length // OUTAGE)
        for slot in rng.choice(slots, round(len(slots) / 10), replace=False):
            cells[start + slot * OUTAGE : start + (slot + 1) * OUTAGE] = True
    return cells & panel.observed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--patterns", nargs="+", choices=("cells", "outages"), default=["cells", "outages"])
    options = parser.parse_args()
    panel, rows = read_table(demo.weather_file()).panel(), list[dict[str, object]]()
    for seed in range(options.seeds):
        gaps = {"cells": missingness.random(panel, 0.1, seed), "outages": outages(panel, seed)}
        methods = {each: method(each, seed=seed, verbose=True) for each in COMPARED}
        for pattern in options.patterns:
            result = evaluation.evaluate(panel, gaps[pattern], methods, seed=seed)
            for score in result.scores:
                rows.append({"table": "seattle", "gaps": pattern, "seed": seed, "interval": 0.9, **asdict(score)})
                print(rows[-1], flush=True)
            provenance.write(provenance.ROOT / "results" / "seattle.csv", rows)


if __name__ == "__main__":
    main()
