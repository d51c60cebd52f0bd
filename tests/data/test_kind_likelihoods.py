"""Likelihoods of columns that are not real numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator, Tensor

from gpvae import ModelConfig
from gpvae.models.distributions import (
    Bernoulli,
    Categorical,
    Gaussian,
    Likelihood,
    Ordinal,
    PerColumn,
    Poisson,
    likelihood_for,
)
from gpvae.models.model import LatentModel

LIKELIHOODS: dict[
    str, tuple[Likelihood, list[int]]
] = {  # with the number of levels of each feature; for counts, enough levels to sum over
    "binary": (Bernoulli(3), [2, 2, 2]),
    "count": (Poisson([0.5, 3.0]), [60, 60]),
    "ordinal": (Ordinal(3, 5), [5, 5, 5]),
    "two in order": (Ordinal(2, 2), [2, 2]),
    "categorical": (Categorical(2, 4), [4, 4]),
}


def decoded(likelihood: Likelihood, seed: int = 0) -> Tensor:
    return torch.randn((7, likelihood.outputs), generator=Generator().manual_seed(seed)).double()


def doubled(name: str) -> tuple[Any, list[int]]:
    likelihood, levels = LIKELIHOODS[name]
    assert isinstance(likelihood, torch.nn.Module)
    return likelihood.double(), levels


def probabilities(likelihood: Likelihood, z: Tensor, feature: int, level: int, features: int) -> Tensor:
    values = torch.zeros(7, features).double()
    values[:, feature] = level
    return likelihood.log_prob(z, values)[:, feature].exp()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_probabilities_sum_to_one_and_give_the_moments(name: str) -> None:
    likelihood, levels = doubled(name)
    z = decoded(likelihood)
    for j, count in enumerate(levels):
        p = torch.stack([probabilities(likelihood, z, j, k, len(levels)) for k in range(count)])
        torch.testing.assert_close(p.sum(0), torch.ones(7).double())
        if name == "categorical":
            assert torch.equal(likelihood.mean(z)[:, j], p.argmax(0).double())
            continue
        k = torch.arange(count).double().unsqueeze(-1)
        mean = (k * p).sum(0)
        torch.testing.assert_close(likelihood.mean(z)[:, j], mean)
        torch.testing.assert_close(likelihood.variance(z)[:, j], (k**2 * p).sum(0) - mean**2)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_samples_follow_the_probabilities(name: str) -> None:
    likelihood, levels = doubled(name)
    z, n = decoded(likelihood), 20_000
    drawn = likelihood.sample(z.expand(n, 7, -1), Generator().manual_seed(1))
    for j, count in enumerate(levels):
        for k in range(min(count, 6)):
            p = probabilities(likelihood, z, j, k, len(levels))
            share = (drawn[..., j] == k).double().mean(0)
            assert ((share - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 1e-9).all()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_of_the_log_probability(name: str) -> None:
    likelihood, levels = doubled(name)
    z = decoded(likelihood).requires_grad_()
    values = torch.stack([torch.arange(7) % count for count in levels], dim=-1).double()
    assert torch.autograd.gradcheck(lambda x: likelihood.log_prob(x, values), z)
    extreme = (1e3 * decoded(likelihood)).requires_grad_()
    log_prob = likelihood.log_prob(extreme, values)
    assert log_prob.isfinite().all()
    assert (log_prob <= 1e-9).all()
    assert torch.autograd.grad(log_prob.sum(), extreme)[0].isfinite().all()


def test_poisson_equals_that_of_scipy() -> None:
    likelihood, _ = doubled("count")
    z, x = decoded(likelihood), torch.tensor([[0.0, 4.0]]).double()
    expected = stats.poisson.logpmf(x.numpy(), likelihood.rate(z).numpy())
    np.testing.assert_allclose(likelihood.log_prob(z, x).numpy(), expected, rtol=1e-9)
    assert likelihood.rate(torch.zeros(2).double()).tolist() == pytest.approx([0.5, 3.0], rel=1e-4)


@pytest.mark.parametrize("count", [0, 3, 10**5, 10**7])
def test_poisson_of_large_counts_in_single_precision(count: int) -> None:
    likelihood = Poisson([max(count, 1.0)])
    z = torch.linspace(-0.001, 0.001, 5).unsqueeze(-1)
    found = likelihood.log_prob(z, torch.full((5, 1), float(count)))
    expected = stats.poisson.logpmf(count, likelihood.rate(z).double().numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)


def test_many_columns_of_classes_are_cheap() -> None:
    """A column with many levels does not widen the others: columns are grouped by their number of levels."""
    kinds, levels = ["categorical"] * 30 + ["ordinal"] * 3, [3] * 29 + [90] + [4, 4, 5]
    likelihood = likelihood_for(kinds, levels, "gaussian", None)
    assert likelihood.outputs == 29 * 3 + 90 + 3
    assert sorted(len(group) for _, group in likelihood.groups()) == [1, 1, 2, 29]
    z = torch.randn((4, likelihood.outputs), generator=Generator().manual_seed(0))
    drawn = likelihood.sample(z, Generator().manual_seed(1))
    assert (drawn.max(0).values < torch.tensor(levels)).all()
    model = LatentModel(ModelConfig(latent_dim=2, decoder_widths=(4,), encoder_filters=8), 33, kinds, levels)
    assert model.widest >= sum(levels)


def test_classes_as_inputs_of_the_encoder() -> None:
    observed = torch.tensor([[True, True], [True, False]])
    likelihood = Categorical(2, 3)
    seen = likelihood.seen(torch.tensor([[2.0, 1.0], [0.0, 0.0]]), observed)
    assert seen.tolist() == [[0, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0]]
    ordinal = Ordinal(2, 3).seen(torch.tensor([[2.0, 1.0], [1.0, 0.0]]), observed)
    assert ordinal.tolist() == [[1, 0], [0, 0]]


def test_each_column_has_its_likelihood() -> None:
    parts: list[tuple[Likelihood, list[int]]] = [(Gaussian(2), [3, 0]), (Categorical(1, 3), [1]), (Poisson([2.0]), [2])]
    mixed = PerColumn(parts, 4)
    assert (mixed.outputs, mixed.inputs) == (6, 6)
    z = torch.randn((5, 6), generator=Generator().manual_seed(0))
    x = torch.tensor([[0.3, 2.0, 4.0, -1.0]]).expand(5, 4)
    log_prob = mixed.log_prob(z, x)
    torch.testing.assert_close(log_prob[:, [3, 0]], parts[0][0].log_prob(z[:, :2], x[:, [3, 0]]))
    torch.testing.assert_close(log_prob[:, [1]], parts[1][0].log_prob(z[:, 2:5], x[:, [1]]))
    torch.testing.assert_close(log_prob[:, [2]], parts[2][0].log_prob(z[:, 5:], x[:, [2]]))
    assert mixed.sample(z, Generator().manual_seed(0)).shape == (5, 4)
    with pytest.raises(ValueError, match="every one of 4 features needs one likelihood"):
        PerColumn(parts[:2], 4)
