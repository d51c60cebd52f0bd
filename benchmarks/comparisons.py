"""Every method on PhysioNet 2012, set a: `python benchmarks/comparisons.py [--methods …] [--seeds 3] [--device cuda]`.

A tenth of the measured values (hourly, 35 variables) is hidden at random; each method is fitted to the rest, with its
defaults except for a batch size of 64. PyPOTS's BRITS has the same sizes, learning rate, batches and epochs as ours,
the same cells to choose the best epoch, and the same patience. Errors are in standard deviations of each variable.
GPVAE_DATA names the folder with physionet2012/set-a.tar.xz. Rows are added to those in the output.
"""

import argparse
import csv
import os
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import peers
import provenance
import torch

from gpvae import Panel, evaluation, missingness
from gpvae.data.panel import Bools, Floats
from gpvae.data.scaling import Scaling
from gpvae.datasets import physionet
from gpvae.evaluation import metrics
from gpvae.imputers.registry import METHODS, method

PEER = "PyPOTS's BRITS"
BATCH, EPOCHS, PATIENCE, HIDDEN = 64, 48, 10, 108  # our defaults: 3,000 steps, and a fifth of the epochs


def pypots_brits(visible: Panel, units: Scaling, seed: int, device: str) -> Floats:
    """The values of PyPOTS's BRITS, trained on the same cells as ours, in standard deviations. (row, feature)"""
    held_out = missingness.random(visible, 0.1, [seed, 1])  # the cells that our imputers hold out with this seed
    shape = (len(visible), -1, len(visible.columns))
    whole = units.apply(visible.values).reshape(shape)
    training = units.apply(missingness.hide(visible, held_out).values).reshape(shape)
    torch.manual_seed(seed)
    np.random.seed(seed)
    settings = {"batch_size": BATCH, "epochs": EPOCHS, "patience": PATIENCE}
    peer = peers.brits(whole.shape[1], whole.shape[2], hidden=HIDDEN, device=device, **settings)
    with peers.quiet():
        peer.fit({"X": training}, {"X": training, "X_ori": whole})
        return peer.impute({"X": whole}).reshape(visible.values.shape)


def peer_score(panel: Panel, held_out: Bools, seed: int, device: str) -> evaluation.Score:
    visible = missingness.hide(panel, held_out)
    units = Scaling.of(visible, standardise=True)
    started = time.perf_counter()
    filled = pypots_brits(visible, units, seed, device)
    seconds = time.perf_counter() - started
    truth, point = units.apply(panel.values)[held_out], filled[held_out]
    mae, mse = metrics.absolute_error(truth, point).mean(), metrics.squared_error(truth, point).mean()
    return evaluation.Score(PEER, float(mae), float(mse), crps=float(mae), seconds=seconds)


def run(panel: Panel, name: str, seed: int, device: str) -> dict[str, object]:
    held_out = missingness.random(panel, 0.1, seed)
    if name == PEER:
        score, epochs = peer_score(panel, held_out, seed, device), ""
    else:
        imputer = method(name, batch_size=BATCH, seed=seed, device=device)
        (score,) = evaluation.evaluate(panel, held_out, {name: imputer}, seed=seed).scores
        epochs = len(imputer.history_)
    numbers = {k: f"{v:.4g}" if isinstance(v, float) else v for k, v in asdict(score).items()}
    return {"data": "PhysioNet set a", "seed": seed, **numbers, "epochs": epochs}


def replace_row(output: Path, row: dict[str, object]) -> None:
    """Write the row in place of an older one of the same method and seed."""
    rows: list[dict[str, object]] = []
    if output.exists():
        with output.open() as file:
            rows = [dict(row) for row in csv.DictReader(file)]
    key = (row["method"], str(row["seed"]))
    kept = [other for other in rows if (other["method"], str(other["seed"])) != key]
    provenance.write(output, [*kept, {**row, **provenance.STARTED_AS}], keep=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", choices=(*METHODS, PEER), default=[*METHODS, PEER])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path, default=provenance.ROOT / "results" / "physionet_methods.csv")
    options = parser.parse_args()
    patients = physionet.read(Path(os.environ["GPVAE_DATA"]) / "physionet2012" / "set-a.tar.xz")
    panel = Panel.from_array(patients.values)
    for seed in options.seeds:
        for name in options.methods:
            row = run(panel, name, seed, options.device)
            print(row, flush=True)
            replace_row(options.output, row)


if __name__ == "__main__":
    main()
