"""BRITS: the fast loop against one step after another, the time since an observation, padding, learning."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from gpvae import Linear, Mean, load
from gpvae.data.batches import Batch, BatchIndex, RowTensors
from gpvae.imputers import brits
from gpvae.imputers.brits import BothWays, BritsNetwork
from gpvae.imputers.labels import LabelHead, LabelledLoss
from gpvae.models.loss import Loss
from gpvae.training.config import TrainingConfig
from gpvae.training.devices import make_fabric
from gpvae.training.loop import train

ANY = Generator()  # nothing is drawn from it


class OneBatch(nn.Module):
    """The loss of a network on the same batch in every step."""

    def __init__(self, net: BritsNetwork, batch: Batch):
        super().__init__()
        self.net, self.batch = net, batch

    def forward(self, _: Tensor, generator: Generator, kl_scale: Tensor) -> Loss:
        return self.net.loss(self.batch, generator, kl_scale)


def seeded(seed: int) -> Generator:
    return Generator().manual_seed(seed)


def network(features: int = 3, hidden: int = 4, *, double: bool = True) -> BritsNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = BritsNetwork(features, hidden=hidden)
    return made.double() if double else made


def random_batch(lengths: list[int], features: int = 3, *, grid: bool = True, share: float = 0.4) -> Batch:
    shape = (len(lengths), max(lengths), features)
    values = torch.randn(shape, generator=seeded(1), dtype=torch.float64)
    length = torch.tensor(lengths)
    inside = (torch.arange(shape[1]) < length.unsqueeze(-1)).unsqueeze(-1)
    observed = (torch.rand(shape, generator=seeded(2)) < share) & inside
    times = (0.2 + torch.rand(shape[:2], generator=seeded(3), dtype=torch.float64)).cumsum(-1)
    return Batch(values * observed, observed, 0.7 if grid else times, length)


def each_alone(batch: Batch) -> list[Batch]:
    """Every series in a batch of its own, without padding."""
    return [
        Batch(
            batch.values[i : i + 1, :n],
            batch.observed[i : i + 1, :n],
            batch.times[i : i + 1, :n] if isinstance(batch.times, Tensor) else batch.times,
            batch.lengths[i : i + 1],
        )
        for i, n in enumerate(batch.lengths.tolist())
    ]


def slow_elapsed(observed: Tensor, times: Tensor) -> Tensor:
    """δ of one series by its definition. (time, feature), (time,) → (time, feature)"""
    elapsed = [torch.zeros(observed.shape[-1], dtype=times.dtype)]
    for t in range(1, len(observed)):
        elapsed.append(times[t] - times[t - 1] + torch.where(observed[t - 1], 0, elapsed[-1]))
    return torch.stack(elapsed)


def slow_estimates(net: BritsNetwork, direction: int, x: Tensor, observed: Tensor, times: Tensor) -> Tensor:
    return slow_run(net, direction, x, observed, times)[0]


def slow_run(net: BritsNetwork, direction: int, x: Tensor, observed: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
    """x̂, ẑ and ĉ of one series, one step after another, by the equations (3, time, feature), and the last h."""
    h = c = x.new_zeros(net.hidden)
    estimates: list[Tensor] = []

    def linear(layer: brits._Linears, inputs: Tensor) -> Tensor:
        return inputs @ layer.weight[direction] + layer.bias[direction, 0]

    for x_t, seen, elapsed in zip(x, observed, slow_elapsed(observed, times), strict=True):
        m = seen.to(x.dtype)
        faded = h * torch.exp(-torch.relu(linear(net.fade, elapsed)))
        x_hat = linear(net.history, faded)
        completed = m * x_t + (1 - m) * x_hat
        weight = net.regression.weight[direction]
        z = completed @ (weight - weight.diag().diag()) + net.regression.bias[direction, 0]
        decay = torch.exp(
            -torch.relu(elapsed * net.fade_values.weight[direction, 0] + net.fade_values.bias[direction, 0])
        )
        beta = torch.sigmoid(linear(net.blend, torch.cat([decay, m])))
        combined = beta * z + (1 - beta) * x_hat
        filled = m * x_t + (1 - m) * combined
        o, i, f, g = linear(net.gates, torch.cat([faded, filled, m])).chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        estimates.append(torch.stack([x_hat, z, combined]))
    return torch.stack(estimates, dim=1), h


def slow_both(net: BritsNetwork, alone: Batch) -> Tensor:
    """The estimates of both directions, in order of time. (direction, 3, time, feature)"""
    x, observed = alone.values[0], alone.observed[0]
    times = alone.times[0] if isinstance(alone.times, Tensor) else alone.times * torch.arange(len(x)).double()
    forward = slow_estimates(net, 0, x, observed, times)
    backward = slow_estimates(net, 1, x.flip(0), observed.flip(0), -times.flip(0)).flip(1)
    return torch.stack([forward, backward])


def slow_loss(net: BritsNetwork, batch: Batch) -> Tensor:
    """Means, times the share of observed cells."""
    errors, apart, cells, seen = [], [], 0, 0
    for alone in each_alone(batch):
        both, observed = slow_both(net, alone), alone.observed[0]
        errors.append(((both - alone.values[0]).abs() * observed).sum() / 3)
        apart.append(((both[0, 2] - both[1, 2]).abs() * ~observed).sum())
        cells, seen = cells + observed.numel(), seen + int(observed.sum())
    return seen / cells * (torch.stack(errors).sum() / seen + 0.1 * torch.stack(apart).sum() / cells)


RAGGED = [9, 4, 1, 20, 8]


@pytest.mark.parametrize("grid", [True, False])
def test_elapsed_time_equals_its_definition(grid: bool) -> None:
    batch = random_batch(RAGGED, grid=grid)
    elapsed = BothWays.of(batch).elapsed  # (direction, time, batch, feature)
    for i, n in enumerate(RAGGED):
        times = batch.times[i, :n] if isinstance(batch.times, Tensor) else 0.7 * torch.arange(n).double()
        observed = batch.observed[i, :n]
        torch.testing.assert_close(elapsed[0, :n, i], slow_elapsed(observed, times))
        torch.testing.assert_close(elapsed[1, :n, i], slow_elapsed(observed.flip(0), -times.flip(0)))


@pytest.mark.parametrize("grid", [True, False])
def test_loss_and_gradients_equal_those_of_one_step_after_another(grid: bool) -> None:
    net, batch = network(), random_batch(RAGGED, grid=grid)
    slow = slow_loss(net, batch)
    fast = net.loss(batch, ANY)
    torch.testing.assert_close(fast.total, slow)
    torch.testing.assert_close(fast.total, fast.parts["reconstruction"] + fast.parts["consistency"])
    weights = list(net.parameters())
    for expected, found in zip(
        torch.autograd.grad(slow, weights), torch.autograd.grad(fast.total, weights), strict=True
    ):
        assert (expected != 0).any()
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("grid", [True, False])
def test_filling_equals_that_of_one_step_after_another(grid: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brits, "PART", 6)
    net, batch = network(), random_batch(RAGGED, grid=grid)
    filled = net.fill(batch, ANY)
    assert torch.equal(filled[batch.observed], batch.values[batch.observed])
    for i, alone in enumerate(each_alone(batch)):
        expected = torch.where(alone.observed[0], alone.values[0], slow_both(net, alone)[:, 2].mean(0))
        torch.testing.assert_close(filled[i, : RAGGED[i]], expected)


def test_gradients_by_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brits, "BLOCK", 2)
    net, batch = network(features=2, hidden=2), random_batch([5, 3], features=2)
    read = BothWays.of(batch)
    inputs = [x.detach() for x in (*net._given(*read[:3]), *net._weights())]
    for x in inputs[3:]:  # neither x nor m
        x.requires_grad_()
    assert torch.autograd.gradcheck(brits._Recurrence.apply, inputs)


@pytest.mark.parametrize("grid", [True, False])
def test_values_of_gaps_and_padding_do_not_matter(grid: bool) -> None:
    net, batch = network(), random_batch(RAGGED, grid=grid)
    other = replace(batch, values=torch.where(batch.observed, batch.values, 99.0))
    if isinstance(batch.times, Tensor):
        other = replace(other, times=torch.where(batch.valid, batch.times, 1e6))
    first, second = net.loss(batch, ANY), net.loss(other, ANY)
    assert torch.equal(first.total, second.total)
    assert torch.equal(first.parts["consistency"], second.parts["consistency"])
    inside = batch.valid.unsqueeze(-1)
    assert torch.equal(net.fill(batch, ANY) * inside, net.fill(other, ANY) * inside)


def test_more_padding_and_empty_series_change_nothing() -> None:
    net, batch = network(), random_batch(RAGGED)
    more = random_batch([*RAGGED, 30])
    values, observed = torch.zeros_like(more.values), torch.zeros_like(more.observed)
    values[:-1, :20], observed[:-1, :20] = batch.values, batch.observed
    padded = Batch(values, observed, batch.times, torch.tensor([*RAGGED, 0]))
    torch.testing.assert_close(net.loss(padded, ANY), net.loss(batch, ANY))


def test_observed_values_weigh_the_same_in_every_batch() -> None:
    """Two batches of different fill and length, as parts of an epoch, score what they score together."""
    net, batch = network(), random_batch([6, 6, 12, 12])
    batch.observed[:2] &= torch.rand(2, 12, 3, generator=seeded(5)) < 0.3
    mean_steps = batch.lengths.sum() / 2
    halves = [
        Batch(batch.values[half], batch.observed[half], batch.times, batch.lengths[half], mean_steps)
        for half in (slice(0, 2), slice(2, 4))
    ]
    parts = [net.loss(half, ANY).parts["reconstruction"] for half in halves]
    torch.testing.assert_close(torch.stack(parts).mean(), net.loss(batch, ANY).parts["reconstruction"])


def test_consistency_has_its_weight() -> None:
    batch = random_batch(RAGGED)
    net = network()
    weighed = net.loss(batch, ANY).parts["consistency"]
    net.consistency = 0.3
    torch.testing.assert_close(net.loss(batch, ANY).parts["consistency"], 3 * weighed)


def test_a_feature_says_nothing_about_itself_at_the_same_step() -> None:
    net, batch = network(), random_batch([7], share=1.0)
    changed = replace(batch, values=batch.values.clone())
    changed.values[0, 3, 1] += 1
    first, second = (net.estimates(BothWays.of(b)).regression[0] for b in (batch, changed))
    differs = (first != second)[:, 0]
    assert differs[3].tolist() == [True, False, True]
    assert not differs[:3].any()


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_nothing_or_everything_observed(share: float) -> None:
    net, batch = network(), random_batch(RAGGED, share=share)
    loss = net.loss(batch, ANY)
    loss.total.backward()
    assert loss.total.isfinite()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in net.parameters())
    assert net.fill(batch, ANY).isfinite().all()
    assert (loss.parts["consistency" if share else "reconstruction"] == 0).all()


def test_long_series_are_filled_part_by_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that all but the result takes the memory of a few hundred steps."""
    parts, run = list[int](), brits._run

    def counted(given: brits._Given, *args: Any) -> Any:
        parts.append(given.values.shape[1])
        return run(given, *args)

    monkeypatch.setattr(brits, "_run", counted)
    net = network(features=2, hidden=2, double=False)
    long = random_batch([5000], features=2)
    filled = net.fill(replace(long, values=long.values.float()), ANY)
    assert sum(parts) == 5000
    assert max(parts) == brits.PART == 256
    assert filled.shape == (1, 5000, 2)
    assert filled.isfinite().all()


def test_bfloat16_is_close() -> None:
    net, batch = network(double=False), random_batch(RAGGED)
    single = replace(batch, values=batch.values.float())
    exact = net.loss(single, ANY).total
    with torch.autocast("cpu", torch.bfloat16):
        rough, filled = net.loss(single, ANY).total, net.fill(single, ANY)
    rough.backward()
    assert rough.dtype == filled.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0)


def test_wrong_settings_are_named() -> None:
    wrong: list[Callable[[], object]] = [
        partial(BritsNetwork, 0),
        partial(BritsNetwork, 2, hidden=0),
        partial(BritsNetwork, 2, consistency=-1.0),
    ]
    for make in wrong:
        with pytest.raises(ValueError, match="hidden ≥ 1, consistency ≥ 0, not"):
            make()


def test_learns_from_time_and_from_a_correlated_feature() -> None:
    """Fast waves: the line between neighbours misses them, the second feature knows the first."""
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(24) * 2 * np.pi / 5 + rng.uniform(0, 6, (96, 1)))
    truth = np.stack([wave, -wave], axis=-1) + 0.05 * rng.normal(size=(96, 24, 2))
    held_out = rng.random(truth.shape) < 0.4
    held_out[..., 1] &= ~held_out[..., 0]
    gappy = np.where(held_out, np.nan, truth)
    observed = torch.from_numpy(~held_out)
    values = torch.from_numpy(truth).float() * observed
    net = network(features=2, hidden=16, double=False)
    batch = Batch(values, observed, 1.0, torch.full((96,), 24))
    config = TrainingConfig(epochs=1, learning_rate=0.02)
    train(
        OneBatch(net, batch),
        lambda epoch: torch.zeros(150, 1),
        config,
        fabric=make_fabric("cpu", "32-true"),
    )
    filled = net.fill(batch, ANY).double().numpy()

    def error(guess: np.ndarray) -> float:
        return float(np.abs(guess - truth)[held_out].mean())

    mean, linear = (error(method.fit(gappy).impute(gappy).mean) for method in (Mean(), Linear()))
    assert error(filled) < 0.3 * linear
    assert error(filled) < 0.3 * mean


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")
@pytest.mark.parametrize("grid", [True, False])
def test_graphed_training_on_a_gpu_equals_that_on_a_cpu(grid: bool) -> None:
    batch, ends = random_batch(RAGGED, grid=grid), []
    for device in ("cpu", "cuda"):
        net = network().to(device)
        times = batch.times.to(device) if isinstance(batch.times, Tensor) else batch.times
        moved = Batch(batch.values.to(device), batch.observed.to(device), times, batch.lengths.to(device))
        train(
            OneBatch(net, moved),
            lambda epoch, device=device: torch.zeros(8, 1, device=device),
            TrainingConfig(epochs=1),
            fabric=make_fabric(device, "32-true"),
        )
        ends.append(torch.cat([weight.detach().cpu().flatten() for weight in net.parameters()]))
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-6, atol=1e-8)


# Labels


def labelled(weight: float, labels: list[float], batch: Batch) -> tuple[LabelledLoss, BatchIndex]:
    """The loss of `batch`, its series one after another as rows, and the index that gathers them again."""
    lengths = batch.lengths.tolist()
    rows = torch.cat([batch.values[i, :n] for i, n in enumerate(lengths)] + [torch.zeros(1, batch.values.shape[-1])])
    seen = torch.cat([batch.observed[i, :n] for i, n in enumerate(lengths)] + [batch.observed[0, :1] & False])
    starts = torch.tensor([0, *lengths]).cumsum(0)[:-1]
    label = torch.tensor(labels).repeat_interleave(batch.lengths)
    table = RowTensors(rows.double(), seen, torch.zeros(len(rows) - 1).double(), 0.7)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        head = LabelHead(4).double()
    loss = LabelledLoss(network(), head, table, label, weight)
    return loss, BatchIndex(starts, batch.lengths, batch.values.shape[1])


def test_labels_are_predicted_from_the_last_states_of_both_directions() -> None:
    """Of series of every length alone; those without a label do not count."""
    batch, labels = random_batch(RAGGED), [1.0, 0.0, float("nan"), 0.0, 1.0]
    loss, index = labelled(0.5, labels, batch)
    net = loss.network
    assert isinstance(net, BritsNetwork)
    found = loss(index, ANY, torch.ones(()))
    errors = []
    for i, n in enumerate(RAGGED):
        for direction in range(2):
            if labels[i] == labels[i]:
                x, seen = (each[i, :n].flip(0) if direction else each[i, :n] for each in (batch.values, batch.observed))
                _, h = slow_run(net, direction, x, seen, 0.7 * torch.arange(n).double())
                p = (h @ loss.head.weight[direction] + loss.head.bias[direction]).sigmoid()
                errors.append(-torch.log(p if labels[i] == 1 else 1 - p))
    share = batch.observed.sum() / (sum(RAGGED) * 3)
    torch.testing.assert_close(found.parts["label"], share * 0.5 * torch.stack(errors).sum() / 4)
    plain = net.loss(batch, ANY)
    torch.testing.assert_close(found.total - found.parts["label"], plain.total)
    nothing, index = labelled(0.5, [float("nan")] * 5, batch)
    assert nothing(index, ANY, torch.ones(())).parts["label"] == 0


def test_labels_teach_the_network_and_not_only_its_head() -> None:
    batch = random_batch(RAGGED)
    loss, index = labelled(1.0, [1.0, 0.0, 1.0, 0.0, 1.0], batch)
    loss(index, ANY, torch.ones(())).parts["label"].backward()
    net = loss.network
    assert isinstance(net, BritsNetwork)
    for weight in (loss.head.weight, net.gates.weight, net.history.weight, net.fade.weight):
        assert weight.grad is not None
        assert weight.grad.abs().sum() > 0


def test_fit_takes_labels_and_saves_no_head(tmp_path: Path) -> None:
    data = np.random.default_rng(0).normal(size=(12, 8, 3))
    data[::2, :, 0] = np.nan
    labels = np.where(np.arange(12) < 9, np.arange(12) % 2, np.nan)
    settings = {"hidden": 4, "epochs": 2, "device": "cpu"}
    plain, taught = brits.BRITS(**settings).fit(data), brits.BRITS(**settings, label_weight=0.1).fit(data, labels)
    assert "label" in taught.history_[-1]
    assert "label" not in plain.history_[-1]
    assert not np.array_equal(taught.impute(data).mean, plain.impute(data).mean)
    taught.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model", device="cpu").impute(data).mean, taught.impute(data).mean)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "label_weight needs labels"),
        ([0, 1], "y must have a label for each of the 3 series"),
        ([0, 1, 2], "labels must be 0 or 1, or NaN"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: list[int] | None, message: str) -> None:
    data = np.random.default_rng(0).normal(size=(3, 8, 2))
    with pytest.raises(ValueError, match=message):
        brits.BRITS(hidden=4, epochs=1, device="cpu", label_weight=0.1).fit(data, labels)
    with pytest.raises(ValueError, match="label_weight must not be negative"):
        brits.BRITS(label_weight=-0.1).fit(data, [0, 1, 1])
