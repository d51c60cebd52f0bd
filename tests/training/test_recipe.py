"""The recipe: what it refuses, what it means for data of a given size, and that it reaches the optimiser."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from gpvae import BRITS, GP, GPVAE, GRUIGAN, Masking, Recipe
from gpvae.imputers.registry import method
from gpvae.models.likelihoods import Gaussian
from gpvae.training.optimizers import Muon
from gpvae.training.recipe import DEFAULT_RECIPE, PLAIN

Array = NDArray[Any]


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ({"optimizer": "sgd"}, "muon or adam"),
        ({"learning_rate": -1.0}, "above 0"),
        ({"learning_rate": float("inf")}, "above 0"),
        ({"clip_norm": 0.0}, "above 0"),
        ({"kl_warm_up": 2.0}, "between 0 and 1"),
        ({"patience": 0}, "at least 1, or None"),
        ({"batch_size": 0}, "at least 1, or None"),
        ({"window": 1}, "at least 2"),
        ({"validation": 1.0}, "at least 0 and below 1"),
        ({"fork_mixup": -0.1}, "between 0 and 1"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused_by_name(setting: dict[str, Any], wanted: str) -> None:
    ((name, value),) = setting.items()
    with pytest.raises(ValueError, match=f"^{name} must be {wanted}, got {value!r}$"):
        Recipe(**setting)


@pytest.mark.parametrize(("windows", "size"), [(10, 16), (1500, 30), (5000, 64)])
def test_batches_grow_with_the_data(windows: int, size: int) -> None:
    assert Recipe().batch_size_for(windows) == size
    assert Recipe(batch_size=5).batch_size_for(windows) == 5


@pytest.mark.parametrize("anneal", [True, False])
def test_epochs_by_the_number_of_steps(anneal: bool) -> None:
    """Annealed: 10,000 steps, but at most 800 epochs, and 200 of up to three steps; else 3,000. Never below 40."""
    recipe = Recipe(anneal=anneal)
    found = [recipe.epochs_for(steps) for steps in (1, 3, 6, 12, 100, 5000)]
    assert found == ([200, 200, 400, 800, 100, 40] if anneal else [3000, 1000, 500, 250, 40, 40])
    assert recipe.training_config(None, 6, seed=0).epochs == found[2]
    assert recipe.training_config(7, 1, seed=0).epochs == 7


def test_which_weights_are_kept() -> None:
    """The last of an annealed run, unless nothing is hidden in training or someone waits for the best."""
    recipes = {
        "default": DEFAULT_RECIPE,
        "patient": replace(DEFAULT_RECIPE, patience=9),
        "steady": replace(DEFAULT_RECIPE, anneal=False),
        "copies": replace(DEFAULT_RECIPE, masking=None),
        "plain": PLAIN,
        "brits": BRITS().recipe,
    }
    found = {name: recipe.keep for name, recipe in recipes.items()}
    assert found == {**dict.fromkeys(recipes, "best"), "default": "last"}
    for recipe in recipes.values():
        assert recipe.training_config(10, 10, seed=0).keep == recipe.keep


def test_patience_is_a_fifth_of_the_epochs_or_unlimited_when_annealed() -> None:
    found = [recipe.training_config(51, 10, seed=0).patience for recipe in (PLAIN, DEFAULT_RECIPE)]
    assert found == [11, None]
    assert replace(DEFAULT_RECIPE, patience=3).training_config(51, 10, seed=0).patience == 3


def test_kl_weight_left_open_rises_over_many_steps() -> None:
    """1,000 at least, so that in a short run it stays below; not without warm-up, with β given, or with patience."""

    def warm_up(steps_per_epoch: int, recipe: Recipe = DEFAULT_RECIPE, *, slow_kl: bool = True) -> int:
        return recipe.training_config(200, steps_per_epoch, seed=0, slow_kl=slow_kl).kl_warm_up

    assert [warm_up(steps) for steps in (1, 3, 19, 20, 100)] == [1000, 334, 53, 50, 50]
    assert warm_up(1, replace(DEFAULT_RECIPE, kl_warm_up=0.0)) == 0
    assert warm_up(1, slow_kl=False) == 50
    assert warm_up(1, replace(DEFAULT_RECIPE, patience=9)) == warm_up(1, replace(DEFAULT_RECIPE, anneal=False)) == 50


def test_training_config_has_the_settings_of_the_recipe() -> None:
    recipe = Recipe(learning_rate=0.02, clip_norm=3.0, kl_warm_up=0.5, patience=4)
    config = recipe.training_config(10, 10, seed=7)
    assert (config.learning_rate, config.clip_norm, config.kl_warm_up) == (0.02, 3.0, 5)
    assert (config.patience, config.seed, config.rise, config.fall_from) == (4, 7, 0.0, None)
    annealed = replace(recipe, anneal=True).training_config(10, 10, seed=7)
    assert (annealed.rise, annealed.fall_from) == (0.05, 0.6)


def test_the_default_recipe() -> None:
    assert GPVAE().recipe == DEFAULT_RECIPE
    assert (DEFAULT_RECIPE.optimizer, DEFAULT_RECIPE.learning_rate, DEFAULT_RECIPE.clip_norm) == ("muon", 3e-3, 1.0)
    assert (DEFAULT_RECIPE.anneal, DEFAULT_RECIPE.masking, DEFAULT_RECIPE.fork_mixup) == (True, Masking(), 0.75)
    others = [PLAIN, GP().recipe, BRITS().recipe, GRUIGAN().recipe, method("vae").get_params()["recipe"]]
    for recipe in others:
        assert (recipe.optimizer, recipe.clip_norm, recipe.masking, recipe.fork_mixup) == ("adam", 10.0, None, 0.0)


@pytest.mark.parametrize(("clip_norm", "optimizer"), [(1.0, "muon"), (1.0, "adam"), (0.05, "muon")])
def test_gradients_are_clipped_before_the_optimiser_steps(
    clip_norm: float, optimizer: Any, tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the norm of the recipe; that of the default is 1. Values in the hundreds make the gradients long."""
    norms: list[float] = []
    kind = Muon if optimizer == "muon" else torch.optim.Adam
    original: Any = kind.step

    def step(self: torch.optim.Adam, *args: Any) -> Any:
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norms.append(float(nn.utils.get_total_norm(grads)))
        return original(self, *args)

    monkeypatch.setattr(kind, "step", step)
    changes = {} if clip_norm == DEFAULT_RECIPE.clip_norm else {"clip_norm": clip_norm}
    recipe, model = replace(tiny.recipe, optimizer=optimizer, **changes), replace(tiny.model, likelihood=Gaussian())
    tiny.set_params(model=model, recipe=recipe, standardise=False, epochs=3).fit(waves)
    assert min(epoch["gradient"] for epoch in tiny.history_) > 20
    np.testing.assert_allclose(norms, [clip_norm] * 3, rtol=1e-4)
