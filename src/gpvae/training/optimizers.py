"""Adam, and Muon (Jordan et al. 2024) for the matrices of dense layers.

    M ← μ M + (1 - μ) G              G the gradient, μ = 0.95
    N = μ M + (1 - μ) G              Nesterov momentum
    W ← W - 0.2 η √max(m, n) U Vᵀ    W an m × n matrix, N = U Σ Vᵀ

The gradient of a matrix has a few large singular values, and Adam hardly moves along the others; here all count the
same. The factor makes entries change as much as with Adam at the same η (Liu et al. 2025). Unlike Jordan et al. we
treat first and last layers like the others, which gave better results.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor, nn

from gpvae.training.config import TrainingConfig

MOMENTUM = 0.95
RMS = 0.2  # of the entries of a step, in units of the learning rate
ITERATIONS, COEFFICIENTS = 5, (3.4445, -4.7750, 2.0315)


def make_optimizer(
    module: nn.Module,
    config: TrainingConfig,
    device: torch.device,
    *,
    param_groups: list[dict[str, Any]] | None = None,
    compile: bool = False,
) -> torch.optim.Optimizer:
    """Adam, or `Muon` if a group has `"matrices": True`. Groups may have an `lr` of their own.

    On CUDA learning rates are tensors, so that CUDA graphs see them change.
    """
    groups = [dict(group) for group in param_groups or [{"params": list(module.parameters())}]]  # PyTorch adds to them
    kind = Muon if any(group.get("matrices") for group in groups) else torch.optim.Adam
    on_cuda = device.type == "cuda"
    optimizer = kind(groups, lr=config.learning_rate, capturable=on_cuda, fused=not compile, foreach=compile)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
        if on_cuda:
            group["lr"] = torch.tensor(group["lr"], device=device)
    return optimizer


def scale_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every group to `factor` times its initial one."""
    for group in optimizer.param_groups:
        rate = group["initial_lr"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


class Muon(torch.optim.Adam):
    """Parameter groups with `"matrices": True` take orthogonalised steps, all others Adam's.

    torch.optim.Muon cannot replace it: it reads a tensor learning rate back to the host, so a CUDA graph cannot follow
    one that changes. It also iterates in bfloat16, which changes steps by 1.5 %, and matrix by matrix: three times as
    slow on CPU for eight of 64 × 64, though faster for large ones on CPUs with bfloat16 units.
    """

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
                self._step_matrices(group["params"], group["lr"])

    def _step_matrices(self, matrices: list[Tensor], lr: float | Tensor) -> None:
        """All matrices of one shape at once."""
        by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
        for matrix in matrices:
            if matrix.grad is not None:
                by_shape[matrix.shape].append(matrix)
        for shape, group in by_shape.items():
            grads, moments = [cast(Tensor, matrix.grad) for matrix in group], [self._moment(matrix) for matrix in group]
            torch._foreach_lerp_(moments, grads, 1 - MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]
            nesterov = torch._foreach_lerp(grads, moments, MOMENTUM)  # pyright: ignore[reportPrivateImportUsage]
            steps = orthogonalize(torch.stack(list(nesterov))) * (-RMS * max(shape) ** 0.5 * lr)
            torch._foreach_add_(group, list(steps.unbind()))  # pyright: ignore[reportPrivateImportUsage]

    def _moment(self, matrix: Tensor) -> Tensor:
        """Named like Adam's moments, which must have a "step" too, so that it is saved and restored like them."""
        state = self.state[matrix]
        if not state:
            state["step"], state["exp_avg"] = torch.zeros((), device=matrix.device), torch.zeros_like(matrix)
        return state["exp_avg"]


def orthogonalize(matrices: Tensor) -> Tensor:
    """About U Vᵀ of each matrix U Σ Vᵀ: with singular values from 0.6 to 1.25, but for those that are nearly 0.

    Newton–Schulz: X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X maps each singular value s to a s + b s³ + c s⁵. ([matrix,] row,
    column)
    """
    if matrices.shape[-2] > matrices.shape[-1]:
        return orthogonalize(matrices.mT).mT
    a, b, c = COEFFICIENTS
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    x = x.unsqueeze(0) if matrices.ndim == 2 else x
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.view_as(matrices)
