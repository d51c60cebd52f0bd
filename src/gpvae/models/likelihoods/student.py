"""Student's t: single values may be far off without moving the location or widening the rest."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from scipy.special import stdtr
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from gpvae.models.likelihoods.base import LikelihoodSpec, RealLikelihood, RealParams
from gpvae.models.likelihoods.sampling import Random, draw, normal_like


@dataclass(frozen=True)
class Student(LikelihoodSpec):
    """Student's t with a scale for each value and tails for each column, all learned."""

    def build(self, features: int) -> "StudentLikelihood":
        return StudentLikelihood(features)


class StudentLikelihood(RealLikelihood):
    """x = location + scale · t_ν, the location and log scale of each value decoded, ν of each feature learned."""

    decodes_scale = True
    FLOOR = 0.01  # of the scale
    MAX_LOG_SCALE = 3.0
    LOG_SCALE_SHIFT = -0.7  # a decoded 0 is a scale of about a half
    MIN_FREEDOM = 2.1  # above two there is a variance

    def __init__(self, features: int):
        super().__init__(features, outputs=2 * features)
        self.raw_freedom = nn.Parameter(torch.full((features,), 2.0))

    @property
    def freedom(self) -> Tensor:
        """ν. (feature,)"""
        return self.MIN_FREEDOM + softplus(self.raw_freedom)

    def unpack(self, decoded: Tensor) -> RealParams:
        return RealParams(*decoded.chunk(2, dim=-1))

    def scale(self, params: RealParams) -> Tensor:
        assert params.log_scale is not None
        log_scale = (params.log_scale + self.LOG_SCALE_SHIFT).clamp(max=self.MAX_LOG_SCALE)
        return params.scale_factor * (self.FLOOR + log_scale.exp())

    def log_prob(self, params: RealParams, values: Tensor) -> Tensor:
        nu, scale = self.freedom, self.scale(params)
        constant = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * torch.log(nu * math.pi)
        error = (values - params.location) / scale
        return constant - scale.log() - (nu + 1) / 2 * torch.log1p(error**2 / nu)

    def variance(self, params: RealParams) -> Tensor:
        return self.scale(params) ** 2 * self.freedom / (self.freedom - 2)

    def sample(self, params: RealParams, random: Random) -> Tensor:
        """t_ν = ε / √(χ²_ν / ν), and χ²_ν is twice a Gamma(ν/2)."""
        location, scale, nu = params.location, self.scale(params), self.freedom
        gamma = draw(_gamma, (nu / 2).expand_as(location), random)
        return location + scale * normal_like(location, random) * torch.rsqrt(2 * gamma / nu)

    def cdf(self, error: NDArray[Any], column: int) -> NDArray[Any]:
        return stdtr(float(self.freedom[column]), error)

    def best_nll(self, error: Tensor) -> float:
        """Of Laplace's distribution, whose best scale is the mean absolute error: Student's has no closed form."""
        return 1 + math.log(max(2 * float(error.abs().mean()), 1e-6))


def _gamma(shape: Tensor, generator: Generator) -> Tensor:
    return torch._standard_gamma(shape.contiguous(), generator)  # pyright: ignore[reportPrivateImportUsage]
