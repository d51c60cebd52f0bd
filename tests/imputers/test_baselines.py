"""Simple imputers and metrics, each against a slow loop or its definition."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpvae import Forward, Imputer, Linear, Mean, load
from gpvae.data.panel import Floats, Panel
from gpvae.imputers import simple


def slow_mean(times: Floats, values: Floats, seen: Any) -> Floats:
    return np.full(len(times), values[seen].mean())


def slow_forward(times: Floats, values: Floats, seen: Any) -> Floats:
    places = np.flatnonzero(seen)
    return np.array([values[max((k for k in places if k <= i), default=places[0])] for i in range(len(times))])


def carried_back(panel: Panel, fallback: Floats) -> Floats:
    return simple.forward(panel, fallback, backfill=True)


def slow_linear(times: Floats, values: Floats, seen: Any) -> Floats:
    return np.interp(times, times[seen], values[seen])


METHODS = [(simple.mean, slow_mean), (carried_back, slow_forward), (simple.linear, slow_linear)]


def slowly(panel: Panel, method: Callable[..., Floats]) -> Floats:
    """One series and one column at a time."""
    filled = panel.values.copy()
    for j in range(len(panel.columns)):
        column = panel.values[:, j]
        elsewhere = column[~np.isnan(column)].mean() if not np.isnan(column).all() else np.nan
        for _, rows in panel.series():
            values, seen = column[rows], ~np.isnan(column[rows])
            other = method(panel.times[rows], values, seen) if seen.any() else np.full(len(values), elsewhere)
            filled[rows, j] = np.where(seen, values, other)
    return filled


def fallback(panel: Panel) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.nansum(panel.values, axis=0) / panel.observed.sum(axis=0)


def ragged(seed: int) -> Panel:
    """Irregular times, lengths from 1 to 12; one empty series, one empty column, one complete column."""
    rng = np.random.default_rng(seed)
    lengths = [1, 1, *rng.integers(1, 13, size=8)]
    series = [np.where(rng.random((n, 5)) < 0.6, np.nan, 10 + rng.normal(size=(n, 5))) for n in lengths]
    for values in series:
        values[:, 3] = np.nan
        values[:, 4] = rng.normal(size=len(values))
    series[seed % len(series)][:] = np.nan
    return Panel.from_list(series, times=[np.cumsum(rng.exponential(size=n)) - 5 for n in lengths])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("fast", "slow"), METHODS)
def test_baselines_equal_a_loop(
    fast: Callable[[Panel, Floats], Floats], slow: Callable[..., Floats], seed: int
) -> None:
    panel = ragged(seed)
    filled = fast(panel, fallback(panel))
    np.testing.assert_allclose(filled, slowly(panel, slow), rtol=1e-12)
    np.testing.assert_array_equal(filled[panel.observed], panel.values[panel.observed])
    assert np.isnan(filled[:, 3]).all()
    assert np.isfinite(np.delete(filled, 3, axis=1)).all()


@pytest.mark.parametrize("fast", [method for method, _ in METHODS])
def test_baselines_of_complete_and_of_single_values(fast: Callable[[Panel, Floats], Floats]) -> None:
    full = Panel.of(np.random.default_rng(0).normal(size=(3, 4, 2)))
    np.testing.assert_array_equal(fast(full, fallback(full)), full.values)
    empty = full.with_values(np.full_like(full.values, np.nan))
    np.testing.assert_array_equal(fast(empty, np.array([4.0, np.nan]))[:, 0], 4.0)
    single = Panel.of(np.array([[1.5], [np.nan], [np.nan]]))
    np.testing.assert_array_equal(fast(single, fallback(single)), np.full((3, 1), 1.5))


def test_forward_has_a_choice_before_the_first_observation() -> None:
    data = np.array([[[np.nan], [2.0], [np.nan]], [[6.0], [np.nan], [7.0]], [[np.nan], [np.nan], [np.nan]]])
    for before, (start, empty) in {"mean": (5.0, 5.0), "first": (2.0, 5.0), 0.0: (0.0, 0.0)}.items():
        filled = Forward(before).fit(data).impute(data).mean[..., 0]
        assert filled.tolist() == [[start, 2, 2], [6, 6, 7], [empty] * 3]
    with pytest.raises(ValueError, match="before must be 'mean', 'first' or a number, got 'last'"):
        Forward("last").fit(data)  # type: ignore[arg-type]


SKY = {
    "Mean": ["wet", "wet", "ice", "wet", "dry", "wet", "wet", "dry", "dry", "wet", "wet", "wet"],
    "Forward": ["wet", "wet", "ice", "ice", "dry", "wet", "wet", "wet", "dry", "wet", "wet", "wet"],
    "Linear": ["wet", "wet", "ice", "dry", "dry", "wet", "wet", "dry", "dry", "wet", "wet", "wet"],
}
SIMPLE: list[Imputer] = [Mean(), Forward(), Forward(before=5.0), Linear()]


def weather() -> pd.DataFrame:
    """Series c has no sky at all and b none at its start; in a, one gap is halfway and one closer to the next value.

    The most common label, overall and in a, is wet: neither the first label nor the mean of their codes.
    """
    return pd.DataFrame(
        {
            "series": [*"aaaaaaa", *"bb", *"ccc"],
            "t": [0, 1, 2, 4, 5, 6, 7, 0, 1, 0, 1, 2],
            "x": [1.0, np.nan, 3.0, 4.0, np.nan, 2.0, 2.0, 2.0, np.nan, 5.0, 6.0, 7.0],
            "sky": ["wet", None, "ice", None, "dry", "wet", "wet", None, "dry", None, None, None],
        }
    )


def panel_of(frame: pd.DataFrame) -> Panel:
    text = [name for name in frame.columns if name in ("sky", "constant", "none")]
    return Panel.from_frame(frame, id="series", time="t", categories=text)


@pytest.mark.parametrize("imputer", SIMPLE, ids=repr)
def test_text_gets_the_most_common_the_last_or_the_nearest_label(imputer: Imputer, tmp_path: Path) -> None:
    frame = weather()
    panel = panel_of(frame)
    imputer.fit(panel).save(tmp_path / "model")
    filled, again = (each.impute(panel).to_frame() for each in (imputer, load(tmp_path / "model")))
    assert filled["sky"].tolist() == SKY[imputer.name]
    assert again.equals(filled)
    numbers = panel_of(frame.drop(columns="sky"))
    assert filled["x"].equals(imputer.fit(numbers).impute(numbers).to_frame()["x"])


@pytest.mark.filterwarnings("ignore:column")
@pytest.mark.parametrize("imputer", SIMPLE, ids=repr)
def test_constant_text_is_still_text(imputer: Imputer) -> None:
    """Constant in the data to fill, or in the training data, which still knows all labels."""
    frame = weather().assign(constant=["dry", None] * 6, none=[None] * 12)
    panel = panel_of(frame.astype({"none": object}))
    filled = imputer.fit(panel).impute(panel).to_frame()
    assert filled["constant"].tolist() == ["dry"] * 12
    assert filled["none"].isna().all()
    only_ice = panel.values.copy()
    sky = panel.columns.index("sky")
    only_ice[only_ice[:, sky] != panel.labels["sky"].index("ice"), sky] = np.nan
    filled = imputer.fit(panel.with_values(only_ice)).impute(panel).to_frame()
    assert filled["sky"].tolist()[:7] == SKY[imputer.name][:7]


@pytest.mark.parametrize("imputer", SIMPLE, ids=repr)
def test_numbers_can_be_categories(imputer: Imputer, tmp_path: Path) -> None:
    codes = {"dry": 30.0, "ice": 10.0, "wet": 20.0}
    frame = weather()
    panel = panel_of(frame.assign(x=[codes.get(label, np.nan) for label in frame["sky"]]).drop(columns="sky"))
    imputer.set_params(kinds={"x": "categorical"}).fit(panel).save(tmp_path / "model")
    imputer.set_params(kinds=None)
    again: Any = load(tmp_path / "model")
    assert again.kinds == {"x": "categorical"}
    assert again.impute(panel).to_frame()["x"].tolist() == [codes[label] for label in SKY[imputer.name]]


def test_linear_interpolates_in_time() -> None:
    panel = Panel.from_array(np.array([[0.0], [np.nan], [10.0], [np.nan]]), times=[0, 1, 10, 20])
    np.testing.assert_array_equal(simple.linear(panel, np.zeros(1))[:, 0], [0, 1, 10, 10])
