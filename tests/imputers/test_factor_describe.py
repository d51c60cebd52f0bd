"""What a `GPFactor` says that it found, on data whose making is known."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpvae import Conformal, GPFactor, Linear, Panel, load
from gpvae.data.panel import Floats
from gpvae.data.schema import Schema
from gpvae.imputers.findings import SharedSeries, _patterns

HOURS, DAYS = 1000, 700


def slow(rows: int, memory: float, seed: int) -> Floats:
    """An exponential process of unit variance."""
    x, keep = np.random.default_rng(seed).normal(size=rows), np.exp(-1 / memory)
    for t in range(1, rows):
        x[t] = keep * x[t - 1] + np.sqrt(1 - keep**2) * x[t]
    return x


def with_gaps(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.mask(np.random.default_rng(9).random(frame.shape) < 0.1)


def hourly() -> pd.DataFrame:
    """A day and a week in three columns, a slow series that two of them share with different signs."""
    t, rng = np.arange(HOURS), np.random.default_rng(1)
    day, week, shared = np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 168), slow(HOURS, 40, 2)
    columns = {
        "power": 1.5 * shared + 2 * day + 0.8 * week + 0.3 * rng.normal(size=HOURS),
        "heat": 90 - 2 * shared + day + 0.3 * rng.normal(size=HOURS),
        "price": week + 0.2 * day + 0.2 * rng.normal(size=HOURS),
    }
    return with_gaps(pd.DataFrame(columns)).assign(when=pd.date_range("2024-01-01", periods=HOURS, freq="h"))


def daily() -> pd.DataFrame:
    """A trend, a temperature in two units."""
    rng = np.random.default_rng(2)
    celsius = (20 + 5 * slow(DAYS, 20, 3)).round(1)
    columns = {
        "co2": 300 + 0.05 * np.arange(DAYS) + 0.5 * rng.normal(size=DAYS),
        "celsius": celsius,
        "kelvin": 273.15 + celsius,
    }
    return with_gaps(pd.DataFrame(columns)).assign(day=pd.date_range("2020-01-01", periods=DAYS))


@pytest.fixture(scope="module")
def fitted() -> dict[str, GPFactor]:
    noise = np.random.default_rng(3).normal(size=(500, 3))
    tables: dict[str, Any] = {
        "hourly": hourly(),
        "steps": hourly().drop(columns="when"),
        "daily": daily(),
        "noise": noise,
        "walks": np.cumsum(noise, axis=0),
        "one": noise[:, :1],
    }
    return {name: GPFactor().fit(table) for name, table in tables.items()}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("hourly", r"Found: a daily and a weekly pattern; [1-3] series that columns share\."),
        ("steps", r"Found: periods of 24 steps and 16\d steps; [1-3] series that columns share\."),
        ("noise", r"Found no pattern that columns share\."),
        ("walks", r"Found no pattern that columns share\."),
        ("one", r"Found no pattern\."),
    ],
)
def test_one_sentence(fitted: dict[str, GPFactor], name: str, sentence: str) -> None:
    (found,) = fitted[name].describe()
    assert re.fullmatch(sentence, found)


def test_trend_and_relation(fitted: dict[str, GPFactor]) -> None:
    found = fitted["daily"].findings()
    assert found.trends == ("co2",)
    (relation,) = found.relations
    assert relation.equation in ("kelvin = 273.15 + celsius", "celsius = −273.15 + kelvin")
    assert abs(relation.constant) == pytest.approx(273.15, abs=0.01)
    assert [*relation.weights.values()] == pytest.approx([1], abs=1e-4)
    end = f"a trend in co2; {relation.column} is determined by {next(iter(relation.weights))}."
    assert found.sentence.endswith(end)


def test_periods_of_numbered_rows_are_in_steps(fitted: dict[str, GPFactor]) -> None:
    patterns = fitted["steps"].findings().patterns
    assert [each.name for each in patterns] == [None, None]
    assert [each.period for each in patterns] == pytest.approx([168, 24], rel=0.02)
    assert patterns[1].words == "24 steps"


def test_periods_of_dates_are_in_seconds(fitted: dict[str, GPFactor]) -> None:
    patterns = fitted["hourly"].findings().patterns
    assert [(each.name, each.blocks, each.overtone) for each in patterns] == [("weekly", 1, False), ("daily", 1, False)]
    assert [each.period / 3600 for each in patterns] == pytest.approx([168, 24], rel=0.02)


def test_shares_are_those_of_the_making(fitted: dict[str, GPFactor]) -> None:
    found = fitted["hourly"].findings()
    assert found.columns == ("power", "heat", "price")
    np.testing.assert_allclose(found.shares.sum(axis=0), 1)
    expected = {  # variances of power, heat and price
        None: np.array([2.25, 4, 0]) * slow(HOURS, 40, 2).var(),
        "daily": np.array([2, 0.5, 0.02]),
        "weekly": np.array([0.32, 0, 0.5]),
    }
    total = sum(expected.values()) + np.array([0.09, 0.09, 0.04])
    for rhythm, variance in expected.items():
        chosen = [each.rhythm == rhythm for each in found.latents]
        np.testing.assert_allclose(found.shares[:-2][chosen].sum(axis=0), variance / total, atol=0.15)
    assert found.shares[-1].tolist() == pytest.approx((np.array([0.09, 0.09, 0.04]) / total).tolist(), abs=0.05)
    importance = (found.shares[:-2] ** 2).sum(axis=1)
    assert (np.diff(importance) <= 0).all()


def test_white_noise_has_noise_only(fitted: dict[str, GPFactor]) -> None:
    found = fitted["noise"].findings()
    assert found.latents == found.patterns == found.trends == found.relations == ()
    assert (found.shares[-1] > 0.9).all()
    assert "predicted neither from other columns nor from other times" in found.conclusion


def test_conclusion_names_the_largest_share(fitted: dict[str, GPFactor]) -> None:
    found = fitted["hourly"].findings()
    k, j = np.unravel_index(found.shares[:-2].argmax(), found.shares[:-2].shape)
    assert found.conclusion.startswith(
        f"{100 * found.shares[k, j]:.0f} % of {found.columns[j]}'s variance goes with latent {k + 1} ("
    )
    assert "gaps are filled mostly by what columns share" in found.conclusion


def test_latents_are_the_series_that_the_data_was_made_of(fitted: dict[str, GPFactor]) -> None:
    table, method = hourly(), fitted["hourly"]
    latents, found = method.latents(table), method.findings()
    assert latents.mean.shape == latents.std.shape == (HOURS, len(found.latents))
    assert ((latents.std > 0) & (latents.std <= 1)).all()
    t, rhythms = np.arange(HOURS), [each.rhythm for each in found.latents]
    day, week = np.sin(2 * np.pi * t / 24), np.cos(2 * np.pi * t / 168)  # with the phase of the columns
    assert np.corrcoef(latents.mean[:, rhythms.index("daily")], day)[0, 1] > 0.95
    assert np.corrcoef(latents.mean[:, rhythms.index("weekly")], week)[0, 1] > 0.95
    fall = -slow(HOURS, 40, 2)  # it matters most to heat, where its weight is negative
    assert np.corrcoef(latents.mean[:, rhythms.index(None)], fall)[0, 1] > 0.8


def test_latents_of_a_series_do_not_depend_on_others(fitted: dict[str, GPFactor]) -> None:
    method, names = fitted["steps"], ["power", "heat", "price"]
    table = hourly()[names].assign(series=np.arange(HOURS) >= 300)
    together = method.latents(Panel.from_frame(table, id="series", columns=names))
    alone = method.latents(table[names][300:])
    np.testing.assert_allclose(together.mean[300:], alone.mean, atol=1e-6)
    np.testing.assert_allclose(together.std[300:], alone.std, atol=1e-6)


def test_columns_that_do_not_vary_have_no_shares(waves: Any) -> None:
    still = waves.copy()
    still[..., 1] = 7.0
    with pytest.warns(UserWarning, match="'x1' is constant"):
        found = GPFactor().fit(still).findings()
    assert np.isnan(found.shares[:, 1]).all()
    np.testing.assert_allclose(found.shares[:, [0, 2]].sum(axis=0), 1)


@pytest.mark.filterwarnings("ignore:.*is constant")
def test_nothing_varies() -> None:
    method = GPFactor().fit(np.ones((20, 2)))
    assert method.describe() == ["Found no pattern that columns share."]
    assert method.latents(np.ones((20, 2))).mean.shape == (20, 0)
    assert method.findings().conclusion == "No column varies."


def test_wide_tables_have_latents_in_every_block() -> None:
    rng = np.random.default_rng(4)
    shared = np.stack([slow(150, 10, seed) for seed in range(2)], axis=1)
    x = np.repeat(shared, 22, axis=1) + 0.3 * rng.normal(size=(150, 44))
    method = GPFactor().fit(x)
    found, latents = method.findings(), method.latents(x)
    assert len(method.blocks_) == 2
    assert {each.block for each in found.latents} == {0, 1}
    assert latents.mean.shape == (150, len(found.latents))
    for number, block in enumerate(method.blocks_):
        own = np.array([each.block == number for each in found.latents])
        assert not found.shares[:-2][~own][:, block.columns].any()
        fit, *_ = np.linalg.lstsq(latents.mean[:, own], shared, rcond=None)
        left = np.var(shared - latents.mean[:, own] @ fit, axis=0) / np.var(shared, axis=0)
        assert left.min() < 0.1


def test_patterns_of_several_blocks_count_once_and_overtones_belong_to_longer_ones() -> None:
    hour = 3600.0
    schema = Schema.of(Panel.from_frame(hourly()), standardise=True)
    periods = [(24.2, 0, 1e9), (23.9, 1, 1e9), (12, 1, 1e9), (37, 1, 1e9), (20, 0, 3.0)]
    series = [
        SharedSeries("oscillator", length * hour, period * hour, block, None, "") for period, block, length in periods
    ]
    found = _patterns([*series, SharedSeries("exponential", 1e9, None, 0, None, "")], schema)
    assert [(each.words, each.name, each.blocks, each.overtone) for each in found] == [
        ("37 hours", None, 1, False),
        ("24.1 hours", "daily", 2, False),
        ("12 hours", None, 1, True),
    ]  # waves that last for less than a period are not a pattern


def test_description_is_saved_with_the_model(fitted: dict[str, GPFactor], tmp_path: Path) -> None:
    fitted["daily"].save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.describe() == fitted["daily"].describe()
    assert isinstance(again, GPFactor)
    np.testing.assert_array_equal(again.findings().shares, fitted["daily"].findings().shares)


@pytest.mark.parametrize("wrap", [lambda x: x, Conformal], ids=["alone", "conformal"])
def test_every_method_can_be_asked(wrap: Callable[[Any], Any], waves: Any) -> None:
    linear, factor = wrap(Linear()).fit(waves), wrap(GPFactor()).fit(waves)
    assert linear.describe() == linear.facts() == []
    assert linear.latent_view() is None
    assert factor.describe()[0].startswith("Found")
    assert dict(factor.facts())["shared latent series"] == str(len(factor.latent_view().names))
