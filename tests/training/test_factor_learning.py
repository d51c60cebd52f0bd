"""Learning of the factor model: what it is made of, its likelihood (also by statsmodels), windows, and the optimum."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.signal import lfilter
from statsmodels.tsa.api import DynamicFactor, UnobservedComponents

from gpvae.gp.state_space import Kind, State, stationary
from gpvae.models.factor import Composition, Extent, FactorModel, Relations, Warp
from gpvae.training import factor as learning
from gpvae.training.factor import CONTEXT, LANE, NUMBERS, ROWS, SPARSE, Windows, chosen_windows, learn
from gpvae.training.factor_start import FOLDS, MAX_ROWS, first_model, has_trend, in_parts
from gpvae.training.periods import Stretch

Array = NDArray[np.float64]


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def autoregression(memory: float, rows: int, columns: int = 1, seed: int = 0) -> Array:
    """Of unit variance."""
    shocks = rng(seed).normal(size=(rows, columns)) * math.sqrt(1 - memory**2)
    shocks[0] /= math.sqrt(1 - memory**2)
    return np.asarray(lfilter([1], [1, -memory], shocks, axis=0))


def with_gaps(values: Array, share: float) -> Array:
    return np.where(rng(9).random(values.shape) < share, np.nan, values)


def table(values: Array) -> list[Stretch]:
    return [Stretch(np.arange(float(len(values))), values)]


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def straight(columns: int) -> tuple[Warp, Relations]:
    zeros, ends = torch.zeros(3, columns, dtype=torch.float64), numbers(-9, 9).expand(columns, 2)
    return Warp.straight(ends, ends), Relations(torch.zeros(columns, columns, dtype=torch.float64), *zeros)


def of_one_column(kind: Kind, length: float, amplitude: float, noise: float) -> FactorModel:
    own, weights = Composition((kind,), (0,)), torch.empty(1, 0, dtype=torch.float64)
    return FactorModel(own, numbers(length), numbers(0), weights, numbers(amplitude), numbers(noise), *straight(1))


def log_likelihood(model: FactorModel, windows: Windows, start: State | None = None) -> float:
    """Of all cells; without `start`, nothing is known before the first row."""
    start = stationary(model.space, windows.values.shape[1]) if start is None else start
    return -(learning._loss(model, windows, start) * windows.observed.sum()).item()


def whole(values: Array) -> Windows:
    return Windows.at(table(values), [(0, 0)], len(values))


def test_likelihood_of_an_autoregression_with_noise_is_that_of_statsmodels() -> None:
    values = with_gaps(2 * autoregression(0.8, 120) + rng(1).normal(size=(120, 1)), 0.2)
    model = of_one_column("exponential", -1 / math.log(0.8), amplitude=2, noise=0.7)
    peer: Any = UnobservedComponents(values[:, 0], irregular=True, autoregressive=1)
    expected = peer.loglike([0.7, 4 * (1 - 0.8**2), 0.8])
    assert log_likelihood(model, whole(values)) == pytest.approx(expected, rel=1e-8)


def test_likelihood_of_a_shared_factor_is_that_of_statsmodels() -> None:
    values = with_gaps(autoregression(0.9, 80) * [1, -2, 0.5] + rng(2).normal(size=(80, 3)), 0.2)
    loadings, noise = numbers(1, -2, 0.5), numbers(1, 0.5, 2)
    model = FactorModel(
        Composition(("exponential",), ()),
        numbers(-1 / math.log(0.9)),
        numbers(0),
        loadings.unsqueeze(1) / math.sqrt(1 - 0.9**2),
        numbers(),
        noise,
        *straight(3),
    )
    peer: Any = DynamicFactor(values, k_factors=1, factor_order=1)
    expected = peer.loglike([*loadings.tolist(), *noise.tolist(), 0.9])
    assert log_likelihood(model, whole(values)) == pytest.approx(expected, rel=1e-8)


def skewed_pair(rows: int, seed: int = 0) -> Array:
    slow = autoregression(0.95, rows, 2, seed) @ rng(3).normal(size=(2, 3)) + 0.3 * rng(4).normal(size=(rows, 3))
    values = np.column_stack([slow[:, :2], np.exp(slow[:, 2])])
    return with_gaps((values - values.mean(0)) / values.std(0), 0.1)


@pytest.fixture(scope="module")
def pair() -> list[Stretch]:
    return table(skewed_pair(160))


@pytest.fixture(scope="module")
def learned(pair: list[Stretch]) -> FactorModel:
    return learn(pair)


def all_windows(stretches: list[Stretch]) -> tuple[Windows, Windows]:
    """Those that are learned from, and the rows before them."""
    lane, places = chosen_windows(stretches)
    before = [(series, first - CONTEXT) for series, first in places]
    return Windows.at(stretches, places, lane), Windows.at(stretches, before, CONTEXT)


def test_windows_given_the_rows_before_them_add_up_to_the_whole(pair: list[Stretch], learned: FactorModel) -> None:
    """Their contexts reach back to the beginning, and parameters are the same, so nothing is approximate."""
    assert len(pair[0].values) <= LANE + CONTEXT
    windows, before = all_windows(pair)
    assert windows.values.shape == (LANE, 3, 3)
    total = log_likelihood(learned, windows, learning._known(learned, before))
    assert total == pytest.approx(log_likelihood(learned, whole(pair[0].values)), rel=1e-9)


def test_gradient_of_the_loss_is_that_of_finite_differences(pair: list[Stretch], learned: FactorModel) -> None:
    windows = Windows.at(pair, [(0, 0), (0, 64)], LANE)
    parameters, start, generator = learning._Parameters(learned, windows), stationary(learned.space, 2), rng(5)
    for x in parameters.free.values():
        x.data += 0.1 * torch.from_numpy(generator.normal(size=x.shape))
    parameters.clip()

    def loss() -> torch.Tensor:
        return learning._loss(parameters.model(), windows, start)

    loss().backward()
    for name, x in parameters.free.items():
        for i in range(x.numel()):
            either = []
            for step in (1e-5, -2e-5):
                x.data.view(-1)[i] += step
                either.append(loss().item())
            x.data.view(-1)[i] += 1e-5
            assert x.grad is not None
            slope = (either[0] - either[1]) / 2e-5
            assert x.grad.view(-1)[i].item() == pytest.approx(slope, rel=1e-4, abs=1e-7), (name, i)


def test_the_parameters_of_a_model_are_the_model(pair: list[Stretch], learned: FactorModel) -> None:
    """As long as the windows are those that the warp was standardised on."""
    windows, _ = all_windows(pair)
    again = learning._Parameters(learned, windows).model()
    for name, value in learned.tensors().items():
        torch.testing.assert_close(again.tensors()[name], value, rtol=1e-9, atol=1e-9)


def test_parameters_that_are_not_finite_are_an_error(pair: list[Stretch], learned: FactorModel) -> None:
    parameters = learning._Parameters(learned, all_windows(pair)[0])
    parameters.free["weights"].data[0, 0] = math.nan
    with pytest.raises(FloatingPointError, match="weights is not finite"):
        parameters.learned()


def test_a_loss_that_is_not_finite_is_an_error(pair: list[Stretch], monkeypatch: pytest.MonkeyPatch) -> None:
    loss = learning._loss
    monkeypatch.setattr(learning, "STEPS", 2)
    monkeypatch.setattr(learning, "_loss", lambda *given: loss(*given) * math.nan)
    with pytest.raises(FloatingPointError, match="learning GPFactor diverged"):
        learn(pair)


def test_parameters_stay_within_their_bounds(pair: list[Stretch], learned: FactorModel) -> None:
    parameters = learning._Parameters(learned, all_windows(pair)[0])
    for sign in (1, -1):
        for x in parameters.free.values():
            x.data += 1e3 * sign
        parameters.clip()
        model = parameters.model()
        found = {**model.tensors(), "exponent": model.warp.exponent, "tail": model.warp.tail}
        for name in parameters.free.keys() - {"weights"}:
            bound = learning.BOUNDS[name][sign > 0]
            torch.testing.assert_close(found[name], torch.full_like(found[name], bound))


def test_learning_is_deterministic(pair: list[Stretch], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a step takes some of the windows, whatever random numbers were drawn before."""
    monkeypatch.setattr(learning, "STEPS", 6)
    monkeypatch.setattr(learning, "BATCH", LANE)
    first = learn(pair).tensors()
    torch.manual_seed(1)
    again = learn(pair).tensors()
    assert all(torch.equal(again[name], value) for name, value in first.items())


def density_of_a_cell(model: FactorModel, stretches: list[Stretch]) -> float:
    """Mean log density."""
    windows, before = all_windows(stretches)
    return -learning._loss(model, windows, learning._known(model, before)).item()


def test_learning_brings_far_more_than_the_start(pair: list[Stretch], learned: FactorModel) -> None:
    assert density_of_a_cell(learned, pair) - density_of_a_cell(first_model(pair), pair) > 0.1


def wave_and_slow_factor() -> list[Stretch]:
    times = np.arange(500.0)
    wave = np.stack([np.sin(times / 24 * 2 * math.pi), np.cos(times / 24 * 2 * math.pi)], axis=1)
    slow = autoregression(0.98, 500) * [1, 1, -1, 1]
    values = wave @ rng(8).normal(size=(2, 4)) + slow + 0.2 * rng(9).normal(size=(500, 4))
    return table(values / values.std(0))


@pytest.mark.slow
def test_learning_has_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many steps bring next to nothing; half as many are too few for an oscillator."""
    stretches, densities = wave_and_slow_factor(), list[float]()
    for steps in (learning.STEPS // 2, learning.STEPS, 2 * learning.STEPS):
        monkeypatch.setattr(learning, "STEPS", steps)
        densities.append(density_of_a_cell(learn(stretches), stretches))
    few, enough, many = densities
    assert many - enough < 0.02
    assert enough - few > 0.02


def test_learning_finds_an_autoregression_and_its_noise() -> None:
    values = autoregression(0.95, 2500) * math.sqrt(0.8) + math.sqrt(0.2) * rng(6).normal(size=(2500, 1))
    model = learn(table(values))
    assert model.kinds == ("exponential",)
    assert model.length.item() == pytest.approx(-1 / math.log(0.95), rel=0.35)
    assert model.noise.item() == pytest.approx(0.2, rel=0.2)


def test_learning_straightens_a_skewed_column() -> None:
    values = np.exp(0.7 * autoregression(0.9, 400))
    model = learn(table((values - values.mean()) / values.std()))
    assert model.warp.exponent.item() < 0.5


def test_white_noise_has_neither_latents_nor_periods() -> None:
    model = learn(table(rng(7).normal(size=(600, 4))))
    assert model.shared == ()
    torch.testing.assert_close(model.shares(Extent(1.0, 600.0))[2], torch.ones(4).double(), rtol=0, atol=0.1)


def test_a_wave_and_a_slow_factor_are_found_with_what_columns_have_alone() -> None:
    model = first_model(wave_and_slow_factor())
    assert model.shared.count("oscillator") == 1
    assert 1 <= model.shared.count("exponential") <= 4
    assert 2 * math.pi / model.frequency.max().item() == pytest.approx(24, rel=0.01)
    assert sorted(model.owner) == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_random_walks_share_nothing(seed: int) -> None:
    values = rng(seed).normal(size=(1000, 5)).cumsum(axis=0)
    assert first_model(table(values / values.std(0))).shared == ()


def test_a_smooth_column_gets_a_smooth_process_and_a_trend_one_more() -> None:
    smooth = np.convolve(rng(10).normal(size=420), np.hanning(21), "valid")[:400]
    trend = np.arange(400) / 40 + autoregression(0.5, 400)[:, 0]
    rough = autoregression(0.8, 400, seed=3)[:, 0]
    model = first_model(table(np.stack([smooth / smooth.std(), trend / trend.std(), rough], axis=1)))
    own = sorted(zip(model.owner, model.kinds[len(model.shared) :], strict=True))
    assert own == [(0, "matern"), (1, "exponential"), (1, "matern"), (2, "exponential")]


@pytest.mark.parametrize("memory", [0, 0.9, 1])
def test_what_wanders_is_no_trend(memory: float) -> None:
    values = np.asarray(lfilter([1], [1, -memory], rng(11).normal(size=(300, 20)), axis=0))
    assert sum(has_trend(table(values), column) for column in range(20)) <= 1


def test_trends_of_several_series_and_of_too_short_ones() -> None:
    drift = [Stretch(np.arange(60.0), np.arange(60.0)[:, None] / 8 + rng(s).normal(size=(60, 1))) for s in range(3)]
    assert has_trend(drift, 0)
    assert not has_trend([Stretch(each.times[:40], each.values[:40]) for each in drift], 0)


def ragged() -> list[Stretch]:
    lengths, steps = (5, 130, 64), (1.0, 0.5, 2.0)
    return [
        Stretch(step * np.arange(float(length)), with_gaps(rng(length).normal(size=(length, 2)), 0.3))
        for length, step in zip(lengths, steps, strict=True)
    ]


def test_windows_hold_the_rows_and_steps_of_their_series() -> None:
    stretches = ragged()
    windows = Windows.at(stretches, [(1, 100), (0, 0), (2, -10)], 40)
    assert windows.values.shape == (40, 3, 2)
    for lane, (series, first, rows) in enumerate([(1, 100, 30), (0, 0, 5), (2, -10, 30)]):
        empty = max(0, -first)
        inside = slice(empty, empty + rows)
        expected = stretches[series].values[max(first, 0) : max(first, 0) + rows]
        seen = np.zeros((40, 2), dtype=bool)
        seen[inside] = ~np.isnan(expected)
        np.testing.assert_array_equal(windows.observed[:, lane], seen)
        np.testing.assert_array_equal(windows.values[inside, lane], np.nan_to_num(expected))
        np.testing.assert_array_equal(windows.delta[inside, lane][:-1], np.diff(stretches[series].times[:rows]))
    assert windows.values[~windows.observed].eq(0).all()


def test_the_step_from_a_window_to_the_next_is_known() -> None:
    """What the rows before say about the first row of a window depends on the time between."""
    times = np.array([0.0, 1, 2, 7, 8, 9])
    before = Windows.at([Stretch(times, rng().normal(size=(6, 1)))], [(0, 0)], 3)
    assert before.delta[-1].item() == 5


def test_even_windows_share_one_step() -> None:
    assert Windows.at(ragged()[:1], [(0, 0), (0, -3)], 4).delta.shape == (1, 1)


def test_all_windows_are_chosen_if_they_are_few_and_else_as_many_as_are_needed() -> None:
    lane, places = chosen_windows(ragged()[:1])
    assert (lane, places) == (5, [(0, 0)])
    rows = np.arange(400_000)[:, None]
    lane, places = chosen_windows(table(np.zeros(rows.shape)))
    assert (lane, len(places)) == (LANE, ROWS // LANE)
    firsts = np.array([first for _, first in places])
    assert firsts[0] == 0
    assert firsts[-1] == 399_936
    assert np.diff(firsts).max() < 1.2 * np.diff(firsts).min()
    sparse = table(np.where(rows % 3 == 0, 0, np.nan))
    assert len(chosen_windows(sparse)[1]) == pytest.approx(3 * len(places), abs=1)
    empty = table(np.where(rows == 0, 0, np.nan))
    assert len(chosen_windows(empty)[1]) == SPARSE * len(places)
    wide = np.broadcast_to(rows.astype(float), (len(rows), 1024))
    assert len(chosen_windows([Stretch(np.arange(float(len(rows))), wide)])[1]) == NUMBERS // 1024 // LANE


def test_short_series_are_learned_from_whole() -> None:
    series = [Stretch(np.arange(48.0), np.zeros((48, 1))) for _ in range(1000)]
    lane, places = chosen_windows(series)
    assert lane == 48
    assert {first for _, first in places} == {0}
    assert len({which for which, _ in places}) == len(places) == math.ceil(ROWS / 48)


def test_every_window_takes_part_before_one_does_again() -> None:
    steps = list(learning._batches(12, 4))
    assert len(steps) == learning.STEPS
    for first in range(0, learning.STEPS - 2, 3):
        assert sorted(torch.cat(steps[first : first + 3]).tolist()) == list(range(12))
    assert [sorted(each.tolist()) for each in learning._batches(3, 16)] == [[0, 1, 2]] * learning.STEPS


def test_parts_are_stretches_of_time_or_groups_of_series() -> None:
    values = np.arange(80.0)[:, None]
    np.testing.assert_array_equal(np.concatenate(in_parts(table(values), steps=False)), values)
    assert [len(part) for part in in_parts(table(values), steps=True)] == [20, 20, 20, 19]
    series = [Stretch(np.arange(3.0), np.full((3, 1), float(i))) for i in range(16)]
    assert [sorted({*part.ravel()}) for part in in_parts(series, steps=False)] == [
        [i, i + 4, i + 8, i + 12] for i in range(FOLDS)
    ]


def test_parts_have_no_empty_rows_and_not_more_than_are_needed() -> None:
    values = rng().normal(size=(20_000, 2))
    values[::2] = np.nan
    parts = in_parts(table(values), steps=False)
    assert 0.6 * MAX_ROWS < sum(map(len, parts)) <= MAX_ROWS
    assert not np.isnan(np.concatenate(parts)).all(axis=1).any()


def test_derived_columns_and_their_parts_stay_so_in_learning() -> None:
    parts = autoregression(0.9, 150, 2)
    values = np.column_stack([parts, parts @ [0.6, 0.5]])
    values[70, 2] += 1
    model = learn(table(values))
    (derived,) = np.flatnonzero(model.relations.derived.numpy())
    assert (model.weights[derived] == 0).all()
    torch.testing.assert_close(model.warp.exponent, torch.ones(3).double())
    assert model.noise[derived] < 1e-5
    assert derived not in model.owner


def test_empty_rows_before_the_first_leave_the_prior() -> None:
    model = of_one_column("matern", 3, 1, 1)
    known = learning._known(model, Windows.at(table(np.zeros((4, 1))), [(0, -4)], 4))
    torch.testing.assert_close(known, stationary(model.space, 1))
