"""The GP-VAE of Fortuin et al. (AISTATS 2020): the model and its bounds.

    z_j ~ GP(0, k),  j = 1..k                 prior: latent series, independent, over time
    x_t | z_t ~ p(x_t | g_θ(z_t))             likelihood: a decoder g on each step
    q(z_j | x) = N(m_j, (B_jᵀB_j)⁻¹)          posterior: B bidiagonal, so z_j is a Markov chain; m and B from an encoder

    log p(x_observed) ≥ E_q[log p(x_observed | z)] - β KL(q ‖ GP)          at β = 1

The parts are given: any encoder over time, prior, decoder and likelihood. VAE and HI-VAE are this model with steps that
are independent under prior and posterior. A bound takes two batches: what is `visible` to the encoder, and the `target`
that is scored. In the paper both are the data.
"""

import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor, nn

from gpvae.data.batches import Batch
from gpvae.gp import Chain, NeighbourFactor, chain_kl
from gpvae.models.encoders import TimeEncoder
from gpvae.models.inputs import Decoder, Inputs, single_precision
from gpvae.models.likelihoods import Likelihood, Params
from gpvae.models.loss import Loss
from gpvae.models.posterior import PosteriorHead
from gpvae.models.prior import GPPrior, PriorAt


class Encoded(NamedTuple):
    """All that is decoded from."""

    posterior: Chain  # of (batch, time, latent)
    context: Tensor  # (batch, time, …) what the decoder sees besides; empty in the paper


class GPVAEModel(nn.Module):
    """Encoder, prior, decoder and likelihood, and the bounds that train them."""

    numeric: Tensor  # (feature,) bool: columns whose missing values a plain VAE takes for zeros

    def __init__(
        self,
        inputs: Inputs,
        encoder: TimeEncoder,
        prior: GPPrior,
        decoder: Decoder,
        likelihood: Likelihood,
        posterior_head: PosteriorHead,
        *,
        missing_as_zeros: bool = False,
    ):
        """`missing_as_zeros`: a missing value is a zero that is seen and scored, as in a plain VAE."""
        super().__init__()
        self.inputs, self.encoder, self.prior = inputs, encoder, prior
        self.decoder, self.likelihood = decoder, likelihood
        self.posterior_head, self.missing_as_zeros = posterior_head, missing_as_zeros
        self.latent_dim = encoder.head.out_features // 3
        self.register_buffer("numeric", likelihood.numeric_columns(), persistent=False)
        self.init_posterior_head()

    @property
    def widest(self) -> int:
        """The most numbers that any layer computes for one time step: what memory has to allow for."""
        return max(self.inputs.widest, self.encoder.widest, self.decoder.widest)

    def encode(self, batch: Batch, prior: PriorAt | None = None) -> Encoded:
        """q(z | x). Missing values enter as zeros."""
        std, corr = self.prior.marginals(batch.times) if prior is None else (prior.std, prior.corr)
        x, context = self.inputs(self.likelihood.embed(batch.values, batch.observed), batch)
        raw = self.encoder(x * batch.valid.unsqueeze(-1), batch.times, batch.valid)
        observed = batch.valid if self.missing_as_zeros else batch.observed.any(-1)
        informed = self.encoder.reaches(observed).unsqueeze(-1)
        return Encoded(self.posterior_head(single_precision(raw), informed, std, corr), context)

    def decode(self, z: Tensor, context: Tensor) -> Params:
        """The likelihood's parameters. (..., time, latent), (time, …) → parameters of (..., time, feature)"""
        return self.decoder(z, context, self.likelihood)

    def elbo(
        self,
        visible: Batch,
        target: Batch,
        *,
        prior: PriorAt,
        noise: Tensor,
        beta: Tensor | float = 1.0,
        visible_weight: float = 1.0,
    ) -> Loss:
        """The negative β-ELBO with the closed-form KL, per step; `noise` (sample, batch, time, latent) ~ N(0, 1).

        The decoder works step by step, so draws from the marginals of q are enough: no recurrence.
        """
        posterior, context = self.encode(visible, prior)
        z = posterior.sample_marginals(noise)
        log_likelihood = self._log_likelihood(z, context, target, self._weights(target, visible, visible_weight))
        nll = -log_likelihood.mean(0).sum() / target.steps
        kl = chain_kl(posterior, NeighbourFactor(prior.weights), target.lengths).sum() / target.steps
        return Loss(nll + beta * kl, {"nll": nll, "kl": kl})

    def importance_weighted(
        self,
        visible: Batch,
        target: Batch,
        *,
        prior: PriorAt,
        noise: Tensor,
        beta: Tensor | float = 1.0,
        visible_weight: float = 1.0,
    ) -> Loss:
        """The negative importance-weighted bound, log 1/K Σ_k p(x | z_k) (p(z_k) / q(z_k))^β over whole paths z_k.

        `noise` (M, K, batch, time, latent): M bounds are averaged, each with K draws inside the logarithm.
        """
        posterior, context = self.encode(visible, prior)
        z, gp = posterior.sample(noise), NeighbourFactor(prior.weights)
        log_ratio = ((posterior.log_prob(z) - gp.log_prob(z)).sum(-1) * target.valid).sum(-1)  # (M, K, batch)
        log_likelihood = self._log_likelihood(z, context, target, self._weights(target, visible, visible_weight))
        bound = (log_likelihood - beta * log_ratio).logsumexp(1) - math.log(noise.shape[1])
        parts = {"nll": -log_likelihood.mean((0, 1)).sum(), "kl": log_ratio.mean((0, 1)).sum()}
        return Loss(-bound.mean(0).sum() / target.steps, {name: x / target.steps for name, x in parts.items()})

    def _log_likelihood(self, z: Tensor, context: Tensor, target: Batch, weights: Tensor) -> Tensor:
        """Log p(x_observed | z), weighted and summed over each series. (..., batch, time, latent) → (..., batch)"""
        params = self.decode(z, context)
        log_prob = self.likelihood.log_prob(params, target.values) * weights
        selection = self.likelihood.log_selection(params, target.values, target.observed)
        if selection is not None:
            log_prob = log_prob + selection * target.valid.unsqueeze(-1)
        return log_prob.sum((-2, -1))

    def _weights(self, target: Batch, visible: Batch, visible_weight: float) -> Tensor:
        """How much each value counts: fully, but `visible_weight` where the encoder sees it. (batch, time, feature)"""
        scored = target.observed
        if self.missing_as_zeros:
            scored = scored | (target.valid.unsqueeze(-1) & self.numeric)
        if visible_weight == 1:
            return scored
        return torch.where(visible.observed, visible_weight, scored.to(target.values.dtype))

    def sample_noise(self, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """ε for draws of `shape` (..., batch, time)."""
        return torch.randn((*shape, self.latent_dim), generator=generator, device=generator.device)

    @torch.no_grad()
    def init_posterior_head(self) -> None:
        self.posterior_head.init_bias(self.encoder.head.bias, self.prior)

    def fast_parameters(self) -> list[nn.Parameter]:
        """The few that learn at a higher rate than the networks: they start far from where they have to go."""
        return [*self.prior.parameters(), *self.likelihood.fast_parameters()]
