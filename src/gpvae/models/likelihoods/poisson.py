"""Counts."""

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from gpvae.models.likelihoods.base import DiscreteLikelihood
from gpvae.models.likelihoods.sampling import Random, draw


class PoissonLikelihood(DiscreteLikelihood):
    """Counts with the rate r = typical · (softplus(decoded) / log 2 + FLOOR): the typical one where decoded is 0."""

    FLOOR = 1e-6
    MIN_TYPICAL = 1e-3
    typical: Tensor  # (feature,)

    def __init__(self, features: int):
        super().__init__(features)
        self.register_buffer("typical", torch.ones(features))

    @torch.no_grad()
    def init_from_data(self, values: Tensor, observed: Tensor) -> None:
        mean = (values * observed).sum(0) / observed.sum(0).clamp(min=1)
        self.typical.copy_(mean.clamp(min=self.MIN_TYPICAL))

    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        """Log (1 + count), relative to that of a typical one."""
        return (values.log1p() - self.typical.log1p()) * observed

    def rate(self, params: Tensor) -> Tensor:
        return self.typical * (softplus(params) / math.log(2) + self.FLOOR)

    def log_prob(self, params: Tensor, values: Tensor) -> Tensor:
        """In double precision: of large counts, large numbers have to cancel."""
        rate, count = self.rate(params).double(), values.double()
        return (count * rate.log() - rate - torch.lgamma(count + 1)).to(params.dtype)

    def mean(self, params: Tensor) -> Tensor:
        return self.rate(params)

    def variance(self, params: Tensor) -> Tensor:
        return self.rate(params)

    def sample(self, params: Tensor, random: Random) -> Tensor:
        return draw(torch.poisson, self.rate(params), random)
