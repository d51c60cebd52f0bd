"""The GP-VAE with a linear decoder, whose posterior is exact: GP factor analysis (Yu et al. 2009).

    y_td = Σ_j W_dj z_j(τ_t) + v_d(τ_t) + ε_td,     ε_td ~ N(0, r_d),     y_td = warp_d(x_td)

    z_j  shared latent series of unit variance: exponential kernels of several length scales, and damped oscillators
         exp(-|τ|/ℓ) cos(ωτ) at the data's own periods, each of which a column takes up with a phase of its own
    v_d  processes of the column alone: an exponential or Matérn kernel, and a slow Matérn where there is a trend

Each is a small linear state space (`gp.state_space`), so filling, drawing and the likelihood cost O(T). The warp
straightens skewed columns and pulls in what is far out, as in warped GPs (Snelson et al. 2004); it is learned with
everything else. Columns that others determine are weighted sums of those, but for noise.
"""

from dataclasses import dataclass, fields, replace
from functools import cached_property

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from gpvae.gp.state_space import STATES, Kind, StateSpace

NODES, WEIGHTS = (torch.from_numpy(x).unsqueeze(-1) for x in hermegauss(9))
LAGS = 2000  # at which a kernel is averaged
WHITE = 0.5  # time units: a process of a column that is shorter than this is noise
TINY = 1e-12  # instead of κ = 0, to divide by


@dataclass(frozen=True)
class Warp:
    """y = (bent(x) - centre) / spread for each column; λ = 1 is a straight line.

    From low to high `bent` is Yeo and Johnson's,

        x ≥ 0: ((1 + x)^λ - 1) / λ,     x < 0: -((1 - x)^(2-λ) - 1) / (2 - λ),     0 < λ < 2,

    and at a distance u beyond them, where the slope is s, it goes on as s log(1 + κu) / κ, or s u where κ = 0: what is
    far from the data pulls little. Bent back, nothing is further from the data than they are wide.
    """

    exponent: Tensor  # (column,) λ
    tail: Tensor  # (column, 2) κ below low and above high
    centre: Tensor  # (column,)
    spread: Tensor  # (column,)
    edges: Tensor  # (column, 2) low and high
    extent: Tensor  # (column, 2) of the data: from the least value to the most

    @classmethod
    def straight(cls, edges: Tensor, data: Tensor) -> "Warp":
        """The identity, to be learned between the edges and beyond."""
        ones = torch.ones(len(edges), dtype=edges.dtype)
        return cls(ones, torch.zeros_like(edges), torch.zeros_like(ones), ones, edges, data)

    def standardising(self, values: Tensor, observed: Tensor, relations: "Relations") -> "Warp":
        """Such that what is observed of each column (…, column) has mean 0 and variance 1; relations stay linear."""
        bent = self._bent(values).masked_fill(~observed, 0).flatten(0, -2)
        count = observed.flatten(0, -2).sum(0)
        centre = bent.sum(0) / count.clamp(min=1)
        variance = bent.square().sum(0) / count.clamp(min=1) - centre.square()
        spread = torch.where((variance > 1e-12) & ~relations.involved, variance, 1).sqrt()
        return replace(self, centre=relations.completed(centre), spread=spread)

    def __call__(self, x: Tensor) -> Tensor:
        return (self._bent(x) - self.centre) / self.spread

    def inverse(self, y: Tensor) -> Tensor:
        """Back to x; y (…, column)."""
        bent = self.centre + self.spread * y
        low, high = self._power(self.edges.mT).unbind(-2)
        inside = torch.minimum(torch.maximum(bent, low), high)
        power = torch.where(inside >= 0, self.exponent, 2 - self.exponent)
        x = inside.sign() * torch.expm1(torch.log1p(power * inside.abs()) / power)
        beyond = (bent - inside) * torch.exp(-self._log_slope(x))
        kappa, u = self._tail(beyond), beyond.abs()
        x = x + beyond.sign() * torch.where(kappa > 0, torch.expm1(kappa * u) / kappa.clamp(min=TINY), u)
        least, most = self.extent.unbind(-1)
        return torch.minimum(torch.maximum(x, 2 * least - most), 2 * most - least)

    def moments(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of x where y ~ N(mean, variance), by Gauss–Hermite quadrature. (column,)"""
        values, weights = self.inverse(mean + variance.sqrt() * NODES), WEIGHTS / WEIGHTS.sum()
        centre = (weights * values).sum(0)
        return centre, (weights * (values - centre).square()).sum(0).sqrt()

    def of(self, columns: Tensor) -> "Warp":
        """That of some columns."""
        return Warp(*(getattr(self, each.name)[columns] for each in fields(self)))

    def log_slope(self, x: Tensor) -> Tensor:
        """Log dy/dx."""
        inside = self._inside(x)
        return self._log_slope(inside) - torch.log1p(self._tail(x - inside) * (x - inside).abs()) - self.spread.log()

    def _bent(self, x: Tensor) -> Tensor:
        inside = self._inside(x)
        beyond = x - inside
        kappa, u = self._tail(beyond), beyond.abs()
        bent = torch.where(kappa > 0, torch.log1p(kappa * u) / kappa.clamp(min=TINY), u)
        return self._power(inside) + beyond.sign() * bent * torch.exp(self._log_slope(inside))

    def _power(self, x: Tensor) -> Tensor:
        power = torch.where(x >= 0, self.exponent, 2 - self.exponent)
        return x.sign() * torch.expm1(power * x.abs().log1p()) / power

    def _log_slope(self, x: Tensor) -> Tensor:
        return (self.exponent - 1) * x.sign() * x.abs().log1p()

    def _tail(self, beyond: Tensor) -> Tensor:
        return torch.where(beyond < 0, *self.tail.unbind(-1))

    def _inside(self, x: Tensor) -> Tensor:
        low, high = self.edges.unbind(-1)
        return torch.minimum(torch.maximum(x, low), high)


@dataclass(frozen=True)
class Relations:
    """Columns that are, but for noise, a constant and a weighted sum of others: x = c + B x.

    A few rows may break a relation; there the derived cell tells nothing.
    """

    weights: Tensor  # (column, column) B: rows of derived columns, columns of those that they derive from
    offset: Tensor  # (column,) c
    reach: Tensor  # (column,) the most that is left of a derived cell in a row that obeys
    doubt: Tensor  # (column,) probability that a row breaks it, 0 of columns that are not derived

    @property
    def derived(self) -> Tensor:
        """(column,) bool"""
        return self.weights.ne(0).any(1)

    @property
    def involved(self) -> Tensor:
        """(column,) bool"""
        return self.derived | self.weights.ne(0).any(0)

    def broken(self, x: Tensor) -> Tensor:
        """Derived cells of complete rows that break the relation; x is NaN where not observed. (…, column) bool"""
        missing, x = x.isnan(), x.nan_to_num()
        needed = self.weights.ne(0).to(x.dtype) + torch.eye(len(self.weights), dtype=x.dtype)
        complete = missing.to(x.dtype) @ needed.T == 0
        return self.derived & complete & ((x - self.offset - x @ self.weights.T).abs() > self.reach)

    def doubts(self) -> Tensor:
        """Probability that a row breaks a relation that involves the column. (column,)"""
        return torch.maximum(self.doubt, (self.doubt.unsqueeze(1) * self.weights.ne(0)).amax(0))

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
class Extent:
    """How far the data reaches: a process that is slow for it shows little of its variance there."""

    series: float  # how many, counting those of few rows as less
    span: float  # of a series, in time units

    @classmethod
    def of(cls, rows: Tensor, spans: Tensor) -> "Extent":
        """From the rows and the span of each series. (series,)"""
        weight = rows.double().square()
        return cls(float(rows.sum() ** 2 / weight.sum()), float((weight * spans).sum() / weight.sum()))


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
        found, expected = {name: tuple(value.shape) for name, value in tensors.items()}, model._shapes()
        if found != expected:
            wrong = next(name for name in found.keys() | expected if found.get(name) != expected.get(name))
            raise ValueError(f"{wrong} has shape {found.get(wrong)}, its composition needs {expected.get(wrong)}")
        return model

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """What `tensors` must look like."""
        columns, processes, own = len(self.noise), len(self.kinds), len(self.owner)
        if own > processes or not {*self.owner} <= {*range(columns)}:
            raise ValueError("its processes have owners that are not there")
        warp = {"exponent": 1, "centre": 1, "spread": 1, "tail": 2, "edges": 2, "extent": 2}
        relations = {"offset": (columns,), "reach": (columns,), "doubt": (columns,), "weights": (columns, columns)}
        return {
            "length": (processes,),
            "frequency": (processes,),
            "weights": (columns, len(self.latent_of_weight)),
            "amplitude": (own,),
            "noise": (columns,),
            **{f"warp.{name}": (columns, 2)[:dimensions] for name, dimensions in warp.items()},
            **{f"relations.{name}": shape for name, shape in relations.items()},
        }

    def tensors(self) -> dict[str, Tensor]:
        """All numbers by name."""
        own = {each.name: value for each in fields(self) if isinstance(value := getattr(self, each.name), Tensor)}
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
    def order(self) -> list[int]:
        """The processes in the order of the state space."""
        return sorted(range(len(self.kinds)), key=lambda j: list(STATES).index(self.kinds[j]))

    @cached_property
    def first_state(self) -> Tensor:
        """Where the states of each process begin. (process,)"""
        sizes = torch.tensor([STATES[self.kinds[j]] for j in self.order], dtype=torch.long)
        first = torch.empty_like(sizes)
        first[self.order] = sizes.cumsum(0) - sizes
        return first

    @cached_property
    def space(self) -> StateSpace:
        """The state space; a Matérn process is seen by its first state, an oscillator by both."""
        states = sum(STATES[kind] for kind in self.kinds)
        loadings = self.weights.new_zeros(len(self.noise), states)
        loadings[:, self._seen] = self.weights
        loadings[torch.tensor(self.owner, dtype=torch.long), self.first_state[len(self.shared) :]] = self.amplitude
        kinds: tuple[Kind, ...] = tuple(self.kinds[j] for j in self.order)
        loadings = self.relations.loadings(loadings)
        return StateSpace(kinds, self.length[self.order], self.frequency[self.order], loadings, self.noise)

    @property
    def _seen(self) -> Tensor:
        """The state of each column of W."""
        latent = self.latent_of_weight
        second = [i > 0 and latent[i - 1] == j for i, j in enumerate(latent)]
        return self.first_state[list(latent)] + torch.tensor(second, dtype=torch.long)

    def latents(self) -> Tensor:
        """The shared processes as outputs of the state, of unit variance. (shared process, state)

        Each as it is in the column that it matters most to: with a positive weight, an oscillator with that phase.
        """
        loadings = self.space.loadings[:, self._seen]
        outputs = loadings.new_zeros(len(self.shared), self.space.loadings.shape[1])
        latent = torch.tensor(self.latent_of_weight, dtype=torch.long)
        for j in range(len(self.shared)):
            weights = loadings[:, latent == j]
            strongest = weights[weights.square().sum(1).argmax()]
            unit = torch.eye(len(strongest), dtype=strongest.dtype)[0]
            outputs[j, self._seen[latent == j]] = strongest / strongest.norm() if strongest.any() else unit
        return outputs

    def visible(self, extent: Extent) -> Tensor:
        """Expected variance, in data of this extent, of each process of unit variance. (process,)

        1 - (mean of k(τ - τ') over two times of a series) / series; oscillators turn often enough to show all of it.
        """
        lags = (torch.arange(LAGS, dtype=self.length.dtype) + 0.5) / LAGS
        correlation = self.space.step(extent.span * lags).own[:, self.first_state]
        mean = (2 * (1 - lags).unsqueeze(1) * correlation).mean(0)
        return torch.where(self.frequency > 0, 1, 1 - mean / extent.series)

    def shares(self, extent: Extent) -> tuple[Tensor, Tensor, Tensor]:
        """Of each column's variance: by shared process (column, process), by its own ones, by noise. (column,)"""
        visible, shared = self.visible(extent), len(self.shared)
        latent = self.weights.new_zeros(len(self.noise), shared)
        squares = self.relations.loadings(self.weights).square()
        latent.index_add_(1, torch.tensor(self.latent_of_weight, dtype=torch.long), squares)
        latent = latent * visible[:shared]
        white, variances = self.length[shared:] < WHITE, self.amplitude.square() * visible[shared:]
        own, noise = (self._of_owners(variances * chosen) for chosen in (~white, white))
        noise = noise + self.noise
        total = latent.sum(1) + own + noise
        return latent / total.unsqueeze(1), own / total, noise / total

    def trends(self, extent: Extent, least: float) -> list[int]:
        """Columns with a slow process beside the first of their own, if it shows at least this much variance."""
        shared = len(self.shared)
        shows = self.amplitude.square() * self.visible(extent)[shared:] >= least
        slow = shows & (3 * self.length[shared:] > extent.span)
        return [
            column
            for i, column in enumerate(self.owner)
            if slow[i] and self.kinds[shared + i] == "matern" and column in self.owner[:i]
        ]

    def _of_owners(self, variances: Tensor) -> Tensor:
        """Variances of own processes, summed by column; derived columns have those of what they derive from."""
        owner = torch.tensor(self.owner, dtype=torch.long)
        own = torch.zeros_like(self.noise).index_add_(0, owner, variances)
        return own + self.relations.weights.square() @ own
