"""Held-out cells: how well the GP-VAE predicts them, and the calibration that they call for."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gpvae.data.panel import Floats
from gpvae.imputers.held_out import HeldOut
from gpvae.models.calibration import Calibration, gap_distance, hat_basis
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.likelihoods import Params, RealLikelihood


class Predictions(NamedTuple):
    """Predictions for rows with held-out cells."""

    params: Params  # of (sample, row, feature)
    values: Tensor  # (row, feature)
    held_out: Tensor  # (row, feature) bool
    context: Tensor  # (row, …)


class RealColumn(NamedTuple):
    """The likelihood of a real column with learned noise, and where the column stands."""

    part: RealLikelihood
    group: int  # among the likelihood's groups
    place: int  # within the group
    feature: int
    number: int  # among all real columns


class Cells(NamedTuple):
    """The held-out cells of a column."""

    value: Floats  # (cell,)
    location: Floats  # (sample, cell)
    scale: Floats  # (sample, cell)
    distance: Floats  # (cell,) from what is visible


@dataclass(frozen=True)
class Validation:
    """Predict held-out cells with a model."""

    model: GPVAEModel
    held_out: HeldOut
    steps_at_once: int

    SAMPLES = 4  # of the posterior

    @torch.no_grad()
    def score(self) -> float:
        """Negative log density of a held-out cell; where the noise is learned, under the one scale that suits best.

        The noise learned from training cells falls below what others call for; judged by it, training would stop while
        predictions still get better.
        """
        total, cells = 0.0, 0
        columns = learned_columns(self.model)
        errors: dict[int, list[Tensor]] = {column.feature: [] for column in columns}
        for params, values, held, _ in self.predictions(self.SAMPLES):
            log_prob = self.model.likelihood.log_prob(params, values).double().logsumexp(0) - math.log(self.SAMPLES)
            error = values - self.model.likelihood.mean(params).mean(0)
            for j, found in errors.items():
                found.append(error[held[:, j], j])
            others = held.clone()
            others[:, list(errors)] = False
            total, cells = total - float(log_prob[others].sum()), cells + int(others.sum())
        for column in columns:
            error = torch.cat(errors[column.feature]).double()
            if len(error):
                total, cells = total + len(error) * column.part.best_nll(error), cells + len(error)
        return total / cells

    def predictions(self, samples: int) -> Iterator[Predictions]:
        """Draws from the marginals of the posterior, decoded."""
        for visible, targets, generator in self.held_out.batches(self.steps_at_once // samples):
            posterior, context = self.model.encode(visible)
            noise = torch.randn((samples, *posterior.mean.shape), generator=generator, device=generator.device)
            rows = targets.observed.any(-1)
            params = self.model.decode(posterior.sample_marginals(noise)[:, rows], context[rows])
            yield Predictions(params, targets.values[rows], targets.observed[rows], context[rows])

    FOLDS = 4

    def cells(self, columns: list[RealColumn], samples: int) -> dict[int, Cells]:
        """The held-out cells of each column, predicted fold by fold; by number."""
        found: dict[int, list[tuple[Tensor, ...]]] = {column.number: [] for column in columns}
        for held_out in self.held_out.folds(self.FOLDS):
            for params, values, held, context in replace(self, held_out=held_out).predictions(samples):
                distance = gap_distance(context) if context.shape[-1] else None
                split = self.model.likelihood.split(params)
                for part, group, place, feature, number in columns:
                    cells, own = held[:, feature], split[group]
                    location, scale = own.location[:, cells, place], part.scale(own)[:, cells, place]
                    far = torch.zeros_like(location[0]) if distance is None else distance[cells, number]
                    found[number].append((values[cells, feature], location, scale, far))
        return {
            number: Cells(*(torch.cat(parts, dim=-1).double().cpu().numpy() for parts in zip(*batches, strict=True)))
            for number, batches in found.items()
        }


def learned_columns(model: GPVAEModel) -> list[RealColumn]:
    """Real columns whose noise is learned."""
    columns, number = list[RealColumn](), 0
    for group, (part, features) in enumerate(model.likelihood.groups()):
        if isinstance(part, RealLikelihood):
            for place, feature in enumerate(features.tolist()):
                columns.append(RealColumn(part, group, place, feature, number + place))
            number += len(features)
    return [column for column in columns if not column.part.noise_is_fixed]


LEVEL = 0.9  # the interval that scales are calibrated for
PRIOR_CELLS = 20  # of a column, that weigh as much as what is known otherwise: from training, or from other columns
PRIOR_GAP_CELLS = 100  # likewise at one distance from what is visible
LOG_FACTORS = -math.log(4), math.log(8)  # the range of calibration factors, as logarithms
MAX_CELLS = 2000  # of a column
ROUNDS = 40  # of alternating between factors of columns and of distances


@torch.no_grad()
def calibrate(validation: Validation) -> Calibration:
    """Make 90 % intervals hold as many held-out cells of each column as they promise, near what is visible and far.

    And one standard error more: set for exactly nine of ten of these cells, they would hold less of others in every
    second case.
    """
    columns = learned_columns(validation.model)
    result = Calibration.identity(len(validation.model.likelihood.real_columns()))
    cells = validation.cells(columns, samples=8 * Validation.SAMPLES)
    needed = dict[int, tuple[Floats, Floats]]()
    for column in columns:
        own = cells[column.number]
        if column.part.decodes_scale:
            thinned = Cells(*(x[..., :: max(1, len(own.value) // MAX_CELLS)] for x in own))
            basis = hat_basis(torch.from_numpy(thinned.distance)).numpy()
            needed[column.number] = _needed_log_factors(column, thinned), basis
        elif len(own.value):
            result.scale_factor[column.number] = _noise_factor(own)
    if any(len(factors) for factors, _ in needed.values()):
        log_factors, gap_factor = fit_log_factors(needed)
        for number, factor in log_factors.items():
            result.scale_factor[number] = math.exp(factor)
            result.gap_factor[number] = torch.from_numpy(gap_factor)
    return result.to(next(validation.model.parameters()).device)


def _noise_factor(cells: Cells) -> float:
    """Of a Gaussian column with one noise level.

    A cell with error e and posterior variance v lies inside if noise² ≥ (e / 1.6449)² - v, so a quantile of the
    right-hand side is the noise² for which such a share does. The maximum-likelihood estimate, the mean of e² - v,
    follows the few largest errors, and makes intervals too wide for the rest; but the noise stays above half of it,
    lest a column that is mostly zeros, such as rain, leave no room for the rest of its values.
    """
    count, noise = len(cells.value), float(cells.scale.flat[0])
    error, variance = cells.value - cells.location.mean(0), cells.location.var(0, ddof=1)
    inside, likely = (error / 1.6449) ** 2 - variance, error**2 - variance
    needed = max(np.quantile(inside, _safe_level(count), method="weibull"), likely.mean() / 4, 0)
    return math.sqrt((PRIOR_CELLS * noise**2 + count * needed) / (PRIOR_CELLS + count)) / noise


def _needed_log_factors(column: RealColumn, cells: Cells) -> Floats:
    """By how much, as a logarithm, the scale has to be multiplied for each cell to lie between the quantiles .05 and
    .95 of the mixture over the samples. By bisection. (cell,)
    """
    margin = (1 - LEVEL) / 2
    low, high = (np.full(len(cells.value), end) for end in LOG_FACTORS)
    for _ in range(12):
        middle = (low + high) / 2
        below = column.part.cdf((cells.value - cells.location) / (np.exp(middle) * cells.scale), column.place).mean(0)
        inside = (below > margin) & (below < 1 - margin)
        low, high = np.where(inside, low, middle), np.where(inside, middle, high)
    return (low + high) / 2


def fit_log_factors(needed: dict[int, tuple[Floats, Floats]]) -> tuple[dict[int, float], Floats]:
    """A log factor for each column, and one for each sort of gap, that serve nine of ten of the cells of each sort and,
    to be safe, a few more of each column. A column with few cells, or none, is treated like the others.

    `needed`: by column, the log factor that each held-out cell needs (cell,), and how much it is of each sort of gap,
    such as a distance from what is visible (cell, sort).
    """
    columns = {j: each for j, each in needed.items() if len(each[0])}
    factor, weights = (np.concatenate(parts) for parts in zip(*columns.values(), strict=True))
    column = np.repeat(list(columns), [len(each) for each, _ in columns.values()])
    around, gap_factor = weights > 0.5, np.zeros(weights.shape[1])
    for _ in range(ROUNDS):
        rest = factor - weights @ gap_factor
        served = {j: _serving(rest[column == j]) for j in columns}
        rest -= np.array([served[j] for j in column])
        gap_factor += [_serving(rest[each]) for each in around.T]
    gap_factor *= _weight(around.sum(0), PRIOR_GAP_CELLS)
    rest = factor - weights @ gap_factor
    return {j: _column_log_factor(rest[column == j], rest[column != j]) for j in needed}, gap_factor


def _column_log_factor(own: Floats, others: Floats) -> float:
    """By what the column's own cells need and, where they are few, by what those of all others do."""
    common = _weight(len(others), PRIOR_CELLS) * _serving(others, safe=True)
    return common + _weight(len(own), PRIOR_CELLS) * (_serving(own, safe=True) - common)


def _serving(needed: Floats, *, safe: bool = False) -> float:
    """What is enough for nine of ten cells, or, to be safe, for a few more."""
    if not len(needed):
        return 0.0
    level = _safe_level(len(needed)) if safe else LEVEL
    return float(np.clip(np.quantile(needed, level), *LOG_FACTORS))


def _safe_level(cells: int) -> float:
    """One standard error of the share of so many cells above `LEVEL`; but of few, the worst alone does not decide. (Of
    cells in runs, which err together, the error is larger.)
    """
    return min(max(LEVEL, cells / (cells + 1)), LEVEL + math.sqrt(LEVEL * (1 - LEVEL) / cells))


def _weight(cells: Any, prior: int) -> Any:
    """Of what so many held-out cells say, beside what is known otherwise, which is worth `prior` of them."""
    return cells / (prior + cells)
