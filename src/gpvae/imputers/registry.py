"""The methods by name, with their default settings."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from gpvae.imputers.base import Imputer
from gpvae.imputers.brits import BRITS
from gpvae.imputers.gp import GP
from gpvae.imputers.gpvae import GPVAE, HI_VAE, VAE
from gpvae.imputers.grui_gan import GRUIGAN
from gpvae.imputers.neural import Trained
from gpvae.imputers.simple import Forward, Linear, Mean

PLAIN_STEPS = {"optimizer": "adam", "learning_rate": 1e-3, "anneal": False}
SIMPLE: dict[str, Callable[..., Imputer]] = {"mean": Mean, "forward": Forward, "linear": Linear}
TRAINED: dict[str, Callable[..., Imputer]] = {
    "gp": GP,
    "vae": lambda **settings: GPVAE(VAE, **{**PLAIN_STEPS, **settings}),
    "hi-vae": lambda **settings: GPVAE(HI_VAE, **{**PLAIN_STEPS, **settings}),
    "grui-gan": GRUIGAN,
    "brits": BRITS,
    "gp-vae": GPVAE,
}
NAMES = (*SIMPLE, *TRAINED)
COMPARED = ("mean", "forward", "linear", "gp-vae")  # unless something else is asked for


def method(name: str, **settings: Any) -> Imputer:
    """An imputer by its name; settings of training are passed over where nothing is trained."""
    if name not in NAMES:
        raise ValueError(f"there is no method {name!r}; there are {', '.join(NAMES)}")
    if name in TRAINED:
        return TRAINED[name](**settings)
    of_training = {field.name for field in fields(Trained)}
    return SIMPLE[name](**{key: value for key, value in settings.items() if key not in of_training})
