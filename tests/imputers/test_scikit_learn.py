"""Imputers as scikit-learn's transformers: its own checks, and pipelines, column transformers, grid searches."""

from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from battery import IMPUTERS, SMALL
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.metadata_routing import get_routing_for_object

from gpvae import GPVAE, Conformal, Forward, GPFactor, GPNet, Imputer, Linear, Mean, Panel, load
from gpvae.training import factor, recipe

DEFAULTS = [Mean(), Forward(), Linear(), Conformal(Linear()), GPFactor(), GPNet()]
NETWORK = GPVAE(SMALL, epochs=1, device="cpu", verbose=False)
# What scikit-learn checks and we do otherwise, with the reason.
DECLARED = {"check_parameters_default_constructible": "the default model and recipe are frozen dataclasses"}
OPTIONAL = ("check_array_api_input",)  # skipped by scikit-learn unless an environment variable is set
ON_FRAMES = (
    estimator_checks.check_dataframe_column_names_consistency,
    estimator_checks.check_n_features_in_after_fitting,
    estimator_checks.check_set_output_transform,
    estimator_checks.check_transformer_get_feature_names_out,
    estimator_checks.check_transformer_get_feature_names_out_pandas,
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks fit hundreds of times; what they check does not depend on how well."""
    monkeypatch.setattr(factor, "STEPS", 2)
    for name in ("MIN_STEPS", "ANNEALED_STEPS", "MIN_EPOCHS"):
        monkeypatch.setattr(recipe, name, 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("imputer", [*DEFAULTS, NETWORK], ids=lambda imputer: imputer.name)
def test_checks_of_scikit_learn(imputer: Imputer) -> None:
    declared = DECLARED if isinstance(imputer, GPVAE) else {}
    results = estimator_checks.check_estimator(imputer, expected_failed_checks=declared, on_skip=None, on_fail=None)
    found = {(each["check_name"], each["status"]): each["exception"] for each in results if each["status"] != "passed"}
    assert found.keys() == {*((name, "skipped") for name in OPTIONAL), *((name, "xfail") for name in declared)}, found
    assert len(results) > 40


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("check", ON_FRAMES, ids=lambda check: check.__name__)
@pytest.mark.parametrize("imputer", DEFAULTS[2:], ids=lambda imputer: imputer.name)
def test_checks_of_scikit_learn_on_frames(imputer: Imputer, check: Any) -> None:
    """Those that `check_estimator` does not run.

    Others of them fit a frame and transform an array, or the reverse. That is refused: columns are found by name.
    """
    check(type(imputer).__name__, clone(imputer))


@pytest.fixture
def table() -> pd.DataFrame:
    """Two columns that move together, with gaps, and one without."""
    rng = np.random.default_rng(0)
    wave = np.sin(np.arange(120) / 5)
    frame = pd.DataFrame({"a": wave, "b": 3 * wave + 10}).mask(rng.random((120, 2)) < 0.2)
    return frame.assign(c=wave**2)


def test_pipeline_gets_a_complete_frame(table: pd.DataFrame) -> None:
    target = 2 * table["c"] + 1
    pipeline: Any = make_pipeline(Linear(), StandardScaler(), LinearRegression()).fit(table, target)
    assert pipeline.score(table, target) > 0.99
    filled = pipeline[0].transform(table)
    pd.testing.assert_frame_equal(filled, Linear().fit(table).impute(table).to_frame())
    assert list(pipeline[:-1].get_feature_names_out()) == ["a", "b", "c"]


def test_series_and_times_are_named_in_a_pipeline(table: pd.DataFrame) -> None:
    frame = pd.concat([table.assign(who=who, hour=np.arange(120)) for who in "uv"], ignore_index=True)
    pipeline: Any = make_pipeline(Linear()).fit(frame, linear__id="who", linear__time="hour")
    assert pipeline[0].schema_.id == "who"
    expected = Linear().fit(frame, id="who").impute(frame).to_frame()  # type: ignore[call-arg]
    pd.testing.assert_frame_equal(pipeline.transform(frame), expected)
    together = Linear().fit_transform(frame, id="who", time="hour")
    pd.testing.assert_frame_equal(together, expected)


def test_column_transformer_fills_some_columns(table: pd.DataFrame) -> None:
    chosen: Any = ColumnTransformer(
        [("gaps", Linear(), ["a", "b"])], remainder="passthrough", verbose_feature_names_out=False
    )
    filled = chosen.set_output(transform="pandas").fit_transform(table)
    assert list(filled.columns) == ["a", "b", "c"]
    pd.testing.assert_frame_equal(filled, Linear().fit_transform(table))


def test_grid_search_finds_the_better_setting(table: pd.DataFrame) -> None:
    slope = pd.DataFrame({"a": np.arange(200.0), "b": np.arange(200.0) % 7})
    search = GridSearchCV(make_pipeline(Linear()), {"linear": [Mean(), Linear()]}, cv=TimeSeriesSplit(3)).fit(
        slope[["a"]]
    )
    assert isinstance(search.best_params_["linear"], Linear)
    scores = search.cv_results_["mean_test_score"]
    assert scores[1] == pytest.approx(0, abs=1e-9)
    assert scores[0] < -0.5


def test_grid_search_over_series() -> None:
    waves = np.sin(np.arange(40)[None, :, None] / 3 + np.arange(9)[:, None, None])
    search = GridSearchCV(Forward(), {"before": ["mean", "first"]}, cv=3).fit(np.repeat(waves, 2, axis=2))
    assert (search.cv_results_["mean_test_score"] < 0).all()


@pytest.mark.parametrize("name", ["linear", "gp-factor", "conformal linear", "gp-vae, positive"])
def test_score_is_the_error_of_hidden_cells(name: str, waves: Any) -> None:
    """Against the same thing done by hand."""
    from gpvae.missingness import hide, random

    imputer = IMPUTERS[name]().fit(waves)
    panel = Panel.of(waves)
    cells = random(panel, 0.1, 0)
    filled = imputer.impute(hide(panel, cells)).mean_rows
    by_hand = np.abs(filled - panel.values) / np.nanstd(panel.values, axis=0)
    assert imputer.score(waves) == pytest.approx(-by_hand[cells].mean())
    assert imputer.score(waves) == imputer.score(panel)


def test_score_counts_wrong_categories() -> None:
    frame = pd.DataFrame({"kind": ["u", "v"] * 50})
    imputer = Mean(kinds={"kind": "categorical"}).fit(frame)
    assert -1 <= imputer.score(frame) < -0.2  # the most common one is right for about half
    assert imputer.score(frame[::2]) == 0


def test_score_needs_a_column_that_varies() -> None:
    with pytest.warns(UserWarning, match="constant"):
        imputer = Linear().fit(np.ones((30, 1)))
    with pytest.raises(ValueError, match="nothing to score"):
        imputer.score(np.ones((30, 1)))


@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_output_is_of_the_kind_that_is_set(table: pd.DataFrame, container: str) -> None:
    kinds: dict[str, Any] = {"pandas": pd.DataFrame, "polars": pl.DataFrame}
    imputer = Linear().set_output(transform=container)
    for data in (table, table.to_numpy()):
        filled = imputer.fit(data).transform(data)
        assert isinstance(filled, kinds[container])
        names = ["a", "b", "c"] if data is table else ["x0", "x1", "x2"]
        assert list(cast(Any, filled).columns) == names
        with config_context(transform_output=container):
            assert isinstance(Linear().fit_transform(data), kinds[container])


def test_an_array_does_not_stand_for_a_frame(table: pd.DataFrame) -> None:
    with (
        pytest.warns(UserWarning, match="valid feature names"),
        pytest.raises(ValueError, match="the data lacks a, b, c"),
    ):
        Linear().fit(table).transform(table.to_numpy())


@pytest.mark.parametrize("shape", ["array", "rows in a list", "tensor", "series"])
def test_arrays_of_every_sort(table: pd.DataFrame, shape: str) -> None:
    values = table.to_numpy()
    expected = Linear().fit(values).transform(values)
    assert not np.isnan(expected).any()
    data: Any = {
        "array": values,
        "rows in a list": values.tolist(),
        "tensor": torch.tensor(values),
        "series": values[None],
    }[shape]
    imputer = Linear().fit(data)
    assert imputer.n_features_in_ == 3
    np.testing.assert_array_equal(np.reshape(imputer.transform(data), values.shape), expected)


def test_features_are_those_of_the_last_fit_and_saved(table: pd.DataFrame, tmp_path: Path) -> None:
    imputer = Linear().fit(table)
    assert list(imputer.feature_names_in_) == ["a", "b", "c"]
    imputer.save(tmp_path / "model")
    again = load(tmp_path / "model")
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        again.transform(table[["c", "b", "a"]])
    again.impute(table[["c", "b", "a"]])  # finds columns by their names
    imputer.fit(table.to_numpy())
    assert not hasattr(imputer, "feature_names_in_")
    with pytest.raises(ValueError, match="X has 2 features, but Linear is expecting 3 features as input"):
        imputer.transform(table.to_numpy()[:, :2])


def test_columns_with_numbers_for_names(table: pd.DataFrame) -> None:
    numbered = table.set_axis([0, 1, 2], axis=1)
    assert not Linear().fit(numbered).transform(numbered).isna().any(axis=None)


def test_data_is_not_metadata() -> None:
    """Routing offers the names of columns, and not the data itself."""
    assert {*get_routing_for_object(Linear()).fit.requests} == {"id", "time", "checkpoint", "logs"}
