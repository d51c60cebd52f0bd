"""Seconds of an epoch of BRITS, ours and PyPOTS 1.5's: `python benchmarks/brits.py --device cuda`.

Random data of PhysioNet's size, 4,000 × 48 × 35 with a fifth observed. Our step is that of training, which gathers the
batch and computes its time gaps; PyPOTS's is the body of its own loop, with the batch and its gaps ready. Steps of both
are timed in turn, and an epoch is extrapolated from their median. Before that, PyPOTS's weights are copied into our
network, which must then fill the same gaps with the same numbers.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import peers
import provenance
import torch
from steps import mean_seconds, rows_on_device, training_step
from torch import Generator

from gpvae.data.batches import Batch
from gpvae.imputers.brits import BritsNetwork
from gpvae.imputers.point import BatchLoss
from gpvae.training.devices import tensor_cores

SERIES, TIME, FEATURES, HIDDEN, OBSERVED = 4000, 48, 35, 108, 0.2
WARM_UPS, ROUNDS = 6, 7


def random_batch(size: int, device: str) -> Batch:
    generator = Generator().manual_seed(0)
    values = torch.randn(size, TIME, FEATURES, generator=generator).to(device)
    observed = (torch.rand(size, TIME, FEATURES, generator=generator) < OBSERVED).to(device)
    return Batch(values * observed, observed, 1.0, torch.full((size,), TIME, device=device))


def our_step(batch: Batch, device: str) -> Callable[[], None]:
    """One update of the weights; the batch is gathered from rows on the device."""
    torch.manual_seed(0)
    network = BritsNetwork(FEATURES, hidden=HIDDEN).to(device)
    rows, cut = rows_on_device(batch)
    return training_step(BatchLoss(network, rows), cut, device)


@torch.no_grad()
def copy_weights(peer: Any, ours: BritsNetwork) -> None:
    """PyPOTS's gates are in the order i, f, g, o, with two biases each."""
    for d, theirs in enumerate((peer.rits_f, peer.rits_b)):
        cell = theirs.rnn_cell
        i, f, g, o = torch.arange(4 * ours.hidden).chunk(4)
        order = torch.cat([o, i, f, g])
        for layer, weight, bias in (
            (ours.fade, theirs.temp_decay_h.W, theirs.temp_decay_h.b),
            (ours.fade_values, theirs.temp_decay_x.W.diag().unsqueeze(-1), theirs.temp_decay_x.b),
            (ours.history, theirs.hist_reg.weight, theirs.hist_reg.bias),
            (ours.regression, theirs.feat_reg.W, theirs.feat_reg.b),
            (ours.blend, theirs.combining_weight.weight, theirs.combining_weight.bias),
            (ours.gates, torch.cat([cell.weight_hh, cell.weight_ih], 1)[order], (cell.bias_ih + cell.bias_hh)[order]),
        ):
            layer.weight[d], layer.bias[d] = weight.mT, bias


@torch.no_grad()
def largest_difference(device: str) -> float:
    """Between the values that both fill in, with the same weights."""
    batch, ours = random_batch(8, device), BritsNetwork(FEATURES, hidden=HIDDEN).to(device)
    peer = peers.brits(TIME, FEATURES, hidden=HIDDEN, device=device)
    copy_weights(peer.model.model, ours)
    theirs = peer.model(peers.brits_inputs(batch.values, batch.observed))["imputation"]
    return float((ours.fill(batch, Generator(device)) - theirs).abs().max())


def seconds_in_turn(steps: list[Callable[[], None]], device: str, count: int) -> list[float]:
    """Median seconds of each, over rounds in which `count` steps of one follow `count` steps of the other."""
    for _ in range(WARM_UPS):
        for step in steps:
            step()
    rounds = [[mean_seconds(step, device, count) for step in steps] for _ in range(ROUNDS)]
    return [median(seconds) for seconds in zip(*rounds, strict=True)]


def measure(size: int, device: str, count: int) -> dict[str, object]:
    batch = random_batch(size, device)
    with tensor_cores(torch.device(device)):
        steps = [our_step(batch, device), peers.brits_step(batch.values, batch.observed, hidden=HIDDEN)]
        ours, theirs = seconds_in_turn(steps, device, count)
    epoch = -(-SERIES // size)
    row: dict[str, object] = {
        "case": f"{SERIES} × {TIME} × {FEATURES}, hidden {HIDDEN}",
        "batch": size,
        "threads": torch.get_num_threads() if device == "cpu" else "",
        "steps_timed": ROUNDS * count,
        "steps_of_epoch": epoch,
        "ours_epoch_s": f"{epoch * ours:.4g}",
        "peer_epoch_s": f"{epoch * theirs:.4g}",
        "ratio": f"{theirs / ours:.4g}",
    }
    print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    error = largest_difference(options.device)
    if not error < 1e-4:
        raise SystemExit(f"with PyPOTS's weights our network fills in other numbers, up to {error:.1e} apart")
    count = 20 if options.device == "cuda" else 2
    rows = [{**measure(size, options.device, count), "difference": f"{error:.1e}"} for size in (32, 64)]
    provenance.write(options.output or provenance.ROOT / "results" / f"brits_{options.device}.csv", rows)


if __name__ == "__main__":
    main()
