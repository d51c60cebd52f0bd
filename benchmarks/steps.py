"""One training step of ours, as `fit` takes it, and how to time it."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gpvae.data.batches import Batch, BatchIndex, RowTensors
from gpvae.training.config import TrainingConfig
from gpvae.training.devices import make_fabric, tensor_cores
from gpvae.training.optimizers import make_optimizer
from gpvae.training.state import TrainState
from gpvae.training.step import TrainStep


def rows_on_device(batch: Batch) -> tuple[RowTensors, BatchIndex]:
    """The batch as rows on its device, and the cut that gathers it from them."""
    series, time, features = batch.values.shape
    device = batch.values.device
    empty = torch.zeros(1, features, device=device)
    rows = RowTensors(
        values=torch.cat([batch.values.flatten(0, 1), empty]),
        observed=torch.cat([batch.observed.flatten(0, 1), empty.bool()]),
        times=torch.arange(time, device=device, dtype=torch.float64).repeat(series),
        spacing=1.0,
    )
    return rows, BatchIndex(torch.arange(series, device=device) * time, batch.lengths, time)


def training_step(
    objective: nn.Module, cut: BatchIndex, device: str, *, precision: str = "32-true", compile: bool = False
) -> Callable[[], None]:
    """A function that updates the weights once; captured in a graph on CUDA."""
    fabric, config, state = make_fabric(device, precision), TrainingConfig(epochs=1), TrainState()
    optimizer = make_optimizer(objective, config, fabric.device, compile=compile)
    module, optimizer = fabric.setup(objective, optimizer)
    step = TrainStep(module, optimizer, fabric, config, compile=compile)
    step.begin_epoch(state)
    return lambda: step(cut, state)


def time_and_memory(build: Callable[[], Callable[[], None]], device: str) -> tuple[float, float]:
    """Seconds of a step, and its peak memory on the GPU in GB (NaN on a CPU)."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    with tensor_cores(torch.device(device)):
        seconds = median_seconds(build(), device)
    peak = torch.cuda.max_memory_allocated() - before if device == "cuda" else float("nan")
    return seconds, peak / 1e9


def median_seconds(step: Callable[[], Any], device: str, *, least: float = 0.7) -> float:
    """Median time of one call over seven blocks and `least` seconds, or of three slow calls; after a warm-up."""
    started = time.perf_counter()
    for _ in range(6):
        step()
        synchronise(device)
        if time.perf_counter() - started > 4 * least and device == "cpu":
            break
    once = mean_seconds(step, device, 1)
    calls = max(1, round(least / 7 / max(once, 1e-9)))
    return statistics.median(mean_seconds(step, device, calls) for _ in range(7 if once < least else 3))


def mean_seconds(step: Callable[[], Any], device: str, calls: int) -> float:
    synchronise(device)
    started = time.perf_counter()
    for _ in range(calls):
        step()
    synchronise(device)
    return (time.perf_counter() - started) / calls


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
