"""q(z | x) from what the encoder returns: three numbers for each step and latent series."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softplus

from gpvae.gp import Chain
from gpvae.models.prior import GPPrior

Posterior = Literal["chain", "diagonal", "published", "published-sigmoid"]
CORR_LIMIT = 1 - 1e-4  # of correlations, which must stay below 1 in single precision


class PosteriorHead(ABC):
    """One parametrisation of the posterior."""

    @abstractmethod
    def __call__(self, raw: Tensor, informed: Tensor, prior_std: Tensor, prior_corr: Tensor) -> Chain:
        """(batch, time, 3·latent), (batch, time, 1) whether anything observed reaches a step → (batch, time, latent)"""

    @abstractmethod
    def init_bias(self, bias: Tensor, prior: GPPrior) -> None:
        """Where training starts: the bias of the encoder's last layer. (3·latent,)"""


class ChainHead(PosteriorHead):
    """Mean, deviation and neighbour correlation of each step. Steps that nothing reaches have the prior's.

    Training starts with the prior's correlations, so that the KL need not teach smoothness first, and with the
    deviation `first_std`, small enough for the decoder to tell the latent series from their noise.
    """

    STD_FLOOR = 1e-3

    def __init__(self, *, correlated: bool, first_std: float):
        self.correlated, self.first_std = correlated, first_std

    def __call__(self, raw: Tensor, informed: Tensor, prior_std: Tensor, prior_corr: Tensor) -> Chain:
        mean, raw_std, raw_corr = raw.chunk(3, dim=-1)
        corr = torch.where(informed[:, 1:] & informed[:, :-1], raw_corr[:, :-1].tanh(), prior_corr)
        return Chain(
            mean=mean * informed,
            std=torch.where(informed, self.STD_FLOOR + softplus(raw_std), prior_std),
            corr=CORR_LIMIT * corr if self.correlated else torch.zeros_like(corr),
        )

    def init_bias(self, bias: Tensor, prior: GPPrior) -> None:
        variance, lag_one = prior.kernel.to_latents(prior.kernel(torch.tensor([0.0, 1.0]).double()).mT)
        _, std, corr = bias.chunk(3)
        std.fill_(math.log(math.expm1(self.first_std)))
        corr.copy_(torch.atanh(lag_one / (variance + prior.jitter)).clamp(-2, 2))


class PublishedHead(PosteriorHead):
    """As in the authors' published code: N(m, (B Bᵀ)⁻¹), B upper bidiagonal with

        b_tt = 1 + positive(·),   b_{t,t+1} = positive(·).

    So no step is less certain than a standard normal given the step before, and neighbours correlate negatively.
    Steps that nothing reaches get what the network makes of zeros. Training starts with the weights as they are.
    """

    def __init__(self, positive: Callable[[Tensor], Tensor]):
        self.positive = positive

    def __call__(self, raw: Tensor, informed: Tensor, prior_std: Tensor, prior_corr: Tensor) -> Chain:
        mean, diagonal, off_diagonal = raw.chunk(3, dim=-1)
        chain = Chain.from_bidiagonal(mean, 1 + self.positive(diagonal), self.positive(off_diagonal[:, :-1]))
        return Chain(chain.mean, chain.std, chain.corr.clamp(-CORR_LIMIT, CORR_LIMIT))

    def init_bias(self, bias: Tensor, prior: GPPrior) -> None: ...


def head_of(posterior: Posterior, first_std: float) -> PosteriorHead:
    match posterior:
        case "published":
            return PublishedHead(softplus)
        case "published-sigmoid":
            return PublishedHead(torch.sigmoid)
        case _:
            return ChainHead(correlated=posterior == "chain", first_std=first_std)
