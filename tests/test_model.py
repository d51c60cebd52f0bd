"""The model: its bound against dense and exact twins, padding, settings."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, nn
from torch.distributions import Bernoulli, MultivariateNormal, Normal, kl_divergence

from gpvae import distributions, paper
from gpvae.batches import Batch
from gpvae.kernels import RBF, Cauchy, Matern, Periodic
from gpvae.linalg import Chain, chain_kl
from gpvae.model import LatentModel, Loss, ModelConfig, Posterior

SMALL = ModelConfig(
    latent_dim=3, encoder_filters=8, encoder_window=4, encoder_widths=(8,), decoder_widths=(8,), kernel=Cauchy(2.0)
)


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def random_batch(series: int = 4, time: int = 9, features: int = 2, *, grid: bool = True) -> Batch:
    values = torch.randn(series, time, features, generator=seeded(1))
    observed = torch.rand(series, time, features, generator=seeded(2)) < 0.6
    steps = 0.2 + torch.rand(series, time, generator=seeded(3), dtype=torch.float64)
    times = 1.0 if grid else steps.cumsum(-1)
    return Batch(values * observed, observed, times, torch.full((series,), time))


def model_of(config: ModelConfig = SMALL, features: int = 2) -> LatentModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LatentModel(config, features)


@pytest.mark.parametrize("posterior", ["chain", "diagonal"])
@pytest.mark.parametrize("grid", [True, False])
def test_elbo_equals_a_dense_computation(posterior: Posterior, grid: bool) -> None:
    """The same draws, but log p(x|z) from torch.distributions and the KL between dense Gaussians."""
    batch, m = random_batch(grid=grid), 5
    model = model_of(replace(SMALL, posterior=posterior, mc_samples=m, beta=0.7, neighbours=20))
    loss = model.loss(batch, seeded())
    chain = model.encode(batch)
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
        head = model.encoder.dense[-1]
        assert isinstance(head, nn.Linear)
        head.bias.detach().chunk(3)[1].zero_()  # a posterior as wide as the prior, for importance sampling to work
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
        posterior, prior = model.encode(batch), model.prior.factor(batch.times)
        noise = torch.randn(20_000, 1, *posterior.mean.shape, generator=seeded(1))
        sampled = model._importance_weighted(posterior, batch, prior, noise, 1.0)
    torch.testing.assert_close(sampled.parts["kl"], elbo.parts["kl"], rtol=0.02, atol=0.0)
    torch.testing.assert_close(sampled.total, elbo.total, rtol=0.02, atol=0.0)


def kl_of(model: LatentModel, chain: Chain, batch: Batch) -> torch.Tensor:
    return chain_kl(chain, model.prior.factor(batch.times), batch.lengths).sum()


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("importance_samples", [1, 3])
def test_padding_changes_nothing(grid: bool, importance_samples: int) -> None:
    """Series of different length in one batch: posterior and KL are those of each series alone."""
    model, whole = model_of(replace(SMALL, importance_samples=importance_samples)), random_batch(grid=grid)
    length = torch.tensor([9, 4, 1, 6])
    inside = (torch.arange(9) < length.unsqueeze(-1)).unsqueeze(-1)
    padded = Batch(whole.values * inside, whole.observed & inside, whole.times, length)
    together = model.encode(padded)
    kl = torch.zeros(())
    for i, n in enumerate(length.tolist()):
        times = whole.times[i : i + 1, :n] if isinstance(whole.times, torch.Tensor) else whole.times
        alone = Batch(whole.values[i : i + 1, :n], whole.observed[i : i + 1, :n], times, length[i : i + 1])
        chain = model.encode(alone)
        torch.testing.assert_close(chain.mean[0], together.mean[i, :n])
        torch.testing.assert_close(chain.std[0], together.std[i, :n])
        torch.testing.assert_close(chain.corr[0], together.corr[i, : n - 1])
        kl = kl + kl_of(model, chain, alone)
    torch.testing.assert_close(kl_of(model, together, padded), kl)
    # What stands in the padding must not matter to either bound.
    other = replace(padded, values=torch.where(inside, padded.values, 99.0))
    assert torch.equal(model.loss(padded, seeded()).total, model.loss(other, seeded()).total)


def test_missing_values_enter_as_zeros_and_are_not_scored() -> None:
    model, batch = model_of(), random_batch()
    other = replace(batch, values=torch.where(batch.observed, batch.values, 7.0))
    assert torch.equal(model.loss(batch, seeded()).total, model.loss(other, seeded()).total)


def test_encoder_sees_what_is_observed_only_where_it_should() -> None:
    batch = random_batch()
    zeros = replace(batch, values=torch.zeros_like(batch.values))
    fewer = replace(zeros, observed=batch.observed & (torch.arange(2) == 0))
    for see_observed in (True, False):
        model = model_of(replace(SMALL, see_observed=see_observed, encoder_window=18))
        assert torch.equal(model.encode(zeros).mean, model.encode(fewer).mean) is not see_observed


def test_times_matter_to_encoder_and_prior() -> None:
    regular, irregular = random_batch(grid=True), random_batch(grid=False)
    for see_times in (True, False):
        model = model_of(replace(SMALL, see_times=see_times))
        assert torch.equal(model.encode(regular).mean, model.encode(irregular).mean) is not see_times
        first, second = (model.loss(batch, seeded()).parts["kl"] for batch in (regular, irregular))
        assert not torch.isclose(first, second, rtol=1e-3)


@pytest.mark.parametrize("grid", [True, False])
def test_where_the_encoder_sees_nothing_the_posterior_is_the_prior(grid: bool) -> None:
    batch = random_batch(time=20, grid=grid)
    seen = (torch.arange(20) < 5).view(1, 20, 1) & (torch.arange(4) > 0).view(4, 1, 1)
    batch = replace(batch, observed=seen.expand(4, 20, 2))
    model = model_of(replace(SMALL, encoder_window=5))
    chain, (std, corr) = model.encode(batch), model.prior.marginals(batch.times)
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
def test_every_parameter_gets_a_gradient(kernel: Cauchy) -> None:
    model = model_of(replace(SMALL, kernel=kernel, learn_kernel=True))
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
    chain = model.encode(batch)
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
    chains = [hiding(share).encode(batch) for share in (0.0, 0.9)]
    assert torch.equal(chains[0].mean, chains[1].mean)
    assert torch.equal(chains[0].std, chains[1].std)


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
    assert model.encoder.convolution.weight.shape == sizes["conv"]
    assert [layer.out_features for layer in model.encoder.dense if isinstance(layer, nn.Linear)] == sizes["dense"]
    assert [layer.out_features for layer in model.decoder if isinstance(layer, nn.Linear)] == sizes["decoder"]


def test_config_round_trip_and_unknown_names() -> None:
    config = replace(SMALL, kernel=Cauchy((1.0, 2.0)) + 0.5 * Periodic(period=24.0), image_shape=None, noise=0.5)
    assert ModelConfig.from_plain(config.to_plain()) == config
    with pytest.raises(ValueError, match="unknown model setting: colour"):
        ModelConfig.from_plain({"colour": "red"})
    with pytest.raises(ValueError, match="unknown kernel 'Bessel'"):
        ModelConfig.from_plain({"kernel": {"kind": "Bessel"}})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: ModelConfig(beta=-1), "beta ≥ 0"),
        (lambda: ModelConfig(mc_samples=0), "mc_samples must be at least 1"),
        (lambda: ModelConfig(latent_dim=0), "latent_dim must be at least 1"),
        (lambda: ModelConfig(posterior="square"), "no 'square' posterior"),  # type: ignore[arg-type]
        (lambda: ModelConfig(hide=1.0), "hide is a share, at least 0 and below 1, not 1.0"),
        (lambda: ModelConfig(hide=-0.1), "hide is a share, at least 0 and below 1, not -0.1"),
        (lambda: ModelConfig(missing_by_value=True), "missing_by_value goes with a Bernoulli likelihood"),
        (lambda: ModelConfig(likelihood="bernoulli", missing_by_value=True, score_missing=True), "not with score_miss"),
        (lambda: Cauchy(-1.0), "length_scale must be positive"),
        (lambda: Matern(1.0, nu=3.0), "nu must be 0.5, 1.5 or 2.5"),
        (lambda: Cauchy((1.0, 2.0)) + RBF((1.0, 2.0, 3.0)), "groups of one size"),
        (lambda: model_of(replace(SMALL, kernel=Cauchy((1.0, 2.0, 3.0, 4.0)))), "4 length scales need at least"),
        (lambda: model_of(replace(SMALL, image_shape=(1, 5, 5))), "has 25 values, the data 2 features"),
        (lambda: distributions.Gaussian(2, 0.001), "noise must be above"),
    ],
)
def test_wrong_settings_are_named(wrong: object, message: str) -> None:
    assert callable(wrong)
    with pytest.raises(ValueError, match=message):
        wrong()
