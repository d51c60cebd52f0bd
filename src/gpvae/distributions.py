"""The GP prior over latent series, and the likelihoods of observed values."""

import math
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from gpvae.kernels import LatentKernel
from gpvae.linalg import LOG_2PI, NeighbourFactor, neighbour_factor

LikelihoodName = Literal["gaussian", "bernoulli"]
Times = Tensor | float  # (batch, time), or the one step of an even grid; in steps
T = TypeVar("T")
KNOWN_AT_MOST = 16


class GPPrior(nn.Module):
    """Independent zero-mean GPs, one for each latent dimension, conditioned on their `neighbours` last steps.

    `jitter` is the variance of the white noise added to the kernel; it keeps the smoothest kernels well conditioned.
    """

    def __init__(self, kernel: LatentKernel, *, neighbours: int, jitter: float):
        super().__init__()
        self.kernel, self.neighbours, self.jitter = kernel, neighbours, jitter

        self._known: dict[Any, Any] = {}

    def factor(self, times: Times, dtype: torch.dtype = torch.float32) -> NeighbourFactor:
        """Neighbour conditionals at `times`; computed in float64, on an even grid only once."""

        def compute() -> NeighbourFactor:
            found = neighbour_factor(self._covariance, times, self.neighbours, device=self._device)
            return NeighbourFactor(self.kernel.to_latents(found.weights).to(dtype))

        return self._remembered(("factor", times, dtype), compute)

    def marginals(self, times: Times) -> tuple[Tensor, Tensor]:
        """Deviation of a step (latent or 1,), and correlation of neighbours (..., latent or 1).

        The correlation has a (batch, time - 1) in front where times are not those of an even grid.
        """

        def compute() -> tuple[Tensor, Tensor]:
            zero = torch.zeros(1, device=self._device, dtype=torch.float64)
            lags = times.double().diff() if isinstance(times, Tensor) else zero[0] + times
            variance = self._covariance(zero).squeeze(-1)  # (group,)
            correlation = self._covariance(lags).movedim(0, -1) / variance
            to_latents = self.kernel.to_latents
            return to_latents(variance).sqrt().float(), to_latents(correlation).float()

        return self._remembered(("marginals", times), compute)

    def _remembered(self, key: tuple[Any, ...], compute: Callable[[], T]) -> T:
        """What was computed before with the same parameters, for an even grid and a kernel that is not learned.

        (One that is learned changes with every step; on a GPU that replays a recorded step, unseen from here.)
        """
        parameters = list(self.kernel.parameters())
        with torch.autocast(self._device.type, enabled=False):
            if any(parameter.requires_grad for parameter in parameters) or any(
                isinstance(part, Tensor) for part in key
            ):
                return compute()
            key = (*key, self._device, *(parameter._version for parameter in parameters))
            if key not in self._known:
                if len(self._known) >= KNOWN_AT_MOST:
                    self._known.clear()
                self._known[key] = compute()
            return self._known[key]

    @property
    def _device(self) -> torch.device:
        return self.kernel.group.device

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
