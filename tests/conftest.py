import os
from dataclasses import replace

# Read when PyTorch and NumPy are loaded, and inherited by subprocesses: on matrices as small as those here threads only
# wait for each other, and xdist has a worker on every core already.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")  # before Triton is imported, so that its kernels run on a CPU

from gpvae import GPVAE, ModelConfig
from gpvae.models.model import PLAIN

torch.set_num_threads(1)


@pytest.fixture
def tiny() -> GPVAE:
    """A model that fits in a second."""
    return GPVAE(ModelConfig(latent_dim=3, encoder_filters=16, decoder_widths=(16,)), epochs=6, device="cpu")


@pytest.fixture
def plain() -> GPVAE:
    """A small model with the paper's bound: Gaussian noise, nothing hidden in training."""
    sizes = {"latent_dim": 3, "encoder_filters": 16, "encoder_window": 5, "encoder_widths": (16,)}
    return GPVAE(replace(PLAIN, **sizes, decoder_widths=(16,)), epochs=6, anneal=False, device="cpu")


@pytest.fixture
def waves() -> NDArray[np.float64]:
    """Twelve series of 30 steps and three columns in different units, with a quarter of the cells missing."""
    rng = np.random.default_rng(0)
    phase, steps = rng.uniform(0, 6, (12, 1, 3)), np.arange(30)[None, :, None]
    values = np.sin(steps / 4 + phase) * [1, 10, 0.01] + [0, 500, -3] + rng.normal(size=(12, 30, 3)) * [0.1, 1, 0.001]
    return np.where(rng.random(values.shape) < 0.25, np.nan, values)
