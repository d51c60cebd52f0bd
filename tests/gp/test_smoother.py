"""Posteriors, joint draws and the likelihood of long series, cut into lanes, against dense Gaussian algebra."""

from functools import partial
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from dense_twin import (
    CLOCKS,
    KINDS,
    Case,
    random_case,
    random_rows,
    random_space,
    state_covariance,
    with_shared_delta,
)
from torch import Tensor

from gpvae.gp import smoother
from gpvae.gp.smoother import Lanes, Posterior, best_chunks, exact_log_likelihood
from gpvae.gp.state_space import Kind, Rows, StateSpace, filter_rows, log_likelihood, stationary

assert_close = partial(torch.testing.assert_close, rtol=1e-8, atol=1e-8)
TIME = 13
CHUNKS = [1, 2, 3, 5, 13, 20]  # most do not divide 13, and 20 is more than there are rows
every_kind = pytest.mark.parametrize("name", KINDS)
every_cut = pytest.mark.parametrize("chunks", CHUNKS)


def one_replicate(name: str, **sizes: int) -> Case:
    return random_case(name, time=sizes.pop("time", TIME), replicates=1, **sizes)


def dense(case: Case, outputs: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and variance of the outputs given all rows. (time, lane, output)"""
    outputs = case.space.loadings if outputs is None else outputs
    mean, covariance = case.moments()
    return (outputs @ mean).squeeze(-1), (outputs @ covariance @ outputs.T).diagonal(dim1=-2, dim2=-1)


def dense_causal(case: Case) -> tuple[Tensor, Tensor]:
    """The same given each row and those before it."""
    rows = [[x[t] for x in dense(case.until(t + 1))] for t in range(len(case.rows.values))]
    mean, variance = (torch.stack(x) for x in zip(*rows, strict=True))
    return mean, variance


def assert_equal(posterior: Posterior, expected: tuple[Tensor, Tensor], tolerance: float = 1e-8) -> None:
    for found, wanted in zip(posterior, expected, strict=False):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


@every_kind
@every_cut
def test_posterior(name: str, chunks: int) -> None:
    case = one_replicate(name)
    assert_equal(Lanes(*case, chunks=chunks).whole(), dense(case))


@every_kind
@every_cut
def test_causal_posterior(name: str, chunks: int) -> None:
    case = one_replicate(name)
    assert_equal(Lanes(*case, chunks=chunks).whole(causal=True), dense_causal(case))


@every_cut
def test_posterior_of_other_outputs(chunks: int) -> None:
    """Of the states themselves, and of sums of them."""
    case = one_replicate("mixed")
    outputs = torch.cat([torch.eye(7), torch.ones(1, 7)]).double()
    assert_equal(Lanes(*case, chunks=chunks).whole(outputs), dense(case, outputs))


@pytest.mark.parametrize("clock", CLOCKS)
@every_cut
def test_posterior_where_rows_or_series_share_their_times(clock: str, chunks: int) -> None:
    case = with_shared_delta(one_replicate("mixed"), clock)
    assert_equal(Lanes(*case, chunks=chunks).whole(), dense(case))


@pytest.mark.parametrize("series", [1, 3])
@pytest.mark.parametrize("numbers", [1, 4000, 10_000])
@every_cut
def test_groups_of_lanes_change_nothing(
    numbers: int, series: int, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smoother, "NUMBERS", numbers)
    case = one_replicate("mixed", lanes=series)
    lanes = Lanes(*case, chunks=chunks)
    assert numbers > 1 or len(lanes.groups) == lanes.chunks * series
    assert_equal(lanes.whole(), dense(case))
    assert_equal(lanes.whole(causal=True), dense_causal(case))


@every_cut
def test_lanes_begin_with_what_is_known_from_earlier_rows(chunks: int) -> None:
    case = one_replicate("mixed")
    lanes = Lanes(*case, chunks=chunks)
    length = -(-TIME // lanes.chunks)
    for chunk in range(lanes.chunks):
        mean, covariance = (x[chunk * length] for x in case.until(chunk * length).moments())
        of_chunk = slice(2 * chunk, 2 * chunk + 2)
        assert_close(lanes.start.mean[of_chunk], mean)
        assert_close(lanes.start.covariance[of_chunk], covariance)


@every_kind
def test_exact_log_likelihood(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = one_replicate(name)
    expected = case.log_density().squeeze(-1)
    torch.testing.assert_close(exact_log_likelihood(*case), expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(log_likelihood(*case), expected.sum(), rtol=1e-11, atol=1e-11)
    monkeypatch.setattr(smoother, "NUMBERS", 1)
    torch.testing.assert_close(exact_log_likelihood(*case), expected, rtol=1e-11, atol=1e-11)


@every_cut
def test_forecasts(chunks: int) -> None:
    """Rows after the last value, which the filter knows as well as the smoother."""
    case = one_replicate("mixed").until(8)
    found = Lanes(*case, chunks=chunks).whole()
    assert_equal(found, dense(case))
    causal = Lanes(*case, chunks=chunks).whole(causal=True)
    assert_close(found.mean[8:], causal.mean[8:])


def test_series_without_a_value() -> None:
    case = one_replicate("mixed").until(0)
    found = Lanes(*case, samples=2).whole()
    variance = case.space.loadings.square().sum(-1).expand_as(found.variance)
    assert_equal(found, (torch.zeros_like(variance), variance))


def test_a_series_of_one_row() -> None:
    case = one_replicate("mixed", time=2)
    first = case._replace(rows=Rows(*(x[:1] for x in case.rows)))
    assert_equal(Lanes(*first).whole(), dense(first))
    assert_close(exact_log_likelihood(*first), first.log_density().squeeze(-1))


@pytest.mark.parametrize("length", [0.3, 3.0, 3e5])
@pytest.mark.parametrize("noise", [1e-6, 0.1])
@every_cut
def test_extremes(length: float, noise: float, chunks: int) -> None:
    """Columns that are related exactly, one of nothing but noise, and processes that are fast, or constant."""
    space = random_space(KINDS["mixed"])
    loadings = space.loadings.clone()
    loadings[1], loadings[2] = 2 * loadings[0], 0
    settings = (torch.full_like(space.length, length), space.frequency, loadings, torch.full_like(space.noise, noise))
    case = Case(StateSpace(space.kinds, *settings), random_rows(replicates=1)).typical()
    assert_equal(Lanes(*case, chunks=chunks).whole(), dense(case), 1e-6)
    assert_equal(Lanes(*case, chunks=chunks).whole(causal=True), dense_causal(case), 1e-6)


def test_a_long_series_cut_into_lanes_equals_the_whole() -> None:
    space, rows = random_space(KINDS["mixed"]), random_rows(time=500, lanes=1, replicates=1)
    space = StateSpace(space.kinds, space.length * 1e4, space.frequency, space.loadings, space.noise * 1e-3)
    whole, cut = (Lanes(space, rows, chunks=chunks).whole() for chunks in (1, None))
    assert_equal(cut, (whole.mean, whole.variance), 1e-7)
    parts = filter_rows(space, rows, stationary(space, 1))
    total = log_likelihood(space, rows, next(parts).before)
    torch.testing.assert_close(exact_log_likelihood(space, rows).sum(), total, rtol=1e-9, atol=0)


class SumOfKernels(gpytorch.models.ExactGP):
    """The first column of the first lane, by GPyTorch."""

    def __init__(self, case: Case):
        self.seen, self.times, space = case.rows.observed[:, 0, 0], case.times(0), case.space
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = space.noise[:1]
        super().__init__(self.times[self.seen], case.rows.values[self.seen, 0, 0, 0], likelihood)
        squares = space.loadings[0].square()
        scales = torch.zeros_like(space.length).index_add(0, space.process, squares)
        parts = zip(space.kinds, space.length, space.frequency, scales, strict=True)
        self.kernels = gpytorch.kernels.AdditiveKernel(*(_kernel(*part) for part in parts))

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(x.new_zeros(x.shape[:-1]), self.kernels(x))  # pyright: ignore


def _kernel(kind: Kind, length: Tensor, frequency: Tensor, scale: Tensor) -> gpytorch.kernels.Kernel:
    kernel = gpytorch.kernels.MaternKernel(nu=1.5 if kind == "matern" else 0.5).double()
    kernel.lengthscale = length
    if kind == "oscillator":
        wave = gpytorch.kernels.CosineKernel().double()
        wave.period_length = torch.pi / frequency
        kernel = kernel * wave
    scaled = gpytorch.kernels.ScaleKernel(kernel).double()
    scaled.outputscale = scale
    return scaled


def one_column(case: Case) -> Case:
    """A single series, and only the functions themselves of Matérns."""
    space, rows = case.space, case.rows
    loadings = space.loadings[:1].clone()
    loadings[:, [2, 4]] = 0  # the derivatives
    space = StateSpace(space.kinds, space.length, space.frequency, loadings, space.noise[:1])
    return Case(space, Rows(rows.values[..., :1, :], rows.observed[..., :1], rows.delta))


def test_gpytorch_agrees() -> None:
    case = one_column(one_replicate("mixed", lanes=1))
    model = SumOfKernels(case)
    likelihood: Any = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    total = likelihood(model(model.times[model.seen]), model.train_targets) * model.seen.sum()
    assert_close(exact_log_likelihood(*case)[0], total)
    with torch.no_grad():
        expected: Any = model.eval()(model.times)
    found = Lanes(*case, chunks=3).whole()
    assert_close(found.mean[:, 0, 0], expected.mean)
    assert_close(found.variance[:, 0, 0], expected.variance)


@every_kind
def test_statsmodels_agrees(name: str) -> None:
    kalman = pytest.importorskip("statsmodels.tsa.statespace.kalman_smoother")
    case = one_replicate(name, lanes=1)
    transition = state_covariance(case.space, case.rows.delta[:, 0])
    states = transition.shape[-1]
    model = kalman.KalmanSmoother(k_endog=3, k_states=states, k_posdef=states)
    values, observed = case.data(0)
    model.bind(np.where(observed, values[..., 0], np.nan))
    model["design"], model["obs_cov"], model["selection"] = case.space.loadings, case.space.noise.diag(), np.eye(states)
    model["transition"] = transition.movedim(0, -1).numpy()
    model["state_cov"] = (torch.eye(states) - transition @ transition.mT).movedim(0, -1).numpy()
    model.initialize_known(np.zeros(states), np.eye(states))
    smoothed = model.smooth()
    found = Lanes(*case, chunks=3).whole(torch.eye(states, dtype=torch.float64))
    variance = np.einsum("iit->ti", smoothed.smoothed_state_cov)
    expected = torch.tensor(smoothed.smoothed_state.T), torch.tensor(variance)
    assert_equal(found, tuple(x.unsqueeze(1) for x in expected))  # pyright: ignore
    assert exact_log_likelihood(*case).item() == pytest.approx(smoothed.llf, rel=1e-10)


def conditional(case: Case, lane: int, missing: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the missing cells of a series, noise included, given the others."""
    twin = case.twin(lane)
    mean, covariance = twin.given(*case.data(lane))
    cells = twin.loadings @ covariance @ twin.loadings.T + twin.noise.diag()
    return (twin.loadings @ mean)[missing, 0], cells[missing][:, missing]


def assert_drawn_from(draws: Tensor, mean: Tensor, covariance: Tensor) -> None:
    """Five Monte-Carlo errors are far: σ/√n of a mean, √((Σ_ii Σ_jj + Σ_ij²)/n) of a covariance. (cell, sample)"""
    count, variance = draws.shape[-1], covariance.diagonal()
    assert ((draws.mean(-1) - mean).abs() < 5 * (variance / count).sqrt()).all()
    centred = draws - mean.unsqueeze(-1)
    error = ((torch.outer(variance, variance) + covariance.square()) / count).sqrt()
    assert ((centred @ centred.T / count - covariance).abs() < 5 * error).all()


@every_kind
@pytest.mark.parametrize(("chunks", "numbers"), [(1, 2**26), (3, 2**26), (3, 1), (8, 2**23)])
def test_draws_have_the_covariance_of_the_missing_cells(
    name: str, chunks: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Across time and columns; in lanes, and in lanes of several groups."""
    monkeypatch.setattr(smoother, "NUMBERS", numbers)
    case = one_replicate(name, time=8)
    draws = Lanes(*case, samples=20_000, seeds=range(1, 1 + case.lanes), chunks=chunks).whole().draws
    for lane in range(case.lanes):
        missing = ~case.rows.observed[:, lane].flatten()
        assert_drawn_from(draws[:, lane].flatten(0, 1)[missing], *conditional(case, lane, missing))


@pytest.mark.parametrize("clock", CLOCKS)
def test_draws_where_rows_or_series_share_their_times(clock: str) -> None:
    case = with_shared_delta(one_replicate("mixed", time=8), clock)
    draws = Lanes(*case, samples=20_000, chunks=3).whole().draws
    for lane in range(case.lanes):
        missing = ~case.rows.observed[:, lane].flatten()
        assert_drawn_from(draws[:, lane].flatten(0, 1)[missing], *conditional(case, lane, missing))


@pytest.mark.parametrize("chunks", [1, 3])
def test_causal_draws_have_the_covariance_of_each_row(chunks: int) -> None:
    case = one_replicate("mixed", time=8)
    draws = Lanes(*case, samples=20_000, chunks=chunks).whole(causal=True).draws
    for t in (2, 5, 7):
        missing = torch.zeros(8, 3, dtype=torch.bool)
        missing[t] = ~case.rows.observed[t, 1]
        missing = missing.flatten()
        expected = conditional(case.until(t + 1), 1, missing)
        assert_drawn_from(draws[:, 1].flatten(0, 1)[missing], *expected)


def seeds_of(seed: int, case: Case) -> range:
    return range(10 * seed, 10 * seed + case.lanes)


def assert_independent(first: Tensor, second: Tensor) -> None:
    """(cell, sample); a correlation of independent numbers has an error of 1/√n."""
    first, second = ((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) for x in (first, second))
    assert (first @ second.T / first.shape[-1]).abs().max() < 5 / first.shape[-1] ** 0.5


@pytest.mark.parametrize("chunks", [1, 3])
def test_draws_of_two_series_and_of_two_seeds_are_independent(chunks: int) -> None:
    """Without data, so that any correlation is one of random numbers."""
    case = one_replicate("mixed", time=8).until(0)
    zero, one = (
        Lanes(*case, samples=20_000, seeds=seeds_of(seed, case), chunks=chunks).whole().draws for seed in (0, 1)
    )
    assert_independent(*zero.transpose(0, 1).flatten(1, 2))
    for draws in one.transpose(0, 1).flatten(1, 2):
        assert_independent(zero[:, 0].flatten(0, 1), draws)


@pytest.mark.parametrize("chunks", [1, 3])
def test_seeds(chunks: int) -> None:
    case = one_replicate("mixed")
    first, again, other = (
        Lanes(*case, samples=2, seeds=seeds_of(seed, case), chunks=chunks).whole() for seed in (4, 4, 5)
    )
    assert torch.equal(first.draws, again.draws)
    assert (first.draws != other.draws).all()
    assert (first.draws[..., 0] != first.draws[..., 1]).all()
    assert_equal(first, dense(case))


@pytest.mark.parametrize("chunks", [1, 3])
def test_draws_of_a_series_depend_on_its_seed_alone(chunks: int) -> None:
    case = one_replicate("mixed")
    together = Lanes(*case, samples=3, seeds=[4, 5]).whole().draws
    rows = Rows(*(x[:, 1:] if x.shape[1] > 1 else x for x in case.rows))
    alone = Lanes(case.space, rows, samples=3, seeds=[5], chunks=chunks).whole().draws
    torch.testing.assert_close(together[:, 1:], alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_draws_do_not_touch_global_random_state(causal: bool) -> None:
    before = torch.get_rng_state()
    Lanes(*one_replicate("mixed"), samples=2).whole(causal=causal)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_in_single_precision() -> None:
    """Padding adds intervals of 0, where a Matérn's noise is 0."""
    case = one_replicate("mixed")
    values, observed, delta = case.rows
    single = Rows(values.float(), observed, delta.float())
    found = Lanes(case.space.to(torch.float32), single, samples=3, chunks=5).whole()
    assert found.draws.dtype == torch.float32
    assert found.draws.isfinite().all()
    assert_equal(Posterior(*(x.double() for x in found)), dense(case), 1e-3)


def test_draws_are_of_columns_only() -> None:
    lanes = Lanes(*one_replicate("mixed"), samples=2)
    with pytest.raises(ValueError, match="draws are of the columns"):
        lanes.whole(torch.eye(7, dtype=torch.float64))


def test_observed_cells_of_draws_scatter_about_the_posterior_mean() -> None:
    """There they are no draws: x̂ + (x' - x̂'), of simulated data x' and their own posterior, varies by r S⁻¹ r."""
    case = one_replicate("mixed", time=8)
    draws = Lanes(*case, samples=20_000, chunks=3).whole().draws[:, 0].flatten(0, 1)
    seen, twin = case.rows.observed[:, 0].flatten(), case.twin(0)
    noise = twin.noise[seen].diag()
    covariance = noise @ torch.linalg.solve(twin.cells()[seen][:, seen], noise)
    assert_drawn_from(draws[seen], conditional(case, 0, seen)[0], covariance)


def test_best_chunks() -> None:
    assert best_chunks(time=10_000, series=1) == 101
    assert best_chunks(time=10_000, series=64) == 10  # at most 1024 rows in a lane
    assert best_chunks(time=500, series=1000) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_cuda() -> None:
    case = one_replicate("mixed")
    space, rows = case
    tensors = (space.length, space.frequency, space.loadings, space.noise)
    there = StateSpace(space.kinds, *(x.cuda() for x in tensors)), Rows(*(x.cuda() for x in rows))
    found = Lanes(*there, samples=20_000, chunks=3).whole()
    assert_equal(Posterior(*(x.cpu() for x in found)), dense(case))
    assert_close(exact_log_likelihood(*there).cpu(), case.log_density().squeeze(-1))
    missing = ~rows.observed[:, 0].flatten()
    assert_drawn_from(found.draws[:, 0].flatten(0, 1)[missing].cpu(), *conditional(case, 0, missing))
