"""A model fitted to a table with columns of every kind."""

import pytest
from ward import KINDS, ward, with_gaps

from gpvae import GPVAE, ModelConfig


@pytest.fixture(scope="session")
def fitted() -> GPVAE:
    model = ModelConfig(latent_dim=4, encoder_filters=32, encoder_window=9, encoder_widths=(32,), decoder_widths=(32,))
    holey, _ = with_gaps(ward())
    return GPVAE(model, kinds=KINDS, epochs=150, learning_rate=5e-3, device="cpu").fit(holey)
