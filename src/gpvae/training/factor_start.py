"""Where learning of a `FactorModel` starts, and what it is made of: decided by the data, always in the same way.

Relations: `relations`; derived columns have no part in what follows. Periods: `periods`. Shared series: factor analysis
of the columns' levels, for slow series, and of their steps from row to row, for fast ones. How many is decided by other
stretches of the data than those the factors are found on, so that random walks, which look alike by chance, share
nothing.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from gpvae.data.panel import Floats
from gpvae.gp.state_space import Kind
from gpvae.models.factor import Composition, FactorModel, Relations, Warp
from gpvae.training.factor_analysis import shared_factors
from gpvae.training.periods import Stretch, periods
from gpvae.training.relations import FLOOR, find_relations

FOLDS = 4
MAX_ROWS, MAX_NUMBERS = 3000, 1_500_000  # that covariances are estimated from; and rows times columns squared
SLOW, FAST, OWN, WHITE = 50.0, 4.0, 10.0, 0.3  # length scales that learning starts from, in rows
LEFT = 0.002  # of a column that its own process and noise start with, at least
TAIL = 0.01  # of the values lie beyond each end of what a warp is learned on


class Shared(NamedTuple):
    """A process of all columns."""

    kind: Kind
    length: float
    frequency: float
    weights: Floats  # (column, 1), or (column, 2) of an oscillator


class Own(NamedTuple):
    """A process of one column."""

    kind: Kind
    length: float
    column: int
    variance: float


def first_model(stretches: list[Stretch]) -> FactorModel:
    """The model that learning starts from."""
    rows = np.concatenate(in_parts(stretches, steps=False))
    relations, left = find_relations(rows)
    base = np.flatnonzero(~relations.derived.numpy())
    chosen = [each.of(base) for each in stretches]
    levels, psi = shared_factors(in_parts(chosen, steps=False))
    psi = np.maximum(psi, LEFT)
    shared, own = _shared(chosen, levels), _own(chosen, psi)
    variances = np.maximum(left, FLOOR)
    variances[base] = 0.3 * psi
    exact = [d for d, column in enumerate(base) if relations.weights[:, column].any()]
    own += [Own("exponential", WHITE, d, 0.3 * psi[d]) for d in exact]  # noise that derived columns have too
    variances[base[exact]] = FLOOR
    return _assembled(shared, own, base, variances, relations, _straight(rows))


def _shared(stretches: list[Stretch], levels: Floats) -> list[Shared]:
    steps, _ = shared_factors(in_parts(stretches, steps=True))
    fast = _spread_of_steps(stretches)[:, None] * steps / math.sqrt(2 * (1 - math.exp(-1 / FAST)))
    waves = [(period, 2 * math.pi / period) for period in periods(stretches)]
    return [
        *(Shared("exponential", SLOW, 0.0, math.sqrt(0.7) * column[:, None]) for column in levels.T),
        *(Shared("exponential", FAST, 0.0, math.sqrt(0.7) * column[:, None]) for column in fast.T),
        *(Shared("oscillator", 4 * period, omega, _waves(stretches, omega)) for period, omega in waves),
    ]


def _own(stretches: list[Stretch], psi: Floats) -> list[Own]:
    span = max(each.span for each in stretches) + 1
    trends = [d for d in range(len(psi)) if has_trend(stretches, d)]
    return [
        *(Own(_own_kind(stretches, d), OWN, d, 0.7 * psi[d]) for d in range(len(psi))),
        *(Own("matern", 3 * span, d, psi[d]) for d in trends),
    ]


def _assembled(
    shared: list[Shared],
    own: list[Own],
    base: NDArray[np.int64],
    variances: Floats,
    relations: Relations,
    warp: Warp,
) -> FactorModel:
    """Of all columns; `shared` and `own` are about those that are not derived."""
    weights = np.zeros((len(variances), sum(each.weights.shape[1] for each in shared)))
    weights[base] = np.concatenate([np.zeros((len(base), 0)), *(each.weights for each in shared)], axis=1)
    return FactorModel(
        composition=Composition(
            kinds=tuple(each.kind for each in [*shared, *own]), owner=tuple(int(base[each.column]) for each in own)
        ),
        length=_numbers([each.length for each in [*shared, *own]]),
        frequency=_numbers([*(each.frequency for each in shared), *(0.0 for _ in own)]),
        weights=_numbers(weights),
        amplitude=_numbers([math.sqrt(each.variance) for each in own]),
        noise=_numbers(variances),
        warp=warp,
        relations=relations,
    )


def _straight(rows: Floats) -> Warp:
    """Between where each column lies, but for a few values at its ends; 0 where it is not observed."""
    rows = np.where(np.isnan(rows).all(axis=0), 0, rows)
    least, low, high, most = np.nanquantile(rows, [0, TAIL, 1 - TAIL, 1], axis=0)
    return Warp.straight(_numbers(np.stack([low, high], axis=1)), _numbers(np.stack([least, most], axis=1)))


def _numbers(values: ArrayLike) -> Tensor:
    return torch.as_tensor(np.asarray(values), dtype=torch.float64)


def in_parts(stretches: list[Stretch], *, steps: bool) -> list[Floats]:
    """The rows of all series, or their steps from row to row, in `FOLDS` stretches of time or groups of series.

    At most `MAX_ROWS` in all, evenly chosen.
    """
    rows = [np.diff(each.values, axis=0) if steps else each.values for each in stretches]
    if len(rows) >= 4 * FOLDS:
        parts = [np.concatenate(rows[i::FOLDS]) for i in range(FOLDS)]
    else:
        cut = [np.array_split(each, FOLDS) for each in rows]
        parts = [np.concatenate([each[i] for each in cut]) for i in range(FOLDS)]
    parts = [part[(~np.isnan(part)).any(axis=1)] for part in parts]
    most = min(MAX_ROWS, MAX_NUMBERS // parts[0].shape[1] ** 2)
    every = max(1, -(-sum(map(len, parts)) // most))
    return [part[::every] for part in parts]


def _spread_of_steps(stretches: list[Stretch]) -> Floats:
    """Root mean square of each column's steps from row to row. (column,)"""
    steps = np.concatenate([np.diff(each.values, axis=0) for each in stretches])
    seen = ~np.isnan(steps)
    return np.sqrt(np.where(seen, steps, 0).__pow__(2).sum(0) / np.maximum(seen.sum(0), 1))


def _waves(stretches: list[Stretch], frequency: float) -> Floats:
    """How each column goes with cos and sin, by least squares. (column, 2)"""
    times = np.concatenate([each.times for each in stretches])
    values = np.concatenate([each.values for each in stretches])
    waves, known = np.stack([np.cos(frequency * times), np.sin(frequency * times)], axis=1), ~np.isnan(values)
    fits = [np.linalg.lstsq(waves[seen], y[seen], rcond=None)[0] for y, seen in zip(values.T, known.T, strict=True)]
    return np.stack(fits)


def _own_kind(stretches: list[Stretch], column: int) -> Kind:
    """A smooth process where the variogram grows like the square of the lag, else a rough one."""
    first, second = (_variogram(stretches, column, lag) for lag in (1, 2))
    return "matern" if second > 2.8 * first else "exponential"


def _variogram(stretches: list[Stretch], column: int, lag: int) -> float:
    steps = np.concatenate([each.values[lag:, column] - each.values[:-lag, column] for each in stretches])
    steps = steps[~np.isnan(steps)]
    return float(np.mean(steps**2)) if len(steps) else 0.0


def has_trend(stretches: list[Stretch], column: int, blocks: int = 10) -> bool:
    """Whether the means of ten stretches of time go one way far more steadily than those of a random walk would."""
    long = [each.values[:, column] for each in stretches if len(each.values) >= 5 * blocks]
    means = np.array([[_mean(part) for part in np.array_split(y, blocks)] for y in long]).reshape(-1, blocks)
    steps = np.diff(means).ravel()
    steps = steps[~np.isnan(steps)]
    return len(steps) >= 6 and abs(steps.mean()) > 4 * steps.std(ddof=1) / math.sqrt(len(steps))


def _mean(values: Floats) -> float:
    """Of what is observed, NaN if nothing is."""
    seen = values[~np.isnan(values)]
    return float(seen.mean()) if len(seen) else np.nan
