"""Healing MNIST and SPRITES."""

import gzip
import hashlib
import io
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from published import checked, lay, zipped
from scipy.ndimage import rotate

from gpvae import DataError
from gpvae.datasets import healing_mnist, sprites
from gpvae.datasets.raw import RawFiles

pytestmark = pytest.mark.usefixtures("cache")


def idx(array: NDArray[np.uint8]) -> bytes:
    return gzip.compress(struct.pack(f">{1 + array.ndim}i", 2048 + array.ndim, *array.shape) + array.tobytes(), mtime=0)


def strokes(count: int) -> NDArray[np.uint8]:
    """Smooth blobs with the brightness of digits."""
    rng = np.random.default_rng(count)
    y, x = np.mgrid[:28, :28]
    centres = rng.uniform(8, 20, (count, 4, 2, 1, 1))
    distance = ((y - centres[:, :, 0]) ** 2 + (x - centres[:, :, 1]) ** 2) / 8
    return np.clip(400 * np.exp(-distance).sum(axis=1), 0, 255).astype(np.uint8)


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three digits for training, two for validation, four for the test."""
    digits: dict[str, healing_mnist._Digits] = {}
    for name, count in (("train", 5), ("t10k", 4)):
        files = {
            f"{name}-images-idx3-ubyte.gz": idx(strokes(count)),
            f"{name}-labels-idx1-ubyte.gz": idx(np.arange(count, dtype=np.uint8)),
        }
        lay(tmp_path / "data" / "mnist", files)
        sources = [
            RawFiles("mnist", "", {each: hashlib.sha256(content).hexdigest()}) for each, content in files.items()
        ]
        digits[name] = healing_mnist._Digits(*sources)
    parts = {
        "train": healing_mnist._Part(digits["train"], 0, 3, 0),
        "validation": healing_mnist._Part(digits["train"], 3, 5, 3),
        "test": healing_mnist._Part(digits["t10k"], 0, 4, 5),
    }
    monkeypatch.setattr(healing_mnist, "_PARTS", parts)
    return tmp_path / "data"


class TestHealingMNIST:
    def test_each_frame_rotates_the_one_before(self) -> None:
        images = strokes(7)
        angles = np.random.default_rng(3).normal(0, healing_mnist.DEGREES, (7, 10))
        frames = healing_mnist.rotated(images, 3)
        for image, steps, sequence in zip(images, angles, frames, strict=True):
            turning = image
            for angle, frame in zip(steps, sequence, strict=True):
                turning = rotate(turning, angle, reshape=False)
                assert np.array_equal(frame, (turning > 127).ravel())
        assert 0.02 < frames.mean() < 0.5

    def test_bytes_depend_on_the_seed_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        images = strokes(9)
        once = healing_mnist.rotated(images, 0, workers=1)
        monkeypatch.setattr(healing_mnist, "_CHUNK", 2)
        assert np.array_equal(healing_mnist.rotated(images, 0, workers=3, verbose=True), once)
        assert np.array_equal(healing_mnist.rotated(images[4:], 0, first=4), once[4:])
        assert not np.array_equal(healing_mnist.rotated(images, 1), once)

    def test_loaded(self, mnist: Path) -> None:
        data = healing_mnist.load(mnist, seed=2)
        assert {name: series.tolist() for name, series in data.splits.items()} == {
            "train": [0, 1, 2],
            "validation": [3, 4],
            "test": [5, 6, 7, 8],
        }
        assert data.labels is not None
        assert data.labels.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
        assert (data.image_shape, data.panel.values.dtype) == ((1, 28, 28), np.float32)
        whole = np.concatenate([strokes(5), strokes(4)])
        assert np.array_equal(data.panel.values.reshape(9, 10, 784), healing_mnist.rotated(whole, 2))
        assert data.truth is data.panel.values
        assert data.only("test").panel.ids == (5, 6, 7, 8)

    def test_a_part(self, mnist: Path) -> None:
        whole, part = healing_mnist.load(mnist), healing_mnist.load(mnist, splits=["test", "train"], count=2)
        assert part.panel.ids == (5, 6, 0, 1)
        assert np.array_equal(part.only("test").truth, whole.only("test").truth[:20])

    def test_built_once_with_the_same_bytes(
        self, mnist: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        healing_mnist.load(mnist, splits=["test"])
        (file,) = (cache / "built").iterdir()
        assert file.name == "healing_mnist-test-seed0-v2.npy"
        monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "other"))
        healing_mnist.load(mnist, splits=["test"])
        assert (tmp_path / "other" / "built" / file.name).read_bytes() == file.read_bytes()
        monkeypatch.setattr(healing_mnist, "rotated", lambda *_, **__: pytest.fail("rotated again"))
        healing_mnist.load(mnist, splits=["test"])

    def test_damaged_digits(self, mnist: Path, tmp_path: Path) -> None:
        path = mnist / "mnist" / "t10k-images-idx3-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz is damaged"):
            healing_mnist.load(mnist, splits=["test"])
        with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz does not hold MNIST's images"):
            healing_mnist.read_images(path)
        with pytest.raises(DataError, match=r"none.gz cannot be read"):
            healing_mnist.read_images(tmp_path / "none.gz")


def sheets() -> dict[str, bytes]:
    """Sheets of a few blocks of colour, in every degree of transparency."""
    rng = np.random.default_rng(0)
    names = [f"{part}/{i}.png" for part in ("body", "bottomwear", "topwear", "hair") for i in range(6)]
    files: dict[str, bytes] = {}
    for name in [*names, "shoes/1.png"]:
        blocks = rng.integers(0, 256, (21 * 4, 13 * 4, 4), dtype=np.uint8)
        blocks[..., 3] = rng.choice([0, 0, 83, 253, 255], blocks.shape[:2]) if name != "shoes/1.png" else 255
        blocks[rng.random(blocks.shape[:2]) < 0.5] = 0
        packed = io.BytesIO()
        Image.fromarray(blocks.repeat(16, axis=0).repeat(16, axis=1)).save(packed, "PNG")
        files[name] = packed.getvalue()
    return files


def pillow(files: Mapping[str, bytes], sequence: int) -> NDArray[np.uint8]:
    """As the authors of SPRITES compose a sequence. (frame, channel, height, width)"""
    character, action = divmod(sequence, 9)
    body, bottom, top, hair = (character // unit % 6 for unit in (216, 36, 6, 1))
    names = [f"body/{body}", f"bottomwear/{bottom}", f"topwear/{top}", f"hair/{hair}", "shoes/1"]
    canvas = Image.new("RGBA", (13 * 64, 21 * 64), "black")
    for name in names:
        with Image.open(io.BytesIO(files[f"{name}.png"])) as image:
            canvas = Image.alpha_composite(canvas, image.convert("RGBA"))
    row = (8, 0, 12)[action // 3] + (2, 1, 3)[action % 3]
    columns = [(8, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5, 4, 6), (0, 1, 2, 3, 4, 5, 4, 0)][action // 3]
    sheet = np.array(canvas.convert("RGB"))
    return np.stack([sheet[row * 64 :, c * 64 :][:64, :64].transpose(2, 0, 1) for c in columns])


@pytest.fixture(scope="module")
def drawn() -> dict[str, bytes]:
    return sheets()


class TestSprites:
    def test_sprites_are_composed_as_by_pillow(self, drawn: dict[str, bytes]) -> None:
        numbers = [0, 5, 1000, 7777, 11_663, 4242]
        composed = sprites.compose(sprites.read_layers(drawn), numbers)
        assert composed.dtype == np.uint8
        for number, frames in zip(numbers, composed, strict=True):
            assert np.array_equal(frames.reshape(8, 3, 64, 64), pillow(drawn, number))

    def test_loaded(self, drawn: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sprites, "_RAW", checked(sprites._RAW, drawn))
        lay(tmp_path / "sprites", {"Sprites-master.zip": zipped({f"Sprites-master/{n}": c for n, c in drawn.items()})})
        data = sprites.load(tmp_path, count=2, verbose=True)
        assert (len(data.panel), data.panel.values.shape, data.image_shape) == (6, (48, 12288), (3, 64, 64))
        assert data.labels is not None
        assert data.labels.tolist() == [number % 9 for number in data.panel.ids]
        test = data.only("test")
        pixels = np.stack([pillow(drawn, number) for number in test.panel.ids]).reshape(16, -1)
        assert np.array_equal(np.rint(test.truth * 255), pixels)
        again = sprites.load(tmp_path, splits=["test"], count=2)
        assert again.panel.values.tobytes() == test.panel.values.tobytes()

    def test_splits(self) -> None:
        splits = sprites.split(0)
        assert {name: len(series) for name, series in splits.items()} == sprites.SIZES
        assert len(np.unique(np.concatenate(list(splits.values())))) == 10_000
        characters = {name: set((series // 9).tolist()) for name, series in splits.items()}
        assert not characters["test"] & (characters["train"] | characters["validation"])
        assert characters["train"] <= set(np.random.RandomState(423).permutation(1296)[:1000].tolist())
        assert not np.array_equal(sprites.split(1)["train"], splits["train"])

    def test_files_that_are_not_sheets_are_refused(self, drawn: dict[str, bytes]) -> None:
        with pytest.raises(DataError, match=r"hair/1.png is damaged or not an image"):
            sprites.read_layers({"hair/1.png": drawn["hair/1.png"][:500]})
        packed = io.BytesIO()
        Image.new("RGBA", (64, 32)).save(packed, "PNG")
        with pytest.raises(DataError, match=r"hair/1.png must have 832 × 1344 pixels, got 64 × 32"):
            sprites.read_layers({"hair/1.png": packed.getvalue()})
