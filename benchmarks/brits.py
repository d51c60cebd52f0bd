"""BRITS beside PyPOTS 1.5's, seconds of an epoch: `python benchmarks/brits.py --device cuda`.

Made-up data of PhysioNet's size, 4,000 × 48 × 35 with a fifth observed. Our step is the one training takes, batch
gathered and time gaps computed; PyPOTS's is the body of its own loop, with the batch and its gaps ready. Some steps of
each are timed in turn, and an epoch is reckoned from their median. Before that, PyPOTS's weights are put into our
network, which must then fill the same gaps with the same numbers.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import peers
import provenance
import torch
from torch import Generator, Tensor

from gpvae.data.batches import Batch, Cut, Rows
from gpvae.imputers.brits import BritsNetwork
from gpvae.models.model import Loss
from gpvae.training.loop import Progression, TrainingConfig, fabric_for, tensor_cores, update_of

SERIES, TIME, FEATURES, HIDDEN, OBSERVED = 4000, 48, 35, 108, 0.2
WARM_UPS = 6


def random_batch(size: int, device: str) -> Batch:
    generator = Generator().manual_seed(0)
    values = torch.randn(size, TIME, FEATURES, generator=generator).to(device)
    observed = (torch.rand(size, TIME, FEATURES, generator=generator) < OBSERVED).to(device)
    return Batch(values * observed, observed, 1.0, torch.full((size,), TIME, device=device))


def our_step(batch: Batch, device: str) -> Callable[[], None]:
    """One update of the weights, recorded as a graph on CUDA; the batch is gathered from rows on the device."""
    torch.manual_seed(0)
    network = BritsNetwork(FEATURES, hidden=HIDDEN).to(device)
    empty = torch.zeros(1, FEATURES, device=device)
    rows = Rows(
        values=torch.cat([batch.values.flatten(0, 1), empty]),
        observed=torch.cat([batch.observed.flatten(0, 1), empty.bool()]),
        times=torch.arange(TIME, device=device, dtype=torch.float64).repeat(len(batch.values)),
        spacing=1.0,
    )
    cut = Cut(torch.arange(len(batch.values), device=device) * TIME, batch.lengths, TIME)

    def loss(cut: Cut, generator: Generator, warmth: Tensor) -> Loss:
        return network.loss(rows.batch(cut), generator, warmth)

    run = Progression()
    update = update_of(network, loss, TrainingConfig(epochs=1), fabric_for(device, "32-true"), run)
    update.begin_epoch()

    def step() -> None:
        update(cut)
        run.count_step()

    return step


@torch.no_grad()
def copy_weights(peer: Any, ours: BritsNetwork) -> None:
    """PyPOTS's gates are in the order i, f, g, o, and have two biases."""
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
def check(device: str) -> float:
    """The largest difference between what the two fill in, with the same weights."""
    batch, ours = random_batch(8, device), BritsNetwork(FEATURES, hidden=HIDDEN).to(device)
    peer = peers.brits(TIME, FEATURES, hidden=HIDDEN, device=device)
    copy_weights(peer.model.model, ours)
    theirs = peer.model(peers.brits_inputs(batch.values, batch.observed))["imputation"]
    return float((ours.fill(batch, Generator(device)) - theirs).abs().max())


def in_turn(steps: list[Callable[[], None]], device: str, count: int) -> list[float]:
    """Median seconds of each, `count` steps of one after as many of the other being a round."""
    taken: list[list[float]] = [[] for _ in steps]
    for _ in range(WARM_UPS):
        for step in steps:
            step()
    for _ in range(7):
        for step, seconds in zip(steps, taken, strict=True):
            _synchronise(device)
            started = time.perf_counter()
            for _ in range(count):
                step()
            _synchronise(device)
            seconds.append((time.perf_counter() - started) / count)
    return [median(seconds) for seconds in taken]


def _synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(size: int, device: str, count: int) -> dict[str, object]:
    batch = random_batch(size, device)
    with tensor_cores(torch.device(device)):
        steps = [our_step(batch, device), peers.brits_step(batch.values, batch.observed, hidden=HIDDEN)]
        ours, theirs = in_turn(steps, device, count)
    epoch = -(-SERIES // size)
    row: dict[str, object] = {
        "case": f"{SERIES} × {TIME} × {FEATURES}, hidden {HIDDEN}",
        "batch": size,
        "threads": torch.get_num_threads() if device == "cpu" else "",
        "steps_timed": 7 * count,
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
    error = check(options.device)
    if not error < 1e-4:
        raise SystemExit(f"with PyPOTS's weights we fill in other numbers, up to {error:.1e} apart")
    count = 20 if options.device == "cuda" else 2
    rows = [{**measure(size, options.device, count), "difference": f"{error:.1e}"} for size in (32, 64)]
    provenance.write(options.output or provenance.ROOT / "results" / f"brits_{options.device}.csv", rows)


if __name__ == "__main__":
    main()
