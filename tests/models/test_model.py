"""The model: its bound against dense and exact twins, padding, settings."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from scipy import stats
from torch import Generator, nn
from torch.distributions import Bernoulli, MultivariateNormal, Normal, kl_divergence
from torch.distributions import StudentT as Student

from gpvae import paper
from gpvae.data.batches import Batch, NearestValues
from gpvae.gp import Chain, chain_kl
from gpvae.gp.kernels import RBF, Cauchy, Matern, Periodic
from gpvae.models import distributions
from gpvae.models import masking as practice
from gpvae.models.masking import as_shown, lacking
from gpvae.models.model import PLAIN, Encoder, Ingredients, LatentModel, Loss, ModelConfig, Posterior
from gpvae.models.networks import TimeConvolution

SMALL = replace(
    PLAIN,
    latent_dim=3,
    encoder_filters=8,
    encoder_window=4,
    encoder_widths=(8,),
    decoder_widths=(8,),
    kernel=Cauchy(2.0),
)

LOOKING_AROUND = replace(
    ModelConfig(), latent_dim=3, encoder_filters=16, encoder_layers=1, decoder_widths=(8,), kernel=Cauchy(2.0)
)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_batch(series: int = 4, time: int = 9, features: int = 2, *, grid: bool = True) -> Batch:
    values = torch.randn(series, time, features, generator=seeded(1))
    observed = torch.rand(series, time, features, generator=seeded(2)) < 0.6
    steps = 0.2 + torch.rand(series, time, generator=seeded(3), dtype=torch.float64)
    times = 1.0 if grid else steps.cumsum(-1)
    return Batch(values * observed, observed, times, torch.full((series,), time))


def model_of(
    config: ModelConfig = SMALL, features: int = 2, kinds: Sequence[str] = (), levels: Sequence[int] = ()
) -> LatentModel:
    """With weights as if it had learned something: last layers, too, say something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LatentModel(config, features, kinds, levels)
        for layers in [model.decoder, *([] if model.cells is None else [model.cells])]:
            last = layers[-1]
            assert isinstance(last, nn.Linear)
            last.reset_parameters()
        return model


@pytest.mark.parametrize("posterior", ["chain", "diagonal"])
@pytest.mark.parametrize("grid", [True, False])
def test_elbo_equals_a_dense_computation(posterior: Posterior, grid: bool) -> None:
    """The same draws, but log p(x|z) from torch.distributions and the KL between dense Gaussians."""
    batch, m = random_batch(grid=grid), 5
    model = model_of(replace(SMALL, posterior=posterior, mc_samples=m, beta=0.7, neighbours=20))
    loss = model.loss(batch, seeded())
    chain = model.encode(batch).posterior
    z = chain.mean + chain.std * torch.randn(m, *chain.mean.shape, generator=seeded())
    assert isinstance(model.likelihood, distributions.Gaussian)
    log_prob = Normal(model.decoder(z), model.likelihood.noise).log_prob(batch.values)
    times = batch.times if isinstance(batch.times, torch.Tensor) else torch.arange(9.0).expand(4, 9).double()
    lags = (times.unsqueeze(-1) - times.unsqueeze(-2)).unsqueeze(1)
    k = (1 / (1 + lags**2 / 4) + 1e-3 * torch.eye(9)).expand(4, 3, 9, 9)
    q = MultivariateNormal(chain.mean.mT.double(), chain.covariance().double())
    kl = kl_divergence(q, MultivariateNormal(torch.zeros(9, dtype=torch.float64), k)).sum()
    torch.testing.assert_close(loss.parts["nll"], -(log_prob * batch.observed).sum() / m / 36)
    torch.testing.assert_close(loss.parts["kl"].double(), kl / 36, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.total, loss.parts["nll"] + 0.7 * loss.parts["kl"])
    if posterior == "diagonal":
        assert (chain.corr == 0).all()


class LinearGaussian(nn.Module):
    """A decoder for which log p(x) is known: x = W z + noise, so vec(x) ~ N(0, K ⊗ WWᵀ + noise² I)."""

    def __init__(self, model: LatentModel, features: int):
        super().__init__()
        model.decoder = nn.Sequential(nn.Linear(model.latent_dim, features, bias=False))
        self.weight = nn.Parameter(torch.randn(features, model.latent_dim, generator=seeded(4)))
        model.decoder[0].weight = self.weight
        model.encoder.head.bias.detach().chunk(3)[
            1
        ].zero_()  # a posterior as wide as the prior, for importance sampling to work
        self.model = model

    def log_marginal(self, batch: Batch) -> torch.Tensor:
        assert isinstance(self.model.likelihood, distributions.Gaussian)
        w, noise = self.weight.double(), self.model.likelihood.noise.double()
        u = self.model.prior.factor(batch.times, torch.float64).to_dense(batch.values.shape[1]).squeeze(0)
        k = torch.linalg.inv(u.mT @ u)
        time = k.shape[-1]
        covariance = torch.kron(k.contiguous(), (w @ w.mT).contiguous()) + torch.diag(noise.square().repeat(time))
        total = torch.zeros((), dtype=torch.float64)
        for values, observed in zip(batch.values.double(), batch.observed, strict=True):
            seen = observed.flatten()
            x = MultivariateNormal(torch.zeros(int(seen.sum()), dtype=torch.float64), covariance[seen][:, seen])
            total = total + x.log_prob(values.flatten()[seen])
        return total / (len(batch.values) * time)


def bound_of(importance_samples: int, mc_samples: int) -> tuple[float, float]:
    config = replace(SMALL, importance_samples=importance_samples, mc_samples=mc_samples, noise=0.8)
    batch = random_batch(time=4)
    model = model_of(config)
    twin = LinearGaussian(model, 2)
    with torch.no_grad():
        return -float(model.loss(batch, seeded()).total), float(twin.log_marginal(batch))


def test_importance_weighted_bound_closes_on_the_exact_likelihood() -> None:
    elbo, exact = bound_of(1, 4000)
    few, _ = bound_of(5, 2000)
    many, _ = bound_of(200_000, 1)
    assert elbo < few < many < exact + 0.01
    assert exact - many < 0.02 < exact - elbo


def test_importance_weighted_bound_with_one_sample_is_the_elbo_on_average() -> None:
    model, batch = model_of(replace(SMALL, mc_samples=20_000)), random_batch(time=5)
    with torch.no_grad():
        elbo = model.loss(batch, seeded())
        encoded, prior = model.encode(batch), model.prior.factor(batch.times)
        noise = torch.randn(20_000, 1, *encoded.posterior.mean.shape, generator=seeded(1))
        sampled = model._importance_weighted(encoded, batch, batch.observed, prior, noise, 1.0)
    torch.testing.assert_close(sampled.parts["kl"], elbo.parts["kl"], rtol=0.02, atol=0.0)
    torch.testing.assert_close(sampled.total, elbo.total, rtol=0.02, atol=0.0)


def kl_of(model: LatentModel, chain: Chain, batch: Batch) -> torch.Tensor:
    return chain_kl(chain, model.prior.factor(batch.times), batch.lengths).sum()


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("importance_samples", [1, 3])
@pytest.mark.parametrize("config", [SMALL, LOOKING_AROUND], ids=["plain", "default"])
def test_padding_changes_nothing(grid: bool, importance_samples: int, config: ModelConfig) -> None:
    """Series of different length in one batch: posterior, context and KL are those of each series alone."""
    model, whole = model_of(replace(config, importance_samples=importance_samples)), random_batch(grid=grid)
    length = torch.tensor([9, 4, 1, 6])
    inside = (torch.arange(9) < length.unsqueeze(-1)).unsqueeze(-1)
    padded = Batch(whole.values * inside, whole.observed & inside, whole.times, length)
    together, context = model.encode(padded)
    kl = torch.zeros(())
    for i, n in enumerate(length.tolist()):
        times = whole.times[i : i + 1, :n] if isinstance(whole.times, torch.Tensor) else whole.times
        alone = Batch(whole.values[i : i + 1, :n], whole.observed[i : i + 1, :n], times, length[i : i + 1])
        chain, around = model.encode(alone)
        assert torch.equal(around[0], context[i, :n])
        torch.testing.assert_close(chain.mean[0], together.mean[i, :n])
        torch.testing.assert_close(chain.std[0], together.std[i, :n])
        torch.testing.assert_close(chain.corr[0], together.corr[i, : n - 1])
        kl = kl + kl_of(model, chain, alone)
    torch.testing.assert_close(kl_of(model, together, padded), kl)
    # What stands in the padding must not matter to either bound.
    other = replace(padded, values=torch.where(inside, padded.values, 99.0))
    assert torch.equal(model.loss(padded, seeded()).total, model.loss(other, seeded()).total)


@pytest.mark.parametrize("config", [SMALL, LOOKING_AROUND], ids=["plain", "default"])
def test_missing_values_enter_as_zeros_and_are_not_scored(config: ModelConfig) -> None:
    model, batch = model_of(config), random_batch()
    other = replace(batch, values=torch.where(batch.observed, batch.values, 7.0))
    assert torch.equal(model.loss(batch, seeded()).total, model.loss(other, seeded()).total)


def test_encoder_sees_what_is_observed_only_where_it_should() -> None:
    batch = random_batch()
    zeros = replace(batch, values=torch.zeros_like(batch.values))
    fewer = replace(zeros, observed=batch.observed & (torch.arange(2) == 0))
    for see_observed in (True, False):
        model = model_of(replace(SMALL, see_observed=see_observed, encoder_window=18))
        assert torch.equal(model.encode(zeros).posterior.mean, model.encode(fewer).posterior.mean) is not see_observed


def test_times_matter_to_encoder_and_prior() -> None:
    regular, irregular = random_batch(grid=True), random_batch(grid=False)
    for see_times in (True, False):
        model = model_of(replace(SMALL, see_times=see_times))
        assert (
            torch.equal(model.encode(regular).posterior.mean, model.encode(irregular).posterior.mean) is not see_times
        )
        first, second = (model.loss(batch, seeded()).parts["kl"] for batch in (regular, irregular))
        assert not torch.isclose(first, second, rtol=1e-3)


@pytest.mark.parametrize("grid", [True, False])
def test_where_the_encoder_sees_nothing_the_posterior_is_the_prior(grid: bool) -> None:
    batch = random_batch(time=20, grid=grid)
    seen = (torch.arange(20) < 5).view(1, 20, 1) & (torch.arange(4) > 0).view(4, 1, 1)
    batch = replace(batch, observed=seen.expand(4, 20, 2))
    model = model_of(replace(SMALL, encoder_window=5))
    chain, (std, corr) = model.encode(batch).posterior, model.prior.marginals(batch.times)
    blind = ~model.encoder.sees_any(batch.observed.any(-1))
    assert blind[0].all()
    assert blind[1:, 7:].all()
    assert not blind[1:, :5].any()
    assert (chain.mean[blind] == 0).all()
    assert (chain.std[blind] == std).all()
    expected = (model.CORR_LIMIT * corr).expand(4, 19, 3)
    assert torch.equal(chain.corr[1:, 7:], expected[1:, 7:])
    assert not torch.isclose(chain.std[1:, :5], std).any()


@pytest.mark.parametrize(
    "kernel",
    [RBF(2.0), Matern((1.0, 3.0), nu=0.5), Cauchy(2.0) + 0.3 * Periodic(period=4.0), RBF(5.0) * Matern(2.0)],
    ids=str,
)
@pytest.mark.parametrize("config", [SMALL, LOOKING_AROUND], ids=["plain", "default"])
def test_every_parameter_gets_a_gradient(kernel: Cauchy, config: ModelConfig) -> None:
    model = model_of(replace(config, kernel=kernel, learn_kernel=True))
    model.loss(random_batch(grid=False), seeded()).total.backward()
    silent = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.abs().sum() > 0]
    assert silent == []


def test_kernel_parameters_stay_put_unless_learned() -> None:
    fixed = model_of(replace(SMALL, learn_kernel=False))
    assert not any(parameter.requires_grad for parameter in fixed.prior.parameters())


def test_kernel_learns_at_a_pace_of_its_own() -> None:
    model = model_of()
    networks, kernel = model.parameter_groups(0.01)
    assert kernel["lr"] == pytest.approx(0.1)
    assert len(networks["params"]) + len(kernel["params"]) == len(list(model.parameters()))
    assert all(parameter.dtype == torch.float64 for parameter in kernel["params"])


@pytest.mark.parametrize("encoder", ["attention", "convolution"])
def test_matrices_are_those_of_dense_layers(encoder: str) -> None:
    model = model_of(replace(SMALL, encoder=encoder, encoder_filters=16, encoder_widths=(8, 8)))
    networks, few, dense = model.parameter_groups(0.01, matrices=True)
    assert dense["matrices"]
    assert "lr" not in dense
    assert all(value.ndim == 2 for value in dense["params"])
    every = [id(value) for group in (networks, few, dense) for value in group["params"]]
    assert sorted(every) == sorted(id(value) for value in model.parameters())
    named = {id(value): name for name, value in model.named_parameters()}
    names = {named[id(value)] for value in dense["params"]}
    assert "decoder.0.weight" in names
    assert ("encoder.looks.0.weight" if encoder == "attention" else "encoder.dense.0.weight") in names
    assert not any("norm" in name or "bias" in name or "convolution" in name for name in names)


def test_same_generator_same_loss() -> None:
    model, batch = model_of(), random_batch()
    first, second, other = (model.loss(batch, seeded(seed)).total for seed in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert isinstance(model.loss(batch, seeded()), Loss)


@pytest.mark.parametrize("noise", [None, 0.7])
def test_gaussian_likelihood(noise: float | None) -> None:
    likelihood = distributions.Gaussian(3, noise)
    assert likelihood.raw.requires_grad is (noise is None)
    decoded, values = torch.randn(4, 3), torch.randn(4, 3)
    expected = Normal(decoded, 0.5 if noise is None else noise).log_prob(values)
    torch.testing.assert_close(likelihood.log_prob(decoded, values), expected)
    draws = likelihood.sample(decoded.expand(100_000, 4, 3), seeded())
    torch.testing.assert_close(draws.mean(0), decoded, rtol=0, atol=0.02)
    torch.testing.assert_close(draws.var(0), likelihood.variance(decoded), rtol=0.03, atol=0)


@pytest.mark.parametrize("samples", [1, 7, 100])
def test_samples_of_a_cell_are_spread_evenly_and_those_of_others_know_nothing_of_them(samples: int) -> None:
    """One in each n-th of the distribution: of zeros and ones, as many ones as there should be, but for a fraction."""
    gaussian, decoded = distributions.Gaussian(3, 0.7), torch.randn(500, 3, generator=seeded(1)).expand(samples, 500, 3)
    place = Normal(0, 0.7).cdf(gaussian.sample(decoded, seeded()) - decoded)
    within = samples * place.sort(0).values - torch.arange(samples).view(-1, 1, 1)
    assert (within > -1e-3).all()  # but for rounding
    assert (within < 1 + 1e-3).all()
    centred = (place - 0.5).flatten(1)
    together = (centred[:, 1:] * centred[:, :-1]).mean() * 12  # of neighbouring cells: their correlation, on average
    assert abs(float(together)) < 5 / math.sqrt(1499 * samples)
    ones = distributions.Bernoulli(3).sample(decoded, seeded()).sum(0)
    assert ((ones - samples * decoded[0].sigmoid()).abs() < 1.01).all()


@pytest.mark.parametrize("edge", [0.0, 1 - 2**-24])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_draws_at_the_very_edge_are_finite(edge: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "rand", lambda shape, **_: torch.full(shape, edge))
    drawn = distributions.Gaussian(2, 0.7).to(dtype).sample(torch.zeros(5, 3, 2, dtype=dtype), seeded())
    assert drawn.dtype == dtype
    assert drawn.isfinite().all()
    assert drawn.abs().max() > 3


def test_learned_noise_can_be_set_and_has_a_floor() -> None:
    likelihood = distributions.Gaussian(3)
    likelihood.set_noise(torch.tensor([0.3, 2.0, 0.0]))
    torch.testing.assert_close(likelihood.noise[:2], torch.tensor([0.3, 2.0]))
    assert likelihood.FLOOR < likelihood.noise[2] < likelihood.FLOOR + 1e-3


def test_bernoulli_likelihood() -> None:
    likelihood, logits = distributions.Bernoulli(9), torch.linspace(-4, 4, 9)
    values = (torch.arange(9) % 2).float()
    twin = Bernoulli(logits=logits)
    torch.testing.assert_close(likelihood.log_prob(logits, values), twin.log_prob(values))
    torch.testing.assert_close(likelihood.mean(logits), twin.mean)
    torch.testing.assert_close(likelihood.variance(logits), twin.variance)
    draws = likelihood.sample(logits.expand(100_000, 9), seeded())
    assert set(draws.unique().tolist()) == {0.0, 1.0}
    torch.testing.assert_close(draws.mean(0), twin.mean, rtol=0, atol=0.01)


def test_student_likelihood() -> None:
    likelihood = distributions.StudentT(3).double().requires_grad_(False)
    likelihood.raw_freedom.copy_(torch.tensor([-3.0, 1.0, 20.0]))
    likelihood.stretch.copy_(torch.tensor([1.0, 0.5, 3.0]))
    decoded = torch.randn(7, 6, generator=seeded(), dtype=torch.float64)
    values = 5 * torch.randn(7, 3, generator=seeded(1), dtype=torch.float64)
    freedom = 2.1 + torch.tensor([-3.0, 1.0, 20.0], dtype=torch.float64).exp().log1p()
    scale = torch.tensor([1.0, 0.5, 3.0]) * (0.01 + (decoded[:, 3:] - 0.7).exp())
    twin = Student(freedom, decoded[:, :3], scale)
    torch.testing.assert_close(likelihood.log_prob(decoded, values), twin.log_prob(values))
    torch.testing.assert_close(likelihood.mean(decoded), twin.mean)
    torch.testing.assert_close(likelihood.variance(decoded), twin.variance)
    torch.testing.assert_close(likelihood.scale(decoded), scale)
    observed = torch.arange(21).view(7, 3) % 2 == 0
    assert torch.equal(likelihood.seen(values, observed), torch.where(observed, values, 0.0))
    assert (likelihood.inputs, likelihood.outputs) == (3, 6)


def test_stretch_begins_at_one_and_is_saved_with_the_model() -> None:
    model, other = (model_of(LOOKING_AROUND) for _ in range(2))
    assert isinstance(model.likelihood, distributions.StudentT)
    assert isinstance(other.likelihood, distributions.StudentT)
    assert model.likelihood.stretch.tolist() == [1, 1]
    model.likelihood.stretch.copy_(torch.tensor([0.5, 2.0]))
    other.load_state_dict(model.state_dict())
    assert other.likelihood.stretch.tolist() == [0.5, 2.0]
    assert not any(value is model.likelihood.stretch for value in model.parameters())


def test_samples_of_the_student_likelihood_have_its_quantiles() -> None:
    likelihood = distributions.StudentT(2).double().requires_grad_(False)
    likelihood.raw_freedom.copy_(torch.tensor([-4.0, 2.0]))
    likelihood.stretch.copy_(torch.tensor([2.0, 1.0]))
    decoded = torch.tensor([[1.0, -3.0, 0.3, -1.0], [0.0, 50.0, 3.0, 2.0]], dtype=torch.float64)
    drawn = likelihood.sample(decoded.expand(20_000, 2, 4), seeded())
    for i in range(2):
        for j in range(2):
            twin = stats.t(float(likelihood.freedom[j]), decoded[i, j], likelihood.scale(decoded)[i, j])
            assert stats.kstest(drawn[:, i, j].numpy(), twin.cdf).pvalue > 1e-3
    assert abs(float(torch.corrcoef((drawn - decoded[:, :2]).flatten(1).T.sign())[0, 1])) < 0.03  # each cell for itself
    assert torch.equal(drawn[:5], likelihood.sample(decoded.expand(20_000, 2, 4), seeded())[:5])


def test_gradients_of_the_student_likelihood() -> None:
    likelihood = distributions.StudentT(2).double()
    decoded = torch.randn(5, 4, generator=seeded(), dtype=torch.float64, requires_grad=True)
    values = torch.randn(5, 2, generator=seeded(1), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x, _: likelihood.log_prob(x, values), (decoded, likelihood.raw_freedom))
    assert not likelihood.stretch.requires_grad
    single = distributions.StudentT(2)
    for far in (0.0, 1e2, -1e4):
        extreme = torch.full((1, 4), far, requires_grad=True)
        log_prob = single.log_prob(extreme, torch.tensor([[1e4, -1e-9]]))
        assert log_prob.isfinite().all()
        gradients = torch.autograd.grad(log_prob.sum(), [extreme, single.raw_freedom])
        assert all(gradient.isfinite().all() for gradient in gradients)


KINDS = ["count", "real", "categorical", "positive", "real"]
LEVELS = [0, 0, 3, 0, 0]


def mixed(noise: float | None = None) -> distributions.PerColumn:
    return distributions.likelihood_for(KINDS, LEVELS, "student" if noise is None else "gaussian", noise)


def test_student_stands_beside_other_kinds_of_columns() -> None:
    """Real columns are Student's, a positive one is Gaussian in its logarithm; each finds its own decoded numbers."""
    likelihood = mixed()
    found = {type(part): (group.tolist(), outputs) for part, group, outputs in distributions.parts_of(likelihood)}
    assert found == {
        distributions.Poisson: ([0], slice(0, 1)),
        distributions.StudentT: ([1, 4], slice(1, 5)),
        distributions.Categorical: ([2], slice(5, 8)),
        distributions.Gaussian: ([3], slice(8, 9)),
    }
    assert (likelihood.inputs, likelihood.outputs) == (7, 9)
    decoded = torch.randn(6, 9, generator=seeded())
    values = torch.tensor([[2.0, 0.3, 1.0, -0.7, 4.0]]).expand(6, 5)
    with torch.no_grad():
        log_prob, variance = likelihood.log_prob(decoded, values), likelihood.variance(decoded)
        drawn, mean = likelihood.sample(decoded, seeded()), likelihood.mean(decoded)
    freedom, places = 2.1 + math.log1p(math.exp(2)), [1, 4]
    student = Student(freedom, decoded[:, 1:3], 0.01 + (decoded[:, 3:5] - 0.7).exp())
    torch.testing.assert_close(log_prob[:, places], student.log_prob(values[:, places]))
    torch.testing.assert_close(variance[:, places], student.variance)
    torch.testing.assert_close(mean[:, places], decoded[:, 1:3])
    torch.testing.assert_close(log_prob[:, 3], Normal(decoded[:, 8], 0.5).log_prob(values[:, 3]))
    torch.testing.assert_close(log_prob[:, 2], decoded[:, 5:8].log_softmax(-1)[:, 1])
    assert ((drawn[:, 0] >= 0) & (drawn[:, 0] == drawn[:, 0].round())).all()
    assert drawn[:, 2].max() <= 2
    assert not (drawn[:, places] == mean[:, places]).any()


def test_parts_of_a_likelihood_for_all_columns() -> None:
    for likelihood, outputs in [(distributions.StudentT(3), 6), (distributions.Gaussian(3), 3)]:
        ((part, group, places),) = distributions.parts_of(likelihood)
        assert part is likelihood
        assert group.tolist() == [0, 1, 2]
        assert places == slice(0, outputs)


def test_gaussian_columns_beside_others_where_they_are_asked_for() -> None:
    """With the noise that was asked for, which the positive ones then share."""
    ((_, group, places),) = [each for each in distributions.parts_of(mixed(0.7)) if len(each[1]) == 3]
    assert (group.tolist(), places) == ([1, 3, 4], slice(1, 4))
    gaussian = distributions.parts_of(mixed(0.7))[1][0]
    assert isinstance(gaussian, distributions.Gaussian)
    torch.testing.assert_close(gaussian.noise, torch.full((3,), 0.7))
    assert not gaussian.raw.requires_grad


def selective(gap_of_zero: float, gap_of_one: float) -> distributions.SelectiveBernoulli:
    """Zeros and ones that go missing at these rates, in double precision."""
    likelihood = distributions.SelectiveBernoulli(2).double().requires_grad_(False)
    likelihood.gaps.copy_(torch.tensor([gap_of_zero, gap_of_one], dtype=torch.float64).logit())
    return likelihood


@pytest.mark.parametrize("rates", [(0.45, 0.9), (0.8, 0.1), (0.3, 0.3)])
def test_zeros_and_ones_that_go_missing_at_their_own_rates_by_bayes_rule(rates: tuple[float, float]) -> None:
    """Every outcome of a cell written out: a value of 0 or 1, missing or not."""
    likelihood = selective(*rates)
    for white in (0.02, 0.5, 0.97):
        joint = {  # (value, missing): probability
            (value, lost): (white if value else 1 - white) * (rates[value] if lost else 1 - rates[value])
            for value in (0, 1)
            for lost in (True, False)
        }
        decoded = torch.tensor([white], dtype=torch.float64).logit()
        for value in (0, 1):
            given = torch.tensor([float(value)], dtype=torch.float64)
            seen = likelihood.log_prob_of_gaps(decoded, given, torch.tensor([True]))
            together = likelihood.log_prob(decoded, given) + seen
            assert float(together.exp()) == pytest.approx(joint[value, False], rel=1e-12)
            gap = likelihood.log_prob_of_gaps(decoded, given, torch.tensor([False]))
            assert float(gap.exp()) == pytest.approx(joint[0, True] + joint[1, True], rel=1e-12)
        filled = likelihood.mean(likelihood.of_missing(decoded))
        assert float(filled) == pytest.approx(joint[1, True] / (joint[0, True] + joint[1, True]), rel=1e-12)


def binary_batch() -> Batch:
    batch = random_batch()
    return replace(batch, values=(batch.values > 0) * 1.0 * batch.observed, lengths=torch.tensor([9, 4, 1, 6]))


def test_bound_counts_gaps_but_not_padding_where_values_go_missing_at_their_own_rates() -> None:
    """The same draws, log p(x, missing | z) summed cell by cell over the steps that there are."""
    model = model_of(replace(SMALL, likelihood="bernoulli", missing_by_value=True))
    likelihood = model.likelihood
    assert isinstance(likelihood, distributions.SelectiveBernoulli)
    likelihood.gaps.data.copy_(torch.tensor([-1.0, 2.0]))
    batch = binary_batch()
    inside = batch.valid.unsqueeze(-1)
    batch = replace(batch, values=batch.values * inside, observed=batch.observed & inside)
    chain = model.encode(batch).posterior
    white = model.decoder(chain.mean + chain.std * torch.randn(1, *chain.mean.shape, generator=seeded())).sigmoid()
    lost = torch.tensor([-1.0, 2.0]).sigmoid()
    seen = torch.where(batch.values > 0, white * (1 - lost[1]), (1 - white) * (1 - lost[0]))
    log_prob = torch.where(batch.observed, seen, white * lost[1] + (1 - white) * lost[0]).log()
    torch.testing.assert_close(model.loss(batch, seeded()).parts["nll"], -(log_prob * inside).sum() / 20)


def test_rates_of_going_missing_learn_at_the_kernels_pace() -> None:
    model = model_of(replace(SMALL, likelihood="bernoulli", missing_by_value=True))
    assert isinstance(model.likelihood, distributions.SelectiveBernoulli)
    networks, few = model.parameter_groups(0.01)
    assert any(value is model.likelihood.gaps for value in few["params"])
    assert len(networks["params"]) + len(few["params"]) == len(list(model.parameters()))
    assert few["lr"] == pytest.approx(0.1)
    model.loss(binary_batch(), seeded()).total.backward()
    assert model.likelihood.gaps.grad is not None
    assert (model.likelihood.gaps.grad != 0).all()


def hiding(share: float, **settings: Any) -> LatentModel:
    return model_of(replace(SMALL, hide=share, encoder_window=3, **settings))


@pytest.mark.parametrize("importance_samples", [1, 3])
def test_what_training_hides_is_not_seen_but_scored(importance_samples: int) -> None:
    model, batch = hiding(0.4, importance_samples=importance_samples), random_batch()
    given = model.ingredients(batch.times, (4, 9), seeded())
    assert given.shown is not None
    hidden = batch.observed & ~given.shown
    assert 0 < hidden.sum() < batch.observed.sum()
    other = replace(batch, values=torch.where(hidden, batch.values + 3.0, batch.values))
    plain = model_of(replace(model.config, hide=0.0))
    unseen = replace(batch, observed=batch.observed & given.shown)
    kl = [model.bound(each, given, 1.0).parts["kl"] for each in (batch, other)]
    assert torch.equal(kl[0], kl[1])
    torch.testing.assert_close(kl[0], plain.bound(unseen, given._replace(shown=None), 1.0).parts["kl"])
    assert not torch.equal(kl[0], plain.bound(batch, given._replace(shown=None), 1.0).parts["kl"])
    nll = [model.bound(each, given, 1.0).parts["nll"].item() for each in (batch, other, unseen)]
    assert nll[2] < nll[0] != nll[1]  # the hidden cells count


def test_share_that_is_hidden() -> None:
    shown = hiding(0.3).ingredients(1.0, (200, 50), seeded()).shown
    assert shown is not None
    assert shown.shape == (200, 50, 2)
    assert float((~shown).float().mean()) == pytest.approx(0.3, abs=0.015)
    assert abs(float(torch.corrcoef(shown.float().flatten(0, 1).T)[0, 1])) < 0.05  # cell by cell, not step by step


def test_without_hiding_the_random_numbers_are_those_of_before() -> None:
    """Nothing is drawn but the noise; and where something is hidden, the noise is still the same."""
    generator, twin = seeded(), seeded()
    given = hiding(0.0).ingredients(1.0, (4, 9), generator)
    assert given.shown is None
    assert torch.equal(given.noise, torch.randn((1, 4, 9, 3), generator=twin))
    assert torch.equal(generator.get_state(), twin.get_state())
    assert torch.equal(hiding(0.5).ingredients(1.0, (4, 9), seeded()).noise, given.noise)


def test_nothing_is_hidden_when_the_model_is_used() -> None:
    batch = random_batch()
    chains = [hiding(share).encode(batch).posterior for share in (0.0, 0.9)]
    assert torch.equal(chains[0].mean, chains[1].mean)
    assert torch.equal(chains[0].std, chains[1].std)


def decoded_by_hand(model: LatentModel, z: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
    """All but the lines between neighbours: the dense layers, and cell by cell the network that all cells share."""
    said = model.decoder(torch.cat([z, context.expand(*z.shape[:-1], -1)], dim=-1))
    decoded, columns = said[..., : model.likelihood.outputs].clone(), len(model.locations)
    assert model.cells is not None
    for j, place in enumerate(model.locations.tolist()):
        notes = said[..., model.likelihood.outputs + 8 * j : model.likelihood.outputs + 8 * (j + 1)]
        own = torch.stack([context[..., j + k * columns] for k in range(5)], dim=-1)
        added = model.cells(torch.cat([notes, own.expand(*notes.shape[:-1], 5)], dim=-1))
        decoded[..., place] += added[..., 0]
        if j in model.scaled:
            decoded[..., model.scales[model.scaled.tolist().index(j)]] += added[..., 1]
    return decoded


def put_together_by_hand(model: LatentModel, known: torch.Tensor, visible: torch.Tensor) -> torch.Tensor:
    """What columns say together, a look at a time. (batch, time, column, 7) → (batch, time, 8 · width)"""
    across = model.across
    assert across is not None
    said = [across.within((across.cell(known[..., d, :]) + across.column[d]).relu()).relu() for d in range(2)]
    looks = []
    for look in across.look:
        odds = [(look * h).sum(-1) / math.sqrt(len(look)) - 2 * ~visible[..., d] for d, h in enumerate(said)]
        share = torch.sigmoid(odds[0] - odds[1]).unsqueeze(-1)
        looks.append(share * said[0] + (1 - share) * said[1])
    return torch.cat(looks, dim=-1)


def visible_by_hand(batch: Batch, given: Ingredients) -> torch.Tensor:
    """Of whole series."""
    assert given.shown is not None
    assert given.lender is not None
    visible = batch.observed & given.shown
    for i, lender in enumerate(given.lender.tolist()):
        if (batch.observed[i] & ~batch.observed[lender]).any():
            visible[i] = batch.observed[i] & batch.observed[lender]
    return visible


def bound_by_hand(model: LatentModel, batch: Batch, given: Ingredients) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the default model, from its networks: how surprising the observed values are, and the KL; per step."""
    assert model.trust is not None
    likelihood = model.likelihood
    assert isinstance(likelihood, distributions.StudentT)
    visible = visible_by_hand(batch, given)
    around = NearestValues.of(batch.values * visible, visible, batch.times)
    context, known = torch.cat(around, dim=-1), torch.stack([batch.values * visible, visible.float(), *around], dim=-1)
    logs = batch.times.diff().log().float() if isinstance(batch.times, torch.Tensor) else torch.zeros(4, 8)
    steps = torch.cat([torch.zeros(4, 1), logs], dim=-1).unsqueeze(-1)
    together = put_together_by_hand(model, known, visible)
    x = torch.cat([batch.values * visible, visible.float(), context, steps, together], dim=-1)
    mean, raw_std, raw_corr = model.encoder(x, batch.times, torch.ones(4, 9, dtype=torch.bool)).split(3, dim=-1)
    chain = Chain(mean, 1e-3 + raw_std.exp().log1p(), (1 - 1e-4) * raw_corr[:, :-1].tanh())
    z = chain.mean + chain.std * given.noise
    location, raw_scale = decoded_by_hand(model, z, context).split(2, dim=-1)
    location = location + context[..., :2] / (1 + (-model.trust).exp())
    twin = Student(2.1 + likelihood.raw_freedom.exp().log1p(), location, 0.01 + (raw_scale - 0.7).exp())
    weights = torch.where(visible, 0.3, 1.0) * batch.observed
    nll = -(twin.log_prob(batch.values) * weights).sum() / len(z) / 36
    return nll, kl_of(model, chain, batch) / 36


@pytest.mark.parametrize("grid", [True, False])
def test_elbo_of_the_default_model_equals_one_by_hand(grid: bool) -> None:
    """Hidden cells count fully, visible ones by 0.3; locations lie about the line between visible neighbours."""
    batch, model = random_batch(grid=grid), model_of(replace(LOOKING_AROUND, mc_samples=3))
    assert model.trust is not None
    with torch.no_grad():
        model.trust.copy_(torch.tensor([-1.0, 2.0]))
        given = model.ingredients(batch.times, (4, 9), seeded(2))
        loss, (nll, kl) = model.bound(batch, given, 0.5), bound_by_hand(model, batch, given)
    assert given.lender is not None
    assert 0 < (given.lender != torch.arange(4)).sum() < 4
    assert 0 < visible_by_hand(batch, given).sum() < batch.observed.sum()
    torch.testing.assert_close(loss.parts["nll"], nll)
    torch.testing.assert_close(loss.parts["kl"], kl)
    torch.testing.assert_close(loss.total, nll + 0.01 * 0.5 * kl)


@pytest.mark.parametrize("encoder", ["attention", "convolution"])
def test_loss_of_the_default_model_is_that_of_its_series(encoder: Encoder) -> None:
    """Padding behind a series is neither scored nor heard, and a batch may hold series of no length."""
    model, whole = model_of(replace(LOOKING_AROUND, encoder=encoder)), random_batch()
    length = torch.tensor([9, 4, 0, 6])
    inside = (torch.arange(9) < length.unsqueeze(-1)).unsqueeze(-1)
    batch = Batch(whole.values * inside, whole.observed & inside, 1.0, length)
    given = model.ingredients(1.0, (4, 9), seeded(2))
    assert given.shown is not None
    assert given.lender is not None
    shown = as_shown(batch, given.shown, lacking(batch, given.lender)).observed
    together, total = model.bound(batch, given, 1.0), torch.zeros(())
    for i, n in enumerate(length.tolist()):
        if n:
            alone = Batch(batch.values[i : i + 1, :n], batch.observed[i : i + 1, :n], 1.0, length[i : i + 1])
            mine = Ingredients(given.prior, given.noise[:, i : i + 1, :n], shown[i : i + 1, :n], None, None)
            total = total + n * model.bound(alone, mine, 1.0).total
    torch.testing.assert_close(together.total, total / 19)
    together.total.backward()
    assert all(value.grad is None or value.grad.isfinite().all() for value in model.parameters())


def test_series_are_mixed_once_training_says_so() -> None:
    model, batch = model_of(LOOKING_AROUND), replace(random_batch(), observed=torch.ones(4, 9, 2, dtype=torch.bool))
    given = model.ingredients(batch.times, (4, 9), seeded(2))
    assert given.mixture is not None
    assert not given.mixture.angle.any()
    model.mix(True)
    later = model.ingredients(batch.times, (4, 9), seeded(2))
    assert later.mixture is not None
    assert 0 < (later.mixture.angle > 0).sum() < 4
    made = practice.mixed(batch, later.mixture)
    loss, before = model.bound(batch, later, 1.0).total, model.bound(batch, given, 1.0).total
    assert torch.equal(loss, model.bound(made, later._replace(mixture=None), 1.0).total)
    assert not torch.equal(loss, before)
    assert torch.equal(before, model.bound(batch, given._replace(mixture=None), 1.0).total)
    model.mix(False)
    again = model.ingredients(batch.times, (4, 9), seeded(2))
    assert again.mixture is not None
    assert not again.mixture.angle.any()


@pytest.mark.parametrize(("seen", "mixes"), [(11, True), (10, True), (9, False)])
def test_tables_of_which_less_than_half_is_seen_are_not_mixed(seen: int, mixes: bool) -> None:
    """A column without any value does not count."""
    model, observed = LatentModel(LOOKING_AROUND, 3), torch.zeros(10, 3, dtype=torch.bool)
    observed[:, :2] = (torch.arange(20) < seen).view(10, 2)
    model.meet(torch.zeros(10, 3), observed)
    assert model.can_mix(2, even=True) is mixes


def test_mixtures_lend_no_gaps_of_their_own() -> None:
    """Complete series of two lengths: none lacks anything, though a mixture ends with the shorter one."""
    model, length = model_of(LOOKING_AROUND), torch.tensor([9, 5, 9, 5])
    inside = (torch.arange(9) < length.unsqueeze(-1)).unsqueeze(-1).expand(4, 9, 2)
    batch = Batch(random_batch().values * inside, inside, 1.0, length)
    mixture = practice.Mixture(torch.tensor([1, 0, 3, 2]), torch.tensor([0.0, 0.0, 0.7, 0.0]))
    assert practice.mixed(batch, mixture).observed.any(-1).sum(-1).tolist() == [9, 5, 5, 5]
    alone = model.ingredients(1.0, (4, 9), seeded(2))._replace(mixture=mixture, lender=None)
    lent = alone._replace(lender=torch.tensor([2, 0, 0, 2]))
    assert torch.equal(model.bound(batch, lent, 1.0).total, model.bound(batch, alone, 1.0).total)


@pytest.mark.parametrize(
    ("changes", "kinds", "series", "times"),
    [
        ({"mix": 0.0}, (), 4, 1.0),
        ({}, ("real", "count"), 4, 1.0),
        ({"likelihood": "bernoulli"}, (), 4, 1.0),
        ({"image_shape": (1, 1, 2)}, (), 4, 1.0),
        ({}, (), 1, 1.0),
        ({}, (), 4, torch.arange(9.0).expand(4, 9).double() ** 1.1),
    ],
)
def test_what_cannot_be_mixed(
    changes: dict[str, Any], kinds: tuple[str, ...], series: int, times: torch.Tensor | float
) -> None:
    model = LatentModel(replace(LOOKING_AROUND, **changes), 2, kinds, [0, 0])
    model.mix(True)
    assert model.ingredients(times, (series, 9), seeded()).mixture is None
    assert "mixing" not in model.state_dict()  # a saved model knows nothing of it


@pytest.mark.parametrize("importance_samples", [1, 3])
def test_default_model_does_not_see_what_training_hides_but_is_scored_by_it(importance_samples: int) -> None:
    model, batch = model_of(replace(LOOKING_AROUND, importance_samples=importance_samples)), random_batch()
    given = model.ingredients(batch.times, (4, 9), seeded(2))
    shown = visible_by_hand(batch, given)
    other = replace(batch, values=torch.where(batch.observed & ~shown, batch.values + 3.0, batch.values))
    for each in (batch, other):
        encoded = model.encode(replace(each, observed=shown))
        expected = model.encode(replace(batch, values=batch.values * shown, observed=shown))
        assert torch.equal(encoded.context, expected.context)
        assert torch.equal(encoded.posterior.mean, expected.posterior.mean)
        assert torch.equal(encoded.posterior.std, expected.posterior.std)
    losses = [model.bound(each, given, 1.0).parts for each in (batch, other)]
    assert torch.equal(losses[0]["kl"], losses[1]["kl"])
    assert losses[0]["nll"] != losses[1]["nll"]
    seen = replace(batch, values=torch.where(shown, batch.values + 3.0, batch.values))
    assert not torch.equal(model.bound(seen, given, 1.0).parts["kl"], losses[0]["kl"])


def hidden_by(features: int = 2, shape: tuple[int, int] = (400, 40), **settings: Any) -> torch.Tensor:
    """What is hidden from the encoder. (batch, time, feature)"""
    shown = model_of(replace(LOOKING_AROUND, **settings), features).ingredients(1.0, shape, seeded()).shown
    assert shown is not None
    return ~shown


@pytest.mark.parametrize(("lowest", "highest"), [(0.0, 1.0), (0.2, 0.6), (0.9, 0.9)])
def test_share_that_is_hidden_is_drawn_for_each_series(lowest: float, highest: float) -> None:
    """The shares of long series, one after the other, against a uniform distribution between the bounds."""
    shares = hidden_by(shape=(300, 2000), hide=(lowest, highest), hide_runs=0.0).float().mean(1)
    assert (shares[:, 0] - shares[:, 1]).abs().max() < 0.08  # all columns share one
    if lowest == highest:
        assert shares.mean().item() == pytest.approx(lowest, abs=0.01)
        assert shares.std() < 0.02
    else:
        assert stats.kstest(shares[:, 0].numpy(), stats.uniform(lowest, highest - lowest).cdf).pvalue > 1e-3


def test_runs_that_are_hidden() -> None:
    """One in each of some columns, from anywhere to anywhere; in half of the series the same for all those."""
    hidden = hidden_by(features=3, hide_runs=1.0)
    begins = (hidden & ~hidden.roll(1, dims=1))[:, 1:].sum(1) + hidden[:, 0]
    assert begins.max() == 1
    columns = hidden.any(1)  # (series, column)
    several = columns.sum(-1) >= 2
    union = hidden.any(-1, keepdim=True)
    same = ((hidden == union) | ~columns.unsqueeze(1)).flatten(1).all(-1)
    assert float(same[several].float().mean()) == pytest.approx(0.5, abs=0.12)
    share_of_step = hidden.float().mean((0, 2))
    before = (torch.arange(40) / 40 + 0.25) / 1.5  # how likely an end lies before step t: one has to, the other not
    torch.testing.assert_close(share_of_step, before * (1 - before), rtol=0, atol=0.06)
    assert float(hidden.all(1).float().mean()) == pytest.approx(1 / 36, abs=0.02)  # one before, one behind


def test_runs_are_in_few_columns_of_one_series_and_in_many_of_another() -> None:
    """As many as a share of them that is uniform: with twelve, each number from 0 to 12 is equally likely."""
    hidden = hidden_by(features=12, shape=(3000, 40), hide_runs=1.0)
    chosen = hidden.any(1).sum(-1)  # those whose runs lie outside the series are not seen
    assert [float((chosen == count).float().mean()) for count in (1, 2, 11)] == pytest.approx([1 / 13] * 3, abs=0.04)


def test_one_share_takes_one_random_number_a_value() -> None:
    """As it did before shares were drawn: what is on record can be repeated."""
    model, generator = model_of(replace(SMALL, hide=0.3)), seeded()
    given = model.ingredients(1.0, (4, 9), seeded())
    torch.randn((1, 4, 9, 3), generator=generator)
    assert given.shown is not None
    assert torch.equal(given.shown, torch.rand((4, 9, 2), generator=generator) >= 0.3)


def test_share_of_the_series_with_runs() -> None:
    """Of the others single values are hidden: all of them here, so that they can be told apart."""
    for share in (0.25, 0.75):
        single = hidden_by(hide=1.0, hide_runs=share).flatten(1).all(-1)
        assert float(single.float().mean()) == pytest.approx(1 - share, abs=0.08)


def test_share_of_the_series_with_gaps_of_others() -> None:
    for share in (0.25, 0.75):
        lender = model_of(replace(LOOKING_AROUND, hide_gaps=share)).ingredients(1.0, (2000, 2), seeded()).lender
        assert lender is not None
        assert float((lender != torch.arange(2000)).float().mean()) == pytest.approx(share, abs=0.04)
    assert model_of(replace(LOOKING_AROUND, hide_gaps=0.0)).ingredients(1.0, (4, 9), seeded()).lender is None
    assert model_of(replace(LOOKING_AROUND, hide=0.0, hide_gaps=1.0)).ingredients(1.0, (4, 9), seeded()).lender is None


def test_nothing_is_hidden_where_no_share_is() -> None:
    model, batch = model_of(replace(LOOKING_AROUND, hide=0.0, hide_runs=1.0)), random_batch()
    assert model.ingredients(1.0, (4, 9), seeded()).shown is None
    full = model_of(replace(LOOKING_AROUND, hide=0.0, visible_weight=1.0))
    assert torch.equal(model.loss(batch, seeded()).total, full.loss(batch, seeded()).total)


def test_surroundings_are_those_of_real_and_positive_columns() -> None:
    """Each line between neighbours is added to the number that says where the values of its column lie."""
    model = model_of(LOOKING_AROUND, 5, KINDS, LEVELS).requires_grad_(False)
    assert model.discrete.tolist() == [True, False, True, False, False]
    assert dict(zip(model.continuous.tolist(), model.locations.tolist(), strict=True)) == {1: 1, 4: 2, 3: 8}
    assert model.trust is not None
    model.trust.copy_(torch.tensor([30.0, 0.0, -30.0]))
    batch = random_batch(features=5)
    batch = replace(batch, values=batch.values.abs().round())
    posterior, context = model.encode(batch)
    columns = [1, 4, 3]
    around = NearestValues.of(batch.values[..., columns], batch.observed[..., columns], 1.0)
    assert torch.equal(context, torch.cat(around, dim=-1))
    z = posterior.sample_marginals(torch.randn(2, 4, 9, 3, generator=seeded()))
    decoded = model.decode(z, context)
    added = decoded - decoded_by_hand(model, z, context)
    expected = torch.zeros_like(added)
    expected[..., 1], expected[..., 2] = around.interpolated[..., 0], 0.5 * around.interpolated[..., 1]
    torch.testing.assert_close(added, expected, rtol=0, atol=1e-5)
    rows = batch.observed.any(-1)
    torch.testing.assert_close(model.decode(z[:, rows], context[rows]), decoded[:, rows])


@pytest.mark.parametrize(
    ("config", "features"),
    [
        (replace(LOOKING_AROUND, see_surroundings=False), 4),
        (replace(LOOKING_AROUND, likelihood="bernoulli"), 4),
        (replace(LOOKING_AROUND, likelihood="gaussian", image_shape=(1, 2, 2)), 4),
    ],
    ids=["unwanted", "bernoulli", "images"],
)
def test_without_surroundings_the_decoder_sees_the_latent_series_alone(config: ModelConfig, features: int) -> None:
    model, batch = model_of(config, features), random_batch(features=features)
    posterior, context = model.encode(batch)
    assert model.trust is None
    assert context.shape == (4, 9, 0)
    assert torch.equal(model.decode(posterior.mean, context), model.decoder(posterior.mean))


@torch.no_grad()
def test_what_is_decoded_begins_as_the_line_between_neighbours() -> None:
    """As far as that is trusted, whatever the latent series are; and what is not located begins at 0."""
    model, batch = LatentModel(LOOKING_AROUND, 5, KINDS, LEVELS), random_batch(features=5)
    context = model.encode(batch).context
    decoded = model.decode(torch.randn(4, 9, 3, generator=seeded()), context)
    expected = torch.zeros(4, 9, 9)
    expected[..., [1, 2, 8]] = context[..., :3] / (1 + math.exp(-1))
    torch.testing.assert_close(decoded, expected)
    assert cast(nn.Linear, model.decoder[-1]).weight[model.likelihood.outputs :].any()  # the notes say something
    plain = LatentModel(SMALL, 5)
    assert plain.decode(torch.ones(4, 9, 3), context[..., :0]).abs().min() > 0


def test_trust_begins_high_and_learns_with_the_networks() -> None:
    model = model_of(LOOKING_AROUND)
    assert model.trust is not None
    assert (model.trust.sigmoid() > 0.7).all()
    networks, few = model.parameter_groups(0.01)
    assert any(value is model.trust for value in networks["params"])
    assert len(networks["params"]) + len(few["params"]) == len(list(model.parameters()))


@torch.no_grad()
def test_cells_hear_of_their_own_surroundings_alone() -> None:
    """Besides what the dense layers say, which here do not see any."""
    model, batch = model_of(LOOKING_AROUND), random_batch()
    posterior, context = model.encode(batch)
    first = model.decoder[0]
    assert isinstance(first, nn.Linear)
    first.weight[:, 3:] = 0
    other = context.clone()
    other.unflatten(-1, (5, 2))[..., 0] += 1
    before, after = model.decode(posterior.mean, context), model.decode(posterior.mean, other)
    assert torch.equal(before[..., [1, 3]], after[..., [1, 3]])
    assert (before != after)[..., [0, 2]].all()


def sizes_heard_by(network: nn.Module | None) -> list[int]:
    """How many inputs it gets at a time, call by call from now on."""
    assert network is not None
    sizes: list[int] = []
    network.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    return sizes


@torch.no_grad()
def test_cells_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(LOOKING_AROUND), random_batch()
    posterior, context = model.encode(batch)
    z = posterior.sample_marginals(torch.randn(3, 4, 9, 3, generator=seeded()))
    whole = model.decode(z, context)
    sizes = sizes_heard_by(model.cells)
    monkeypatch.setattr("gpvae.models.model.CELLS_AT_ONCE", 5)
    torch.testing.assert_close(model.decode(z, context), whole)
    assert sizes == [5] * 43 + [1]  # of 3 samples of 4 series of 9 steps of 2 cells
    with torch.enable_grad():
        torch.testing.assert_close(model.decode(z, context), whole)
    assert sizes[44:] == [216]


@torch.no_grad()
def test_without_a_network_that_cells_share_there_are_dense_layers_and_lines() -> None:
    model, batch = model_of(replace(LOOKING_AROUND, cell_width=0)), random_batch()
    posterior, context = model.encode(batch)
    expected = model.decoder(torch.cat([posterior.mean, context], dim=-1))
    expected[..., :2] += context[..., :2] / (1 + math.exp(-1))
    torch.testing.assert_close(model.decode(posterior.mean, context), expected)
    assert model.cells is None


@pytest.mark.parametrize(
    ("given", "rows", "weight", "gaps"),
    [(None, 2, 0.2, 0.2), (None, 4, 0.3, 0.4), (0.7, 2, 0.7, 0.7), (None, 0, 0.3, 0.5)],
)
def test_what_is_visible_weighs_less_where_little_is_observed(
    given: float | None, rows: int, weight: float, gaps: float
) -> None:
    """As does the KL, and gaps of others are hidden more seldom. A column without a single value does not count."""
    model = model_of(replace(LOOKING_AROUND, visible_weight=given, hide_gaps=given, beta=given))
    model.meet(torch.zeros(5, 2), (torch.arange(5) < rows).view(-1, 1) & torch.tensor([True, False]))
    assert model.visible_weight == pytest.approx(weight)
    assert model.hide_gaps == pytest.approx(gaps)
    assert model.beta == pytest.approx(given or 0.01 * (rows / 5 if rows else 1))
    batch = random_batch()
    seen = replace(batch, observed=batch.observed & (torch.arange(9) < 4).view(-1, 1))
    weights = model._weights(batch, seen)  # pyright: ignore[reportPrivateUsage]
    assert weights[seen.observed].tolist() == pytest.approx([weight] * int(seen.observed.sum()))
    assert (weights[batch.observed & ~seen.observed] == 1).all()
    assert (weights[~batch.observed] == 0).all()


@torch.no_grad()
def test_columns_that_are_missing_leave_their_weight_to_the_others() -> None:
    """What is put together lies between what the columns say, and a look at all of them is not a sum of looks."""
    model = model_of(LOOKING_AROUND, features=3)
    assert model.across is not None
    known = torch.randn(5, 3, 7, generator=seeded())
    known[:, 2] = known[:, 1]
    model.across.column[2] = model.across.column[1]
    both = torch.ones(5, 3, dtype=torch.bool)
    said = model.across.within((model.across.cell(known) + model.across.column).relu()).relu()
    found = model.across(known, both).unflatten(-1, (8, -1))
    assert (found <= said.amax(1, keepdim=True) + 1e-6).all()
    assert (found >= said.amin(1, keepdim=True) - 1e-6).all()
    without = both.clone()
    without[:, 0] = False
    closer = model.across(known, without).unflatten(-1, (8, -1))
    last = said[:, 1:2]  # of the other two columns, which are alike
    assert ((closer - last).norm(dim=-1) < (found - last).norm(dim=-1)).all()


@torch.no_grad()
def test_columns_are_put_together_some_steps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = model_of(LOOKING_AROUND), random_batch()
    whole = model.encode(batch).posterior
    sizes = sizes_heard_by(model.across)
    monkeypatch.setattr("gpvae.models.model.CELLS_AT_ONCE", 5)
    torch.testing.assert_close(model.encode(batch).posterior.mean, whole.mean)
    assert sizes == [2] * 18  # steps, of two cells each
    with torch.enable_grad():
        torch.testing.assert_close(model.encode(batch).posterior.mean, whole.mean)
    assert sizes[18:] == [36]


@pytest.mark.parametrize(
    "config", [replace(LOOKING_AROUND, column_width=0), replace(LOOKING_AROUND, see_surroundings=False)]
)
def test_columns_are_put_together_only_where_that_is_wanted_and_surroundings_are_seen(config: ModelConfig) -> None:
    model = model_of(config)
    assert model.across is None
    assert model.encode(random_batch()).posterior.mean.isfinite().all()


@torch.no_grad()
def test_columns_that_are_put_together_are_the_real_ones() -> None:
    """Whatever else there is beside them, and wherever they stand."""
    model, batch = model_of(LOOKING_AROUND, 5, KINDS, LEVELS), random_batch(features=5)
    batch = replace(batch, values=batch.values.abs().round())
    assert model.across is not None
    heard: list[tuple[torch.Tensor, torch.Tensor]] = []
    model.across.register_forward_hook(lambda _, inputs, __: heard.append(inputs))
    model.encode(batch)
    known, visible = heard[0]
    columns = [1, 4, 3]
    around = NearestValues.of(batch.values[..., columns], batch.observed[..., columns], 1.0)
    shown = batch.observed[..., columns]
    assert torch.equal(visible.view(4, 9, 3), shown)
    assert torch.equal(
        known.view(4, 9, 3, 7), torch.stack([batch.values[..., columns] * shown, shown.float(), *around], dim=-1)
    )


@pytest.mark.parametrize("features", [1, 9, 40])
@pytest.mark.parametrize("widths", [{}, {"cell_width": 0}, {"column_width": 128, "encoder_filters": 8}])
def test_widest_is_no_less_than_what_any_layer_makes(features: int, widths: dict[str, int]) -> None:
    model, made = model_of(replace(LOOKING_AROUND, encoder_widths=(8,), **widths), features), []
    assert model.across is not None
    networks = [(model.encoder, 1), (model.decoder, 1), (model.across, features)]
    for layers, at_once in [*networks, *([(model.cells, features)] if model.cells else [])]:
        for layer in layers.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_hook(lambda *all, n=at_once: made.append(n * all[-1].shape[-1]))
    model.across.register_forward_hook(lambda *all: made.append(all[-1].shape[-1]))
    encoded = model.encode(random_batch(features=features))
    model.decode(encoded.posterior.mean, encoded.context)
    assert model.widest >= max(*made, encoded.context.shape[-1])


def test_image_preprocessor_keeps_to_its_frame() -> None:
    config = replace(SMALL, image_shape=(3, 4, 5), image_filters=6, likelihood="bernoulli")
    model = model_of(config, features=60)
    x = torch.rand(2, 7, 120)
    out = model.preprocessor(x)
    assert out.shape == (2, 7, 20)
    changed = x.clone()
    changed[1, 3] += 1
    differs = (model.preprocessor(changed) != out).any(-1)
    assert differs.nonzero().tolist() == [[1, 3]]
    batch = random_batch(features=60)
    assert model.loss(replace(batch, values=batch.values.abs().clamp(max=1)), seeded()).total.isfinite()


@pytest.mark.parametrize(
    ("name", "features", "sizes"),
    [
        ("healing-mnist", 784, {"conv": (256, 784, 3), "dense": [256, 768], "decoder": [256, 256, 256, 784]}),
        ("sprites", 12288, {"conv": (32, 4096, 3), "dense": [256, 256, 768], "decoder": [256, 256, 256, 12288]}),
        ("physionet", 35, {"conv": (128, 35, 24), "dense": [128, 105], "decoder": [256, 256, 35]}),
    ],
)
def test_presets_have_the_sizes_of_the_paper(name: str, features: int, sizes: dict[str, object]) -> None:
    model = model_of(paper.PRESETS[name]["model"], features)
    assert isinstance(model.encoder, TimeConvolution)
    assert model.encoder.convolution.weight.shape == sizes["conv"]
    assert [layer.out_features for layer in model.encoder.dense if isinstance(layer, nn.Linear)] == sizes["dense"]
    assert [layer.out_features for layer in model.decoder if isinstance(layer, nn.Linear)] == sizes["decoder"]


def test_config_round_trip_and_unknown_names() -> None:
    config = replace(SMALL, kernel=Cauchy((1.0, 2.0)) + 0.5 * Periodic(period=24.0), image_shape=None, noise=0.5)
    for each in (config, LOOKING_AROUND):
        assert ModelConfig.from_plain(json.loads(json.dumps(each.to_plain()))) == each
    with pytest.raises(ValueError, match="unknown model setting: colour"):
        ModelConfig.from_plain({"colour": "red"})
    with pytest.raises(ValueError, match="got the kind 'Bessel'"):
        ModelConfig.from_plain({"kernel": {"kind": "Bessel"}})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ModelConfig(beta=-1), "beta ≥ 0"),
        (lambda: ModelConfig(mc_samples=0), "mc_samples must be at least 1"),
        (lambda: ModelConfig(latent_dim=0), "latent_dim must be at least 1"),
        (lambda: ModelConfig(posterior="square"), "no 'square' posterior"),  # type: ignore[arg-type]
        (
            lambda: ModelConfig(hide=1.5),
            "hide, hide_runs, hide_gaps, mix and visible_weight are shares, between 0 and 1",
        ),
        (
            lambda: ModelConfig(hide=(0.5, 0.2)),
            "hide, hide_runs, hide_gaps, mix and visible_weight are shares, between 0 and 1",
        ),
        (lambda: ModelConfig(hide=(0.1, 0.2, 0.3)), "hide is a share, or the two that it lies between"),  # type: ignore[arg-type]
        (lambda: ModelConfig(encoder_filters=20), "encoder_filters must be a multiple of 8 for attention, not 20"),
        (
            lambda: ModelConfig(hide_runs=-0.1),
            "hide, hide_runs, hide_gaps, mix and visible_weight are shares, between 0 and 1",
        ),
        (
            lambda: ModelConfig(mix=1.1),
            "hide, hide_runs, hide_gaps, mix and visible_weight are shares, between 0 and 1",
        ),
        (
            lambda: ModelConfig(hide_gaps=1.1),
            "hide, hide_runs, hide_gaps, mix and visible_weight are shares, between 0 and 1",
        ),
        (lambda: ModelConfig(cell_width=-1), "cell_width must not be negative, as -1 is"),
        (lambda: ModelConfig(column_width=-1), "column_width must not be negative, as -1 is"),
        (
            lambda: ModelConfig(visible_weight=1.1),
            "hide, hide_runs, hide_gaps, mix and visible_weight are shares, between 0 and 1",
        ),
        (lambda: ModelConfig(encoder="square"), "no 'square' encoder"),  # type: ignore[arg-type]
        (lambda: ModelConfig(noise=0.5), "noise is the deviation of a Gaussian"),
        (lambda: ModelConfig(missing_by_value=True), "missing_by_value goes with a Bernoulli likelihood"),
        (lambda: ModelConfig(likelihood="bernoulli", missing_by_value=True, score_missing=True), "not with score_miss"),
        (lambda: Cauchy(-1.0), "length_scale must be positive"),
        (lambda: Matern(1.0, nu=3.0), "nu must be 0.5, 1.5 or 2.5"),
        (lambda: Cauchy((1.0, 2.0)) + RBF((1.0, 2.0, 3.0)), "the same number of groups"),
        (lambda: model_of(replace(SMALL, kernel=Cauchy((1.0, 2.0, 3.0, 4.0)))), "4 length scales need at least"),
        (lambda: model_of(replace(SMALL, image_shape=(1, 5, 5))), "has 25 values, the data 2 features"),
        (lambda: distributions.Gaussian(2, 0.001), "noise must be above"),
    ],
)
def test_wrong_settings_are_named(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=message):
        wrong()
