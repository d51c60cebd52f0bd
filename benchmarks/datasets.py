"""Time to build the paper's image data: `python benchmarks/datasets.py [--sequences 4000] [--workers 2]`.

Healing MNIST is built from the first digits only, by one thread, by several, and from some of them by a plain loop over
scipy.ndimage.rotate; `seconds_for_all` is extrapolated to its 70,000 sequences. SPRITES is built whole. GPVAE_DATA
names the folder with mnist and sprites. On a shared machine the wall clock says little: `load` is the machine's load
before each run, and `cpu_seconds` is the time that the process used.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import provenance
from numpy.typing import NDArray
from scipy.ndimage import rotate

from gpvae.datasets import healing_mnist, raw, sprites

ALL = {"Healing MNIST": 70_000, "SPRITES": 11_664}


def timed(data: str, how: str, workers: int, count: int, work: Callable[[], object]) -> dict[str, object]:
    load, started, cpu = os.getloadavg()[0], time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    row: dict[str, object] = {"data": data, "how": how, "workers": workers, "sequences": count}
    row |= {"seconds": round(seconds, 3), "cpu_seconds": round(cpu, 3), "per_second": round(count / seconds)}
    row |= {
        "seconds_for_all": round(seconds / count * ALL[data], 1),
        "extrapolated": count < ALL[data],
        "load": round(load, 1),
    }
    print(*row.values(), flush=True)
    return row


def rotate_one_by_one(images: NDArray[np.uint8], seed: int) -> None:
    """The definition, frame by frame."""
    for image, steps in zip(images, np.random.default_rng(seed).normal(0, 22, (len(images), 10)), strict=True):
        for angle in steps:
            image = rotate(image, angle, reshape=False)


def time_healing_mnist(count: int, workers: int) -> list[dict[str, object]]:
    path = Path(os.environ["GPVAE_DATA"]) / "mnist" / "train-images-idx3-ubyte.gz"
    images = healing_mnist.read_images(path)[:count]
    few = images[: count // 4]
    rows = [timed("Healing MNIST", "scipy.ndimage.rotate, one by one", 1, len(few), partial(rotate_one_by_one, few, 0))]
    for threads in dict.fromkeys((1, workers)):
        work = partial(healing_mnist.rotated, images, 0, workers=threads)
        rows.append(timed("Healing MNIST", "gpvae", threads, len(images), work))
    return rows


def time_sprites() -> list[dict[str, object]]:
    layers = sprites.read_layers(raw.read(sprites.INFO.raw_files[0]))
    starts = range(0, ALL["SPRITES"], 81)

    def compose() -> None:
        for start in starts:
            sprites.compose(layers, range(start, start + 81))

    return [timed("SPRITES", "gpvae", 1, ALL["SPRITES"], compose)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequences", type=int, default=4000)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "datasets.csv")
    options = parser.parse_args()
    provenance.write(options.output, [*time_healing_mnist(options.sequences, options.workers), *time_sprites()])


if __name__ == "__main__":
    main()
