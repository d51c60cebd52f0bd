"""Validation and calibration: the score by hand, and intervals that hold as many cells as they say."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import optimize, stats
from torch import Generator, Tensor, nn

from gpvae.data.batches import Batch, RowTensors, Window
from gpvae.imputers.calibration import Validation, _column_log_factor, calibrate, fit_log_factors
from gpvae.imputers.held_out import HeldOut
from gpvae.models.calibration import Calibration, gap_distance, hat_basis
from gpvae.models.encoders import Attention
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.inputs import Decoder, InputsSpec, Values
from gpvae.models.likelihoods import (
    Gaussian,
    GaussianLikelihood,
    Likelihood,
    LikelihoodSpec,
    Params,
    Student,
    StudentLikelihood,
    likelihood_for,
)
from gpvae.models.parts import NearestValues
from gpvae.models.posterior import ChainHead
from gpvae.models.prior import Prior
from gpvae.training.seeds import step_generator

LENGTH = 10
Array = NDArray[np.float64]


class LinearDecoder(Decoder):
    """One layer, so that what is decoded can be set by hand."""

    def __init__(self, latent_dim: int, likelihood: Likelihood):
        super().__init__()
        self.layer = nn.Linear(latent_dim, likelihood.outputs)
        self.widest = likelihood.outputs

    def forward(self, z: Tensor, context: Tensor, likelihood: Likelihood) -> Params:
        return likelihood.unpack(self.layer(z))


def model_of(
    kinds: Sequence[str], real: LikelihoodSpec = Student(), inputs: InputsSpec = NearestValues()
) -> GPVAEModel:
    likelihood = likelihood_for(kinds, [0] * len(kinds), real)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        built = inputs.build(likelihood)
        encoder = Attention(8, layers=1).build(built.channels, 6)
        head = ChainHead(correlated=True, first_std=0.1)
        model = GPVAEModel(built, encoder, Prior().build(2), LinearDecoder(2, likelihood), likelihood, head)
    return model.eval().requires_grad_(False)


def layer_of(model: GPVAEModel) -> nn.Linear:
    assert isinstance(model.decoder, LinearDecoder)
    return model.decoder.layer


def rows(values: Tensor, observed: Tensor) -> RowTensors:
    """On an even grid, with the empty row behind them."""
    empty = torch.zeros(1, values.shape[1])
    return RowTensors(
        values=torch.cat([values * observed, empty]).float(),
        observed=torch.cat([observed, empty.bool()]),
        times=torch.arange(len(values), dtype=torch.float64) % LENGTH,
        spacing=1.0,
    )


def held_out_of(values: Tensor, held: Tensor, seen: Tensor | None = None) -> HeldOut:
    """Series of `LENGTH` steps, of which these cells are held out, and these (or none) are visible."""
    windows = [Window(start, LENGTH) for start in range(0, len(values), LENGTH)]
    seen = torch.zeros_like(held) if seen is None else seen
    return HeldOut(rows=rows(values, seen & ~held), targets=rows(values, held), windows=windows, seed=7)


def all_held_out(values: Tensor) -> HeldOut:
    return held_out_of(values, torch.ones(values.shape, dtype=torch.bool))


def decoded_by_hand(model: GPVAEModel, held_out: HeldOut, series_at_once: int) -> Tensor:
    """What four draws of the latent series are decoded to. (draw, row, output)"""
    decoded = []
    for first in range(0, len(held_out.windows), series_at_once):
        windows = held_out.windows[first : first + series_at_once]
        index = torch.stack([torch.arange(window.start, window.start + LENGTH) for window in windows])
        lengths = torch.full((len(windows),), LENGTH)
        chain, _ = model.encode(Batch(held_out.rows.values[index], held_out.rows.observed[index], 1.0, lengths))
        noise = torch.randn(4, *chain.mean.shape, generator=step_generator(7, first, torch.device("cpu")))
        decoded.append(layer_of(model)(chain.mean + chain.std * noise).flatten(1, 2))
    return torch.cat(decoded, dim=1)


def least_nll(error: Array, family: stats.rv_continuous) -> float:
    """Over all scales of a distribution, by trying."""
    best = optimize.minimize_scalar(
        lambda log_scale: -family.logpdf(error, 0, math.exp(log_scale)).mean(), bounds=(-8, 8), method="bounded"
    )
    return float(best.fun)


@pytest.mark.parametrize("noise", [None, 0.7])
def test_score_equals_one_by_hand(noise: float | None) -> None:
    """Learned noise: the least surprise that any scale gives. Fixed noise, and counts: that of the mixture of draws.

    The noise of a positive column is learned in either case.
    """
    model = model_of(["real", "positive", "count", "real"], Student() if noise is None else Gaussian(noise))
    generator = Generator().manual_seed(1)
    values = torch.randn(50, 4, generator=generator) * torch.tensor([1.0, 0.1, 2.0, 30.0])
    values[:, 2] = values[:, 2].abs().round()
    held = torch.rand(50, 4, generator=generator) < 0.3
    held[:, 3] = False  # a column without held-out cells
    held_out = held_out_of(values, held, torch.rand(50, 4, generator=generator) < 0.7)
    params = model.likelihood.unpack(decoded_by_hand(model, held_out, series_at_once=2))
    mean = model.likelihood.mean(params).mean(0)
    density = (model.likelihood.log_prob(params, values).double().exp().mean(0)).log()
    total = -float(density[:, 2][held[:, 2]].sum())
    for j, family in [(0, stats.laplace), (1, stats.norm)]:
        error = (values - mean)[:, j][held[:, j]].double().numpy()
        fixed = noise is not None and j == 0
        total += -float(density[:, j][held[:, j]].sum()) if fixed else len(error) * least_nll(error, family)
    score = Validation(model, held_out, steps_at_once=4 * 2 * LENGTH + 3).score()
    assert score == pytest.approx(total / int(held.sum()), rel=1e-5)


def test_score_depends_on_locations_not_on_scales() -> None:
    """Scales that training got wrong are no reason to stop; locations that it got wrong are."""
    model = model_of(["real", "real"])
    values = torch.randn(40, 2, generator=Generator().manual_seed(1))
    held_out = held_out_of(values, torch.rand(40, 2, generator=Generator().manual_seed(2)) < 0.5)
    before = Validation(model, held_out, 1000).score()
    layer_of(model).bias[2:] += 5
    assert Validation(model, held_out, 1000).score() == before
    layer_of(model).bias[:2] += 5
    assert Validation(model, held_out, 1000).score() > before + 1


def test_perfect_predictions_have_a_finite_score() -> None:
    model = model_of(["real"])
    layer_of(model).weight.zero_()
    layer_of(model).bias.zero_()
    assert math.isfinite(Validation(model, all_held_out(torch.zeros(20, 1)), 1000).score())


SPREAD, FREEDOM, SCALES = 0.4, [2.3, 12.0], [0.3, 1.5]


def wrong_by(factor: float) -> GPVAEModel:
    """Two columns, x = SPREAD · z + scale · t with z standard normal; decoded scales are wrong by the factor."""
    model = model_of(["real", "real"])
    likelihood = model.likelihood
    assert isinstance(likelihood, StudentLikelihood)
    likelihood.raw_freedom.copy_((torch.tensor(FREEDOM) - 2.1).expm1().log())
    _, raw_std, _ = model.encoder.head.bias.chunk(3)
    model.encoder.head.weight.zero_()
    model.encoder.head.bias.zero_()
    raw_std.fill_(math.log(math.expm1(1 - ChainHead.STD_FLOOR)))
    layer = layer_of(model)
    layer.weight.zero_()
    layer.weight[:2, 0] = SPREAD
    layer.bias[:2] = 0
    layer.bias[2:] = 0.7 + (factor * torch.tensor(SCALES) - likelihood.FLOOR).log()
    return model


def truth(count: int, seed: int) -> Tensor:
    """Values as they really are."""
    rng = np.random.default_rng(seed)
    shape = (count, 2)
    return torch.from_numpy(SPREAD * rng.normal(size=shape) + np.array(SCALES) * rng.standard_t(FREEDOM, size=shape))


def share_inside(model: GPVAEModel, calibration: Calibration, values: Tensor) -> Array:
    """Of the values of each column between the quantiles .05 and .95 of what the model predicts, z integrated out."""
    likelihood = model.likelihood
    assert isinstance(likelihood, StudentLikelihood)
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    nothing_visible = torch.zeros(5, 2)
    params = calibration.apply(likelihood, likelihood.unpack(layer_of(model).bias), nothing_visible)
    z = SPREAD * points[:, None, None]
    error = (values.numpy() - z) / likelihood.scale(params).numpy()
    below = stats.t(likelihood.freedom.numpy()).cdf(error)
    below = np.tensordot(weights / weights.sum(), below, axes=1)
    return ((below > 0.05) & (below < 0.95)).mean(0)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_intervals_hold_as_many_cells_as_they_say(factor: float) -> None:
    """Of other cells too, whatever the scales were before, within the noise of a few draws. Of the held-out cells they
    hold a standard error more.
    """
    model, values = wrong_by(factor), truth(1500, seed=3)
    before = share_inside(model, Calibration.identity(2), truth(5000, seed=1))
    if factor == 1:
        assert before == pytest.approx([0.9, 0.9], abs=0.01)
    else:
        assert (np.sign(before - 0.9) == np.sign(factor - 1)).all()
        assert (np.abs(before - 0.9) > 0.03).all()
    calibration = calibrate(Validation(model, all_held_out(values), 8 * 4 * 400))
    assert share_inside(model, calibration, values) == pytest.approx([0.9 + math.sqrt(0.09 / 1500)] * 2, abs=0.0075)
    assert share_inside(model, calibration, truth(5000, seed=1)) == pytest.approx([0.9, 0.9], abs=0.025)
    assert total_factors(calibration) == pytest.approx([1 / factor] * 2, rel=0.25)


def total_factors(calibration: Calibration) -> list[float]:
    """Where nothing is visible."""
    return (calibration.scale_factor * calibration.gap_factor[:, -1].exp()).tolist()


def test_intervals_calibrated_by_fewer_cells_are_wider() -> None:
    """Set by nine of ten alone, every second sample of 150 would make them hold less of other cells than they say."""
    held = []
    for seed in range(12):
        model = wrong_by(1.0)
        calibration = calibrate(Validation(model, all_held_out(truth(150, seed)), 10**5))
        held.append(share_inside(model, calibration, truth(5000, seed=100)))
    assert np.mean(np.array(held) > 0.9) > 0.7
    assert np.mean(held) == pytest.approx(0.9 + math.sqrt(0.09 / 150), abs=0.015)


def test_calibration_is_a_value_that_leaves_the_model_alone() -> None:
    model, held_out = wrong_by(0.5), all_held_out(truth(300, seed=3))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (calibrate(Validation(model, held_out, 10**5)) for _ in range(2))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(first.scale_factor, second.scale_factor)
    assert torch.equal(first.gap_factor, second.gap_factor)


def gaussian_model(noise: float | None = None) -> GPVAEModel:
    """One column, decoded to zeros, without a context."""
    model = model_of(["real"], Gaussian(noise), Values())
    layer_of(model).weight.zero_()
    layer_of(model).bias.zero_()
    return model


def test_gaussian_noise_by_hand() -> None:
    """The quantile of what errors call for, a standard error above .9, and twenty cells of the noise before."""
    model = gaussian_model()
    assert isinstance(model.likelihood, GaussianLikelihood)
    values = 3 * torch.randn(150, 1, generator=Generator().manual_seed(1))
    before = float(model.likelihood.noise)
    calibration = calibrate(Validation(model, all_held_out(values), 10**5))
    needed = np.quantile((values.numpy() / 1.6449) ** 2, 0.9 + math.sqrt(0.09 / 150), method="weibull")
    after = before * float(calibration.scale_factor)
    assert after**2 == pytest.approx((20 * before**2 + 150 * needed) / 170, rel=1e-4)
    assert not calibration.gap_factor.any()


def test_noise_that_was_given_is_left_alone() -> None:
    model = model_of(["real", "real"], Gaussian(0.7))
    calibration = calibrate(Validation(model, all_held_out(truth(100, seed=0)), 1000))
    assert calibration.scale_factor.tolist() == [1, 1]
    assert not calibration.gap_factor.any()


def test_noise_beside_other_kinds_of_columns() -> None:
    """Each column has the noise that its own cells call for; counts have none."""
    model = model_of(["count", "real", "positive", "real"])
    generator = Generator().manual_seed(1)
    values = torch.randn(1500, 4, generator=generator) * torch.tensor([1.0, 0.01, 20.0, 20.0])
    values[:, 0] = values[:, 0].abs().round()
    calibration = calibrate(Validation(model, all_held_out(values), 10**5))
    assert model.likelihood.real_columns().tolist() == [1, 3, 2]
    narrow, wide, positive = total_factors(calibration)
    assert narrow < 0.5
    assert wide > 5
    (gaussian,) = (part for part, _ in model.likelihood.groups() if isinstance(part, GaussianLikelihood))
    assert positive * float(gaussian.noise) == pytest.approx(20, rel=0.1)
    assert not calibration.gap_factor[2].any()


def factors_of_distant_cells(held: Tensor) -> list[float]:
    """Of held-out cells that are all far off."""
    held_out = held_out_of(torch.full(held.shape, 1e3), held)
    return calibrate(Validation(wrong_by(1.0), held_out, 1000)).scale_factor.tolist()


def test_few_cells_move_the_scale_little() -> None:
    """However wrong it seems by them; a column with none moves as the cells of the others call for."""
    held = torch.zeros(40, 2).bool()
    assert factors_of_distant_cells(held) == [1, 1]
    held[[3, 25], 1] = True
    without, few = factors_of_distant_cells(held)
    assert 1.05 < few < 1.3
    assert without == pytest.approx(few, rel=1e-5)
    held[:, 1] = True
    without, many = factors_of_distant_cells(held)
    assert many > 2 * few
    assert without == pytest.approx(many, rel=1e-5)


def test_column_with_few_cells_is_calibrated_like_the_others() -> None:
    """One with as many of its own as the noise found in training is worth, halfway."""
    cells = {0: (10_000, 0.8), 1: (20, 0.2), 2: (0, 0.0)}
    needed = {j: (np.full(count, factor), np.zeros((count, 1))) for j, (count, factor) in cells.items()}
    assert fit_log_factors(needed)[0] == pytest.approx({0: 0.8, 1: 0.5, 2: 0.8}, abs=0.005)


def test_cells_of_other_columns_serve_on_the_safe_side_too() -> None:
    others = np.arange(400) / 400
    safe = np.quantile(others, 0.9 + math.sqrt(0.09 / 400))
    assert _column_log_factor(np.empty(0), others) == pytest.approx(400 / 420 * safe)
    assert _column_log_factor(others, np.empty(0)) == pytest.approx(400 / 420 * safe)


def distance_by_hand(observed: Array, row: int, column: int) -> float:
    """1 - √2 / √(1 + h), h the harmonic mean of the distances to both sides."""
    seen = np.flatnonzero(observed[:, column])
    before, after = seen[seen < row], seen[seen > row]
    inverse = [1 / (row - before[-1]) if len(before) else 0.0, 1 / (after[0] - row) if len(after) else 0.0]
    mean = sum(inverse) / 2
    return 1.0 if mean == 0 else max(0.0, 1 - math.sqrt(2 / (1 + 1 / mean)))


def test_gap_distance_is_that_of_the_harmonic_mean() -> None:
    """Of the real columns, in the order of the likelihood's groups."""
    model = model_of(["real", "positive", "real"])
    observed = torch.rand(1, 40, 3, generator=Generator().manual_seed(3)) < 0.25
    observed[..., 2] &= torch.arange(40) < 15
    batch = Batch(torch.zeros(1, 40, 3), observed, 1.0, torch.tensor([40]))
    found = gap_distance(model.encode(batch).context)[0]
    for row in range(40):
        expected = [distance_by_hand(observed[0].numpy(), row, column) for column in (0, 2, 1)]
        assert found[row].tolist() == pytest.approx(expected, abs=1e-5)


def test_factors_of_columns_and_distances_are_found_from_what_cells_need() -> None:
    """Two columns that need different factors, and more far from what is visible, though not ever more."""
    rng, by_distance = np.random.default_rng(5), [0.3, 0.9, 0.9, 0.4]
    needed = {}
    for column, factor in [(1, -0.2), (4, 0.5)]:
        distance = rng.random(4000) * (rng.random(4000) < 0.7)
        wider = np.interp(distance, [0, 0.25, 0.5, 0.75, 1], [0, *by_distance])
        basis = hat_basis(torch.from_numpy(distance)).numpy()
        needed[column] = factor + wider + 0.3 * (rng.normal(size=4000) - stats.norm.ppf(0.9)), basis
    factors, gap_factor = fit_log_factors(needed)
    assert gap_factor == pytest.approx(by_distance, abs=0.1)
    assert factors == pytest.approx({1: -0.2, 4: 0.5}, abs=0.06)
    few = {column: (cells[:30], basis[:30]) for column, (cells, basis) in needed.items()}
    assert np.abs(fit_log_factors(few)[1]).max() < 0.3  # they are not enough to tell


def test_gap_factor_widens_only_what_is_far_from_visible_values() -> None:
    model = model_of(["real", "real"])
    observed = torch.zeros(1, 40, 2).bool()
    observed[0, 1:4] = True
    chain, context = model.encode(Batch(torch.zeros(1, 40, 2), observed, 1.0, torch.tensor([40])))
    likelihood, params = model.likelihood, model.decode(chain.mean, context)
    assert isinstance(likelihood, StudentLikelihood)
    gap_factor = torch.tensor([[0.0, 0.5, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    calibration = Calibration(torch.tensor([1.0, 3.0]), gap_factor)
    ratio = (likelihood.scale(calibration.apply(likelihood, params, context)) / likelihood.scale(params))[0]
    assert ratio[2, 0].item() == pytest.approx(1)
    assert (ratio[20:, 0].diff() > 0).all()
    distance = distance_by_hand(observed[0].numpy(), 39, 0)
    expected = np.interp(distance, [0, 0.25, 0.5, 0.75, 1], [0, 0, 0.5, 1, 2])
    assert ratio[39, 0].item() == pytest.approx(math.exp(expected), rel=1e-4)
    torch.testing.assert_close(ratio[:, 1], torch.full((40,), 3.0))
    identity = Calibration.identity(2).apply(likelihood, params, context)
    assert torch.equal(likelihood.scale(identity), likelihood.scale(params))
    halved = replace(calibration, scale_factor=calibration.scale_factor / 2)
    torch.testing.assert_close(
        2 * likelihood.scale(halved.apply(likelihood, params, context)),
        likelihood.scale(calibration.apply(likelihood, params, context)),
    )
