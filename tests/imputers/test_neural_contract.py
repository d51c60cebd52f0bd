"""What imputers with a trained network share: validation, early stopping, checkpoints, settings."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from battery import IMPUTERS, TRAINED, fresh
from numpy.typing import NDArray

from gpvae import BRITS, GP, GRUIGAN, Conformal, Forward, Imputer, Masking, load
from gpvae.imputers.neural import Method, NeuralImputer
from gpvae.training.config import TrainingError

Array = NDArray[Any]


@pytest.fixture(params=TRAINED)
def trained(request: pytest.FixtureRequest) -> NeuralImputer:
    return cast(NeuralImputer, IMPUTERS[request.param]())


def test_training_has_a_history_logs_and_validation(trained: NeuralImputer, waves: Array, tmp_path: Path) -> None:
    trained.fit(waves, logs=tmp_path / "logs")
    assert len(trained.history_) == 4
    assert all(np.isfinite(list(entry.values())).all() and "validation" in entry for entry in trained.history_)
    assert list((tmp_path / "logs").rglob("*tfevents*"))
    without = fresh(trained).set_params(recipe=replace(trained.recipe, validation=0.0)).fit(waves)
    assert "validation" not in without.history_[0]
    assert without.held_out_ is None


def test_training_stops_when_patience_runs_out(trained: NeuralImputer, waves: Array) -> None:
    hopeless = replace(trained.recipe, patience=1, learning_rate=1e-9)
    assert len(trained.set_params(epochs=50, recipe=hopeless).fit(waves).history_) < 50


def fit_interrupted(imputer: Imputer, method: type[Method], data: Array, file: Path, patch: pytest.MonkeyPatch) -> None:
    """Fit with a Ctrl-C during the third validation."""
    calls, original = 0, method.score

    def interrupted(self: Method, *args: Any) -> float:
        nonlocal calls
        calls += 1
        if calls == 3:
            signal.raise_signal(signal.SIGINT)
        return original(self, *args)

    with patch.context() as patched:
        patched.setattr(method, "score", interrupted)
        with pytest.raises(KeyboardInterrupt):
            imputer.fit(data, checkpoint=file)
    assert calls == 3


def test_interrupted_fit_continues_from_its_checkpoint(
    trained: NeuralImputer, waves: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken, file = fresh(trained).fit(waves), tmp_path / "fit.checkpoint"
    fit_interrupted(fresh(trained), type(unbroken.method_), waves, file, monkeypatch)
    resumed = fresh(trained).fit(waves, checkpoint=file)
    assert np.array_equal(resumed.impute(waves, samples=2).mean, unbroken.impute(waves, samples=2).mean)
    assert resumed.history_ == unbroken.history_
    with pytest.raises(TrainingError, match="belongs to a run with other data or settings"):
        fresh(trained).fit(waves[:5], checkpoint=file)
    with pytest.raises(TrainingError, match="belongs to a run with other data or settings"):
        trained.set_params(recipe=replace(trained.recipe, clip_norm=7.0)).fit(waves, checkpoint=file)


def test_interrupted_conformal_fit_continues_too(waves: Array, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, file = IMPUTERS["conformal brits"], tmp_path / "fit.checkpoint"
    unbroken = cast(Conformal, make().fit(waves))
    method = type(cast(NeuralImputer, unbroken.imputer_).method_)
    fit_interrupted(make(), method, waves, file, monkeypatch)
    resumed = make().fit(waves, checkpoint=file)
    assert np.array_equal(resumed.impute(waves).interval(0.8)[0], unbroken.impute(waves).interval(0.8)[0])


def test_invalid_settings_are_refused(trained: NeuralImputer, waves: Array) -> None:
    for epochs in (0, 1.5, "8"):
        with pytest.raises(ValueError, match=f"epochs must be a whole number of at least 1, or None, got {epochs!r}"):
            fresh(trained).set_params(epochs=epochs).fit(waves)
    with pytest.raises(ValueError, match="seed must be a whole number that is not negative, got -1"):
        fresh(trained).set_params(seed=-1).fit(waves)
    with pytest.raises(TypeError, match="recipe must be a Recipe, got 'fast'"):
        fresh(trained).set_params(recipe="fast").fit(waves)
    with pytest.raises(ValueError, match="device must be auto, cpu or cuda, got 'tpu'"):
        fresh(trained).set_params(device="tpu").fit(waves)
    with pytest.raises(ValueError, match="precision must be 32-true or bf16-mixed, got '16'"):
        fresh(trained).set_params(precision="16").fit(waves)


def test_invalid_settings_of_single_methods_are_refused(waves: Array) -> None:
    for before in ("last", None, np.nan, np.inf, True):
        with pytest.raises(ValueError, match=r"before must be 'mean', 'first' or a number, got"):
            Forward(before).fit(waves)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"kernel must be one of gpvae.gp.kernels, .* got 'rbf'"):
        GP(kernel="rbf", device="cpu").fit(waves)  # type: ignore[arg-type]
    for imputer in (GP(device="cpu"), BRITS(device="cpu"), GRUIGAN(device="cpu")):
        for changes in ({"masking": Masking()}, {"fork_mixup": 0.5}, {"optimizer": "muon"}):
            imputer.recipe = replace(type(imputer)().recipe, **changes)
            with pytest.raises(ValueError, match="takes no masking, fork_mixup or optimizer: those are for GPVAE"):
                imputer.fit(waves)
    with pytest.raises(ValueError, match=r"pretraining must be between 0 and 1, got 1\.5"):
        GRUIGAN(pretraining=1.5, device="cpu").fit(waves)
    for size in ("hidden", "noise_dim", "fill_steps"):
        with pytest.raises(ValueError, match=f"{size} must be at least 1, got 0"):
            GRUIGAN(device="cpu").set_params(**{size: 0}).fit(waves)


def test_seed_may_be_a_number_of_numpy(trained: NeuralImputer, waves: Array, tmp_path: Path) -> None:
    trained.set_params(seed=np.int64(3), epochs=1).fit(waves, checkpoint=tmp_path / "run").save(tmp_path / "model")
    assert load(tmp_path / "model", device="cpu").get_params()["seed"] == 3


AT_TORCH = """
import os, sys
class Watch:
    def find_spec(self, name, *_):
        if name == "torch":
            print(os.environ["GOMP_SPINCOUNT"])
            sys.exit()
sys.meta_path.insert(0, Watch())
import gpvae.models.gpvae
"""


@pytest.mark.parametrize("given", [None, "7"])
def test_idle_threads_do_not_spin_unless_told_so(given: str | None) -> None:
    """PyTorch reads the variable when it is loaded, so it has to be set before."""
    others = {key: value for key, value in os.environ.items() if key != "GOMP_SPINCOUNT"}
    told = {} if given is None else {"GOMP_SPINCOUNT": given}
    found = subprocess.run([sys.executable, "-c", AT_TORCH], env=others | told, capture_output=True, text=True)
    assert found.stdout.split() == [given or "1000"], found.stderr
