"""Learning a `FactorModel`: stochastic gradients of the marginal likelihood, by Adam.

Long series are learned from windows, spread evenly over the data and worked on side by side, some in each step, so the
cost of learning does not grow with the data. Each window is predicted from the rows before it:

    Σ_windows log p(rows of the window | `CONTEXT` rows before it)

where what the earlier rows say of the window's first state is taken from the parameters of a few steps ago. The
gradient of that has mean zero at the truth, so nothing is lost by it but some of what long memory could teach.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gpvae.gp.state_space import Rows, State, filter_rows, log_likelihood, stationary
from gpvae.models.factor import FactorModel, Relations, Warp
from gpvae.training.factor_start import first_model
from gpvae.training.periods import Stretch
from gpvae.training.relations import FLOOR

LANE, CONTEXT = 64, 128  # rows of a window, and before it
ROWS, BATCH = 32_768, 1024  # to learn from, more where much is missing, and of one step
WARPED = 4096  # rows, about, whose mean and deviation a warp takes away
SPARSE = 4.0  # times as many rows, at most, where much is missing
NUMBERS = 2**23  # rows times columns, at most
STEPS, RATE, WARM_UP = 200, 0.05, 10  # of the optimiser; its rate grows at first, and falls to 0 like a cosine
MOMENTS = (0.9, 0.95)
REFRESH = 50  # steps after which the rows before all windows are filtered again
BOUNDS = {  # of the parameters
    "length": (0.3, 3e5),
    "weights": (-math.inf, math.inf),
    "amplitude": (1e-3, 30.0),
    "noise": (FLOOR, 3.0),
    "exponent": (0.05, 1.95),
    "tail": (1e-3, 10.0),
}
PACE = {"length": 1.0, "amplitude": 1.0, "noise": 3.0}  # learned as logarithms, which change as fast as this


@dataclass(frozen=True)
class Windows:
    """Windows of the data, side by side, in the data's standardised units."""

    values: Tensor  # (time, window, column), 0 where not observed
    observed: Tensor  # (time, window, column) bool
    delta: Tensor  # (time, window), or (1, 1) on an even grid

    def of(self, lanes: Tensor) -> "Windows":
        """Some of them."""
        delta = self.delta if self.delta.shape[1] == 1 else self.delta[:, lanes]
        return Windows(self.values[:, lanes], self.observed[:, lanes], delta)

    def rows(self, warp: Warp) -> Rows:
        return Rows(warp(self.values).unsqueeze(-1), self.observed, self.delta)

    @classmethod
    def at(cls, stretches: list[Stretch], places: list[tuple[int, int]], length: int) -> "Windows":
        """From each (series, first row); rows before the beginning and behind the end of a series are empty."""
        values = np.full((length, len(places), stretches[0].values.shape[1]), np.nan)
        delta = np.ones((length, len(places)))
        for lane, (series, first) in enumerate(places):
            each, start = stretches[series], max(0, first)
            part = each.values[start : first + length]
            values[start - first : start - first + len(part), lane] = part
            steps = np.diff(each.times[start : first + length + 1])
            delta[start - first : start - first + len(steps), lane] = steps
        observed, even = ~np.isnan(values), np.allclose(delta, 1, rtol=0, atol=1e-6)
        delta = delta[:1, :1] if even else delta
        return cls(*(torch.from_numpy(x) for x in (np.where(observed, values, 0), observed, delta)))


def learn(stretches: list[Stretch]) -> FactorModel:
    """Choose what the model is made of, and maximise the likelihood."""
    model = first_model(stretches)
    stretches = [_obeying(each, model.relations) for each in stretches]
    lane, places = chosen_windows(stretches)
    windows = Windows.at(stretches, places, lane)
    before = Windows.at(stretches, [(series, first - CONTEXT) for series, first in places], CONTEXT)
    every = math.ceil(len(places) * lane / WARPED)
    parameters = _Parameters(model, windows.of(torch.arange(0, len(places), every)))
    optimiser, start = torch.optim.Adam(parameters.free.values(), betas=MOMENTS), None
    for step, lanes in enumerate(_batches(len(places), math.ceil(BATCH / lane))):
        if start is None or step % REFRESH == 0:
            start = _known(parameters.model(), before)
        optimiser.param_groups[0]["lr"] = _rate(step)
        optimiser.zero_grad()
        _loss(parameters.model(), windows.of(lanes), State(*(x[lanes] for x in start))).backward()
        optimiser.step()
        parameters.clip()
    return parameters.learned()


def _obeying(stretch: Stretch, relations: Relations) -> Stretch:
    """Without derived cells that break the relation."""
    broken = relations.broken(torch.from_numpy(stretch.values)).numpy()
    return replace(stretch, values=np.where(broken, np.nan, stretch.values))


def chosen_windows(stretches: list[Stretch]) -> tuple[int, list[tuple[int, int]]]:
    """The length of windows, and (series, first row) of each: all there are, or as many as are needed."""
    lengths = [len(each.values) for each in stretches]
    lane = max(lengths) if max(lengths) <= 2 * LANE else LANE
    seen = np.mean([np.mean(~np.isnan(each.values)) for each in stretches])
    rows = min(ROWS * min(SPARSE, 1 / max(seen, 1e-3)), NUMBERS / stretches[0].values.shape[1])
    count = math.ceil(rows / lane)
    places = [(series, first) for series, length in enumerate(lengths) for first in range(0, length, lane)]
    chosen = np.unique(np.linspace(0, len(places) - 1, count).round().astype(int))
    return lane, [places[i] for i in chosen]


def _batches(count: int, size: int) -> Iterator[Tensor]:
    """The windows of each step, in an order that is always the same."""
    generator = torch.Generator().manual_seed(0)
    order = torch.zeros(0, dtype=torch.long)
    for _ in range(STEPS):
        if len(order) < min(size, count):
            order = torch.randperm(count, generator=generator)
        yield order[:size]
        order = order[size:]


def _rate(step: int) -> float:
    return RATE * min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * step / STEPS)) / 2


@torch.no_grad()
def _known(model: FactorModel, before: Windows) -> State:
    """Of the state at the beginning of each window, given the rows before it."""
    state = stationary(model.space, before.values.shape[1])
    if not before.observed.any():
        return state
    for row in filter_rows(model.space, before.rows(model.warp), state):
        state = row.next()
    return state


def _loss(model: FactorModel, windows: Windows, start: State) -> Tensor:
    """Negative log density of an observed cell, in the data's units: with the slope of the warp."""
    density = log_likelihood(model.space, windows.rows(model.warp), start)
    slope = model.warp.log_slope(windows.values).masked_fill(~windows.observed, 0).sum()
    return -(density + slope) / windows.observed.sum().clamp(min=1)


class _Parameters:
    """The parameters as numbers of like scale, within bounds.

    The curvature of the likelihood in a column's weights goes with one over what the shared series leave of the column,
    so weights are counted in the deviation of that.
    """

    def __init__(self, model: FactorModel, windows: Windows):
        own = torch.zeros_like(model.noise)
        own.index_add_(0, torch.tensor(model.owner, dtype=torch.long), model.amplitude.square())
        self.base, self.windows, self.scale = model, windows, (own + model.noise).sqrt().unsqueeze(1)
        start = {
            "length": model.length,
            "weights": model.weights / self.scale,
            "amplitude": model.amplitude,
            "noise": model.noise,
            "exponent": model.warp.exponent,
            "tail": model.warp.tail,
        }
        derived, involved = model.relations.derived.unsqueeze(1), model.relations.involved
        fixed = {"weights": derived, "exponent": involved, "tail": involved.unsqueeze(1)}
        self.bounds = {name: _bounds(name, x, fixed.get(name, torch.tensor(False))) for name, x in start.items()}
        self.free = {name: _free(name, x.clamp(*self.bounds[name])).requires_grad_() for name, x in start.items()}

    def model(self) -> FactorModel:
        x = {name: (PACE[name] * free).exp() if name in PACE else free for name, free in self.free.items()}
        warp = replace(self.base.warp, exponent=x["exponent"], tail=x["tail"])
        return replace(
            self.base,
            length=x["length"],
            weights=x["weights"] * self.scale,
            amplitude=x["amplitude"],
            noise=x["noise"],
            warp=warp.standardising(self.windows.values, self.windows.observed, self.base.relations),
        )

    def learned(self) -> FactorModel:
        """The model, no longer to be learned."""
        for name, x in self.free.items():
            if not x.isfinite().all():
                raise FloatingPointError(f"learning GPFactor diverged: {name} is not finite")
            x.requires_grad_(False)
        return self.model()

    @torch.no_grad()
    def clip(self) -> None:
        for name, x in self.free.items():
            x.clamp_(*(_free(name, bound) for bound in self.bounds[name]))


def _free(name: str, x: Tensor) -> Tensor:
    """What is learned."""
    return x.log() / PACE[name] if name in PACE else x


def _bounds(name: str, start: Tensor, fixed: Tensor) -> tuple[Tensor, Tensor]:
    """Of each number; those that are fixed stay as they are."""
    low, high = BOUNDS[name]
    return torch.where(fixed, start, low), torch.where(fixed, start, high)
