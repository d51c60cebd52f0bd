"""Which data may be mixed up, and that a run of the imputer forks where mixup may help."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from battery import SMALL
from numpy.typing import NDArray

from gpvae import DEFAULT, GPVAE, VAE, ModelConfig, Panel, Recipe
from gpvae.data.schema import Schema
from gpvae.imputers.latent import LatentMethod, resolve
from gpvae.models.config import Objective
from gpvae.models.inputs import Frames
from gpvae.models.likelihoods import Bernoulli
from gpvae.training import recipe as recipes
from gpvae.training.objective import BoundObjective

Array = NDArray[Any]
CPU = torch.device("cpu")


def pixels(*, series: int = 4, times: Array | None = None) -> Panel:
    """Zeros and ones in four columns."""
    values = np.random.default_rng(0).integers(2, size=(series, 6, 4)).astype(float)
    return Panel.from_array(values, times=times)


def may_mix(model: ModelConfig = DEFAULT, *, share: float = 1.0, **kinds: str) -> bool:
    schema = Schema.of(pixels(), standardise=True, kinds=kinds)
    return resolve(model, recipes.DEFAULT_RECIPE, schema, share).mixup


@pytest.mark.parametrize(("share", "mixes"), [(1.0, True), (0.5, True), (0.49, False)])
def test_sparse_tables_are_not_mixed(share: float, mixes: bool) -> None:
    assert may_mix(share=share) is mixes


@pytest.mark.filterwarnings("ignore:column")
@pytest.mark.parametrize("kind", ["count", "binary", "ordinal", "categorical"])
def test_only_numbers_are_mixed(kind: str) -> None:
    assert not may_mix(x0=kind)
    positive = Schema.of(Panel.of(pixels().values + 1), standardise=True, kinds={"x0": "positive"})
    assert resolve(DEFAULT, recipes.DEFAULT_RECIPE, positive, 1.0).mixup


def test_images_and_pixels_are_not_mixed() -> None:
    assert not may_mix(ModelConfig(inputs=Frames((1, 2, 2), filters=2)))
    assert not may_mix(ModelConfig(likelihood=Bernoulli()))


def alternative_of(imputer: GPVAE, panel: Panel, *, batch_size: int = 4) -> BoundObjective | None:
    """The objective of the second branch of a run on this panel."""
    schema = imputer._new_schema(panel)
    method, rows = imputer._new_method(schema, 1.0), schema.rows(panel, panel.observed, CPU)
    found = method.alternative(rows, batch_size=batch_size, compile=False)
    assert found is None or isinstance(found, BoundObjective)
    return found


def test_the_second_branch_adds_mixup_and_changes_nothing_else() -> None:
    imputer = GPVAE(SMALL)
    second = alternative_of(imputer, pixels())
    assert second is not None
    assert second.masking is not None
    assert second.masking.mixup == imputer.recipe.fork_mixup == 0.75
    method = imputer._new_method(imputer._new_schema(pixels()), 1.0)
    assert replace(second.masking, mixup=0.0) == method.resolved.masking
    assert (second.beta, second.visible_weight) == (0.01, 0.3)
    rarer = alternative_of(GPVAE(SMALL, recipe=replace(recipes.DEFAULT_RECIPE, fork_mixup=0.2)), pixels())
    assert rarer is not None
    assert rarer.masking == replace(second.masking, mixup=0.2)


UNEVEN = np.cumsum(np.random.default_rng(0).uniform(0.5, 3, (4, 6)), axis=1)


@pytest.mark.parametrize(
    ("settings", "panel", "batch_size"),
    [
        ({}, pixels(times=UNEVEN), 4),
        ({}, pixels(series=1), 1),
        ({"standardise": False}, pixels(), 4),
        ({"model": replace(SMALL, likelihood=Bernoulli())}, pixels(), 4),
        ({"recipe": replace(recipes.DEFAULT_RECIPE, fork_mixup=0.0)}, pixels(), 4),
        ({"recipe": replace(recipes.DEFAULT_RECIPE, masking=None)}, pixels(), 4),
        ({"recipe": Recipe()}, pixels(), 4),
        (VAE, pixels(), 4),
    ],
    ids=["uneven steps", "one series", "not standardised", "pixels", "no fork", "nothing hidden", "plain", "vae"],
)
def test_runs_without_a_second_branch(settings: dict[str, Any], panel: Panel, batch_size: int) -> None:
    assert alternative_of(GPVAE(**{"model": SMALL, **settings}), panel, batch_size=batch_size) is None


def test_sparse_data_has_no_second_branch() -> None:
    schema = Schema.of(pixels(), standardise=True)
    rows = schema.rows(pixels(), pixels().observed, CPU)
    found = [
        GPVAE(SMALL)._new_method(schema, share).alternative(rows, batch_size=4, compile=False) for share in (0.4, 0.6)
    ]
    assert [each is not None for each in found] == [False, True]


@pytest.mark.parametrize("changes", [{"patience": 9}, {"anneal": False}, {"validation": 0.0}], ids=str)
def test_runs_that_cannot_be_judged_at_their_end_do_not_fork(
    changes: dict[str, Any], waves: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They keep the best weights, or have no scores; the default may fork."""
    monkeypatch.setattr("gpvae.imputers.neural.train_with_fork", ForkError.begin)
    GPVAE(SMALL, recipe=replace(recipes.DEFAULT_RECIPE, **changes), epochs=1, device="cpu").fit(waves)
    with pytest.raises(ForkError):
        GPVAE(SMALL, epochs=1, device="cpu").fit(waves)


class ForkError(Exception):
    @classmethod
    def begin(cls, *_: object, **__: object) -> None:
        raise cls


class Branches:
    """Scores that never change, but for the `gain` by mixup; and which branch each step of training belongs to."""

    def __init__(self, gain: float, patch: pytest.MonkeyPatch):
        self.mixup, forward = False, BoundObjective.forward

        def watched(objective: BoundObjective, *args: Any) -> Any:
            self.mixup = objective.masking is not None and objective.masking.mixup > 0
            return forward(objective, *args)

        patch.setattr(BoundObjective, "forward", watched)
        patch.setattr(LatentMethod, "score", lambda *_: 1.0 - gain * self.mixup)
        patch.setattr(LatentMethod, "calibrate", lambda *_: None)


def fitted(waves: Array, **changes: Any) -> GPVAE:
    """80 epochs of one step each."""
    recipe = replace(recipes.DEFAULT_RECIPE, fork_mixup=changes.pop("fork_mixup", 0.75), batch_size=4)
    model = replace(SMALL, objective=Objective(beta=0.01))
    return GPVAE(model, recipe=recipe, epochs=80, device="cpu", **changes).fit(waves[:4, :8])


def losses(imputer: GPVAE) -> list[float]:
    return [epoch["nll"] for epoch in imputer.history_]


@pytest.mark.slow
@pytest.mark.parametrize("gain", [0.1, -0.1])
def test_series_are_mixed_where_held_out_cells_are_predicted_better_by_it(
    gain: float, waves: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run forks after three tenths of 80 epochs, since its scores hardly change; the better branch wins."""
    Branches(gain, monkeypatch)
    forked, never = fitted(waves), fitted(waves, fork_mixup=0.0)
    same = [one == other for one, other in zip(losses(forked), losses(never), strict=True)]
    assert same == [True] * 24 + [gain < 0] * 56
    weights = (each.method_.network.state_dict() for each in (forked, never))
    assert all(torch.equal(*each) for each in zip(*(each.values() for each in weights), strict=True)) == (gain < 0)


def test_data_that_is_not_standardised_is_never_mixed(waves: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    branches = Branches(0.1, monkeypatch)
    fitted(waves, standardise=False)
    assert not branches.mixup
