"""Fill the gaps of multivariate time series, and say how sure it is: the GP-VAE of Fortuin et al. (AISTATS 2020)."""

import os
from importlib.metadata import version

__version__ = version("gpvae")

# PyTorch's threads (GNU OpenMP), idle between operations, spin for milliseconds by default. Beside other work on the
# same cores that makes training ten times as slow; asleep after microseconds, it is as fast where there is none. Read
# once, when PyTorch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

from gpvae import evaluation, paper
from gpvae.baselines import BRITS, GP, GRUIGAN, Forward, Linear, Mean
from gpvae.conformal import Conformal
from gpvae.files import read
from gpvae.imputation import Imputation
from gpvae.imputer import Imputer, load
from gpvae.latent import GPVAE, HI_VAE, VAE
from gpvae.model import ModelConfig
from gpvae.panel import DataError, Panel

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
