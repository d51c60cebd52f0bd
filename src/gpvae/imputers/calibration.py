"""Held-out cells as judges of a latent model: how well it predicts them, and the noise that they call for."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.special import stdtr
from torch import Tensor

from gpvae.data.panel import Floats
from gpvae.gp import LOG_2PI
from gpvae.imputers.neural import Exam
from gpvae.models.distributions import Gaussian, StudentT, parts_of
from gpvae.models.model import KNOTS, LatentModel, near_knots


@dataclass(frozen=True)
class Judge:
    """Held-out cells: how well they are predicted, and the noise level that they call for."""

    model: LatentModel
    exam: Exam
    steps_at_once: int

    SAMPLES = 4  # of the posterior, for each judgement; more to set the noise, which is done once
    LEVEL, DEVIATIONS = 0.9, 1.6449  # the interval that the noise is set for; how far it reaches in a Gaussian
    PRIOR_CELLS = 20  # of a feature, that weigh as much as what is known otherwise: from training, or from the others
    PRIOR_SPREAD = 100  # and how many of those at one distance from what is visible, how it spreads there
    STRETCHES = -math.log(4), math.log(8)  # from and to which scales may be stretched, as logarithms
    MOST_CELLS = 2000  # of a feature that are asked for its scale
    TURNS = 4  # in which cells are asked for the noise that suits them
    ROUNDS = 40  # of finding each of the stretches, given the others

    @torch.no_grad()
    def score(self) -> float:
        """Negative log density of a held-out cell; where the noise is learned, with the noise that suits it best.

        Noise learned from cells that training knows falls below what the others call for; judged by it, training
        would stop while predictions still get better. The noise that suits is, of a Gaussian, the root of the mean
        square; in place of Student's t stands Laplace's distribution, whose best scale is the mean absolute error.
        """
        total, cells = 0.0, 0
        errors = {j: list[Tensor]() for j in range(self.model.features)}
        suited = self._suited()
        for decoded, values, asked, _ in self._predictions(self.SAMPLES):
            log_prob = self.model.likelihood.log_prob(decoded, values).double().logsumexp(0) - math.log(self.SAMPLES)
            error = values - self.model.likelihood.mean(decoded).mean(0)
            for j in range(self.model.features):
                if j in suited:
                    errors[j].append(error[asked[:, j], j])
            given = asked.clone()
            given[:, list(suited)] = False
            total, cells = total - float(log_prob[given].sum()), cells + int(given.sum())
        for j, kind in suited.items():
            error = torch.cat(errors[j]).double()
            if len(error):
                total, cells = total + len(error) * _best_surprise(error, kind), cells + len(error)
        return total / cells

    @torch.no_grad()
    def set_noise(self) -> None:
        """Make the interval hold as many held-out cells of each feature as it says, near what is visible and far.

        And a standard error more: set for just nine of ten of these, it would hold less of others in every second case.
        """
        found = self._cells_by_feature()
        called_for = dict[int, tuple[Floats, Floats]]()
        for part, group, _ in self._parts_with_learned_noise():
            for i, j in enumerate(group.tolist()):
                value, means, scales, remoteness = found[j]
                if isinstance(part, StudentT):
                    some = slice(None, None, max(1, len(value) // self.MOST_CELLS))
                    called_for[j] = (
                        self._stretches(value[some], means[:, some], scales[:, some], float(part.freedom[i])),
                        remoteness[some],
                    )
                else:
                    self._set_deviation(part, i, value, means)
        if not any(len(needed) for needed, _ in called_for.values()):
            return
        stretches, widening = self._fit(called_for)
        self.model.widening += torch.from_numpy(widening).to(self.model.widening)
        for part, group, _ in self._parts_with_learned_noise():
            if isinstance(part, StudentT):
                part.stretch *= torch.tensor([math.exp(stretches[j]) for j in group.tolist()]).to(part.stretch)

    def _cells_by_feature(self) -> dict[int, tuple[Floats, ...]]:
        """Of each feature's held-out cells: value (cell,), location and scale (sample, cell), remoteness (cell,)."""
        parts = self._parts_with_learned_noise()
        found = {feature: list[tuple[Tensor, ...]]() for _, group, _ in parts for feature in group.tolist()}
        remote = {int(feature): place for place, feature in enumerate(self.model.continuous[self.model.scaled])}
        for decoded, values, asked, context in self._predictions_in_turn(8 * self.SAMPLES):
            remoteness = self.model.remoteness(context) if remote else values
            for part, group, outputs in parts:
                means, scales = part.mean(decoded[..., outputs]), part.scale(decoded[..., outputs])
                for i, j in enumerate(group.tolist()):
                    cells = asked[:, j]
                    far = remoteness[cells, remote[j]] if j in remote else torch.zeros(int(cells.sum()))
                    found[j].append((values[cells, j], means[:, cells, i], scales[:, cells, i], far))
        return {
            j: tuple(
                torch.cat([each.cpu() for each in every], dim=-1).double().numpy() for every in zip(*all, strict=True)
            )
            for j, all in found.items()
        }

    def _set_deviation(self, part: Gaussian, place: int, value: Floats, means: Floats) -> None:
        """A cell with error e and posterior variance v lies inside if noise² ≥ (e / 1.6449)² - v, so a quantile of the
        right-hand side is the noise² for which such a share does. The maximum-likelihood estimate, the mean of
        e² - v, follows the few largest errors, and makes intervals too wide for the rest; but the noise stays above
        half of it, lest a column that is mostly zeros, such as rain, leave no room for the rest of its values.
        """
        if not len(value):
            return
        error, variance = value - means.mean(0), means.var(0, ddof=1)
        needed, likely = (error / self.DEVIATIONS) ** 2 - variance, error**2 - variance
        calls_for = max(np.quantile(needed, self._to_be_safe(len(value)), method="weibull"), likely.mean() / 4, 0)
        noise = part.noise.clone()
        total = self.PRIOR_CELLS * float(noise[place]) ** 2 + len(value) * calls_for
        noise[place] = math.sqrt(total / (self.PRIOR_CELLS + len(value)))
        part.set_noise(noise)

    def _stretches(self, value: Floats, locations: Floats, scales: Floats, freedom: float) -> Floats:
        """By how much, as a logarithm, the scale of Student's t has to be stretched for each cell to lie between the
        quantiles .05 and .95 of the mixture over the samples: where its distribution function has those values. By
        bisection. (cell,)
        """
        margin = (1 - self.LEVEL) / 2
        low, high = (np.full(len(value), end) for end in self.STRETCHES)
        for _ in range(12):
            middle = (low + high) / 2
            below = stdtr(freedom, (value - locations) / (np.exp(middle) * scales)).mean(0)
            inside = (below > margin) & (below < 1 - margin)
            low, high = np.where(inside, low, middle), np.where(inside, middle, high)
        return (low + high) / 2

    def _fit(self, called_for: dict[int, tuple[Floats, Floats]]) -> tuple[dict[int, float], Floats]:
        """A stretch for each feature, and one more for each knot of the remoteness of cells, that serve nine of ten
        of the cells around each knot and, to be safe, a few more of each feature. A feature with few cells, or
        none, is stretched like the others.
        """
        features = {j: each for j, each in called_for.items() if len(each[0])}
        needed, remoteness = (np.concatenate([np.empty(0), *all]) for all in zip(*features.values(), strict=True))
        feature = np.repeat(list(features), [len(each) for each, _ in features.values()])
        weights = near_knots(torch.from_numpy(remoteness)).numpy()  # (cell, knot)
        around, widening = weights > 0.5, np.zeros(KNOTS)

        for _ in range(self.ROUNDS):
            left = needed - weights @ widening
            found = {j: self._serving(left[feature == j]) for j in features}
            left -= np.array([found[j] for j in feature])
            widening += [self._serving(left[around[:, k]]) for k in range(KNOTS)]
        widening *= self._weight(around.sum(0), self.PRIOR_SPREAD)
        left = needed - weights @ widening
        return {j: self._stretch(left[feature == j], left[feature != j]) for j in called_for}, widening

    def _stretch(self, own: Floats, others: Floats) -> float:
        """Of a feature, by what its own cells need and, where they are few, by what those of all others do."""
        common = self._weight(len(others), self.PRIOR_CELLS) * self._serving(others, safe=True)
        return common + self._weight(len(own), self.PRIOR_CELLS) * (self._serving(own, safe=True) - common)

    def _serving(self, needed: Floats, *, safe: bool = False) -> float:
        """What is enough for nine of ten, or a few more."""
        if not len(needed):
            return 0.0
        level = self._to_be_safe(len(needed)) if safe else self.LEVEL
        return float(np.clip(np.quantile(needed, level), *self.STRETCHES))

    def _to_be_safe(self, cells: int) -> float:
        """The level to ask so many cells for: one standard error of their share above the one that is wanted; but of
        few, the worst alone does not decide. (Of cells in runs, which err together, the error is larger.)
        """
        return min(max(self.LEVEL, cells / (cells + 1)), self.LEVEL + math.sqrt(self.LEVEL * (1 - self.LEVEL) / cells))

    @staticmethod
    def _weight(cells: Any, prior: int) -> Any:
        """Of what so many held-out cells say, beside what is known otherwise, which is worth `prior` of them."""
        return cells / (prior + cells)

    def _parts_with_learned_noise(self) -> list[tuple[Gaussian | StudentT, Tensor, slice]]:
        return [
            (part, group, outputs)
            for part, group, outputs in parts_of(self.model.likelihood)
            if isinstance(part, StudentT) or (isinstance(part, Gaussian) and self.model.config.noise is None)
        ]

    def _suited(self) -> dict[int, type]:
        """Features that are judged with the noise that suits them, and the likelihood that they have."""
        return {
            feature: type(part) for part, group, _ in self._parts_with_learned_noise() for feature in group.tolist()
        }

    def _predictions_in_turn(self, samples: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        for exam in self.exam.in_turn(self.TURNS):
            yield from replace(self, exam=exam)._predictions(samples)

    def _predictions(self, samples: int) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """For rows with held-out cells: decoded (sample, row, output), values, which are held out, and the context."""
        for batch, held, generator in self.exam.questions(self.steps_at_once // samples):
            posterior, context = self.model.encode(batch)
            noise = torch.randn((samples, *posterior.mean.shape), generator=generator, device=generator.device)
            asked = held.observed.any(-1)
            z = posterior.sample_marginals(noise)[:, asked]
            yield self.model.decode(z, context[asked]), held.values[asked], held.observed[asked], context[asked]


def _best_surprise(error: Tensor, kind: type) -> float:
    """Mean -log density of errors with the scale that makes it least."""
    if kind is Gaussian:
        return 0.5 * (LOG_2PI + 1 + math.log(max(float((error**2).mean()), 1e-12)))
    return 1 + math.log(max(2 * float(error.abs().mean()), 1e-6))
