"""The GP prior over latent series, and the likelihoods of observed values."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, cast

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import logsigmoid, pad, softplus

from gpvae.gp import LOG_2PI, NeighbourFactor, grid_factor, neighbour_factor
from gpvae.gp.kernels import LatentKernel

LikelihoodName = Literal["gaussian", "student", "bernoulli"]
Times = Tensor | float  # (batch, time), or the one step of an even grid; in steps


class PriorAt(NamedTuple):
    """The prior at some times, for each latent dimension, or one for all of them."""

    std: Tensor  # (latent or 1,)
    corr: Tensor  # ([batch, time - 1,] latent or 1) of neighbours
    weights: Tensor  # of the `NeighbourFactor`


class GPPrior(nn.Module):
    """Independent zero-mean GPs, one for each latent dimension, conditioned on their `neighbours` last steps.

    `jitter` is the variance of the white noise added to the kernel; it keeps the smoothest kernels well conditioned.
    """

    def __init__(self, kernel: LatentKernel, *, neighbours: int, jitter: float):
        super().__init__()
        self.kernel, self.neighbours, self.jitter = kernel, neighbours, jitter

    def at(self, times: Times, dtype: torch.dtype = torch.float32, *, steps: int | None = None) -> "PriorAt":
        """Marginals and neighbour conditionals at `times`; computed in float64. On a grid for series up to `steps`."""
        with self._in_double():
            if isinstance(times, Tensor):
                factor = neighbour_factor(self._covariance, times.double(), self.neighbours)
                return PriorAt(*self.marginals(times, dtype), self.kernel.to_latents(factor.weights).to(dtype))
            order = self.neighbours if steps is None else min(self.neighbours, steps - 1)
            covariances = self._grid(times, order)
            weights = grid_factor(covariances[:, : order + 1]).weights
            return PriorAt(*self._grid_marginals(covariances, dtype), self.kernel.to_latents(weights).to(dtype))

    def factor(self, times: Times, dtype: torch.dtype = torch.float32) -> NeighbourFactor:
        return NeighbourFactor(self.at(times, dtype).weights)

    def marginals(self, times: Times, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Deviation of a step (latent or 1,), and correlation of neighbours (..., latent or 1).

        The correlation has (batch, time - 1) in front, or, on an even grid, nothing.
        """
        with self._in_double():
            if not isinstance(times, Tensor):
                return self._grid_marginals(self._grid(times, 1), dtype)
            variance = self._covariance(times.new_zeros(1).double())  # (group, 1)
            lags = self._covariance(times.double().diff()).movedim(0, -1)
            return self._per_latent(variance.squeeze(-1), lags, dtype)

    @property
    def learned(self) -> bool:
        return any(parameter.requires_grad for parameter in self.kernel.parameters())

    def _in_double(self) -> torch.autocast:
        return torch.autocast(self.kernel.group.device.type, enabled=False)

    def _grid(self, step: float, lags: int) -> Tensor:
        """Covariances at lags 0, 1, … of an even grid, one more than the last at least. (group, lag)"""
        return self._covariance(
            step * torch.arange(max(lags, 1) + 1, device=self.kernel.group.device, dtype=torch.float64)
        )

    def _grid_marginals(self, covariances: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return self._per_latent(covariances[:, 0], covariances[:, 1], dtype)

    def _per_latent(self, variance: Tensor, lag_one: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        to_latents = self.kernel.to_latents
        return to_latents(variance).sqrt().to(dtype), to_latents(lag_one / variance).to(dtype)

    def _covariance(self, lags: Tensor) -> Tensor:
        return self.kernel(lags) + self.jitter * (lags == 0)


class Likelihood(Protocol):
    """p(x | decoded) of each value, from some decoded numbers: (..., output) and (..., feature) → (..., feature).

    Usually there is one output for each feature, and everything is elementwise.
    """

    @property
    def outputs(self) -> int:
        """Decoded numbers for one step."""
        ...

    @property
    def inputs(self) -> int:
        """Numbers of one step that an encoder sees."""
        ...

    def seen(self, values: Tensor, observed: Tensor) -> Tensor:
        """Values as an encoder sees them, 0 where missing. (..., feature) → (..., input)"""
        ...

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor: ...
    def mean(self, decoded: Tensor) -> Tensor: ...
    def variance(self, decoded: Tensor) -> Tensor: ...
    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        """(sample, ..., output) → (sample, ..., feature); the samples of a cell are spread evenly: see `evenly`."""
        ...


class _Elementwise(nn.Module):
    """One output and one input for each feature."""

    def __init__(self, features: int):
        super().__init__()
        self.outputs = self.inputs = features

    def seen(self, values: Tensor, observed: Tensor) -> Tensor:
        return values * observed


class Gaussian(_Elementwise):
    """N(decoded, noise²) with one noise level a feature: fixed, or learned and never below `FLOOR`."""

    FLOOR = 0.01

    def __init__(self, features: int, noise: float | None = None):
        super().__init__(features)
        start = 0.5 if noise is None else noise
        if start <= self.FLOOR:
            raise ValueError(f"the noise must be above {self.FLOOR}, not {noise}")
        self.raw = nn.Parameter(torch.empty(features), requires_grad=noise is None)
        self.set_noise(torch.full((features,), start))

    @property
    def noise(self) -> Tensor:
        """Standard deviations. (feature,)"""
        return self.FLOOR + softplus(self.raw)

    def scale(self, decoded: Tensor) -> Tensor:
        """Of each value."""
        return self.noise.expand_as(decoded)

    @torch.no_grad()
    def set_noise(self, noise: Tensor) -> None:
        above = (noise - self.FLOOR).clamp(min=1e-4)
        self.raw.copy_(above + torch.log(-torch.expm1(-above)))  # the inverse of softplus

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        noise = self.noise
        return -0.5 * (((values - decoded) / noise) ** 2 + LOG_2PI) - noise.log()

    def mean(self, decoded: Tensor) -> Tensor:
        return decoded

    def variance(self, decoded: Tensor) -> Tensor:
        return (self.noise**2).expand_as(decoded)

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        return decoded + self.noise * _normal_like(decoded, generator)


class StudentT(nn.Module):
    """Student's t around a decoded location with a decoded scale; one number of degrees of freedom a feature, learned.

    x = location + stretch · scale · t_ν

    Its tails let single values be far off without moving the location or widening the rest. `stretch` is 1 in training;
    held-out cells may set it (see `judge`).
    """

    FLOOR, HIGHEST = 0.01, 3.0  # of the scale; of its logarithm
    FEWEST = 2.1  # degrees of freedom: with more than two there is a variance
    stretch: Tensor

    def __init__(self, features: int):
        super().__init__()
        self.inputs, self.outputs = features, 2 * features
        self.raw_freedom = nn.Parameter(torch.full((features,), 2.0))
        self.register_buffer("stretch", torch.ones(features))

    @property
    def freedom(self) -> Tensor:
        """ν. (feature,)"""
        return self.FEWEST + softplus(self.raw_freedom)

    def seen(self, values: Tensor, observed: Tensor) -> Tensor:
        return values * observed

    def scale(self, decoded: Tensor) -> Tensor:
        """Where the network says 0 it is about a half; one more makes it e times as large."""
        raw = decoded.chunk(2, dim=-1)[1]
        return self.stretch * (self.FLOOR + (raw - 0.7).clamp(max=self.HIGHEST).exp())

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        nu, scale = self.freedom, self.scale(decoded)
        constant = torch.lgamma((nu + 1) / 2) - torch.lgamma(nu / 2) - 0.5 * torch.log(nu * math.pi)
        off = (values - self.mean(decoded)) / scale
        return constant - scale.log() - (nu + 1) / 2 * torch.log1p(off**2 / nu)

    def mean(self, decoded: Tensor) -> Tensor:
        return decoded.chunk(2, dim=-1)[0]

    def variance(self, decoded: Tensor) -> Tensor:
        return self.scale(decoded) ** 2 * self.freedom / (self.freedom - 2)

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        """t_ν = ε / √(χ²_ν / ν), and χ²_ν is twice a Gamma(ν/2)."""
        location, scale, nu = self.mean(decoded), self.scale(decoded), self.freedom
        shape = (nu / 2).expand_as(location).contiguous()
        gamma = torch._standard_gamma(shape, generator)  # pyright: ignore[reportPrivateImportUsage]
        return location + scale * _normal_like(location, generator) * torch.rsqrt(2 * gamma / nu)


class Bernoulli(_Elementwise):
    """Values in [0, 1], white with probability sigmoid(decoded)."""

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        return values * logsigmoid(decoded) + (1 - values) * logsigmoid(-decoded)

    def mean(self, decoded: Tensor) -> Tensor:
        return decoded.sigmoid()

    def variance(self, decoded: Tensor) -> Tensor:
        return decoded.sigmoid() * (-decoded).sigmoid()

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        return (_uniform_like(decoded, generator) < decoded.sigmoid()).to(decoded.dtype)


class SelectiveBernoulli(Bernoulli):
    """Zeros and ones that go missing at rates of their own, which are learned with the rest.

    p(missing | x) = m_x,  so that, with π the probability of a one,

    p(missing) = (1 - π) m_0 + π m_1          of a value that is missing
    p(x = 1 | missing) = π m_1 / p(missing)    log-odds are those of π, and log m_1 / m_0 more
    """

    def __init__(self, features: int):
        super().__init__(features)
        self.gaps = nn.Parameter(torch.zeros(2))  # log-odds of going missing, for 0 and for 1

    def log_prob_of_gaps(self, decoded: Tensor, values: Tensor, observed: Tensor) -> Tensor:
        """Log p(missing or not | decoded, the value where it is observed)."""
        (lost_0, lost_1), (kept_0, kept_1) = logsigmoid(self.gaps), logsigmoid(-self.gaps)
        kept = values * kept_1 + (1 - values) * kept_0
        return torch.where(observed, kept, torch.logaddexp(logsigmoid(decoded) + lost_1, logsigmoid(-decoded) + lost_0))

    def of_missing(self, decoded: Tensor) -> Tensor:
        """What was decoded, once it is known that the value is missing."""
        lost_0, lost_1 = logsigmoid(self.gaps)
        return decoded + lost_1 - lost_0


class Poisson(_Elementwise):
    """Counts with the rate r = typical · (softplus(decoded) / log 2 + FLOOR): typical where decoded is 0."""

    FLOOR = 1e-6
    typical: Tensor

    def __init__(self, typical: Sequence[float]):
        super().__init__(len(typical))
        self.register_buffer("typical", torch.tensor(typical, dtype=torch.float32).clamp(min=1e-3))

    def seen(self, values: Tensor, observed: Tensor) -> Tensor:
        """Log (1 + count), around that of a typical one."""
        return (values.log1p() - self.typical.log1p()) * observed

    def rate(self, decoded: Tensor) -> Tensor:
        return self.typical * (softplus(decoded) / math.log(2) + self.FLOOR)

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        """In double precision: of large counts, large numbers have to cancel."""
        rate, count = self.rate(decoded).double(), values.double()
        return (count * rate.log() - rate - torch.lgamma(count + 1)).to(decoded.dtype)

    def mean(self, decoded: Tensor) -> Tensor:
        return self.rate(decoded)

    def variance(self, decoded: Tensor) -> Tensor:
        return self.rate(decoded)

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        return torch.poisson(self.rate(decoded), generator)


class Ordinal(_Elementwise):
    """One of `levels` values 0 < 1 < … of each feature: P(x ≤ k) = sigmoid(θ_k - decoded), θ_0 < θ_1 < … learned."""

    BEYOND = 1e4  # stands for the infinite thresholds below the first level and above the last

    def __init__(self, features: int, levels: int):
        super().__init__(features)
        self.levels = levels
        self.first = nn.Parameter(torch.full((features,), -math.log(levels - 1)))  # all levels are about as likely
        self.raw_steps = nn.Parameter(torch.zeros(features, levels - 2))

    @property
    def thresholds(self) -> Tensor:
        """The thresholds θ_0, …, θ_{levels - 2}. (feature, level - 1)"""
        steps = (softplus(self.raw_steps) + 1e-3).cumsum(-1)
        return self.first.unsqueeze(-1) + pad(steps, (1, 0))

    def seen(self, values: Tensor, observed: Tensor) -> Tensor:
        """The level between -1 and 1."""
        return (2 * values / (self.levels - 1) - 1) * observed

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        """σ(a) - σ(b) = σ(a) σ(-b) (1 - e^(b - a)) for the thresholds a above and b below the level."""
        ends = pad(pad(self.thresholds, (1, 0), value=-self.BEYOND), (0, 1), value=self.BEYOND)
        level, ends = values.long().unsqueeze(-1), ends.expand(*values.shape, -1)
        above = ends.gather(-1, level + 1).squeeze(-1) - decoded
        below = ends.gather(-1, level).squeeze(-1) - decoded
        return logsigmoid(above) + logsigmoid(-below) + torch.log(-torch.expm1(below - above))

    def _beyond(self, decoded: Tensor) -> Tensor:
        """The probabilities P(x > k). (..., feature, level - 1)"""
        return (decoded.unsqueeze(-1) - self.thresholds).sigmoid()

    def mean(self, decoded: Tensor) -> Tensor:
        """E x = Σ_k P(x > k)"""
        return self._beyond(decoded).sum(-1)

    def variance(self, decoded: Tensor) -> Tensor:
        """E x² = Σ_k (2k + 1) P(x > k)"""
        beyond = self._beyond(decoded)
        weights = 2 * torch.arange(self.levels - 1, device=decoded.device) + 1
        return (weights * beyond).sum(-1) - beyond.sum(-1) ** 2

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        uniform = _uniform_like(decoded, generator).unsqueeze(-1)
        return (uniform < self._beyond(decoded)).sum(-1).to(decoded.dtype)


class Categorical(nn.Module):
    """One of `levels` values 0, 1, … of each feature, with probabilities softmax(its decoded numbers)."""

    def __init__(self, features: int, levels: int):
        super().__init__()
        self.levels = levels
        self.outputs = self.inputs = features * levels

    def seen(self, values: Tensor, observed: Tensor) -> Tensor:
        """One number for each level, 1 for the one that it is."""
        level = torch.arange(self.levels, device=values.device)
        return ((values.unsqueeze(-1) == level) & observed.unsqueeze(-1)).flatten(-2).to(values.dtype)

    def log_probs(self, decoded: Tensor) -> Tensor:
        """Of all levels. (..., feature, level)"""
        return decoded.unflatten(-1, (-1, self.levels)).log_softmax(-1)

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        log_probs = self.log_probs(decoded)
        level = values.long().expand(log_probs.shape[:-1]).unsqueeze(-1)
        return log_probs.gather(-1, level).squeeze(-1)

    def mean(self, decoded: Tensor) -> Tensor:
        """The most likely level: categories have no mean."""
        return decoded.unflatten(-1, (-1, self.levels)).argmax(-1).to(decoded.dtype)

    def variance(self, decoded: Tensor) -> Tensor:
        """None either."""
        return torch.full_like(decoded[..., :: self.levels], torch.nan)

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        """The level at which the probabilities, added up, pass a uniform number."""
        below = self.log_probs(decoded).exp().cumsum(-1)[..., :-1]
        uniform = _uniform_like(decoded[..., :: self.levels], generator)
        return (uniform.unsqueeze(-1) >= below).sum(-1).to(decoded.dtype)


class PerColumn(nn.Module):
    """A likelihood for each of some groups of features; their outputs and inputs stand one behind the other."""

    order: Tensor

    def __init__(self, parts: Sequence[tuple[Likelihood, Sequence[int]]], features: int):
        super().__init__()
        self.parts = nn.ModuleList([part for part, _ in parts])  # pyright: ignore[reportArgumentType]
        self.outputs, self.inputs = sum(p.outputs for p, _ in parts), sum(p.inputs for p, _ in parts)
        places = torch.tensor([place for _, group in parts for place in group])
        if not torch.equal(places.sort().values, torch.arange(features)):
            raise ValueError(f"every one of {features} features needs one likelihood, not {places.tolist()}")
        self.register_buffer("order", places.argsort(), persistent=False)
        for i, (_, group) in enumerate(parts):
            self.register_buffer(f"group_{i}", torch.tensor(list(group)), persistent=False)

    def groups(self) -> list[tuple[Likelihood, Tensor]]:
        """Each likelihood with the features it is for."""
        return [(cast(Likelihood, part), self.get_buffer(f"group_{i}")) for i, part in enumerate(self.parts)]

    def seen(self, values: Tensor, observed: Tensor) -> Tensor:
        return torch.cat([part.seen(values[..., g], observed[..., g]) for part, g in self.groups()], dim=-1)

    def log_prob(self, decoded: Tensor, values: Tensor) -> Tensor:
        pieces = zip(self.groups(), self._split(decoded), strict=True)
        return self._join([part.log_prob(piece, values[..., group]) for (part, group), piece in pieces])

    def mean(self, decoded: Tensor) -> Tensor:
        pieces = zip(self.groups(), self._split(decoded), strict=True)
        return self._join([part.mean(piece) for (part, _), piece in pieces])

    def variance(self, decoded: Tensor) -> Tensor:
        pieces = zip(self.groups(), self._split(decoded), strict=True)
        return self._join([part.variance(piece) for (part, _), piece in pieces])

    def sample(self, decoded: Tensor, generator: Generator) -> Tensor:
        pieces = zip(self.groups(), self._split(decoded), strict=True)
        return self._join([part.sample(piece, generator) for (part, _), piece in pieces])

    def _split(self, decoded: Tensor) -> tuple[Tensor, ...]:
        return decoded.split([part.outputs for part, _ in self.groups()], dim=-1)

    def _join(self, pieces: list[Tensor]) -> Tensor:
        return torch.cat(pieces, dim=-1)[..., self.order]


def parts_of(likelihood: Likelihood) -> list[tuple[Likelihood, Tensor, slice]]:
    """Each likelihood that it is made of, with its features, and its places among what is decoded."""
    if not isinstance(likelihood, PerColumn):
        return [(likelihood, torch.arange(likelihood.inputs), slice(0, likelihood.outputs))]
    found, first = list[tuple[Likelihood, Tensor, slice]](), 0
    for part, group in likelihood.groups():
        found.append((part, group, slice(first, first + part.outputs)))
        first += part.outputs
    return found


def likelihood_for(kinds: Sequence[str], levels: Sequence[int], real: str, noise: float | None) -> PerColumn:
    """By the kind of each feature, as `scaling` has them; classes have so many levels, those alike go together.

    A positive value is Gaussian in its logarithm, which is what a scaled one is (with heavier tails there it would have
    no mean); a real one is what `real` says.
    """
    groups: dict[tuple[str, int], list[int]] = {}
    for j, (kind, count) in enumerate(zip(kinds, levels, strict=True)):
        name = {"real": real, "positive": "gaussian"}.get(kind, kind)
        groups.setdefault((name, count), []).append(j)
    parts = [(_likelihood(name, len(places), count, noise), places) for (name, count), places in groups.items()]
    return PerColumn(parts, len(kinds))


def _likelihood(name: str, features: int, levels: int, noise: float | None) -> Likelihood:
    match name:
        case "gaussian":
            return Gaussian(features, noise)
        case "student":
            return StudentT(features)
        case "count":
            return Poisson([1.0] * features)
        case "binary":
            return Bernoulli(features)
        case "ordinal":
            return Ordinal(features, levels)
        case _:
            return Categorical(features, levels)


def neighbours_for(reach: float) -> int:
    """Enough neighbours for a kernel with the time scale `reach`, in steps.

    For the Cauchy kernel that is within 1e-4 nats a step of the full GP, up to a reach of 45; beyond, the count stops
    growing, and a kernel that needs more (a period of 365, say) has to be given them in `ModelConfig.neighbours`.
    """
    return min(64, max(16, math.ceil(1.4 * reach)))


def evenly(ranks: Tensor, generator: Generator) -> Tensor:
    """Uniform numbers in the order of `ranks`, 0 to n - 1 along the first dimension: one in each n-th of (0, 1).

    u_i = (rank_i + v_i) / n,  v_i uniform

    Each is uniform, as if drawn by itself, but n of them lie closer to the whole: quantiles read from 20 are about as
    exact as from 100 that know nothing of each other (stratified, or Latin hypercube, sampling).
    """
    within = torch.rand(ranks.shape, generator=generator, device=ranks.device)
    edge = torch.finfo(within.dtype).eps / 2
    return ((ranks + within) / len(ranks)).clamp(edge, 1 - edge)


def _uniform_like(x: Tensor, generator: Generator) -> Tensor:
    """Along the first dimension `evenly`, in random order; cells know nothing of each other."""
    return evenly(torch.rand(x.shape, generator=generator, device=x.device).argsort(0), generator)


def _normal_like(x: Tensor, generator: Generator) -> Tensor:
    return torch.special.ndtri(_uniform_like(x, generator)).to(x.dtype)
