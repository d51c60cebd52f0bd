"""Known figures of the published files; they need the real data."""

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpvae.datasets import available, healing_mnist, load, physionet, raw, sprites

DATA = os.environ.get("GPVAE_DATA")
pytestmark = [
    pytest.mark.usefixtures("cache"),
    pytest.mark.skipif(not DATA, reason="GPVAE_DATA names no folder with the real data"),
]


@pytest.mark.slow
class TestRealFiles:
    """Known figures of the published files."""

    def test_all_files_are_there(self) -> None:
        assert all(each.present for each in available(DATA))

    @pytest.mark.parametrize(
        ("name", "shape", "missing"),
        [
            ("beijing", (12 * 35064, 11), 72_205),
            ("pm25", (8759, 36), 77_508),
            ("air_quality", (9357, 13), 16_701),
            ("ett_h1", (17420, 7), 0),
            ("ett_h2", (17420, 7), 0),
            ("ett_m1", (69680, 7), 0),
            ("ett_m2", (69680, 7), 0),
        ],
    )
    def test_tables(self, name: str, shape: tuple[int, int], missing: int) -> None:
        data = load(name, DATA)
        assert data.panel.values.shape == shape
        assert np.isnan(data.panel.values).sum() == missing
        assert np.ptp(data.panel.time_steps) == 0
        if name == "pm25":
            assert data.held_out.sum() == 35_737

    def test_physionet(self) -> None:
        data = load("physionet2012", DATA)
        assert data.panel.values.shape == (12_000 * 48, 35)
        assert 1 - data.panel.observed.mean() == pytest.approx(0.805, abs=5e-4)
        assert data.labels is not None
        assert [int(data.labels[series].sum()) for series in data.splits.values()] == [554, 568, 585]
        first = dict(zip(data.panel.columns, np.nanmean(data.only("train").panel.values, axis=0), strict=True))
        assert first["HR"] == pytest.approx(86.7232041323, rel=1e-11)
        assert first["DiasABP"] == pytest.approx(59.540976152469405, rel=1e-13)

    def test_physionet_has_rows_without_a_parameter(self) -> None:
        lines = b"".join(raw.read(physionet._SETS["test"].patients, DATA).values()).splitlines()
        assert sum(line.split(b",")[1] == b"" for line in lines) == 2403

    def test_sample_character(self) -> None:
        """Body 0, bottom 1, top 2, hair 3: rows are actions, columns frames."""
        with Image.open(Path(DATA or "") / "sprites" / "sample_character_0123.png") as image:
            sample = np.array(image).reshape(9, 64, 8, 64, 3).transpose(0, 2, 4, 1, 3)
        layers = sprites.read_layers(raw.read(sprites._RAW, DATA))
        character = 1 * 36 + 2 * 6 + 3
        assert np.array_equal(sprites.compose(layers, character * 9 + np.arange(9)), sample.reshape(9, 8, -1))

    def test_characters_are_all_distinct(self) -> None:
        layers = sprites.read_layers(raw.read(sprites._RAW, DATA))
        walking = sprites.compose(layers, range(0, 11_664, 9))
        assert len({hashlib.sha256(frames).digest() for frames in walking}) == 1296

    def test_healing_mnist(self) -> None:
        data_folder = Path(DATA or "") / "mnist"
        digits = healing_mnist.read_images(data_folder / "t10k-images-idx3-ubyte.gz")
        assert digits.shape == (10_000, 28, 28)
        frames = healing_mnist.rotated(digits[:200], 0, first=60_000)
        assert (
            hashlib.sha256(frames.tobytes()).hexdigest()
            == "c7f6c213b00ee347188fad3c8e5532223a15ec174e12b94d2be2f1cf0d3dbf31"
        )

    def test_labels_of_digits(self) -> None:
        labels = [healing_mnist._labels(part, DATA, verbose=False) for part in healing_mnist._PARTS.values()]
        assert [len(each) for each in labels] == [50_000, 10_000, 10_000]
        assert labels[2][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
