"""Fill the gaps of multivariate time series, and say how sure it is: the GP-VAE of Fortuin et al. (AISTATS 2020)."""

from importlib.metadata import version

__version__ = version("gpvae")

from gpvae import paper
from gpvae.files import read
from gpvae.imputation import Imputation
from gpvae.imputer import GPVAE
from gpvae.model import ModelConfig
from gpvae.panel import DataError, Panel

__all__ = ["GPVAE", "DataError", "Imputation", "ModelConfig", "Panel", "paper", "read"]
