"""Held-out cells as judges of a latent model: how well it predicts them, and the noise that they call for."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae.distributions import Gaussian, PerColumn
from gpvae.linalg import LOG_2PI
from gpvae.model import LatentModel
from gpvae.panel import Floats
from gpvae.trained import Exam


@dataclass(frozen=True)
class Judge:
    """Held-out cells: how well they are predicted, and the noise level that they call for."""

    model: LatentModel
    exam: Exam
    steps_at_once: int

    SAMPLES = 4  # of the posterior, for each judgement; more to set the noise, which is done once
    LEVEL, DEVIATIONS = 0.9, 1.6449  # the interval that the noise is set for; how far it reaches in a Gaussian
    PRIOR_CELLS = 20  # how many held-out cells the noise found in training is worth

    @torch.no_grad()
    def score(self) -> float:
        """Negative log density of a held-out cell; where the noise is learned, with the noise that suits it best.

        Noise learned from cells that the encoder sees falls below what the others call for; judged by it, training
        would stop while predictions still get better.
        """
        noisy = self._features_with_learned_noise()
        total, cells, errors = 0.0, 0, list[tuple[Tensor, Tensor, Tensor]]()
        for decoded, values, asked in self._predictions(self.SAMPLES):
            errors.append(self._errors_of(decoded, values, asked & noisy))
            given = asked & ~noisy
            log_prob = self.model.likelihood.log_prob(decoded, values).double().logsumexp(0) - math.log(self.SAMPLES)
            total, cells = total - float(log_prob[given].sum()), cells + int(given.sum())
        feature, error, _ = _joined(errors)
        count = np.bincount(feature)
        used = count > 0
        squares = np.bincount(feature, error**2)[used] / count[used]
        suited = 0.5 * (LOG_2PI + 1 + np.log(np.maximum(squares, 1e-12)))
        return float((total + (suited * count[used]).sum()) / (cells + count.sum()))

    @torch.no_grad()
    def set_noise(self) -> None:
        """Make the interval hold as many held-out cells of each feature as it says.

        A cell with error e and posterior variance v lies inside if noise² ≥ (e / 1.6449)² - v, so the 0.9 quantile
        of the right-hand side is the noise² for which nine of ten do. The maximum-likelihood estimate, the mean of
        e² - v, follows the few largest errors, and makes intervals too wide for the rest; but the noise stays above
        half of it, lest a column that is mostly zeros, such as rain, leave no room for the rest of its values.
        """
        learned = self._learned_noise()
        if learned is None:
            return
        gaussian, places = learned
        noisy = self._features_with_learned_noise()
        parts = [self._errors_of(d, values, asked & noisy) for d, values, asked in self._predictions(8 * self.SAMPLES)]
        feature, error, variance = _joined(parts)
        needed, likely = (error / self.DEVIATIONS) ** 2 - variance, error**2 - variance
        noise = gaussian.noise.cpu().numpy().astype(np.float64)
        for i, j in enumerate(places.tolist()):
            cells = needed[feature == j]
            if len(cells):
                found = max(np.quantile(cells, self.LEVEL, method="weibull"), likely[feature == j].mean() / 4, 0)
                total = self.PRIOR_CELLS * noise[i] ** 2 + len(cells) * found
                noise[i] = np.sqrt(total / (self.PRIOR_CELLS + len(cells)))
        gaussian.set_noise(torch.from_numpy(noise).float())

    def _learned_noise(self) -> tuple[Gaussian, Tensor] | None:
        """The Gaussian whose noise is learned, and its features."""
        likelihood = self.model.likelihood
        if self.model.config.noise is not None:
            return None
        if isinstance(likelihood, Gaussian):
            return likelihood, torch.arange(likelihood.outputs)
        parts = likelihood.groups() if isinstance(likelihood, PerColumn) else []
        return next(((part, group) for part, group in parts if isinstance(part, Gaussian)), None)

    def _features_with_learned_noise(self) -> Tensor:
        """(feature,) bool"""
        noisy = torch.zeros(self.model.features, dtype=torch.bool, device=self.exam.rows.values.device)
        learned = self._learned_noise()
        if learned is not None:
            noisy[learned[1]] = True
        return noisy

    def _errors_of(self, decoded: Tensor, values: Tensor, asked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of the cells asked for: their feature, x - E decoded, and Var decoded."""
        mean = self.model.likelihood.mean(decoded)  # of a Gaussian, what was decoded
        return asked.nonzero()[:, -1], (values - mean.mean(0))[asked], mean.var(0)[asked]

    def _predictions(self, samples: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """For the rows with held-out cells: decoded (sample, row, output), the values, and which are held out."""
        for batch, held, generator in self.exam.questions(self.steps_at_once // samples):
            posterior = self.model.encode(batch)
            noise = torch.randn((samples, *posterior.mean.shape), generator=generator, device=generator.device)
            asked = held.observed.any(-1)
            decoded = self.model.decode(posterior.sample_marginals(noise)[:, asked])
            yield decoded, held.values[asked], held.observed[asked]


def _joined(parts: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[NDArray[np.int64], Floats, Floats]:
    feature, error, variance = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    return feature, error.astype(np.float64), variance.astype(np.float64)
