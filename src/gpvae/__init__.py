"""Fill the gaps of multivariate time series, and say how sure it is: the GP-VAE of Fortuin et al. (AISTATS 2020)."""

import os
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpvae import evaluation, paper
    from gpvae.baselines import BRITS, GP, GRUIGAN, Forward, Linear, Mean
    from gpvae.conformal import Conformal
    from gpvae.files import read
    from gpvae.imputation import Imputation
    from gpvae.imputer import Imputer, load
    from gpvae.latent import GPVAE, HI_VAE, VAE
    from gpvae.model import ModelConfig
    from gpvae.panel import DataError, Panel

__version__ = version("gpvae")
__all__ = [
    "BRITS",
    "GP",
    "GPVAE",
    "GRUIGAN",
    "HI_VAE",
    "VAE",
    "Conformal",
    "DataError",
    "Forward",
    "Imputation",
    "Imputer",
    "Linear",
    "Mean",
    "ModelConfig",
    "Panel",
    "evaluation",
    "load",
    "paper",
    "read",
]

# PyTorch's threads (GNU OpenMP), idle between operations, spin for milliseconds by default. Beside other work on the
# same cores that makes training ten times as slow; asleep after microseconds, it is as fast where there is none. Read
# once, when PyTorch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# Names are imported when they are first asked for: PyTorch takes seconds to load, and an answer to `gpvae --help` or to
# a file that is not there needs none of it.
_HOMES = {
    **dict.fromkeys(("BRITS", "GP", "GRUIGAN", "Forward", "Linear", "Mean"), "gpvae.baselines"),
    **dict.fromkeys(("GPVAE", "HI_VAE", "VAE"), "gpvae.latent"),
    **dict.fromkeys(("Imputer", "load"), "gpvae.imputer"),
    **dict.fromkeys(("DataError", "Panel"), "gpvae.panel"),
    "Conformal": "gpvae.conformal",
    "Imputation": "gpvae.imputation",
    "ModelConfig": "gpvae.model",
    "read": "gpvae.files",
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
