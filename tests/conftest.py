import os
from dataclasses import replace
from typing import TYPE_CHECKING

# Read when PyTorch and NumPy are loaded, and inherited by subprocesses: on matrices as small as those here threads only
# wait for each other, and xdist has a worker on every core already.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported, so that its kernels run on a CPU

if TYPE_CHECKING:
    from gpvae import GPVAE

torch.set_num_threads(1)

# The library is imported inside the fixtures, so that tests of the paper's model need nothing of the default.


@pytest.fixture
def tiny() -> "GPVAE":
    """A default model that fits in a second."""
    from gpvae import DEFAULT, GPVAE
    from gpvae.models.encoders import Attention

    return GPVAE(replace(DEFAULT, latent_dim=3, encoder=Attention(16), decoder_widths=(16,)), epochs=6, device="cpu")


@pytest.fixture
def plain() -> "GPVAE":
    """The paper's model, small, with a learned prior and an encoder that sees what is observed."""
    from gpvae import GPVAE, ModelConfig
    from gpvae.models.encoders import Convolution
    from gpvae.models.inputs import Values
    from gpvae.models.prior import Prior
    from gpvae.training import recipe

    model = ModelConfig(
        latent_dim=3,
        prior=Prior(learned=True),
        inputs=Values(observed=True, steps=True),
        encoder=Convolution(16, 5, (16,)),
        decoder_widths=(16,),
    )
    return GPVAE(model, recipe=recipe.PLAIN, epochs=6, device="cpu")


@pytest.fixture
def waves() -> NDArray[np.float64]:
    """Twelve series of 30 steps and three columns in different units, with a quarter of the cells missing."""
    rng = np.random.default_rng(0)
    phase, steps = rng.uniform(0, 6, (12, 1, 3)), np.arange(30)[None, :, None]
    values = np.sin(steps / 4 + phase) * [1, 10, 0.01] + [0, 500, -3] + rng.normal(size=(12, 30, 3)) * [0.1, 1, 0.001]
    return np.where(rng.random(values.shape) < 0.25, np.nan, values)
