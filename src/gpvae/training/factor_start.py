"""Where learning of a `FactorModel` starts, and what it is made of: decided by the data, always in the same way.

Shared series: factor analysis of the columns' levels, for slow series, and of their steps from row to row, for fast
ones. How many is decided by other stretches of the data than those the factors are found on, so that random walks,
which look alike by chance, share nothing. Periods: `periods`. Columns that others determine, a temperature in °C and
in K, are found here, not by learning: the covariance is that of the most likely normal distribution, missing cells
left out row by row, so exact relations stay exact.
"""

import itertools
import math

import numpy as np
import torch
from scipy.optimize import minimize

from gpvae.data.panel import Floats
from gpvae.gp.state_space import Kind
from gpvae.models.factor import Composition, FactorModel, Warp
from gpvae.training.periods import Stretch, periods

FOLDS = 4
MAX_FACTORS = 8
MAX_ROWS, MAX_NUMBERS = 3000, 1_500_000  # that covariances are estimated from; and rows times columns squared
CONVERGED = 1e-3  # change of a covariance of standardised columns
LEAST = 1e-5  # that factors leave of a column
SLOW, FAST = 50.0, 4.0  # length scales that learning starts from, in rows
BETTER = 0.01  # nats that factors must bring for each row
TAILS = 4.0  # degrees of freedom


def first_model(stretches: list[Stretch]) -> FactorModel:
    """The model that learning starts from."""
    found, columns = periods(stretches), stretches[0].values.shape[1]
    levels, psi = shared_factors(in_parts(stretches, steps=False))
    steps, _ = shared_factors(in_parts(stretches, steps=True))
    fast = _spread_of_steps(stretches)[:, None] * steps / math.sqrt(2 * (1 - math.exp(-1 / FAST)))
    waves = [_waves(stretches, 2 * math.pi / period) for period in found]
    single, trends = levels.shape[1] + steps.shape[1], [d for d in range(columns) if has_trend(stretches, d)]
    shared: list[Kind] = [*["exponential"] * single, *["oscillator"] * len(found)]  # pyright: ignore
    own: list[Kind] = [*(_own_kind(stretches, d) for d in range(columns)), *["matern"] * len(trends)]  # pyright: ignore
    length = [SLOW] * levels.shape[1] + [FAST] * steps.shape[1] + [4 * period for period in found]
    span = max(each.span for each in stretches) + 1
    length += [10.0] * columns + [3 * span] * len(trends)
    frequency = [0.0] * single + [2 * math.pi / period for period in found] + [0.0] * len(own)
    amplitude = np.sqrt(np.concatenate([0.7 * psi, psi[trends]]))
    weights = np.concatenate([0.7 * levels, 0.7 * fast, *waves], axis=1)
    numbers = (torch.as_tensor(x, dtype=torch.float64) for x in (length, frequency, weights, amplitude, 0.3 * psi))
    length, frequency, weights, amplitude, noise = numbers
    owner, ones = (*range(columns), *trends), torch.ones(columns, dtype=torch.float64)
    warp = Warp(ones, torch.zeros_like(ones), ones)
    composition = Composition((*shared, *own), owner)
    return FactorModel(composition, length, frequency, weights, amplitude, noise, warp)


def in_parts(stretches: list[Stretch], *, steps: bool) -> list[Floats]:
    """The rows of all series, or their steps from row to row, in `FOLDS` stretches of time or groups of series.

    At most `MAX_ROWS` in all, evenly chosen; columns of each part have mean 0.
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


def shared_factors(parts: list[Floats]) -> tuple[Floats, Floats]:
    """W and ψ, for columns of variance 1, with the number of factors that predicts each part best from the others."""
    parts, columns = [_centred(part) for part in parts], parts[0].shape[1]
    rows = np.concatenate(parts)
    spread = np.sqrt(np.nanmean(np.concatenate([rows, np.full((1, columns), 1e-6)]) ** 2, axis=0))
    rows, parts = rows / spread, [part / spread for part in parts]
    whole = normal_covariance(rows, np.eye(columns), sweeps=40)
    most, ends = min(MAX_FACTORS, (columns + 1) // 2 + (columns > 4), columns - 1), np.cumsum([0, *map(len, parts)])
    folds = [(np.delete(rows, slice(low, high), axis=0), rows[low:high]) for low, high in itertools.pairwise(ends)]
    folds = [(normal_covariance(train, whole, sweeps=5), test) for train, test in folds if len(train) and len(test)]
    scores = [[log_density(_model(analysed(train, k)), test) for train, test in folds] for k in range(most + 1)]
    return analysed(whole, _fewest(np.array(scores)))


def _fewest(scores: Floats) -> int:
    """The fewest factors that are not worse than the best by more than chance. (factors, fold)"""
    if not scores.size:
        return 0
    lost = scores[scores.mean(1).argmax()] - scores
    chance = lost.std(1, ddof=min(1, lost.shape[1] - 1)) / math.sqrt(lost.shape[1])
    return int(np.argmax(lost.mean(1) <= chance + BETTER))


def _centred(part: Floats) -> Floats:
    seen = ~np.isnan(part)
    return part - np.where(seen, part, 0).sum(0) / np.maximum(seen.sum(0), 1)


def _model(parts: tuple[Floats, Floats]) -> Floats:
    weights, psi = parts
    return weights @ weights.T + np.diag(psi)


def normal_covariance(rows: Floats, start: Floats, sweeps: int) -> Floats:
    """The covariance of the most likely normal distribution of mean 0, by EM: missing cells are averaged over.

    A little of the identity is added, as if seen in ten rows of each column: little seen together, little known.
    """
    covariance, columns = torch.from_numpy(start), start.shape[0]
    prior = 10 * torch.eye(columns, dtype=torch.float64) / max(len(rows), 10)
    values, observed, count = _tensors(rows)
    for _ in range(sweeps if len(rows) else 0):
        last = covariance
        chol, masked = _seen(covariance, observed)
        gain = torch.cholesky_solve(masked.mT, chol)  # S_oo⁻¹ S_o·
        filled = (gain.mT @ values.unsqueeze(-1)).squeeze(-1)
        left = len(rows) * covariance - (masked @ gain).sum(0)
        moved = (filled.T @ filled + left) / len(rows)
        known = (count / len(rows)).clamp(min=1e-3)
        moved = (moved + LEAST * prior / known) / (1 + LEAST * prior / known)
        covariance = (moved + moved.T) / 2
        if float((covariance - last).abs().max()) < CONVERGED:
            break
    return covariance.numpy()


def log_density(covariance: Floats, rows: Floats) -> float:
    """Of a row, on average, but for a constant: of Student's t, since few rows must not decide."""
    values, observed, _ = _tensors(rows)
    chol, _ = _seen(torch.from_numpy(covariance), observed)
    white = torch.linalg.solve_triangular(chol, values.unsqueeze(-1), upper=False)
    tail = 0.5 * (TAILS + observed.sum(1)) * torch.log1p(white.square().sum((-2, -1)) / TAILS)
    return float(-(tail + chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)).mean())


def _tensors(rows: Floats) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    observed = torch.from_numpy(~np.isnan(rows))
    return torch.from_numpy(np.nan_to_num(rows)), observed, observed.sum(0).double()


def _seen(covariance: torch.Tensor, observed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of each row, the Cholesky factor of what is observed (identity elsewhere), and S with other columns at 0."""
    seen = observed.double()
    masked = covariance * seen.unsqueeze(-2)  # (row, column, observed column)
    inner = masked * seen.unsqueeze(-1)
    inner.diagonal(dim1=-2, dim2=-1).add_((1 - seen) + 1e-7)
    return torch.linalg.cholesky(inner), masked


def analysed(covariance: Floats, factors: int) -> tuple[Floats, Floats]:
    """Factor analysis by maximum likelihood: W and ψ with W Wᵀ + diag ψ near the covariance.

    Given ψ the best W is known: with S* = ψ^(-½) S ψ^(-½) = U diag(θ) Uᵀ, W = ψ^½ U √(θ - 1) of the largest θ. What is
    left is a function of ψ alone, Σ_{j>k} (θ_j - log θ_j - 1), minimised over log ψ (Jöreskog 1967).
    """
    variances = np.maximum(np.diag(covariance), LEAST)
    if not factors:
        return np.zeros((len(covariance), 0)), variances

    def split(log_psi: Floats) -> tuple[Floats, Floats, Floats]:
        root = np.exp(log_psi / 2)
        theta, vectors = np.linalg.eigh(covariance / np.outer(root, root))
        return root, theta, vectors

    def loss(log_psi: Floats) -> tuple[float, Floats]:
        _, theta, vectors = split(log_psi)
        rest, tail = np.maximum(theta[:-factors], 1e-12), vectors[:, :-factors]
        return float((rest - np.log(rest) - 1).sum()), (tail**2) @ (1 - rest)

    ridge = covariance + LEAST * np.eye(len(covariance))
    start = np.log(np.clip(1 / np.diag(np.linalg.inv(ridge)), LEAST, variances))
    limits = [(math.log(LEAST), math.log(variance) + 1e-9) for variance in variances]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits, options={"maxiter": 200})
    root, theta, vectors = split(found.x)
    weights = root[:, None] * vectors[:, -factors:] * np.sqrt(np.maximum(theta[-factors:] - 1, 0))
    return weights, np.exp(found.x)


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
    means = [
        [np.mean(x[~np.isnan(x)]) if (~np.isnan(x)).any() else np.nan for x in np.array_split(y, blocks)] for y in long
    ]
    steps = np.concatenate([*(np.diff(each) for each in means), np.empty(0)])
    steps = steps[~np.isnan(steps)]
    return len(steps) >= 6 and abs(steps.mean()) > 4 * steps.std(ddof=1) / math.sqrt(len(steps))
