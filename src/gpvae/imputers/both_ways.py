"""A batch as a network reads it that goes through each series forward and backward."""

from typing import NamedTuple

import torch
from torch import Tensor

from gpvae.data.batches import Batch, elapsed


class BothWays(NamedTuple):
    """A batch as the two directions read it. (direction, time, batch, feature)"""

    values: Tensor  # 0 where missing
    observed: Tensor  # 1 where observed
    elapsed: Tensor  # δ: time since the last observation, or since the start where there was none
    order: Tensor  # (time, batch, 1) which step is read when, backward; it undoes itself

    @classmethod
    def of(cls, batch: Batch) -> "BothWays":
        order = _turned(batch).unsqueeze(-1)
        observed = batch.observed.transpose(0, 1)  # (time, batch, feature)
        values = torch.where(observed, batch.values.transpose(0, 1), 0)
        seen = torch.stack([observed, _turn(observed, order)])
        values = torch.stack([values, _turn(values, order)])
        return cls(values, seen.to(values.dtype), _elapsed(batch, seen, order), order)

    def in_time(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Both halves of x, the backward one turned around again. (time, batch, feature) each"""
        return x[0], _turn(x[1], self.order)


def _turned(batch: Batch) -> Tensor:
    """Each series from its own last step to its first; padding stays where it is, behind them. (time, batch)"""
    step = torch.arange(batch.values.shape[1], device=batch.lengths.device).unsqueeze(-1)
    return torch.where(step < batch.lengths, batch.lengths - 1 - step, step)


def _turn(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(0, order.expand_as(x))


def _elapsed(batch: Batch, seen: Tensor, order: Tensor) -> Tensor:
    """δ for each direction."""
    if isinstance(batch.times, Tensor):
        times, unit = batch.times.mT.unsqueeze(-1), 1.0
        times = torch.stack([times, -_turn(times, order)])  # rising either way
    else:
        times, unit = torch.arange(len(order), device=order.device).view(1, -1, 1, 1), batch.times
    return unit * elapsed(times, seen).to(batch.values.dtype)
