"""The prior: independent Gaussian processes over time, one for each latent dimension."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gpvae.gp import NeighbourFactor, grid_factor, neighbour_factor
from gpvae.gp.kernels import Cauchy, Kernel, LatentKernel

Times = Tensor | float  # (batch, time), or the one step of an even grid; in steps


@dataclass(frozen=True)
class Prior:
    """The setting `ModelConfig.prior`.

    kernel: the covariance over time; its length scales count steps.
    learned: learn its length scales and variances.
    neighbours: how many past steps each step is conditioned on; None: enough for the kernel; 0: steps are independent.
    jitter: variance of the white noise that is added to the kernel.
    """

    kernel: Kernel = Cauchy(7.0)
    learned: bool = False
    neighbours: int | None = None
    jitter: float = 1e-3

    def __post_init__(self) -> None:
        if self.jitter <= 0:
            raise ValueError(f"jitter must be above 0, got {self.jitter}")
        if self.neighbours is not None and self.neighbours < 0:
            raise ValueError(f"neighbours must not be negative, got {self.neighbours}")

    @property
    def order(self) -> int:
        """Neighbours in use.

        The rule is within 1e-4 nats a step of the full Cauchy GP up to a reach of 45 steps; beyond, the count stops
        growing, and a kernel that needs more (a period of 365, say) has to be given `neighbours`.
        """
        return min(64, max(16, math.ceil(1.4 * self.kernel.reach()))) if self.neighbours is None else self.neighbours

    def build(self, latent_dim: int) -> "GPPrior":
        kernel = LatentKernel(self.kernel, latent_dim, learned=self.learned)
        return GPPrior(kernel, neighbours=self.order, jitter=self.jitter)


class PriorAt(NamedTuple):
    """The prior at some times, for each latent dimension, or one for all of them."""

    std: Tensor  # (latent or 1,)
    corr: Tensor  # ([batch, time - 1,] latent or 1) of neighbours
    weights: Tensor  # of the `NeighbourFactor`


class GPPrior(nn.Module):
    """Independent zero-mean GPs, one for each latent dimension, conditioned on their `neighbours` last steps.

    `jitter` is the variance of the white noise added to the kernel; it keeps the smoothest kernels well conditioned.
    """

    def __init__(self, kernel: LatentKernel, *, neighbours: int, jitter: float):
        super().__init__()
        self.kernel, self.neighbours, self.jitter = kernel, neighbours, jitter

    def at(self, times: Times, dtype: torch.dtype = torch.float32, *, steps: int | None = None) -> PriorAt:
        """Marginals and neighbour conditionals at `times`; computed in float64. On a grid for series up to `steps`."""
        with self._in_double():
            if isinstance(times, Tensor):
                factor = neighbour_factor(self._covariance, times.double(), self.neighbours)
                return PriorAt(*self.marginals(times, dtype), self.kernel.to_latents(factor.weights).to(dtype))
            order = self.neighbours if steps is None else min(self.neighbours, steps - 1)
            covariances = self._grid(times, order)
            weights = grid_factor(covariances[:, : order + 1]).weights
            return PriorAt(*self._grid_marginals(covariances, dtype), self.kernel.to_latents(weights).to(dtype))

    def factor(self, times: Times, dtype: torch.dtype = torch.float32) -> NeighbourFactor:
        return NeighbourFactor(self.at(times, dtype).weights)

    def marginals(self, times: Times, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Deviation of a step (latent or 1,), and correlation of neighbours (..., latent or 1).

        The correlation has (batch, time - 1) in front, or, on an even grid, nothing.
        """
        with self._in_double():
            if not isinstance(times, Tensor):
                return self._grid_marginals(self._grid(times, 1), dtype)
            variance = self._covariance(times.new_zeros(1).double())  # (group, 1)
            lags = self._covariance(times.double().diff()).movedim(0, -1)
            return self._per_latent(variance.squeeze(-1), lags, dtype)

    @property
    def learned(self) -> bool:
        return any(parameter.requires_grad for parameter in self.kernel.parameters())

    def _in_double(self) -> torch.autocast:
        return torch.autocast(self.kernel.group.device.type, enabled=False)

    def _grid(self, step: float, lags: int) -> Tensor:
        """Covariances at lags 0, 1, … of an even grid, one more than the last at least. (group, lag)"""
        return self._covariance(
            step * torch.arange(max(lags, 1) + 1, device=self.kernel.group.device, dtype=torch.float64)
        )

    def _grid_marginals(self, covariances: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self._per_latent(covariances[:, 0], covariances[:, 1], dtype)

    def _per_latent(self, variance: Tensor, lag_one: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        to_latents = self.kernel.to_latents
        return to_latents(variance).sqrt().to(dtype), to_latents(lag_one / variance).to(dtype)

    def _covariance(self, lags: Tensor) -> Tensor:
        return self.kernel(lags) + self.jitter * (lags == 0)
