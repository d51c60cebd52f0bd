"""The same on a GPU."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gpvae import BRITS, GP, GPVAE, GRUIGAN, HI_VAE, VAE, ModelConfig, Panel
from gpvae.gp.kernels import Cauchy
from gpvae.imputers.calibration import Judge
from gpvae.imputers.neural import Trained
from gpvae.models.model import PLAIN
from gpvae.training.loop import RecordedUpdate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")
Array = NDArray[Any]

TRAINED_ON = {
    "chain": {},
    "learned kernel": {"learn_kernel": True},
    "importance": {"importance_samples": 3},
    "many neighbours": {"neighbours": 29},
    "the paper's": {name: getattr(PLAIN, name) for name in ("encoder", "likelihood", "see_surroundings", "hide")},
}


def small(**settings: Any) -> ModelConfig:
    sizes = {"latent_dim": 3, "encoder_filters": 16, "encoder_widths": (16,), "decoder_widths": (16,)}
    return ModelConfig(**sizes, **settings)


@pytest.mark.parametrize("settings", TRAINED_ON.values(), ids=TRAINED_ON)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("grid", [True, False])
def test_fit_and_impute(waves: Array, settings: dict[str, Any], precision: str, grid: bool) -> None:
    times = None if grid else np.cumsum(np.random.default_rng(0).uniform(0.5, 2, (12, 30)), axis=1)
    panel = Panel.from_array(waves, times=times)
    model = GPVAE(small(**settings), epochs=4, precision=precision, device="cuda").fit(panel)
    result = model.impute(panel, samples=20)
    assert next(model.model_.parameters()).is_cuda
    assert np.isfinite(result.mean).all()
    assert np.array_equal(result.mean[~np.isnan(waves)], waves[~np.isnan(waves)])


def test_gpu_and_cpu_agree(waves: Array, tmp_path: Path) -> None:
    """The same weights, on either device: posterior means within Monte-Carlo error."""
    GPVAE(small(kernel=Cauchy((2.0, 7.0))), epochs=4, device="cuda").fit(waves).save(tmp_path / "model")
    waves[3] = np.nan
    cuda, cpu = (
        GPVAE.load(tmp_path / "model", device=device).impute(waves, samples=2000) for device in ("cuda", "cpu")
    )
    gaps = np.isnan(waves)
    assert (np.abs(cuda.mean - cpu.mean)[gaps] < 6 * cpu.std[gaps] / np.sqrt(2000)).all()
    np.testing.assert_allclose(cuda.std[gaps], cpu.std[gaps], rtol=0.15)


def test_resumed_fit_equals_an_unbroken_one(waves: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, score, calls = tmp_path / "run.checkpoint", Judge.score, 0

    def interrupted(self: Judge) -> float:
        nonlocal calls
        calls += 1
        if calls == 2:
            signal.raise_signal(signal.SIGINT)
        return score(self)

    unbroken = GPVAE(small(), epochs=4, device="cuda").fit(waves)
    with monkeypatch.context() as patch:
        patch.setattr(Judge, "score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            GPVAE(small(), epochs=4, device="cuda").fit(waves, checkpoint=file)
    resumed = GPVAE(small(), epochs=4, device="cuda").fit(waves, checkpoint=file)
    for ours, theirs in zip(resumed.history_, unbroken.history_, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3)


@pytest.mark.parametrize("settings", TRAINED_ON.values(), ids=TRAINED_ON)
@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("ragged", [True, False])
def test_recorded_steps_equal_those_taken_one_by_one(
    waves: Array, settings: dict[str, Any], grid: bool, ragged: bool
) -> None:
    """The same losses whether kernels are replayed or launched from Python, for batches of one shape or several."""
    times = None if grid else np.cumsum(np.random.default_rng(0).uniform(0.5, 2, (12, 30)), axis=1)
    panel = Panel.from_array(waves, times=times)
    if ragged:
        lengths = [30, 7] * 6
        panel = Panel.from_list(
            [series[:n] for series, n in zip(waves, lengths, strict=True)],
            times=None if times is None else [row[:n] for row, n in zip(times, lengths, strict=True)],
        )
    histories = []
    for warm_ups in (RecordedUpdate.WARM_UPS, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RecordedUpdate, "WARM_UPS", warm_ups)
            histories.append(GPVAE(small(**settings), epochs=8, batch_size=4, device="cuda").fit(panel).history_)
    for replayed, launched in zip(*histories, strict=True):
        assert replayed == pytest.approx(launched, rel=1e-3)


def test_recorded_steps_hear_that_series_are_to_be_mixed(waves: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind 24 of 80 epochs, where the run goes back to once steps have long been recorded; and is better for it."""
    monkeypatch.setattr(GPVAE, "_score", lambda _, network, exam: 1.0 - 0.1 * float(network.mixing > 0))
    histories = []
    for warm_ups, mix in ((RecordedUpdate.WARM_UPS, 0.75), (10**9, 0.75), (10**9, 0.0)):
        monkeypatch.setattr(RecordedUpdate, "WARM_UPS", warm_ups)
        histories.append(GPVAE(small(mix=mix, beta=0.01), epochs=80, batch_size=4, device="cuda").fit(waves).history_)
    replayed, launched, unmixed = histories
    for i, (one, other, plain) in enumerate(zip(replayed, launched, unmixed, strict=True)):
        assert one == pytest.approx(other, rel=1e-3)
        assert (one["nll"] == pytest.approx(plain["nll"], rel=1e-3)) == (i < 24)


BRIEF: dict[str, Any] = {"epochs": 8, "batch_size": 4, "device": "cuda"}
OTHERS: dict[str, Callable[[], Trained]] = {
    "gp": lambda: GP(window=16, **BRIEF),
    "vae": lambda: GPVAE(VAE, **BRIEF),
    "hi-vae": lambda: GPVAE(HI_VAE, **BRIEF),
    "kinds": lambda: GPVAE(small(), kinds={"x0": "positive", "x1": "count", "x2": "ordinal"}, **BRIEF),
    "more kinds": lambda: GPVAE(small(), kinds={"x1": "categorical", "x2": "binary"}, **BRIEF),
    "brits": lambda: BRITS(hidden=8, **BRIEF),
    "grui-gan": lambda: GRUIGAN(hidden=8, noise_dim=8, fill_steps=5, **BRIEF),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_the_other_methods_too(waves: Array, make: Callable[[], Trained], grid: bool, precision: str) -> None:
    """Positive, whole numbers and two levels, which suit every method; series of two lengths."""
    data = np.stack([np.exp(waves[..., 0]), np.rint(np.abs(waves[..., 1] - 500) / 5), waves[..., 2] > -3], axis=-1)
    data[np.isnan(waves)] = np.nan
    times = np.arange(30.0) if grid else np.cumsum(np.random.default_rng(0).uniform(0.5, 2, 30))
    lengths = [30, 7] * 6
    series = [each[:n] for each, n in zip(data, lengths, strict=True)]
    panel = Panel.from_list(series, times=[times[:n] for n in lengths])
    histories = []
    for warm_ups in (RecordedUpdate.WARM_UPS, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RecordedUpdate, "WARM_UPS", warm_ups)
            fitted = make().set_params(precision=precision).fit(panel)
        histories.append(fitted.history_)
        filled = fitted.impute(panel, samples=20)
        assert all(np.isfinite(each).all() for each in filled.mean)
    for replayed, launched in zip(*histories, strict=True):
        assert replayed == pytest.approx(launched, rel=2e-2 if precision == "bf16-mixed" else 1e-3, abs=1e-5)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_series_of_several_blocks(waves: Array, precision: str) -> None:
    """Longer than what attention looks at whole, and of two lengths, so that some blocks are padding."""
    long = [np.tile(series, (7, 1))[:n] for series, n in zip(waves, [200, 90] * 6, strict=True)]
    histories = []
    for warm_ups in (RecordedUpdate.WARM_UPS, 10**9):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RecordedUpdate, "WARM_UPS", warm_ups)
            fitted = GPVAE(small(), window=256, precision=precision, **BRIEF).fit(long)
        histories.append(fitted.history_)
        assert all(np.isfinite(each).all() for each in fitted.impute(long, samples=20).mean)
    for replayed, launched in zip(*histories, strict=True):
        assert replayed == pytest.approx(launched, rel=2e-2 if precision == "bf16-mixed" else 1e-3, abs=1e-5)
