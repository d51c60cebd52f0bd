"""A small objective, and runs of it."""

import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from gpvae.training.config import TrainingConfig
from gpvae.training.devices import make_fabric
from gpvae.training.loop import train
from gpvae.training.state import TrainState

STEPS = 4  # of an epoch
Batches = Callable[[int], Iterator[Tensor]]
SETTINGS = set(TrainingConfig.__dataclass_fields__)


class Loss(NamedTuple):
    total: Tensor
    parts: dict[str, Tensor]


class Toy(nn.Module):
    """Noisy regression of `shift` with a penalty; `spoil` changes the penalty."""

    def __init__(self, layer: nn.Linear | None = None, shift: float = 0.0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.layer = layer or nn.Linear(3, 2)
        self.shift = shift
        self.kl_scales: list[float] = []
        self.spoil: Callable[[Tensor], Tensor] = lambda part: part

    def forward(self, batch: Tensor, generator: Generator, kl_scale: Tensor) -> Loss:
        self.kl_scales.append(float(kl_scale))
        noise = torch.randn(batch.shape, generator=generator, device=batch.device)
        parts = {
            "fit": (self.layer(batch + noise) - self.shift).square().mean(),
            "size": self.spoil(self.layer.weight.square().sum()),
        }
        return Loss(parts["fit"] + parts["size"], parts)

    @property
    def weight(self) -> Tensor:
        return self.layer.weight.detach().clone()


def batches(epoch: int) -> Iterator[Tensor]:
    generator = Generator().manual_seed(epoch)
    for _ in range(STEPS):
        yield torch.randn(5, 3, generator=generator)


def run(objective: nn.Module, source: Batches = batches, *, epochs: int = 4, **settings: Any) -> TrainState:
    """`train` on the CPU; `settings` are those of the configuration and arguments of `train`."""
    config = {name: settings.pop(name) for name in SETTINGS & settings.keys()}
    config = TrainingConfig(**{"epochs": epochs, "learning_rate": 0.05, **config})
    return train(objective, source, config, **{"fabric": make_fabric("cpu", "32-true"), **settings})


def interrupted_after(steps: int, source: Batches = batches) -> Batches:
    """Ctrl-C while the last of so many steps is prepared."""
    done = 0

    def interrupted(epoch: int) -> Iterator[Tensor]:
        nonlocal done
        for batch in source(epoch):
            done += 1
            if done == steps:
                signal.raise_signal(signal.SIGINT)
            yield batch

    return interrupted


def weight_norm(toy: Toy) -> Callable[[], float]:
    """A validation score."""
    return lambda: float(toy.weight.square().sum())


def scripted(*scores: float) -> Callable[[], float]:
    """Validation scores, one after the other."""
    remaining = iter(scores)
    return lambda: next(remaining)


def two_rates(toy: Toy) -> list[dict[str, Any]]:
    return [{"params": [toy.layer.weight]}, {"params": [toy.layer.bias], "lr": 0.5}]


def with_matrix(toy: Toy) -> list[dict[str, Any]]:
    return [{"params": [toy.layer.bias]}, {"params": [toy.layer.weight], "matrices": True}]
