"""What the paper compares with, each under the same contract as the GP-VAE."""

from gpvae.baselines.brits import BRITS
from gpvae.baselines.gp import GP
from gpvae.baselines.grui_gan import GRUIGAN
from gpvae.baselines.simple import Forward, Linear, Mean

__all__ = ["BRITS", "GP", "GRUIGAN", "Forward", "Linear", "Mean"]
