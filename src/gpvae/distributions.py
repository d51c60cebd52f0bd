"""The GP prior over latent series, and the likelihoods of observed values."""

import math
from typing import Literal, NamedTuple, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from gpvae.kernels import LatentKernel
from gpvae.linalg import LOG_2PI, NeighbourFactor, grid_factor, neighbour_factor

LikelihoodName = Literal["gaussian", "bernoulli"]
Times = Tensor | float  # (batch, time), or the one step of an even grid; in steps


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

    def at(self, times: Times, dtype: torch.dtype = torch.float32, *, steps: int | None = None) -> "PriorAt":
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


class Likelihood(Protocol):
    """p(x | decoded): everything elementwise over (..., time, feature)."""

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor: ...
    def mean(self, decoded: Tensor) -> Tensor: ...
    def variance(self, decoded: Tensor) -> Tensor: ...
    def sample(self, decoded: Tensor, generator: Generator) -> Tensor: ...


class Gaussian(nn.Module):
    """N(decoded, noise²) with one noise level a feature: fixed, or learned and never below `FLOOR`."""

    FLOOR = 0.01

    def __init__(self, features: int, noise: float | None = None):
        super().__init__()
        start = 0.5 if noise is None else noise
        if start <= self.FLOOR:
            raise ValueError(f"the noise must be above {self.FLOOR}, not {noise}")
        self.raw = nn.Parameter(torch.empty(features), requires_grad=noise is None)
        self.set_noise(torch.full((features,), start))

    @property
    def noise(self) -> Tensor:
        """Standard deviations. (feature,)"""
        return self.FLOOR + softplus(self.raw)

    @torch.no_grad()
    def set_noise(self, noise: Tensor) -> None:
        above = (noise - self.FLOOR).clamp(min=1e-4)
        self.raw.copy_(above + torch.log(-torch.expm1(-above)))  # the inverse of softplus

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        noise = self.noise
        return -0.5 * (((values - decoded) / noise) ** 2 + LOG_2PI) - noise.log()

    def mean(self, decoded: Tensor) -> Tensor:
        return decoded

    def variance(self, decoded: Tensor) -> Tensor:
        return (self.noise**2).expand_as(decoded)

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        return decoded + self.noise * _normal_like(decoded, generator)


class Bernoulli(nn.Module):
    """Values in [0, 1], white with probability sigmoid(decoded)."""

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        return values * logsigmoid(decoded) + (1 - values) * logsigmoid(-decoded)

    def mean(self, decoded: Tensor) -> Tensor:
        return decoded.sigmoid()

    def variance(self, decoded: Tensor) -> Tensor:
        return decoded.sigmoid() * (-decoded).sigmoid()

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        uniform = torch.rand(decoded.shape, generator=generator, device=decoded.device, dtype=decoded.dtype)
        return (uniform < decoded.sigmoid()).to(decoded.dtype)


def neighbours_for(reach: float) -> int:
    """Enough neighbours for a kernel with the time scale `reach`, in steps.

    For the Cauchy kernel that is within 1e-4 nats a step of the full GP, up to a reach of 45; beyond, the count stops
    growing, and a kernel that needs more (a period of 365, say) has to be given them in `ModelConfig.neighbours`.
    """
    return min(64, max(16, math.ceil(1.4 * reach)))


def _normal_like(x: Tensor, generator: Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
