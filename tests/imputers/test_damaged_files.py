"""Damaged models and checkpoints are refused in one line, whatever was done to them."""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from battery import IMPUTERS

from gpvae import DataError, load
from gpvae.training.checkpoint import Checkpoint
from gpvae.training.config import TrainingError

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
mutations = importlib.import_module("mutations")

SAVED = ["gp-factor", "gp-vae", "conformal gp"]
Files = dict[str, bytes]


@pytest.fixture(scope="module", params=SAVED)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """The files of a small model."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    data = np.random.default_rng(0).normal(size=(8, 12, 3)).cumsum(1)
    IMPUTERS[request.param]().fit(data).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(folder: Path) -> bool:
    """In one line; anything but a `DataError` fails the test."""
    message = "loaded"
    try:
        load(folder, device="cpu")
    except DataError as error:
        message = str(error)
    assert "\n" not in message
    return message != "loaded"


def test_every_change_of_any_byte_is_noticed(saved: Files, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, content in saved.items():
        (tmp_path / name).write_bytes(content)
    assert not refused(tmp_path)
    for number in range(150):
        name = ("gpvae.json", "weights.safetensors")[number % 2]
        damaged = mutations.DAMAGE[number % len(mutations.DAMAGE)](saved[name], rng)
        (tmp_path / name).write_bytes(damaged)
        assert refused(tmp_path) or damaged == saved[name], f"mutation {number} of {name}"
        (tmp_path / name).write_bytes(saved[name])


def test_forged_descriptions_are_refused_or_make_a_model(saved: Files, tmp_path: Path) -> None:
    """Nothing else is raised, no memory is eaten, and most are refused."""
    rng, weights = np.random.default_rng(1), saved["weights.safetensors"]
    (tmp_path / "weights.safetensors").write_bytes(weights)
    description, count = json.loads(saved["gpvae.json"]), 0
    for _ in range(150):
        (tmp_path / "gpvae.json").write_bytes(mutations.resealed(mutations.edited(description, rng), weights))
        count += refused(tmp_path)
    assert count > 30


def test_deep_json_is_refused(saved: Files, tmp_path: Path) -> None:
    for name, content in saved.items():
        (tmp_path / name).write_bytes(content)
    depth = 100_000
    (tmp_path / "gpvae.json").write_text("[" * depth + "]" * depth)
    assert refused(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="files of POSIX")
@pytest.mark.parametrize("name", ["gpvae.json", "weights.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_what_is_no_file_is_refused(saved: Files, tmp_path: Path, name: str, kind: str) -> None:
    for each, content in saved.items():
        (tmp_path / each).write_bytes(content)
    (tmp_path / name).unlink()
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    elif kind == "device":
        (tmp_path / name).symlink_to("/dev/zero")
    else:
        (tmp_path / name).mkdir()
    assert refused(tmp_path)


def test_nan_weights_are_refused(tmp_path: Path) -> None:
    imputer: Any = IMPUTERS["gp-vae"]().fit(np.random.default_rng(0).normal(size=(8, 12, 3)))
    next(imputer.method_.network.parameters()).data[0] = np.nan
    imputer.save(tmp_path / "model")
    with pytest.raises(DataError, match="holds NaN"):
        load(tmp_path / "model", device="cpu")


def test_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    checkpoint = tmp_path / "run.checkpoint"
    data = np.random.default_rng(0).normal(size=(8, 12, 3))
    IMPUTERS["gp-vae"]().fit(data, checkpoint=checkpoint)
    content, rng = checkpoint.read_bytes(), np.random.default_rng(0)
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    for number in range(150):
        damaged = mutations.DAMAGE[number % len(mutations.DAMAGE)](content, rng)
        checkpoint.write_bytes(damaged)
        if damaged != content:
            with pytest.raises(TrainingError, match=r"delete it to start again$"):
                Checkpoint(checkpoint, header["fingerprint"]).load()
    checkpoint.write_bytes(content)
    assert Checkpoint(checkpoint, header["fingerprint"]).load().state.epoch == 4
    checkpoint.unlink()
    checkpoint.symlink_to("/dev/zero")
    with pytest.raises(TrainingError, match="not a regular file"):
        Checkpoint(checkpoint, header["fingerprint"]).load()
