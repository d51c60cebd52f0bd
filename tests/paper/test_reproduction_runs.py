"""Which runs a table needs, and with which settings they are made."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from stand_ins import CHANGE_COUNTS, task

from gpvae import GPVAE, HI_VAE, VAE, Forward, Masking
from gpvae.gp.kernels import Cauchy
from gpvae.imputers.brits import BRITS
from gpvae.models.prior import Prior
from gpvae.paper.presets import PHYSIONET, changed
from gpvae.paper.reproduction import Run, runs, runs_of
from gpvae.paper.tables import ABLATION_TASKS, Task


def test_a_table_needs_each_task_once_and_some_of_them_with_our_changes() -> None:
    needed = runs_of("T3", 2)
    assert len(needed) == len(set(needed)) == 2 * (11 + 2)
    assert {run.task.method for run in needed if run.changes} == {"hi-vae", "gp-vae"}
    assert {run.changes for run in needed} == {0, CHANGE_COUNTS["physionet2012"]}
    assert len(runs_of("T1", 1)) == 2 * (5 + 2)
    assert len(runs_of("S4", 1)) == 9 * 4 + 2  # at one of the rates T2 has our changes
    ablation = runs_of("changes", 1)
    assert len(ablation) == sum(count + 3 for count in CHANGE_COUNTS.values()) + 7  # + 7: Healing MNIST at random
    assert {run.task.method for run in ablation} == {"gp-vae", "gp-vae, chain"}
    assert {run.changes for run in ablation if run.task.method == "gp-vae, chain"} == {0, 3, 4}


def test_a_figure_needs_the_first_seed_of_the_methods_that_it_shows() -> None:
    assert [(run.task.method, run.changes, run.seed) for run in runs_of("F3", 5)] == [
        ("forward", 0, 0),
        ("brits", 0, 0),
        ("gp-vae", 0, 0),
        ("gp-vae", CHANGE_COUNTS["physionet2012"], 0),
    ]


def settings_of(imputer: object) -> dict[str, Any]:
    assert isinstance(imputer, GPVAE)
    return imputer.get_params(deep=False)


@pytest.mark.parametrize(("data", "preset"), [*runs.SETTINGS.items()])
def test_without_changes_the_settings_are_those_of_the_paper(data: str, preset: dict[str, Any]) -> None:
    def of(method: str) -> dict[str, Any]:
        return settings_of(runs.new_imputer(Run(task(data, method), 3), device="cpu"))

    papers = settings_of(GPVAE(**preset, seed=3, device="cpu"))
    assert of("gp-vae") == papers
    rbf = of("gp-vae, RBF")["model"].prior
    lags = torch.arange(10.0).double()
    torch.testing.assert_close(rbf.build(1).kernel(lags)[0], torch.exp(-(lags**2) / 4), rtol=1e-6, atol=0)
    assert of("gp-vae, RBF") == changed(papers, {"model.prior": rbf})
    assert of("gp-vae, chain") == changed(papers, {"model.posterior": "chain"})
    shared = HI_VAE["model"]
    hi_vae = {
        "model.prior": Prior(Cauchy(), neighbours=shared.prior.neighbours, jitter=shared.prior.jitter),
        "model.posterior": shared.posterior,
        "model.first_std": math.log(2),
        "model.encoder.window": shared.encoder.window,
        "model.encoder.relu": shared.encoder.relu,
    }
    assert [*hi_vae.values()][1:] == ["diagonal", math.log(2), 1, True]
    assert of("hi-vae") == changed(papers, hi_vae)
    missing_as_zeros = VAE["model"].objective.missing_as_zeros
    assert missing_as_zeros
    assert of("vae") == changed(papers, {**hi_vae, "model.objective.missing_as_zeros": missing_as_zeros})


@pytest.mark.parametrize(("data", "preset"), [*runs.SETTINGS.items()])
def test_presets_are_what_the_authors_ran(data: str, preset: dict[str, Any]) -> None:
    model, recipe, physionet = preset["model"], preset["recipe"], data == "physionet2012"
    assert model.initialisation == "glorot"
    assert model.posterior == ("published-sigmoid" if physionet else "published")
    assert not model.encoder.relu
    assert model.prior.kernel.variance == (1.005 if physionet else 1.0)
    assert (recipe.optimizer, recipe.learning_rate, recipe.anneal, recipe.batch_size) == ("adam", 1e-3, False, 64)
    assert (recipe.clip_norm, recipe.halve_every) == (1e4, 10 if physionet else None)
    assert (recipe.validation, recipe.kl_warm_up, recipe.masking) == (0.0, 0.0, None)
    if not physionet:
        frames = model.inputs
        assert (frames.filters, frames.channels, frames.relu, frames.observed) == (256, frames.shape[0], True, False)


def test_changes_are_made_one_after_the_other() -> None:
    papers = settings_of(GPVAE(**PHYSIONET))
    changes = {
        "model.inputs.observed": True,
        "recipe.kl_warm_up": 1 / 3,
        "model.likelihood.noise": None,
        "recipe.masking": Masking(cells=(0.3, 0.3), runs=0.0, borrowed=0.0, visible_weight=1.0),
    }
    settings = [settings_of(runs.new_imputer(Run(task("physionet2012", "gp-vae"), 0, n))) for n in range(5)]
    assert settings == [changed(papers, dict([*changes.items()][:n])) for n in range(5)]


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [("not-at-random", (True, 0.8, 20)), ("spatial", (False, 0.8, 20)), ("temporal-", (False, 0.2, 40))],
)
def test_some_changes_are_made_for_some_mechanisms_only(mechanism: str, expected: tuple[object, ...]) -> None:
    chosen = replace(task("healing_mnist", "hi-vae"), mechanism=mechanism)
    settings = settings_of(runs.new_imputer(Run(chosen, 0, len(runs.changes_for(chosen)))))
    model = settings["model"]
    assert (model.likelihood.missing_by_value, model.objective.beta, settings["epochs"]) == expected
    assert (model.inputs.observed, model.posterior) == (True, "diagonal")


@pytest.mark.parametrize("chosen", ABLATION_TASKS, ids=str)
def test_every_change_changes_something(chosen: Task) -> None:
    versions = [settings_of(runs.new_imputer(Run(chosen, 0, n))) for n in range(len(runs.changes_for(chosen)) + 1)]
    assert all(first != second for i, first in enumerate(versions) for second in versions[:i])


def test_settings_are_changed_by_path() -> None:
    new = changed(PHYSIONET, {"model.objective.beta": 0.5, "model.latent_dim": 3, "epochs": 10})
    model = PHYSIONET["model"]
    smaller = replace(model, objective=replace(model.objective, beta=0.5), latent_dim=3)
    assert new == {**PHYSIONET, "model": smaller, "epochs": 10}
    with pytest.raises(TypeError, match="betta"):
        changed(PHYSIONET, {"model.objective.betta": 0.5})
    with pytest.raises(KeyError, match="modell"):
        changed(PHYSIONET, {"modell.latent_dim": 5})


def test_methods_that_are_not_latent_models() -> None:
    images = runs.new_imputer(Run(task("healing_mnist", "forward"), 0))
    assert isinstance(images, Forward)
    assert images.before == 0.0  # black
    patients = runs.new_imputer(Run(task("physionet2012", "forward"), 0))
    assert isinstance(patients, Forward)
    assert patients.before == Forward().before != 0.0
    brits = runs.new_imputer(Run(task("physionet2012", "brits"), 5), device="cpu")
    assert isinstance(brits, BRITS)
    assert (brits.recipe.batch_size, brits.seed, brits.device, brits.epochs) == (64, 5, "cpu", BRITS().epochs)
