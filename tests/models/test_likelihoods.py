"""Likelihoods: densities and moments against twins, draws as draws, columns of several kinds; and a new one."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from compose import PAPER, loss_of, model_of, random_batch, seeded
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor
from torch.distributions import Bernoulli as TorchBernoulli
from torch.distributions import Laplace as TorchLaplace
from torch.distributions import Normal, StudentT

from gpvae.data.codec import from_json, to_json
from gpvae.models.likelihoods import (
    Bernoulli,
    BernoulliLikelihood,
    CategoricalLikelihood,
    Gaussian,
    GaussianLikelihood,
    Likelihood,
    LikelihoodSpec,
    OrdinalLikelihood,
    PoissonLikelihood,
    RealLikelihood,
    RealParams,
    SelectiveBernoulliLikelihood,
    Student,
    StudentLikelihood,
    likelihood_for,
)
from gpvae.models.likelihoods.sampling import Random, uniform_like


@pytest.mark.parametrize("noise", [None, 0.7])
def test_gaussian(noise: float | None) -> None:
    likelihood = GaussianLikelihood(3, noise)
    assert likelihood.raw.requires_grad is (noise is None)
    assert likelihood.noise_is_fixed is (noise is not None)
    params, values = likelihood.unpack(torch.randn(4, 3, generator=seeded())), torch.randn(4, 3, generator=seeded(1))
    twin = Normal(params.location, 0.5 if noise is None else noise)
    torch.testing.assert_close(likelihood.log_prob(params, values), twin.log_prob(values))
    draws = likelihood.sample(likelihood.unpack(params.location.expand(100_000, 4, 3)), seeded())
    torch.testing.assert_close(draws.mean(0), params.location, rtol=0, atol=0.02)
    torch.testing.assert_close(draws.var(0), likelihood.variance(params), rtol=0.03, atol=0)


def test_learned_noise_has_a_floor() -> None:
    likelihood = GaussianLikelihood(1).requires_grad_(False)
    likelihood.raw.fill_(-50)
    assert likelihood.noise.item() == pytest.approx(likelihood.FLOOR)


def test_bernoulli() -> None:
    likelihood, logits = BernoulliLikelihood(9), torch.linspace(-4, 4, 9)
    values = (torch.arange(9) % 2).float()
    twin = TorchBernoulli(logits=logits)
    torch.testing.assert_close(likelihood.log_prob(logits, values), twin.log_prob(values))
    torch.testing.assert_close(likelihood.mean(logits), twin.mean)
    torch.testing.assert_close(likelihood.variance(logits), twin.variance)
    draws = likelihood.sample(logits.expand(100_000, 9), seeded())
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(draws.mean(0), twin.mean, rtol=0, atol=0.01)


def student(*raw_freedom: float) -> StudentLikelihood:
    likelihood = StudentLikelihood(len(raw_freedom)).double().requires_grad_(False)
    likelihood.raw_freedom.copy_(torch.tensor(raw_freedom))
    return likelihood


def test_student() -> None:
    likelihood, factor = student(-3.0, 1.0, 20.0), torch.tensor([1.0, 0.5, 3.0])
    decoded = torch.randn(7, 6, generator=seeded(), dtype=torch.float64)
    values = 5 * torch.randn(7, 3, generator=seeded(1), dtype=torch.float64)
    params = likelihood.calibrate(likelihood.unpack(decoded), factor)
    freedom = 2.1 + torch.tensor([-3.0, 1.0, 20.0], dtype=torch.float64).exp().log1p()
    scale = factor * (0.01 + (decoded[:, 3:] - 0.7).exp())
    twin = StudentT(freedom, decoded[:, :3], scale)
    torch.testing.assert_close(likelihood.log_prob(params, values), twin.log_prob(values))
    torch.testing.assert_close(likelihood.mean(params), twin.mean)
    torch.testing.assert_close(likelihood.variance(params), twin.variance)
    torch.testing.assert_close(likelihood.scale(params), scale)
    observed = torch.arange(21).view(7, 3) % 2 == 0
    assert torch.equal(likelihood.embed(values, observed), torch.where(observed, values, 0.0))
    assert (likelihood.inputs, likelihood.outputs) == (3, 6)


def test_draws_of_student_have_its_quantiles() -> None:
    likelihood = student(-4.0, 2.0)
    decoded = torch.tensor([[1.0, -3.0, 0.3, -1.0], [0.0, 50.0, 3.0, 2.0]], dtype=torch.float64)
    params = likelihood.unpack(decoded.expand(20_000, 2, 4))
    drawn, scale = likelihood.sample(params, seeded()), likelihood.scale(likelihood.unpack(decoded))
    for i in range(2):
        for j in range(2):
            twin = stats.t(float(likelihood.freedom[j]), decoded[i, j], scale[i, j])
            assert stats.kstest(drawn[:, i, j].numpy(), twin.cdf).pvalue > 1e-3
    assert (
        abs(float(torch.corrcoef((drawn - decoded[:, :2]).flatten(1).T.sign())[0, 1])) < 0.03
    )  # cells are independent
    assert torch.equal(drawn[:5], likelihood.sample(params, seeded())[:5])


def test_gradients_of_student() -> None:
    likelihood = StudentLikelihood(2).double()
    decoded = torch.randn(5, 4, generator=seeded(), dtype=torch.float64, requires_grad=True)
    values = torch.randn(5, 2, generator=seeded(1), dtype=torch.float64)

    def log_prob(x: Tensor, _: Tensor) -> Tensor:
        return likelihood.log_prob(likelihood.unpack(x), values)

    assert torch.autograd.gradcheck(log_prob, (decoded, likelihood.raw_freedom))
    single = StudentLikelihood(2)
    for far in (0.0, 1e2, -1e4):
        extreme = torch.full((1, 4), far, requires_grad=True)
        found = single.log_prob(single.unpack(extreme), torch.tensor([[1e4, -1e-9]]))
        assert found.isfinite().all()
        assert all(g.isfinite().all() for g in torch.autograd.grad(found.sum(), [extreme, single.raw_freedom]))


@pytest.mark.parametrize(("likelihood", "twin"), [(GaussianLikelihood(1), stats.norm()), (student(1.0), None)])
def test_distribution_functions_of_errors(likelihood: RealLikelihood, twin: Any) -> None:
    error = torch.linspace(-4, 4, 9).numpy()
    expected = (twin or stats.t(2.1 + math.log1p(math.e))).cdf(error)
    assert likelihood.cdf(error, 0) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("likelihood", [GaussianLikelihood(1), StudentLikelihood(1)], ids=["gaussian", "student"])
def test_best_nll_is_that_of_the_best_scale(likelihood: RealLikelihood) -> None:
    error = torch.randn(2000, generator=seeded(), dtype=torch.float64) * 0.3
    family = Normal if isinstance(likelihood, GaussianLikelihood) else TorchLaplace
    nlls = [-family(0.0, scale).log_prob(error).mean().item() for scale in torch.linspace(0.1, 0.6, 501)]
    assert likelihood.best_nll(error) == pytest.approx(min(nlls), abs=1e-4)
    assert math.isfinite(likelihood.best_nll(torch.zeros(3)))


@pytest.mark.parametrize("samples", [1, 7, 100])
def test_draws_of_a_cell_are_stratified_and_cells_are_independent(samples: int) -> None:
    """One draw in each n-th of the distribution: of zeros and ones, as many ones as there should be, ± 1."""
    gaussian, location = GaussianLikelihood(3, 0.7), torch.randn(500, 3, generator=seeded(1)).expand(samples, 500, 3)
    place = Normal(0, 0.7).cdf(gaussian.sample(RealParams(location), seeded()) - location)
    within = samples * place.sort(0).values - torch.arange(samples).view(-1, 1, 1)
    assert (within > -1e-3).all()  # but for rounding
    assert (within < 1 + 1e-3).all()
    centred = (place - 0.5).flatten(1)
    correlation = (centred[:, 1:] * centred[:, :-1]).mean() * 12  # of neighbouring cells, on average
    assert abs(float(correlation)) < 5 / math.sqrt(1499 * samples)
    ones = BernoulliLikelihood(3).sample(location, seeded()).sum(0)
    assert ((ones - samples * location[0].sigmoid()).abs() < 1.01).all()


@pytest.mark.parametrize("edge", [0.0, 1 - 2**-24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_draws_at_the_edge_are_finite(edge: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, edge))
    drawn = GaussianLikelihood(2, 0.7).to(dtype).sample(RealParams(torch.zeros(5, 3, 2, dtype=dtype)), seeded())
    assert drawn.dtype == dtype
    assert drawn.isfinite().all()
    assert drawn.abs().max() > 3


@pytest.mark.parametrize("rates", [(0.45, 0.9), (0.8, 0.1), (0.3, 0.3)])
def test_selective_bernoulli_by_bayes_rule(rates: tuple[float, float]) -> None:
    """Every outcome of a cell written out: a value of 0 or 1, missing or not."""
    likelihood = SelectiveBernoulliLikelihood(2).double().requires_grad_(False)
    likelihood.missing_logit.copy_(torch.tensor(rates, dtype=torch.float64).logit())
    for one in (0.02, 0.5, 0.97):
        joint = {  # (value, missing): probability
            (value, lost): (one if value else 1 - one) * (rates[value] if lost else 1 - rates[value])
            for value in (0, 1)
            for lost in (True, False)
        }
        logit = torch.tensor([one], dtype=torch.float64).logit()
        for value in (0, 1):
            given = torch.tensor([float(value)], dtype=torch.float64)
            seen = likelihood.log_prob(logit, given) + likelihood.log_selection(logit, given, torch.tensor([True]))
            assert float(seen.exp()) == pytest.approx(joint[value, False], rel=1e-12)
            gap = likelihood.log_selection(logit, given, torch.tensor([False]))
            assert float(gap.exp()) == pytest.approx(joint[0, True] + joint[1, True], rel=1e-12)
        filled = likelihood.mean(likelihood.given_missing(logit))
        assert float(filled) == pytest.approx(joint[1, True] / (joint[0, True] + joint[1, True]), rel=1e-12)


KINDS, LEVELS = ["count", "real", "categorical", "positive", "real", "ordinal"], [0, 0, 3, 0, 0, 4]


def test_columns_of_several_kinds() -> None:
    """Real columns are Student's, a positive one is Gaussian in its logarithm; each gets its own decoded numbers."""
    likelihood = likelihood_for(KINDS, LEVELS, Student())
    assert {type(part): features.tolist() for part, features in likelihood.groups()} == {
        PoissonLikelihood: [0],
        StudentLikelihood: [1, 4],
        CategoricalLikelihood: [2],
        GaussianLikelihood: [3],
        OrdinalLikelihood: [5],
    }
    assert (likelihood.inputs, likelihood.outputs) == (8, 10)
    assert likelihood.real_columns().tolist() == [1, 4, 3]
    assert likelihood.numeric_columns().tolist() == [False, True, False, True, True, False]
    decoded = torch.randn(6, 10, generator=seeded())
    values = torch.tensor([[2.0, 0.3, 1.0, -0.7, 4.0, 2.0]]).expand(6, 6)
    params, real = likelihood.unpack(decoded), [1, 4]
    with torch.no_grad():
        log_prob, variance = likelihood.log_prob(params, values), likelihood.variance(params)
        drawn, mean = likelihood.sample(params, seeded()), likelihood.mean(params)
    twin = StudentT(2.1 + math.log1p(math.exp(2)), decoded[:, 1:3], 0.01 + (decoded[:, 3:5] - 0.7).exp())
    torch.testing.assert_close(log_prob[:, real], twin.log_prob(values[:, real]))
    torch.testing.assert_close(variance[:, real], twin.variance)
    torch.testing.assert_close(mean[:, real], decoded[:, 1:3])
    torch.testing.assert_close(log_prob[:, 3], Normal(decoded[:, 8], 0.5).log_prob(values[:, 3]))
    torch.testing.assert_close(log_prob[:, 2], decoded[:, 5:8].log_softmax(-1)[:, 1])
    assert ((drawn[:, 0] >= 0) & (drawn[:, 0] == drawn[:, 0].round())).all()
    assert drawn[:, 2].max() <= 2
    assert not (drawn[:, real] == mean[:, real]).any()


def test_shifts_and_calibration_reach_the_real_columns_of_a_mixture() -> None:
    likelihood = likelihood_for(KINDS, LEVELS, Student()).requires_grad_(False)
    params = likelihood.unpack(torch.randn(6, 10, generator=seeded()))
    shift, factor = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 3.0, 4.0])  # of the columns 1, 4 and 3
    moved = likelihood.mean(likelihood.shift(params, shift, torch.zeros(3))) - likelihood.mean(params)
    torch.testing.assert_close(moved, torch.tensor([0.0, 1.0, 0.0, 3.0, 2.0, 0.0]).expand(6, 6))
    wider = likelihood.variance(likelihood.calibrate(params, factor)) / likelihood.variance(params)
    torch.testing.assert_close(wider[:, [1, 3, 4]], torch.tensor([4.0, 16.0, 9.0]).expand(6, 3))
    raised = likelihood.split(likelihood.shift(params, torch.zeros(3), shift))
    torch.testing.assert_close(raised[1].log_scale, params[1].log_scale + shift[:2])


def test_one_kind_needs_no_mixture() -> None:
    assert isinstance(likelihood_for(["real"] * 3, [0] * 3, Student()), StudentLikelihood)
    with pytest.raises(ValueError, match="a Bernoulli likelihood is for all columns"):
        likelihood_for(["real", "count"], [0, 0], Bernoulli())


def test_counts_know_what_is_typical() -> None:
    likelihood = likelihood_for(["real", "count"], [0, 0], Gaussian())
    likelihood.init_from_data(
        torch.tensor([[0.0, 3.0], [1.0, 9.0], [2.0, 7.0]]), torch.tensor([[True, True]] * 2 + [[True, False]])
    )
    assert float(likelihood.mean(likelihood.unpack(torch.zeros(1, 2)))[0, 1]) == pytest.approx(6.0, rel=1e-4)


# A new likelihood costs these two classes; exported by `likelihoods`, it is found when a model is loaded.


@dataclass(frozen=True)
class Laplace(LikelihoodSpec):
    def build(self, features: int) -> Likelihood:
        return LaplaceLikelihood(features, outputs=2 * features)


class LaplaceLikelihood(RealLikelihood):
    decodes_scale = True

    def unpack(self, decoded: Tensor) -> RealParams:
        return RealParams(*decoded.chunk(2, dim=-1))

    def scale(self, params: RealParams) -> Tensor:
        assert params.log_scale is not None
        return params.scale_factor * params.log_scale.exp()

    def log_prob(self, params: RealParams, values: Tensor) -> Tensor:
        return TorchLaplace(params.location, self.scale(params)).log_prob(values)

    def variance(self, params: RealParams) -> Tensor:
        return 2 * self.scale(params) ** 2

    def sample(self, params: RealParams, random: Random) -> Tensor:
        uniform = uniform_like(params.location, random)
        return TorchLaplace(params.location, self.scale(params)).icdf(uniform)

    def cdf(self, error: NDArray[Any], column: int) -> NDArray[Any]:
        return stats.laplace.cdf(error)

    def best_nll(self, error: Tensor) -> float:
        return 1 + math.log(2 * float(error.abs().mean()))


def test_a_new_likelihood_is_one_class_and_one_entry() -> None:
    config = replace(PAPER, likelihood=Laplace())
    assert from_json(type(config), to_json(config)) == config
    model, batch = model_of(config), random_batch()
    loss_of(model, batch).total.backward()
    posterior, context = model.encode(batch)
    drawn = model.likelihood.sample(model.decode(posterior.mean, context), seeded())
    assert drawn.shape == batch.values.shape
