"""Gaussian processes as linear state spaces: exact inference in O(T), at any times, whatever is missing.

    s_{t+1} = A(Δ_t) s_t + q_t,    q_t ~ N(0, I - A Aᵀ),    s_0 ~ N(0, I)
    x_t     = H s_t + ε_t,         ε_t ~ N(0, diag(r))

The state gathers independent stationary processes of unit variance, each of one or two dimensions, so A is block
diagonal and costs O(n²); columns of H, the loadings, give them their scale. With n states and d columns a row costs
O(n² d). Everything is linear in the data, so M replicates of the data (draws) share one pass over the covariances.

A long series is cut into chunks that are filtered side by side: see `chunks`. Tensors are laid out (time, batch, …).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from gpvae.gp.chains import LOG_2PI

Kind = Literal["exponential", "matern", "oscillator"]
STATES: dict[Kind, int] = {"exponential": 1, "matern": 2, "oscillator": 2}


class Step(NamedTuple):
    """A = diag(own) + diag(other)·swap and Q = I - A Aᵀ; `swap` exchanges the two states of a process."""

    own: Tensor  # (…, state)
    other: Tensor  # (…, state) 0 for processes of one state
    noise: Tensor  # (…, state) the diagonal of Q
    shared: Tensor  # (…, state) Q between the two states of a process
    partner: Tensor  # (state,) the index that `swap` takes

    def apply(self, x: Tensor) -> Tensor:
        """A x, x (…, state, replicate)"""
        return self.own.unsqueeze(-1) * x + self.other.unsqueeze(-1) * x[..., self.partner, :]

    def apply_transposed(self, x: Tensor) -> Tensor:
        """Aᵀ x."""
        return self.own.unsqueeze(-1) * x + (self.other.unsqueeze(-1) * x)[..., self.partner, :]

    def covariance(self) -> Tensor:
        """Q, dense. (…, state, state)"""
        swap = torch.eye(len(self.partner), dtype=self.noise.dtype, device=self.noise.device)[self.partner]
        return torch.diag_embed(self.noise) + self.shared.unsqueeze(-1) * swap

    def draw(self, normal: Tensor) -> Tensor:
        """q ~ N(0, Q) from standard normal numbers. (…, state, replicate)"""
        first = torch.arange(len(self.partner), device=self.partner.device) <= self.partner
        scale = self.noise.sqrt()
        mixed = self.shared / scale[..., self.partner].clamp(min=1e-150)
        rest = (self.noise - mixed.square()).clamp(min=0).sqrt()
        own, other = torch.where(first, scale, rest), torch.where(first, 0, mixed)
        return own.unsqueeze(-1) * normal + other.unsqueeze(-1) * normal[..., self.partner, :]


@dataclass(frozen=True)
class StateSpace:
    """The processes, and how columns are made of them."""

    kinds: tuple[Kind, ...]  # (process,)
    length: Tensor  # (process,) ℓ, in time units
    frequency: Tensor  # (process,) ω of oscillators, in radians per time unit
    loadings: Tensor  # (column, state) H
    noise: Tensor  # (column,) r, variances

    @property
    def process(self) -> Tensor:
        """The process that each state belongs to. (state,)"""
        sizes = torch.tensor([STATES[kind] for kind in self.kinds])
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(self.length.device)

    def step(self, delta: Tensor) -> Step:
        """A and Q over the times `delta` (…).  (…, state)

        exponential  exp(-Δ/ℓ)                                            k(Δ) = exp(-Δ/ℓ)
        matern       exp(-x) [[1 + x, x], [-x, 1 - x]],  x = √3 Δ/ℓ       k(Δ) = (1 + x) exp(-x)
        oscillator   exp(-Δ/ℓ) [[cos ωΔ, -sin ωΔ], [sin ωΔ, cos ωΔ]]      k(Δ) = exp(-Δ/ℓ) cos ωΔ
        """
        process = self.process
        index = torch.arange(len(process), device=process.device)
        first = torch.ones_like(process, dtype=torch.bool)
        first[1:] = process[1:] != process[:-1]
        kinds = torch.tensor([list(STATES).index(kind) for kind in self.kinds], device=process.device)[process]
        partner = torch.where(kinds == 0, index, torch.where(first, index + 1, index - 1))
        sign = torch.where(first, 1.0, -1.0).to(self.length)
        x = delta.unsqueeze(-1) / self.length[process]
        angle = delta.unsqueeze(-1) * self.frequency[process]
        z = math.sqrt(3) * x
        decay, matern = torch.exp(-x), torch.exp(-z)
        own = torch.where(kinds == 1, matern * (1 + sign * z), decay * torch.where(kinds == 2, angle.cos(), 1))
        other = torch.where(kinds == 1, sign * matern * z, torch.where(kinds == 2, -sign * decay * angle.sin(), 0))
        noise = torch.where(kinds == 1, torch.where(first, _third(z), _rest(z)), -torch.expm1(-2 * x))
        shared = torch.where(kinds == 1, 2 * matern.square() * z.square(), 0)
        return Step(own, other, noise, shared, partner)

    def covariance(self, lags: Tensor) -> Tensor:
        """Cov(x(τ), x(τ + lag)) of the signal H s; dense, for tests and for what it says. (…, column, column)"""
        step = self.step(lags)
        scaled = step.apply(self.loadings.T.expand(*lags.shape, -1, -1))  # A Hᵀ
        return self.loadings @ scaled


def _third(z: Tensor) -> Tensor:
    """1 - exp(-2z)(1 + 2z + 2z²), which is (4/3) z³ for small z and must not cancel."""
    small = z < 0.02
    safe = torch.where(small, 1.0, z)
    series = z**3 * (4 / 3 - 2 * z + 8 / 5 * z**2 - 8 / 9 * z**3 + 8 / 21 * z**4 - 2 / 15 * z**5)
    return torch.where(small, series, 1 - torch.exp(-2 * safe) * (1 + 2 * safe + 2 * safe.square()))


def _rest(z: Tensor) -> Tensor:
    """1 - exp(-2z)(1 - 2z + 2z²)."""
    return -torch.expm1(-2 * z) + 2 * torch.exp(-2 * z) * (z - z.square())


class State(NamedTuple):
    """N(mean, covariance) of the state, one mean for each replicate of the data."""

    mean: Tensor  # (batch, state, replicate)
    covariance: Tensor  # (batch, state, state)


class Innovation(NamedTuple):
    """What a row says that was not known before, whitened by the factor L Lᵀ = H P Hᵀ + diag(r) of what is observed."""

    factor: Tensor  # (batch, column, column) L, the identity where nothing is observed
    gain: Tensor  # (batch, column, state) G = L⁻¹ H P
    error: Tensor  # (batch, column, replicate) e = L⁻¹ (x - H a)

    def log_density(self) -> Tensor:
        """log p(row | earlier rows), but for -½ log 2π of each observed cell. (batch, replicate)"""
        return -0.5 * self.error.square().sum(-2) - self.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)


class Rows(NamedTuple):
    """Padded series."""

    values: Tensor  # (time, batch, column, replicate) anything where not observed
    observed: Tensor  # (time, batch, column) bool
    delta: Tensor  # (time or 1, batch or 1) to the next row; of an even grid (1, 1)

    def steps(self, space: StateSpace) -> Iterator[Step]:
        """The way from each row to the next."""
        if len(self.delta) == 1:
            return repeat(space.step(self.delta[0]), len(self.values))
        whole = space.step(self.delta)
        return (Step(*(x[t] for x in whole[:4]), whole.partner) for t in range(len(self.values)))


def stationary(space: StateSpace, batch: int, replicates: int = 1) -> State:
    """What is known of the state before the first row: N(0, I)."""
    eye = torch.eye(space.loadings.shape[1], dtype=space.loadings.dtype, device=space.loadings.device)
    return State(eye.new_zeros(batch, len(eye), replicates), eye.expand(batch, -1, -1))


def update(space: StateSpace, state: State, values: Tensor, observed: Tensor) -> tuple[State, Innovation]:
    """Condition the state on a row: a + Gᵀ e, P - Gᵀ G. A column that is not observed has 0 for its row of H, r = 1."""
    seen = observed.unsqueeze(-2)
    projected = (state.covariance @ space.loadings.T) * seen  # P Hᵀ
    marginal = (projected.mT @ space.loadings.T) * seen + torch.diag_embed(torch.where(observed, space.noise, 1))
    factor = torch.linalg.cholesky_ex(marginal).L
    surprise = torch.where(observed.unsqueeze(-1), values - space.loadings @ state.mean, 0)
    gain, error = torch.linalg.solve_triangular(
        factor, torch.cat([projected.mT, surprise], dim=-1), upper=False
    ).split([state.mean.shape[1], surprise.shape[-1]], dim=-1)
    after = State(state.mean + gain.mT @ error, state.covariance - gain.mT @ gain)
    return after, Innovation(factor, gain, error)


def predict(state: State, step: Step, noise: Tensor) -> State:
    """One step on: A a, A P Aᵀ + Q; `noise` is Q."""
    return State(step.apply(state.mean), step.apply(step.apply(state.covariance).mT) + noise)


class Filtered(NamedTuple):
    """One row of a filter's way through the data."""

    before: State  # given the earlier rows
    after: State  # given this row too
    innovation: Innovation
    step: Step  # to the next row


def filter_rows(space: StateSpace, rows: Rows, start: State) -> Iterator[Filtered]:
    """The Kalman filter: everything about each row given it and those before."""
    state, noise, latest = start, None, None
    for step, values, observed in zip(rows.steps(space), rows.values, rows.observed, strict=True):
        if step is not latest:
            latest, noise = step, step.covariance()
        before, (state, innovation) = state, update(space, state, values, observed)
        yield Filtered(before, state, innovation, step)
        assert noise is not None
        state = predict(state, step, noise)


def log_likelihood(space: StateSpace, rows: Rows, start: State | None = None) -> Tensor:
    """log p(everything observed) of each series, exact and differentiable in all of `space`. (batch, replicate)

    start: what is known of the state before the first row, a constant; N(0, I) unless given.
    """
    start = stationary(space, rows.values.shape[1], rows.values.shape[-1]) if start is None else start
    density = torch.stack([each.innovation.log_density() for each in filter_rows(space, rows, start)]).sum(0)
    return density - 0.5 * LOG_2PI * rows.observed.sum((0, 2)).unsqueeze(-1)
