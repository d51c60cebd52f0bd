"""Ways to remove values: one battery for all of them, and each against its definition."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.missingness import MECHANISMS, fields, repulsion
from gpvae.missingness.grids import grids, rbf

Mechanism = Callable[..., Bools]

IMAGE = {"image_shape": (2, 3)}
SHORT = {"length": (2, 5)}
CASES: list[Any] = [
    *(
        pytest.param(partial(MECHANISMS[name], **IMAGE if name == "spatial" else {}), id=name)
        for name in MECHANISMS
        if name != "like-own"
    ),
    pytest.param(partial(missingness.blocks, **SHORT), id="short blocks"),
    pytest.param(partial(missingness.blocks, **SHORT, all_columns=True), id="outages"),
    pytest.param(partial(missingness.not_at_random, ratio=0.5, threshold=10.0), id="low values"),
    pytest.param(partial(missingness.spatial, image_shape=(2, 3, 1), length_scale=0.5), id="channels"),
    pytest.param(partial(missingness.temporal_positive, length_scale=0.3), id="hardly temporal+"),
    pytest.param(partial(missingness.temporal_negative, length_scale=30.0), id="temporal- without room"),
]
SEEDED = partial(pytest.mark.parametrize, "mechanism", CASES)


def ragged(seed: int, series: int = 10, longest: int = 12) -> Panel:
    """Irregular times, 6 columns, lengths from 1; later steps are missing more often; a column without any value."""
    rng = np.random.default_rng(seed)
    lengths = [1, 1, *rng.integers(1, longest + 1, size=series - 2)]
    values = [np.where(rng.random((n, 6)) < np.linspace(0, 0.8, n)[:, None], np.nan, 10.0) for n in lengths]
    values = [each + rng.normal(size=each.shape) for each in values]
    for each in values:
        each[:, 3] = np.nan
    values[seed % series][:] = np.nan
    return Panel.from_list(values, times=[np.cumsum(rng.exponential(size=n)) - 5 for n in lengths])


def even(*shape: int) -> Panel:
    return Panel.of(10 + np.random.default_rng(0).normal(size=shape))


PANELS = {
    "ragged": ragged(1, series=250),
    "short": even(300, 10, 6),
    "longer": even(100, 40, 6),
    "single steps": even(1500, 1, 6),
    "seconds": Panel.from_array(even(200, 7, 6).values.reshape(200, 7, 6), times=np.arange(7) * 3600.0),
}


def deviation(panel: Panel, cells: Bools, rate: float) -> float:
    """How far the number of removed cells is off, in standard deviations: series are independent."""
    excess = np.add.reduceat((cells - rate * panel.observed).sum(axis=1), panel.starts)  # (series,)
    return float(abs(excess.sum()) / np.sqrt((excess**2).sum()))


@SEEDED()
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("name", PANELS)
def test_observed_cells_at_the_rate_asked_for(mechanism: Mechanism, name: str, rate: float) -> None:
    panel = PANELS[name]
    cells = mechanism(panel, rate, 0)
    assert cells.shape == panel.values.shape
    assert cells.dtype == bool
    assert not (cells & ~panel.observed).any()
    assert deviation(panel, cells, rate) < 4


@SEEDED()
@pytest.mark.parametrize("name", PANELS)
def test_the_seed_decides(mechanism: Mechanism, name: str) -> None:
    panel, before = PANELS[name], PANELS[name].values.copy()
    first = mechanism(panel, 0.4, 0)
    np.testing.assert_array_equal(first, mechanism(panel, 0.4, 0))
    assert (first != mechanism(panel, 0.4, 1)).any()
    assert (mechanism(panel, 0.4, [0, 1]) != mechanism(panel, 0.4, [0, 2])).any()
    np.testing.assert_array_equal(panel.values, before)


@SEEDED()
def test_global_state_is_left_alone(mechanism: Mechanism) -> None:
    np.random.seed(0)
    mechanism(ragged(0), 0.4, 3)
    assert np.random.random() == np.random.RandomState(0).random()


@SEEDED()
@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(mechanism: Mechanism, rate: float) -> None:
    with pytest.raises(DataError, match=f"must lie between 0 and 1, not {rate}"):
        mechanism(ragged(0), rate, 0)


@SEEDED()
def test_a_panel_without_values_is_refused(mechanism: Mechanism) -> None:
    with pytest.raises(DataError, match="observed cells"):
        mechanism(Panel.of(np.full((3, 6), np.nan)), 0.5, 0)


@pytest.mark.parametrize("name", ["spatial", "temporal+", "temporal-"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_senseless_settings_are_refused(name: str, value: float) -> None:
    mechanism = partial(MECHANISMS[name], ragged(0), 0.5, 0, **IMAGE if name == "spatial" else {})
    with pytest.raises(DataError, match=f"length_scale must be positive and finite, not {value}"):
        mechanism(length_scale=value)
    with pytest.raises(DataError, match=f"jitter must be at least 1e-12 and finite, not {value}"):
        mechanism(jitter=value)


def test_too_little_jitter_is_said() -> None:
    uneven = np.sort(np.random.default_rng(0).random(fields.BLOCK))
    fields.dense_paths(uneven, 1000.0, 1e-12)  # enough for a factor
    with pytest.raises(DataError, match=r"no process on 60 steps .* more jitter"):
        missingness.temporal_negative(even(1, 60, 1), 0.9, 0, length_scale=1000.0, jitter=1e-12)


def test_hide_takes_these_cells_only() -> None:
    panel = ragged(1)
    cells = missingness.random(panel, 0.3, seed=0)
    hidden = missingness.hide(panel, cells)
    np.testing.assert_array_equal(hidden.observed, panel.observed & ~cells)
    np.testing.assert_array_equal(hidden.values[hidden.observed], panel.values[hidden.observed])
    assert panel.observed[cells].all()


# At random


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.99])
def test_random_removes_an_exact_share_of_what_is_observed(rate: float) -> None:
    panel = ragged(3, series=40)
    cells = missingness.random(panel, rate, seed=0)
    assert cells.sum() == round(rate * panel.observed.sum())
    places = np.flatnonzero(panel.observed)
    drawn = np.random.default_rng(0).choice(places, round(rate * len(places)), replace=False)
    assert np.flatnonzero(cells).tolist() == sorted(drawn.tolist())


def test_random_removes_each_cell_equally_often() -> None:
    panel = Panel.of(np.array([[1.0, 2.0], [np.nan, 4.0], [5.0, 6.0]]))
    counts = np.sum([missingness.random(panel, 0.4, seed) for seed in range(2000)], axis=0)
    expected = np.array([[800, 800], [0, 800], [800, 800]])
    deviation = np.sqrt(2000 * 0.4 * 0.6)  # of a binomial count
    assert (np.abs(counts - expected) < 4 * deviation).all()
    assert counts[1, 0] == 0


def test_random_refuses_to_take_nothing_or_all() -> None:
    panel = Panel.of(np.array([[1.0, 2.0, np.nan]]))
    for rate in (0.1, 0.9):
        with pytest.raises(DataError, match=f"a share of {rate} of 2 observed cells"):
            missingness.random(panel, rate, seed=0)


# Correlation of neighbours


def correlation(first: Bools, second: Bools) -> float:
    return float(np.corrcoef(first.ravel(), second.ravel())[0, 1])


def over_time(cells: Bools, steps: int, lag: int = 1) -> float:
    """Between steps that are so far apart, away from the ends."""
    frames = cells.reshape(-1, steps, cells.shape[1])[:, 2:-2]  # (series, time, feature)
    return correlation(frames[:, :-lag], frames[:, lag:])


def of_signs(distance: float, length_scale: float) -> float:
    """Two normals of correlation ρ have signs of correlation 2/π arcsin ρ."""
    return 2 / np.pi * np.arcsin(np.exp(-((distance / length_scale) ** 2) / 2))


@pytest.mark.parametrize(("series", "steps"), [(2000, 12), (20, 1200)])
@pytest.mark.parametrize("length_scale", [0.7, 3.0])
@pytest.mark.parametrize("lag", [1, 2, 4])
def test_temporal_positive_neighbours(series: int, steps: int, length_scale: float, lag: int) -> None:
    cells = missingness.temporal_positive(even(series, steps, 20), 0.5, 0, length_scale=length_scale)
    assert over_time(cells, steps, lag) == pytest.approx(of_signs(lag, length_scale), abs=0.015)
    frames = cells.reshape(series, steps, 20)
    assert abs(correlation(frames[..., 1:], frames[..., :-1])) < 0.015
    assert abs(correlation(frames[1:], frames[:-1])) < 0.015


@pytest.mark.parametrize("name", ["random", "not-at-random"])
def test_neighbours_are_independent(name: str) -> None:
    assert abs(over_time(MECHANISMS[name](even(2000, 12, 20), 0.5, 0), 12)) < 0.01


@pytest.mark.parametrize("length_scale", [0.7, 3.0])
def test_spatial_neighbours(length_scale: float) -> None:
    cells = missingness.spatial(even(100, 10, 3 * 8 * 12), 0.5, 0, (3, 8, 12), length_scale=length_scale)
    frames = cells.reshape(1000, 3, 8, 12)
    assert (frames == frames[:, :1]).all()
    pixels = frames[:, 0]
    for lag in (1, 2, 3):
        expected = pytest.approx(of_signs(lag, length_scale), abs=0.03)
        assert correlation(pixels[:, lag:], pixels[:, :-lag]) == expected
        assert correlation(pixels[:, :, lag:], pixels[:, :, :-lag]) == expected
    diagonal = pytest.approx(of_signs(2**0.5, length_scale), abs=0.03)
    assert correlation(pixels[:, 1:, 1:], pixels[:, :-1, :-1]) == diagonal
    assert abs(correlation(pixels[1:], pixels[:-1])) < 0.03


@pytest.mark.parametrize("shape", [(6,), (2, 2), (1, 2, 2, 2), (0, 6), (3, 2, 2)])
def test_an_image_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"image_shape must be .* of 6 columns, not"):
        missingness.spatial(ragged(0), 0.5, 0, shape)


@pytest.mark.parametrize("paths", ["even", "dense"])
def test_paths_have_the_covariance_of_the_kernel(paths: str) -> None:
    times, rng = np.linspace(0, 9.5, 20), np.random.default_rng(0)
    draw = fields.even_paths(20, 3.0 / 0.5) if paths == "even" else fields.dense_paths(times, 3.0, 1e-6)
    samples = draw(rng, 500, 40).swapaxes(1, 2).reshape(-1, 20)  # (draw, time)
    covariance = samples.T @ samples / len(samples)
    np.testing.assert_allclose(covariance, rbf(times, 3.0, 0), atol=4 * np.sqrt(2 / len(samples)))


def test_long_uneven_grids_are_drawn_in_blocks() -> None:
    times = np.cumsum(np.random.default_rng(0).exponential(size=2 * fields.BLOCK + 5))
    paths = fields.gp_paths(times, 50.0, 1e-6)(np.random.default_rng(0), 1, 400)[0]
    assert paths.shape == (len(times), 400)
    inside, across = (np.corrcoef(paths[i], paths[i + 1])[0, 1] for i in (fields.BLOCK - 2, fields.BLOCK - 1))
    assert inside > 0.95
    assert abs(across) < 0.2


def test_time_counts_not_the_number_of_the_row() -> None:
    """Two steps at nearly the same time, then even ones, then a long pause."""
    times = np.array([0, 0.01, 1, 2, 3, 4, 5, 50])
    panel = Panel.from_array(even(500, 8, 20).values.reshape(500, 8, 20), times=times)
    together, apart = (
        MECHANISMS[name](panel, 0.5, 0).reshape(500, 8, 20).swapaxes(0, 1) for name in ("temporal+", "temporal-")
    )
    assert correlation(together[0], together[1]) > 0.98
    assert correlation(together[5], together[6]) > 0.7
    assert abs(correlation(together[6], together[7])) < 0.04
    assert np.mean(apart[0] & apart[1]) < 0.01
    assert abs(correlation(apart[6], apart[7])) < 0.04


# Repulsion

GRIDS = [np.arange(4.0), np.arange(6.0), np.array([0, 0.3, 1, 3, 3.5]), np.array([0, 1, 1.2, 2, 2.5, 6])]


def ensemble(times: Floats, rate: float, length_scale: float) -> tuple[Floats, Floats]:
    return repulsion.ensemble(times, rate, length_scale, 1e-6)


def fits(draws: Bools, subsets: Bools, probabilities: Floats) -> bool:
    """χ² of (draw, time) with the probabilities of the subsets; the rarest ones together."""
    places = 2 ** np.arange(draws.shape[1])
    counts = np.bincount(draws @ places, minlength=len(subsets))[subsets @ places]
    rare = probabilities * len(draws) < 10
    expected = np.append(probabilities[~rare], probabilities[rare].sum()) * len(draws)
    seen = np.append(counts[~rare], counts[rare].sum())
    if expected[-1] < 5:
        expected, seen = np.append(expected[:-2], expected[-2:].sum()), np.append(seen[:-2], seen[-2:].sum())
    return float(chisquare(seen, expected).pvalue) > 1e-3


@pytest.mark.parametrize("times", GRIDS, ids=str)
@pytest.mark.parametrize("rate", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("length_scale", [0.5, 2.0])
def test_subsets_have_the_probabilities_of_a_determinantal_process(
    times: Floats, rate: float, length_scale: float
) -> None:
    (weighted, marginal), steps = ensemble(times, rate, length_scale), len(times)
    subsets, probabilities = repulsion.subset_probabilities(weighted)
    found = {tuple(np.flatnonzero(subset).tolist()): p for subset, p in zip(subsets, probabilities, strict=True)}
    for size in range(steps + 1):
        for chosen in combinations(range(steps), size):
            expected = np.linalg.det(weighted[np.ix_(chosen, chosen)]) / np.linalg.det(weighted + np.eye(steps))
            assert found[chosen] == pytest.approx(expected, rel=1e-6, abs=1e-15)
    assert len(found) == 2**steps
    assert probabilities.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(probabilities @ subsets, rate, atol=2e-7)
    np.testing.assert_allclose(marginal, weighted @ np.linalg.inv(weighted + np.eye(steps)), atol=1e-7)
    correlations = weighted / np.sqrt(np.outer(np.diag(weighted), np.diag(weighted)))
    np.testing.assert_allclose(correlations, rbf(times, length_scale, 1e-6) / (1 + 1e-6))


@pytest.mark.parametrize("times", GRIDS, ids=str)
@pytest.mark.parametrize("rate", [0.3, 0.7])
@pytest.mark.parametrize("length_scale", [0.7, 2.0])
def test_both_samplers_draw_from_that_distribution(times: Floats, rate: float, length_scale: float) -> None:
    steps = len(times)
    weighted, marginal = ensemble(times / np.median(np.diff(times)), rate, length_scale)
    subsets, probabilities = repulsion.subset_probabilities(weighted)
    panel = Panel.from_array(even(500, steps, 40).values.reshape(500, steps, 40), times=times)
    cells = missingness.temporal_negative(panel, rate, 0, length_scale=length_scale).reshape(500, steps, 40)
    assert fits(cells.swapaxes(1, 2).reshape(-1, steps), subsets, probabilities)
    lags = [np.pad(np.diag(marginal, k), (k, 0)) for k in range(steps)]
    chain = repulsion.sample_chain(np.stack(lags, axis=1), 20000, np.random.default_rng(0))
    assert fits(chain.T, subsets, probabilities)
    assert not fits(np.random.default_rng(0).random((20000, steps)) < rate, subsets, probabilities)


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8])
def test_the_chain_has_the_marginals_of_the_process(rate: float) -> None:
    """E x_i = K_ii = rate, cov(x_i, x_j) = -K_ij²."""
    panel = even(500, 30, 40)
    cells = missingness.temporal_negative(panel, rate, 0).reshape(500, 30, 40).swapaxes(1, 2).reshape(-1, 30)
    _, marginal = ensemble(np.arange(30.0), rate, 2.0)
    error = 4.5 * np.sqrt(0.25 / len(cells))
    np.testing.assert_allclose(cells.mean(axis=0), rate, atol=error)
    pairs = ~np.eye(30, dtype=bool)
    np.testing.assert_allclose(np.cov(cells.T)[pairs], -(marginal[pairs] ** 2), atol=error)


@pytest.mark.parametrize("steps", [10, 12])
def test_temporal_negative_neighbours(steps: int) -> None:
    cells = missingness.temporal_negative(even(2000, steps, 20), 0.5, 0)
    assert over_time(cells, steps) < -0.3
    frames = cells.reshape(2000, steps, 20)
    assert abs(correlation(frames[..., 1:], frames[..., :-1])) < 0.015
    assert abs(correlation(frames[1:], frames[:-1])) < 0.015


@pytest.mark.parametrize("uneven", [False, True])
def test_windows_of_long_series_agree_with_the_whole(uneven: bool) -> None:
    times = np.arange(700.0)
    times += uneven * np.random.default_rng(0).uniform(-0.4, 0.4, size=700)
    band = repulsion.marginal_band(times, 0.4, 2.0, 1e-6)
    _, whole = ensemble(times, 0.4, 2.0)
    for lag in range(band.shape[1]):
        np.testing.assert_allclose(band[lag:, lag], np.diag(whole, lag), atol=1e-6)
        assert not band[:lag, lag].any()
    assert abs(np.triu(whole, band.shape[1])).max() < 2e-6


def test_temporal_negative_on_long_series() -> None:
    cells = missingness.temporal_negative(even(1, 3000, 8), 0.3, 0)
    assert cells.mean() == pytest.approx(0.3, abs=0.01)
    assert over_time(cells, 3000) < -0.2
    counts = cells.reshape(60, 50, 8).sum(axis=1)
    inside = ensemble(np.arange(250.0), 0.3, 2.0)[1][100:150, 100:150]
    assert counts.var() == pytest.approx(50 * 0.3 - (inside**2).sum(), rel=4.5 * np.sqrt(2 / counts.size))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("length_scale", [0.1, 2.0, 10.0, 1000.0])
def test_every_step_is_taken_equally_often(seed: int, rate: float, length_scale: float) -> None:
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(size=rng.integers(1, 80)))
    weighted, marginal = ensemble(times, rate, length_scale)
    np.testing.assert_allclose(np.diag(marginal), rate, atol=1e-7)
    assert (np.diag(weighted) > 0).all()


@pytest.mark.parametrize("rate", [0.001, 0.999])
@pytest.mark.parametrize("steps", [2, 10, 30])
def test_any_rate_is_within_reach(rate: float, steps: int) -> None:
    """More steps than the kernel has room for: the jitter decides."""
    panel = even(1000, steps, 10)
    assert deviation(panel, missingness.temporal_negative(panel, rate, 0, length_scale=100.0), rate) < 4


def test_a_rate_that_takes_hardly_any() -> None:
    assert missingness.temporal_negative(even(10, 30, 5), 1e-7, 0).sum() == 0


# Not at random


def pictures() -> Panel:
    """13 % of the pixels are white."""
    rng = np.random.default_rng(0)
    white = (rng.random((200, 10, 100)) < 0.13).astype(float)
    return Panel.of(np.where(rng.random(white.shape) < 0.1, np.nan, white))


def test_the_papers_not_at_random() -> None:
    panel = pictures()
    cells = missingness.by_value(panel, 0.45, 0.90, 0, threshold=0.5)
    assert cells[panel.values == 1].mean() == pytest.approx(0.90, abs=0.01)
    assert cells[panel.values == 0].mean() == pytest.approx(0.45, abs=0.005)
    average = 0.45 + 0.45 * float(np.nanmean(panel.values))
    assert cells[panel.observed].mean() == pytest.approx(average, abs=0.005)
    same = missingness.not_at_random(panel, average, 0, threshold=0.5)
    np.testing.assert_array_equal(cells, same)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("threshold", ["median", 0.5])
def test_high_values_are_so_much_likelier_to_be_removed(ratio: float, threshold: Any) -> None:
    values = np.random.default_rng(0).normal(size=(3000, 40)) + np.linspace(-1, 1, 40)
    values[:, 7] = np.nan
    panel = Panel.of(values)
    medians = [0.0 if j == 7 else np.median(values[:, j]) for j in range(40)]
    high = values > (medians if threshold == "median" else threshold)
    cells = missingness.not_at_random(panel, 0.3, 0, ratio=ratio, threshold=threshold)
    low = ~high & panel.observed
    assert cells[high].mean() / cells[low].mean() == pytest.approx(ratio, rel=0.03)
    assert cells[panel.observed].mean() == pytest.approx(0.3, abs=0.005)


def test_probabilities_above_one_are_refused() -> None:
    with pytest.raises(DataError, match=r"what lies above the threshold with probability 1\.\d+, more than 1"):
        missingness.not_at_random(even(10, 10, 2), 0.8, 0)
    with pytest.raises(DataError, match=r"what lies below the threshold with probability 1\.\d+, more than 1"):
        missingness.not_at_random(even(10, 10, 2), 0.8, 0, ratio=0.5)
    with pytest.raises(DataError, match=r"above is a probability, from 0 to 1, not 1\.1"):
        missingness.by_value(pictures(), 0.5, 1.1, 0)
    with pytest.raises(DataError, match="below is a probability, from 0 to 1, not nan"):
        missingness.by_value(pictures(), float("nan"), 1.0, 0)
    for ratio in (0.0, -1.0, float("nan")):
        with pytest.raises(DataError, match=f"ratio must be positive and finite, not {ratio}"):
            missingness.not_at_random(pictures(), 0.5, 0, ratio=ratio)


# Runs


def run_lengths(column: Bools) -> Any:
    """Of runs that touch neither end."""
    edges = np.diff(column.astype(int))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    ends = ends[ends > starts[0]] if len(starts) else ends[:0]
    return ends - starts[: len(ends)]


@pytest.mark.parametrize("rate", [0.05, 0.4, 0.7])
def test_blocks_have_the_lengths_asked_for(rate: float) -> None:
    panel = even(1, 20000, 3)
    cells = missingness.blocks(panel, rate, 0, length=(4, 9))
    assert cells.sum() == round(rate * cells.size)
    lengths = np.concatenate([run_lengths(column) for column in cells.T])
    short = np.sum(lengths < 4)
    assert short <= 1  # the one that is cut to fit
    assert lengths.max() == 9
    counts = np.bincount(lengths, minlength=10)[4:]
    assert chisquare(counts).pvalue > 1e-3
    assert abs(correlation(cells[:, 0], cells[:, 1])) < 0.08


def test_blocks_in_all_columns() -> None:
    panel = even(30, 100, 4)
    cells = missingness.blocks(panel, 0.2, 0, length=(3, 3), all_columns=True)
    assert (cells == cells[:, :1]).all()
    assert cells[:, 0].sum() == 600
    inside = [run_lengths(series) for series in cells[:, 0].reshape(30, 100)]
    assert set(np.concatenate(inside)) == {3}


def test_blocks_remove_each_step_equally_often() -> None:
    """At the ends of series too."""
    cells = missingness.blocks(even(4000, 12, 2), 0.3, 0, length=(2, 6)).reshape(4000, 12, 2)
    assert np.abs(cells.mean(axis=(0, 2)) - 0.3).max() < 4.5 * np.sqrt(0.21 / 8000)


def test_blocks_that_make_no_sense_are_refused() -> None:
    for length in ((0, 3), (4, 3), (-2, -1)):
        with pytest.raises(DataError, match=r"length must be \(shortest, longest\), of at least 1 step"):
            missingness.blocks(ragged(0), 0.5, 0, length=length)
    with pytest.raises(
        DataError, match=r"runs of 1 to 3 steps with a step between them cannot make up a share of 0\.8"
    ):
        missingness.blocks(even(10, 10, 2), 0.8, 0, length=(1, 3))


# Grids


def test_series_of_one_grid_are_found_together() -> None:
    starts = [np.array([0.0, 60, 120]), np.array([0.0, 60, 180]), np.array([7.0, 67, 127]), np.array([5.0])]
    panel = Panel.from_list([np.zeros((len(times), 1)) for times in starts], times=starts)
    found = {tuple(times): rows.tolist() for times, rows in grids(panel)}
    assert found == {(0, 1, 2): [[0, 1, 2], [6, 7, 8]], (0, 1, 3): [[3, 4, 5]], (0,): [[9]]}


@pytest.mark.parametrize("name", ["temporal+", "temporal-", "spatial"])
def test_large_panels_are_drawn_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("grids", "fields"):
        monkeypatch.setattr(f"gpvae.missingness.{module}.CELLS", 100)
    panel = even(300, 10, 6)
    image = IMAGE if name == "spatial" else {}
    cells = MECHANISMS[name](panel, 0.4, 0, **image)
    assert deviation(panel, cells, 0.4) < 4
    assert len(np.unique(cells.reshape(300, -1), axis=0)) == 300


def lengths_of_runs(cells: Bools) -> list[int]:
    edges = np.diff(cells.astype(int), prepend=0, append=0)
    return sorted((np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)).tolist())


def with_outages(rows: int = 4000) -> Panel:
    """Single values of the first column are missing, runs of 30 in the second and third together, the last is whole."""
    values = np.random.default_rng(0).normal(size=(rows, 4))
    values[5::40, 0] = np.nan
    for first in range(100, rows - 100, 500):
        values[first : first + 30, 1:3] = np.nan
    return Panel.of(values)


def test_gaps_like_its_own() -> None:
    panel = with_outages()
    cells = missingness.like_own(panel, 0.03, 7)
    assert not (cells & ~panel.observed).any()
    assert cells.sum() == pytest.approx(0.03 * panel.observed.sum(), rel=0.1)
    assert set(lengths_of_runs(cells[:, 0])) <= {1, 2}  # two moves may meet
    assert not cells[:, 3].any()
    together = cells[:, 1] & cells[:, 2]
    assert together.sum() == cells[:, 1].sum() == cells[:, 2].sum() > 100
    assert np.mean(np.array(lengths_of_runs(together)) >= 25) > 0.6  # fewer where they meet a gap that is there
    assert (cells == missingness.like_own(panel, 0.03, 7)).all()
    assert (cells != missingness.like_own(panel, 0.03, 8)).any()


def test_a_gap_that_would_take_most_of_a_column_is_not_imitated() -> None:
    """Of a column that begins halfway, moved gaps would leave nothing to learn from."""
    values = np.random.default_rng(0).normal(size=(1000, 2))
    values[:500, 0] = np.nan
    values[::25, 1] = np.nan
    cells = missingness.like_own(Panel.of(values), 0.05, 0)
    assert not cells[:, 0].any()
    assert cells[:, 1].any()


def test_without_gaps_there_is_nothing_to_imitate() -> None:
    with pytest.raises(DataError, match="the data has no gaps to imitate"):
        missingness.like_own(even(20, 5, 2), 0.1, 0)
