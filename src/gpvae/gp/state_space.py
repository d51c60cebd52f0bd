"""Gaussian processes as linear state spaces: exact inference in O(T), at any times, whatever is missing.

    s_{t+1} = A(Δ_t) s_t + q_t,    q_t ~ N(0, I - A Aᵀ),    s_0 ~ N(0, I)
    x_t     = H s_t + ε_t,         ε_t ~ N(0, diag(r))

The state gathers independent stationary processes of unit variance, each of one or two dimensions, so A is block
diagonal and costs O(n²); columns of H, the loadings, give them their scale. With n states and d columns a row costs
O(n² d). Everything is linear in the data, so M replicates of the data (draws) share one pass over the covariances.

Tensors are laid out (time, lane, …): lanes are series, or parts of long ones (`smoother`), worked on side by side.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from gpvae.gp.chains import LOG_2PI

Kind = Literal["exponential", "matern", "oscillator"]
STATES: dict[Kind, int] = {"exponential": 1, "matern": 2, "oscillator": 2}  # in the order of the state


class Step(NamedTuple):
    """A and Q = I - A Aᵀ: diagonals, and what couples the two states of each of the last p processes."""

    own: Tensor  # (…, state) the diagonal of A
    other: Tensor  # (…, 2p) A between the two states of a process
    noise: Tensor  # (…, state) the diagonal of Q
    shared: Tensor  # (…, p) Q between the two states of a process

    def apply(self, x: Tensor) -> Tensor:
        """A x, x (…, state, replicate)"""
        result = self.own.unsqueeze(-1) * x
        if pairs := self.other.shape[-1]:
            result[..., -pairs:, :] += self.other.unsqueeze(-1) * swapped(x[..., -pairs:, :])
        return result

    def apply_transposed(self, x: Tensor) -> Tensor:
        """Aᵀ x."""
        result = self.own.unsqueeze(-1) * x
        if pairs := self.other.shape[-1]:
            result[..., -pairs:, :] += swapped(self.other.unsqueeze(-1) * x[..., -pairs:, :])
        return result

    def predict(self, covariance: Tensor) -> Tensor:
        """A P Aᵀ + Q."""
        result = self.apply(self.apply(covariance).mT)
        result.diagonal(dim1=-2, dim2=-1).add_(self.noise)
        if pairs := self.other.shape[-1]:
            for side in (1, -1):
                result[..., -pairs:, -pairs:].diagonal(side, -2, -1)[..., ::2].add_(self.shared)
        return result

    def draw(self, normal: Tensor) -> Tensor:
        """Q ~ N(0, Q) from standard normal numbers. (…, state, replicate)"""
        scale = self.noise.sqrt()
        result = scale.unsqueeze(-1) * normal
        if pairs := self.other.shape[-1]:  # q2 = (shared / scale1) e1 + √(noise2 - (shared / scale1)²) e2
            first, second = normal[..., -pairs::2, :], normal[..., -pairs + 1 :: 2, :]
            tiny = torch.finfo(scale.dtype).tiny  # scale1 may underflow, but |shared| ≤ scale1 scale2
            mixed = torch.minimum(self.shared / scale[..., -pairs::2].clamp(min=tiny), scale[..., -pairs + 1 :: 2])
            rest = (self.noise[..., -pairs + 1 :: 2] - mixed.square()).clamp(min=0).sqrt()
            result[..., -pairs + 1 :: 2, :] = mixed.unsqueeze(-1) * first + rest.unsqueeze(-1) * second
        return result

    def at(self, row: int) -> "Step":
        """Of a row, where the steps of all rows are stacked, or one stands for all."""
        return Step(*(x[row if len(x) > 1 else 0] for x in self))


def swapped(x: Tensor) -> Tensor:
    """The two states of each process exchanged. (…, 2p, replicate)"""
    return x.index_select(-2, _partners(x.shape[-2], x.device))


@cache
def _partners(states: int, device: torch.device) -> Tensor:
    """1, 0, 3, 2, 5, 4, …"""
    return torch.arange(states, device=device).bitwise_xor(1)


@dataclass(frozen=True)
class StateSpace:
    """The processes, in the order of `STATES`, and how columns are made of them."""

    kinds: tuple[Kind, ...]  # (process,)
    length: Tensor  # (process,) ℓ, in time units
    frequency: Tensor  # (process,) ω of oscillators, in radians per time unit
    loadings: Tensor  # (column, state) H
    noise: Tensor  # (column,) r, variances

    def __post_init__(self) -> None:
        order = list(STATES)
        if sorted(self.kinds, key=order.index) != list(self.kinds):
            raise ValueError(f"processes must be in the order {', '.join(order)}, got {', '.join(self.kinds)}")
        shape = (len(self.noise), sum(STATES[kind] for kind in self.kinds))
        if self.loadings.shape != shape or not len(self.kinds) == len(self.length) == len(self.frequency):
            raise ValueError(
                f"loadings {tuple(self.loadings.shape)}, {len(self.length)} lengths and {len(self.frequency)} "
                f"frequencies do not match {len(self.kinds)} processes with {shape[1]} states of {shape[0]} columns"
            )

    @property
    def measurement(self) -> "Measurement":
        return Measurement(self.loadings, self.noise)

    @property
    def process(self) -> Tensor:
        """The process that each state belongs to. (state,)"""
        sizes = torch.tensor([STATES[kind] for kind in self.kinds], dtype=torch.long)
        return torch.repeat_interleave(torch.arange(len(sizes)), sizes).to(self.length.device)

    def step(self, delta: Tensor) -> Step:
        """A and Q over the times `delta` (…).  (…, state)

        exponential  exp(-Δ/ℓ)                                            k(Δ) = exp(-Δ/ℓ)
        matern       exp(-z) [[1 + z, z], [-z, 1 - z]],  z = √3 Δ/ℓ       k(Δ) = (1 + z) exp(-z)
        oscillator   exp(-Δ/ℓ) [[cos ωΔ, -sin ωΔ], [sin ωΔ, cos ωΔ]]      k(Δ) = exp(-Δ/ℓ) cos ωΔ
        """
        counts = [self.kinds.count(kind) for kind in STATES]
        x = delta.unsqueeze(-1) / self.length  # (…, process)
        single, smooth, wave = x.split(counts, dim=-1)
        angle = (delta.unsqueeze(-1) * self.frequency)[..., counts[0] + counts[1] :]
        z, decay = math.sqrt(3) * smooth, torch.exp(-wave)
        matern, cos, sin = torch.exp(-z), decay * angle.cos(), decay * angle.sin()
        left = -torch.expm1(-2 * wave)
        return Step(
            own=torch.cat([torch.exp(-single), _pairs(matern * (1 + z), matern * (1 - z)), _pairs(cos, cos)], -1),
            other=torch.cat([_pairs(matern * z, -matern * z), _pairs(-sin, sin)], -1),
            noise=torch.cat([-torch.expm1(-2 * single), _pairs(_third(z), _rest(z)), _pairs(left, left)], -1),
            shared=torch.cat([2 * (matern * z).square(), torch.zeros_like(sin)], -1),
        )

    def covariance(self, lags: Tensor) -> Tensor:
        """Cov(x(τ + lag), x(τ)) of the signal H s; dense, for tests and for what it says. (…, column, column)"""
        return self.loadings @ self.step(lags).apply(self.loadings.T.expand(*lags.shape, -1, -1))

    def to(self, dtype: torch.dtype) -> "StateSpace":
        """The same in another precision."""
        tensors = (self.length, self.frequency, self.loadings, self.noise)
        return StateSpace(self.kinds, *(x.to(dtype) for x in tensors))


def _pairs(first: Tensor, second: Tensor) -> Tensor:
    """One after the other, process by process."""
    return torch.stack([first, second], dim=-1).flatten(-2)


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

    mean: Tensor  # (lane, state, replicate)
    covariance: Tensor  # (lane, state, state)

    def moved(self, step: Step) -> "State":
        """That of the next row, before the row is seen: A a, A P Aᵀ + Q."""
        return State(step.apply(self.mean), step.predict(self.covariance))

    def moments(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (lane, output, replicate) and variance (lane, output) of what `outputs` makes of it."""
        variance = (outputs.T * (self.covariance @ outputs.T)).sum(-2)
        return outputs @ self.mean, variance.clamp(min=0)


class Innovation(NamedTuple):
    """What a row says that was not known before, whitened by W Wᵀ = (H P Hᵀ + diag r)⁻¹ of what is observed."""

    whitener: Tensor  # (lane, column, column) Wᵀ, lower triangular; the identity where nothing is observed
    gain: Tensor  # (lane, column, state) G = Wᵀ H P
    error: Tensor  # (lane, column, replicate) e = Wᵀ (x - H a)

    def log_density(self) -> Tensor:
        """Log p(row | earlier rows), but for -½ log 2π of each observed cell. (lane, replicate)"""
        log_scale = self.whitener.diagonal(dim1=-2, dim2=-1).log().sum(-1, keepdim=True)
        return log_scale - 0.5 * self.error.square().sum(-2)


class Rows(NamedTuple):
    """Padded series."""

    values: Tensor  # (time, lane, column, replicate) finite, and anything where not observed
    observed: Tensor  # (time, lane, column) bool
    delta: Tensor  # (time or 1, lane or 1) to the next row; of an even grid (1, 1)


class Measurement(NamedTuple):
    """x = H s + ε, ε ~ N(0, diag(r))."""

    loadings: Tensor  # (column, state) H
    noise: Tensor  # (column,) r

    def update(self, state: State, values: Tensor, observed: Tensor) -> tuple[State, Innovation]:
        """Condition on a row: a + Gᵀ e, P - Gᵀ G. A column that is not observed has 0 for its row of H, and r = 1."""
        mean, covariance = state
        loadings, seen = self.loadings.T, observed.to(mean.dtype)
        projected = (covariance @ loadings) * seen.unsqueeze(-2)  # P Hᵀ
        marginal = (projected.mT @ loadings) * seen.unsqueeze(-2)
        marginal.diagonal(dim1=-2, dim2=-1).add_(torch.where(observed, self.noise, 1))
        eye = torch.eye(len(self.noise), dtype=mean.dtype, device=mean.device).expand_as(marginal)
        whitener = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(marginal).L, eye, upper=False)
        gain = whitener @ projected.mT
        error = whitener @ ((values - self.loadings @ mean) * seen.unsqueeze(-1))
        after = State(torch.baddbmm(mean, gain.mT, error), torch.baddbmm(covariance, gain.mT, gain, alpha=-1))
        return after, Innovation(whitener, gain, error)


def stationary(space: StateSpace, lanes: int, replicates: int = 1) -> State:
    """What is known of the state before the first row: N(0, I)."""
    eye = torch.eye(space.loadings.shape[1], dtype=space.loadings.dtype, device=space.loadings.device)
    return State(eye.new_zeros(lanes, len(eye), replicates), eye.expand(lanes, -1, -1))


class Filtered(NamedTuple):
    """One row of a filter's way through the data."""

    before: State  # given the earlier rows
    after: State  # given this row too
    innovation: Innovation
    step: Step  # to the next row

    def next(self) -> State:
        """The state at the next row, given the rows up to this one."""
        return self.after.moved(self.step)


def filter_rows(space: StateSpace, rows: Rows, start: State) -> Iterator[Filtered]:
    """The Kalman filter: everything about each row given it and those before."""
    return _filter(space.measurement, space.step(rows.delta), rows, start)


def _filter(measurement: Measurement, steps: Step, rows: Rows, state: State) -> Iterator[Filtered]:
    last = len(rows.values) - 1
    for t, (values, observed) in enumerate(zip(rows.values, rows.observed, strict=True)):
        row = Filtered(state, *measurement.update(state, values, observed), steps.at(t))
        yield row
        state = row.next() if t < last else state


def log_likelihood(space: StateSpace, rows: Rows, start: State | None = None) -> Tensor:
    """Log p(everything observed), summed over lanes and replicates; exact, and differentiable in `space` and values.

    start: what is known of the state before the first row, a constant; N(0, I) unless given.
    """
    start = stationary(space, rows.values.shape[1], rows.values.shape[-1]) if start is None else start
    total = _LogLikelihood.apply(*space.step(rows.delta), *space.measurement, *rows, *start)
    assert isinstance(total, Tensor)
    return total


class _LogLikelihood(torch.autograd.Function):
    """The filter forward; backward, the score by de Jong's recursion, which costs about twice as much.

    The gradient by the predicted mean a is r, that by the predicted covariance P is S = ½ (r rᵀ - N). With r⁺ = Aᵀ r
    and N⁺ = Aᵀ N A of the next row,

        u = W (e - G r⁺),   M = W (I + G N⁺ Gᵀ) Wᵀ
        r = r⁺ + Hᵀ u,      N = N⁺ + Hᵀ M H - Hᵀ W G N⁺ - N⁺ Gᵀ Wᵀ H
        ∂/∂x = -u,   ∂/∂diag r = ½ (u² - diag M),   ∂/∂H = u ŝᵀ - W G (I - N⁺ P⁺)
        ∂/∂Q = S,    ∂/∂A = r a⁺ᵀ + 2 S A P⁺

    where a⁺, P⁺ are filtered, ŝ = a + P r is smoothed, and r, S at A and Q are those of the next row.
    """

    @staticmethod
    def forward(
        ctx: Any,
        own: Tensor,
        other: Tensor,
        noise: Tensor,
        shared: Tensor,
        loadings: Tensor,
        variances: Tensor,
        values: Tensor,
        observed: Tensor,
        delta: Tensor,
        mean: Tensor,
        covariance: Tensor,
    ) -> Tensor:
        steps, space = Step(own, other, noise, shared), Measurement(loadings, variances)
        kept = list(_filter(space, steps, Rows(values, observed, delta), State(mean, covariance)))
        ctx.kept, ctx.steps, ctx.space, ctx.observed = kept, steps, space, observed
        total = sum((row.innovation.log_density().sum() for row in kept), mean.new_zeros(()))
        return total - 0.5 * LOG_2PI * int(observed.sum()) * values.shape[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        space, kept, by_values = ctx.space, ctx.kept, []
        by_step, by_space = (type(x)(*map(torch.zeros_like, x)) for x in (ctx.steps, space))
        future = Future.nothing(kept[-1].before)
        for t, row in zip(range(len(kept) - 1, -1, -1), reversed(kept), strict=True):
            if t + 1 < len(kept):
                _add_step_score(by_step.at(t), row, future)
            future = future.through(row.step)
            future, error = _score(space, by_space, row, ctx.observed[t], future)
            by_values.append(-error)
        scores = (*by_step, *by_space, torch.stack(by_values[::-1]))
        return *(grads[0] * x for x in scores), None, None, None, None


class Future(NamedTuple):
    """What later rows say of a state, relative to what earlier ones do: r and N."""

    pull: Tensor  # (lane, state, replicate)
    precision: Tensor  # (lane, state, state)

    @classmethod
    def nothing(cls, state: State) -> "Future":
        return cls(torch.zeros_like(state.mean), torch.zeros_like(state.covariance))

    def through(self, step: Step) -> "Future":
        """Aᵀ r, Aᵀ N A: from a row's prediction to what the row before it was filtered to."""
        back = step.apply_transposed
        return Future(back(self.pull), back(back(self.precision).mT))

    def at(self, white: Tensor, row: Innovation) -> tuple["Future", Tensor, Tensor]:
        """From a row filtered to its prediction, with E = Wᵀ H; and G N⁺, I + G N⁺ Gᵀ.

        r = r⁺ + Eᵀ (e - G r⁺),   N = N⁺ + Eᵀ (I + G N⁺ Gᵀ) E - Eᵀ G N⁺ - N⁺ Gᵀ E
        """
        through = row.gain @ self.precision
        inner = through @ row.gain.mT
        inner.diagonal(dim1=-2, dim2=-1).add_(1)
        half = white.mT @ (0.5 * inner @ white - through)
        pull = torch.baddbmm(self.pull, white.mT, row.error - row.gain @ self.pull)
        return Future(pull, self.precision + half + half.mT), through, inner


def _score(
    space: Measurement, total: Measurement, row: Filtered, observed: Tensor, future: Future
) -> tuple[Future, Tensor]:
    """Add what a row contributes to the gradients by H and r; the future before it, and u."""
    whitener, gain, error = row.innovation
    seen = observed.to(space.noise.dtype).unsqueeze(-1)
    before, through, inner = future.at(whitener @ (space.loadings * seen), row.innovation)
    u = whitener.mT @ (error - gain @ future.pull) * seen
    diagonal = (whitener * (inner @ whitener)).sum(-2) * seen.squeeze(-1)  # of M
    smoothed = row.before.mean + row.before.covariance @ before.pull
    count = u.shape[-1]
    spread = whitener.mT @ (gain - through @ row.after.covariance) * seen  # W G (I - N⁺ P⁺)
    total.loadings.add_((u @ smoothed.mT - count * spread).sum(0))
    total.noise.add_(0.5 * (u.square().sum(-1) - count * diagonal).sum(0))
    return before, u


def _add_step_score(total: Step, row: Filtered, future: Future) -> None:
    """Add the gradients by A and Q of the step behind a row; `future` is that of the next row's prediction."""
    count, mean = future.pull.shape[-1], row.after.mean
    score = 0.5 * (future.pull @ future.pull.mT - count * future.precision)  # S
    moved = row.step.apply(row.after.covariance)  # A P⁺
    _add(total.own, (future.pull * mean).sum(-1) + 2 * (score * moved.mT).sum(-1))
    _add(total.noise, score.diagonal(dim1=-2, dim2=-1))
    if pairs := total.other.shape[-1]:
        pull, partner = future.pull[..., -pairs:, :], swapped(mean[..., -pairs:, :])
        across = (score[..., -pairs:, :] * swapped(moved.mT[..., -pairs:, :])).sum(-1)
        _add(total.other, (pull * partner).sum(-1) + 2 * across)
        _add(total.shared, 2 * score[..., -pairs:, -pairs:].diagonal(1, -2, -1)[..., ::2])


def _add(total: Tensor, scores: Tensor) -> None:
    """To what one lane has, or all lanes share."""
    total.add_(scores.sum(0, keepdim=True) if total.shape[0] == 1 else scores)
