"""The default: the paper's model with attention over time, the nearest visible values, and Student's t."""

from gpvae.models.config import ModelConfig, Objective
from gpvae.models.encoders import Attention
from gpvae.models.likelihoods import Student
from gpvae.models.parts import NearestValues
from gpvae.models.prior import Prior

DEFAULT = ModelConfig(
    prior=Prior(learned=True),
    inputs=NearestValues(),
    encoder=Attention(),
    likelihood=Student(),
    objective=Objective(beta=None),
)
