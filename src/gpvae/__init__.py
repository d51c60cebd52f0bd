"""Fill the gaps of multivariate time series, and say how sure it is: the GP-VAE of Fortuin et al. (AISTATS 2020)."""

from importlib.metadata import version

__version__ = version("gpvae")

from gpvae import paper
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
    "load",
    "paper",
    "read",
]
