"""Scripts for PyPOTS, with one import changed."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import gpvae
from gpvae import DataError
from gpvae.adapters.pypots import BRITS, GPVAE, GPNet, _kernel
from gpvae.gp.kernels import Cauchy
from gpvae.models.prior import Prior
from gpvae.training import correction, factor

Array = NDArray[np.float64]
STEPS, FEATURES = 12, 3


@pytest.fixture
def sets() -> dict[str, Any]:
    """As of BenchPOTS: a training set, and a test set with some cells hidden."""
    rng = np.random.default_rng(0)
    steps = np.arange(STEPS)[None, :, None] / 3 + rng.uniform(0, 6, (40, 1, 1)) + np.arange(FEATURES)
    truth = np.sin(steps).astype(np.float32)
    hidden = rng.random(truth.shape) < 0.2
    visible = np.where(hidden, np.float32(np.nan), truth)
    return {"train": {"X": visible[:30]}, "test": {"X": visible[30:], "X_ori": truth[30:]}}


def model(name: str, **changes: Any) -> Any:
    quiet: dict[str, Any] = {"verbose": False, **changes}
    if name == "GPNet":
        return GPNet(STEPS, FEATURES, **quiet)
    settings: dict[str, Any] = {"epochs": 2, "batch_size": 8, "device": "cpu", **quiet}
    if name == "BRITS":
        return BRITS(n_steps=STEPS, n_features=FEATURES, rnn_hidden_size=8, **settings)
    return GPVAE(
        n_steps=STEPS, n_features=FEATURES, latent_size=4, encoder_sizes=(8, 8), decoder_sizes=(8,), **settings
    )


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factor, "STEPS", 5)
    monkeypatch.setattr(correction, "FIRST_STEPS", 5)
    monkeypatch.setattr(correction, "ROUNDS", 1)


@pytest.mark.parametrize("name", ["GPNet", "GPVAE", "BRITS"])
def test_a_dict_goes_in_and_a_dict_comes_out(name: str, sets: dict[str, Any], tmp_path: Path) -> None:
    script = model(name, saving_path=str(tmp_path / "saved"))
    assert script.fit(sets["train"]) is None
    result = script.predict(sets["test"])
    filled = result["imputation"][:, 0] if name == "GPVAE" else result["imputation"]
    given = sets["test"]["X"]
    assert (filled.shape, filled.dtype) == (given.shape, np.float32)
    seen = ~np.isnan(given)
    assert np.array_equal(filled[seen], given[seen])
    np.testing.assert_array_equal(filled, script.imputer.impute(given).mean)
    assert np.array_equal(script.impute(sets["test"]), result["imputation"])
    if name != "BRITS":
        assert (result["lower"] <= result["upper"]).all()
        assert (result["std"][~seen] > 0).all()
    script.save(tmp_path / "again")
    for folder in ("saved", "again"):
        loaded = model(name)
        loaded.load(tmp_path / folder)
        np.testing.assert_array_equal(loaded.predict(sets["test"])["imputation"], result["imputation"])


def test_gpvae_gives_draws(sets: dict[str, Any]) -> None:
    script = model("GPVAE")
    script.fit(sets["train"])
    draws = script.predict(sets["test"], n_sampling_times=5)["imputation"]
    assert draws.shape == (10, 5, STEPS, FEATURES)
    seen = ~np.isnan(sets["test"]["X"])
    spread = np.ptp(draws, axis=1)
    assert (spread[seen] == 0).all()
    assert (spread[~seen] > 0).all()


def test_arguments_of_pypots_make_the_papers_model() -> None:
    imputer = GPVAE(
        48, 35, 35, (128, 128), (256, 256), window_size=24, length_scale=7.0, beta=0.2, batch_size=64, epochs=40
    ).imputer
    assert isinstance(imputer, gpvae.GPVAE)
    paper = gpvae.paper.PHYSIONET["model"]
    assert imputer.model == replace(paper, prior=Prior(Cauchy((7.0,))))
    assert Prior(Cauchy((7.0,))).kernel.groups() == paper.prior.kernel.groups() == 1


@pytest.mark.parametrize(
    ("name", "covariance"),
    [
        ("cauchy", lambda r, length: 2 / (1 + r**2 / length**2)),
        ("rbf", lambda r, length: np.exp(-(r**2) / length**2)),
        ("matern", lambda r, length: np.exp(-r / np.sqrt(length))),
    ],
)
def test_kernels_are_those_of_pypots(name: str, covariance: Any) -> None:
    steps = torch.arange(9.0, dtype=torch.float64)[:, None]
    found = _kernel(name, 2.0, 6.0, 2).build()(steps).to_dense().detach().numpy()
    r = np.abs(np.subtract.outer(np.arange(9.0), np.arange(9.0)))
    np.testing.assert_allclose(found, [covariance(r, 6.0), covariance(r, 3.0)], atol=1e-6)


def test_settings_of_training_are_passed_on() -> None:
    recipe = model("BRITS", optimizer=SimpleNamespace(lr=0.02), patience=7, device="cuda:1").imputer.recipe
    assert (recipe.learning_rate, recipe.patience, recipe.batch_size) == (0.02, 7, 8)
    assert model("GPVAE").imputer.recipe.patience == 2  # never early


def test_mistakes_are_named(sets: dict[str, Any]) -> None:
    script = model("BRITS")
    with pytest.raises(DataError, match=r"X must have shape \(series, 12, 3\), got \(30, 12, 2\)"):
        script.fit({"X": sets["train"]["X"][..., :2]})
    with pytest.raises(DataError, match="must have an array 'X', got 'x'"):
        script.fit({"x": 1})
    with pytest.raises(DataError, match=r"train.h5: read the file first"):
        script.fit("train.h5")
    with pytest.raises(ValueError, match="kernel must be 'cauchy', 'rbf' or 'matern', got 'diffusion'"):
        model("GPVAE", kernel="diffusion")
    with pytest.raises(ValueError, match="must have a learning rate lr"):
        model("GPVAE", optimizer="adam")
    with pytest.warns(UserWarning, match="val_set is not used"):
        script.fit(sets["train"], sets["test"])
