"""The GP-VAE with a linear decoder, whose posterior is exact: GP factor analysis (Yu et al. 2009).

    y_td = Σ_j W_dj z_j(τ_t) + v_d(τ_t) + ε_td,     ε_td ~ N(0, r_d),     y_td = warp_d(x_td)

    z_j  shared latent series of unit variance: exponential kernels of several length scales, and damped oscillators
         exp(-|τ|/ℓ) cos(ωτ) at the data's own periods, each of which a column takes up with a phase of its own
    v_d  processes of the column alone: an exponential or Matérn kernel, and a slow Matérn where there is a trend

Each is a small linear state space (`gp.state_space`), so filling, drawing and the likelihood cost O(T). The warp
straightens skewed columns, as in warped GPs (Snelson et al. 2004); it is learned with everything else.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from gpvae.gp.state_space import STATES, Kind, StateSpace


@dataclass(frozen=True)
class Warp:
    """y = (bent(x) - centre) / spread for each column; λ = 1 is a straight line.

    From low to high `bent` is Yeo and Johnson's,

        x ≥ 0: ((1 + x)^λ - 1) / λ,     x < 0: -((1 - x)^(2-λ) - 1) / (2 - λ),     0 < λ < 2,

    and beyond that the tangent goes on, so what is far from the data does not explode when it is bent back.
    """

    exponent: Tensor  # (column,) λ
    centre: Tensor  # (column,)
    spread: Tensor  # (column,)
    low: Tensor  # (column,)
    high: Tensor  # (column,)

    @classmethod
    def straight(cls, low: Tensor, high: Tensor) -> "Warp":
        """The identity, to be learned between low and high."""
        ones = torch.ones_like(low)
        return cls(ones, torch.zeros_like(ones), ones, low, high)

    def standardising(self, exponent: Tensor, values: Tensor, observed: Tensor, relations: "Relations") -> "Warp":
        """Such that what is observed of each column (…, column) has mean 0 and variance 1; relations stay linear."""
        bent = replace(self, exponent=exponent)._bent(values).masked_fill(~observed, 0).flatten(0, -2)
        count = observed.flatten(0, -2).sum(0)
        centre = bent.sum(0) / count.clamp(min=1)
        variance = bent.square().sum(0) / count.clamp(min=1) - centre.square()
        spread = torch.where((variance > 1e-12) & ~relations.involved, variance, 1).sqrt()
        return Warp(exponent, relations.completed(centre), spread, self.low, self.high)

    def __call__(self, x: Tensor) -> Tensor:
        return (self._bent(x) - self.centre) / self.spread

    def inverse(self, y: Tensor) -> Tensor:
        """Back to x; y (…, column)."""
        bent = self.centre + self.spread * y
        inside = torch.minimum(torch.maximum(bent, self._bent(self.low)), self._bent(self.high))
        power = torch.where(inside >= 0, self.exponent, 2 - self.exponent)
        x = inside.sign() * torch.expm1(torch.log1p(power * inside.abs()) / power)
        return x + (bent - inside) * torch.exp(-self._log_slope(x))

    def of(self, columns: Tensor) -> "Warp":
        """That of some columns."""
        return Warp(*(getattr(self, each.name)[columns] for each in fields(self)))

    def log_slope(self, x: Tensor) -> Tensor:
        """Log dy/dx."""
        return self._log_slope(self._inside(x)) - self.spread.log()

    def _bent(self, x: Tensor) -> Tensor:
        inside = self._inside(x)
        power = torch.where(inside >= 0, self.exponent, 2 - self.exponent)
        bent = inside.sign() * torch.expm1(power * inside.abs().log1p()) / power
        return bent + (x - inside) * torch.exp(self._log_slope(inside))

    def _log_slope(self, x: Tensor) -> Tensor:
        return (self.exponent - 1) * x.sign() * x.abs().log1p()

    def _inside(self, x: Tensor) -> Tensor:
        return torch.minimum(torch.maximum(x, self.low), self.high)


@dataclass(frozen=True)
class Relations:
    """Columns that are, but for noise, a constant and a weighted sum of others: x = c + B x."""

    weights: Tensor  # (column, column) B: rows of derived columns, columns of those that they derive from
    offset: Tensor  # (column,) c

    @property
    def derived(self) -> Tensor:
        """(column,) bool"""
        return self.weights.ne(0).any(1)

    @property
    def involved(self) -> Tensor:
        """(column,) bool"""
        return self.derived | self.weights.ne(0).any(0)

    def completed(self, x: Tensor) -> Tensor:
        """Values of all columns from those of columns that are not derived. (column,)"""
        return torch.where(self.derived, self.offset + self.weights @ x, x)

    def loadings(self, base: Tensor) -> Tensor:
        """The same for what columns are made of; rows of derived columns are 0. (column, …)"""
        return base + self.weights @ base


@dataclass(frozen=True)
class Composition:
    """What the model is made of, decided by the data."""

    kinds: tuple[Kind, ...]  # (process,) those that columns share come first
    owner: tuple[int, ...]  # (own process,) the column of each process that is not shared


@dataclass(frozen=True)
class FactorModel:
    """The model's parameters."""

    composition: Composition
    length: Tensor  # (process,) ℓ, in time units
    frequency: Tensor  # (process,) ω, 0 but for oscillators
    weights: Tensor  # (column, loaded state) W: one for each shared process, two for an oscillator
    amplitude: Tensor  # (own process,)
    noise: Tensor  # (column,) r
    warp: Warp
    relations: Relations

    @classmethod
    def of(cls, composition: Composition, tensors: dict[str, Tensor]) -> "FactorModel":
        """From what `tensors` returned."""
        warp = Warp(**{each.name: tensors[f"warp.{each.name}"] for each in fields(Warp)})
        relations = Relations(**{each.name: tensors[f"relations.{each.name}"] for each in fields(Relations)})
        own = {each.name: tensors[each.name] for each in fields(cls) if each.name in tensors}
        model = cls(composition=composition, warp=warp, relations=relations, **own)
        if {name: value.shape for name, value in tensors.items()} != model._shapes():
            raise ValueError("its tensors do not fit its composition")
        return model

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """What `tensors` must look like."""
        columns, processes, own = len(self.noise), len(self.kinds), len(self.owner)
        if own > processes or not {*self.owner} <= {*range(columns)}:
            raise ValueError("its processes have owners that are not there")
        per_column = dict.fromkeys((f"warp.{each.name}" for each in fields(Warp)), (columns,))
        weights = {"weights": (columns, len(self.latent_of_weight)), "relations.weights": (columns, columns)}
        sizes = {"length": (processes,), "frequency": (processes,), "amplitude": (own,), "noise": (columns,)}
        return {**per_column, **weights, **sizes, "relations.offset": (columns,)}

    def tensors(self) -> dict[str, Tensor]:
        """All numbers by name."""
        own = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        parts = {"warp": self.warp, "relations": self.relations}
        inner = {f"{name}.{field}": value for name, part in parts.items() for field, value in vars(part).items()}
        return {**own, **inner}

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return self.composition.kinds

    @property
    def owner(self) -> tuple[int, ...]:
        return self.composition.owner

    @property
    def shared(self) -> tuple[Kind, ...]:
        return self.kinds[: len(self.kinds) - len(self.owner)]

    @property
    def latent_of_weight(self) -> tuple[int, ...]:
        """The shared process that each column of W belongs to."""
        return tuple(j for j, kind in enumerate(self.shared) for _ in range(1 + (kind == "oscillator")))

    @cached_property
    def space(self) -> StateSpace:
        """The state space; a Matérn process is seen by its first state, an oscillator by both."""
        order = sorted(range(len(self.kinds)), key=lambda j: list(STATES).index(self.kinds[j]))
        sizes = [STATES[kind] for kind in self.kinds]
        before = [sum(sizes[i] for i in order[: order.index(j)]) for j in range(len(sizes))]  # states before a process
        loadings = self.weights.new_zeros(len(self.noise), sum(sizes))
        latent = self.latent_of_weight
        seen = [before[j] + (i > 0 and latent[i - 1] == j) for i, j in enumerate(latent)]
        own = torch.tensor(before[len(self.shared) :], dtype=torch.long)
        loadings[:, torch.tensor(seen, dtype=torch.long)] = self.weights
        loadings[torch.tensor(self.owner, dtype=torch.long), own] = self.amplitude
        kinds: tuple[Kind, ...] = tuple(self.kinds[j] for j in order)
        loadings = self.relations.loadings(loadings)
        return StateSpace(kinds, self.length[order], self.frequency[order], loadings, self.noise)

    def shares(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of each column's variance: by shared process (column, process), by its own ones, by noise. (column,)"""
        latent = self.weights.new_zeros(len(self.noise), len(self.shared))
        squares = self.relations.loadings(self.weights).square()
        latent.index_add_(1, torch.tensor(self.latent_of_weight, dtype=torch.long), squares)
        owner = torch.tensor(self.owner, dtype=torch.long)
        own = torch.zeros_like(self.noise).index_add_(0, owner, self.amplitude.square())
        own = own + self.relations.weights.square() @ own
        total = latent.sum(1) + own + self.noise
        return latent / total.unsqueeze(1), own / total, self.noise / total
