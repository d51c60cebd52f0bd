"""GRUI-GAN: its cell and lags against slow loops, each player's gradients, padding, and what it learns."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call

from gpvae import GRUIGAN, Recipe
from gpvae.data.batches import Batch
from gpvae.imputers.grui_gan import Grui, GruiGanNetwork, SeriesCritic, lags
from gpvae.models.loss import Loss
from gpvae.training.config import TrainingConfig
from gpvae.training.devices import make_fabric
from gpvae.training.loop import train
from gpvae.training.optimizers import make_optimizer
from gpvae.training.state import TrainState
from gpvae.training.step import TrainStep

GRIDS = pytest.mark.parametrize("grid", [True, False])


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_batch(lengths: tuple[int, ...] = (7, 7, 7, 7), *, grid: bool = True, features: int = 2) -> Batch:
    """Float64; irregular times do not begin at 0, as in windows."""
    series, time = len(lengths), max(lengths)
    length = torch.tensor(lengths)
    inside = (torch.arange(time) < length.unsqueeze(-1)).unsqueeze(-1)
    values = torch.randn(series, time, features, generator=seeded(1), dtype=torch.float64)
    observed = (torch.rand(series, time, features, generator=seeded(2)) < 0.6) & inside
    steps = 0.2 + torch.rand(series, time, generator=seeded(3), dtype=torch.float64)
    return Batch(values * observed, observed, 0.5 if grid else 3 + steps.cumsum(-1), length)


def alone(batch: Batch, i: int) -> Batch:
    """One series without its padding."""
    n = int(batch.lengths[i])
    times = batch.times[i : i + 1, :n] if isinstance(batch.times, Tensor) else batch.times
    return Batch(batch.values[i : i + 1, :n], batch.observed[i : i + 1, :n], times, batch.lengths[i : i + 1])


def model_of(
    features: int = 2, *, seed: int = 0, hidden: int = 5, noise_dim: int = 3, fill_steps: int = 5
) -> GruiGanNetwork:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return GruiGanNetwork(features, hidden=hidden, noise_dim=noise_dim, fill_steps=fill_steps)


def gradients(loss: Tensor, module: nn.Module) -> list[Tensor]:
    weights = list(module.parameters())
    return list(torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True))


def slow_lags(batch: Batch) -> Tensor:
    delta = torch.zeros_like(batch.values)
    for i, length in enumerate(batch.lengths.tolist()):
        for t in range(1, length):
            step = batch.times[i, t] - batch.times[i, t - 1] if isinstance(batch.times, Tensor) else batch.times
            for j in range(batch.values.shape[-1]):
                delta[i, t, j] = step + (0 if batch.observed[i, t - 1, j] else delta[i, t - 1, j])
    return delta


@GRIDS
@pytest.mark.parametrize("lengths", [(7, 7, 7, 7), (6, 1, 0, 4), (1,)])
def test_lags_equal_the_recursion(grid: bool, lengths: tuple[int, ...]) -> None:
    batch = random_batch(lengths, grid=grid)
    torch.testing.assert_close(lags(batch), slow_lags(batch))
    nothing = replace(batch, observed=torch.zeros_like(batch.observed))
    torch.testing.assert_close(lags(nothing), slow_lags(nothing))
    assert lags(replace(batch, values=batch.values.float())).dtype == torch.float32


def slow_states(cell: Grui, x: Tensor, delta: Tensor) -> Tensor:
    """PyTorch's own GRU cell on a state that fades."""
    gru = nn.GRUCell(x.shape[-1], cell.hidden, dtype=torch.float64)
    with torch.no_grad():
        for name, layer in (("ih", cell.from_input), ("hh", cell.from_state)):
            getattr(gru, f"weight_{name}").copy_(layer.weight)
            getattr(gru, f"bias_{name}").copy_(layer.bias)
    states = torch.zeros(*x.shape[:2], cell.hidden, dtype=torch.float64)
    for i in range(x.shape[0]):
        state = torch.zeros(cell.hidden, dtype=torch.float64)
        for t in range(x.shape[1]):
            rate = cell.fading.weight @ delta[i, t] + cell.fading.bias
            state = gru(x[i, t], state * torch.exp(-torch.maximum(rate, torch.zeros(()))))
            states[i, t] = state
    return states


def test_cell_is_a_gru_with_a_fading_state() -> None:
    batch, cell = random_batch(grid=False), model_of().double().critic.cell
    expected = slow_states(cell, batch.values, lags(batch))
    torch.testing.assert_close(cell(batch.values, lags(batch)), expected)
    both = cell(torch.stack([batch.values, -batch.values]), lags(batch))  # two versions with the same lags
    torch.testing.assert_close(both[1], slow_states(cell, -batch.values, lags(batch)))


def test_generator_feeds_itself_or_on_what_is_known() -> None:
    batch, generator = random_batch(), model_of().double().generator
    noise, delta = torch.randn(4, 3, generator=seeded(), dtype=torch.float64), lags(batch)
    for known in (batch.observed, torch.zeros_like(batch.observed)):
        found = generator(noise, delta, batch.values, known)
        fed = torch.where(known, batch.values, found)[:, :-1]
        inputs = torch.cat([torch.zeros_like(fed[:, :1]), fed], dim=1) + generator.from_noise(noise).unsqueeze(1)
        torch.testing.assert_close(found, generator.output(slow_states(generator.cell, inputs, delta)))


@pytest.mark.parametrize("length", [1, 4, 7])
def test_critic_reads_the_last_step_of_a_series(length: int) -> None:
    batch, critic = random_batch((length, 7)), model_of().double().critic
    states = slow_states(critic.cell, batch.values, lags(batch))
    score = critic(batch.values, lags(batch), batch.lengths)
    torch.testing.assert_close(score[0], critic.output(states[0, length - 1]).squeeze())


@GRIDS
@pytest.mark.parametrize("kl_scale", [0.5, 1.0])
def test_each_player_follows_its_own_loss(grid: bool, kl_scale: float) -> None:
    """As two losses in the usual way, with the other player held fixed in each."""
    model, batch = model_of().double(), random_batch((7, 3, 0, 5), grid=grid)
    generator, delta = seeded(5), lags(batch)
    noise = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    blend = torch.rand(4, 1, 1, generator=generator, dtype=torch.float64)
    share = batch.lengths / batch.lengths.sum()
    fake = model._free(batch, delta, noise) * batch.observed
    frozen = {name: value.detach() for name, value in model.critic.named_parameters()}
    forged = functional_call(model.critic, frozen, (fake, delta, batch.lengths))
    predicted = model.generator(torch.zeros_like(noise), delta, batch.values, batch.observed)
    error = ((predicted - batch.values)[batch.observed] ** 2).sum() / batch.lengths.sum()
    generators = error if kl_scale < 1 else -(forged * share).sum()
    distance = model.critic(batch.values, delta, batch.lengths) - model.critic(fake.detach(), delta, batch.lengths)
    mixed = blend * batch.values + (1 - blend) * fake.detach()
    penalty = ((slow_steepness(model.critic, batch, mixed) - 1) ** 2 * share).sum()
    critics = model.penalty * penalty - (distance * share).sum()

    loss = model.loss(batch, seeded(5), torch.tensor(kl_scale))
    torch.testing.assert_close(loss.parts["distance"], (distance * share).sum())
    torch.testing.assert_close(loss.parts["penalty"], penalty)
    torch.testing.assert_close(loss.parts["error"], error)
    for player, own in ((model.generator, generators), (model.critic, critics)):
        for found, expected in zip(gradients(loss.total, player), gradients(own, player), strict=True):
            torch.testing.assert_close(found, expected)
    torch.testing.assert_close(model.loss(batch, seeded(5), kl_scale).total, loss.total)


def slow_steepness(critic: SeriesCritic, batch: Batch, values: Tensor) -> Tensor:
    """Series by series; 0 for those without steps."""
    norms = torch.zeros(len(values), dtype=torch.float64)
    for i, length in enumerate(batch.lengths.tolist()):
        if length:
            series = alone(replace(batch, values=values), i)
            x = series.values.clone().requires_grad_()
            (slope,) = torch.autograd.grad(critic(x, lags(series), series.lengths)[0], x, create_graph=True)
            norms[i] = slope[series.observed].norm()
    return norms


def test_steepness_is_that_of_finite_differences() -> None:
    model, batch = model_of().double(), random_batch((3, 2), grid=False)
    found = model._steepness(batch, lags(batch), batch.values.clone())
    slopes = torch.zeros_like(batch.values)
    for cell in batch.observed.nonzero().tolist():
        moved = torch.zeros_like(batch.values)
        moved[tuple(cell)] = 1e-5
        up, down = (model.critic(batch.values + s * moved, lags(batch), batch.lengths) for s in (1, -1))
        slopes[tuple(cell)] = (up - down)[cell[0]].detach() / 2e-5
    torch.testing.assert_close(found, slopes.flatten(1).norm(dim=1), rtol=1e-6, atol=1e-8)


def test_gradient_of_the_penalty() -> None:
    model, batch = model_of(hidden=2).double(), random_batch((3, 2))

    def penalty(*weights: Tensor) -> Tensor:
        for old, new in zip(model.critic.parameters(), weights, strict=True):
            old.data = new.data
        return (model._steepness(batch, lags(batch), batch.values.clone()) - 1).square().sum()

    weights = [weight.detach().clone() for weight in model.critic.parameters()]
    found = gradients(penalty(*weights), model.critic)
    for i, j in [(0, 0), (2, 1), (2, 11), (4, 3), (4, 10), (6, 1)]:
        moved = [weight.clone() for weight in weights]
        moved[i].view(-1)[j] += 1e-5
        up = float(penalty(*moved).detach())
        moved[i].view(-1)[j] -= 2e-5
        down = float(penalty(*moved).detach())
        assert float(found[i].view(-1)[j]) == pytest.approx((up - down) / 2e-5, rel=1e-5, abs=1e-8)


@GRIDS
@pytest.mark.parametrize("kl_scale", [0.5, 1.0])
def test_padding_and_empty_rows_change_nothing(grid: bool, kl_scale: float) -> None:
    model, short = model_of().double(), random_batch((5, 3, 5), grid=grid)
    pad = nn.functional.pad
    times = short.times
    if isinstance(times, Tensor):
        times = torch.cat([times, times[:, -1:] + torch.arange(1, 3)], dim=1)
        times = torch.cat([times, times[:1]])
    values, observed = (pad(x, (0, 0, 0, 2, 0, 1)) for x in (short.values, short.observed))
    padded = Batch(torch.where(observed, values, 99.0), observed, times, torch.tensor([5, 3, 5, 0]))
    noise = torch.randn(4, 3, generator=seeded(), dtype=torch.float64)
    blend = torch.rand(4, 1, 1, generator=seeded(), dtype=torch.float64)
    losses = []
    for batch in (short, padded):
        n, delta = len(batch.values), lags(batch)
        predicted, fake = model._predicted_and_free(batch, noise[:n], delta)
        distance, penalty = model._duel(batch, delta, fake, blend[:n])
        losses.append([predicted[:3, :3], fake[:3, :3], distance, penalty, *gradients(distance + penalty, model)])
    for found, expected in zip(*losses, strict=True):
        torch.testing.assert_close(found, expected)
    loss = model.loss(padded, seeded(), kl_scale)
    zeros = replace(padded, values=values)
    assert torch.equal(loss.total, model.loss(zeros, seeded(), kl_scale).total)
    assert all(gradient.isfinite().all() for gradient in gradients(loss.total, model))


def test_a_step_weighs_the_same_in_every_batch() -> None:
    """Against the usual batch's steps, the loss of a batch is the sum of those of its series."""
    model, batch = model_of().double(), replace(random_batch((7, 3, 0, 5)), mean_steps=torch.tensor(20.0))
    delta, blend = lags(batch), torch.rand(4, 1, 1, generator=seeded(), dtype=torch.float64)
    fake = model._free(batch, delta, torch.randn(4, 3, generator=seeded(), dtype=torch.float64))
    together = torch.stack(model._duel(batch, delta, fake, blend))
    apart = torch.zeros(2, dtype=torch.float64)
    for i in (0, 1, 3):
        series = replace(alone(batch, i), mean_steps=batch.mean_steps)
        apart += torch.stack(model._duel(series, lags(series), fake[i : i + 1, : batch.lengths[i]], blend[i : i + 1]))
    torch.testing.assert_close(together, apart)


def test_missing_values_are_neither_seen_nor_scored() -> None:
    model, batch = model_of(), random_batch()
    batch = replace(batch, values=batch.values.float())
    other = replace(batch, values=torch.where(batch.observed, batch.values, 7.0))
    assert torch.equal(model.loss(batch, seeded()).total, model.loss(other, seeded()).total)
    assert torch.equal(filled(model, batch), filled(model, other))


@pytest.mark.parametrize("kl_scale", [0.5, 1.0])
def test_autocast_changes_nothing(kl_scale: float) -> None:
    model, batch = model_of(), random_batch()
    batch = replace(batch, values=batch.values.float())
    plain, found_without = model.loss(batch, seeded(), torch.tensor(kl_scale)), filled(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        cast = model.loss(batch, seeded(), torch.tensor(kl_scale))
        assert torch.equal(filled(model, batch), found_without)
    assert torch.equal(cast.total, plain.total)
    for found, expected in zip(gradients(cast.total, model), gradients(plain.total, model), strict=True):
        assert torch.equal(found, expected)


def test_every_parameter_learns_and_the_critic_is_quicker() -> None:
    model = model_of()
    generator, critic = model.parameter_groups(0.01)
    assert critic["lr"] == pytest.approx(0.04)
    assert len(generator["params"]) + len(critic["params"]) == len(list(model.parameters()))
    batch = random_batch(grid=False)
    loss = model.loss(replace(batch, values=batch.values.float()), seeded())
    loss.total.backward()
    silent = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.abs().sum() > 0]
    assert silent == ["critic.output.bias"]  # only differences of scores count


def filled(model: GruiGanNetwork, batch: Batch, seed: int = 0) -> Tensor:
    with torch.no_grad():
        return model.fill(batch, seeded(seed))


@GRIDS
def test_noise_of_a_series_is_found_whatever_else_is_in_the_batch(grid: bool) -> None:
    model, batch = model_of(fill_steps=20).double(), random_batch((7, 3, 0, 5), grid=grid)
    start = torch.randn(4, 3, generator=seeded(), dtype=torch.float64)
    together = model._search(batch, lags(batch), start)
    assert together.isfinite().all()
    assert not together.requires_grad
    for i in (0, 1, 3):
        series = alone(batch, i)
        torch.testing.assert_close(model._search(series, lags(series), start[i : i + 1])[0], together[i])


def test_misfit_weighs_likeness_against_realism() -> None:
    model, batch = model_of().double(), random_batch((7, 3))
    delta, noise = lags(batch), torch.randn(2, 3, generator=seeded(), dtype=torch.float64)
    made = model._free(batch, delta, noise)
    for i in range(2):
        distance = (made - batch.values)[i][batch.observed[i]].square().sum()
        score = model.critic(made * batch.observed, delta, batch.lengths)[i]
        torch.testing.assert_close(model._misfit(batch, delta, noise)[i], distance - 0.15 * score)


def test_search_lowers_its_objective_and_leaves_the_weights_alone() -> None:
    model, batch = model_of(fill_steps=50).double(), random_batch(grid=False)
    before, delta = [weight.clone() for weight in model.parameters()], lags(batch)
    start = torch.randn(4, 3, generator=seeded(), dtype=torch.float64)
    end = model._search(batch, delta, start)
    assert (model._misfit(batch, delta, end) < model._misfit(batch, delta, start)).all()
    assert all(weight.grad is None for weight in model.parameters())
    assert all(map(torch.equal, before, model.parameters()))


def test_same_seed_same_result() -> None:
    model, batch = model_of(), random_batch((7, 3, 0, 5))
    batch = replace(batch, values=batch.values.float())
    first, second, other = (filled(model, batch, seed) for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert first.shape == batch.values.shape
    assert first.isfinite().all()
    first, second, other = (model.loss(batch, seeded(seed)).total for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def filled_shapes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """The shapes of all batches that will be filled."""
    shapes, fill = list[tuple[int, ...]](), GruiGanNetwork.fill

    def watched(self: GruiGanNetwork, batch: Batch, generator: Generator) -> Tensor:
        shapes.append((*batch.values.shape,))
        return fill(self, batch, generator)

    monkeypatch.setattr(GruiGanNetwork, "fill", watched)
    return shapes


def test_long_series_are_filled_in_windows_and_few_of_them_validated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of at most twice `window` steps, what is around included; a search for every window would be slow."""
    shapes, data = filled_shapes(monkeypatch), torch.randn(90, 2, generator=seeded()).numpy()
    data[::5, 0] = math.nan
    monkeypatch.setattr(GRUIGAN, "VALIDATED_WINDOWS", 3)
    imputer = GRUIGAN(hidden=4, noise_dim=2, fill_steps=2, recipe=Recipe(window=8), epochs=1, device="cpu").fit(data)
    assert shapes == [(3, 8, 2)]
    shapes.clear()
    assert torch.from_numpy(imputer.impute(data).mean).isfinite().all()
    assert shapes == [(12, 16, 2)]


STEPS = 12


def waves(series: int, seed: int) -> tuple[Tensor, Batch]:
    """Three columns of one wave each, a quarter of a turn or so apart; two fifths of the cells are missing."""
    generator = seeded(seed)
    phase = 2 * math.pi * torch.rand(series, 1, 1, generator=generator) + 1.5 * torch.arange(3)
    values = 1.4 * torch.sin(0.4 * torch.arange(STEPS).unsqueeze(-1) + phase)
    observed = torch.rand(values.shape, generator=generator) > 0.4
    return values, Batch(values * observed, observed, 1.0, torch.full((series,), STEPS))


class WaveLoss(nn.Module):
    """The loss of both players on (values, observed) of some waves."""

    def __init__(self, model: GruiGanNetwork):
        super().__init__()
        self.model = model

    def forward(self, part: tuple[Tensor, Tensor], generator: Generator, kl_scale: Tensor) -> Loss:
        lengths = torch.full((len(part[0]),), STEPS)
        return self.model.loss(Batch(*part, 1.0, lengths), generator, kl_scale)


def fit(model: GruiGanNetwork, batch: Batch, *, epochs: int, kl_warm_up: int, seed: int) -> TrainState:
    def batches(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        for chosen in torch.randperm(len(batch.values), generator=seeded(epoch)).split(64):
            yield batch.values[chosen], batch.observed[chosen]

    config = TrainingConfig(epochs=epochs, learning_rate=5e-3, kl_warm_up=kl_warm_up, seed=seed)
    groups = model.parameter_groups(config.learning_rate)
    return train(WaveLoss(model), batches, config, fabric=make_fabric("cpu", "32-true"), param_groups=groups)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_trained_on_waves_it_fills_their_gaps(seed: int) -> None:
    model = model_of(3, seed=seed, hidden=16, noise_dim=8, fill_steps=60)
    history = fit(model, waves(256, seed)[1], epochs=60, kl_warm_up=8, seed=seed).history
    assert history[8]["error"] < 0.6 * history[0]["error"]
    values, batch = waves(64, 100 + seed)
    missing = ~batch.observed
    by_zero = values[missing].square().mean()  # which is the mean of the columns
    assert (filled(model, batch) - values)[missing].square().mean() < 0.75 * by_zero


def test_critic_learns_to_tell_waves_from_an_untrained_generator() -> None:
    model, (_, batch) = model_of(3, hidden=16), waves(64, 0)
    model.generator.requires_grad_(False)
    config, state, fabric = TrainingConfig(epochs=1, learning_rate=5e-3), TrainState(), make_fabric("cpu", "32-true")
    groups = model.parameter_groups(config.learning_rate)[1:]
    optimizer = make_optimizer(model, config, fabric.device, param_groups=groups)
    module, optimizer = fabric.setup(WaveLoss(model), optimizer)
    before = model.loss(batch, seeded()).parts["distance"]
    with TrainStep(module, optimizer, fabric, config) as step:
        step.begin_epoch(state)
        for _ in range(40):
            step((batch.values, batch.observed), state)
    after = model.loss(batch, seeded()).parts
    assert after["distance"] > before + 0.5
    assert after["penalty"] < 0.3
