"""The GP-VAE: encode an incomplete series, sample its latent series, decode each step; the bound it is trained on.

z_j ~ GP(0, k),  j = 1..latent             prior, over time
x_t | z_t, c_t ~ p(x_t | decoder(z_t, c_t))  likelihood, step by step; c_t: the nearest visible values of each column,
                                           and of a cell once more those of its own, in a network that all cells share
q(z_j | x) = Chain(encoder(x))             posterior: mean, deviation and neighbour correlation for each step; x with
                                           what the columns of each step say together, whichever are visible

loss = -( E_q[log p(x_observed | z)] - β KL(q ‖ GP) ), for each step of the series

Training hides some observed values from the encoder, and scores them: it learns to fill gaps, not to copy. What then
counts is p(hidden | visible), for which q(z | visible) is the prior that is wanted, not the GP; hence a β far below 1,
and little weight on what is visible. What is hidden are single values, runs, and what other series lack: gaps like
those to be filled. Where that has taught what it can, mixtures of series may teach more. The paper's bound is that with
β near 1, nothing hidden or mixed, and no c_t.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, cast, get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import pad, softplus

from gpvae.data.batches import Batch, NearestValues
from gpvae.gp import Chain, NeighbourFactor, chain_kl, kernels
from gpvae.gp.kernels import Cauchy, Kernel, LatentKernel
from gpvae.models.distributions import (
    Bernoulli,
    Gaussian,
    GPPrior,
    Likelihood,
    LikelihoodName,
    Poisson,
    PriorAt,
    SelectiveBernoulli,
    StudentT,
    Times,
    likelihood_for,
    neighbours_for,
    parts_of,
)
from gpvae.models.masking import Mixture, as_shown, lacking, lenders, mixed, mixtures, shown_by_chance
from gpvae.models.networks import AcrossColumns, Attention, ImagePreprocessor, TimeConvolution, mlp, stack_channels

Posterior = Literal["chain", "diagonal"]
Encoder = Literal["attention", "convolution"]


@dataclass(frozen=True)
class ModelConfig:
    """What the model is. Saved with it; unknown names are refused."""

    latent_dim: int | None = None  # k; None: twice as many as features, between 16 and 64
    kernel: Kernel = Cauchy(7.0)
    learn_kernel: bool = True  # length scales and variances; a prior that fits has sensible draws where data is far
    posterior: Posterior = "chain"
    encoder: Encoder = "attention"
    encoder_filters: int = 128  # of a convolution; the width of attention
    encoder_layers: int = 3  # of attention
    encoder_window: int = 25  # of a convolution, in steps
    encoder_widths: tuple[int, ...] = (128,)  # of the dense layers behind a convolution
    decoder_widths: tuple[int, ...] = (256, 256)
    cell_width: int = 64  # of the network, one for all, that hears of each cell and of its own surroundings; 0: none
    column_width: int = 48  # of what the encoder hears of each of those cells, to put columns together; 0: none
    image_shape: tuple[int, int, int] | None = None  # (channels, height, width) where each step is an image
    image_filters: int = 256
    likelihood: LikelihoodName = "student"
    noise: float | None = None  # deviation of Gaussian noise, in scaled units; None: learned for each feature
    beta: float | None = None  # weight of the KL; None: a hundredth of the share of the cells that is observed
    mc_samples: int = 1  # M: draws that the bound is averaged over
    importance_samples: int = 1  # K: draws inside the logarithm; above 1, the importance-weighted bound
    see_observed: bool = True  # the encoder also sees which values are observed
    see_times: bool = True  # and how long ago the step before was
    see_surroundings: bool = True  # encoder and decoder see the nearest visible values of real columns, not of images;
    # without, there are no networks for cells and columns
    hide: float | tuple[float, float] = (0.0, 1.0)  # share of the observed values that training hides from the encoder
    # but scores; two numbers: drawn between them for each series; 0: nothing is hidden at all
    hide_runs: float = 0.2  # share of the series of which it hides runs of steps instead of single values
    hide_gaps: float | None = None  # share of which neither, but what another series lacks; None: half that observed
    mix: float = 0.75  # share of the series that is mixed with others where held-out values are predicted hardly any
    # better without, and better so in the end; only where all columns are real or positive, and standardised, steps
    # even, and half of the values there to be trained on
    visible_weight: float | None = None  # of what is visible, in the bound; None: half the share observed, at most 0.3
    score_missing: bool = False  # the bound counts missing values too, as zeros: the plain VAE
    missing_by_value: bool = False  # of a Bernoulli: zeros and ones go missing at rates of their own, to be learned
    neighbours: int | None = None  # p of the prior's conditionals; None: enough for the kernel
    jitter: float = 1e-3

    def __post_init__(self) -> None:
        at_least_one = ["mc_samples", "importance_samples", "image_filters"]
        at_least_one += ["encoder_filters", "encoder_layers", "encoder_window"]
        for name in ["latent_dim", *at_least_one]:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        for name, choices in {"posterior": Posterior, "encoder": Encoder, "likelihood": LikelihoodName}.items():
            if getattr(self, name) not in get_args(choices):
                raise ValueError(f"there is no {getattr(self, name)!r} {name}, only {', '.join(get_args(choices))}")
        if self.missing_by_value and (self.likelihood != "bernoulli" or self.score_missing):
            raise ValueError("missing_by_value goes with a Bernoulli likelihood, and not with score_missing")
        if not isinstance(self.hide, float | int) and len(self.hide) != 2:
            raise ValueError(f"hide is a share, or the two that it lies between, not {self.hide}")
        lowest, highest = self.hidden_shares
        shares = (lowest, highest, self.hide_runs, self.hide_gaps or 0.0, self.mix, self.visible_weight or 0.0)
        if lowest > highest or not all(0 <= share <= 1 for share in shares):
            names = "hide, hide_runs, hide_gaps, mix and visible_weight"
            raise ValueError(f"{names} are shares, between 0 and 1, not {self}")
        if self.encoder == "attention" and self.encoder_filters % Attention.MULTIPLE:
            multiple, found = Attention.MULTIPLE, self.encoder_filters
            raise ValueError(f"encoder_filters must be a multiple of {multiple} for attention, not {found}")
        if self.likelihood == "student" and self.noise is not None:
            raise ValueError("noise is the deviation of a Gaussian; a Student likelihood has scales of its own")
        for name in ("cell_width", "column_width"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, as {getattr(self, name)} is; 0 is for none")
        if (self.beta or 0) < 0 or self.jitter <= 0 or (self.neighbours or 0) < 0:
            raise ValueError(f"beta ≥ 0, jitter > 0 and neighbours ≥ 0 are needed, not {self}")

    @property
    def hidden_shares(self) -> tuple[float, float]:
        lowest, highest = (self.hide, self.hide) if isinstance(self.hide, float | int) else self.hide
        return lowest, highest

    def sized_for(self, features: int) -> "ModelConfig":
        """The same with every size decided."""
        return replace(
            self,
            latent_dim=min(64, max(16, 2 * features)) if self.latent_dim is None else self.latent_dim,
            neighbours=neighbours_for(self.kernel.reach()) if self.neighbours is None else self.neighbours,
        )

    def to_plain(self) -> dict[str, Any]:
        """JSON-ready."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return plain | {"kernel": kernels.to_plain(self.kernel)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> "ModelConfig":
        unknown = sorted(set(plain) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"unknown model setting: {', '.join(unknown)}")
        settings: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
        if "kernel" in settings:
            settings["kernel"] = kernels.from_plain(settings["kernel"])
        return cls(**settings)


# The bound of the paper: every observed value is seen and scored, and the decoder sees the latent series alone.
PLAIN = ModelConfig(
    encoder="convolution",
    likelihood="gaussian",
    beta=1.0,
    cell_width=0,
    column_width=0,
    see_surroundings=False,
    hide=0.0,
    hide_runs=0.0,
    hide_gaps=0.0,
    mix=0.0,
    visible_weight=1.0,
)


class Loss(NamedTuple):
    """What training minimises, and the parts it is made of; all per time step."""

    total: Tensor
    parts: dict[str, Tensor]


class Ingredients(NamedTuple):
    """What a batch's loss is made of besides the batch and the weights."""

    prior: PriorAt
    noise: Tensor  # (M, [K,] batch, time, latent) standard normal
    shown: Tensor | None  # (batch, time, feature) bool: what the encoder may see of what is observed; None: all
    lender: Tensor | None  # (batch,) of which it may see, instead, all but what that series lacks; None: of none
    mixture: Mixture | None  # of the batch, in its place; None: it stays as it is


class Encoded(NamedTuple):
    """All that is decoded from: the latent series, and what the decoder sees beside them."""

    posterior: Chain
    context: Tensor  # (batch, time, context) the `NearestValues` of each cell, if it sees them


class LatentModel(nn.Module):
    """The networks, the prior and the likelihood, and the bound that trains them."""

    discrete: Tensor  # (feature,) counts and classes
    continuous: Tensor  # features of which the surroundings are seen
    locations: Tensor  # their places among what is decoded
    scales: Tensor  # and those of the logarithms of their scales, as far as these are decoded
    scaled: Tensor  # which of `continuous` have any
    mixing: Tensor  # share of the series that are mixed with others now
    widening: Tensor  # (knot,) of log scales, far from what is visible: held-out cells may set it (see `judge`)
    trust: nn.Parameter | None
    cells: nn.Sequential | None
    across: AcrossColumns | None

    STD_FLOOR = 1e-3
    FIRST_STD = 0.1
    CORR_LIMIT = 1 - 1e-4

    def __init__(self, config: ModelConfig, features: int, kinds: Sequence[str] = (), levels: Sequence[int] = ()):
        """`kinds` of the features, and how many `levels` those have that are classes; by default all are real."""
        super().__init__()
        config = config.sized_for(features)
        assert config.latent_dim is not None
        assert config.neighbours is not None
        self.config, self.features, self.latent_dim = config, features, config.latent_dim
        self.beta = BETA if config.beta is None else config.beta  # see `meet`
        self.visible_weight = VISIBLE_WEIGHT if config.visible_weight is None else config.visible_weight  # likewise
        self.hide_gaps = HIDE_GAPS if config.hide_gaps is None else config.hide_gaps  # likewise
        kernel = LatentKernel(config.kernel, config.latent_dim, learned=config.learn_kernel)
        self.prior = GPPrior(kernel, neighbours=config.neighbours, jitter=config.jitter)
        self.likelihood = self._new_likelihood(kinds, levels)
        self.levels = sum(levels)
        discrete = [kind not in ("real", "positive") for kind in kinds or ["real"] * features]
        self.register_buffer("discrete", torch.tensor(discrete), persistent=False)
        sees = config.see_surroundings and config.image_shape is None
        locations = _locations(self.likelihood) if sees else {}
        self.register_buffer("continuous", torch.tensor(list(locations), dtype=torch.long), persistent=False)
        self.register_buffer("locations", torch.tensor(list(locations.values()), dtype=torch.long), persistent=False)
        scales = _scales(self.likelihood) if sees else {}
        scaled = [place for place, feature in enumerate(locations) if feature in scales]
        self.register_buffer("scales", torch.tensor(list(scales.values()), dtype=torch.long), persistent=False)
        self.register_buffer("scaled", torch.tensor(scaled, dtype=torch.long), persistent=False)
        self.register_buffer("widening", torch.zeros(KNOTS))
        self.register_buffer("mixing", torch.zeros(()), persistent=False)
        self.may_mix = config.mix > 0 and config.image_shape is None and len(_locations(self.likelihood)) == features
        context = len(NearestValues._fields) * len(locations)
        inputs = self.likelihood.inputs + (features if config.see_observed else 0)
        self.preprocessor, inputs = self._image_preprocessor(inputs)
        known = 2 + len(NearestValues._fields)
        across = bool(locations) and config.column_width > 0
        self.across = AcrossColumns(len(locations), known, width=config.column_width) if across else None
        together = 0 if self.across is None else self.across.outputs
        self.encoder = self._new_encoder(inputs + config.see_times + context + together)
        by_cell = bool(locations) and config.cell_width > 0
        outputs = self.likelihood.outputs + (NOTES * len(locations) if by_cell else 0)
        self.decoder = mlp([config.latent_dim + context, *config.decoder_widths, outputs])
        hears = NOTES + len(NearestValues._fields)
        self.cells = mlp([hears, config.cell_width, config.cell_width, 2]) if by_cell else None
        trust = nn.Parameter(torch.ones(len(locations))) if locations else None
        self.register_parameter("trust", trust)  # in the line between neighbours, before a sigmoid
        self._start_smooth_and_sharp()

    PACE_OF_FEW = 10  # a kernel's parameters, and the like, are few and far from where they have to go

    def parameter_groups(self, learning_rate: float, *, matrices: bool = False) -> list[dict[str, Any]]:
        """For the optimiser: the networks, and what is few at a pace of its own.

        With `matrices` there are also those of the dense layers, to be treated as such.
        """
        few = [
            *self.prior.parameters(),
            *([self.likelihood.gaps] if isinstance(self.likelihood, SelectiveBernoulli) else []),
        ]
        dense = [each.weight for each in self.modules() if matrices and isinstance(each, nn.Linear)]
        apart = {id(value) for value in [*few, *dense]}
        networks = [value for value in self.parameters() if id(value) not in apart]
        groups = [{"params": networks}, {"params": few, "lr": self.PACE_OF_FEW * learning_rate}]
        return [*groups, {"params": dense, "matrices": True}] if dense else groups

    def encode(self, batch: Batch) -> Encoded:
        """q(z | x), a Chain of (batch, time, latent), and what else is decoded from. Missing values enter as zeros.

        Steps with nothing observed inside a convolution's window get the prior's own deviation and correlation: it has
        nothing to say there, and was never taught to say so.
        """
        return self._encode(batch, *self.prior.marginals(batch.times))

    def _encode(self, batch: Batch, prior_std: Tensor, prior_corr: Tensor) -> Encoded:
        context = self._context(batch)
        return Encoded(self._posterior(batch, context, prior_std, prior_corr), context)

    def _context(self, batch: Batch) -> Tensor:
        if not len(self.continuous):
            return batch.values[..., :0]
        values, observed = batch.values[..., self.continuous], batch.observed[..., self.continuous]
        return torch.cat(NearestValues.of(values, observed, batch.times), dim=-1)

    def _posterior(self, batch: Batch, context: Tensor, prior_std: Tensor, prior_corr: Tensor) -> Chain:
        values = self.likelihood.seen(batch.values, batch.observed)
        x = self.preprocessor(stack_channels(values, batch.observed) if self.config.see_observed else values)
        x = torch.cat([x, context, *([_log_steps(batch)] if self.config.see_times else [])], dim=-1)
        x = x if self.across is None else torch.cat([x, self._together(batch, context)], dim=-1)
        x = x * batch.valid.unsqueeze(-1)  # padding says nothing
        mean, raw_std, raw_corr = _at_least_single(self.encoder(x, batch.times, batch.valid)).chunk(3, dim=-1)
        heard = batch.valid if self.config.score_missing else batch.observed.any(-1)  # to a plain VAE zeros are values
        told = self.encoder.sees_any(heard).unsqueeze(-1)
        corr = self.CORR_LIMIT * torch.where(told[:, 1:] & told[:, :-1], raw_corr[:, :-1].tanh(), prior_corr)
        return Chain(
            mean=mean * told,
            std=torch.where(told, self.STD_FLOOR + softplus(raw_std), prior_std),
            corr=torch.zeros_like(corr) if self.config.posterior == "diagonal" else corr,
        )

    def _together(self, batch: Batch, context: Tensor) -> Tensor:
        """What the cells of each step say together, of their values and surroundings. (batch, time, output)"""
        assert self.across is not None
        values, visible = batch.values[..., self.continuous], batch.observed[..., self.continuous]
        known = torch.stack([values * visible, visible.to(values.dtype)], dim=-1)
        known = torch.cat([known, _of_each_cell(context)], dim=-1)
        steps = max(1, CELLS_AT_ONCE // len(self.continuous))
        return _in_parts(self.across, steps, known.flatten(0, 1), visible.flatten(0, 1)).unflatten(0, known.shape[:2])

    @property
    def widest(self) -> int:
        """The most numbers that any layer makes of one time step: what memory has to be reckoned with."""
        config = self.config
        image = 0 if config.image_shape is None else math.prod(config.image_shape[1:]) * config.image_filters
        context = len(NearestValues._fields) * len(self.locations)
        by_cell = max(NOTES + len(NearestValues._fields), config.cell_width) if self.cells else 0
        cells = len(self.locations) * max(by_cell, config.column_width if self.across else 0)
        outputs = max(self.likelihood.inputs + context, cast(nn.Linear, self.decoder[-1]).out_features, self.levels)
        together = self.across.outputs if self.across else 0
        return max(
            image, cells, together, outputs, 3 * config.encoder_filters, *config.encoder_widths, *config.decoder_widths
        )

    def decode(self, z: Tensor, context: Tensor) -> Tensor:
        """The likelihood's parameters for each value. (..., time, latent), (time, context) → (..., time, output)

        Locations are found relative to the line between the nearest visible values, as far as that is to be trusted:

        a_t, n_t = dense layers(z_t, c_t)                            n_td: `NOTES` on each cell of a real column
        location_td = a_td + cells(n_td, c_td)_1 + trust_d line_td   c_td: its own surroundings
        raw scale_td = a_td' + cells(n_td, c_td)_2
        """
        seen = torch.cat([z, context.expand(*z.shape[:-1], -1)], dim=-1) if context.shape[-1] else z
        decoded = _at_least_single(self.decoder(seen))
        if self.trust is None:
            return decoded
        if self.cells is not None:
            decoded = self._cell_by_cell(decoded, context)
        line = context[..., : len(self.locations)] * self.trust.sigmoid()
        decoded = decoded.index_add(-1, self.locations, line.expand(*z.shape[:-1], -1).to(decoded.dtype))
        if self.training or not len(self.scales):
            return decoded
        wider = near_knots(self.remoteness(context)) @ self.widening
        return decoded.index_add(-1, self.scales, wider.expand(*z.shape[:-1], -1).to(decoded.dtype))

    def _cell_by_cell(self, decoded: Tensor, context: Tensor) -> Tensor:
        """With what the network that all cells share adds. (..., time, output and note) → (..., time, output)

        What a value two hours ago is worth, it learns of all columns at once; other columns' surroundings, which dense
        layers have to learn to ignore, reach it only through the notes.
        """
        assert self.cells is not None
        notes = decoded[..., self.likelihood.outputs :].unflatten(-1, (-1, NOTES))
        own = _of_each_cell(context)
        heard = torch.cat([notes, own.expand(*notes.shape[:-1], -1).to(notes.dtype)], dim=-1)
        said = _in_parts(self.cells, CELLS_AT_ONCE, heard.flatten(0, -2)).view(*heard.shape[:-1], 2)
        location, scale = _at_least_single(said).unbind(-1)
        decoded = decoded[..., : self.likelihood.outputs].index_add(-1, self.locations, location)
        return decoded.index_add(-1, self.scales, scale[..., self.scaled])

    def remoteness(self, context: Tensor) -> Tensor:
        """How far cells with a decoded scale are from visible values: 0 a step away on both sides, 1 infinitely far.

        Of the distances to both sides, a and b, what counts is their harmonic mean h: the variance of a random walk
        between two known values grows with it. The context has 1 / √(1 + a); likewise 1 - √2 / √(1 + h) is the
        remoteness. (time, context) → (time, feature)
        """
        closeness = context[..., -2 * len(self.locations) :].unflatten(-1, (2, -1))[..., self.scaled]
        inverse = (closeness**2 / (1 - closeness**2).clamp(min=1e-6)).mean(-2)  # 1 / h
        return (1 - torch.sqrt(2 * inverse / (1 + inverse))).clamp(min=0)

    def decode_missing(self, z: Tensor, context: Tensor) -> Tensor:
        """The same for values that are known to be missing, which may say something about them."""
        decoded = self.decode(z, context)
        return self.likelihood.of_missing(decoded) if isinstance(self.likelihood, SelectiveBernoulli) else decoded

    def loss(self, batch: Batch, generator: Generator, warmth: Tensor | float = 1.0) -> Loss:
        """The negative bound per step: ELBO with the closed-form KL, or the importance-weighted one for K > 1.

        `warmth` scales β. Raised from 0 to 1 over the first epochs, it lets the decoder find a use for the latent
        series before the prior pulls them to zero.
        """
        return self.bound(batch, self.ingredients(batch.times, batch.observed.shape[:2], generator), warmth)

    def ingredients(
        self, times: Times, shape: tuple[int, ...], generator: Generator, prior: PriorAt | None = None
    ) -> "Ingredients":
        """What the loss of a batch of `shape` (batch, time) needs besides the batch; the prior, if it is known."""
        m, k = self.config.mc_samples, self.config.importance_samples
        draws = (m,) if k == 1 else (m, k)
        noise = torch.randn((*draws, *shape, self.latent_dim), generator=generator, device=generator.device)
        shown = lender = None
        if self.config.hidden_shares[1]:
            shares, runs = self.config.hidden_shares, self.config.hide_runs
            shown = shown_by_chance(shape, shares, runs, generator, self.features)
            lender = lenders(shape[0], self.hide_gaps, generator) if self.hide_gaps else None
        known = self.prior.at(times, steps=shape[1]) if prior is None else prior
        mixes = self.can_mix(shape[0], even=not isinstance(times, Tensor))
        mixture = mixtures(shape[0], self.mixing, generator) if mixes else None
        return Ingredients(known, noise, shown, lender, mixture)

    def can_mix(self, series: int, *, even: bool) -> bool:
        """Whether there are mixtures of a batch of so many series, on even steps or not."""
        return self.may_mix and even and series > 1

    def mix(self, on: bool) -> None:
        """Mix series with others, from now on, or leave them as they are."""
        self.mixing.fill_(self.config.mix if on else 0.0)

    def bound(self, batch: Batch, given: "Ingredients", warmth: Tensor | float) -> Loss:
        """The loss, all that it depends on given: nothing here but tensors, so that it can be compiled."""
        lacked = None if given.lender is None else lacking(batch, given.lender)
        batch = batch if given.mixture is None else mixed(batch, given.mixture)
        seen = batch if given.shown is None else as_shown(batch, given.shown, lacked)
        encoded = self._encode(seen, given.prior.std, given.prior.corr)
        weights = self._weights(batch, seen)
        bound = self._elbo if self.config.importance_samples == 1 else self._importance_weighted
        prior, beta = NeighbourFactor(given.prior.weights), self.beta * warmth
        return bound(encoded, batch, weights, prior, given.noise, beta)

    def _elbo(
        self,
        encoded: Encoded,
        batch: Batch,
        weights: Tensor,
        prior: NeighbourFactor,
        noise: Tensor,
        beta: Tensor | float,
    ) -> Loss:
        """β-ELBO. The decoder works step by step, so draws from the marginals are enough: no recurrence."""
        posterior = encoded.posterior
        z = posterior.sample_marginals(noise)
        nll = -self._log_likelihood(z, encoded.context, batch, weights).mean(0).sum() / batch.steps
        kl = chain_kl(posterior, prior, batch.lengths).sum() / batch.steps
        return Loss(nll + beta * kl, {"nll": nll, "kl": kl})

    def _importance_weighted(
        self,
        encoded: Encoded,
        batch: Batch,
        weights: Tensor,
        prior: NeighbourFactor,
        noise: Tensor,
        beta: Tensor | float,
    ) -> Loss:
        """Log 1/K Σ_k p(x|z_k) (p(z_k)/q(z_k))^β over whole paths, averaged over M."""
        posterior = encoded.posterior
        z = posterior.sample(noise)
        log_ratio = ((posterior.log_prob(z) - prior.log_prob(z)).sum(-1) * batch.valid).sum(-1)  # (M, K, batch)
        log_likelihood = self._log_likelihood(z, encoded.context, batch, weights)
        log_weight = log_likelihood - beta * log_ratio
        bound = log_weight.logsumexp(1) - math.log(self.config.importance_samples)
        parts = {"nll": -log_likelihood.mean((0, 1)).sum(), "kl": log_ratio.mean((0, 1)).sum()}
        total = -bound.mean(0).sum() / batch.steps
        return Loss(total, {name: part / batch.steps for name, part in parts.items()})

    def _log_likelihood(self, z: Tensor, context: Tensor, batch: Batch, weights: Tensor) -> Tensor:
        """Log p(x_observed | z), weighted and summed over each series. (..., batch, time, latent) → (..., batch)"""
        decoded = self.decode(z, context)
        log_prob = self.likelihood.log_prob(decoded, batch.values) * weights
        if isinstance(self.likelihood, SelectiveBernoulli):
            gaps = self.likelihood.log_prob_of_gaps(decoded, batch.values, batch.observed)
            log_prob = log_prob + gaps * batch.valid.unsqueeze(-1)
        return log_prob.sum((-2, -1))

    def _weights(self, batch: Batch, seen: Batch) -> Tensor:
        """How much each value counts in the bound.

        Fully, but less if the encoder sees it. A plain VAE takes missing ones for zeros, but a zero is not just any
        class.
        """
        scored = batch.observed
        if self.config.score_missing:
            scored = scored | (batch.valid.unsqueeze(-1) & ~self.discrete)
        if self.visible_weight == 1 or not self.config.hidden_shares[1]:
            return scored
        return torch.where(seen.observed, self.visible_weight, scored.to(batch.values.dtype))

    @torch.no_grad()
    def meet(self, values: Tensor, observed: Tensor) -> None:
        """See the data (row, feature) before training: counts need to know how large they typically are.

        What is visible weighs, in training, at most half as much as the share of cells that is observed, in columns
        where any is: in sparse tables, to find it again is learned soon, and takes strength from the rest. And the
        gaps of others leave hardly anything visible there, so they are hidden more seldom. A step with few values also
        has little to set against the KL: with a β that is not less there, latent series would say nothing. Of two
        series of a table that is more than half empty, too little would be left to mix.
        """
        known = observed[:, observed.any(0)]
        share = float(known.double().mean()) if known.numel() else 1.0
        if self.config.beta is None:
            self.beta = BETA * share
        if self.config.visible_weight is None:
            self.visible_weight = min(VISIBLE_WEIGHT, share / 2)
        if self.config.hide_gaps is None:
            self.hide_gaps = HIDE_GAPS * share
        self.may_mix &= share >= 0.5
        for part, group, _ in parts_of(self.likelihood):
            if isinstance(part, Poisson):
                seen = observed[:, group]
                typical = (values[:, group] * seen).sum(0) / seen.sum(0).clamp(min=1)
                part.typical.copy_(typical.clamp(min=1e-3))

    def _new_likelihood(self, kinds: Sequence[str], levels: Sequence[int]) -> Likelihood:
        config = self.config
        if not any(kind != "real" for kind in kinds):
            if config.likelihood == "gaussian":
                return Gaussian(self.features, config.noise)
            if config.likelihood == "student":
                return StudentT(self.features)
            return (SelectiveBernoulli if config.missing_by_value else Bernoulli)(self.features)
        if config.likelihood == "bernoulli" or config.image_shape is not None:
            raise ValueError("columns have kinds of their own only where others are real numbers, and not in images")
        return likelihood_for(kinds, levels, config.likelihood, config.noise)

    def _new_encoder(self, inputs: int) -> TimeConvolution | Attention:
        config, outputs = self.config, 3 * self.latent_dim
        if config.encoder == "attention":
            return Attention(inputs, width=config.encoder_filters, layers=config.encoder_layers, outputs=outputs)
        window, widths = config.encoder_window, config.encoder_widths
        return TimeConvolution(inputs, filters=config.encoder_filters, window=window, widths=widths, outputs=outputs)

    def _image_preprocessor(self, inputs: int) -> tuple[nn.Module, int]:
        shape = self.config.image_shape
        if shape is None:
            return nn.Identity(), inputs
        if math.prod(shape) != self.features:
            raise ValueError(f"image_shape {shape} has {math.prod(shape)} values, the data {self.features} features")
        _, height, width = shape
        channels = inputs // (height * width)
        return ImagePreprocessor((channels, height, width), filters=self.config.image_filters), height * width

    @torch.no_grad()
    def _start_smooth_and_sharp(self) -> None:
        """Neighbour correlations begin near the prior's, so that the KL need not teach smoothness first; deviations
        begin small, so that the decoder hears the latent series through their noise.
        """
        at_zero, at_one = self.prior.kernel.to_latents(self.prior.kernel(torch.tensor([0.0, 1.0]).double()).mT)
        _, std, corr = self.encoder.head.bias.chunk(3)
        std.fill_(math.log(math.expm1(self.FIRST_STD)))
        corr.copy_(torch.atanh(at_one / (at_zero + self.prior.jitter)).clamp(-2, 2))
        if self.trust is not None:  # what is decoded begins as the line between neighbours
            _silence(self.decoder[-1], self.likelihood.outputs)  # but not what it notes
            if self.cells is not None:
                _silence(self.cells[-1])


BETA = 0.01  # weight of the KL where nearly all is observed
VISIBLE_WEIGHT = 0.3  # of what the encoder sees, in the bound, where most cells are observed
HIDE_GAPS = 0.5  # share of the series of which training hides what another lacks, where nearly all is observed
CELLS_AT_ONCE = 2**18  # that networks hear of outside of training
NOTES = 8  # numbers that dense layers say about a cell to the network that all cells share
KNOTS = 4


def near_knots(remoteness: Tensor) -> Tensor:
    """Weights of the knots 1/4, 1/2, 3/4 and 1, between which lines are drawn, from 0 at remoteness 0. (..., knot)"""
    knots = torch.arange(1, KNOTS + 1, device=remoteness.device)
    return (1 - (KNOTS * remoteness.unsqueeze(-1) - knots).abs()).clamp(min=0)


def _of_each_cell(context: Tensor) -> Tensor:
    """Its own surroundings. (..., context) → (..., feature, 5)"""
    return context.unflatten(-1, (len(NearestValues._fields), -1)).mT


def _in_parts(network: nn.Module, count: int, *inputs: Tensor) -> Tensor:
    """What a network makes of inputs; outside of training so many at a time: a long and wide table has many cells."""
    if torch.is_grad_enabled():
        return network(*inputs)
    return torch.cat([network(*some) for some in zip(*(each.split(count) for each in inputs), strict=True)])


def _silence(layer: nn.Module, outputs: int | None = None) -> None:
    """Let the first outputs of a layer, or all, begin as zeros."""
    assert isinstance(layer, nn.Linear)
    nn.init.zeros_(layer.weight[:outputs])
    nn.init.zeros_(layer.bias[:outputs])


def _locations(likelihood: Likelihood) -> dict[int, int]:
    """Of each real or positive feature, which decoded number says where its values lie."""
    return {
        feature: outputs.start + i
        for part, group, outputs in parts_of(likelihood)
        if isinstance(part, Gaussian | StudentT)
        for i, feature in enumerate(group.tolist())
    }


def _scales(likelihood: Likelihood) -> dict[int, int]:
    """Of each feature whose scale is decoded, the place of that."""
    return {
        feature: outputs.start + len(group) + i
        for part, group, outputs in parts_of(likelihood)
        if isinstance(part, StudentT)
        for i, feature in enumerate(group.tolist())
    }


def _at_least_single(x: Tensor) -> Tensor:
    """What autocast made bfloat16 as float32."""
    return x if x.dtype == torch.float64 else x.float()


def _log_steps(batch: Batch) -> Tensor:
    """log(τ_t - τ_{t-1}), 0 for the first step and on a grid of unit steps. (batch, time, 1)"""
    if isinstance(batch.times, Tensor):
        steps = batch.times.diff(dim=-1).log().to(batch.values.dtype)
    else:
        steps = batch.values.new_full((len(batch.values), batch.values.shape[1] - 1), math.log(batch.times))
    return (pad(steps, (1, 0)) * batch.valid).unsqueeze(-1)
