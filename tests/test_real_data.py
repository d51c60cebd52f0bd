"""On real tables as they are published, read from the folder that GPVAE_DATA names."""

import os
from pathlib import Path

import numpy as np
import pytest

from gpvae import GPVAE, DataError, ModelConfig, Panel, read
from gpvae.files import read_table

DATA = os.environ.get("GPVAE_DATA")
pytestmark = pytest.mark.skipif(not DATA, reason="GPVAE_DATA names no folder with the real data")


def test_beijing_station_is_read_and_filled() -> None:
    (path,) = Path(DATA or "").glob("beijing_multisite/PRSA_Data_Dongsi_*.csv.gz")
    columns = ["PM2.5", "CO", "TEMP", "PRES"]
    panel = read(path, time="No", columns=columns)
    assert panel.values.shape == (35064, 4)
    assert panel.observed.mean(axis=0).round(3).tolist() == [0.979, 0.909, 0.999, 0.999]
    first = Panel.from_frame(panel.fill(panel.values), time="No", columns=columns)
    assert np.array_equal(first.values, panel.values, equal_nan=True)
    model = GPVAE(ModelConfig(latent_dim=4, decoder_widths=(32,)), epochs=1, device="cpu").fit(panel)
    filled = model.impute(panel, samples=2)
    assert np.isfinite(filled.mean).all()
    assert np.array_equal(filled.mean[panel.observed], panel.values[panel.observed])


def test_italian_air_quality_with_semicolons_and_decimal_commas() -> None:
    """Its dates alone are no times (24 rows have the same), and its last rows are empty: said, not guessed."""
    path = Path(DATA or "") / "air_quality_uci" / "AirQualityUCI.csv.gz"
    table = read_table(path).table
    assert [table[name][0].as_py() for name in ("CO(GT)", "T", "AH", "RH")] == [2.6, 13.6, 0.7578, 48.9]
    with pytest.raises(DataError, match=r"AirQualityUCI.csv.gz: the time in column 'Date' is missing in row 9358"):
        read(path)
