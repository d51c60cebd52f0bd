"""The imputers that the contract tests run over, small and briefly trained. A new method costs an entry here."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, cast

from sklearn.base import clone

from gpvae import BRITS, DEFAULT, GP, GPVAE, GRUIGAN, Conformal, Forward, GPFactor, GPNet, Imputer, Linear, Mean, Recipe
from gpvae.imputers.neural import NeuralImputer
from gpvae.models import config
from gpvae.models.config import ModelConfig
from gpvae.models.encoders import Attention, Convolution
from gpvae.training import recipe as recipes

AnyImputer = TypeVar("AnyImputer", bound=Imputer)

SMALL = replace(DEFAULT, latent_dim=3, encoder=Attention(width=16), decoder_widths=(16,))
SMALL_STEPWISE = Convolution(filters=16, window=1, widths=(16,))


def brief(recipe: Recipe = Recipe(), **changes: Any) -> dict[str, Any]:
    """Settings of a training of four epochs, with a validation score after each."""
    return {"epochs": 4, "device": "cpu", "recipe": replace(recipe, patience=9, **changes)}


def stepwise(model: ModelConfig) -> GPVAE:
    small = replace(model, latent_dim=3, encoder=SMALL_STEPWISE, decoder_widths=(16,))
    return GPVAE(small, **brief(recipes.PLAIN))


IMPUTERS: dict[str, Callable[[], Imputer]] = {
    "mean": Mean,
    "forward": Forward,
    "linear": Linear,
    "gp": lambda: GP(**brief(window=16)),
    "gp-factor": GPFactor,
    "gp-net": GPNet,
    "vae": lambda: stepwise(config.VAE),
    "hi-vae": lambda: stepwise(config.HI_VAE),
    "gp-vae": lambda: GPVAE(SMALL, **brief(recipes.DEFAULT_RECIPE)),
    "gp-vae, positive": lambda: GPVAE(SMALL, kinds={"x1": "positive"}, **brief(recipes.DEFAULT_RECIPE)),
    "brits": lambda: BRITS(hidden=8, **brief(batch_size=32)),
    "grui-gan": lambda: GRUIGAN(hidden=8, noise_dim=8, fill_steps=5, **brief(learning_rate=3e-3)),
    "conformal linear": lambda: Conformal(Linear()),
    "conformal gp-factor": lambda: Conformal(GPFactor()),
    "conformal gp": lambda: Conformal(GP(**brief(window=16))),
    "conformal brits": lambda: Conformal(BRITS(hidden=8, **brief(batch_size=32))),
    "conformal gp-vae": lambda: Conformal(GPVAE(SMALL, **brief(recipes.DEFAULT_RECIPE))),
}
ANY_NUMBERS = [name for name in IMPUTERS if "positive" not in name]  # whatever the numbers and the names of columns
TRAINED = [name for name, make in IMPUTERS.items() if isinstance(make(), NeuralImputer)]


def fresh(imputer: AnyImputer) -> AnyImputer:
    """The same settings, not fitted."""
    return cast(AnyImputer, clone(imputer))


def has_intervals(imputer: Imputer) -> bool:
    return imputer.gives_distributions or isinstance(imputer, Conformal)
