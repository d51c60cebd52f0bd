"""What the paper compares with, each under the same contract as the GP-VAE."""

from gpvae.baselines.gp import GP
from gpvae.baselines.simple import Forward, Linear, Mean

__all__ = ["GP", "Forward", "Linear", "Mean"]
