"""All methods by name, and what each can do. Reading this list does not load PyTorch.

A new method is a file in this folder and an entry here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpvae.imputers.base import Imputer

TRAINING_SETTINGS = ("epochs", "recipe", "standardise", "precision", "device", "seed", "verbose")
SETTINGS = (*TRAINING_SETTINGS, "minutes", "known")  # that only some methods take


@dataclass(frozen=True)
class MethodInfo:
    """A method and its capabilities."""

    summary: str
    loads: str  # "module:attribute", called with settings
    takes: tuple[str, ...] = TRAINING_SETTINGS  # which of `SETTINGS`
    distributions: bool = False  # gives draws and intervals, or single values
    kinds: bool = False  # fills columns of any kind
    numbers: bool = False  # knows kinds of numbers: bounds, whole numbers, two values
    categories: bool = False  # fills columns of categories
    causal: bool = False  # fills each row from the past alone, if asked to
    compared: bool = False  # by `evaluate`, by default

    @property
    def trained(self) -> bool:
        """Whether it is a network that is trained by a recipe."""
        return "recipe" in self.takes

    def load(self) -> Any:
        module, _, attribute = self.loads.partition(":")
        return getattr(import_module(module), attribute)


_SIMPLE: dict[str, Any] = {"takes": (), "categories": True, "compared": True}
_LATENT: dict[str, Any] = {"distributions": True, "kinds": True, "categories": True}

METHODS: Mapping[str, MethodInfo] = MappingProxyType(
    {
        "mean": MethodInfo("the mean of the column in the series", "gpvae.imputers.simple:Mean", **_SIMPLE),
        "forward": MethodInfo("the last observed value", "gpvae.imputers.simple:Forward", causal=True, **_SIMPLE),
        "linear": MethodInfo("the line between neighbours", "gpvae.imputers.simple:Linear", **_SIMPLE),
        "gp": MethodInfo("a Gaussian process for each column", "gpvae.imputers.gp:GP", distributions=True),
        "gp-factor": MethodInfo(
            "an exact Gaussian process over all columns",
            "gpvae.imputers.factor:GPFactor",
            takes=("known",),
            distributions=True,
            causal=True,
            compared=True,
        ),
        "gp-net": MethodInfo(
            "gp-factor corrected by a network, the default",
            "gpvae.imputers.gp_net:GPNet",
            takes=("known", "minutes", "seed", "verbose"),
            distributions=True,
            numbers=True,
            compared=True,
        ),
        "vae": MethodInfo("a VAE on each step", "gpvae.imputers.gpvae:vae", **_LATENT),
        "hi-vae": MethodInfo("a VAE on what is observed of each step", "gpvae.imputers.gpvae:hi_vae", **_LATENT),
        "grui-gan": MethodInfo("a recurrent GAN", "gpvae.imputers.grui_gan:GRUIGAN"),
        "brits": MethodInfo("a recurrent network each way", "gpvae.imputers.brits:BRITS"),
        "gp-vae": MethodInfo("the GP-VAE, a VAE with attention over time", "gpvae.imputers.gpvae:GPVAE", **_LATENT),
    }
)

COMPARED = tuple(name for name, info in METHODS.items() if info.compared)
CAUSAL = tuple(name for name, info in METHODS.items() if info.causal)
NOT_CAUSAL = f"does not fill from the past alone; methods that do: {', '.join(CAUSAL)}"
FILL_CATEGORIES = tuple(name for name, info in METHODS.items() if info.categories)


def method(name: str, **settings: Any) -> "Imputer":
    """An imputer by its name; settings that only other methods take are dropped."""
    if name not in METHODS:
        raise ValueError(f"there is no method {name!r}; there are {', '.join(METHODS)}")
    info = METHODS[name]
    settings = {key: value for key, value in settings.items() if key in info.takes or key not in SETTINGS}
    return info.load()(**settings)


def import_all() -> None:
    """Import every imputer, so that saved ones are found by name."""
    import_module("gpvae.imputers.conformal")
    for info in METHODS.values():
        info.load()
