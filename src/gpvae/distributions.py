"""The GP prior over latent series, and the likelihoods of observed values."""

import math
from typing import Literal, Protocol

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from gpvae.kernels import LatentKernel
from gpvae.linalg import LOG_2PI, NeighbourFactor, neighbour_factor

LikelihoodName = Literal["gaussian", "bernoulli"]


class GPPrior(nn.Module):
    """Independent zero-mean GPs, one for each latent dimension, conditioned on their `neighbours` last steps.

    `jitter` is the variance of the white noise added to the kernel; it keeps the smoothest kernels well conditioned.
    """

    def __init__(self, kernel: LatentKernel, *, neighbours: int, jitter: float):
        super().__init__()
        self.kernel, self.neighbours, self.jitter = kernel, neighbours, jitter

    def factor(self, times: Tensor, dtype: torch.dtype = torch.float32) -> NeighbourFactor:
        """Neighbour conditionals at `times` (time,) of an even grid, or (batch, time); computed in float64."""
        with torch.autocast(times.device.type, enabled=False):
            factor = neighbour_factor(self._covariance, times.double(), self.neighbours)
        return NeighbourFactor(self.kernel.to_latents(factor.weights).to(dtype))

    def marginals(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Deviation of a step (latent or 1,), and correlation of neighbours (..., time - 1, latent or 1)."""
        with torch.autocast(times.device.type, enabled=False):
            variance = self._covariance(times.new_zeros(1)).mT
            covariance = self._covariance(times.double().diff()).movedim(0, -1)
        to_latents = self.kernel.to_latents
        return to_latents(variance).sqrt().squeeze(0).float(), to_latents(covariance / variance).float()

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
