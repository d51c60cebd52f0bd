"""Levels without an order."""

import torch
from torch import Tensor

from gpvae.models.likelihoods.base import Likelihood
from gpvae.models.likelihoods.sampling import Random, uniform_like


class CategoricalLikelihood(Likelihood):
    """One of `levels` values 0, 1, … of each feature, with the probabilities softmax(logits).

    Its parameters are the logits (..., feature, level).
    """

    def __init__(self, features: int, levels: int):
        super().__init__()
        self.features, self.levels = features, levels
        self.inputs = self.outputs = features * levels

    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        """One-hot; zeros where missing."""
        level = torch.arange(self.levels, device=values.device)
        return ((values.unsqueeze(-1) == level) & observed.unsqueeze(-1)).flatten(-2).to(values.dtype)

    def unpack(self, decoded: Tensor) -> Tensor:
        return decoded.unflatten(-1, (self.features, self.levels))

    def log_prob(self, params: Tensor, values: Tensor) -> Tensor:
        log_probs = params.log_softmax(-1)
        level = values.long().expand(log_probs.shape[:-1]).unsqueeze(-1)
        return log_probs.gather(-1, level).squeeze(-1)

    def mean(self, params: Tensor) -> Tensor:
        """The most likely level: categories have no mean."""
        return params.argmax(-1).to(params.dtype)

    def variance(self, params: Tensor) -> Tensor:
        """NaN: categories have no variance either."""
        return torch.full_like(params[..., 0], torch.nan)

    def sample(self, params: Tensor, random: Random) -> Tensor:
        """The level at which the cumulative probability passes a uniform number."""
        cumulative = params.log_softmax(-1).exp().cumsum(-1)[..., :-1]
        uniform = uniform_like(params[..., 0], random)
        return (uniform.unsqueeze(-1) >= cumulative).sum(-1).to(params.dtype)
