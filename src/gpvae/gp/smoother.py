"""The posterior of a state space given whole series, long or many: smoother, filter and joint draws.

A series of T rows is cut into lanes, chunks of about √T rows that are filtered side by side; this is exact. What a
lane says of the state x at its beginning and hands on to its end, given its rows, is linear and Gaussian:

    p(rows | x) ∝ exp(ηᵀx - ½ xᵀJx),    end | x, rows ~ N(Φx + b, C)

found by filtering the lane from a known state (P = 0), with the data from x = 0 and without data from each unit
vector. Lanes are then joined one after the other, forward for the state at the beginning of each (a, P) and backward
for what all later rows say of it (η, Λ); with both, every lane is smoothed by itself, a few at a time, so memory stays
O(T n) at most.

Smoothing goes backward with r and N (de Jong 1989; Durbin & Koopman 2012, 4.4): E[x | all] = a + P r,
Cov[x | all] = P - P N P. Draws are joint over time and columns (Durbin & Koopman 2002): simulate states and data from
the prior, smooth the difference to the real data, add it.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from gpvae.gp.chains import LOG_2PI
from gpvae.gp.state_space import Future, Rows, State, StateSpace, Step, filter_rows, stationary

BLOCK = 32  # rows whose random numbers are drawn together
NUMBERS = 2**26  # that a group of lanes may keep, 0.5 GB


class Element(NamedTuple):
    """What the rows of a lane say of the state at its beginning, and how it goes on to its end."""

    information: Tensor  # (lane, state, state) J
    evidence: Tensor  # (lane, state, replicate) η
    transfer: Tensor  # (lane, state, state) Φ
    offset: Tensor  # (lane, state, replicate) b
    covariance: Tensor  # (lane, state, state) C


def element(space: StateSpace, rows: Rows) -> Element:
    """Of each lane: filter the data from the state 0, and no data from each unit vector; P = 0 at the beginning."""
    batch, n = rows.values.shape[1], space.loadings.shape[1]
    count = rows.values.shape[-1]
    eye = torch.eye(n, dtype=space.loadings.dtype, device=space.loadings.device).expand(batch, n, n)
    silent = rows.values.new_zeros(*rows.values.shape[:-1], n)
    both = rows._replace(values=torch.cat([rows.values, silent], dim=-1))
    start = State(torch.cat([eye.new_zeros(batch, n, count), eye], dim=-1), torch.zeros_like(eye))
    information, last = torch.zeros(()), None
    for last in filter_rows(space, both, start):
        error = last.innovation.error
        information = information + error[..., count:].mT @ error
    assert last is not None
    end = last.next()
    evidence, information = -information[..., :count], information[..., count:]
    return Element(information, evidence, end.mean[..., count:], end.mean[..., :count], end.covariance)


def starts(elements: Element, first: State, chunks: int) -> State:
    """The state at the beginning of each lane given all earlier lanes; lanes are (chunk, series). (lane, …)"""
    found, state = [first], first
    for part in list(_by_chunk(elements, chunks))[:-1]:
        state = advance(part, state)
        found.append(state)
    return State(torch.cat([each.mean for each in found]), torch.cat([each.covariance for each in found]))


def advance(part: Element, state: State) -> State:
    """From the beginning of a lane to its end: condition on its rows, then go on.

    P' = (I + P J)⁻¹ P,   a' = a + P' (η - J a),   N(Φ a' + b, Φ P' Φᵀ + C)
    """
    eye = torch.eye(state.covariance.shape[-1], dtype=state.mean.dtype, device=state.mean.device)
    known = _symmetric(torch.linalg.solve(eye + state.covariance @ part.information, state.covariance))
    mean = state.mean + known @ (part.evidence - part.information @ state.mean)
    spread = part.transfer @ known @ part.transfer.mT + part.covariance
    return State(part.transfer @ mean + part.offset, _symmetric(spread))


def futures(elements: Element, start: State, chunks: int) -> Future:
    """At the end of each lane, before the next begins. (lane, …)

    Backward: Λ = J + Φᵀ (I + Λ' C)⁻¹ Λ' Φ,   η = η_lane + Φᵀ (I + Λ' C)⁻¹ (η' - Λ' b).
    Relative to (a, P), what earlier rows say there: r = (I + Λ P)⁻¹ (η - Λ a),   N = (I + Λ P)⁻¹ Λ.
    """
    parts = list(_by_chunk(elements, chunks))
    evidence, information = torch.zeros_like(parts[-1].evidence), torch.zeros_like(parts[-1].information)
    eye = torch.eye(information.shape[-1], dtype=information.dtype, device=information.device)
    found = [Future(evidence, information)]
    befores = list(zip(*(x.chunk(chunks) for x in start), strict=True))
    for part, (mean, covariance) in zip(parts[:0:-1], befores[:0:-1], strict=True):
        pull, weight = evidence - information @ part.offset, eye + information @ part.covariance
        solved = torch.linalg.solve(weight, torch.cat([pull, information @ part.transfer], dim=-1))
        pull, passed = solved.split([pull.shape[-1], len(eye)], dim=-1)
        evidence = part.evidence + part.transfer.mT @ pull
        information = _symmetric(part.information + part.transfer.mT @ passed)
        relative = torch.linalg.solve(
            eye + information @ covariance, torch.cat([evidence - information @ mean, information], dim=-1)
        )
        found.append(Future(relative[..., : evidence.shape[-1]], _symmetric(relative[..., evidence.shape[-1] :])))
    return Future(*(torch.cat(x) for x in zip(*found[::-1], strict=True)))


def _by_chunk(elements: Element, chunks: int) -> Iterator[Element]:
    return (Element(*parts) for parts in zip(*(x.chunk(chunks) for x in elements), strict=True))


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.mT) / 2


class Posterior(NamedTuple):
    """Of what `outputs` makes of the state; without them, of the signal H s. Of lanes, or of whole series."""

    mean: Tensor  # (time, batch, output)
    variance: Tensor  # (time, batch, output)
    draws: Tensor  # (time, batch, column, sample) measurements of missing cells, noise included


def smooth(space: StateSpace, rows: Rows, start: State, future: Future, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (time, lane, output, replicate) and variance (time, lane, output) given all rows."""
    kept = [(row.before, row.innovation, row.step) for row in filter_rows(space, rows, start)]
    means, variances = [], []
    for (before, innovation, step), observed in zip(reversed(kept), rows.observed.flip(0), strict=True):
        white = innovation.whitener @ (space.loadings * observed.unsqueeze(-1))  # E = Wᵀ H
        future, *_ = future.through(step).at(white, innovation)
        projected = before.covariance @ outputs.T  # P Fᵀ
        means.append(outputs @ before.mean + projected.mT @ future.pull)
        variances.append((projected * (outputs.T - future.precision @ projected)).sum(-2))
    return torch.stack(means[::-1]), torch.stack(variances[::-1]).clamp(min=0)


def filtered(space: StateSpace, rows: Rows, start: State, outputs: Tensor) -> tuple[Tensor, Tensor]:
    """The same given each row and those before it."""
    moments = [row.after.moments(outputs) for row in filter_rows(space, rows, start)]
    mean, variance = (torch.stack(x) for x in zip(*moments, strict=True))
    return mean, variance


def simulate(space: StateSpace, rows: Rows, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Data from the prior, given a state of 0 at the beginning, and the state at the end.

    noise (time, lane, column + state, sample), standard normal; data (time, lane, column, sample)
    """
    columns, states = space.loadings.shape
    state, data, steps = torch.zeros_like(noise[0, :, columns:]), [], space.step(rows.delta)
    scale = space.noise.sqrt().unsqueeze(-1)
    for t, (measured, moved) in enumerate(zip(*noise.split([columns, states], dim=2), strict=True)):
        data.append(space.loadings @ state + scale * measured)
        state = steps.at(t).apply(state) + steps.at(t).draw(moved)
    return torch.stack(data), state


def response(space: StateSpace, rows: Rows, start: Tensor) -> Tensor:
    """What a state at the beginning, (lane, state, sample), adds to the data. (time, lane, column, sample)"""
    state, data, steps = start, [], space.step(rows.delta)
    for t in range(len(rows.values)):
        data.append(space.loadings @ state)
        state = steps.at(t).apply(state)
    return torch.stack(data)


def normal_numbers(seed: int, first: int, last: int, width: tuple[int, int], like: Tensor) -> Tensor:
    """Those of the rows first to last - 1 of a series, whatever else is drawn. (time, *width)"""
    blocks = range(first // BLOCK, -(-last // BLOCK))
    parts = [_block(seed, block, width, like) for block in blocks]
    return torch.cat(parts)[first - blocks.start * BLOCK : last - blocks.start * BLOCK]


def _block(seed: int, number: int, width: tuple[int, int], like: Tensor) -> Tensor:
    """Numbers of `BLOCK` rows; block -1 is that of the state before the first row."""
    generator = Generator(like.device).manual_seed((seed * 1_000_003 + number + 1) % 2**63)
    return torch.randn((BLOCK, *width), generator=generator, device=like.device).to(like.dtype)


class Lanes:
    """Series cut into chunks, as lanes (chunk, series) that are worked on side by side, a group at a time.

    rows: padded series, of one replicate.
    samples: joint draws that go along; those of a series depend on its seed alone. By default seeds are 0, 1, 2, …
    """

    def __init__(
        self,
        space: StateSpace,
        rows: Rows,
        samples: int = 0,
        seeds: Sequence[int] | None = None,
        chunks: int | None = None,
    ):
        self.space, self.samples = space, samples
        self.time, self.series = rows.values.shape[:2]
        self.seeds = range(self.series) if seeds is None else seeds
        if rows.delta.numel() > 1:  # cut as values are
            rows = rows._replace(delta=rows.delta.expand(self.time, self.series))
        self.chunks = best_chunks(self.time, self.series) if chunks is None else chunks
        self.length = length = -(-self.time // self.chunks)  # of a chunk
        self.chunks = -(-self.time // length)
        self.rows = Rows(*(self.cut(x) for x in rows))
        columns, states = space.loadings.shape
        each = 2 * states**2 + 3 * columns * states + (3 * states + 5 * columns) * (samples + 1)
        size = max(1, NUMBERS // (each * length))
        lanes = self.chunks * self.series
        self.groups = [slice(first, min(first + size, lanes)) for first in range(0, lanes, size)]
        self._kept = dict[int, tuple[Tensor, Tensor]]()
        self.simulated = self._simulated_starts()
        self.start, self.future = self._joined()

    def posteriors(self, outputs: Tensor | None = None, *, causal: bool = False) -> Iterator[tuple[slice, Posterior]]:
        """Of one group of lanes after the other, given all rows, or, if causal, each row and those before it."""
        if outputs is not None and self.samples:
            raise ValueError(f"draws are of the columns, so outputs need samples=0, got {self.samples}")
        outputs = self.space.loadings if outputs is None else outputs
        for group in self.groups:
            rows, simulated = self._replicates(group)
            start = State(*(x[group] for x in self.start))
            if causal:
                mean, variance = filtered(self.space, rows, start, outputs)
            else:
                future = Future(*(x[group] for x in self.future))
                mean, variance = smooth(self.space, rows, start, future, outputs)
            draws = mean[..., 1:] + simulated if self.samples else mean[..., 1:]
            yield group, Posterior(mean[..., 0], variance, draws)

    def whole(self, outputs: Tensor | None = None, *, causal: bool = False) -> Posterior:
        """Of all rows, in the order they came. (time, series, …)"""
        parts = zip(*(part for _, part in self.posteriors(outputs, causal=causal)), strict=True)
        return Posterior(*(self.joined(torch.cat(each, dim=1)) for each in parts))

    def joined(self, lanes: Tensor) -> Tensor:
        """(time of a chunk, lane, …) → (time, series, …)"""
        split = lanes.unflatten(1, (self.chunks, self.series)).transpose(0, 1)
        return split.flatten(0, 1)[: self.time]

    def cut(self, x: Tensor) -> Tensor:
        """(time, series, …) → (time of a chunk, lane, …), padded by rows without a value."""
        if x.shape[0] == 1 and self.time > 1:
            return x
        padding = x.new_zeros(self.chunks * self.length - self.time, *x.shape[1:])
        split = torch.cat([x, padding]).unflatten(0, (self.chunks, self.length)).transpose(0, 1)
        return split.flatten(1, 2)

    def _of(self, group: slice) -> Rows:
        values, observed, delta = self.rows
        return Rows(values[:, group], observed[:, group], delta if delta.shape[1] == 1 else delta[:, group])

    def _replicates(self, group: slice) -> tuple[Rows, Tensor]:
        """The data, and the data less each simulation of it; and the simulations."""
        rows = self._of(group)
        if not self.samples:
            return rows, rows.values[..., :0]
        simulated = self._from_zero(group)[0] + response(self.space, rows, self.simulated[group])
        return rows._replace(values=torch.cat([rows.values, rows.values - simulated], dim=-1)), simulated

    def _from_zero(self, group: slice) -> tuple[Tensor, Tensor]:
        """Simulations of a group of lanes from states of 0, kept where there is room for those of all lanes."""
        if group.start in self._kept:
            return self._kept[group.start]
        simulated = simulate(self.space, self._of(group), self._noise(group))
        if self.rows.observed.numel() * self.samples <= NUMBERS:
            self._kept[group.start] = simulated
        return simulated

    def _noise(self, group: slice) -> Tensor:
        """(time of a chunk, lane, column + state, sample)"""
        loadings = self.space.loadings
        width, found = (sum(loadings.shape), self.samples), []
        for lane in range(group.start, group.stop):
            chunk, series = divmod(lane, self.series)
            first = chunk * self.length
            found.append(normal_numbers(self.seeds[series], first, first + self.length, width, loadings))
        return torch.stack(found, dim=1)

    def _simulated_starts(self) -> Tensor:
        """States of the simulations at the beginning of each lane. (lane, state, sample)"""
        loadings = self.space.loadings
        shape = (self.series, loadings.shape[1], self.samples)
        state = torch.stack([_block(seed, -1, (*shape[1:],), loadings)[0] for seed in self.seeds])
        if self.chunks == 1 or not self.samples:
            return state.repeat(self.chunks, 1, 1)
        found = []
        ends = torch.cat([self._from_zero(group)[1] for group in self.groups])
        total = self.rows.delta.sum(0) if len(self.rows.delta) > 1 else self.rows.delta[0] * self.length
        whole = self.space.step(total.expand(self.chunks * self.series))
        for chunk in range(self.chunks):
            found.append(state)
            lanes = slice(chunk * self.series, (chunk + 1) * self.series)
            state = Step(*(x[lanes] for x in whole)).apply(state) + ends[lanes]
        return torch.cat(found)

    def _joined(self) -> tuple[State, Future]:
        """What is known at the beginning of each lane from earlier ones, and at its end from later ones."""
        first = stationary(self.space, self.series, self.samples + 1)
        if self.chunks == 1:
            return first, Future(torch.zeros_like(first.mean), torch.zeros_like(first.covariance))
        parts = [element(self.space, self._replicates(group)[0]) for group in self.groups]
        elements = Element(*(torch.cat(x) for x in zip(*parts, strict=True)))
        start = starts(elements, first, self.chunks)
        return start, futures(elements, start, self.chunks)


def best_chunks(time: int, series: int) -> int:
    """Few series are cut into about √T chunks; many are worked on side by side as they are, unless they are long."""
    return max(-(-time // 1024), min(math.isqrt(time) + 1, -(-128 // series)), 1)


def exact_log_likelihood(space: StateSpace, rows: Rows) -> Tensor:
    """Log p(everything observed) of each long series. (series,)"""
    lanes = Lanes(space, rows)
    total = []
    for group in lanes.groups:
        start = State(*(x[group] for x in lanes.start))
        parts = filter_rows(space, lanes._of(group), start)
        total.append(torch.stack([row.innovation.log_density()[..., 0] for row in parts]).sum(0))
    per_series = torch.cat(total).unflatten(0, (lanes.chunks, lanes.series)).sum(0)
    return per_series - 0.5 * LOG_2PI * rows.observed.sum((0, 2)).to(per_series)  # not in single precision
