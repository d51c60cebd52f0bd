"""Likelihoods of columns that are not real numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator, Tensor

from gpvae.models.config import ModelConfig
from gpvae.models.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    Gaussian,
    GaussianLikelihood,
    Likelihood,
    MixedLikelihood,
    OrdinalLikelihood,
    PoissonLikelihood,
    likelihood_for,
)


def poisson(*typical: float) -> PoissonLikelihood:
    likelihood = PoissonLikelihood(len(typical))
    likelihood.init_from_data(torch.tensor([typical]), torch.ones(1, len(typical), dtype=torch.bool))
    return likelihood


LIKELIHOODS: dict[
    str, tuple[Likelihood, list[int]]
] = {  # with the levels of each feature; of counts, enough to sum over
    "binary": (BernoulliLikelihood(3), [2, 2, 2]),
    "count": (poisson(0.5, 3.0), [60, 60]),
    "ordinal": (OrdinalLikelihood(3, 5), [5, 5, 5]),
    "two in order": (OrdinalLikelihood(2, 2), [2, 2]),
    "categorical": (CategoricalLikelihood(2, 4), [4, 4]),
}


def decoded(likelihood: Likelihood, seed: int = 0) -> Tensor:
    return torch.randn((7, likelihood.outputs), generator=Generator().manual_seed(seed)).double()


def params_of(likelihood: Likelihood, seed: int = 0) -> Any:
    return likelihood.unpack(decoded(likelihood, seed))


def doubled(name: str) -> tuple[Any, list[int]]:
    likelihood, levels = LIKELIHOODS[name]
    return likelihood.double(), levels


def probabilities(likelihood: Likelihood, params: Any, feature: int, level: int, features: int) -> Tensor:
    values = torch.zeros(7, features).double()
    values[:, feature] = level
    return likelihood.log_prob(params, values)[:, feature].exp()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_probabilities_sum_to_one_and_give_the_moments(name: str) -> None:
    likelihood, levels = doubled(name)
    z = params_of(likelihood)
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
    z, n = params_of(likelihood), 20_000
    drawn = likelihood.sample(z.expand(n, *z.shape), Generator().manual_seed(1))
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
    assert torch.autograd.gradcheck(lambda x: likelihood.log_prob(likelihood.unpack(x), values), z)
    extreme = (1e3 * decoded(likelihood)).requires_grad_()
    log_prob = likelihood.log_prob(likelihood.unpack(extreme), values)
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
    likelihood = poisson(max(count, 1.0))
    z = torch.linspace(-0.001, 0.001, 5).unsqueeze(-1)
    found = likelihood.log_prob(z, torch.full((5, 1), float(count)))
    expected = stats.poisson.logpmf(count, likelihood.rate(z).double().numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)


def test_many_columns_of_classes_are_cheap() -> None:
    """A column with many levels does not widen the others: columns are grouped by their number of levels."""
    kinds, levels = ["categorical"] * 30 + ["ordinal"] * 3, [3] * 29 + [90] + [4, 4, 5]
    likelihood = likelihood_for(kinds, levels, Gaussian())
    assert likelihood.outputs == 29 * 3 + 90 + 3
    assert sorted(len(group) for _, group in likelihood.groups()) == [1, 1, 2, 29]
    z = torch.randn((4, likelihood.outputs), generator=Generator().manual_seed(0))
    drawn = likelihood.sample(likelihood.unpack(z), Generator().manual_seed(1))
    assert (drawn.max(0).values < torch.tensor(levels)).all()
    model = ModelConfig(latent_dim=2, decoder_widths=(4,)).build(kinds, levels)
    assert model.widest >= sum(levels)


def test_classes_as_inputs_of_the_encoder() -> None:
    observed = torch.tensor([[True, True], [True, False]])
    likelihood = CategoricalLikelihood(2, 3)
    seen = likelihood.embed(torch.tensor([[2.0, 1.0], [0.0, 0.0]]), observed)
    assert seen.tolist() == [[0, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0]]
    ordinal = OrdinalLikelihood(2, 3).embed(torch.tensor([[2.0, 1.0], [1.0, 0.0]]), observed)
    assert ordinal.tolist() == [[1, 0], [0, 0]]


def test_each_column_has_its_likelihood() -> None:
    gaussian, categorical, count = GaussianLikelihood(2), CategoricalLikelihood(1, 3), poisson(2.0)
    parts: list[tuple[Likelihood, list[int]]] = [(gaussian, [3, 0]), (categorical, [1]), (count, [2])]
    mixed = MixedLikelihood(parts)
    assert (mixed.outputs, mixed.inputs) == (6, 6)
    z = torch.randn((5, 6), generator=Generator().manual_seed(0))
    x = torch.tensor([[0.3, 2.0, 4.0, -1.0]]).expand(5, 4)
    log_prob = mixed.log_prob(mixed.unpack(z), x)
    torch.testing.assert_close(log_prob[:, [3, 0]], gaussian.log_prob(gaussian.unpack(z[:, :2]), x[:, [3, 0]]))
    torch.testing.assert_close(log_prob[:, [1]], categorical.log_prob(categorical.unpack(z[:, 2:5]), x[:, [1]]))
    torch.testing.assert_close(log_prob[:, [2]], count.log_prob(z[:, 5:], x[:, [2]]))
    assert mixed.sample(mixed.unpack(z), Generator().manual_seed(0)).shape == (5, 4)
    with pytest.raises(ValueError, match="every feature needs exactly one likelihood"):
        MixedLikelihood([(gaussian, [3, 0]), (categorical, [1])])
