"""The dense twin of `gpvae.gp.state_space`: the joint normal distribution of all states and cells of a series.

Its covariances are written down from the kernels and know nothing of A and Q.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from gpvae.gp.state_space import STATES, Kind, Rows, State, StateSpace

KINDS: dict[str, tuple[Kind, ...]] = {
    "exponential": ("exponential", "exponential"),
    "matern": ("matern", "matern"),
    "oscillator": ("oscillator",),
    "mixed": ("exponential", "matern", "matern", "oscillator"),
}


def block(kind: Kind, lag: Tensor, length: Tensor, frequency: Tensor) -> Tensor:
    """Cov(s(τ + lag), s(τ)) of one process, for lags of both signs. (…, 1 or 2, 1 or 2)

    The second state of a Matérn is its derivative times ℓ/√3, that of an oscillator is a quarter turn behind.
    """
    if kind == "exponential":
        return torch.exp(-lag.abs() / length)[..., None, None]
    if kind == "matern":
        z = math.sqrt(3) * lag / length
        cells, decay = [1 + z.abs(), z, -z, 1 - z.abs()], torch.exp(-z.abs())
    else:
        angle = frequency * lag
        cells, decay = [angle.cos(), -angle.sin(), angle.sin(), angle.cos()], torch.exp(-lag.abs() / length)
    return (decay.unsqueeze(-1) * torch.stack(cells, dim=-1)).unflatten(-1, (2, 2))


def state_covariance(space: StateSpace, lag: Tensor) -> Tensor:
    """Cov(s(τ + lag), s(τ)) of all states. (…, state, state)"""
    states = sum(STATES[kind] for kind in space.kinds)
    result, first = torch.zeros(*lag.shape, states, states, dtype=lag.dtype), 0
    for kind, length, frequency in zip(space.kinds, space.length, space.frequency, strict=True):
        own = slice(first, first + STATES[kind])
        result[..., own, own] = block(kind, lag, length, frequency)
        first = own.stop
    return result


class Twin(NamedTuple):
    """Of one series: the states of all rows, and how cells are made of them."""

    mean: Tensor  # (time · state, 1)
    covariance: Tensor  # (time · state, time · state)
    loadings: Tensor  # (time · column, time · state)
    noise: Tensor  # (time · column,)
    time: int

    @classmethod
    def of(cls, space: StateSpace, times: Tensor, start: tuple[Tensor, Tensor] | None = None) -> "Twin":
        """start: mean (state, 1) and covariance (state, state) of the state at the first time, else N(0, I)."""
        time, prior = len(times), state_covariance(space, times.unsqueeze(-1) - times)
        states = prior.shape[-1]
        covariance = prior.transpose(1, 2).reshape(time * states, time * states)
        mean = covariance.new_zeros(time * states, 1)
        if start is not None:
            from_start = covariance[:, :states]
            mean = from_start @ start[0]
            covariance = covariance + from_start @ (start[1] - torch.eye(states)) @ from_start.T
        return cls(mean, covariance, torch.block_diag(*[space.loadings] * time), space.noise.repeat(time), time)

    def cells(self) -> Tensor:
        """The covariance of all cells, noise included. (time · column, time · column)"""
        return self.loadings @ self.covariance @ self.loadings.T + self.noise.diag()

    def given(self, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (time · state, replicate) and covariance of the states; values (time, column, replicate)."""
        seen = observed.flatten()
        loadings = self.loadings[seen]
        error = values.flatten(0, 1)[seen] - loadings @ self.mean
        gain = torch.linalg.solve(self.cells()[seen][:, seen], loadings @ self.covariance).T
        return self.mean + gain @ error, self.covariance - gain @ loadings @ self.covariance

    def moments(self, values: Tensor, observed: Tensor) -> tuple[Tensor, Tensor]:
        """Mean (time, state, replicate) and covariance (time, state, state) of each row's states."""
        mean, covariance = self.given(values, observed)
        blocks = covariance.unflatten(0, (self.time, -1)).unflatten(-1, (self.time, -1))
        return mean.unflatten(0, (self.time, -1)), blocks.diagonal(dim1=0, dim2=2).movedim(-1, 0)

    def log_density(self, values: Tensor, observed: Tensor) -> Tensor:
        """Of everything observed. (replicate,)"""
        seen = observed.flatten()
        covariance = self.cells()[seen][:, seen]
        error = values.flatten(0, 1)[seen] - self.loadings[seen] @ self.mean
        square = (error * torch.linalg.solve(covariance, error)).sum(0)
        return -0.5 * (square + torch.logdet(covariance) + len(error) * math.log(2 * math.pi))


class Case(NamedTuple):
    """A state space and data for it, with a twin for each lane."""

    space: StateSpace
    rows: Rows

    @property
    def lanes(self) -> int:
        return self.rows.values.shape[1]

    def times(self, lane: int) -> Tensor:
        delta = self.rows.delta.expand(*self.rows.values.shape[:2])[:-1, lane]
        return torch.cat([delta.new_zeros(1), delta.cumsum(0)])

    def twin(self, lane: int, start: State | None = None) -> Twin:
        return Twin.of(
            self.space, self.times(lane), None if start is None else (start.mean[lane], start.covariance[lane])
        )

    def data(self, lane: int) -> tuple[Tensor, Tensor]:
        """Values (time, column, replicate) and what is observed (time, column)."""
        return self.rows.values[:, lane], self.rows.observed[:, lane]

    def log_density(self, start: State | None = None) -> Tensor:
        """(lane, replicate)"""
        return torch.stack([self.twin(lane, start).log_density(*self.data(lane)) for lane in range(self.lanes)])

    def moments(self, start: State | None = None) -> tuple[Tensor, Tensor]:
        """Mean (time, lane, state, replicate) and covariance (time, lane, state, state) given all rows."""
        parts = [self.twin(lane, start).moments(*self.data(lane)) for lane in range(self.lanes)]
        mean, covariance = (torch.stack(x, dim=1) for x in zip(*parts, strict=True))
        return mean, covariance

    def until(self, row: int) -> "Case":
        """The same with nothing observed from this row on."""
        observed = self.rows.observed.clone()
        observed[row:] = False
        return self._replace(rows=self.rows._replace(observed=observed))

    def typical(self) -> "Case":
        """The same with values drawn from the prior, so that they fit even if the noise is tiny."""
        shape, roots = self.rows.values.shape, []
        for lane in range(self.lanes):
            variance, vectors = torch.linalg.eigh(self.twin(lane).cells())
            roots.append(vectors * variance.clamp(min=0).sqrt())
        normal = torch.randn(len(roots[0]), shape[-1], dtype=torch.float64, generator=seeded(5))
        values = torch.stack([(root @ normal).unflatten(0, (shape[0], -1)) for root in roots], dim=1)
        return self._replace(rows=self.rows._replace(values=values))


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_space(kinds: tuple[Kind, ...], columns: int = 3, seed: int = 0) -> StateSpace:
    generator, states = seeded(seed), sum(STATES[kind] for kind in kinds)
    length, frequency, noise = (
        0.2 + torch.rand(size, generator=generator, dtype=torch.float64) for size in (len(kinds), len(kinds), columns)
    )
    loadings = torch.randn(columns, states, generator=generator, dtype=torch.float64)
    return StateSpace(kinds, 3 * length, 2 * frequency, loadings, 0.2 * noise)


def random_rows(time: int = 13, lanes: int = 2, columns: int = 3, replicates: int = 2, seed: int = 0) -> Rows:
    """Uneven times, two of them the same and one far away; cells, a row and a column of a lane are missing."""
    generator = seeded(seed)
    delta = 0.05 + torch.rand(time, lanes, generator=generator, dtype=torch.float64)
    observed = torch.rand(time, lanes, columns, generator=generator) > 0.35
    values = torch.randn(time, lanes, columns, replicates, generator=generator, dtype=torch.float64)
    delta[time // 2], delta[time // 3] = 0, 20
    observed[0] = observed[time // 2 : time // 2 + 2] = True
    observed[time // 4] = observed[-1, -1] = observed[:, -1, -1] = False
    return Rows(values.masked_fill(~observed.unsqueeze(-1), 100.0), observed, delta)


def random_case(name: str, seed: int = 0, **sizes: int) -> Case:
    """`name` is that of `KINDS`; missing cells hold a number that must not matter."""
    return Case(random_space(KINDS[name], seed=seed), random_rows(seed=seed, **sizes))


def with_shared_delta(case: Case, clock: str) -> Case:
    """The same with times that rows or lanes share; `clock` is one of `CLOCKS`."""
    delta = case.rows.delta[1:2] if "grid" in clock else case.rows.delta
    return case._replace(rows=case.rows._replace(delta=delta[:, :1] if "same" in clock else delta))


CLOCKS = ["any times", "same times", "any grid", "same grid"]  # of the lanes
