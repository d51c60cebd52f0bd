"""Fitting the GP-VAE: the cells it holds out, columns that do not vary, failures."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from battery import fresh
from numpy.typing import NDArray
from torch import Tensor

from gpvae import GPVAE, Panel
from gpvae.data.batches import BatchIndex, Window
from gpvae.imputers.held_out import HeldOut, hold_out
from gpvae.models.config import Objective
from gpvae.training.objective import BoundObjective

Array = NDArray[Any]


@pytest.mark.parametrize("validation", [0.0, 0.2])
def test_training_sees_everything_but_the_held_out_cells(
    tiny: GPVAE, waves: Array, validation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[HeldOut] = []
    original = GPVAE._train

    def spy(self: GPVAE, method: Any, panel: Any, held_out: HeldOut, *args: Any) -> Any:
        parts.append(held_out)
        return original(self, method, panel, held_out, *args)

    monkeypatch.setattr(GPVAE, "_train", spy)
    tiny.set_params(recipe=replace(tiny.recipe, validation=validation), epochs=1).fit(waves)
    (held_out,) = parts
    known = torch.from_numpy(~np.isnan(waves.reshape(-1, 3)))
    seen, targets = held_out.rows.observed[:-1], held_out.targets.observed[:-1]
    assert torch.equal(seen | targets, known)
    assert not (seen & targets).any()
    assert int(targets.sum()) == round(validation * int(known.sum()))
    assert held_out.exists is bool(validation)
    assert ("validation" in tiny.history_[0]) is bool(validation)


def test_the_objective_never_sees_a_held_out_value(tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of held-out cells may be anything: the losses of training stay the same, the scores do not."""
    held_out = tiny.set_params(epochs=2).fit(waves).held_out(Panel.of(waves))
    assert held_out is not None
    histories = []
    for factor in (1.0, 3.0):
        rows = tiny.schema_.rows(Panel.of(waves), ~np.isnan(waves).reshape(-1, 3) & ~held_out, torch.device("cpu"))
        targets = tiny.schema_.rows(Panel.of(waves), held_out, torch.device("cpu"))
        changed = HeldOut(rows, replace(targets, values=factor * targets.values), [Window(0, 30)], seed=0)
        monkeypatch.setattr(GPVAE, "_held_out", lambda *_, changed=changed: changed)
        histories.append(fresh(tiny).fit(waves).history_)
    for ours, theirs in zip(*histories, strict=True):
        assert ours["loss"] == theirs["loss"]
        assert ours["validation"] != theirs["validation"]


def test_half_of_the_held_out_cells_lie_in_gaps_like_those_of_the_data() -> None:
    values = np.random.default_rng(0).normal(size=(3000, 2)).cumsum(axis=0)
    for first in range(100, 2900, 200):
        values[first : first + 20, 0] = np.nan
    panel = Panel.of(values)
    held_out = hold_out(panel, 0.1, 3, np.ones(2, dtype=bool))
    assert held_out.sum() == round(0.1 * panel.observed.sum())
    assert not (held_out & ~panel.observed).any()
    edges = np.diff(held_out[:, 0].astype(int), prepend=0, append=0)
    lengths = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    assert lengths[lengths >= 10].sum() == pytest.approx(0.5 * held_out.sum(), rel=0.15)
    whole = Panel.of(np.random.default_rng(0).normal(size=(300, 2)))
    assert hold_out(whole, 0.1, 3, np.ones(2, dtype=bool)).sum() == 60  # no gaps to imitate
    assert not hold_out(whole, 0.1, 3, np.array([True, False]))[:, 1].any()


def test_failed_fit_leaves_the_fitted_model_alone(tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tiny.fit(waves).impute(waves, samples=2).mean
    monkeypatch.setattr(GPVAE, "_train", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tiny.fit(waves * 1000 + 5)
    assert np.array_equal(tiny.impute(waves, samples=2).mean, expected)
    never_fitted = fresh(tiny)
    with pytest.raises(KeyboardInterrupt):
        never_fitted.fit(waves)
    with pytest.raises(Exception, match="not fitted"):
        never_fitted.impute(waves)


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_seed_decides_the_first_weights(tiny: GPVAE, waves: Array) -> None:
    schema = tiny._new_schema(Panel.of(waves))
    methods = [fresh(tiny).set_params(seed=seed)._seeded_method(schema, 1.0) for seed in (3, 3, 4)]
    first, again, other = (method.tensors()["network.decoder.dense.0.weight"] for method in methods)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("beta", "scale"), [(None, 1 / 1001), (0.01, 1 / 3)])
def test_kl_weight_left_open_rises_slowly_in_training(
    beta: float | None, scale: float, tiny: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over 1,000 steps, of one an epoch; otherwise over a quarter of the epochs."""
    scales, forward = list[float](), BoundObjective.forward

    def watched(self: BoundObjective, index: Any, generator: Any, kl_scale: Tensor) -> Any:
        scales.append(float(kl_scale))
        return forward(self, index, generator, kl_scale)

    monkeypatch.setattr(BoundObjective, "forward", watched)
    tiny.set_params(model=replace(tiny.model, objective=Objective(beta)), epochs=8).fit(waves)
    assert scales[0] == pytest.approx(scale)


def test_constant_columns_have_no_say_in_training(tiny: GPVAE, waves: Array) -> None:
    still = np.concatenate([waves, np.full((12, 30, 4), 7.0)], axis=-1)
    with pytest.warns(UserWarning, match="is constant"):
        with_them = fresh(tiny).fit(still)
    scores = [entry["validation"] for entry in with_them.history_]
    assert scores == pytest.approx([entry["validation"] for entry in tiny.fit(waves).history_], abs=0.3)


def test_every_time_step_of_an_epoch_weighs_the_same(plain: GPVAE, waves: Array) -> None:
    """The gradient of a batch of short windows and one of long ones, averaged, is that of all windows together."""
    method = plain.set_params(epochs=1).fit(waves).method_
    panel, windows = Panel.of(waves), [Window(0, 4), Window(30, 3), Window(60, 30), Window(90, 25)]
    objective = method.objective(method.schema.rows(panel, panel.observed, torch.device("cpu")), compile=False)
    assert isinstance(objective, BoundObjective)
    total = sum(window.length for window in windows)
    noise = torch.randn(1, 4, 30, 3, generator=torch.Generator().manual_seed(0))

    def gradient(*batches: slice) -> list[Tensor]:
        method.network.zero_grad()
        for part in batches:
            mean_steps = torch.tensor(total / len(batches))
            index = BatchIndex.of(windows[part], torch.device("cpu"))._replace(mean_steps=mean_steps)
            prior = method.network.prior.at(1.0, steps=index.time)
            drawn = noise[:, part, : index.time]
            loss = objective.bound(objective.rows.batch(index), None, prior, drawn, torch.tensor(1.0))
            (loss.total / len(batches)).backward()
        return [p.grad.clone() for p in method.network.parameters() if p.grad is not None]

    together, apart = gradient(slice(0, 4)), gradient(slice(0, 2), slice(2, 4))
    assert len(together) > 10
    for ours, theirs in zip(apart, together, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_epoch_in_two_batches_has_the_loss_of_one_batch(
    plain: GPVAE, waves: Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of short series and one of long ones; without noise, and with a learning rate that changes nothing."""
    data = [series[:length] for series, length in zip(waves, [4, 4, 30, 30], strict=False)]
    monkeypatch.setattr("torch.randn", lambda shape, **_: torch.zeros(shape))
    losses = []
    for size in (2, 4):
        recipe = replace(plain.recipe, batch_size=size, validation=0.0, learning_rate=1e-12)
        losses.append(fresh(plain).set_params(recipe=recipe, epochs=1).fit(data).history_[0]["loss"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
