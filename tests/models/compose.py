"""Small models and batches for the tests of this room."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Generator, Tensor

from gpvae.data.batches import Batch
from gpvae.gp.kernels import Cauchy
from gpvae.models.config import ModelConfig
from gpvae.models.encoders import Convolution
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.loss import Loss
from gpvae.models.prior import Prior

PAPER = ModelConfig(
    latent_dim=3,
    prior=Prior(Cauchy(2.0), learned=True),
    encoder=Convolution(filters=8, window=4, widths=(8,)),
    decoder_widths=(8,),
)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_batch(series: int = 4, time: int = 9, features: int = 2, *, grid: bool = True) -> Batch:
    values = torch.randn(series, time, features, generator=seeded(1))
    observed = torch.rand(series, time, features, generator=seeded(2)) < 0.6
    steps = 0.2 + torch.rand(series, time, generator=seeded(3), dtype=torch.float64)
    times = 1.0 if grid else steps.cumsum(-1)
    return Batch(values * observed, observed, times, torch.full((series,), time))


def ragged(batch: Batch, lengths: list[int]) -> Batch:
    """The same with series of these lengths."""
    length = torch.tensor(lengths)
    inside = (torch.arange(batch.values.shape[1]) < length.unsqueeze(-1)).unsqueeze(-1)
    return replace(batch, values=batch.values * inside, observed=batch.observed & inside, lengths=length)


def model_of(
    config: ModelConfig = PAPER, features: int = 2, kinds: Sequence[str] = (), levels: Sequence[int] = ()
) -> GPVAEModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return config.resolve(features, 1.0).build(kinds or ["real"] * features, levels)


def loss_of(
    model: GPVAEModel,
    target: Batch,
    visible: Batch | None = None,
    *,
    draws: tuple[int, ...] = (1,),
    beta: float = 1.0,
    visible_weight: float = 1.0,
    noise: Tensor | None = None,
) -> Loss:
    """The negative bound, importance-weighted for `draws` (M, K)."""
    if noise is None:
        noise = model.sample_noise((*draws, *target.values.shape[:2]), seeded())
    prior = model.prior.at(target.times, steps=target.values.shape[1])
    bound = model.elbo if noise.ndim == 4 else model.importance_weighted
    seen = target if visible is None else visible
    return bound(seen, target, prior=prior, noise=noise, beta=beta, visible_weight=visible_weight)
