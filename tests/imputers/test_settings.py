"""The settings of GPVAE: defaults that the data decides, presets, parameter groups, scikit-learn's conventions."""

from typing import Any, cast

import numpy as np
import pytest
from battery import fresh
from numpy.typing import NDArray

from gpvae import DEFAULT, GPVAE, HI_VAE, VAE, Recipe, paper
from gpvae.gp.kernels import Cauchy
from gpvae.imputers.registry import method
from gpvae.models.config import ModelConfig, Objective
from gpvae.models.prior import Prior

Array = NDArray[Any]


def test_scikit_learn_conventions(tiny: GPVAE, waves: Array) -> None:
    assert tiny.get_params()["epochs"] == 6
    copy = fresh(tiny).set_params(epochs=2, seed=9)
    assert isinstance(copy, GPVAE)
    assert (copy.epochs, copy.seed, tiny.epochs) == (2, 9, 6)
    assert not [name for name in vars(copy) if name.endswith("_")]
    assert copy.fit(waves) is copy
    assert len(copy.history_) == 2
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        copy.set_params(colour="red")
    with pytest.raises(Exception, match="not fitted"):
        GPVAE().impute(waves)


def test_sizes_left_open_depend_on_the_number_of_columns() -> None:
    found = [DEFAULT.resolve(columns, 1.0).latent_dim for columns in (3, 20, 1000)]
    assert found == [16, 40, 64]
    assert ModelConfig(prior=Prior(Cauchy((2.0, 30.0)))).resolve(3, 1.0).prior.neighbours == 42


def test_beta_left_open_is_a_hundredth_of_the_share_observed() -> None:
    assert DEFAULT.resolve(3, 0.4).objective.beta == pytest.approx(0.004)
    assert ModelConfig(objective=Objective(beta=0.7)).resolve(3, 0.4).objective.beta == 0.7


@pytest.mark.parametrize("preset", [paper.PHYSIONET, VAE, HI_VAE], ids=["physionet", "vae", "hi-vae"])
def test_presets_train(preset: Any, waves: Array) -> None:
    settings = {**preset, "epochs": 1, "device": "cpu"}
    assert np.isfinite(GPVAE(**settings).fit(waves).impute(waves, samples=1).mean).all()


def test_preset_that_was_not_unpacked_says_how_to_use_it(waves: Array) -> None:
    with pytest.raises(TypeError, match=r"unpack presets, as in GPVAE\(\*\*paper.PHYSIONET\)"):
        GPVAE(cast(Any, paper.PHYSIONET)).fit(waves)


def test_kinds_must_be_a_mapping(waves: Array) -> None:
    with pytest.raises(TypeError, match=r"kinds must map columns to kinds, as \{'rain': 'positive'\}, got \['count'\]"):
        GPVAE(kinds=cast(Any, ["count"])).fit(waves)


@pytest.mark.parametrize("name", ["muon", "adam"])
def test_every_parameter_is_in_one_group_and_matrices_are_apart_for_muon(name: Any, tiny: GPVAE, waves: Array) -> None:
    """The kernel learns ten times as fast; Muon gets the weights of dense layers."""
    trained = tiny.set_params(recipe=Recipe(optimizer=name, learning_rate=0.01), epochs=1).fit(waves).method_
    groups = trained.parameter_groups()
    grouped = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(grouped) == sorted(map(id, trained.network.parameters()))
    fast = next(group for group in groups if group.get("lr"))
    assert fast["lr"] == pytest.approx(0.1)
    assert {*map(id, trained.network.prior.parameters())} <= {*map(id, fast["params"])}
    matrices = [parameter for group in groups if group.get("matrices") for parameter in group["params"]]
    assert all(matrix.ndim == 2 for matrix in matrices)
    assert (len(matrices) > 2) is (name == "muon")


def test_the_default_uses_muon_and_the_presets_adam() -> None:
    assert GPVAE().recipe.optimizer == "muon"
    assert paper.PHYSIONET["recipe"].optimizer == method("vae").get_params()["recipe"].optimizer == "adam"
