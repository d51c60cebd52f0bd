"""A GP for each feature: against dense algebra and GPyTorch's exact GP; gradients, draws, ragged batches, windows."""

from collections.abc import Iterator
from dataclasses import replace

import gpytorch
import numpy as np
import pytest
import torch
from scipy import stats
from torch import Generator, Tensor
from torch.autograd import gradcheck
from torch.distributions import MultivariateNormal

from gpvae import Recipe
from gpvae.data.batches import Batch, Batches, BatchIndex, RowTensors, Window, prediction_windows
from gpvae.data.panel import Panel
from gpvae.data.schema import Schema
from gpvae.gp.kernels import RBF, Cauchy, Kernel, LatentKernel, Matern, Periodic, RationalQuadratic
from gpvae.imputers.gp import GP, ChannelGP, ChannelGPMethod, _NegativeLogDensity
from gpvae.imputers.point import BatchLoss
from gpvae.training.config import TrainingConfig
from gpvae.training.devices import make_fabric
from gpvae.training.loop import train
from gpvae.training.seeds import epoch_generator

KERNELS: list[Kernel] = [
    Cauchy(3.0),
    RBF((1.5, 4.0)),
    RationalQuadratic(2.0, alpha=0.7),
    Matern(2.0, nu=0.5),
    Cauchy(3.0) + 0.5 * Periodic(period=(5.0, 9.0)),
    RBF(4.0) * Matern(2.0),
]
CPU = torch.device("cpu")


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def eye(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


def random_batch(series: int = 4, time: int = 9, features: int = 3, *, grid: bool = True, share: float = 0.6) -> Batch:
    values = torch.randn(series, time, features, generator=seeded(1), dtype=torch.float64)
    observed = torch.rand(series, time, features, generator=seeded(2)) < share
    steps = 0.2 + torch.rand(series, time, generator=seeded(3), dtype=torch.float64)
    return Batch(values * observed, observed, 0.7 if grid else steps.cumsum(-1), torch.full((series,), time))


def gp_of(kernel: Kernel = Cauchy(3.0), features: int = 3) -> ChannelGP:
    """Every parameter somewhere of its own."""
    gp, generator = ChannelGP(features, kernel).double(), seeded(4)
    with torch.no_grad():
        for parameter in gp.parameters():
            parameter += 0.4 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return gp


def method_of(gp: ChannelGP) -> ChannelGPMethod:
    features = len(gp.constant)
    data = np.arange(2.0 * features).reshape(2, features)
    return ChannelGPMethod(gp, Schema.of(Panel.of(data), standardise=True), Recipe(learning_rate=0.001))


def times_of(batch: Batch) -> Tensor:
    series, time, _ = batch.values.shape
    return (
        batch.times
        if isinstance(batch.times, Tensor)
        else batch.times * torch.arange(time).double().expand(series, time)
    )


def dense_signal(gp: ChannelGP, batch: Batch) -> Tensor:
    """K, straight from GPyTorch's own n × n evaluation. (batch, feature, time, time)"""
    return torch.stack([gp.kernel.kernel(each.double().unsqueeze(-1)).to_dense() for each in times_of(batch)])


def dense_nll(gp: ChannelGP, batch: Batch) -> Tensor:
    """Each series and feature by itself, over its observed cells alone."""
    signal, total = dense_signal(gp, batch), torch.zeros((), dtype=torch.float64)
    for i, j in np.ndindex(*signal.shape[:2]):
        seen = batch.observed[i, :, j]
        covariance = signal[i, j][seen][:, seen] + gp.likelihood.noise[j] ** 2 * eye(int(seen.sum()))
        law = MultivariateNormal(gp.constant[j].expand(int(seen.sum())), covariance)
        total = total - law.log_prob(batch.values[i, seen, j])
    return total / batch.steps


def dense_conditional(gp: ChannelGP, batch: Batch, i: int, j: int) -> tuple[Tensor, Tensor]:
    """Mean and covariance of f at every step of one series and feature."""
    signal, seen = dense_signal(gp, batch).detach()[i, j], batch.observed[i, :, j]
    noise = gp.likelihood.noise[j].detach() ** 2 * eye(int(seen.sum()))
    gain = signal[:, seen] @ torch.linalg.inv(signal[seen][:, seen] + noise)
    constant = gp.constant[j].detach()
    return constant + gain @ (batch.values[i, seen, j] - constant), signal - gain @ signal[seen]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("grid", [True, False])
def test_loss_and_gradients_equal_the_dense_ones(kernel: Kernel, grid: bool) -> None:
    gp, batch = gp_of(kernel), random_batch(grid=grid)
    parameters = dict(gp.named_parameters())
    loss, dense = gp.loss(batch, seeded()), dense_nll(gp, batch)
    torch.testing.assert_close(loss.total, dense, rtol=1e-10, atol=1e-10)
    assert loss.parts.keys() == {"nll"}
    found = torch.autograd.grad(loss.total, list(parameters.values()))
    exact = torch.autograd.grad(dense, list(parameters.values()))
    for name, ours, theirs in zip(parameters, found, exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-9, msg=name)
        assert (ours != 0).all(), name


@pytest.mark.parametrize("matrices", [1, 3], ids=["shared", "of each series"])
def test_gradient_of_the_density(matrices: int) -> None:
    root = torch.randn(2, matrices, 5, 5, generator=seeded(), dtype=torch.float64, requires_grad=True)
    y = torch.randn(2, 3, 5, generator=seeded(1), dtype=torch.float64)
    observed = torch.rand(2, 3, 5, generator=seeded(2)) < 0.6
    observed[0, 0] = False

    def density(root: Tensor, y: Tensor) -> Tensor:
        covariance = root @ root.mT + eye(5)
        total = _NegativeLogDensity.apply(covariance, y * observed, observed)
        assert isinstance(total, Tensor)
        return total

    assert gradcheck(density, (root, y.requires_grad_()))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("grid", [True, False])
def test_posterior_equals_the_dense_one(kernel: Kernel, grid: bool) -> None:
    gp, batch = gp_of(kernel), random_batch(grid=grid)
    means, variances = gp.posterior(batch)
    assert means.shape == variances.shape == batch.values.shape
    for i, j in np.ndindex(4, 3):
        mean, covariance = dense_conditional(gp, batch, i, j)
        torch.testing.assert_close(means[i, :, j], mean, rtol=1e-9, atol=1e-9)
        noisy = covariance.diagonal() + gp.likelihood.noise[j].detach() ** 2
        torch.testing.assert_close(variances[i, :, j], noisy, rtol=1e-9, atol=1e-9)


class Exact(gpytorch.models.ExactGP):
    """One series of one feature, as GPyTorch itself would do it."""

    def __init__(self, gp: ChannelGP, times: Tensor, values: Tensor, length_scale: float, variance: float):
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = gp.likelihood.noise.detach() ** 2
        super().__init__(times, values, likelihood)
        self.noise = likelihood
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.double()
        self.mean_module.initialize(constant=gp.constant.detach())
        self.covar_module.initialize(outputscale=variance)
        self.covar_module.base_kernel.initialize(lengthscale=length_scale)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        mean, covariance = self.mean_module(x), self.covar_module(x)
        assert isinstance(mean, Tensor)
        assert not isinstance(covariance, Tensor)
        return gpytorch.distributions.MultivariateNormal(mean, covariance)


def test_gpytorch_agrees() -> None:
    batch = random_batch(series=1, time=15, features=1, grid=False)
    gp = ChannelGP(1, 0.7 * RBF(1.3)).double()
    with torch.no_grad():
        gp.constant.fill_(0.3)
    seen = batch.observed[0, :, 0]
    twin = Exact(gp, times_of(batch)[0, seen], batch.values[0, seen, 0], 1.3, 0.7)
    assert twin.train_inputs is not None
    with torch.no_grad():
        marginal = gpytorch.mlls.ExactMarginalLogLikelihood(twin.noise, twin)
        nll = -torch.as_tensor(marginal(twin(*twin.train_inputs), twin.train_targets)) * seen.sum() / 15
    torch.testing.assert_close(gp.loss(batch).total.detach(), nll, rtol=1e-6, atol=1e-6)
    twin.eval()
    with torch.no_grad():
        noisy = twin.noise(twin(times_of(batch)[0]))
    mean, variance = gp.posterior(batch)
    torch.testing.assert_close(mean[0, :, 0], noisy.mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(variance[0, :, 0], noisy.variance, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grid", [True, False])
def test_draws_have_the_posteriors_mean_and_covariance(grid: bool) -> None:
    gp, batch, draws = gp_of(features=2), random_batch(2, 6, 2, grid=grid, share=0.5), 50_000
    x = gp.sample(batch, draws, seeded())
    assert x.shape == (draws, 2, 6, 2)
    assert not torch.equal(x[0], x[1])
    assert (x == batch.values)[:, batch.observed].all()
    for i, j in np.ndindex(2, 2):
        missing = ~batch.observed[i, :, j]
        mean, covariance = dense_conditional(gp, batch, i, j)
        exact = (covariance + gp.likelihood.noise[j].detach() ** 2 * eye(6))[missing][:, missing]
        variance, centred = exact.diagonal(), x[:, i, missing, j] - mean[missing]
        # Monte-Carlo errors: σ/√n of a mean, and √(Σ_ii Σ_jj + Σ_ij²)/√n of a covariance; five of them are far.
        assert (centred.mean(0).abs() < 5 * (variance / draws).sqrt()).all()
        error = ((variance.unsqueeze(-1) * variance + exact**2) / draws).sqrt()
        assert ((centred.mT @ centred / draws - exact).abs() < 5 * error).all()


def test_filled_draws_are_stratified_and_still_joint() -> None:
    """One in each n-th of the cell's Gaussian. Neighbours in a long gap of a smooth series rise and fall together."""
    x = np.sin(np.arange(200) / 9)[:, None]
    x[100:150] = np.nan
    filled = GP(epochs=3, recipe=Recipe(validation=0.0), device="cpu").fit(x).impute(x, samples=100)
    gaps = np.isnan(x)
    place = stats.norm.cdf((filled.samples[:, gaps] - filled.mean[gaps]) / filled.std[gaps])  # (sample, cell)
    within = 100 * np.sort(place, axis=0) - np.arange(100)[:, None]
    assert ((within > -1e-3) & (within < 1 + 1e-3)).all()  # but for rounding
    correlation = np.corrcoef(place[:, 20:30].T)
    assert correlation[0, 1] > 0.5
    assert correlation[0, 1] > correlation[0, 9]


def test_draws_of_a_gap_correlate_like_the_posterior_at_every_lag() -> None:
    """The exact covariance of measurements in the gap given all others; within four Monte-Carlo errors."""
    x, draws = (np.sin(np.arange(60) / 5) + np.random.default_rng(0).normal(size=60) / 9)[:, None], 4000
    x[25:35] = np.nan
    fitted = GP(epochs=3, recipe=Recipe(validation=0.0), device="cpu").fit(x)
    drawn = fitted.impute(x, samples=draws).samples[:, 25:35, 0]
    panel, network = Panel.of(x), fitted.method_.network.double()
    rows = fitted.schema_.rows(panel, panel.observed, CPU)
    batch = rows.batch(BatchIndex.of([Window(0, 60)], CPU))
    batch = replace(batch, values=batch.values.double())
    noise = network.likelihood.noise[0].detach() ** 2 * eye(10)
    covariance = (dense_conditional(network, batch, 0, 0)[1][25:35, 25:35] + noise).numpy()
    deviation = np.sqrt(covariance.diagonal())
    expected = covariance / np.outer(deviation, deviation)
    assert expected[0, 1] > 0.4
    assert np.abs(np.corrcoef(drawn.T) - expected).max() < 4 / np.sqrt(draws)
    np.testing.assert_allclose(drawn.std(axis=0), fitted.schema_.scaling.scale[0] * deviation, rtol=0.01)


def test_draws_of_different_series_and_features_are_independent() -> None:
    gp, batch = gp_of(features=2), random_batch(2, 6, 2)
    unseen = replace(batch, observed=torch.zeros_like(batch.observed))
    x = gp.sample(unseen, 20_000, seeded())[:, :, 0].flatten(1)  # (draw, batch · feature)
    assert (torch.corrcoef(x.mT) - eye(4)).abs().max() < 0.04
    assert torch.equal(gp.sample(batch, 3, seeded()), gp.sample(batch, 3, seeded()))


@pytest.mark.parametrize("grid", [True, False])
def test_padding_changes_nothing(grid: bool) -> None:
    """Series of different length in one batch, one of none at all: as each would be alone."""
    gp, whole = gp_of(), random_batch(grid=grid)
    lengths = torch.tensor([9, 4, 0, 1])
    inside = (torch.arange(9) < lengths.unsqueeze(-1)).unsqueeze(-1)
    padded = Batch(whole.values * inside, whole.observed & inside, whole.times, lengths)
    mean, variance = gp.posterior(padded)
    total = torch.zeros((), dtype=torch.float64)
    for i, n in enumerate(lengths.tolist()):
        if n == 0:
            continue
        times = whole.times[i : i + 1, :n] if isinstance(whole.times, Tensor) else whole.times
        alone = Batch(whole.values[i : i + 1, :n], whole.observed[i : i + 1, :n], times, lengths[i : i + 1])
        own_mean, own_variance = gp.posterior(alone)
        torch.testing.assert_close(mean[i, :n], own_mean[0])
        torch.testing.assert_close(variance[i, :n], own_variance[0])
        total = total + n * gp.loss(alone).total
    loss = gp.loss(padded)
    torch.testing.assert_close(loss.total, total / 14)
    loss.total.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in gp.parameters())
    assert mean.isfinite().all()
    assert gp.sample(padded, 2, seeded()).isfinite().all()


def test_values_of_missing_cells_do_not_matter() -> None:
    gp, batch = gp_of(), random_batch()
    other = replace(batch, values=torch.where(batch.observed, batch.values, 7.0))
    assert torch.equal(gp.loss(batch).total, gp.loss(other).total)
    assert torch.equal(gp.posterior(batch)[0], gp.posterior(other)[0])
    assert torch.equal(gp.sample(batch, 2, seeded()), gp.sample(other, 2, seeded()))


def test_loss_is_divided_by_the_mean_steps_of_an_epoch() -> None:
    gp, batch = gp_of(), random_batch()
    usual = replace(batch, mean_steps=torch.tensor(72.0))
    torch.testing.assert_close(2 * gp.loss(usual).total, gp.loss(batch).total)


@pytest.mark.parametrize("grid", [True, False])
def test_without_observations_the_posterior_is_the_prior(grid: bool) -> None:
    gp, batch = gp_of(), random_batch(grid=grid)
    observed = batch.observed.clone()
    observed[1, :, 2] = False
    observed[2] = False
    mean, variance = gp.posterior(replace(batch, observed=observed))
    prior = gp.kernel(torch.zeros(1, dtype=torch.float64)).squeeze(-1) + gp.likelihood.noise**2
    for i, j in [(1, 2), (2, 0), (2, 1), (2, 2)]:
        assert (mean[i, :, j] == gp.constant[j]).all()
        torch.testing.assert_close(variance[i, :, j], prior[j].detach().expand(9))
    assert gp.loss(replace(batch, observed=torch.zeros_like(observed))).total == 0


def test_smooth_kernels_with_little_noise_stay_exact() -> None:
    """48 steps of a kernel that reaches over all of them, the noise at its floor, in single precision outside."""
    gp, batch = ChannelGP(1, RBF(30.0)), random_batch(3, 48, 1, share=1.0)
    gp.likelihood.raw.detach().fill_(-30)
    single = replace(batch, values=(torch.arange(48.0) / 15).sin().expand(3, 48).unsqueeze(-1))
    mean, variance = gp.posterior(single)
    assert mean.dtype == variance.dtype == gp.loss(single).total.dtype == torch.float32
    torch.testing.assert_close(mean, single.values, rtol=0, atol=0.02)
    assert (variance >= gp.likelihood.noise**2).all()
    loss, exact = gp.loss(single).total, dense_nll(gp.double(), replace(single, values=single.values.double()))
    torch.testing.assert_close(loss.double(), exact, rtol=1e-6, atol=0)


def test_density_of_an_indefinite_matrix_is_nan() -> None:
    broken = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64).expand(1, 1, 2, 2)
    y, observed = torch.zeros(1, 1, 2, dtype=torch.float64), torch.ones(1, 1, 2, dtype=torch.bool)
    assert torch.as_tensor(_NegativeLogDensity.apply(broken, y, observed)).isnan()


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_every_dimension_starts_as_its_group_with_parameters_of_its_own(kernel: Kernel) -> None:
    lags = torch.arange(6, dtype=torch.float64)
    shared, own = LatentKernel(kernel, 5), LatentKernel(kernel, 5, learned=True, own=True)
    torch.testing.assert_close(own(lags), shared.to_latents(shared(lags).mT).expand(6, 5).mT)
    assert own.groups == 5
    assert all(parameter.shape[0] == 5 for parameter in own.parameters())
    assert kernel.spread(5).spread(5) == kernel.spread(5)


def test_more_length_scales_than_features_are_refused() -> None:
    with pytest.raises(ValueError, match="3 length scales need at least"):
        ChannelGP(2, Cauchy((1.0, 2.0, 3.0)))


def test_hyperparameters_are_recovered() -> None:
    """Two features with different length scales, deviations and means, two thirds of their cells missing."""
    scales, deviations = torch.tensor([2.0, 8.0]).double(), torch.tensor([0.3, 0.7]).double()
    rng, lags = np.random.default_rng(0), torch.arange(24.0) - torch.arange(24.0).unsqueeze(-1)
    signal = torch.exp(-0.5 * (lags / scales[:, None, None]) ** 2) + 1e-9 * torch.eye(24)
    factor = torch.linalg.cholesky(signal).numpy()
    series = np.einsum("fts,nsf->ntf", factor, rng.normal(size=(300, 24, 2)))
    series += [0.5, -1.0] + deviations.numpy() * rng.normal(size=series.shape)
    panel = Panel.from_array(np.where(rng.random(series.shape) < 0.67, np.nan, series))
    gp, rows = ChannelGP(2, RBF(4.0)), RowTensors.of(panel, panel.values, panel.observed, 1.0, CPU)
    batches = Batches(panel, 24, 100)

    def epoch(number: int) -> Iterator[BatchIndex]:
        return batches.epoch(epoch_generator(0, number), CPU)

    run = train(
        BatchLoss(gp, rows),
        epoch,
        TrainingConfig(epochs=60),
        fabric=make_fabric("cpu", "32-true"),
        param_groups=method_of(gp).parameter_groups(),
    )
    found = gp.kernel.kernel
    assert isinstance(found, gpytorch.kernels.ScaleKernel)
    assert run.history[-1]["nll"] < run.history[0]["nll"]
    torch.testing.assert_close(
        torch.as_tensor(found.base_kernel.lengthscale).flatten().detach(), scales, rtol=0.2, atol=0
    )
    torch.testing.assert_close(torch.as_tensor(found.outputscale).detach(), torch.ones(2).double(), rtol=0.2, atol=0)
    torch.testing.assert_close(gp.likelihood.noise.double().detach(), deviations, rtol=0.2, atol=0)
    torch.testing.assert_close(gp.constant.detach(), torch.tensor([0.5, -1.0]), rtol=0, atol=0.15)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 40, 41])
@pytest.mark.parametrize("window", [1, 7, 8])
def test_windows_keep_every_step_once_with_steps_around_them(length: int, window: int) -> None:
    kept: list[int] = []
    pieces = prediction_windows(Window(100, length), window)
    assert len({piece.length for piece, _ in pieces}) == 1
    for piece, keep in pieces:
        assert piece.start >= 100
        assert piece.start + piece.length <= 100 + length
        steps = range(piece.start, piece.start + piece.length)[keep]
        assert 0 < len(steps) <= window
        assert piece.start <= max(100, steps[0] - window // 2)
        assert piece.start + piece.length >= min(100 + length, steps[-1] + 1 + window // 2)
        kept += steps
    assert kept == list(range(100, 100 + length))


def test_long_series_in_windows_are_close_to_the_whole() -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random((90, 2)) < 0.5, np.nan, rng.normal(size=(90, 2)))
    panel = Panel.from_array(values)
    rows = RowTensors.of(panel, panel.values, panel.observed, 1.0, CPU)
    gp = gp_of(Matern(1.5), 2)
    (exact_mean,), (exact_variance,) = gp.posterior(rows.batch(BatchIndex.of([Window(0, 90)], CPU)))
    pieces = prediction_windows(Window(0, 90), 20)
    means, variances = gp.posterior(rows.batch(BatchIndex.of([piece for piece, _ in pieces], CPU)))
    keeps = [keep for _, keep in pieces]
    mean = torch.cat([each[keep] for each, keep in zip(means, keeps, strict=True)])
    variance = torch.cat([each[keep] for each, keep in zip(variances, keeps, strict=True)])
    torch.testing.assert_close(mean, exact_mean, rtol=0, atol=5e-3)
    torch.testing.assert_close(variance, exact_variance, rtol=0, atol=5e-3)
    alone, _ = gp.posterior(rows.batch(BatchIndex.of([Window(first, 10) for first in range(0, 90, 10)], CPU)))
    assert (alone.flatten(0, 1) - exact_mean).abs().max() > 0.05  # without context


def test_everything_learns_at_one_rate() -> None:
    gp = ChannelGP(3)
    (group,) = method_of(gp).parameter_groups()
    assert group["lr"] == pytest.approx(0.05)
    assert len(group["params"]) == len(list(gp.parameters()))
