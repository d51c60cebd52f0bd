"""The paper's own settings as data: its tables S1, S2 and S3. Use as `GPVAE(**paper.PHYSIONET)`.

They keep to the paper where our defaults do not: the encoder sees zeros for missing values and nothing else, the
Gaussian noise is fixed at one, training runs for a fixed number of epochs on all observed cells.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpvae.kernels import Cauchy
from gpvae.model import ModelConfig


def _settings(model: ModelConfig, **training: Any) -> Mapping[str, Any]:
    always = {"batch_size": 64, "learning_rate": 1e-3, "window": 1024, "warm_up": 0.0, "validation": 0.0}
    return MappingProxyType({"model": model, **always, **training})


HEALING_MNIST = _settings(  # 10 × 784, values in [0, 1]
    ModelConfig(
        latent_dim=256,
        kernel=Cauchy(2.0),
        image_shape=(1, 28, 28),
        image_filters=256,
        encoder_filters=256,
        encoder_window=3,
        encoder_widths=(256,),
        decoder_widths=(256, 256, 256),
        likelihood="bernoulli",
        beta=0.8,
        learn_kernel=False,
        see_observed=False,
        see_times=False,
    ),
    epochs=20,
)

SPRITES = _settings(  # 8 × 12288, values in [0, 1], used as they are
    ModelConfig(
        latent_dim=256,
        kernel=Cauchy(2.0),
        image_shape=(3, 64, 64),
        image_filters=256,
        encoder_filters=32,
        encoder_window=3,
        encoder_widths=(256, 256),
        decoder_widths=(256, 256, 256),
        likelihood="gaussian",
        noise=1.0,
        beta=0.1,
        learn_kernel=False,
        see_observed=False,
        see_times=False,
    ),
    epochs=20,
    standardise=False,
)

PHYSIONET = _settings(  # 48 × 35, standardised
    ModelConfig(
        latent_dim=35,
        kernel=Cauchy(7.0),
        encoder_filters=128,
        encoder_window=24,
        encoder_widths=(128,),
        decoder_widths=(256, 256),
        likelihood="gaussian",
        noise=1.0,
        beta=0.2,
        learn_kernel=False,
        see_observed=False,
        see_times=False,
    ),
    epochs=40,
)

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"healing-mnist": HEALING_MNIST, "sprites": SPRITES, "physionet": PHYSIONET}
)
