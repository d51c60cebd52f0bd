"""Time and memory of a training step by the length of the series: `python benchmarks/lengths.py --device cuda`.

Batch 1, 16 features, 16 latent dimensions. Writes results/lengths_<device>.csv; `--plot` draws every such file,
log-log, into docs/lengths.png, with the slope between each method's last two lengths (1 is linear, 2 quadratic).
"""

import argparse
import csv
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import provenance
import torch
from speed import Case, our_step, their_step
from steps import time_and_memory

LENGTHS = {
    "cpu": {"ours": [2**n for n in range(8, 18)], "PyPOTS": [256, 512, 1024]},
    "cuda": {"ours": [2**n for n in (8, 10, 12, 14, 16, 18, 20)], "PyPOTS": [256, 1024, 4096]},
}
STEPS: dict[str, Callable[[Case, str], Callable[[], None]]] = {"ours": our_step, "PyPOTS": their_step}
NAMES = {"cpu": "CPU", "cuda": "GPU"}


def sweep(device: str, output: Path) -> None:
    rows: list[dict[str, object]] = []
    for method, lengths in LENGTHS[device].items():
        for length in lengths:
            case = Case(f"T {length}", 1, length, 16, 16)
            try:
                seconds, memory = time_and_memory(partial(STEPS[method], case, device), device)
            except torch.cuda.OutOfMemoryError:
                print(f"{method}: out of memory at T = {length}")
                break
            row = {"method": method, "device": device, "length": str(length), "ms": f"{1e3 * seconds:.4g}"}
            rows.append({**row, "us_per_step_of_the_series": f"{1e6 * seconds / length:.4g}", "gb": f"{memory:.3g}"})
            print(rows[-1], flush=True)
            provenance.write(output, rows)


def slope(lengths: list[float], values: list[float]) -> float:
    return math.log(values[-1] / values[-2]) / math.log(lengths[-1] / lengths[-2])


def plot(files: list[Path], output: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    time_axis, memory_axis = figure.subplots(1, 2)
    styles = {"ours": "o-", "PyPOTS": "s--"}
    for file, colour in zip(files, ("#0072b2", "#d55e00"), strict=False):
        with file.open() as handle:
            rows = list(csv.DictReader(handle))
        for method in dict.fromkeys(row["method"] for row in rows):
            of_method = [row for row in rows if row["method"] == method]
            lengths = [float(row["length"]) for row in of_method]
            name = f"{method}, {NAMES[of_method[0]['device']]}"
            for axis, column in ((time_axis, "ms"), (memory_axis, "gb")):
                values = [float(row[column]) for row in of_method]
                if not any(map(math.isnan, values)):
                    label = f"{name} (slope {slope(lengths, values):.2f})"
                    axis.plot(lengths, values, styles[method], color=colour, label=label, markersize=4)
    for axis, label in ((time_axis, "time of a training step, ms"), (memory_axis, "peak memory on the GPU, GB")):
        axis.set(xscale="log", yscale="log", xlabel="steps of the series", ylabel=label)
        axis.grid(alpha=0.3)
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2)
    figure.savefig(output, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--plot", action="store_true", help="draw the existing results instead of measuring")
    options = parser.parse_args()
    results = provenance.ROOT / "results"
    if options.plot:
        plot(sorted(results.glob("lengths_*.csv")), options.output or provenance.ROOT / "docs" / "lengths.png")
    else:
        sweep(options.device, options.output or results / f"lengths_{options.device}.csv")


if __name__ == "__main__":
    main()
