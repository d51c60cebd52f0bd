"""Saved models: a loaded one is the one that was saved, and anything else is refused with a reason."""

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from battery import fresh
from numpy.typing import NDArray

from gpvae import BRITS, GP, GPVAE, GRUIGAN, DataError, Masking, Mean, ModelConfig, Panel, Recipe, load
from gpvae.data.batches import BatchIndex, Window
from gpvae.data.sealed import BLANK, seal
from gpvae.gp.kernels import Cauchy, Matern
from gpvae.imputers.latent import LatentMethod
from gpvae.models.config import Objective
from gpvae.models.encoders import Attention, Convolution
from gpvae.models.inputs import Frames, Values
from gpvae.models.likelihoods import Bernoulli, Gaussian
from gpvae.models.loss import Loss
from gpvae.models.parts import NearestValues
from gpvae.models.prior import Prior

Array = NDArray[Any]


def test_loaded_model_fills_the_same_and_has_the_same_settings(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.set_params(model=replace(tiny.model, latent_dim=4, prior=Prior(Cauchy((2.0, 5.0)), learned=True)))
    expected = tiny.fit(waves).impute(waves, samples=3)
    tiny.save(tmp_path / "model")
    loaded = GPVAE.load(tmp_path / "model", device="cpu")
    assert np.array_equal(loaded.impute(waves, samples=3).samples, expected.samples)
    assert loaded.get_params() == tiny.get_params()
    assert loaded.history_ == tiny.history_
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == ["gpvae.json", "weights.safetensors"]


def test_loaded_model_knows_the_cells_that_were_held_out(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    panel = Panel.of(waves)
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    loaded = GPVAE.load(tmp_path / "model", device="cpu")
    held_out = tiny.held_out(panel)
    assert held_out is not None
    assert held_out.any()
    assert np.array_equal(loaded.held_out(panel), held_out)  # type: ignore[arg-type]
    assert loaded.held_out(Panel.of(waves + 1)) is None
    other_nans = np.where(np.isnan(waves), -np.float64(np.nan), waves)
    assert np.array_equal(loaded.held_out(Panel.of(other_nans)), held_out)  # type: ignore[arg-type]


def test_device_is_chosen_anew_when_a_model_is_loaded(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    found = [load(tmp_path / "model", device=device).get_params()["device"] for device in ("cpu", "auto")]
    assert found == ["cpu", "auto"]


def test_only_models_are_overwritten(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    with pytest.raises(DataError, match="exists already"):
        tiny.save(tmp_path / "model")
    tiny.save(tmp_path / "model", overwrite=True)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(DataError, match="thesis is not a model, so it is not replaced"):
        tiny.save(tmp_path / "thesis", overwrite=True)
    (tmp_path / "empty").mkdir()
    tiny.save(tmp_path / "empty")


def test_other_files_in_the_folder_stay(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    (tmp_path / "model" / "notes.txt").write_text("mine")
    (tmp_path / "link").symlink_to("model")
    for _ in range(3):
        tiny.save(tmp_path / "link", overwrite=True)
        assert load(tmp_path / "model", device="cpu").history_ == tiny.history_
        assert (tmp_path / "model" / "notes.txt").read_text() == "mine"
        assert len(list((tmp_path / "model").iterdir())) == 3
    assert (tmp_path / "link").is_symlink()


def test_what_a_killed_run_leaves_is_no_obstacle(saved: dict[str, bytes], tmp_path: Path) -> None:
    """Killed before the new description took the place of the old one; or before there was any."""
    model = Mean().fit(np.eye(3))
    for name, content in saved.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "weights-2.safetensors").write_bytes(b"half")
    (tmp_path / ".gpvae.json.0a1b.partial").write_bytes(b"half")
    assert isinstance(load(tmp_path, device="cpu"), GPVAE)
    model.save(tmp_path, overwrite=True)
    assert isinstance(load(tmp_path), Mean)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpvae.json", "weights-2.safetensors"]
    (tmp_path / "gpvae.json").unlink()
    model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpvae.json", "weights.safetensors"]


@pytest.mark.parametrize("file", ["weights.safetensors", "gpvae.json"])
def test_a_full_disk_leaves_the_old_model_or_nothing(
    saved: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    write = Path.write_bytes

    def full(path: Path, content: bytes) -> int:
        if file.partition(".")[0] in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(path, content)

    model = Mean().fit(np.eye(3))
    (tmp_path / "old").mkdir()
    for name, content in saved.items():
        (tmp_path / "old" / name).write_bytes(content)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        for name in ("new", "old"):
            with pytest.raises(DataError, match="No space left on device; nothing was changed"):
                model.save(tmp_path / name, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == saved


# What the data decided


def loss_of(method: LatentMethod, panel: Panel, objective: str) -> Loss:
    """The loss of one batch, with fixed random numbers; of the planned objective or of the alternative."""
    rows = method.schema.rows(panel, panel.observed, torch.device("cpu"))
    planned = method.objective(rows, compile=False)
    module = planned if objective == "planned" else method.alternative(rows, batch_size=4, compile=False)
    assert module is not None
    cut = BatchIndex.of([Window(start, 30) for start in range(0, 120, 30)], torch.device("cpu"))
    return module(cut, torch.Generator().manual_seed(0), torch.tensor(1.0))


def test_loaded_model_has_the_weights_of_the_bound_it_was_trained_with(
    tiny: GPVAE, waves: Array, tmp_path: Path
) -> None:
    """They depend on the share of the cells that training saw: nine tenths of those that are observed."""
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    held_out = tiny.held_out(Panel.of(waves))
    assert held_out is not None
    share = 1 - np.isnan(waves).mean() - held_out.mean()
    for imputer in (tiny, GPVAE.load(tmp_path / "model", device="cpu")):
        resolved = imputer.method_.resolved
        assert resolved.masking is not None
        assert resolved.model.objective.beta == pytest.approx(0.01 * share, rel=1e-9)
        assert resolved.masking.borrowed == pytest.approx(0.5 * share, rel=1e-9)
        assert resolved.masking.visible_weight == pytest.approx(0.3, rel=1e-9)
    sparse = np.where(np.random.default_rng(0).random(waves.shape) < 0.6, np.nan, waves)
    masking = GPVAE(tiny.model, epochs=1, device="cpu").fit(sparse).method_.resolved.masking
    assert masking is not None
    assert masking.visible_weight == masking.borrowed
    assert masking.visible_weight == pytest.approx(0.15, abs=0.03)


def test_resolved_settings_are_restored_exactly(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    loaded = GPVAE.load(tmp_path / "model", device="cpu")
    assert loaded.method_.resolved == tiny.method_.resolved
    assert loaded.method_.resolved != tiny._new_method(tiny.schema_, 1.0).resolved
    assert loaded.method_.slow_kl is tiny.method_.slow_kl is True
    for objective in ("planned", "mixup"):
        ours, theirs = (loss_of(each.method_, Panel.of(waves), objective) for each in (tiny, loaded))
        assert torch.equal(ours.total, theirs.total)


def test_model_is_built_from_what_was_resolved_not_from_the_settings(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.set_params(epochs=1).fit(waves).save(tmp_path / "model")
    edit(tmp_path / "model", lambda model: model["resolved"]["model"]["objective"].update(beta=0.5))
    edit(tmp_path / "model", lambda model: model["resolved"]["masking"].update(borrowed=0.125, visible_weight=0.25))
    method = GPVAE.load(tmp_path / "model", device="cpu").method_
    assert method.resolved.model.objective.beta == 0.5
    assert method.resolved.masking == Masking(borrowed=0.125, visible_weight=0.25)


def test_calibration_is_restored_exactly(tiny: GPVAE, waves: Array, tmp_path: Path) -> None:
    tiny.fit(waves).save(tmp_path / "model")
    ours, theirs = tiny.method_.calibration, GPVAE.load(tmp_path / "model", device="cpu").method_.calibration
    assert (ours.scale_factor != 1).all()
    assert torch.equal(ours.scale_factor, theirs.scale_factor)
    assert torch.equal(ours.gap_factor, theirs.gap_factor)


EVERY_SETTING = [
    GPVAE(
        ModelConfig(
            latent_dim=2,
            prior=Prior(0.5 * Cauchy(2.0) + Matern(3.0, nu=1.5), learned=True, neighbours=3, jitter=0.01),
            posterior="diagonal",
            first_std=0.3,
            initialisation="glorot",
            inputs=Values(observed=True),
            encoder=Convolution(8, window=3, widths=(), relu=False),
            decoder_widths=(8, 8),
            likelihood=Gaussian(noise=0.3),
            objective=Objective(0.5, mc_samples=2, importance_samples=2),
        ),
        recipe=Recipe(
            "muon", 0.01, anneal=True, halve_every=5, clip_norm=2.0, patience=3, masking=Masking((0.1, 0.2), mixup=0.5)
        ),
        kinds={"x1": "positive"},
        precision="bf16-mixed",
        seed=4,
    ),
    GPVAE(ModelConfig(inputs=NearestValues(8, 8), encoder=Attention(8, layers=1), decoder_widths=(8,))),
    GPVAE(
        ModelConfig(
            inputs=Frames((1, 1, 3), filters=2, channels=2, relu=True), decoder_widths=(8,), likelihood=Bernoulli(True)
        ),
        recipe=Recipe(validation=0.0),
    ),
    GP(Matern(2.0), standardise=False),
    BRITS(hidden=4, consistency=0.5),
    GRUIGAN(hidden=4, noise_dim=2, fill_steps=3, pretraining=0.5),
]


@pytest.mark.parametrize("imputer", EVERY_SETTING, ids=lambda imputer: imputer.name)
def test_every_setting_is_saved(imputer: Any, waves: Array, tmp_path: Path) -> None:
    fitted = fresh(imputer).set_params(epochs=1, device="cpu").fit(np.abs(waves) % 1)
    fitted.save(tmp_path / "model")
    assert load(tmp_path / "model", device="cpu").get_params() == fitted.get_params()


# What is refused


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a small model."""
    model = ModelConfig(latent_dim=2, encoder=Attention(8, layers=1), decoder_widths=(8,))
    recipe = Recipe(masking=Masking())
    folder = tmp_path_factory.mktemp("saved") / "model"
    data = np.random.default_rng(0).normal(size=(6, 8, 3))
    GPVAE(model, recipe=recipe, epochs=1, device="cpu").fit(data).save(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def folder(saved: dict[str, bytes], tmp_path: Path) -> Path:
    for name, content in saved.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the description, with a checksum that fits."""
    path = folder / "gpvae.json"
    description = json.loads(path.read_text())
    change(description)
    description["sha256"] = BLANK
    path.write_bytes(seal(json.dumps(description).encode(), (folder / "weights.safetensors").read_bytes()))


def require_refused(folder: Path, message: str) -> None:
    for read in (load, GPVAE.load):
        with pytest.raises(DataError, match=message):
            read(folder, device="cpu")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "gpvae.json").unlink(), "is not a gpvae model"),
        (lambda folder: (folder / "gpvae.json").write_text("{"), "is not a gpvae model"),
        (lambda folder: (folder / "gpvae.json").write_text("[]"), "has the model format None"),
        (lambda folder: (folder / "weights.safetensors").unlink(), "is damaged: .*No such file"),
        (lambda folder: (folder / "weights.safetensors").write_bytes(b"x" * 99), "is damaged: its checksum"),
    ],
)
def test_damaged_files_are_refused(damage: Callable[[Path], Any], message: str, folder: Path) -> None:
    damage(folder)
    require_refused(folder, message)


@pytest.mark.parametrize("number", [9, 11, "10", None])
def test_other_formats_are_refused_and_say_to_fit_again(number: Any, folder: Path) -> None:
    edit(folder, lambda model: model.update(format=number))
    require_refused(folder, f"has the model format {number!r}, this version reads 10: fit the model again")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model["schema"].update(columns=["x0"]), "columns, scales and times do not fit together"),
        (lambda model: model["schema"].update(time_unit=0), "columns, scales and times do not fit together"),
        (lambda model: model["schema"]["scaling"].update(scale=[1]), "columns, scales and times do not fit together"),
        (lambda model: model.update(imputer="Guess"), "there is no imputer 'Guess'"),
        (lambda model: model["settings"].update(model=[]), "ModelConfig must be an object"),
        (lambda model: model["settings"].update(epochs="many"), "must be .* got 'many'"),
        (
            lambda model: model["resolved"]["model"].update(latent_dim=5),
            "make a parameter of shape .* that was not saved",
        ),
        (lambda model: model["resolved"]["model"].update(latent_dim=None), "latent_dim is open"),
        (lambda model: model["resolved"].pop("mixup"), "mixup"),
        (lambda model: model.pop("resolved"), "resolved"),
        (lambda model: model.pop("schema"), "schema"),
        (lambda model: model.pop("history"), "history"),
    ],
)
def test_descriptions_that_make_no_model_are_refused(
    change: Callable[[dict[str, Any]], Any], message: str, folder: Path
) -> None:
    edit(folder, change)
    require_refused(folder, f"does not hold a model that this version can read: .*{message}")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("settings",), "GPVAE has no setting"),
        (("settings", "model"), "ModelConfig has no field"),
        (("settings", "model", "prior"), "ModelConfig.prior has no field"),
        (("settings", "model", "prior", "kernel"), "ModelConfig.prior.kernel has no field"),
        (("settings", "model", "encoder"), "ModelConfig.encoder has no field"),
        (("settings", "model", "inputs"), "ModelConfig.inputs has no field"),
        (("settings", "model", "likelihood"), "ModelConfig.likelihood has no field"),
        (("settings", "model", "objective"), "ModelConfig.objective has no field"),
        (("settings", "recipe"), "Recipe has no field"),
        (("settings", "recipe", "masking"), "Recipe.masking has no field"),
        (("resolved", "model", "objective"), "Resolved.model.objective has no field"),
        (("resolved", "masking"), "Resolved.masking has no field"),
        (("schema", "scaling"), "Schema.scaling has no field"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_unknown_settings_are_refused_by_name(path: tuple[str, ...], place: str, folder: Path) -> None:
    def insert(model: dict[str, Any]) -> None:
        for name in path:
            model = model[name]
        model["colour"] = "red"

    edit(folder, insert)
    require_refused(folder, f"does not hold a model that this version can read: {place} 'colour'")


def test_missing_folder_is_named() -> None:
    with pytest.raises(DataError, match="there is no model folder nowhere"):
        GPVAE.load("nowhere")
