"""The paper's settings and our changes to them, as keyword arguments of `GPVAE`.

They are those of its tables S1, S2 and S3, and where these are silent, of the authors' published code: Glorot's
initialisation, no activation behind the convolution over time but one behind the last convolution of images, which has
256 filters and keeps the channels, hardly any clipping of gradients, and, for PhysioNet, a prior of variance 1.005, a
sigmoid in the posterior, and a learning rate that is halved every ten epochs.

Unlike our defaults, the paper's encoder sees zeros for missing values and nothing else, the Gaussian noise is fixed at
one, and training runs for a fixed number of epochs on all observed cells.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gpvae.gp.kernels import RBF, Cauchy
from gpvae.models.config import ModelConfig, Objective
from gpvae.models.encoders import Convolution
from gpvae.models.inputs import Frames
from gpvae.models.likelihoods import Bernoulli, Gaussian
from gpvae.models.prior import Prior
from gpvae.training.masking import Masking
from gpvae.training.recipe import Recipe

Settings = Mapping[str, Any]  # keyword arguments of GPVAE, or changes to them by dotted path: {"model.latent_dim": 8}

IMAGE_FILTERS = 256  # in the preprocessor of images
FIRST_STD = 0.6  # where our chain posterior is used: about what the published one starts with
RECIPE = Recipe(batch_size=64, window=1024, validation=0.0, clip_norm=1e4)

HEALING_MNIST: Settings = MappingProxyType(  # 10 × 784, values in [0, 1]
    {
        "model": ModelConfig(
            latent_dim=256,
            prior=Prior(Cauchy(2.0)),
            posterior="published",
            first_std=FIRST_STD,
            initialisation="glorot",
            inputs=Frames((1, 28, 28), IMAGE_FILTERS, relu=True),
            encoder=Convolution(filters=256, window=3, widths=(256,), relu=False),
            decoder_widths=(256, 256, 256),
            likelihood=Bernoulli(),
            objective=Objective(beta=0.8),
        ),
        "recipe": RECIPE,
        "epochs": 20,
    }
)

SPRITES: Settings = MappingProxyType(  # 8 × 12288, values in [0, 1], used as they are
    {
        "model": ModelConfig(
            latent_dim=256,
            prior=Prior(Cauchy(2.0)),
            posterior="published",
            first_std=FIRST_STD,
            initialisation="glorot",
            inputs=Frames((3, 64, 64), IMAGE_FILTERS, channels=3, relu=True),
            encoder=Convolution(filters=32, window=3, widths=(256, 256), relu=False),
            decoder_widths=(256, 256, 256),
            likelihood=Gaussian(noise=1.0),
            objective=Objective(beta=0.1),
        ),
        "recipe": RECIPE,
        "epochs": 20,
        "standardise": False,
    }
)

PHYSIONET: Settings = MappingProxyType(  # 48 × 35, standardised
    {
        "model": ModelConfig(
            latent_dim=35,
            prior=Prior(Cauchy(7.0, variance=1.005)),
            posterior="published-sigmoid",
            first_std=FIRST_STD,
            initialisation="glorot",
            encoder=Convolution(filters=128, window=24, widths=(128,), relu=False),
            decoder_widths=(256, 256),
            likelihood=Gaussian(noise=1.0),
            objective=Objective(beta=0.2),
        ),
        "recipe": replace(RECIPE, halve_every=10),
        "epochs": 40,
    }
)

PRESETS: Mapping[str, Settings] = MappingProxyType(
    {"healing-mnist": HEALING_MNIST, "sprites": SPRITES, "physionet": PHYSIONET}
)

# The other latent models of the tables, as changes to a preset. VAE and HI-VAE encode each time step on its own, by
# dense layers with ReLU, and have no prior over time; the VAE also scores missing values, as zeros.
_EACH_STEP_ON_ITS_OWN = {
    "model.prior": Prior(Cauchy(), neighbours=0, jitter=1e-6),
    "model.posterior": "diagonal",
    "model.first_std": math.log(2),  # softplus(0)
    "model.encoder.window": 1,
    "model.encoder.relu": True,
}
# The authors' exp(-r²/l²) with l = 2; they add no jitter to it.
_RBF = {"model.prior.kernel": RBF(math.sqrt(2)), "model.prior.jitter": 1e-6}
VARIANTS: Mapping[str, Settings] = MappingProxyType(
    {
        "gp-vae": {},
        "gp-vae, RBF": _RBF,
        "gp-vae, chain": {"model.posterior": "chain"},
        "hi-vae": _EACH_STEP_ON_ITS_OWN,
        "vae": {**_EACH_STEP_ON_ITS_OWN, "model.objective.missing_as_zeros": True},
    }
)

# A small model for tests, trained for two epochs.
QUICK: Settings = MappingProxyType(
    {
        "model.latent_dim": 8,
        "model.encoder.filters": 16,
        "model.encoder.widths": (16,),
        "model.decoder_widths": (16,),
        "epochs": 2,
    }
)
QUICK_FRAMES: Settings = MappingProxyType({"model.inputs.filters": 4})


@dataclass(frozen=True)
class Change:
    """Something that we do differently from the paper, with the same model."""

    name: str
    settings: Settings
    mechanisms: tuple[str, ...] = ()  # of missingness, if the change is only made for some


_MASK_AS_INPUT = Change("the encoder sees what is observed", {"model.inputs.observed": True})
_WARM_UP = Change("β rises over the first third of training", {"recipe.kl_warm_up": 1 / 3})
# An assumption about the mechanism, to be made only where it holds: with missing patches it fills them with white.
_MISSING_BY_VALUE = Change(
    "the rates at which black and white go missing are learned",
    {"model.likelihood.missing_by_value": True},
    ("not-at-random",),
)
# Where missing pixels resemble their observed neighbours, what fits the observed pixels fits the missing ones. Where
# they do not, the prior must keep the latents from serving the observed pixels alone: for patches, β = 0.3 is worse
# than 0.8.
_LIKE_NEIGHBOURS = ("random", "temporal+", "temporal-")
_SMALLER_BETA = Change("β = 0.2", {"model.objective.beta": 0.2}, _LIKE_NEIGHBOURS)
_LONGER = Change("40 epochs", {"epochs": 40}, _LIKE_NEIGHBOURS)
_MUCH_LONGER = Change("100 epochs", {"epochs": 100})
_SMALLER_NOISE = Change("noise 0.1 instead of 1", {"model.likelihood.noise": 0.1})
_LEARNED_NOISE = Change("noise is learned for each column", {"model.likelihood.noise": None})
_MASKING = Change(
    "training hides 30 % of what is observed from the encoder",
    {"recipe.masking": Masking(cells=(0.3, 0.3), runs=0.0, borrowed=0.0, visible_weight=1.0)},
)

CHANGES: Mapping[str, tuple[Change, ...]] = MappingProxyType(  # by data set, in the order in which we make them
    {
        "healing_mnist": (_MASK_AS_INPUT, _WARM_UP, _MISSING_BY_VALUE, _SMALLER_BETA, _LONGER),
        "sprites": (_MASK_AS_INPUT, _WARM_UP, _SMALLER_NOISE, _MUCH_LONGER),
        "physionet2012": (_MASK_AS_INPUT, _WARM_UP, _LEARNED_NOISE, _MASKING),
    }
)


def changed(settings: Settings, changes: Settings) -> dict[str, Any]:
    """`settings` with the values at dotted paths replaced, as in `changed(PHYSIONET, {"model.latent_dim": 8})`."""
    for path, value in changes.items():
        settings = _replace_at(settings, path, value)
    return dict(settings)


def _replace_at(target: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    if isinstance(target, Mapping):
        return {**target, name: _replace_at(target[name], rest, value) if rest else value}
    return replace(target, **{name: _replace_at(getattr(target, name), rest, value) if rest else value})
