"""Factor analysis of rows with missing cells: a covariance by EM, and as many factors as predict other rows best.

The covariance is that of the most likely normal distribution, missing cells left out row by row, so that exact
relations between columns stay exact.
"""

import itertools
import math

import numpy as np
import torch
from scipy.optimize import minimize

from gpvae.data.panel import Floats

MAX_FACTORS = 6
CONVERGED = 1e-3  # change of a covariance of standardised columns
LEAST = 1e-5  # that factors leave of a column
BETTER = 0.01  # nats that factors must bring for each row
TAILS = 4.0  # degrees of freedom


def shared_factors(parts: list[Floats]) -> tuple[Floats, Floats]:
    """W and ψ, for columns of variance 1, with the number of factors that predicts each part best from the others."""
    parts, columns = [centred(part) for part in parts], parts[0].shape[1]
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


def centred(rows: Floats) -> Floats:
    """Less the mean of what is observed of each column."""
    seen = ~np.isnan(rows)
    return rows - np.where(seen, rows, 0).sum(0) / np.maximum(seen.sum(0), 1)


def _model(parts: tuple[Floats, Floats]) -> Floats:
    weights, psi = parts
    return weights @ weights.T + np.diag(psi)


def normal_covariance(rows: Floats, start: Floats, sweeps: int) -> Floats:
    """The covariance of the most likely normal distribution of mean 0, by EM: missing cells are averaged over.

    A little of the identity is added, as if seen in ten rows of each column: little seen together, little known.
    """
    covariance, (values, observed, count) = torch.from_numpy(start), _tensors(rows)
    share = (count / max(len(rows), 1)).clamp(min=1e-3)
    prior = LEAST * 10 / max(len(rows), 10) / share
    scale = (1 + prior).sqrt()
    for _ in range(sweeps if len(rows) else 0):
        last = covariance
        chol, masked = _seen(covariance, observed)
        gain = torch.cholesky_solve(masked.mT, chol)  # S_oo⁻¹ S_o·
        filled = (gain.mT @ values.unsqueeze(-1)).squeeze(-1)
        left = len(rows) * covariance - (masked @ gain).sum(0)
        moved = ((filled.T @ filled + left) / len(rows) + prior.diag()) / torch.outer(scale, scale)
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
