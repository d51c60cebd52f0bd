"""Gaussian noise with one level for each feature."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from scipy.special import ndtr
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpvae.gp import LOG_2PI
from gpvae.models.likelihoods.base import LikelihoodSpec, RealLikelihood, RealParams
from gpvae.models.likelihoods.sampling import Random, normal_like


@dataclass(frozen=True)
class Gaussian(LikelihoodSpec):
    """Gaussian noise of deviation `noise` in scaled units; None: learned for each column."""

    noise: float | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and self.noise <= GaussianLikelihood.FLOOR:
            raise ValueError(f"noise must be above {GaussianLikelihood.FLOOR}, got {self.noise}")

    def build(self, features: int) -> "GaussianLikelihood":
        return GaussianLikelihood(features, self.noise)


class GaussianLikelihood(RealLikelihood):
    """N(location, noise²), the noise of each feature fixed, or learned and never below `FLOOR`."""

    FLOOR = 0.01
    FIRST_NOISE = 0.5

    def __init__(self, features: int, noise: float | None = None):
        super().__init__(features, outputs=features)
        self.noise_is_fixed = noise is not None
        above = torch.full((features,), (self.FIRST_NOISE if noise is None else noise) - self.FLOOR)
        inverse_softplus = above + torch.log(-torch.expm1(-above))
        self.raw = nn.Parameter(inverse_softplus, requires_grad=noise is None)

    @property
    def noise(self) -> Tensor:
        """Standard deviations. (feature,)"""
        return self.FLOOR + softplus(self.raw)

    def scale(self, params: RealParams) -> Tensor:
        return (self.noise * params.scale_factor).expand_as(params.location)

    def log_prob(self, params: RealParams, values: Tensor) -> Tensor:
        noise = self.noise * params.scale_factor
        return -0.5 * (((values - params.location) / noise) ** 2 + LOG_2PI) - noise.log()

    def variance(self, params: RealParams) -> Tensor:
        return self.scale(params) ** 2

    def sample(self, params: RealParams, random: Random) -> Tensor:
        return params.location + self.scale(params) * normal_like(params.location, random)

    def cdf(self, error: NDArray[Any], column: int) -> NDArray[Any]:
        return ndtr(error)

    def best_nll(self, error: Tensor) -> float:
        """The best deviation is the root mean square."""
        return 0.5 * (LOG_2PI + 1 + math.log(max(float((error**2).mean()), 1e-12)))
