"""Columns that others determine: a temperature in °C and in K, a total and its parts.

One column after the other, those with most variance of their own first, is regressed on the columns before it that tell
most about it, one more at a time. Where what is left is as small as rounding, on rows that all of them have, the column
is derived.
"""

import numpy as np
import torch

from gpvae.data.panel import Floats
from gpvae.models.factor import Relations
from gpvae.training.factor_analysis import normal_covariance

EXACT = 1e-5  # of a column's variance may be left
NEAR = 3e-2  # by the covariance, which missing cells blur
MOST = 16  # columns that determine another
SPARE = 12  # rows beyond the numbers that are fitted


def find_relations(rows: Floats) -> tuple[Relations, Floats]:
    """Relations, and the variances that they leave (column,), from standardised rows (row, column)."""
    columns = rows.shape[1]
    rows = rows - np.nanmean(rows, axis=0)
    covariance = normal_covariance(rows, np.eye(columns), sweeps=40)
    weights, offset, left = np.zeros((columns, columns)), np.zeros(columns), np.zeros(columns)
    base: list[int] = []
    for column in _by_variance_left(covariance):
        found = _regression(rows, covariance, column, base)
        if found is None:
            base.append(column)
        else:
            support, coefficients, left[column] = found
            weights[column, support], offset[column] = coefficients[1:], coefficients[0]
    return Relations(torch.from_numpy(weights), torch.from_numpy(offset)), left


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


def _regression(
    rows: Floats, covariance: Floats, column: int, base: list[int]
) -> tuple[list[int], Floats, float] | None:
    """The columns that determine this one, the constant and their coefficients, and the variance left; if they do."""
    if not base or _variance_left(covariance, column, base) > NEAR * covariance[column, column]:
        return None
    support: list[int] = []
    while len(support) < min(MOST, len(base)):
        gains = {each: _variance_left(covariance, column, [*support, each]) for each in base if each not in support}
        support.append(min(gains, key=gains.__getitem__))
        if gains[support[-1]] > NEAR * covariance[column, column]:
            continue
        complete = rows[~np.isnan(rows[:, [column, *support]]).any(axis=1)]
        spare = len(complete) - len(support) - 1
        if spare < SPARE:
            return None
        known = np.column_stack([np.ones(len(complete)), complete[:, support]])
        coefficients, *_ = np.linalg.lstsq(known, complete[:, column], rcond=None)
        left = float(np.square(complete[:, column] - known @ coefficients).sum() / spare)
        if left < EXACT:
            return support, np.asarray(coefficients, dtype=np.float64), left
    return None


def _variance_left(covariance: Floats, column: int, others: list[int]) -> float:
    inner = covariance[np.ix_(others, others)] + 1e-9 * np.eye(len(others))
    cross = covariance[others, column]
    return float(covariance[column, column] - cross @ np.linalg.solve(inner, cross))
