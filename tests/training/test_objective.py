"""The objective: from rows of a table to the bound of a masked batch."""

import pytest
import torch
from torch import Generator

from gpvae.data.batches import BatchIndex, RowTensors
from gpvae.gp.kernels import Cauchy
from gpvae.models.config import ModelConfig, Objective
from gpvae.models.encoders import Convolution
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.prior import Prior
from gpvae.training.masking import Masking
from gpvae.training.objective import BoundObjective

CONFIG = ModelConfig(
    latent_dim=3, prior=Prior(Cauchy(2.0)), encoder=Convolution(8, 4, (8,)), decoder_widths=(8,)
).resolve(2, 1.0)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_rows(*, spacing: float | None = 1.0) -> RowTensors:
    observed = torch.rand(41, 2, generator=seeded(2)) < 0.7
    observed[-1] = False
    times = torch.arange(40).double() if spacing else torch.rand(40, generator=seeded(3), dtype=torch.float64).cumsum(0)
    return RowTensors(torch.randn(41, 2, generator=seeded(1)) * observed, observed, times, spacing)


CUT = BatchIndex(torch.tensor([0, 10, 25]), torch.tensor([10, 9, 7]), 10, torch.tensor(12.0))


@pytest.fixture
def network() -> GPVAEModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return CONFIG.build(["real", "real"])


def test_without_masking_it_is_the_bound_of_the_batch(network: GPVAEModel) -> None:
    """Nothing is drawn but the noise, and β is scaled by kl_scale."""
    rows, settings = random_rows(), Objective(beta=0.5, mc_samples=2)
    loss = BoundObjective(network, rows, settings, None, longest=10)(CUT, seeded(), torch.tensor(0.3))
    batch, noise = rows.batch(CUT), torch.randn(2, 3, 10, 3, generator=seeded())
    expected = network.elbo(batch, batch, prior=network.prior.at(1.0), noise=noise, beta=0.15)
    torch.testing.assert_close(loss.total, expected.total)
    torch.testing.assert_close(loss.parts, expected.parts)


@pytest.mark.parametrize("draws", [(2,), (2, 3)])
@pytest.mark.parametrize("spacing", [1.0, None])
def test_with_masking_the_target_is_bounded_by_what_is_visible(
    network: GPVAEModel, draws: tuple[int, ...], spacing: float | None
) -> None:
    rows, masking = random_rows(spacing=spacing), Masking(visible_weight=0.3, mixup=0.5, borrowed=0.5)
    settings = Objective(mc_samples=2, importance_samples=1 if len(draws) == 1 else 3)
    loss = BoundObjective(network, rows, settings, masking, longest=10)(CUT, seeded(), torch.tensor(1.0))
    generator = seeded()
    noise = torch.randn(*draws, 3, 10, 3, generator=generator)
    target, visible = masking.apply(rows.batch(CUT), masking.draw((3, 10), 2, generator))
    assert 0 < visible.observed.sum() < target.observed.sum()
    bound = network.elbo if len(draws) == 1 else network.importance_weighted
    prior = network.prior.at(target.times)
    expected = bound(visible, target, prior=prior, noise=noise, visible_weight=0.3)
    torch.testing.assert_close(loss.total, expected.total)


def test_a_fixed_prior_on_a_grid_is_computed_once(network: GPVAEModel, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    at = network.prior.at

    def counted(*args: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        return at(*args, **named)  # pyright: ignore

    monkeypatch.setattr(network.prior, "at", counted)
    objective = BoundObjective(network, random_rows(), Objective(), None, longest=10)
    uneven = BoundObjective(network, random_rows(spacing=None), Objective(), None, longest=10)
    for _ in range(3):
        objective(CUT, seeded(), torch.tensor(1.0))
        uneven(CUT, seeded(), torch.tensor(1.0))
    assert calls == 4


def test_every_time_step_weighs_the_same_whatever_its_batch(network: GPVAEModel) -> None:
    """The gradient of an epoch in batches of unequal size is that of one batch of all windows."""
    rows, settings = random_rows(), Objective(beta=0.0)
    windows = [(0, 10), (10, 9), (25, 7), (35, 3)]
    total = sum(length for _, length in windows)

    def gradient(groups: list[list[int]]) -> list[torch.Tensor]:
        network.zero_grad()
        objective = BoundObjective(network, rows, settings, None, longest=10)
        for group in groups:
            starts, lengths = torch.tensor([windows[i] for i in group]).T
            cut = BatchIndex(starts, lengths, 10, torch.tensor(total / len(groups)))
            noise = torch.zeros(1, len(group), 10, 3)
            loss = objective.bound(rows.batch(cut), None, network.prior.at(1.0, steps=10), noise, torch.tensor(1.0))
            (loss.total / len(groups)).backward()
        return [p.grad.clone() for p in network.decoder.parameters() if p.grad is not None]

    for one, several in zip(gradient([[0, 1, 2, 3]]), gradient([[0, 1, 2], [3]]), strict=True):
        torch.testing.assert_close(one, several)
