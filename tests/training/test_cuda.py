"""Training and filling on a GPU: as on a CPU, and with CUDA graphs as without."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpvae import BRITS, DEFAULT, GP, GPVAE, GRUIGAN, HI_VAE, VAE, ModelConfig, Panel, Recipe
from gpvae.gp.kernels import Cauchy
from gpvae.imputers.latent import LatentMethod
from gpvae.imputers.neural import NeuralImputer
from gpvae.models.config import Objective
from gpvae.models.encoders import Attention, Convolution
from gpvae.models.inputs import Values
from gpvae.models.likelihoods import Gaussian
from gpvae.models.prior import Prior
from gpvae.training import recipe as recipes
from gpvae.training.cuda_graph import GraphedStep
from gpvae.training.objective import BoundObjective
from gpvae.training.state import Parts

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")
Array = NDArray[Any]
DEVICE = "cuda"

SMALL = replace(DEFAULT, latent_dim=3, encoder=Attention(width=16), decoder_widths=(16,))
PAPER = ModelConfig(
    latent_dim=3,
    prior=Prior(learned=True),
    inputs=Values(observed=True, steps=True),
    encoder=Convolution(filters=16, widths=(16,)),
    decoder_widths=(16,),
    likelihood=Gaussian(),
    objective=Objective(beta=None),
)
MODELS = {
    "default": SMALL,
    "fixed prior": replace(SMALL, prior=Prior(learned=False)),
    "importance": replace(SMALL, objective=Objective(beta=None, importance_samples=3)),
    "many neighbours": replace(SMALL, prior=Prior(learned=True, neighbours=29)),
    "paper": PAPER,
}


def recipe_for(model: ModelConfig, **changes: Any) -> Recipe:
    """The default recipe; nothing is hidden from the paper's model."""
    masking = None if model is PAPER else recipes.DEFAULT_RECIPE.masking
    return replace(recipes.DEFAULT_RECIPE, masking=masking, **changes)


def irregular(series: int, steps: int) -> Array:
    return np.cumsum(np.random.default_rng(0).uniform(0.5, 2, (series, steps)), axis=1)


def same_history(ours: list[Parts], theirs: list[Parts], *, rel: float = 1e-3, floor: float = 1e-12) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=rel, abs=floor)


def graphed_and_eager(fit: Callable[[], NeuralImputer]) -> list[NeuralImputer]:
    """Fit with steps that are captured and replayed, and with steps that are all launched from Python."""
    fitted = []
    for warm_up_steps in (GraphedStep.WARM_UP_STEPS, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(GraphedStep, "WARM_UP_STEPS", warm_up_steps)
            fitted.append(fit())
    return fitted


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("grid", [True, False])
def test_fit_and_impute(waves: Array, model: ModelConfig, precision: str, grid: bool) -> None:
    panel = Panel.from_array(waves, times=None if grid else irregular(12, 30))
    imputer = GPVAE(model, recipe=recipe_for(model), epochs=4, precision=precision, device=DEVICE).fit(panel)
    result = imputer.impute(panel, samples=20)
    assert imputer.method_.device.type == DEVICE
    assert np.isfinite(result.mean).all()
    assert np.array_equal(result.mean[~np.isnan(waves)], waves[~np.isnan(waves)])


def test_gpu_and_cpu_agree(waves: Array, tmp_path: Path) -> None:
    """The same weights, on either device: posterior means within Monte-Carlo error."""
    model = replace(SMALL, prior=Prior(Cauchy((2.0, 7.0)), learned=True))
    fitted = GPVAE(model, epochs=4, device=DEVICE).fit(waves)
    fitted.save(tmp_path / "model")
    waves[3] = np.nan
    loaded = [GPVAE.load(tmp_path / "model", device=device) for device in (DEVICE, "cpu")]
    assert [each.method_.device.type for each in loaded] == [DEVICE, "cpu"]
    for each in loaded:
        calibration = each.method_.calibration
        assert torch.equal(calibration.scale_factor.cpu(), fitted.method_.calibration.scale_factor.cpu())
    gpu, cpu = (each.impute(waves, samples=2000) for each in loaded)
    gaps = np.isnan(waves)
    assert (np.abs(gpu.mean - cpu.mean)[gaps] < 6 * cpu.std[gaps] / np.sqrt(2000)).all()
    np.testing.assert_allclose(gpu.std[gaps], cpu.std[gaps], rtol=0.15)


def test_resumed_fit_equals_an_unbroken_one(waves: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, score, calls = tmp_path / "run.checkpoint", LatentMethod.score, 0

    def interrupted(self: LatentMethod, *args: Any) -> float:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGINT)
        return score(self, *args)

    unbroken = GPVAE(SMALL, epochs=4, device=DEVICE).fit(waves)
    with monkeypatch.context() as patch:
        patch.setattr(LatentMethod, "score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            GPVAE(SMALL, epochs=4, device=DEVICE).fit(waves, checkpoint=file)
    resumed = GPVAE(SMALL, epochs=4, device=DEVICE).fit(waves, checkpoint=file)
    same_history(resumed.history_, unbroken.history_)


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("ragged", [True, False])
def test_graphed_steps_equal_eager_ones(waves: Array, model: ModelConfig, grid: bool, ragged: bool) -> None:
    """The same losses whether kernels are replayed or launched from Python, for batches of one shape or several."""
    lengths, times = [30, 7] * 6 if ragged else [30] * 12, irregular(12, 30)
    panel = Panel.from_list(
        [series[:n] for series, n in zip(waves, lengths, strict=True)],
        times=None if grid else [row[:n] for row, n in zip(times, lengths, strict=True)],
    )
    recipe = recipe_for(model, batch_size=4)
    graphed, eager = graphed_and_eager(lambda: GPVAE(model, recipe=recipe, epochs=8, device=DEVICE).fit(panel))
    same_history(graphed.history_, eager.history_)


def test_graphed_steps_follow_a_fork(waves: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """After 24 of 80 epochs the run goes on with mixup, and is better by its scores.

    A replayed step runs no Python, but the first steps of every branch do, which is enough to know the branch.
    """
    mixup, forward = False, BoundObjective.forward

    def watched(self: BoundObjective, *args: Any) -> Any:
        nonlocal mixup
        mixup = self.masking is not None and self.masking.mixup > 0
        return forward(self, *args)

    def score(*_: object) -> float:
        return 1.0 - 0.1 * mixup

    monkeypatch.setattr(BoundObjective, "forward", watched)
    monkeypatch.setattr(LatentMethod, "score", score)
    model = replace(SMALL, objective=Objective(beta=0.01))

    def fit(fork_mixup: float) -> GPVAE:
        recipe = replace(recipes.DEFAULT_RECIPE, fork_mixup=fork_mixup, batch_size=4)
        return GPVAE(model, recipe=recipe, epochs=80, device=DEVICE).fit(waves[:8, :12])

    graphed, eager = graphed_and_eager(lambda: fit(0.75))
    same_history(graphed.history_, eager.history_)
    unmixed = fit(0.0).history_
    for epoch, (one, other) in enumerate(zip(graphed.history_, unmixed, strict=True)):
        assert (one["nll"] == pytest.approx(other["nll"], rel=1e-3)) == (epoch < 24)


def brief(recipe: Recipe = Recipe(), **changes: Any) -> dict[str, Any]:
    return {"epochs": 8, "device": DEVICE, "recipe": replace(recipe, batch_size=4, **changes)}


KINDS = {"x0": "positive", "x1": "count", "x2": "ordinal"}
OTHERS: dict[str, Callable[[], NeuralImputer]] = {
    "gp": lambda: GP(**brief(window=16)),
    "vae": lambda: GPVAE(VAE["model"], **brief(VAE["recipe"])),
    "hi-vae": lambda: GPVAE(HI_VAE["model"], **brief(HI_VAE["recipe"])),
    "kinds": lambda: GPVAE(SMALL, kinds=KINDS, **brief(recipes.DEFAULT_RECIPE)),
    "more kinds": lambda: GPVAE(SMALL, kinds={"x1": "categorical", "x2": "binary"}, **brief(recipes.DEFAULT_RECIPE)),
    "brits": lambda: BRITS(hidden=8, **brief()),
    "grui-gan": lambda: GRUIGAN(hidden=8, noise_dim=8, fill_steps=5, **brief(learning_rate=3e-3, kl_warm_up=0.25)),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_graphed_steps_of_other_methods(
    waves: Array, make: Callable[[], NeuralImputer], grid: bool, precision: str
) -> None:
    """Positive, whole numbers and two levels, which suit every method; series of two lengths."""
    data = np.stack([np.exp(waves[..., 0]), np.rint(np.abs(waves[..., 1] - 500) / 5), waves[..., 2] > -3], axis=-1)
    data[np.isnan(waves)] = np.nan
    times = np.arange(30.0) if grid else irregular(1, 30)[0]
    lengths = [30, 7] * 6
    series = [each[:n] for each, n in zip(data, lengths, strict=True)]
    panel = Panel.from_list(series, times=[times[:n] for n in lengths])
    graphed, eager = graphed_and_eager(lambda: make().set_params(precision=precision).fit(panel))
    for imputer in (graphed, eager):
        assert all(np.isfinite(each).all() for each in imputer.impute(panel, samples=20).mean)
    same_history(graphed.history_, eager.history_, rel=2e-2 if precision == "bf16-mixed" else 1e-3, floor=1e-5)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_series_of_several_blocks(waves: Array, precision: str) -> None:
    """Longer than what attention takes whole, and of two lengths, so that some blocks are padding."""
    long = [np.tile(series, (7, 1))[:n] for series, n in zip(waves, [200, 90] * 6, strict=True)]
    settings = brief(recipes.DEFAULT_RECIPE, window=256)
    graphed, eager = graphed_and_eager(lambda: GPVAE(SMALL, precision=precision, **settings).fit(long))
    for imputer in (graphed, eager):
        assert all(np.isfinite(each).all() for each in imputer.impute(long, samples=20).mean)
    same_history(graphed.history_, eager.history_, rel=2e-2 if precision == "bf16-mixed" else 1e-3, floor=1e-5)
