"""One battery for all missingness mechanisms."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from panels import IMAGE, deviation, even, ragged

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Panel
from gpvae.missingness import MECHANISMS, fields
from gpvae.missingness.grids import grids

Mechanism = Callable[..., Bools]


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
every_mechanism = pytest.mark.parametrize("mechanism", CASES)


PANELS = {
    "ragged": ragged(1, series=250),
    "short": even(300, 10, 6),
    "longer": even(100, 40, 6),
    "single steps": even(1500, 1, 6),
    "seconds": Panel.from_array(even(200, 7, 6).values.reshape(200, 7, 6), times=np.arange(7) * 3600.0),
}


@every_mechanism
@pytest.mark.parametrize("rate", [0.05, 0.3, 0.6])
@pytest.mark.parametrize("name", PANELS)
def test_observed_cells_are_removed_at_the_given_rate(mechanism: Mechanism, name: str, rate: float) -> None:
    panel = PANELS[name]
    cells = mechanism(panel, rate, 0)
    assert cells.shape == panel.values.shape
    assert cells.dtype == bool
    assert not (cells & ~panel.observed).any()
    assert deviation(panel, cells, rate) < 4


@every_mechanism
@pytest.mark.parametrize("name", PANELS)
def test_the_result_depends_on_the_seed_alone(mechanism: Mechanism, name: str) -> None:
    panel, before = PANELS[name], PANELS[name].values.copy()
    first = mechanism(panel, 0.4, 0)
    np.testing.assert_array_equal(first, mechanism(panel, 0.4, 0))
    assert (first != mechanism(panel, 0.4, 1)).any()
    assert (mechanism(panel, 0.4, [0, 1]) != mechanism(panel, 0.4, [0, 2])).any()
    np.testing.assert_array_equal(panel.values, before)


@every_mechanism
def test_the_global_random_state_is_unchanged(mechanism: Mechanism) -> None:
    np.random.seed(0)
    mechanism(ragged(0), 0.4, 3)
    assert np.random.random() == np.random.RandomState(0).random()


@every_mechanism
@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_rate_outside_0_and_1_is_refused(mechanism: Mechanism, rate: float) -> None:
    with pytest.raises(DataError, match=f"must be between 0 and 1, got {rate}"):
        mechanism(ragged(0), rate, 0)


@every_mechanism
def test_a_panel_without_values_is_refused(mechanism: Mechanism) -> None:
    with pytest.raises(DataError, match="observed cells"):
        mechanism(Panel.of(np.full((3, 6), np.nan)), 0.5, 0)


@pytest.mark.parametrize("name", ["spatial", "temporal+", "temporal-"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_length_scales_and_jitter_are_refused(name: str, value: float) -> None:
    mechanism = partial(MECHANISMS[name], ragged(0), 0.5, 0, **IMAGE if name == "spatial" else {})
    with pytest.raises(DataError, match=f"length_scale must be positive and finite, got {value}"):
        mechanism(length_scale=value)
    with pytest.raises(DataError, match=f"jitter must be at least 1e-12 and finite, got {value}"):
        mechanism(jitter=value)


def test_too_little_jitter_is_an_error() -> None:
    uneven = np.sort(np.random.default_rng(0).random(fields.BLOCK))
    fields.dense_paths(uneven, 1000.0, 1e-12)  # enough for a Cholesky factor
    with pytest.raises(DataError, match=r"no process on 60 steps .* more jitter"):
        missingness.temporal_negative(even(1, 60, 1), 0.9, 0, length_scale=1000.0, jitter=1e-12)


def test_series_are_grouped_by_their_grid() -> None:
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
