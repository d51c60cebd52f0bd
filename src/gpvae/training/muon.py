"""Adam, but for the matrices of dense layers steps that change all directions alike: Muon (Jordan et al. 2024).

M ← 0.95 M + 0.05 G,   G the gradient;   N = 0.95 M + 0.05 G;   W ← W - η 0.2 √max(W's shape) · U Vᵀ   of N = U Σ Vᵀ

The gradient of a matrix has a few large singular values, and Adam hardly moves along the others; here all count the
same. The factor makes entries change as much as they do in the long run by Adam, at the same η (Liu et al. 2025); its
first steps are longer. U Vᵀ is found by a polynomial iteration, which takes singular values to somewhere near 1: that
is enough. Unlike Jordan et al. we treat first and last layers as the others: it turned out better.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

MOMENTUM = 0.95
SIZE = 0.2
ITERATIONS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)


class Muon(torch.optim.Adam):
    """Groups of parameters that have `"matrices": True` take orthogonal steps, all others Adam's."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert closure is None
        groups = self.param_groups
        self.param_groups = [group for group in groups if not group.get("matrices")]
        try:
            super().step()
        finally:
            self.param_groups = groups
        for group in groups:
            if group.get("matrices"):
                self._step_of_matrices(group["params"], group["lr"])

    def _step_of_matrices(self, matrices: list[Tensor], rate: float | Tensor) -> None:
        """Matrices of one shape in one go."""
        alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for matrix in matrices:
            if matrix.grad is not None:
                alike[matrix.shape].append(matrix)
        for shape, some in alike.items():
            gradients, moments = [cast(Tensor, matrix.grad) for matrix in some], [self._moment(each) for each in some]
            torch._foreach_lerp_(moments, gradients, 1 - MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]
            ahead = torch._foreach_lerp(gradients, moments, MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]
            steps = orthogonal(torch.stack(list(ahead))) * (-SIZE * max(shape) ** 0.5 * rate)
            torch._foreach_add_(some, list(steps.unbind()))  # pyright: ignore[reportPrivateImportUsage]

    def _moment(self, matrix: Tensor) -> Tensor:
        """Among Adam's own, which wants to read a "step" of every state: so they are saved and read as its are."""
        state = self.state[matrix]
        if not state:
            state["step"], state["exp_avg"] = torch.zeros((), device=matrix.device), torch.zeros_like(matrix)
        return state["exp_avg"]


def orthogonal(matrices: Tensor) -> Tensor:
    """About U Vᵀ of each matrix U Σ Vᵀ: with singular values from 0.6 to 1.25, but for those that are nearly 0.

    X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X takes a singular value s to a s + b s³ + c s⁵. ([matrix,] row, column)
    """
    if matrices.shape[-2] > matrices.shape[-1]:
        return orthogonal(matrices.mT).mT
    a, b, c = COEFFICIENTS
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.unsqueeze(0) if matrices.ndim == 2 else x
    for _ in range(ITERATIONS):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.view_as(matrices)
