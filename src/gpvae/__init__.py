"""Fill the gaps of multivariate time series, and say how sure it is: the GP-VAE of Fortuin et al. (AISTATS 2020)."""

import os
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpvae import evaluation, paper
    from gpvae.data.files import read
    from gpvae.data.gaps import GapSelection
    from gpvae.data.panel import DataError, Panel
    from gpvae.data.reading import Reading
    from gpvae.evaluation import evaluate
    from gpvae.imputers.base import Imputer, load
    from gpvae.imputers.brits import BRITS
    from gpvae.imputers.conformal import Conformal
    from gpvae.imputers.factor import GPFactor
    from gpvae.imputers.gp import GP
    from gpvae.imputers.gp_net import GPNet
    from gpvae.imputers.gpvae import GPVAE, HI_VAE, VAE
    from gpvae.imputers.grui_gan import GRUIGAN
    from gpvae.imputers.imputation import Imputation
    from gpvae.imputers.pooling import pool
    from gpvae.imputers.simple import Forward, Linear, Mean
    from gpvae.models.config import ModelConfig
    from gpvae.models.default import DEFAULT
    from gpvae.training.masking import Masking
    from gpvae.training.recipe import DEFAULT_RECIPE, Recipe

__version__ = version("gpvae")
__all__ = [
    "BRITS",
    "DEFAULT",
    "DEFAULT_RECIPE",
    "GP",
    "GPVAE",
    "GRUIGAN",
    "HI_VAE",
    "VAE",
    "Conformal",
    "DataError",
    "Forward",
    "GPFactor",
    "GPNet",
    "GapSelection",
    "Imputation",
    "Imputer",
    "Linear",
    "Masking",
    "Mean",
    "ModelConfig",
    "Panel",
    "Reading",
    "Recipe",
    "evaluate",
    "evaluation",
    "load",
    "paper",
    "pool",
    "read",
]

# PyTorch's threads (GNU OpenMP), idle between operations, spin for milliseconds by default. Beside other work on the
# same cores that makes training ten times as slow; asleep after microseconds, it is as fast where there is none. Read
# once, when PyTorch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Names are imported when they are first asked for: PyTorch takes seconds to load, and an answer to `gpvae --help` or to
# a file that is not there needs none of it.
_HOMES = {
    **dict.fromkeys(("Forward", "Linear", "Mean"), "gpvae.imputers.simple"),
    "BRITS": "gpvae.imputers.brits",
    "GP": "gpvae.imputers.gp",
    "GPFactor": "gpvae.imputers.factor",
    "GPNet": "gpvae.imputers.gp_net",
    "GRUIGAN": "gpvae.imputers.grui_gan",
    **dict.fromkeys(("GPVAE", "HI_VAE", "VAE"), "gpvae.imputers.gpvae"),
    **dict.fromkeys(("Imputer", "load"), "gpvae.imputers.base"),
    **dict.fromkeys(("DataError", "Panel"), "gpvae.data.panel"),
    "GapSelection": "gpvae.data.gaps",
    "evaluate": "gpvae.evaluation",
    "Conformal": "gpvae.imputers.conformal",
    "Imputation": "gpvae.imputers.imputation",
    "pool": "gpvae.imputers.pooling",
    "DEFAULT": "gpvae.models.default",
    "Masking": "gpvae.training.masking",
    "ModelConfig": "gpvae.models.config",
    **dict.fromkeys(("DEFAULT_RECIPE", "Recipe"), "gpvae.training.recipe"),
    "Reading": "gpvae.data.reading",
    "read": "gpvae.data.files",
}


if not TYPE_CHECKING:  # which would take any name for one of ours

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            found = getattr(import_module(_HOMES[name]), name)
        elif name.isidentifier() and not name.startswith("_") and find_spec(f"gpvae.{name}"):
            found = import_module(f"gpvae.{name}")
        else:
            raise AttributeError(f"module 'gpvae' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
