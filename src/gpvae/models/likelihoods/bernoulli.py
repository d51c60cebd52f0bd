"""Zeros and ones; and zeros and ones that go missing at different rates."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from gpvae.models.likelihoods.base import DiscreteLikelihood, LikelihoodSpec
from gpvae.models.likelihoods.sampling import Random, uniform_like


@dataclass(frozen=True)
class Bernoulli(LikelihoodSpec):
    """Values in [0, 1], used as they are.

    missing_by_value: zeros and ones go missing at different rates, which are learned.
    """

    missing_by_value: bool = False
    standardises = False
    mixes = False

    def build(self, features: int) -> "BernoulliLikelihood":
        return (SelectiveBernoulliLikelihood if self.missing_by_value else BernoulliLikelihood)(features)


class BernoulliLikelihood(DiscreteLikelihood):
    """P(x = 1) = sigmoid(logit)."""

    def log_prob(self, params: Tensor, values: Tensor) -> Tensor:
        return values * logsigmoid(params) + (1 - values) * logsigmoid(-params)

    def mean(self, params: Tensor) -> Tensor:
        return params.sigmoid()

    def variance(self, params: Tensor) -> Tensor:
        return params.sigmoid() * (-params).sigmoid()

    def sample(self, params: Tensor, random: Random) -> Tensor:
        return (uniform_like(params, random) < params.sigmoid()).to(params.dtype)


class SelectiveBernoulliLikelihood(BernoulliLikelihood):
    """Missing not at random: p(missing | x) = m_x, learned. With π the probability of a one,

    p(missing) = (1 - π) m_0 + π m_1,    p(x = 1 | missing) = π m_1 / p(missing):  log-odds plus log m_1 / m_0
    """

    def __init__(self, features: int):
        super().__init__(features)
        self.missing_logit = nn.Parameter(torch.zeros(2))  # log-odds of going missing, for 0 and for 1

    def log_selection(self, params: Tensor, values: Tensor, observed: Tensor) -> Tensor:
        (lost_0, lost_1), (kept_0, kept_1) = logsigmoid(self.missing_logit), logsigmoid(-self.missing_logit)
        kept = values * kept_1 + (1 - values) * kept_0
        lost = torch.logaddexp(logsigmoid(params) + lost_1, logsigmoid(-params) + lost_0)
        return torch.where(observed, kept, lost)

    def given_missing(self, params: Tensor) -> Tensor:
        lost_0, lost_1 = logsigmoid(self.missing_logit)
        return params + lost_1 - lost_0

    def fast_parameters(self) -> list[nn.Parameter]:
        return [self.missing_logit]
