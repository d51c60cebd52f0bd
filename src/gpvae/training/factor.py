"""Learning a `FactorModel`: gradients of the marginal likelihood, by L-BFGS.

Long series are learned from windows, spread evenly over the data and worked on side by side, so the cost of learning
does not grow with the data. Each window is predicted from the rows before it:

    Σ_windows log p(rows of the window | `CONTEXT` rows before it)

where what the earlier rows say of the window's first state is taken from the parameters of the last round. The
gradient of that has mean zero at the truth, so nothing is lost by it but some of what long memory could teach.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from gpvae.gp.state_space import Rows, State, filter_rows, log_likelihood, stationary
from gpvae.models.factor import FactorModel, Warp
from gpvae.training.factor_start import FLOOR, first_model
from gpvae.training.periods import Stretch

LANE, CONTEXT = 64, 256  # rows of a window, and before it
ROUNDS = ((1024, 40), (2048, 40))  # complete rows to learn from, more where much is missing; and evaluations at most
SPARSE = 4.0  # times as many rows, at most, where much is missing
TOLERANCE = 2e-4  # nats for each cell that a step of the optimiser must bring
BOUNDS = {  # of the parameters, most of them learned as logarithms
    "length": (0.3, 3e5),
    "weights": (-1e3, 1e3),
    "amplitude": (1e-3, 30.0),
    "noise": (FLOOR, 3.0),
    "exponent": (0.05, 1.95),
    "tail": (1e-3, 10.0),
}


@dataclass(frozen=True)
class Windows:
    """Windows of the data, side by side, in the data's standardised units."""

    values: Tensor  # (time, window, column), 0 where not observed
    observed: Tensor  # (time, window, column) bool
    delta: Tensor  # (time, window), or (1, 1) on an even grid

    def rows(self, warp: Warp) -> Rows:
        return Rows(warp(self.values).unsqueeze(-1), self.observed, self.delta)

    @classmethod
    def of(cls, stretches: list[Stretch], places: list[tuple[int, int]], length: int) -> "Windows":
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
    for rows, evaluations in ROUNDS:
        lane, places = chosen_windows(stretches, rows)
        windows = Windows.of(stretches, places, lane)
        before = Windows.of(stretches, [(series, first - CONTEXT) for series, first in places], CONTEXT)
        model = _fitted(model, windows, _known(model, before), evaluations)
    return model


def chosen_windows(stretches: list[Stretch], rows: int) -> tuple[int, list[tuple[int, int]]]:
    """The length of windows, and (series, first row) of each: all there are, or as many as are needed."""
    lengths = [len(each.values) for each in stretches]
    lane = max(lengths) if max(lengths) <= 2 * LANE else LANE
    seen = np.mean([np.mean(~np.isnan(each.values)) for each in stretches])
    count = math.ceil(rows / lane * min(SPARSE, 1 / max(seen, 1e-3)))
    places = [(series, first) for series, length in enumerate(lengths) for first in range(0, length, lane)]
    chosen = np.unique(np.linspace(0, len(places) - 1, count).round().astype(int))
    return lane, [places[i] for i in chosen]


@torch.no_grad()
def _known(model: FactorModel, before: Windows) -> State:
    """Of the state at the beginning of each window, given the rows before it."""
    state = stationary(model.space, before.values.shape[1])
    if not before.observed.any():
        return state
    for row in filter_rows(model.space, before.rows(model.warp), state):
        state = row.next()
    return state


def _fitted(model: FactorModel, windows: Windows, start: State, evaluations: int) -> FactorModel:
    """Better parameters, found by at most so many evaluations of the likelihood and its gradient."""
    vector, cells = _Vector(model, windows), max(1, int(windows.observed.sum()))

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.from_numpy(numbers).requires_grad_()
        value = -_log_likelihood(vector.model(free), windows, start) / cells
        (gradient,) = torch.autograd.grad(value, free)
        return value.item(), gradient.numpy()

    options = {"maxfun": evaluations, "maxiter": evaluations, "maxcor": 20, "ftol": TOLERANCE, "gtol": 1e-5}
    found = minimize(loss, vector.start, jac=True, method="L-BFGS-B", bounds=vector.bounds, options=options)
    with torch.no_grad():
        return vector.model(torch.from_numpy(found.x))


def _log_likelihood(model: FactorModel, windows: Windows, start: State) -> Tensor:
    """Of what is observed, in the data's units: with the slope of the warp."""
    density = log_likelihood(model.space, windows.rows(model.warp), start)
    return density + model.warp.log_slope(windows.values).masked_fill(~windows.observed, 0).sum()


class _Vector:
    """The parameters as one vector of numbers of like scale, within bounds.

    The curvature of the likelihood in a column's weights goes with one over what the shared series leave of the column,
    so weights are counted in the deviation of that.
    """

    def __init__(self, model: FactorModel, windows: Windows):
        own = torch.zeros_like(model.noise)
        own.index_add_(0, torch.tensor(model.owner, dtype=torch.long), model.amplitude.square())
        self.base, self.windows, self.scale = model, windows, (own + model.noise).sqrt().unsqueeze(1)
        parts = {
            "length": model.length.log(),
            "weights": model.weights / self.scale,
            "amplitude": model.amplitude.log(),
            "noise": model.noise.log(),
            "exponent": model.warp.exponent,
            "tail": model.warp.tail,
        }
        self.shapes = {name: part.shape for name, part in parts.items()}
        fixed = {
            "weights": model.relations.derived.unsqueeze(1),
            "exponent": model.relations.involved,
            "tail": model.relations.involved.unsqueeze(1),
        }
        self.bounds = [
            bound for name, part in parts.items() for bound in _bounds(name, part, fixed.get(name, torch.tensor(False)))
        ]
        lowest, highest = np.array(self.bounds).T
        self.start = np.clip(torch.cat([part.flatten() for part in parts.values()]).numpy(), lowest, highest)

    def model(self, numbers: Tensor) -> FactorModel:
        sizes = [shape.numel() for shape in self.shapes.values()]
        split = zip(self.shapes.items(), numbers.split(sizes), strict=True)
        parts = {name: part.reshape(shape) for (name, shape), part in split}
        return replace(
            self.base,
            length=parts["length"].exp(),
            weights=parts["weights"] * self.scale,
            amplitude=parts["amplitude"].exp(),
            noise=parts["noise"].exp(),
            warp=replace(self.base.warp, exponent=parts["exponent"], tail=parts["tail"]).standardising(
                self.windows.values, self.windows.observed, self.base.relations
            ),
        )


def _bounds(name: str, start: Tensor, fixed: Tensor) -> Iterator[tuple[float, float]]:
    """Of each number; those that are fixed stay as they are."""
    low, high = BOUNDS[name] if name in ("weights", "exponent", "tail") else map(math.log, BOUNDS[name])
    for value, stays in zip(start.flatten().tolist(), fixed.expand_as(start).flatten().tolist(), strict=True):
        yield (value, value) if stays else (low, high)
