"""The transformer for sktime, which need not be installed: `make test-extras` installs it and runs these tests."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpvae import GPFactor, Linear, Panel
from gpvae.training import factor

pytest.importorskip("sktime", reason="needs sktime: make test-extras")

from sktime.forecasting.naive import NaiveForecaster  # pyright: ignore[reportMissingImports]
from sktime.utils.estimator_checks import check_estimator  # pyright: ignore[reportMissingImports]

from gpvae.adapters.sktime import GapFiller

pytestmark = pytest.mark.filterwarnings("ignore")
STEPS = 24


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factor, "STEPS", 2)


def test_checks_of_sktime() -> None:
    results = check_estimator(GapFiller, verbose=False)
    assert len(results) > 200
    assert {name: outcome for name, outcome in results.items() if outcome != "PASSED"} == {}


def series(index: Any) -> pd.DataFrame:
    wave = np.sin(np.arange(STEPS) / 3)
    frame = pd.DataFrame({"a": wave, "b": 2 * wave + 1}, index=index)
    frame.iloc[5:8, 0] = frame.iloc[15, 1] = np.nan
    return frame


INDICES: dict[str, Any] = {
    "numbers": pd.RangeIndex(STEPS),
    "uneven numbers": pd.Index(np.arange(STEPS) ** 2),
    "dates": pd.date_range("2024-01-01", periods=STEPS, freq="D"),
    "periods": pd.period_range("2024-01", periods=STEPS, freq="M"),
}


@pytest.mark.parametrize("name", INDICES)
def test_a_series_is_filled_by_its_times(name: str) -> None:
    frame = series(INDICES[name])
    times = INDICES[name].to_timestamp() if name == "periods" else INDICES[name]
    by_hand = frame.reset_index(drop=True).assign(when=times)
    expected = Linear().fit(by_hand, time="when").impute(by_hand).to_frame()[["a", "b"]]  # type: ignore[call-arg]
    filled = GapFiller(Linear()).fit_transform(frame)
    assert filled.index.equals(frame.index)
    np.testing.assert_allclose(filled, expected)


def test_a_univariate_series_stays_one() -> None:
    single = series(INDICES["periods"])["a"]
    filled = GapFiller(Linear()).fit_transform(single)
    assert isinstance(filled, pd.Series)
    assert filled.notna().all()
    assert filled.name == "a"


@pytest.mark.parametrize("levels", [1, 2], ids=["panel", "hierarchy"])
def test_series_of_a_panel_share_one_model(levels: int) -> None:
    names = ["u", "v"] if levels == 1 else [("north", "u"), ("north", "v")]
    frame: Any = pd.concat({name: series(INDICES["dates"]) for name in names})
    filled = GapFiller(GPFactor()).fit_transform(frame)
    assert filled.index.equals(frame.index)
    panel = Panel.of(frame)
    assert len(panel) == 2
    np.testing.assert_allclose(filled, GPFactor().fit(panel).impute(panel).to_frame())


def test_it_stands_before_a_forecaster() -> None:
    y = series(INDICES["periods"])["a"]
    y.iloc[-1] = np.nan
    forecast = (GapFiller(Linear()) * NaiveForecaster()).fit(y, fh=[1]).predict()
    assert np.isfinite(forecast.to_numpy()).all()


def test_the_snippet_of_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "other-libraries.md").read_text(encoding="utf-8")
    (snippet,) = re.findall(r"```py\n(.*?)```", page, flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(snippet, "other-libraries.md", "exec"), names)
    assert not names["filled"].isna().any()
    assert len(names["forecaster"].predict()) == 3
