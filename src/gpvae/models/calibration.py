"""Calibration: factors on the scales of real columns, fitted on held-out cells, applied to decoded parameters."""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpvae.models.likelihoods import Likelihood, Params

KNOTS = 4


@dataclass(frozen=True)
class Calibration:
    """Scale of real column d, times scale_factor_d · exp(Σ_k hat_k(gap distance) gap_factor_dk)."""

    scale_factor: Tensor  # (real column,)
    gap_factor: Tensor  # (real column, knot) as logarithms

    @classmethod
    def identity(cls, columns: int) -> "Calibration":
        return cls(torch.ones(columns), torch.zeros(columns, KNOTS))

    def apply(self, likelihood: Likelihood, params: Params, context: Tensor) -> Params:
        """The parameters of rows with this context, their scales multiplied."""
        factor = self.scale_factor
        if context.shape[-1]:
            factor = factor * (hat_basis(gap_distance(context)) * self.gap_factor).sum(-1).exp()
        return likelihood.calibrate(params, factor)

    def to(self, device: torch.device) -> "Calibration":
        return Calibration(self.scale_factor.to(device), self.gap_factor.to(device))


def gap_distance(context: Tensor) -> Tensor:
    """How far cells are from visible values: 0 one step away on both sides, 1 infinitely far.

    Of the distances to both sides, a and b, what counts is their harmonic mean h: the variance of a random walk between
    two known values grows with it. The context ends with 1 / √(1 + a) and the same of b; the distance is
    1 - √2 / √(1 + h). (..., 5, real column) → (..., real column)
    """
    closeness = context[..., -2:, :]
    inverse = (closeness**2 / (1 - closeness**2).clamp(min=1e-6)).mean(-2)  # 1 / h
    return (1 - torch.sqrt(2 * inverse / (1 + inverse))).clamp(min=0)


def hat_basis(distance: Tensor) -> Tensor:
    """Piecewise linear basis with knots 1/4, 1/2, 3/4 and 1, zero at distance 0. (...) → (..., knot)"""
    knots = torch.arange(1, KNOTS + 1, device=distance.device)
    return (1 - (KNOTS * distance.unsqueeze(-1) - knots).abs()).clamp(min=0)
