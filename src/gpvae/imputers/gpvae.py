"""The GP-VAE as an imputer; the VAE and HI-VAE are settings of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gpvae.data.codec import from_json, to_json
from gpvae.data.panel import DataError, Floats, Panel
from gpvae.data.scaling import CLASSES, Kinds, class_columns
from gpvae.data.schema import Schema
from gpvae.imputers.latent import LatentMethod, Resolved, resolve, sample_paths
from gpvae.imputers.latent_view import Influence, Latents, LatentView
from gpvae.imputers.neural import NeuralImputer, Slice, prediction_batches
from gpvae.imputers.point import parts_of
from gpvae.models import config
from gpvae.models.config import ModelConfig
from gpvae.models.default import DEFAULT
from gpvae.models.likelihoods import Bernoulli
from gpvae.models.parts import NearestValues
from gpvae.training import recipe as recipes
from gpvae.training.recipe import Recipe

LIKELIHOODS = {"Student": "Student's t"}
LAGS = np.geomspace(1e-3, 1e5, 4000)  # in steps; where to look for a length scale


@dataclass(eq=False, repr=False)
class GPVAE(NeuralImputer):
    """Fill the gaps of multivariate time series, with uncertainty, by a VAE with a Gaussian-process latent space.

        filled = GPVAE().fit(data).impute(data)

    `data` is a Panel, an array (series, time, feature) or (time, feature), a list of arrays, or a data frame;
    NaN or null = missing.

    model: what the model is: `gpvae.DEFAULT`, with changes by `dataclasses.replace`, or a `ModelConfig` of your own;
        `GPVAE(**paper.PHYSIONET)` has the paper's settings, `GPVAE(**gpvae.VAE)` is a model that it compares with.
    recipe: how it is trained; `gpvae.DEFAULT_RECIPE`, with changes by `dataclasses.replace`.
    kinds: of columns that are not real numbers, by name: "positive", "count", "binary", "categorical", "ordinal", or,
        for text with an order, the list of its levels. What is filled in is of that kind.
    epochs: passes over the data; None: enough for 10,000 steps, at least 40, at most 800, or 200 if the data is small;
        without `recipe.anneal`, enough for 3,000 steps, at least 40.
    standardise: scale columns to zero mean and unit deviation for the model (undone in what it returns). Never done for
        a Bernoulli likelihood.
    precision: "32-true" or "bf16-mixed".
    device: "auto", "cpu" or "cuda".
    verbose: show a progress bar; in a log, lines. "losses": with the parts of the loss.
    """

    gives_distributions: ClassVar[bool] = True
    masks: ClassVar[bool] = True
    model: ModelConfig = DEFAULT
    _: KW_ONLY
    recipe: Recipe = recipes.DEFAULT_RECIPE
    kinds: Kinds | None = None
    method_: LatentMethod = field(init=False)

    def _read(self, data: Any) -> Panel:
        return Panel.of(data, categories=class_columns(self.kinds))

    def _new_schema(self, panel: Panel) -> Schema:
        self._require_fitting_values(panel)
        return Schema.of(panel, standardise=self.standardise and self.model.likelihood.standardises, kinds=self.kinds)

    def _new_method(self, schema: Schema, share_observed: float) -> LatentMethod:
        resolved = resolve(self.model, self.recipe, schema, share_observed, standardised=self.standardise)
        return self._method(resolved, schema)

    def _method(self, resolved: Resolved, schema: Schema) -> LatentMethod:
        return LatentMethod(resolved, schema, self.recipe, slow_kl=self.model.objective.beta is None)

    def _require_valid_settings(self) -> None:
        super()._require_valid_settings()
        if not isinstance(self.model, ModelConfig):
            advice = "unpack presets, as in GPVAE(**paper.PHYSIONET) or GPVAE(**gpvae.VAE)"
            raise TypeError(f"model must be a ModelConfig, got a {type(self.model).__name__}; {advice}")
        if self.kinds is not None and not isinstance(self.kinds, Mapping):
            raise TypeError(f"kinds must map columns to kinds, as {{'rain': 'positive'}}, got {self.kinds!r}")
        likelihood = self.model.likelihood
        if isinstance(likelihood, Bernoulli) and likelihood.missing_by_value and self.recipe.validation:
            raise ValueError("missing_by_value needs validation=0: held-out cells would pass for missing ones")

    def _require_fitting_values(self, panel: Panel) -> None:
        outside = (panel.values < 0) | (panel.values > 1)
        if isinstance(self.model.likelihood, Bernoulli) and outside.any():
            row, column = np.argwhere(outside)[0]
            raise DataError(
                f"a Bernoulli likelihood needs values between 0 and 1; column {panel.columns[column]!r} holds "
                f"{panel.values[row, column]:g} at {panel.source.where(int(row))}"
            )

    def _select(self, panel: Panel) -> Panel:
        selected = super()._select(panel)
        self._require_fitting_values(selected)
        return selected

    def _resolved(self) -> Any:
        return to_json(self.method_.resolved)

    def _restored_method(self, resolved: Any) -> LatentMethod:
        return self._method(from_json(Resolved, resolved), self.schema_)

    # What the model makes of the data, beside filling gaps.

    @torch.no_grad()
    def reconstruct(self, data: Any, *, samples: int = 0, seed: int = 0) -> tuple[Floats, Floats]:
        """Mean and deviation of every cell of the model's columns, observed or not, as if missing. (row, feature)

        Of decoded samples of the latent series, noise included; without samples, what the mean of the latent series
        decodes to, with the deviation of the noise alone.
        """
        if samples < 0:
            raise ValueError(f"samples must not be negative, got {samples}")
        panel, scaling = self._own(data), self.schema_.scaling
        if any(kind != "real" for kind in scaling.kinds):
            raise DataError("only columns of real numbers can be reconstructed; impute fills those of other kinds")
        network, likelihood = self.method_.network, self.method_.network.likelihood
        mean, std = (np.empty(panel.values.shape, dtype=np.float32) for _ in range(2))
        for rows, places, batch, streams in self._batches(panel, max(1, samples), seed):
            posterior, context = network.encode(batch)
            z = sample_paths(posterior, batch, samples, streams) if samples else posterior.mean.unsqueeze(0)
            params = self.method_.decode(z.flatten(1, 2)[:, places], context.flatten(0, 1)[places])
            means, variance = likelihood.mean(params), likelihood.variance(params)
            mean[rows] = means.mean(0).cpu().numpy()
            std[rows] = (means.var(0, correction=0) + variance.mean(0)).sqrt().cpu().numpy()
        return scaling.shift + scaling.scale * mean, scaling.scale * std

    @torch.no_grad()
    def latents(self, data: Any) -> Latents:
        """Posterior mean and deviation of the latent series, for every row."""
        panel, network = self._own(data), self.method_.network
        mean, std = (np.empty((len(panel.values), network.latent_dim), dtype=np.float32) for _ in range(2))
        for rows, places, batch, _ in self._batches(panel):
            posterior = network.encode(batch).posterior
            mean[rows] = posterior.mean.flatten(0, 1)[places].float().cpu().numpy()
            std[rows] = posterior.std.flatten(0, 1)[places].float().cpu().numpy()
        return Latents(mean, std)

    @property
    def decoder_sees_context(self) -> bool:
        """Whether values are decoded from more than the latent series: the nearest visible values."""
        return isinstance(self.model.inputs, NearestValues)

    @torch.no_grad()
    def length_scales(self) -> Floats:
        """The time in which the prior's correlation falls to ½ (a Cauchy kernel's length scale). (latent,)

        In the units of the panel's times: seconds, where those are dates. Infinite where it never does, 0 without time.
        """
        prior = self.method_.network.prior
        if not prior.neighbours:
            return np.zeros(self.method_.network.latent_dim)
        lags = torch.from_numpy(np.concatenate([[0.0], LAGS])).to(self.method_.device)
        covariance = prior.kernel(lags).cpu().numpy()  # (group, lag)
        fallen = covariance[:, 1:] <= covariance[:, :1] / 2
        scales = np.where(fallen.any(axis=1), LAGS[fallen.argmax(axis=1)], np.inf) * self.schema_.time_unit
        return scales[prior.kernel.group.cpu().numpy()]

    @torch.no_grad()
    def influence(self, data: Any) -> Floats:
        """How much each latent series matters to each column. (latent + 2, column)

        That is how far the decoded mean moves, root mean square, in deviations of the column's values, when the latent
        is held at its average. The last two rows are those of all latents together, and of the nearest visible values
        that the decoder may see. NaN for classes, which have no mean, and for columns that do not vary here.
        """
        panel, scaling = self._own(data), self.schema_.scaling
        z, context = (torch.cat(parts) for parts in zip(*self._encoded(panel), strict=True))
        usual, average = self._decoded_mean(z, context), z.mean(0, keepdim=True)
        one = torch.eye(z.shape[-1], dtype=torch.bool, device=z.device).unsqueeze(1)  # (latent, 1, latent)
        chunk = self.method_.rows_at_once // len(z) or 1
        held = [(torch.where(some, average, z), context) for some in one.split(chunk)]
        held += [(average.expand_as(z)[None], context), (z[None], context.mean(0, keepdim=True).expand_as(context))]
        moved = torch.cat([(self._decoded_mean(*each) - usual).square().mean(-2).sqrt() for each in held])
        deviation = np.full(len(scaling.kinds), np.nan)
        counted = scaling.varies & ~scaling.of_kind(*CLASSES)
        deviation[counted] = _deviations(scaling.apply(panel.values)[:, counted])
        return moved.double().cpu().numpy() / np.where(deviation > 0, deviation, np.nan)

    def latent_view(self) -> LatentView:
        dims, steps = self.method_.network.latent_dim, self.length_scales() / self.schema_.time_unit
        encoded = f"The model encodes each series as {dims} latent series without gaps, and decodes those."
        return LatentView(
            names=tuple(f"latent {k + 1}" for k in range(dims)),
            words=(),
            columns=tuple(map(str, self.schema_.columns)),
            summary=f"{encoded} {_describe_scales(steps)}",
            note=_list_scales(steps),
            measure="change",
            posterior=self.latents,
            influence=self._influence_in_words,
        )

    def _influence_in_words(self, panel: Panel) -> Influence:
        influence, context = self.influence(panel), self.decoder_sees_context
        others = ("all latent series", "nearest visible values") if context else ("all latent series",)
        sentence = _describe_influence(influence, self.schema_.columns, context=context)
        return Influence(influence if context else influence[:-1], others, sentence)

    def facts(self) -> list[tuple[str, str]]:
        config = self.method_.resolved.model
        prior, likelihood = config.prior, type(config.likelihood).__name__
        kernel = f"{type(prior.kernel).__name__} kernel" if prior.order else "none, steps are independent"
        return [
            ("latent series", f"{config.latent_dim}"),
            ("prior over time", kernel),
            ("encoder", type(config.encoder).__name__.lower()),
            ("likelihood", LIKELIHOODS.get(likelihood, likelihood)),
            ("β, weight of the KL term", f"{config.objective.beta:.2g}"),
            *super().facts(),
        ]

    def _decoded_mean(self, z: Tensor, context: Tensor) -> Tensor:
        return self.method_.network.likelihood.mean(self.method_.decode(z, context))

    def _encoded(self, panel: Panel) -> Iterator[tuple[Tensor, Tensor]]:
        """Latent means of the panel's rows, and their context."""
        for _, places, batch, _ in self._batches(panel):
            posterior, context = self.method_.network.encode(batch)
            yield posterior.mean.flatten(0, 1)[places], context.flatten(0, 1)[places]

    def _batches(self, panel: Panel, samples: int = 1, seed: int = 0) -> Iterator[Slice]:
        """Whole series."""
        steps = max(1, self.method_.rows_at_once // samples)
        return prediction_batches(self.method_, panel, parts_of(panel), steps, seed)

    def _own(self, data: Any) -> Panel:
        check_is_fitted(self)
        return self._select(self.schema_.panel(data).with_labels(self.schema_.labels))


# The models that the paper compares with, trained as it does: GPVAE(**VAE).
VAE: Mapping[str, Any] = MappingProxyType({"model": config.VAE, "recipe": recipes.PLAIN})
HI_VAE: Mapping[str, Any] = MappingProxyType({"model": config.HI_VAE, "recipe": recipes.PLAIN})


def vae(**settings: Any) -> GPVAE:
    return GPVAE(**{**VAE, **settings})


def hi_vae(**settings: Any) -> GPVAE:
    return GPVAE(**{**HI_VAE, **settings})


def _deviations(values: Floats) -> Floats:
    """Of the values in each column that are there; 0 for a column without any."""
    there = ~np.isnan(values)
    count = np.maximum(1, there.sum(axis=0))
    mean = np.where(there, values, 0).sum(axis=0) / count
    return np.sqrt((np.where(there, values - mean, 0) ** 2).sum(axis=0) / count)


def _describe_influence(influence: Floats, columns: Sequence[Any], *, context: bool) -> str:
    """context: the decoder sees the nearest visible values, too."""
    known = np.nan_to_num(influence)
    k = int(np.argmax((known[:-2] ** 2).sum(axis=1)))
    j = int(np.argmax(known[k]))
    together, nearest = known[-2:].sum(axis=1) / max(1, np.isfinite(influence[-2]).sum())
    sentence = (
        f"Latent {k + 1} matters most, above all to {columns[j]}: when it is fixed at its mean, the "
        f"decoded values change by {known[k, j]:.2g} standard deviations; with all latent series fixed, by "
        f"{together:.2g} on average."
    )
    if context:
        sentence += f" With the nearest visible values fixed, another input of the decoder, by {nearest:.2g}."
        if together < 0.1 * nearest:
            sentence += " So the model fills mostly from the nearest values, and the latent series add little."
    return sentence


def _describe_scales(steps: Floats) -> str:
    """steps: the length scale of each latent series, in time steps."""
    if not steps.any():
        return "This model has no prior over time: the latent values of each step are independent."
    finite = steps[np.isfinite(steps)]
    if not len(finite):
        return "The prior's correlation never falls to one half."
    shared = "All latent series share a prior" if len(np.unique(steps)) == 1 else "Latent series have different priors"
    low, high = finite.min(), finite.max()
    scale = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    return f"{shared}: the correlation falls to one half within {scale} steps, the length scale."


def _list_scales(steps: Floats) -> str:
    """steps: the length scale of each latent series, in time steps."""
    finite = steps[np.isfinite(steps)]
    if not finite.any():
        return ""
    scales = dict.fromkeys(f"{float(f'{scale:.4g}'):,.10g}" for scale in finite)
    return f"Length scales: {', '.join(scales)} steps."
