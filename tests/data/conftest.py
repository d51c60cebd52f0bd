"""A model fitted to a table with columns of every kind."""

from dataclasses import replace

import pytest
from ward import KINDS, ward, with_gaps

from gpvae import DEFAULT, GPVAE
from gpvae.models.encoders import Attention
from gpvae.training import recipe


@pytest.fixture(scope="session")
def fitted() -> GPVAE:
    model = replace(DEFAULT, latent_dim=4, encoder=Attention(32), decoder_widths=(32,))
    holey, _ = with_gaps(ward())
    return GPVAE(
        model, kinds=KINDS, recipe=replace(recipe.DEFAULT_RECIPE, learning_rate=5e-3), epochs=150, device="cpu"
    ).fit(holey)
