"""The paper's model: its bounds against dense and exact twins, padding, what the encoder is given."""

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import pytest
import torch
from compose import PAPER, loss_of, model_of, ragged, random_batch, seeded
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from gpvae.data.batches import Batch
from gpvae.gp import Chain, chain_kl
from gpvae.gp.kernels import RBF, Cauchy, Kernel, Matern, Periodic
from gpvae.models.config import HI_VAE, VAE, ModelConfig, Objective
from gpvae.models.encoders import Convolution
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.inputs import Frames, StepDecoder, Values
from gpvae.models.likelihoods import Bernoulli, Gaussian, GaussianLikelihood, SelectiveBernoulliLikelihood
from gpvae.models.posterior import CORR_LIMIT, Posterior
from gpvae.models.prior import Prior


def decoder_of(model: GPVAEModel) -> nn.Sequential:
    assert isinstance(model.decoder, StepDecoder)
    return model.decoder.mlp


@pytest.mark.parametrize("posterior", get_args(Posterior))
@pytest.mark.parametrize("grid", [True, False])
def test_elbo_equals_a_dense_computation(posterior: Posterior, grid: bool) -> None:
    """The same draws, but log p(x|z) from torch.distributions and the KL between dense Gaussians."""
    batch, m = random_batch(grid=grid), 5
    model = model_of(replace(PAPER, posterior=posterior, prior=Prior(Cauchy(2.0), neighbours=20)))
    noise = torch.randn(m, 4, 9, 3, generator=seeded())
    loss = loss_of(model, batch, noise=noise, beta=0.7)
    chain = model.encode(batch).posterior
    assert isinstance(model.likelihood, GaussianLikelihood)
    log_prob = Normal(decoder_of(model)(chain.mean + chain.std * noise), model.likelihood.noise).log_prob(batch.values)
    times = batch.times if isinstance(batch.times, Tensor) else torch.arange(9.0).expand(4, 9).double()
    lags = (times.unsqueeze(-1) - times.unsqueeze(-2)).unsqueeze(1)
    k = (1 / (1 + lags**2 / 4) + 1e-3 * torch.eye(9)).expand(4, 3, 9, 9)
    q = MultivariateNormal(chain.mean.mT.double(), chain.covariance().double())
    kl = kl_divergence(q, MultivariateNormal(torch.zeros(9, dtype=torch.float64), k)).sum()
    torch.testing.assert_close(loss.parts["nll"], -(log_prob * batch.observed).sum() / m / 36)
    torch.testing.assert_close(loss.parts["kl"].double(), kl / 36, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(loss.total, loss.parts["nll"] + 0.7 * loss.parts["kl"])
    assert bool((chain.corr == 0).all()) is (posterior == "diagonal")


@pytest.mark.parametrize(
    ("posterior", "positive"), [("published", nn.functional.softplus), ("published-sigmoid", torch.sigmoid)]
)
def test_published_posterior_has_the_precision_of_the_authors_code(
    posterior: Posterior, positive: Callable[[Tensor], Tensor]
) -> None:
    """Built densely and in double precision from what the encoder returns: 1 + … on the diagonal of B, … above it."""
    model, batch = model_of(replace(PAPER, posterior=posterior)).double(), random_batch(time=7)
    batch = replace(batch, values=batch.values.double())
    raw = 3 * torch.randn(4, 7, 9, generator=seeded(5), dtype=torch.float64)
    model.encoder.forward = lambda x, times, valid: raw
    mean, diagonal, off = raw.chunk(3, dim=-1)
    b = torch.diag_embed(1 + positive(diagonal).mT) + torch.diag_embed(positive(off[:, :-1]).mT, 1)
    chain = model.encode(batch).posterior
    assert torch.equal(chain.mean, mean)
    assert (chain.corr < 0).all()
    torch.testing.assert_close(chain.covariance(), torch.linalg.inv(b @ b.mT), rtol=1e-3, atol=1e-3)


def test_published_posterior_stays_finite_where_its_recursion_grows() -> None:
    """Off-diagonal entries far above the diagonal: correlations of nearly -1, and a finite KL."""
    model, batch = model_of(replace(PAPER, posterior="published")), random_batch(time=9)
    raw = torch.tensor([0.0, -20.0, 12.0]).repeat_interleave(3).expand(4, 9, 9).clone().requires_grad_()
    model.encoder.forward = lambda x, times, valid: raw
    loss = loss_of(model, batch)
    assert loss.total.isfinite()
    (gradient,) = torch.autograd.grad(loss.total, raw)
    assert gradient.isfinite().all()


class LinearGaussian:
    """A decoder for which log p(x) is known: x = W z + noise, so vec(x) ~ N(0, K ⊗ WWᵀ + noise² I)."""

    def __init__(self, model: GPVAEModel, features: int):
        decoder = nn.Linear(model.latent_dim, features, bias=False)
        self.weight = nn.Parameter(torch.randn(features, model.latent_dim, generator=seeded(4)))
        decoder.weight, self.model = self.weight, model
        assert isinstance(model.decoder, StepDecoder)
        model.decoder.mlp = nn.Sequential(decoder)
        _, raw_std, _ = model.encoder.head.bias.detach().chunk(3)
        raw_std.zero_()  # a posterior as wide as the prior, for importance sampling to work

    def log_marginal(self, batch: Batch) -> Tensor:
        assert isinstance(self.model.likelihood, GaussianLikelihood)
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


@torch.no_grad()
def test_importance_weighted_bound_approaches_the_exact_likelihood() -> None:
    batch, model = random_batch(time=4), model_of(replace(PAPER, likelihood=Gaussian(0.8)))
    exact = float(LinearGaussian(model, 2).log_marginal(batch))
    elbo, few, many = (-float(loss_of(model, batch, draws=draws).total) for draws in ((4000,), (2000, 5), (1, 200_000)))
    assert elbo < few < many < exact + 0.01
    assert exact - many < 0.02 < exact - elbo


@torch.no_grad()
def test_importance_weighted_bound_with_one_sample_is_the_elbo_on_average() -> None:
    model, batch = model_of(), random_batch(time=5)
    elbo, sampled = loss_of(model, batch, draws=(20_000,)), loss_of(model, batch, draws=(20_000, 1))
    torch.testing.assert_close(sampled.parts["kl"], elbo.parts["kl"], rtol=0.02, atol=0.0)
    torch.testing.assert_close(sampled.total, elbo.total, rtol=0.02, atol=0.0)


def kl_of(model: GPVAEModel, chain: Chain, batch: Batch) -> Tensor:
    return chain_kl(chain, model.prior.factor(batch.times), batch.lengths).sum()


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize("draws", [(1,), (1, 3)])
def test_padding_changes_nothing(grid: bool, draws: tuple[int, ...]) -> None:
    """Series of different length in one batch: posterior and KL are those of each series alone."""
    model, whole, lengths = model_of(), random_batch(grid=grid), [9, 4, 1, 6]
    padded = ragged(whole, lengths)
    together, kl = model.encode(padded).posterior, torch.zeros(())
    for i, n in enumerate(lengths):
        times = whole.times[i : i + 1, :n] if isinstance(whole.times, Tensor) else whole.times
        alone = Batch(whole.values[i : i + 1, :n], whole.observed[i : i + 1, :n], times, padded.lengths[i : i + 1])
        chain = model.encode(alone).posterior
        torch.testing.assert_close(chain.mean[0], together.mean[i, :n])
        torch.testing.assert_close(chain.std[0], together.std[i, :n])
        torch.testing.assert_close(chain.corr[0], together.corr[i, : n - 1])
        kl = kl + kl_of(model, chain, alone)
    torch.testing.assert_close(kl_of(model, together, padded), kl)
    other = replace(padded, values=torch.where(padded.valid.unsqueeze(-1), padded.values, 99.0))
    assert torch.equal(loss_of(model, padded, draws=draws).total, loss_of(model, other, draws=draws).total)


def test_missing_values_enter_as_zeros_and_are_not_scored() -> None:
    model, batch = model_of(), random_batch()
    other = replace(batch, values=torch.where(batch.observed, batch.values, 7.0))
    assert torch.equal(loss_of(model, batch).total, loss_of(model, other).total)


@pytest.mark.parametrize("draws", [(1,), (1, 3)])
def test_hidden_values_are_scored_but_not_seen(draws: tuple[int, ...]) -> None:
    model, target = model_of(), random_batch()
    hidden = target.observed & (torch.rand(4, 9, 2, generator=seeded(5)) < 0.4)
    visible = replace(target, observed=target.observed & ~hidden)
    other = replace(target, values=torch.where(hidden, target.values + 3.0, target.values))
    found, moved = (loss_of(model, each, visible, draws=draws).parts for each in (target, other))
    assert torch.equal(found["kl"], moved["kl"])
    assert found["nll"] != moved["nll"]
    assert not torch.equal(found["kl"], loss_of(model, target, draws=draws).parts["kl"])
    assert torch.equal(found["kl"], loss_of(model, visible, draws=draws).parts["kl"])


def test_visible_values_weigh_what_they_are_told_to() -> None:
    """Nll = hidden + weight · visible: linear in the weight."""
    model, target = model_of(), random_batch()
    visible = replace(target, observed=target.observed & (torch.arange(9) < 5).view(-1, 1))
    nll = {w: loss_of(model, target, visible, visible_weight=w).parts["nll"] for w in (0.0, 0.3, 1.0)}
    torch.testing.assert_close(nll[0.3], nll[0.0] + 0.3 * (nll[1.0] - nll[0.0]))
    assert nll[0.0] < nll[1.0]


@pytest.mark.parametrize("observed", [True, False])
def test_encoder_sees_what_is_observed_where_it_should(observed: bool) -> None:
    batch = random_batch()
    zeros = replace(batch, values=torch.zeros_like(batch.values))
    fewer = replace(zeros, observed=batch.observed & (torch.arange(2) == 0))
    model = model_of(replace(PAPER, inputs=Values(observed=observed), encoder=Convolution(8, 18, (8,))))
    assert torch.equal(model.encode(zeros).posterior.mean, model.encode(fewer).posterior.mean) is not observed


@pytest.mark.parametrize("steps", [True, False])
def test_times_matter_to_the_prior_and_to_the_encoder_where_it_sees_them(steps: bool) -> None:
    regular, irregular = random_batch(grid=True), random_batch(grid=False)
    model = model_of(replace(PAPER, inputs=Values(steps=steps)))
    assert torch.equal(model.encode(regular).posterior.mean, model.encode(irregular).posterior.mean) is not steps
    first, second = (loss_of(model, batch).parts["kl"] for batch in (regular, irregular))
    assert not torch.isclose(first, second, rtol=1e-3)


@pytest.mark.parametrize("grid", [True, False])
def test_out_of_the_encoders_reach_the_posterior_is_the_prior(grid: bool) -> None:
    batch = random_batch(time=20, grid=grid)
    seen = (torch.arange(20) < 5).view(1, 20, 1) & (torch.arange(4) > 0).view(4, 1, 1)
    batch = replace(batch, observed=seen.expand(4, 20, 2))
    model = model_of(replace(PAPER, encoder=Convolution(8, 5, (8,))))
    chain, (std, corr) = model.encode(batch).posterior, model.prior.marginals(batch.times)
    blind = ~model.encoder.reaches(batch.observed.any(-1))
    assert blind[0].all()
    assert blind[1:, 7:].all()
    assert not blind[1:, :5].any()
    assert (chain.mean[blind] == 0).all()
    assert (chain.std[blind] == std).all()
    expected = (CORR_LIMIT * corr).expand(4, 19, 3)
    assert torch.equal(chain.corr[1:, 7:], expected[1:, 7:])
    assert not torch.isclose(chain.std[1:, :5], std).any()


KERNELS = [RBF(2.0), Matern((1.0, 3.0), nu=0.5), Cauchy(2.0) + 0.3 * Periodic(period=4.0), RBF(5.0) * Matern(2.0)]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_every_parameter_gets_a_gradient(kernel: Kernel) -> None:
    model = model_of(replace(PAPER, prior=Prior(kernel, learned=True)))
    loss_of(model, random_batch(grid=False)).total.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def test_kernel_parameters_are_learned_only_where_wanted() -> None:
    fixed, learned = (model_of(replace(PAPER, prior=Prior(learned=learned))) for learned in (False, True))
    assert not any(parameter.requires_grad for parameter in fixed.prior.parameters())
    assert {id(p) for p in learned.fast_parameters()} == {id(p) for p in learned.prior.parameters()}
    assert all(parameter.dtype == torch.float64 for parameter in learned.fast_parameters())


def test_posterior_starts_with_the_priors_correlations_and_small_deviations() -> None:
    model = model_of(replace(PAPER, encoder=Convolution(8, 18, (8,))))
    nn.init.zeros_(model.encoder.head.weight)
    chain = model.encode(random_batch()).posterior
    _, corr = model.prior.marginals(1.0)
    torch.testing.assert_close(chain.std, torch.full_like(chain.std, 0.101))
    torch.testing.assert_close(chain.corr, (CORR_LIMIT * corr).expand_as(chain.corr), rtol=1e-3, atol=0)


def test_first_deviation_is_a_setting() -> None:
    model = model_of(replace(PAPER, encoder=Convolution(8, 18, (8,)), first_std=0.6))
    nn.init.zeros_(model.encoder.head.weight)
    chain = model.encode(random_batch()).posterior
    torch.testing.assert_close(chain.std, torch.full_like(chain.std, 0.601))


def test_glorot_initialisation_of_every_layer() -> None:
    """Uniform within √(6 / (inputs + outputs)), no bias; and nothing but the weights differs."""
    inputs = Frames((1, 5, 4), filters=6)
    config = replace(PAPER, posterior="published", inputs=inputs, encoder=Convolution(64, 3, (64,)))
    model = model_of(replace(config, initialisation="glorot"), features=20)
    plain = model_of(config, features=20)
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in plain.named_parameters()]
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d)]
    assert len(layers) == 2 + 3 + 2
    for layer in layers:
        outputs, per_output = layer.weight.flatten(1).shape
        window = layer.weight[0, 0].numel() if layer.weight.ndim > 2 else 1
        limit = (6 / (per_output + outputs * window)) ** 0.5
        assert 0.9 * limit < layer.weight.abs().max() <= limit
        assert layer.bias is not None
        assert (layer.bias == 0).all()


def test_convolution_over_time_is_linear_without_its_relu() -> None:
    encoder = Convolution(8, 3, (), relu=False).build(2, 4)
    x, valid = torch.randn(2, 3, 9, 2, generator=seeded()), torch.ones(3, 9, dtype=torch.bool)
    middle = encoder(x.mean(0), 1.0, valid)
    torch.testing.assert_close(middle, (encoder(x[0], 1.0, valid) + encoder(x[1], 1.0, valid)) / 2)


def test_preprocessor_may_keep_all_channels_behind_a_relu() -> None:
    config = replace(PAPER, inputs=Frames((3, 4, 5), filters=6, channels=3, relu=True), likelihood=Bernoulli())
    model, batch = model_of(config, features=60), random_batch(features=60)
    batch = replace(batch, values=batch.values.abs().clamp(max=1))
    x = model.inputs(batch.values, batch).x
    assert x.shape == (4, 9, 60)
    assert (x >= 0).all()
    assert all((part > 0).any() for part in x.chunk(3, dim=-1))
    assert loss_of(model, batch).total.isfinite()


def test_a_plain_vae_sees_and_scores_missing_values_as_zeros() -> None:
    """A HI-VAE does neither; both take each step alone."""
    batch = random_batch()
    empty = replace(batch, values=torch.zeros_like(batch.values), observed=torch.zeros_like(batch.observed))
    full = replace(empty, observed=torch.ones_like(batch.observed))
    small = {"latent_dim": 3, "encoder": Convolution(8, 1, (8,)), "decoder_widths": (8,)}
    vae, hi_vae = (model_of(replace(config, **small)) for config in (VAE, HI_VAE))
    assert torch.equal(loss_of(vae, empty).total, loss_of(vae, full).total)
    assert loss_of(hi_vae, empty).parts["nll"] == 0
    assert (hi_vae.encode(empty).posterior.mean == 0).all()
    assert (vae.encode(empty).posterior.mean != 0).any()
    later = replace(batch, values=batch.values + (torch.arange(9) == 7).view(-1, 1) * batch.observed)
    moved = (hi_vae.encode(later).posterior.mean != hi_vae.encode(batch).posterior.mean).any(-1).any(0)
    assert moved.nonzero().flatten().tolist() == [7]


def test_plain_vae_does_not_score_missing_classes() -> None:
    model = model_of(replace(VAE, latent_dim=3), kinds=["real", "categorical"], levels=[0, 3])
    batch = random_batch()
    batch = replace(batch, values=batch.values.abs().round().clamp(max=2))
    weights = model._weights(batch, batch, 1.0)  # pyright: ignore[reportPrivateUsage]
    assert weights[..., 0].all()
    assert torch.equal(weights[..., 1], batch.observed[..., 1])


def binary_batch() -> Batch:
    batch = random_batch()
    return ragged(replace(batch, values=(batch.values > 0) * 1.0 * batch.observed), [9, 4, 1, 6])


def test_bound_scores_gaps_but_not_padding_where_values_are_missing_not_at_random() -> None:
    """The same draws, log p(x, missing | z) summed cell by cell over the steps that there are."""
    model, batch = model_of(replace(PAPER, likelihood=Bernoulli(missing_by_value=True))), binary_batch()
    assert isinstance(model.likelihood, SelectiveBernoulliLikelihood)
    model.likelihood.missing_logit.data.copy_(torch.tensor([-1.0, 2.0]))
    chain, noise = model.encode(batch).posterior, torch.randn(1, 4, 9, 3, generator=seeded())
    one = decoder_of(model)(chain.mean + chain.std * noise).sigmoid()
    lost = torch.tensor([-1.0, 2.0]).sigmoid()
    seen = torch.where(batch.values > 0, one * (1 - lost[1]), (1 - one) * (1 - lost[0]))
    log_prob = torch.where(batch.observed, seen, one * lost[1] + (1 - one) * lost[0]).log()
    loss = loss_of(model, batch, noise=noise)
    torch.testing.assert_close(loss.parts["nll"], -(log_prob * batch.valid.unsqueeze(-1)).sum() / 20)
    loss.total.backward()
    assert model.likelihood.missing_logit.grad is not None
    assert any(p is model.likelihood.missing_logit for p in model.fast_parameters())


def test_frames_are_preprocessed_one_by_one() -> None:
    config = replace(PAPER, inputs=Frames((3, 4, 5), filters=6, observed=True), likelihood=Bernoulli())
    model, batch = model_of(config, features=60), random_batch(features=60)
    batch = replace(batch, values=batch.values.abs().clamp(max=1))
    x = model.inputs(batch.values, batch).x
    assert x.shape == (4, 9, 20)
    changed = replace(batch, values=batch.values + (torch.arange(36).view(4, 9, 1) == 12))
    assert (model.inputs(changed.values, changed).x != x).any(-1).nonzero().tolist() == [[1, 3]]
    assert loss_of(model, batch).total.isfinite()


@pytest.mark.parametrize(
    "config",
    [
        PAPER,
        replace(PAPER, inputs=Values(observed=True, steps=True)),
        replace(PAPER, likelihood=Bernoulli(), inputs=Frames((1, 2, 20), filters=3), objective=Objective()),
    ],
)
def test_widest_is_no_less_than_what_any_layer_computes(config: ModelConfig) -> None:
    model, computed = model_of(config, features=40), []
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda _, __, out: computed.append(out.shape[-1]))
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda _, __, out: computed.append(out[0].numel()))
    batch = random_batch(features=40)
    encoded = model.encode(replace(batch, values=batch.values.abs().clamp(max=1)))
    model.decode(encoded.posterior.mean, encoded.context)
    assert model.widest >= max(computed)
