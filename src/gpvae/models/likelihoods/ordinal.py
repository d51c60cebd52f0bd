"""Levels with an order."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad, softplus

from gpvae.models.likelihoods.base import DiscreteLikelihood
from gpvae.models.likelihoods.sampling import Random, uniform_like


class OrdinalLikelihood(DiscreteLikelihood):
    """One of `levels` values 0 < 1 < … of each feature: P(x ≤ k) = sigmoid(θ_k - decoded), θ_0 < θ_1 < … learned."""

    BEYOND = 1e4  # stands for the infinite thresholds below the first level and above the last

    def __init__(self, features: int, levels: int):
        super().__init__(features)
        self.levels = levels
        self.first = nn.Parameter(torch.full((features,), -math.log(levels - 1)))  # all levels are about as likely
        self.raw_steps = nn.Parameter(torch.zeros(features, levels - 2))

    @property
    def widest(self) -> int:
        return self.features * self.levels

    @property
    def thresholds(self) -> Tensor:
        """The thresholds θ_0, …, θ_{levels - 2}. (feature, level - 1)"""
        steps = (softplus(self.raw_steps) + 1e-3).cumsum(-1)
        return self.first.unsqueeze(-1) + pad(steps, (1, 0))

    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        """The level between -1 and 1."""
        return (2 * values / (self.levels - 1) - 1) * observed

    def log_prob(self, params: Tensor, values: Tensor) -> Tensor:
        """σ(a) - σ(b) = σ(a) σ(-b) (1 - e^(b - a)) for the thresholds a above and b below the level."""
        ends = pad(pad(self.thresholds, (1, 0), value=-self.BEYOND), (0, 1), value=self.BEYOND)
        level, ends = values.long().unsqueeze(-1), ends.expand(*values.shape, -1)
        above = ends.gather(-1, level + 1).squeeze(-1) - params
        below = ends.gather(-1, level).squeeze(-1) - params
        return logsigmoid(above) + logsigmoid(-below) + torch.log(-torch.expm1(below - above))

    def _beyond(self, params: Tensor) -> Tensor:
        """The probabilities P(x > k). (..., feature, level - 1)"""
        return (params.unsqueeze(-1) - self.thresholds).sigmoid()

    def mean(self, params: Tensor) -> Tensor:
        """E x = Σ_k P(x > k)"""
        return self._beyond(params).sum(-1)

    def variance(self, params: Tensor) -> Tensor:
        """E x² = Σ_k (2k + 1) P(x > k)"""
        beyond = self._beyond(params)
        weights = 2 * torch.arange(self.levels - 1, device=params.device) + 1
        return (weights * beyond).sum(-1) - beyond.sum(-1) ** 2

    def sample(self, params: Tensor, random: Random) -> Tensor:
        uniform = uniform_like(params, random).unsqueeze(-1)
        return (uniform < self._beyond(params)).sum(-1).to(params.dtype)
