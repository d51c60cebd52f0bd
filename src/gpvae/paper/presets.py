"""The paper's settings (tables S1, S2 and S3) and our changes to them, as keyword arguments of `GPVAE`.

Unlike our defaults, the paper's encoder sees zeros for missing values and nothing else, the Gaussian noise is fixed at
one, and training runs for a fixed number of epochs on all observed cells.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from gpvae.gp.kernels import RBF, Cauchy
from gpvae.models.model import PLAIN, ModelConfig

Settings = Mapping[str, Any]  # keyword arguments of GPVAE, or changes to them by dotted path: {"model.beta": 0.2}

IMAGE_FILTERS = 32  # in the preprocessor of images: the paper gives no number, and more take longer


def _settings(model: ModelConfig, **training: Any) -> Settings:
    optimisation = {"batch_size": 64, "optimizer": "adam", "learning_rate": 1e-3, "anneal": False, "warm_up": 0.0}
    return MappingProxyType({"model": model, **optimisation, "window": 1024, "validation": 0.0, **training})


_MODEL = replace(PLAIN, learn_kernel=False, see_observed=False, see_times=False)

HEALING_MNIST = _settings(  # 10 × 784, values in [0, 1]
    replace(
        _MODEL,
        latent_dim=256,
        kernel=Cauchy(2.0),
        image_shape=(1, 28, 28),
        image_filters=IMAGE_FILTERS,
        encoder_filters=256,
        encoder_window=3,
        encoder_widths=(256,),
        decoder_widths=(256, 256, 256),
        likelihood="bernoulli",
        beta=0.8,
    ),
    epochs=20,
)

SPRITES = _settings(  # 8 × 12288, values in [0, 1], used as they are
    replace(
        _MODEL,
        latent_dim=256,
        kernel=Cauchy(2.0),
        image_shape=(3, 64, 64),
        image_filters=IMAGE_FILTERS,
        encoder_filters=32,
        encoder_window=3,
        encoder_widths=(256, 256),
        decoder_widths=(256, 256, 256),
        likelihood="gaussian",
        noise=1.0,
        beta=0.1,
    ),
    epochs=20,
    standardise=False,
)

PHYSIONET = _settings(  # 48 × 35, standardised
    replace(
        _MODEL,
        latent_dim=35,
        kernel=Cauchy(7.0),
        encoder_filters=128,
        encoder_window=24,
        encoder_widths=(128,),
        decoder_widths=(256, 256),
        likelihood="gaussian",
        noise=1.0,
        beta=0.2,
    ),
    epochs=40,
)

PRESETS: Mapping[str, Settings] = MappingProxyType(
    {"healing-mnist": HEALING_MNIST, "sprites": SPRITES, "physionet": PHYSIONET}
)

# The other latent models of the tables, as changes to a preset. VAE and HI-VAE encode each time step on its own and
# have no prior over time; the VAE also scores missing values, as zeros.
_EACH_STEP_ON_ITS_OWN = {
    "model.neighbours": 0,
    "model.jitter": 1e-6,
    "model.posterior": "diagonal",
    "model.encoder_window": 1,
}
VARIANTS: Mapping[str, Settings] = MappingProxyType(
    {
        "gp-vae": {},
        "gp-vae, RBF": {"model.kernel": RBF(2.0)},
        "hi-vae": _EACH_STEP_ON_ITS_OWN,
        "vae": {**_EACH_STEP_ON_ITS_OWN, "model.score_missing": True},
    }
)

QUICK: Settings = MappingProxyType(  # a small model for tests, trained for two epochs
    {
        "model.latent_dim": 8,
        "model.image_filters": 4,
        "model.encoder_filters": 16,
        "model.encoder_widths": (16,),
        "model.decoder_widths": (16,),
        "epochs": 2,
    }
)


@dataclass(frozen=True)
class Change:
    """Something that we do differently from the paper, with the same model."""

    name: str
    settings: Settings
    mechanisms: tuple[str, ...] = ()  # of missingness, if the change is only made for some


_MASK_AS_INPUT = Change("the encoder sees what is observed", {"model.see_observed": True})
_WARM_UP = Change("β rises over the first third of training", {"warm_up": 1 / 3})
# An assumption about the mechanism, to be made only where it holds: with missing patches it fills them with white.
_MISSING_BY_VALUE = Change(
    "the rates at which black and white go missing are learned", {"model.missing_by_value": True}, ("not-at-random",)
)
# Where missing pixels resemble their observed neighbours, what fits the observed pixels fits the missing ones. Where
# they do not, the prior must keep the latents from serving the observed pixels alone: for patches, β = 0.3 is worse
# than 0.8.
_LIKE_NEIGHBOURS = ("random", "temporal+", "temporal-")
_SMALLER_BETA = Change("β = 0.2", {"model.beta": 0.2}, _LIKE_NEIGHBOURS)
_LONGER = Change("40 epochs", {"epochs": 40}, _LIKE_NEIGHBOURS)
_MUCH_LONGER = Change("100 epochs", {"epochs": 100})
_SMALLER_NOISE = Change("noise 0.1 instead of 1", {"model.noise": 0.1})
_LEARNED_NOISE = Change("noise is learned for each column", {"model.noise": None})
_MASKING = Change("training hides 30 % of what is observed from the encoder", {"model.hide": 0.3})

CHANGES: Mapping[str, tuple[Change, ...]] = MappingProxyType(  # by data set, in the order in which we make them
    {
        "healing_mnist": (_MASK_AS_INPUT, _WARM_UP, _MISSING_BY_VALUE, _SMALLER_BETA, _LONGER),
        "sprites": (_MASK_AS_INPUT, _WARM_UP, _SMALLER_NOISE, _MUCH_LONGER),
        "physionet2012": (_MASK_AS_INPUT, _WARM_UP, _LEARNED_NOISE, _MASKING),
    }
)


def changed(settings: Settings, changes: Settings) -> dict[str, Any]:
    """`settings` with the values at dotted paths replaced: `changed(PHYSIONET, {"model.beta": 0.5, "epochs": 10})`."""
    for path, value in changes.items():
        settings = _replace_at(settings, path, value)
    return dict(settings)


def _replace_at(target: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    if isinstance(target, Mapping):
        return {**target, name: _replace_at(target[name], rest, value) if rest else value}
    return replace(target, **{name: _replace_at(getattr(target, name), rest, value) if rest else value})
