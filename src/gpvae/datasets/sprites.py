"""SPRITES (Li & Mandt 2018): cartoon characters that walk, cast spells and slash, 8 frames of 64 × 64 in colour.

A character is a body, trousers, a top and hair, six of each, and shoes, composed on black:
character = body·216 + bottom·36 + top·6 + hair. It has three actions in three views:
action = 3·(walk, spellcast, slash) + (front, left, right). Sequence = character·9 + action: 11,664 in all. Composing
them is as fast as reading a cache of a gigabyte, so they are not cached.

Splits: the authors shuffle the characters with RandomState(423). The 9,000 sequences of the first 1,000 characters, in
an order drawn from our seed, are `train` (8,000) and `validation` (1,000); 1,000 of the 2,664 sequences of the other
296 characters, drawn from the same generator afterwards, are `test`.
"""

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from gpvae.data.panel import DataError
from gpvae.datasets.dataset import SPLITS, DataSet, consecutive_splits, even_panel, require_splits
from gpvae.datasets.optional import optional
from gpvae.datasets.raw import Contents, DatasetInfo, RawFiles, read

IMAGE_SHAPE = (3, 64, 64)
FRAMES, ACTIONS, CHARACTERS = 8, 9, 1296
SIZES = {"train": 8_000, "validation": 1_000, "test": 1_000}
_SHEET = (21 * 64, 13 * 64)
_ROWS = {"spellcast": 0, "walk": 8, "slash": 12}  # of the back view; left, front and right follow it
_SIDES = {"front": 2, "left": 1, "right": 3}
_COLUMNS = {
    "walk": (8, 1, 2, 3, 4, 5, 6, 7),
    "spellcast": (0, 1, 2, 3, 4, 5, 4, 6),
    "slash": (0, 1, 2, 3, 4, 5, 4, 0),
}
_LAYERS = ("body", "bottomwear", "topwear", "hair")
_CHUNK = 90  # sequences composed together

_RAW = RawFiles(
    "sprites",
    "https://github.com/YingzhenLi/Sprites/archive/refs/heads/master.zip",
    {
        "body/[0-5].png": "21c9668936acfefc43c6c41de39c17da529db5e7b01fe0d6b6627445ddc00c50",
        "bottomwear/[0-5].png": "a17d74e1e3ba92bb97d26aab33051da786630523d1496e0a970b3ae6d94d70c9",
        "topwear/[0-5].png": "71ba2d7be57f1050c4f42be16f5bdb8b913c2e5bf3cddb8340ef6f6ae39b778f",
        "hair/[0-5].png": "3a3865eb5568f90ae50efef80c2235c983a2d3d2b7be9d49b72ab62348c9290c",
        "shoes/1.png": "d56a561616a20a12030d2d40a52eeec63e6d048871bf3b6994221869362151f1",
    },
    archives="*.zip",
)
INFO = DatasetInfo(
    "sprites",
    "SPRITES: 11,664 sequences of cartoon characters, 8 frames of 3 × 64 × 64, labels = actions",
    "CC BY-SA 3.0 / GPL 3.0",
    (_RAW,),
)


@dataclass(frozen=True)
class Layer:
    """The pixels of a sheet that are not transparent, in the eight frames of one action."""

    index: NDArray[np.intp]  # (pixel,) in the flattened frames, channel by channel
    colours: NDArray[np.uint16]  # (pixel,)
    alphas: NDArray[np.uint16] | None  # (pixel,) 255 = opaque; None: all are opaque

    def over(self, frames: NDArray[np.uint8]) -> None:
        """Composite the layer over flattened opaque `frames`, rounded as by Pillow's alpha_composite."""
        if self.alphas is None:
            frames[self.index] = self.colours
            return
        below = frames[self.index].astype(np.uint32)
        mixed = self.colours.astype(np.uint32) * self.alphas + below * (255 - self.alphas) + 128
        frames[self.index] = (mixed + (mixed >> 8)) >> 8


def load(
    folder: str | os.PathLike[str] | None = None,
    *,
    splits: Sequence[str] = SPLITS,
    count: int | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> DataSet:
    """Complete frames in float32, channel by channel, from 0 to 1; the first `count` sequences of each split."""
    require_splits(INFO.name, splits, count)
    all_splits = split(seed)
    chosen = {name: all_splits[name][:count] for name in splits}
    sequences = np.concatenate(list(chosen.values()))
    layers = read_layers(read(_RAW, folder, verbose=verbose))
    values = np.empty((len(sequences), FRAMES, int(np.prod(IMAGE_SHAPE))), dtype=np.float32)
    starts = range(0, len(sequences), _CHUNK)
    for start in track(starts, "Composing sprites", disable=not verbose, transient=True):
        frames = compose(layers, sequences[start : start + _CHUNK])
        np.divide(frames, np.float32(255), out=values[start : start + _CHUNK])
    columns = [f"{colour} {i}" for colour in ("red", "green", "blue") for i in range(64 * 64)]
    panel = even_panel(values, columns, sequences.tolist())
    sizes = {name: len(series) for name, series in chosen.items()}
    return DataSet(INFO.name, panel, panel.values, sequences % ACTIONS, consecutive_splits(sizes), IMAGE_SHAPE)


def split(seed: int) -> dict[str, NDArray[np.int64]]:
    """The sequences of each split; see the module's docstring."""
    characters = np.random.RandomState(423).permutation(CHARACTERS)
    rng = np.random.default_rng(seed)
    known, new = (
        rng.permutation((group[:, None] * ACTIONS + np.arange(ACTIONS)).ravel())
        for group in (characters[:1000], characters[1000:])
    )
    ends = SIZES["train"], SIZES["train"] + SIZES["validation"]
    return {"train": known[: ends[0]], "validation": known[ends[0] : ends[1]], "test": new[: SIZES["test"]]}


def read_layers(sheets: Contents) -> Mapping[tuple[str, int, int], Layer]:
    """Layers by part, number and action."""
    layers: dict[tuple[str, int, int], Layer] = {}
    for name, content in sheets.items():
        part, number = name.removesuffix(".png").split("/")
        sheet = _sheet(content, name)
        for action in range(ACTIONS):
            layers[part, int(number), action] = _layer(_frames(sheet, action))
    return layers


def compose(
    layers: Mapping[tuple[str, int, int], Layer], sequences: Iterable[int] | NDArray[np.int64]
) -> NDArray[np.uint8]:
    """The frames of these sequences. (sequence, frame, pixel)"""
    sequences = np.asarray(sequences)
    frames = np.zeros((len(sequences), FRAMES * int(np.prod(IMAGE_SHAPE))), dtype=np.uint8)
    for sequence, out in zip(sequences.tolist(), frames, strict=True):
        character, action = divmod(sequence, ACTIONS)
        for part, unit in zip(_LAYERS, (216, 36, 6, 1), strict=True):
            layers[part, character // unit % 6, action].over(out)
        layers["shoes", 1, action].over(out)
    return frames.reshape(len(frames), FRAMES, -1)


def _sheet(content: bytes, name: str) -> NDArray[np.uint8]:
    """(height, width, RGBA)"""
    try:
        with optional("PIL.Image").open(io.BytesIO(content)) as image:
            sheet = np.array(image.convert("RGBA"))
    except OSError as error:
        raise DataError(f"{name} is damaged or not an image: {error}") from None
    if sheet.shape[:2] != _SHEET:
        raise DataError(f"{name} must have {_SHEET[1]} × {_SHEET[0]} pixels, got {sheet.shape[1]} × {sheet.shape[0]}")
    return sheet


def _frames(sheet: NDArray[np.uint8], action: int) -> NDArray[np.uint8]:
    """(frame, channel with alpha, height, width)"""
    what, side = [*_COLUMNS][action // 3], [*_SIDES][action % 3]
    cells = sheet.reshape(21, 64, 13, 64, 4).transpose(0, 2, 4, 1, 3)
    return cells[_ROWS[what] + _SIDES[side], list(_COLUMNS[what])]


def _layer(frames: NDArray[np.uint8]) -> Layer:
    colours = np.ascontiguousarray(frames[:, :3])
    alphas = np.broadcast_to(frames[:, 3:], colours.shape).ravel()
    index = np.flatnonzero(alphas)
    opaque = (alphas[index] == 255).all()
    return Layer(index, colours.ravel()[index].astype(np.uint16), None if opaque else alphas[index].astype(np.uint16))
