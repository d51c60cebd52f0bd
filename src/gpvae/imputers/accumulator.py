"""Collect what was drawn for each missing cell, while the device computes the next."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae.data.panel import Floats
from gpvae.data.scaling import Scaling


class SampleAccumulator:
    """Draws, and the moments of their distributions, of all missing cells."""

    def __init__(self, columns: NDArray[np.int64], samples: int, scaling: Scaling):
        self.columns = columns  # (cell,)
        self.scaling = torch.from_numpy(np.stack([scaling.shift, scaling.scale, scaling.of_kind("positive")]))
        self.draws = np.empty((len(columns), samples), dtype=np.float32)
        self.sums = np.zeros((3, len(columns)))  # over the samples so far: of means, their squares, and variances
        self.pending: tuple[Any, ...] = ()

    def add(self, cells: NDArray[np.int64], samples: slice, *, mean: Tensor, variance: Tensor, draws: Tensor) -> None:
        """Add some samples of some cells. (sample, cell)"""
        columns = torch.from_numpy(self.columns[cells]).to(mean.device)
        centre, noise = self._in_units(mean.double(), variance.double(), columns)
        sums = _to_host(torch.stack([centre.sum(0), (centre**2).sum(0), noise.sum(0)]))
        before, self.pending = self.pending, (cells, samples, _to_host(draws.T.contiguous()), sums)
        self._store(*before)

    def _in_units(self, mean: Tensor, variance: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """Mean, less the shift, and variance in the data's units. Of a Gaussian logarithm,

        E x = exp(m + v/2),  Var x = (exp(v) - 1) (E x)².
        """
        shift, scale, logarithmic = self.scaling.to(mean.device)[:, columns]
        mean, variance = scale * mean, scale**2 * variance
        if not bool(self.scaling[2].any()):
            return mean, variance
        centre = torch.exp(shift + mean + variance / 2)
        is_log = logarithmic > 0
        return torch.where(is_log, centre - shift, mean), torch.where(is_log, variance.expm1() * centre**2, variance)

    def _store(self, *part: Any) -> None:
        if not part or not len(part[0]):
            return
        cells, samples, draws, sums = part
        index = slice(cells[0], cells[-1] + 1) if (np.diff(cells) == 1).all() else cells
        torch.from_numpy(self.draws)[index, samples] = draws()
        self.sums[:, index] += sums().numpy()

    def moments(self) -> tuple[Floats, Floats]:
        """Mean and deviation of each cell, observation noise included, in the data's units."""
        self._store(*self.pending)
        self.pending = ()
        centre, square, noise = self.sums / self.draws.shape[1]
        shift = self.scaling[0].numpy()[self.columns]
        return shift + centre, np.sqrt(np.maximum(square - centre**2, 0) + noise)


def _to_host(x: Tensor) -> Callable[[], Tensor]:
    """Begin to copy from the device; the copy, once it is called for."""
    if not x.is_cuda:
        return lambda: x
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=True).copy_(x, non_blocking=True)
    done = torch.cuda.Event()
    done.record()

    def wait() -> Tensor:
        done.synchronize()
        return host

    return wait
