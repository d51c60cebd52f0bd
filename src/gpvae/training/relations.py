"""Columns that others determine: a temperature in °C and in K, a total and its parts.

One column after the other, those with most variance of their own first, is regressed on the columns before it that tell
most about it, one more at a time. Where what is left is as small as rounding, on rows that all of them have, the column
is derived. A few rows may break the relation (a placeholder, a slip): they have no say in it.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from gpvae.data.panel import Floats
from gpvae.models.factor import Relations
from gpvae.training.factor_analysis import centred, normal_covariance

EXACT = 1e-5  # of a column's variance may be left
BROKEN = 0.02  # of the rows may break a relation
FLOOR = 1e-6  # of the noise: two equal columns differ by a thousandth of their deviation
BEYOND = 6.0  # deviations of what is left: a row that breaks it
NEAR = 0.3  # by the covariance, which missing cells and broken rows blur
MOST = 16  # columns that determine another
SPARE = 12  # rows beyond the numbers that are fitted


class _Fit(NamedTuple):
    """A column as a constant and a weighted sum of others."""

    support: list[int]
    coefficients: Floats  # the constant, then a weight for each of the support
    left: float  # variance of what is left in rows that obey
    doubt: float  # probability that one more row breaks it

    def beats(self, other: "_Fit") -> bool:
        """It leaves less than half, and that is more than rounding."""
        return max(self.left, FLOOR) < 0.5 * max(other.left, FLOOR)


def find_relations(rows: Floats) -> tuple[Relations, Floats]:
    """Relations, and the variances that they leave (column,), from standardised rows (row, column)."""
    columns = rows.shape[1]
    covariance = normal_covariance(centred(rows), np.eye(columns), sweeps=40)
    weights, (offset, left, doubt) = np.zeros((columns, columns)), np.zeros((3, columns))
    base: list[int] = []
    for column in _by_variance_left(covariance):
        fit = _regression(rows, covariance, column, base)
        if fit is None:
            base.append(column)
        else:
            offset[column], weights[column, fit.support] = fit.coefficients[0], fit.coefficients[1:]
            left[column], doubt[column] = fit.left, fit.doubt
    reach = BEYOND * np.sqrt(np.maximum(left, FLOOR))
    return Relations(*map(torch.from_numpy, (weights, offset, reach, doubt))), left


def _by_variance_left(covariance: Floats) -> list[int]:
    """Columns in the order of a pivoted Cholesky factorisation."""
    rest, order = covariance.copy(), list[int]()
    for _ in range(len(rest)):
        variance = np.where(np.isin(np.arange(len(rest)), order), -np.inf, rest.diagonal())
        pivot = int(variance.argmax())
        order.append(pivot)
        if variance[pivot] > 1e-12:
            rest -= np.outer(rest[:, pivot], rest[pivot]) / variance[pivot]
    return order


def _regression(rows: Floats, covariance: Floats, column: int, base: list[int]) -> _Fit | None:
    """The columns that determine this one, if there are such; no more of them than are needed."""
    if not base or _variance_left(covariance, column, base) > NEAR * covariance[column, column]:
        return None
    support, best = list[int](), None
    while len(support) < min(MOST, len(base)) and (best is None or best.left > FLOOR):
        gains = {each: _variance_left(covariance, column, [*support, each]) for each in base if each not in support}
        support = [*support, min(gains, key=gains.__getitem__)]
        if gains[support[-1]] < NEAR * covariance[column, column]:
            fit = _exact_fit(rows, column, support)
            best = fit if fit is not None and (best is None or fit.beats(best)) else best
    return best and _pruned(rows, column, best)


def _pruned(rows: Floats, column: int, best: _Fit) -> _Fit:
    """Without the columns that bring nothing."""
    for each in best.support:
        fit = _exact_fit(rows, column, [other for other in best.support if other != each])
        best = best if fit is None or best.beats(fit) else fit
    return best


def _exact_fit(rows: Floats, column: int, support: list[int]) -> _Fit | None:
    """Least squares on all complete rows but those few that break the relation."""
    complete = rows[~np.isnan(rows[:, [column, *support]]).any(axis=1)]
    known, y = np.column_stack([np.ones(len(complete)), complete[:, support]]), complete[:, column]
    obeying = len(y) - int(BROKEN * len(y))
    spare = obeying - known.shape[1]
    if spare < SPARE:
        return None
    error, inside = _trimmed(known, y, obeying)
    left = float(error[inside].sum() / spare)
    obeys = error <= BEYOND**2 * max(left, FLOOR)
    if left >= EXACT * float(y[inside].var()) or obeys.sum() < obeying:
        return None
    coefficients, error = _least_squares(known, y, np.flatnonzero(obeys))
    left = float(error[obeys].sum() / (obeys.sum() - known.shape[1]))
    return _Fit(support, coefficients, left, float((~obeys).sum() + 1) / (len(y) + 2))


def _trimmed(known: Floats, y: Floats, count: int) -> tuple[Floats, NDArray[np.int64]]:
    """Squared errors of the fit to the `count` rows that it fits best, and these rows (Rousseeuw 1984).

    Rows of the smallest errors are fitted again, until the sum of their squares falls no more.
    """
    _, error = _least_squares(known, y, np.arange(len(y)))
    inside, least = np.argsort(error, kind="stable")[:count], math.inf
    while error[inside].sum() < least:
        least = error[inside].sum()
        _, error = _least_squares(known, y, inside)
        inside = np.argsort(error, kind="stable")[:count]
    return error, inside


def _least_squares(known: Floats, y: Floats, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Coefficients of a fit to some rows, and the squared errors of all."""
    coefficients = np.asarray(np.linalg.lstsq(known[rows], y[rows], rcond=None)[0], dtype=np.float64)
    return coefficients, np.square(y - known @ coefficients)


def _variance_left(covariance: Floats, column: int, others: list[int]) -> float:
    inner = covariance[np.ix_(others, others)] + 1e-9 * np.eye(len(others))
    cross = covariance[others, column]
    return float(covariance[column, column] - cross @ np.linalg.solve(inner, cross))
