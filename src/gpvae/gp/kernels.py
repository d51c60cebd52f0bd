"""Covariance functions of time lags: configured by frozen dataclasses, evaluated by GPyTorch's kernels.

    Cauchy(7.0)                          one length scale for all latent dimensions
    Cauchy((2.0, 7.0, 24.0))             three, assigned evenly to the latent dimensions
    RBF(5.0) + 0.5 * Periodic(24.0)      sums and products, with weights

Length scales and periods count time steps (the median step of the training data).
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import gpytorch
import torch
from gpytorch.kernels import Kernel as GPKernel
from torch import Tensor, nn

Scale = float | tuple[float, ...]


class CauchyKernel(GPKernel):
    """k(τ, τ') = (1 + (τ - τ')² / l²)⁻¹, the Gamma mixture of RBFs with α = 1."""

    has_lengthscale = True

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        a, b = x1 / self.lengthscale, x2 / self.lengthscale
        distance = self.covar_dist(a, b, square_dist=True, diag=diag, last_dim_is_batch=last_dim_is_batch, **params)
        return 1 / (1 + distance)


@dataclass(frozen=True)
class Kernel(ABC):
    """The configuration of a kernel; kernels can be added, multiplied and weighted."""

    def __add__(self, other: "Kernel") -> "Sum":
        return Sum((self, other))

    def __mul__(self, other: "Kernel | float") -> "Kernel":
        return Product((self, other)) if isinstance(other, Kernel) else self._weighted(float(other))

    __rmul__ = __mul__

    @abstractmethod
    def groups(self) -> int:
        """The number of groups of latent dimensions that have separate parameters."""

    @abstractmethod
    def reach(self) -> float:
        """The longest time scale, in time steps."""

    @abstractmethod
    def spread(self, count: int) -> "Kernel":
        """The same kernel in `count` groups, the existing groups assigned evenly."""

    @abstractmethod
    def build(self) -> GPKernel:
        """The GPyTorch kernel, batched over the groups."""

    @abstractmethod
    def _weighted(self, weight: float) -> "Kernel": ...


@dataclass(frozen=True)
class _Leaf(Kernel):
    length_scale: Scale = 7.0
    variance: float = 1.0

    def __post_init__(self) -> None:
        for name in self._scales():
            values = _as_tuple(getattr(self, name))
            if not values or not all(0 < value < float("inf") for value in values):
                raise ValueError(f"{type(self).__name__}: {name} must be positive, got {getattr(self, name)!r}")
        self.groups()

    def _scales(self) -> list[str]:
        return [field.name for field in fields(self) if field.name != "nu"]

    def _weighted(self, weight: float) -> Self:
        return replace(self, variance=self.variance * weight)

    def groups(self) -> int:
        return _common_groups([len(_as_tuple(getattr(self, name))) for name in self._scales()])

    def reach(self) -> float:
        return max(_as_tuple(self.length_scale))

    def spread(self, count: int) -> Self:
        groups = {name: _as_tuple(getattr(self, name)) for name in self._scales()}
        several = {name: values for name, values in groups.items() if name == "length_scale" or len(values) > 1}
        return replace(self, **{name: _spread(values, count) for name, values in several.items()})

    def build(self) -> GPKernel:
        shape = torch.Size([self.groups()])
        kernel = gpytorch.kernels.ScaleKernel(self._shape(shape), batch_shape=shape).double()
        kernel.outputscale = self.variance
        kernel.base_kernel.lengthscale = self._per_group(self.length_scale)
        return kernel

    @abstractmethod
    def _shape(self, shape: torch.Size) -> GPKernel:
        """The kernel with unit variance; `build` sets its length scale."""

    def _per_group(self, scale: Scale) -> Tensor:
        return torch.tensor(_as_tuple(scale), dtype=torch.float64).expand(self.groups())[:, None, None]


@dataclass(frozen=True)
class Cauchy(_Leaf):
    """σ² (1 + r²/l²)⁻¹: smooth, a mixture of many time scales. The paper's choice."""

    def _shape(self, shape: torch.Size) -> GPKernel:
        return CauchyKernel(batch_shape=shape)


@dataclass(frozen=True)
class RBF(_Leaf):
    """σ² exp(-r² / 2l²): very smooth, one time scale."""

    def _shape(self, shape: torch.Size) -> GPKernel:
        return gpytorch.kernels.RBFKernel(batch_shape=shape)


@dataclass(frozen=True)
class RationalQuadratic(_Leaf):
    """σ² (1 + r² / 2αl²)^-α: between the Cauchy (α = 1, l√2) and the RBF (α → ∞)."""

    alpha: float = 1.0

    def _shape(self, shape: torch.Size) -> GPKernel:
        kernel = gpytorch.kernels.RQKernel(batch_shape=shape).double()
        kernel.alpha = self.alpha
        return kernel


@dataclass(frozen=True)
class Matern(_Leaf):
    """Matérn with ν = 0.5 (rough, exponential), 1.5 or 2.5."""

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (0.5, 1.5, 2.5):
            raise ValueError(f"Matern: nu must be 0.5, 1.5 or 2.5, got {self.nu!r}")

    def _shape(self, shape: torch.Size) -> GPKernel:
        return gpytorch.kernels.MaternKernel(nu=self.nu, batch_shape=shape)


@dataclass(frozen=True)
class Periodic(_Leaf):
    """σ² exp(-2 sin²(πr/period) / l): strictly periodic; multiply by another kernel to let it drift."""

    length_scale: Scale = 1.0
    period: Scale = 24.0

    def reach(self) -> float:
        return max(_as_tuple(self.period))

    def _shape(self, shape: torch.Size) -> GPKernel:
        kernel = gpytorch.kernels.PeriodicKernel(batch_shape=shape).double()
        kernel.period_length = self._per_group(self.period)
        return kernel


@dataclass(frozen=True)
class _Composite(Kernel):
    parts: tuple[Kernel, ...] = ()

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError(f"{type(self).__name__} needs at least one part")
        self.groups()

    def groups(self) -> int:
        return _common_groups([part.groups() for part in self.parts])

    def reach(self) -> float:
        return max(part.reach() for part in self.parts)

    def spread(self, count: int) -> Self:
        return replace(self, parts=tuple(part.spread(count) for part in self.parts))


@dataclass(frozen=True)
class Sum(_Composite):
    def build(self) -> GPKernel:
        return gpytorch.kernels.AdditiveKernel(*[part.build() for part in self.parts])

    def _weighted(self, weight: float) -> "Sum":
        return Sum(tuple(part._weighted(weight) for part in self.parts))


@dataclass(frozen=True)
class Product(_Composite):
    def build(self) -> GPKernel:
        return gpytorch.kernels.ProductKernel(*[part.build() for part in self.parts])

    def _weighted(self, weight: float) -> "Product":
        return Product((self.parts[0]._weighted(weight), *self.parts[1:]))


class LatentKernel(nn.Module):
    """A covariance function for each latent dimension; the dimensions of a group share the kernel's parameters.

    With `own`, every dimension is a separate group, initialised as the group it would belong to.
    """

    group: Tensor

    def __init__(self, description: Kernel, latent_dim: int, *, learned: bool = False, own: bool = False):
        super().__init__()
        if description.groups() > latent_dim:
            count = description.groups()
            raise ValueError(f"{count} length scales need at least as many latent dimensions, got {latent_dim}")
        description = description.spread(latent_dim) if own else description
        self.groups = description.groups()
        self.kernel = description.build().double().requires_grad_(learned)
        self.register_buffer("group", torch.arange(latent_dim) * self.groups // latent_dim, persistent=False)

    def forward(self, lags: Tensor) -> Tensor:
        """Covariances at time lags (...) in float64. (group, ...)"""
        flat = lags.reshape(1, lags.numel(), 1)
        # GPyTorch compares inputs of equal shape by value, which would synchronise a GPU: give it different shapes.
        several = flat.expand(1, 2, 1) if lags.numel() == 1 else flat
        covariance = self.kernel(several, flat.new_zeros(1, 1, 1), diag=True)
        assert isinstance(covariance, Tensor)
        return covariance.expand(self.groups, -1)[:, : lags.numel()].reshape(self.groups, *lags.shape)

    def to_latents(self, per_group: Tensor) -> Tensor:
        """(..., group) → (..., latent), or (..., 1) to broadcast if all dimensions share one kernel."""
        return per_group if self.groups == 1 else per_group[..., self.group]


def _as_tuple(scale: Scale) -> tuple[float, ...]:
    return tuple(scale) if isinstance(scale, tuple) else (scale,)


def _spread(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    return tuple(values[i * len(values) // count] for i in range(count))


def _common_groups(counts: list[int]) -> int:
    different = sorted(set(counts) - {1})
    if len(different) > 1:
        raise ValueError(f"the parameters of a kernel must have the same number of groups, got {different}")
    return different[0] if different else 1
