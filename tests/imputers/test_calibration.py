"""Held-out cells as judges: the score by hand, and intervals that hold as many cells as they say."""

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
from gpvae.imputers.calibration import Judge
from gpvae.imputers.neural import Exam
from gpvae.models.distributions import Gaussian, StudentT, parts_of
from gpvae.models.model import LatentModel, ModelConfig
from gpvae.training.loop import step_generator

LENGTH = 10
SMALL = replace(ModelConfig(), latent_dim=2, encoder_filters=8, encoder_layers=1, decoder_widths=(), cell_width=0)
Array = NDArray[np.float64]


def model_of(kinds: Sequence[str], config: ModelConfig = SMALL) -> LatentModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LatentModel(config, len(kinds), kinds, [0] * len(kinds)).eval().requires_grad_(False)
        last_of(model).reset_parameters()  # it begins with zeros
        return model


def last_of(model: LatentModel) -> nn.Linear:
    """The decoder's last layer, which is its only one."""
    (layer,) = model.decoder
    assert isinstance(layer, nn.Linear)
    return layer


def rows(values: Tensor, observed: Tensor) -> RowTensors:
    """On an even grid, with the empty row behind them."""
    empty = torch.zeros(1, values.shape[1])
    return RowTensors(
        values=torch.cat([values * observed, empty]).float(),
        observed=torch.cat([observed, empty.bool()]),
        times=torch.arange(len(values), dtype=torch.float64) % LENGTH,
        spacing=1.0,
    )


def exam_of(values: Tensor, held: Tensor, seen: Tensor | None = None) -> Exam:
    """Series of `LENGTH` steps, of which these cells are held out, and these (or none) may be seen."""
    pieces = [Window(start, LENGTH) for start in range(0, len(values), LENGTH)]
    seen = torch.zeros_like(held) if seen is None else seen
    return Exam(rows=rows(values, seen & ~held), answers=rows(values, held), pieces=pieces, seed=7)


def predictions_by_hand(model: LatentModel, exam: Exam, series_at_once: int) -> Tensor:
    """What four draws of the latent series are decoded to. (draw, row, output)"""
    decoded = []
    for first in range(0, len(exam.pieces), series_at_once):
        pieces = exam.pieces[first : first + series_at_once]
        index = torch.stack([torch.arange(piece.start, piece.start + LENGTH) for piece in pieces])
        lengths = torch.full((len(pieces),), LENGTH)
        chain, context = model.encode(Batch(exam.rows.values[index], exam.rows.observed[index], 1.0, lengths))
        noise = torch.randn(4, *chain.mean.shape, generator=step_generator(7, first, torch.device("cpu")))
        decoded.append(model.decode(chain.mean + chain.std * noise, context).flatten(1, 2))
    return torch.cat(decoded, dim=1)


def least_surprise(error: Array, family: stats.rv_continuous) -> float:
    """Of all scales of a distribution, by trying."""
    best = optimize.minimize_scalar(
        lambda log_scale: -family.logpdf(error, 0, math.exp(log_scale)).mean(), bounds=(-8, 8), method="bounded"
    )
    return float(best.fun)


@pytest.mark.parametrize("noise", [None, 0.7])
def test_score_equals_one_by_hand(noise: float | None) -> None:
    """Learned noise: the least surprise that any scale gives. Fixed noise, and counts: that of the mixture of draws."""
    config = SMALL if noise is None else replace(SMALL, likelihood="gaussian", noise=noise)
    model = model_of(["real", "positive", "count", "real"], config)
    generator = Generator().manual_seed(1)
    values = torch.randn(50, 4, generator=generator) * torch.tensor([1.0, 0.1, 2.0, 30.0])
    values[:, 2] = values[:, 2].abs().round()
    held = torch.rand(50, 4, generator=generator) < 0.3
    held[:, 3] = False  # a column that nothing is asked of
    exam = exam_of(values, held, torch.rand(50, 4, generator=generator) < 0.7)
    decoded = predictions_by_hand(model, exam, series_at_once=2)
    mean = model.likelihood.mean(decoded).mean(0)
    density = (model.likelihood.log_prob(decoded, values).double().exp().mean(0)).log()
    total = -float(density[:, 2][held[:, 2]].sum())
    for j, family in [(0, stats.laplace), (1, stats.norm)]:
        error = (values - mean)[:, j][held[:, j]].double().numpy()
        given = -float(density[:, j][held[:, j]].sum())
        total += given if noise is not None else len(error) * least_surprise(error, family)
    score = Judge(model, exam, steps_at_once=4 * 2 * LENGTH + 3).score()
    assert score == pytest.approx(total / int(held.sum()), rel=1e-5)


def test_score_asks_for_locations_not_for_scales() -> None:
    """Scales that training got wrong are no reason to stop; locations that it got wrong are."""
    model = model_of(["real", "real"])
    values = torch.randn(40, 2, generator=Generator().manual_seed(1))
    exam = exam_of(values, torch.rand(40, 2, generator=Generator().manual_seed(2)) < 0.5)
    before = Judge(model, exam, 1000).score()
    layer = last_of(model)
    layer.bias[2:] += 5
    assert Judge(model, exam, 1000).score() == before
    layer.bias[:2] += 5
    assert Judge(model, exam, 1000).score() > before + 1


def test_errors_of_nothing_have_a_score_that_is_finite() -> None:
    model = model_of(["real"])
    layer = last_of(model)
    layer.weight.zero_()
    layer.bias.zero_()
    assert math.isfinite(Judge(model, exam_of(torch.zeros(20, 1), torch.ones(20, 1).bool()), 1000).score())


SPREAD, FREEDOM, SCALES = 0.4, [2.3, 12.0], [0.3, 1.5]


def wrong_by(factor: float) -> LatentModel:
    """Two columns, x = SPREAD · z + scale · t with z standard normal; decoded scales are wrong by the factor."""
    model = model_of(["real", "real"])
    likelihood = model.likelihood
    assert isinstance(likelihood, StudentT)
    likelihood.raw_freedom.copy_((torch.tensor(FREEDOM) - 2.1).expm1().log())
    _, raw_std, _ = model.encoder.head.bias.chunk(3)
    model.encoder.head.weight.zero_()
    model.encoder.head.bias.zero_()
    raw_std.fill_(math.log(math.expm1(1 - model.STD_FLOOR)))
    layer = last_of(model)
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


def share_inside(model: LatentModel, values: Tensor) -> Array:
    """Of the values of each column between the quantiles .05 and .95 of what the model predicts, z integrated out."""
    likelihood = model.likelihood
    assert isinstance(likelihood, StudentT)
    layer = last_of(model)
    points, weights = np.polynomial.hermite_e.hermegauss(20)
    scale = likelihood.scale(layer.bias).numpy()
    z = SPREAD * points[:, None, None]
    below = stats.t(likelihood.freedom.numpy()).cdf((values.numpy() - z) / scale)
    below = np.tensordot(weights / weights.sum(), below, axes=1)
    return ((below > 0.05) & (below < 0.95)).mean(0)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_intervals_hold_as_many_cells_as_they_say(factor: float) -> None:
    """Others too, whatever the scales were before; within the noise of a few draws. Of those that they were set by they
    hold a standard error more.
    """
    model, values = wrong_by(factor), truth(1500, seed=3)
    before = share_inside(model, truth(5000, seed=1))
    if factor == 1:
        assert before == pytest.approx([0.9, 0.9], abs=0.01)
    else:
        assert (np.sign(before - 0.9) == np.sign(factor - 1)).all()
        assert (np.abs(before - 0.9) > 0.03).all()
    Judge(model, exam_of(values, torch.ones(1500, 2).bool()), 8 * 4 * 400).set_noise()
    assert share_inside(model, values) == pytest.approx([0.9 + math.sqrt(0.09 / 1500)] * 2, abs=0.0075)
    assert share_inside(model, truth(5000, seed=1)) == pytest.approx([0.9, 0.9], abs=0.025)
    assert isinstance(model.likelihood, StudentT)
    assert model.likelihood.stretch.tolist() == pytest.approx([1 / factor] * 2, rel=0.25)


def test_intervals_set_by_fewer_cells_are_wider() -> None:
    """Set by nine of ten alone, every second sample of 150 would make them hold less of other cells than they say."""
    held = []
    for seed in range(12):
        model = wrong_by(1.0)
        Judge(model, exam_of(truth(150, seed), torch.ones(150, 2).bool()), 10**5).set_noise()
        held.append(share_inside(model, truth(5000, seed=100)))
    assert np.mean(np.array(held) > 0.9) > 0.7
    assert np.mean(held) == pytest.approx(0.9 + math.sqrt(0.09 / 150), abs=0.015)


def test_deviation_by_hand() -> None:
    """Of decoded zeros: the quantile of what errors call for, a standard error above .9, and twenty cells of before."""
    model = model_of(["real"], replace(SMALL, likelihood="gaussian", see_surroundings=False))
    layer = last_of(model)
    layer.weight.zero_()
    layer.bias.zero_()
    values = 3 * torch.randn(150, 1, generator=Generator().manual_seed(1))
    assert isinstance(model.likelihood, Gaussian)
    before = float(model.likelihood.noise) ** 2
    Judge(model, exam_of(values, torch.ones(150, 1).bool()), 10**5).set_noise()
    needed = np.quantile((values.numpy() / 1.6449) ** 2, 0.9 + math.sqrt(0.09 / 150), method="weibull")
    assert float(model.likelihood.noise) ** 2 == pytest.approx((20 * before + 150 * needed) / 170, rel=1e-4)


def test_noise_that_is_set_again_stays() -> None:
    model = wrong_by(0.5)
    judge = Judge(model, exam_of(truth(1500, seed=3), torch.ones(1500, 2).bool()), 10**5)
    assert isinstance(model.likelihood, StudentT)
    judge.set_noise()
    once = model.likelihood.stretch.clone()
    judge.set_noise()
    torch.testing.assert_close(model.likelihood.stretch, once, rtol=0.03, atol=0)


def stretches_by(held: Tensor) -> list[float]:
    """With held-out cells that are all far off."""
    model, values = wrong_by(1.0), torch.full(held.shape, 1e3)
    Judge(model, exam_of(values, held), 1000).set_noise()
    assert isinstance(model.likelihood, StudentT)
    return model.likelihood.stretch.tolist()


def test_few_cells_move_the_scale_little() -> None:
    """However wrong it seems by them; a column with none is moved as those of others call for."""
    held = torch.zeros(40, 2).bool()
    assert stretches_by(held) == [1, 1]
    held[[3, 25], 1] = True
    without, few = stretches_by(held)
    assert 1.05 < few < 1.3
    assert without == pytest.approx(few, rel=1e-5)
    held[:, 1] = True
    without, many = stretches_by(held)
    assert many > 2 * few
    assert without == pytest.approx(many, rel=1e-5)


def test_column_with_few_cells_is_stretched_like_the_others() -> None:
    """One with as many of its own as the noise found in training is worth, halfway."""
    judge = Judge(model_of(["real"] * 3), exam_of(torch.zeros(10, 3), torch.zeros(10, 3).bool()), 1000)
    cells = {0: (10_000, 0.8), 1: (20, 0.2), 2: (0, 0.0)}
    called_for = {j: (np.full(count, needed), np.zeros(count)) for j, (count, needed) in cells.items()}
    assert judge._fit(called_for)[0] == pytest.approx({0: 0.8, 1: 0.5, 2: 0.8}, abs=0.005)


def test_others_are_asked_to_the_safe_side_too() -> None:
    judge = Judge(model_of(["real"]), exam_of(torch.zeros(10, 1), torch.zeros(10, 1).bool()), 1000)
    others = np.arange(400) / 400
    safe = np.quantile(others, 0.9 + math.sqrt(0.09 / 400))
    assert judge._stretch(np.empty(0), others) == pytest.approx(400 / 420 * safe)
    assert judge._stretch(others, np.empty(0)) == pytest.approx(400 / 420 * safe)


def test_noise_beside_other_kinds_of_columns() -> None:
    """Each column has the noise that its own cells call for; counts have none."""
    model = model_of(["count", "real", "positive", "real"])
    generator = Generator().manual_seed(1)
    values = torch.randn(1500, 4, generator=generator) * torch.tensor([1.0, 0.01, 20.0, 20.0])
    values[:, 0] = values[:, 0].abs().round()
    Judge(model, exam_of(values, torch.ones(1500, 4).bool()), 10**5).set_noise()
    by_kind = {type(part): part for part, _, _ in parts_of(model.likelihood)}
    student, gaussian = by_kind[StudentT], by_kind[Gaussian]
    assert isinstance(student, StudentT)
    assert isinstance(gaussian, Gaussian)
    assert student.stretch[0] < 0.5
    assert student.stretch[1] > 5
    assert float(gaussian.noise) == pytest.approx(20, rel=0.1)


def test_noise_that_was_asked_for_is_left_alone() -> None:
    model = model_of(["real", "real"], replace(SMALL, likelihood="gaussian", noise=0.7))
    Judge(model, exam_of(truth(100, seed=0), torch.ones(100, 2).bool()), 1000).set_noise()
    assert isinstance(model.likelihood, Gaussian)
    assert model.likelihood.noise.tolist() == pytest.approx([0.7, 0.7])


def test_questions_in_turn_ask_for_each_cell_once_and_tell_the_others() -> None:
    values = torch.randn(60, 3, generator=Generator().manual_seed(1))
    held = torch.zeros(60, 3).bool()
    held[10:18, :2] = True  # an outage of two columns
    held[[3, 25, 31, 44, 50, 58], 2] = True
    exam = exam_of(values, held, torch.ones(60, 3).bool())
    parts = list(exam.in_turn(4))
    asked = torch.stack([part.answers.observed for part in parts])
    assert torch.equal(asked.sum(0) == 1, exam.answers.observed)
    assert not (asked.sum(0) > 1).any()
    assert (
        len({tuple(part.answers.observed[10:18, :2].flatten().tolist()) for part in parts}) == 2
    )  # whole, or not at all
    for part in parts:
        assert not (part.rows.observed & part.answers.observed).any()
        assert torch.equal(part.rows.observed | part.answers.observed, exam.rows.observed | exam.answers.observed)
        known = part.rows.values + part.answers.values
        torch.testing.assert_close(known[:-1], values)


def remoteness_by_hand(observed: Array, row: int, column: int) -> float:
    """1 - √2 / √(1 + h), h the harmonic mean of the distances to both sides."""
    seen = np.flatnonzero(observed[:, column])
    before, after = seen[seen < row], seen[seen > row]
    inverse = [1 / (row - before[-1]) if len(before) else 0.0, 1 / (after[0] - row) if len(after) else 0.0]
    mean = sum(inverse) / 2
    return 1.0 if mean == 0 else max(0.0, 1 - math.sqrt(2 / (1 + 1 / mean)))


def test_remoteness_is_that_of_the_harmonic_mean_of_distances() -> None:
    """Of the columns whose scale is decoded, in their order, whatever stands between them."""
    model = model_of(["real", "positive", "real"])
    observed = torch.rand(1, 40, 3, generator=Generator().manual_seed(3)) < 0.25
    observed[..., 2] &= torch.arange(40) < 15
    batch = Batch(torch.zeros(1, 40, 3), observed, 1.0, torch.tensor([40]))
    found = model.remoteness(model.encode(batch).context)[0]
    for row in range(40):
        expected = [remoteness_by_hand(observed[0].numpy(), row, column) for column in (0, 2)]
        assert found[row].tolist() == pytest.approx(expected, abs=1e-5)


def test_stretches_and_widening_are_found_from_what_cells_call_for() -> None:
    """Two features that need other stretches, and more of it far from what is visible, though not ever more."""
    rng, truth = np.random.default_rng(5), [0.3, 0.9, 0.9, 0.4]
    called_for = {}
    for feature, stretch in [(1, -0.2), (4, 0.5)]:
        remoteness = rng.random(4000) * (rng.random(4000) < 0.7)
        wider = np.interp(remoteness, [0, 0.25, 0.5, 0.75, 1], [0, *truth])
        called_for[feature] = stretch + wider + 0.3 * (rng.normal(size=4000) - stats.norm.ppf(0.9)), remoteness
    judge = Judge(model_of(["real", "real"]), exam_of(torch.zeros(10, 2), torch.zeros(10, 2).bool()), 1000)
    stretches, widening = judge._fit(called_for)
    assert widening == pytest.approx(truth, abs=0.1)
    assert stretches == pytest.approx({1: -0.2, 4: 0.5}, abs=0.06)
    few = {feature: (needed[:30], remoteness[:30]) for feature, (needed, remoteness) in called_for.items()}
    assert np.abs(judge._fit(few)[1]).max() < 0.3  # they are not enough to tell


def test_widening_is_saved_and_widens_what_is_far_alone() -> None:
    model, other = model_of(["real", "real"]), model_of(["real", "real"])
    model.widening.copy_(torch.tensor([0.0, 0.5, 1.0, 2.0]))
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.widening, model.widening)
    observed = torch.zeros(1, 40, 2).bool()
    observed[0, 1:4] = True
    chain, context = other.encode(Batch(torch.zeros(1, 40, 2), observed, 1.0, torch.tensor([40])))
    likelihood = other.likelihood
    assert isinstance(likelihood, StudentT)
    wide = likelihood.scale(other.decode(chain.mean, context)) - likelihood.FLOOR
    other.widening.zero_()
    narrow = likelihood.scale(other.decode(chain.mean, context)) - likelihood.FLOOR
    ratio = (wide / narrow)[0, :, 0]
    assert ratio[2].item() == pytest.approx(1)
    assert (ratio[20:].diff() > 0).all()
    expected = np.interp(remoteness_by_hand(observed[0].numpy(), 39, 0), [0, 0.25, 0.5, 0.75, 1], [0, 0, 0.5, 1, 2])
    assert ratio[39].item() == pytest.approx(math.exp(expected), rel=1e-4)
