"""Structured Gaussian algebra on tensors: Markov chains and neighbour factors, all linear in time.

Tensors are (..., time, latent). The latent dimensions are independent; leading dimensions (batch, Monte-Carlo samples)
broadcast.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from gpvae.gp import fast
from gpvae.gp.fast import lag, linear_recurrence

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Chain:
    """A Gaussian Markov chain: the N(m, (BᵀB)⁻¹) of the paper with B upper bidiagonal, its entries of either sign.

    Parametrised by marginals and neighbour correlations, it cannot overflow, and a prefix is its truncation:

        Var z_t = σ_t²,   Cov(z_a, z_b) = σ_a σ_b c_a c_{a+1} … c_{b-1}.
    """

    mean: Tensor  # (..., time, latent)  m
    std: Tensor  # (..., time, latent)  σ > 0
    corr: Tensor  # (..., time - 1, latent)  c in (-1, 1); c_t joins steps t and t + 1

    @classmethod
    def from_bidiagonal(cls, mean: Tensor, diagonal: Tensor, off_diagonal: Tensor) -> "Chain":
        """N(m, (B Bᵀ)⁻¹) with B upper bidiagonal, b_tt > 0. For ζ = z - m, Bᵀζ = ε is a recursion forward in time,

            ζ_t = (ε_t - b_{t-1,t} ζ_{t-1}) / b_tt,   σ_t² = (1 + b_{t-1,t}² σ_{t-1}²) / b_tt²,
            c_{t-1} = -b_{t-1,t} σ_{t-1} / (b_tt σ_t)

        mean, diagonal (..., time, latent), off_diagonal (..., time - 1, latent).
        """
        ratio = pad(off_diagonal, (0, 0, 1, 0)) / diagonal
        std = linear_recurrence(ratio**2, diagonal**-2).sqrt()
        return cls(mean, std, (-ratio * lag(std, 1) / std)[..., 1:, :])

    @property
    def corr_before(self) -> Tensor:
        """c_{t-1} at step t; 0 at the first step, which has no past. (..., time, latent)"""
        return pad(self.corr, (0, 0, 1, 0))

    def sample(self, noise: Tensor) -> Tensor:
        """A path: ζ_t = c_{t-1} ζ_{t-1} + √(1 - c_{t-1}²) ε_t,  z = m + σ ζ."""
        c = self.corr_before
        return self.mean + self.std * linear_recurrence(c, (1 - c**2).sqrt() * noise)

    def sample_marginals(self, noise: Tensor) -> Tensor:
        """Each step from its marginal, z_t = m_t + σ_t ε_t: sufficient for training a step-wise decoder."""
        return self.mean + self.std * noise

    def log_prob(self, z: Tensor) -> Tensor:
        """Log q(z_t | z_{t-1}) of each step; its sum over a prefix is the log density of the prefix."""
        c, zeta = self.corr_before, (z - self.mean) / self.std
        innovation = (zeta - c * lag(zeta, 1)) * (1 - c**2).rsqrt()
        return -0.5 * (innovation**2 + LOG_2PI + torch.log1p(-(c**2))) - self.std.log()

    def covariance(self) -> Tensor:
        """Dense Σ, for tests and small plots. (..., latent, time, time)"""
        c, std = self.corr.transpose(-1, -2), self.std.transpose(-1, -2)
        time = std.shape[-1]
        corr = torch.eye(time, dtype=std.dtype, device=std.device).expand(*std.shape, time).clone()
        for steps in range(1, time):
            # Π c_a … c_{a+steps-1} = (the product one step shorter) · c_{a+steps-1}
            product = corr.diagonal(steps - 1, -2, -1)[..., :-1] * c[..., steps - 1 :]
            corr.diagonal(steps, -2, -1).copy_(product)
            corr.diagonal(-steps, -2, -1).copy_(product)
        return std.unsqueeze(-1) * corr * std.unsqueeze(-2)

    def bidiagonal(self) -> Tensor:
        """The paper's B: b_tt = 1/s_t, b_{t,t+1} = -c_t σ_t / (σ_{t+1} s_t), s_t = σ_t √(1 - c_t²), s_{T-1} = σ_{T-1}.

        (..., latent, time, time), dense; Σ⁻¹ = BᵀB.
        """
        c, std = self.corr.transpose(-1, -2), self.std.transpose(-1, -2)
        s = std * (1 - pad(c, (0, 1)) ** 2).sqrt()
        return torch.diag_embed(1 / s) + torch.diag_embed(-c * std[..., :-1] / (std[..., 1:] * s[..., :-1]), 1)


@dataclass(frozen=True)
class NeighbourFactor:
    """A zero-mean Gaussian process written as neighbour conditionals: u_{t,0} z_t + Σ_{l=1..p} u_{t,l} z_{t-l} = ε_t.

    Its precision is UᵀU with U lower banded. Exact for any Gaussian when p ≥ T - 1.
    """

    weights: Tensor  # u_{t,l}, zero where t < l. (batch, time, 1 + p, latent or 1);
    # or, on an even grid, (row, 1 + p, latent or 1), where the last row holds for all later steps

    def by_step(self, time: int) -> Tensor:
        """A row for each of the first `time` steps. (..., time, 1 + p, latent or 1)"""
        rows = self.trimmed(time).weights
        if rows.ndim == 4 or rows.shape[0] == time:
            return rows
        return torch.cat([rows, rows[-1:].expand(time - rows.shape[0], -1, -1)])

    def trimmed(self, time: int) -> "NeighbourFactor":
        """Without the rows and lags beyond a series of `time` steps."""
        return NeighbourFactor(self.weights[..., :time, :time, :])

    def whiten(self, z: Tensor) -> Tensor:
        """ε_t = Σ_l u_{t,l} z_{t-l}. (..., time, latent)"""
        u = self.by_step(z.shape[-2])
        return sum((u[..., steps, :] * lag(z, steps) for steps in range(u.shape[-2])), z.new_zeros(()))

    def log_prob(self, z: Tensor) -> Tensor:
        """Log p(z_t | z_{t-1..t-p}) of each step."""
        return self.by_step(z.shape[-2])[..., 0, :].log() - 0.5 * (self.whiten(z) ** 2 + LOG_2PI)

    def to_dense(self, time: int) -> Tensor:
        """U, lower triangular, for tests. (..., latent or 1, time, time)"""
        u = self.by_step(time).movedim(-1, -3)  # (..., latent, time, 1 + p)
        return sum((torch.diag_embed(u[..., steps:, steps], -steps) for steps in range(u.shape[-1])), u.new_zeros(()))


def grid_factor(covariances: Tensor) -> NeighbourFactor:
    """Condition each step of a stationary process on an even grid on its p predecessors.

    `covariances` (latent, 1 + p) are at the lags 0 … p. All rows after the first p are equal.

    With K = L Lᵀ over neighbouring times, ε = L⁻¹ z: the last row of L⁻¹ holds the weights of the last step.
    """
    step = torch.arange(covariances.shape[-1], device=covariances.device)
    toeplitz = covariances[..., (step.unsqueeze(-1) - step).abs()]
    return NeighbourFactor(_to_lags(_inverse(_cholesky(toeplitz))).movedim(0, -1))


def neighbour_factor(
    covariance: Callable[[Tensor], Tensor], times: Tensor, neighbours: int, *, chunk: int = 4096
) -> NeighbourFactor:
    """Condition each step at arbitrary times (batch, time) on its `neighbours` predecessors.

    `covariance` maps time lags (...) to covariances (latent, ...), jitter included at lag 0.
    """
    order = min(neighbours, times.shape[-1] - 1)
    head = _to_lags(_inverse(_cholesky(_between(covariance, times[..., : order + 1]))))  # rows 0 … p at once
    windows = times.unfold(-1, order + 1, 1)[..., 1:, :]  # (batch, T - p - 1, 1 + p)
    tail = [_last_row(covariance, part) for part in windows.split(chunk, dim=-2)] if windows.shape[-2] else []
    return NeighbourFactor(torch.cat([head, *tail], dim=-2).movedim(0, -1))


def _between(covariance: Callable[[Tensor], Tensor], times: Tensor) -> Tensor:
    return covariance(times.unsqueeze(-1) - times.unsqueeze(-2))


def _cholesky(matrix: Tensor) -> Tensor:
    """L, or NaN where the matrix is not positive definite; an exception would synchronise a GPU."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return factor.masked_fill((failed > 0)[..., None, None], math.nan)


def _inverse(factor: Tensor) -> Tensor:
    eye = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return torch.linalg.solve_triangular(factor, eye, upper=False)


def _last_row(covariance: Callable[[Tensor], Tensor], windows: Tensor) -> Tensor:
    """The last row of L⁻¹ solves Lᵀ x = e_last; reversed, it runs over lags 0 … p. (latent, batch, time, 1 + p)"""
    factor = _cholesky(_between(covariance, windows))
    last = torch.zeros(factor.shape[-1], 1, dtype=factor.dtype, device=factor.device)
    last[-1] = 1
    return torch.linalg.solve_triangular(factor.mT, last, upper=True).squeeze(-1).flip(-1)


def _to_lags(lower: Tensor) -> Tensor:
    """Row t of a lower triangle by lag: out[t, l] = lower[t, t - l], zero where t < l."""
    step = torch.arange(lower.shape[-1], device=lower.device)
    column = step.unsqueeze(-1) - step
    return lower.gather(-1, column.clamp(min=0).expand(lower.shape)) * (column >= 0)


def chain_kl(q: Chain, p: NeighbourFactor, lengths: Tensor) -> Tensor:
    """KL(q ‖ p) of the first `lengths` steps of each series, all latent dimensions together. (batch,)"""
    return fast.chain_kl(q.mean, q.std, q.corr, p.trimmed(q.mean.shape[-2]).weights, lengths)


def kl_steps(q: Chain, p: NeighbourFactor) -> Tensor:
    """KL(q ‖ p) in closed form, O(T·p), split over time: the sum over a prefix is the KL of the prefix.

    With G_0 = u_{t,0} σ_t and G_l = u_{t,l} σ_{t-l} + c_{t-l} G_{l-1}, the expected square of step t is

        E(Σ_l u_{t,l} z_{t-l})² = (Σ_l u_{t,l} m_{t-l})² + Σ_{l<p} (1 - c_{t-l-1}²) G_l² + G_p²

    (a sum of squares), and KL_t = ½ E(…)² - log u_{t,0} - log σ_t - ½ log(1 - c_{t-1}²) - ½. (..., time, latent)

    The readable version of `chain_kl`, which computes the same faster.
    """
    u, c = p.by_step(q.mean.shape[-2]), q.corr_before
    g = u[..., 0, :] * q.std
    spread = torch.zeros_like(g)
    for steps in range(1, u.shape[-2]):
        spread = spread + (1 - lag(c, steps - 1) ** 2) * g**2
        g = u[..., steps, :] * lag(q.std, steps) + lag(c, steps - 1) * g
    expected_square = p.whiten(q.mean) ** 2 + spread + g**2
    return 0.5 * (expected_square - torch.log1p(-(c**2)) - 1) - q.std.log() - u[..., 0, :].log()
