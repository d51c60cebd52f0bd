"""A Gaussian process for each feature, in the space of the data.

x_j(τ) = c_j + f_j(τ) + σ_j ε,   f_j ~ GP(0, k_j),   j = 1..feature

Kernel, noise and constant of a feature are learned from all series at once, by the marginal likelihood of what is
observed; features know nothing of each other. Inference is exact: O(T³) for each series and feature, in float64, so
that smooth kernels with little noise do no harm. The noise is never below `GaussianLikelihood.FLOOR`, hence no jitter.

Inside, tensors are laid out (feature, batch, time).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.autograd.function import once_differentiable

from gpvae.data.batches import Batch, RowTensors
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.schema import Schema
from gpvae.gp import LOG_2PI
from gpvae.gp.kernels import Cauchy, Kernel, LatentKernel
from gpvae.imputers.base import Prediction
from gpvae.imputers.held_out import HeldOut
from gpvae.imputers.neural import Method, NeuralImputer, Slice, prediction_batches
from gpvae.imputers.point import BatchLoss, parts_of
from gpvae.models.likelihoods import GaussianLikelihood
from gpvae.models.likelihoods.sampling import Random, normal_series, stratified
from gpvae.models.loss import Loss


@dataclass(eq=False, repr=False)
class GP(NeuralImputer):
    """Fill each column by a Gaussian process of its own, learned from all series; columns do not inform each other.

    Series longer than `recipe.window` are learned and filled in windows, those to fill with half a window around each.
    The other settings are those of `GPVAE`.
    """

    gives_distributions: ClassVar[bool] = True
    kernel: Kernel = Cauchy(7.0)
    method_: "ChannelGPMethod" = field(init=False)

    def _new_method(self, schema: Schema, share_observed: float) -> "ChannelGPMethod":
        return ChannelGPMethod(ChannelGP(len(schema.columns), self.kernel), schema, self.recipe)

    def _require_valid_settings(self) -> None:
        super()._require_valid_settings()
        if not isinstance(self.kernel, Kernel):
            raise TypeError(f"kernel must be one of gpvae.gp.kernels, such as Cauchy(7.0), got {self.kernel!r}")


class ChannelGPMethod(Method):
    """A `ChannelGP`, trained by its marginal likelihood."""

    network: "ChannelGP"
    FAST = 50  # few parameters, all of them far from where they have to go

    def objective(self, rows: RowTensors, *, compile: bool) -> nn.Module:
        return BatchLoss(self.network, rows)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": list(self.network.parameters()), "lr": self.FAST * self.recipe.learning_rate}]

    def score(self, held_out: HeldOut) -> float:
        """The negative log density of a held-out cell."""
        total, cells = 0.0, 0
        for batch, targets, _ in held_out.batches(self._steps_at_once(self.recipe.window)):
            log_prob = _log_normal(targets.values, *self.network.posterior(batch))
            total, cells = total - float(log_prob[targets.observed].sum()), cells + int(targets.observed.sum())
        return total / cells

    def predict(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        scaling = self.schema.scaling
        mean, std = np.zeros(panel.values.shape), np.zeros(panel.values.shape)
        draws = np.zeros((int(missing.sum()), samples), dtype=np.float32)
        number = np.cumsum(missing).reshape(missing.shape) - 1  # of each missing cell
        for rows, places, batch, streams in self._batches(panel, samples, seed):
            centre, variance = (x.flatten(0, 1)[places].double().cpu().numpy() for x in self.network.posterior(batch))
            mean[rows], std[rows] = centre, np.sqrt(variance)
            gaps, batch_of = missing[rows], places.cpu().numpy() // batch.values.shape[1]
            drawn = self.network.sample(batch, samples, streams).flatten(1, 2)[:, places].flatten(1)
            ranks = drawn[:, torch.from_numpy(gaps.ravel()).to(drawn.device)].argsort(0).argsort(0)
            cells = np.add.reduceat(gaps.sum(1), np.flatnonzero(np.diff(batch_of, prepend=-1)))
            normal = torch.special.ndtri(stratified(ranks, streams._replace(sizes=cells.tolist(), dim=1))).cpu().numpy()
            draws[number[rows][gaps]] = (centre[gaps] + np.sqrt(variance[gaps]) * normal).T
        feature = np.nonzero(missing)[1]
        return Prediction(scaling.undo(mean[missing], feature), std[missing] * scaling.scale[feature], draws)

    def log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        density = np.zeros(scaled.shape)
        for rows, places, batch, _ in self._batches(panel, 0, seed):
            mean, variance = (x.flatten(0, 1)[places].cpu() for x in self.network.posterior(batch))
            density[rows] = _log_normal(torch.from_numpy(scaled[rows]), mean, variance).numpy()
        return density

    def _batches(self, panel: Panel, samples: int, seed: int) -> Iterator[Slice]:
        window = self.recipe.window
        steps = self._steps_at_once(2 * window + samples)
        return prediction_batches(self, panel, parts_of(panel, window), steps, seed)

    def _steps_at_once(self, width: int) -> int:
        """How many to predict in one go: each takes a few times feature · (window + samples) float64 numbers."""
        numbers = {"cpu": 2**22, "cuda": 2**28}[self.device.type]
        return max(1, numbers // (self.network.constant.numel() * width))


def _log_normal(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return -0.5 * ((x - mean).square() / variance + variance.log() + math.log(2 * math.pi))


class ChannelGP(nn.Module):
    """One GP for each of `features`, starting from `kernel`; values are taken to be standardised.

    A batch takes a few times feature · batch · time² numbers of memory; `prediction_windows` keeps time short.
    """

    def __init__(self, features: int, kernel: Kernel = Cauchy(7.0)):
        super().__init__()
        self.kernel = LatentKernel(kernel, features, learned=True, own=True)
        self.likelihood = GaussianLikelihood(features)
        self.constant = nn.Parameter(torch.zeros(features))  # c

    def loss(self, batch: Batch, generator: Generator | None = None, kl_scale: Tensor | float = 1.0) -> Loss:
        """-log p(x_observed) for each time step; exact, so it needs no random numbers."""
        covariance = self._noisy(self._signal(batch))
        total = _NegativeLogDensity.apply(covariance, self._residual(batch), _by_feature(batch.observed))
        assert isinstance(total, Tensor)
        nll = (total / batch.steps).to(batch.values.dtype)
        return Loss(nll, {"nll": nll})

    @torch.no_grad()
    def posterior(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mean and variance, noise included, of a measurement in every cell. (batch, time, feature) each

        With C = K + σ² I over what is observed, α = C⁻¹ (x - c):   mean c + K α,   variance k(0) - K C⁻¹ K + σ².
        """
        signal, observed = self._signal(batch), _by_feature(batch.observed)
        whitener = _whitener(self._noisy(signal), observed)
        alpha = _apply(whitener.mT, _apply(whitener, self._residual(batch)))
        explained = (whitener @ (signal * observed.unsqueeze(-1))).square().sum(-2)
        mean = self.constant + _apply(signal, alpha).movedim(0, -1)
        variance = (signal.diagonal(dim1=-2, dim2=-1) - explained).movedim(0, -1) + self.likelihood.noise.double() ** 2
        return mean.to(batch.values.dtype), variance.to(batch.values.dtype)

    @torch.no_grad()
    def sample(self, batch: Batch, samples: int, random: Random) -> Tensor:
        """Complete series: the missing values, noise included, drawn jointly over time; the observed ones as they are.

        A draw u ~ N(c, C) of all steps, made to agree with what is observed:   u + C C_oo⁻¹ (x_o - u_o).
        (sample, batch, time, feature)
        """
        covariance, observed = self._noisy(self._signal(batch)), _by_feature(batch.observed)
        whitener = _whitener(covariance, observed)
        like = covariance.new_empty((*observed.shape, samples))  # (feature, batch, time, sample)
        noise = normal_series(like, batch.lengths, random)
        u = _cholesky(covariance) @ noise
        off = (self._residual(batch).unsqueeze(-1) - u) * observed.unsqueeze(-1)
        u = u + covariance @ (whitener.mT @ (whitener @ off))
        draws = (u.permute(3, 1, 2, 0) + self.constant).to(batch.values.dtype)
        return torch.where(batch.observed, batch.values, draws)

    def _signal(self, batch: Batch) -> Tensor:
        """K, the covariance of f at the batch's times; on an even grid one for all series. (feature, batch or 1, T, T)

        Padding goes along: it is never observed.
        """
        times = batch.times
        if isinstance(times, Tensor):
            return self.kernel(times.unsqueeze(-1) - times.unsqueeze(-2))
        step = torch.arange(batch.values.shape[1], device=batch.values.device)
        covariances = self.kernel(times * step.double())  # (feature, lag)
        return covariances[:, (step.unsqueeze(-1) - step).abs()].unsqueeze(1)

    def _noisy(self, signal: Tensor) -> Tensor:
        """C = K + σ² I."""
        eye = torch.eye(signal.shape[-1], dtype=signal.dtype, device=signal.device)
        return signal + (self.likelihood.noise.double() ** 2)[:, None, None, None] * eye

    def _residual(self, batch: Batch) -> Tensor:
        """What is observed, less the constant; 0 elsewhere. (feature, batch, time)"""
        return _by_feature((batch.values.double() - self.constant) * batch.observed)


class _NegativeLogDensity(torch.autograd.Function):
    """-log N(y_o; 0, C_oo) over what is observed, all series and features together.

    With α = C_oo⁻¹ y_o:   ∂/∂C = ½ (C_oo⁻¹ - α αᵀ),   ∂/∂y = α:   no way back through a Cholesky factor.
    """

    @staticmethod
    def forward(ctx: Any, covariance: Tensor, y: Tensor, observed: Tensor) -> Tensor:
        whitener = _whitener(covariance, observed)
        white = _apply(whitener, y)
        ctx.save_for_backward(whitener, _apply(whitener.mT, white), observed)
        ctx.shared = covariance.shape[1] == 1
        log_det = -2 * whitener.diagonal(dim1=-2, dim2=-1).log().sum()
        return 0.5 * (white.square().sum() + log_det + LOG_2PI * observed.sum(dtype=y.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore
        whitener, alpha, observed = ctx.saved_tensors
        inverse, missing = whitener.mT @ whitener, (~observed).to(alpha.dtype)
        squares = torch.einsum("fbt,fbs->fts" if ctx.shared else "fbt,fbs->fbts", alpha, alpha)
        if ctx.shared:
            inverse, squares, missing = inverse.sum(1, keepdim=True), squares.unsqueeze(1), missing.sum(1, keepdim=True)
        d_covariance = inverse.sub_(squares)
        d_covariance.diagonal(dim1=-2, dim2=-1).sub_(missing)  # the ones that stand for what is missing
        return 0.5 * grads[0] * d_covariance, grads[0] * alpha, None


def _whitener(covariance: Tensor, observed: Tensor) -> Tensor:
    """L⁻¹, L Lᵀ = C over what is observed and the identity over what is not. (feature, batch, time, time)"""
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    seen = observed.unsqueeze(-1) & observed.unsqueeze(-2)
    return torch.linalg.solve_triangular(_cholesky(torch.where(seen, covariance, eye)), eye, upper=False)


def _cholesky(matrix: Tensor) -> Tensor:
    """L, with NaN on the diagonal where the matrix is not positive definite: a check would make a GPU wait."""
    factor, failed = torch.linalg.cholesky_ex(matrix)
    factor.diagonal(dim1=-2, dim2=-1).masked_fill_((failed > 0).unsqueeze(-1), torch.nan)
    return factor


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _by_feature(x: Tensor) -> Tensor:
    """(batch, time, feature) → (feature, batch, time)"""
    return x.movedim(-1, 0)
