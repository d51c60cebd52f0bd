"""Columns that are not real numbers: filled values have the kind of their column."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import stats
from ward import ward, with_gaps

from gpvae import DEFAULT, GPVAE, VAE, Linear, Mean, ModelConfig, Panel, load, missingness
from gpvae.data.scaling import Scaling
from gpvae.evaluation import evaluate
from gpvae.imputers.draws import Draws
from gpvae.models.encoders import Attention, Convolution
from gpvae.models.likelihoods import MixedLikelihood, PoissonLikelihood
from gpvae.training import recipe


def test_scaling_round_trip() -> None:
    rng = np.random.default_rng(0)
    columns = [rng.normal(size=50), rng.lognormal(3, 2, 50), rng.poisson(4, 50), rng.integers(0, 3, 50)]
    values = np.stack(columns, axis=1).astype(np.float64)
    values[:, 3] = np.array([1.0, 2.5, 7.0])[values[:, 3].astype(int)]
    panel = Panel.from_array(values)
    scaling = Scaling.of(panel, standardise=True, kinds=("real", "positive", "count", "ordinal"))
    scaled = scaling.apply(values)
    np.testing.assert_allclose(scaled[:, :2].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled[:, 1], np.asarray(stats.zscore(np.log(values[:, 1]))))
    assert set(scaled[:, 3]) == {0, 1, 2}
    back = scaling.undo(scaled.T.reshape(-1), np.repeat(np.arange(4), 50)).reshape(4, 50).T
    np.testing.assert_allclose(back, values)
    step = 1e-6 * values[:, 1]
    bumped = values + np.stack([np.zeros(50), step, np.zeros(50), np.zeros(50)], axis=1)
    slope = (scaling.apply(bumped) - scaled)[:, 1] / step
    np.testing.assert_allclose(scaling.log_jacobian(values)[:, 1], np.log(slope), atol=1e-5)
    assert not scaling.log_jacobian(values)[:, 2:].any()


def test_every_column_keeps_its_kind_and_is_better_than_a_guess(fitted: GPVAE) -> None:
    truth = ward()
    holey, gaps = with_gaps(truth)
    result = fitted.impute(holey, samples=100)
    filled = result.to_frame(interval=0.9)
    assert not filled[list(truth)].isna().any().any()
    for name in truth:
        assert filled[name].dtype == holey[name].dtype, name
    gap = {name: gaps[:, j] for j, name in enumerate(truth)}
    assert set(filled["unit"]) == {"heart", "lung", "skin"}
    assert (filled["unit"] == truth["unit"])[gap["unit"]].mean() > 0.6
    assert (filled["grade"] == truth["grade"])[gap["grade"]].mean() > 0.6
    assert (filled["alarm"] == truth["alarm"])[gap["alarm"]].mean() > 0.75
    visits = filled["visits"][gap["visits"]]
    assert (visits == visits.round()).all()
    assert np.abs(visits - truth["visits"][gap["visits"]]).mean() < np.abs(truth["visits"] - 3).mean()
    assert (filled["dose"] > 0).all()
    assert (filled["dose_lower"].dropna() > 0).all()
    inside = (filled["dose_lower"] <= truth["dose"]) & (truth["dose"] <= filled["dose_upper"])
    assert inside[gap["dose"]].mean() > 0.8
    whole = (filled["visits_lower"] <= truth["visits"]) & (truth["visits"] <= filled["visits_upper"])
    assert whole[gap["visits"]].mean() > 0.85
    assert filled["unit_probability"][gap["unit"]].between(0.3, 1).all()
    assert filled["unit_probability"][~gap["unit"]].isna().all()
    assert set(filled["grade_lower"].dropna()) <= {"low", "mid", "high"}
    assert list(filled)[6:] == [
        *("dose_lower", "dose_upper", "visits_lower", "visits_upper", "alarm_probability", "unit_probability"),
        *("grade_lower", "grade_upper", "heat_lower", "heat_upper"),
    ]
    assert np.isnan(result.std[:, 3][gap["unit"]]).all()


@pytest.mark.parametrize("make", [pl.from_pandas, pa.Table.from_pandas], ids=["polars", "arrow"])
def test_other_frames_keep_their_types(fitted: GPVAE, make: Any) -> None:
    frame = make(with_gaps(ward())[0])
    filled = fitted.impute(frame, samples=20).to_frame(interval=0.8)
    before, after = (each.schema for each in (frame, filled))
    names = ["dose", "visits", "alarm", "unit", "grade"]
    types = [
        (before[n], after[n]) if isinstance(before, dict) else (before.field(n).type, after.field(n).type)
        for n in names
    ]
    assert all(a == b for a, b in types)
    columns = filled.to_dict(as_series=False) if isinstance(filled, pl.DataFrame) else filled.to_pydict()
    assert set(columns["unit"]) == {"heart", "lung", "skin"}
    assert set(columns["grade_upper"]) <= {"low", "mid", "high", None}
    assert set(columns["alarm"]) == {True, False}


def test_categorical_types_are_kept(fitted: GPVAE) -> None:
    holey, _ = with_gaps(ward())
    order = pd.CategoricalDtype(["skin", "unused", "lung", "heart"])
    named = holey.assign(unit=holey["unit"].astype(order))
    filled = fitted.impute(named, samples=5).to_frame()
    assert filled["unit"].dtype == order
    assert not filled["unit"].isna().any()
    enum = pl.from_pandas(holey).with_columns(pl.col("unit").cast(pl.Enum(["skin", "lung", "heart"])))
    assert fitted.impute(enum, samples=5).to_frame()["unit"].dtype == pl.Enum(["skin", "lung", "heart"])


def test_an_ordered_categorical_keeps_its_order() -> None:
    holey, _ = with_gaps(ward(60))
    order = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    panel = Panel.from_frame(holey.assign(grade=holey["grade"].astype(order)), categories=["grade", "unit"])
    assert panel.labels == {"grade": ("low", "mid", "high"), "unit": ("heart", "lung", "skin")}


def test_probability_of_the_truth(fitted: GPVAE) -> None:
    """For classes and counts a probability; for positive values a density in the data's units."""
    truth = ward()
    holey, _ = with_gaps(truth)
    panel = Panel.from_frame(holey, categories=["alarm", "unit", "grade"])
    whole = Panel.from_frame(truth, categories=["alarm", "unit", "grade"]).with_labels(panel.labels)
    assert panel.labels["grade"] == ("high", "low", "mid")
    density = fitted.log_likelihood(panel, whole.values)
    assert np.array_equal(np.isnan(density), panel.observed)
    assert (density[:, 1:5][~panel.observed[:, 1:5]] <= 0).all()
    assert np.nanmean(density[:, 3]) > np.log(1 / 3)
    assert np.nanmean(density[:, 4]) > np.log(1 / 3)
    scale = fitted.schema_.scaling.scale[0]
    assert np.nanmean(density[:, 0]) > -np.nanmean(np.log(truth["dose"])) - np.log(scale) - 1.5


def test_save_and_load_with_kinds(fitted: GPVAE, tmp_path: Path) -> None:
    holey, _ = with_gaps(ward())
    fitted.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    pd.testing.assert_frame_equal(
        loaded.impute(holey, samples=5).to_frame(), fitted.impute(holey, samples=5).to_frame()
    )
    assert loaded.get_params() == fitted.get_params()


def test_a_level_that_new_data_does_not_have_can_be_filled_in(fitted: GPVAE) -> None:
    holey, _ = with_gaps(ward(seed=3))
    only = holey.assign(unit=holey["unit"].where(holey["unit"] != "lung"))
    filled = fitted.impute(only, samples=20).to_frame()
    assert set(filled["unit"]) == {"heart", "lung", "skin"}
    assert filled["unit"].dtype == only["unit"].dtype


def cells_of(result: Any, name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Filled values, standard deviations and draws of the missing cells of a column."""
    j = result.panel.columns.index(name)
    missing = ~result.panel.observed[:, j]
    return result.mean_rows[missing, j], result.std_rows[missing, j], result.samples[:, missing, j]


def test_moments_and_quantiles_agree_with_the_draws(fitted: GPVAE) -> None:
    result = fitted.impute(with_gaps(ward())[0], samples=4000)
    mean, std, draws = cells_of(result, "dose")
    assert (np.abs(draws.mean(0) - mean) < 6 * std / np.sqrt(4000)).all()
    np.testing.assert_allclose(draws.std(0), std, rtol=0.25)
    mean, std, draws = cells_of(result, "visits")
    assert np.array_equal(mean, np.sort(draws, axis=0)[1999])
    np.testing.assert_allclose(draws.std(0), std, rtol=0.15)
    lower, upper = (rows[:, 1][~result.panel.observed[:, 1]] for rows in result.interval_rows(0.8))
    assert (((lower <= draws) & (draws <= upper)).mean(0) >= 0.8 - 1e-9).all()
    for name in ("unit", "grade", "alarm"):
        assert np.isnan(cells_of(result, name)[1]).all()
    _, _, draws = cells_of(result, "unit")
    shares = np.stack([(draws == level).mean(0) for level in range(3)])
    assert np.array_equal(cells_of(result, "unit")[0], shares.argmax(0))
    missing = ~result.panel.observed[:, 3]
    np.testing.assert_allclose(result.probability[missing, 3], shares.max(0))


def test_quantiles_of_whole_numbers_are_rounded_outwards() -> None:
    """Of the draws 1…9, the quantile 0.15 lies between the first and the second: it is the first."""
    scaling = Scaling(np.zeros(1), np.ones(1), ("count",), ((),))
    draws = Draws(np.arange(1, 10, dtype=np.float32)[None], np.zeros(1, dtype=np.int64), scaling)
    assert draws.quantiles([0.15, 0.2, 0.5, 0.8, 0.85]).ravel().tolist() == [1, 2, 5, 8, 9]


def test_numeric_classes_have_standard_deviations_in_their_units() -> None:
    rng = np.random.default_rng(0)
    data = rng.choice([10.0, 20.0, 300.0], size=(200, 1))
    data[::4] = np.nan
    model = replace(DEFAULT, latent_dim=2, decoder_widths=(8,))
    result = GPVAE(model, kinds={"x0": [10, 20, 100, 300]}, epochs=2, device="cpu").fit(data).impute(data, samples=500)
    assert result.draws is not None
    assert result.draws.scaling.levels == ((10, 20, 100, 300),)
    missing = np.isnan(data)
    np.testing.assert_allclose(result.std[missing], result.samples[:, missing].std(0), rtol=1e-6)
    assert (result.std[missing] > 20).all()


def test_counts_start_from_the_typical_count() -> None:
    data = np.random.default_rng(0).poisson([3, 2000], size=(300, 2)).astype(float)
    data[::5] = np.nan
    model = ModelConfig(latent_dim=2, decoder_widths=(8,))
    fitted = GPVAE(model, kinds={"x0": "count", "x1": "count"}, epochs=1, device="cpu").fit(data)
    likelihood = fitted.method_.network.likelihood
    assert isinstance(likelihood, MixedLikelihood)
    poisson = likelihood.parts[0]
    assert isinstance(poisson, PoissonLikelihood)
    np.testing.assert_allclose(poisson.typical.numpy(), [3, 2000], rtol=0.1)
    assert np.abs(fitted.impute(data).mean[::5, 1] - 2000).mean() < 500


def test_intervals_of_real_columns_are_calibrated_beside_other_kinds() -> None:
    rng = np.random.default_rng(0)
    data = np.stack([rng.standard_t(3, 4000) * 5, rng.poisson(3, 4000)], axis=1)
    holey = np.where(rng.random(data.shape) < 0.2, np.nan, data)
    model = replace(DEFAULT, latent_dim=2, encoder=Attention(8), decoder_widths=(8,))
    lower, upper = GPVAE(model, kinds={"x1": "count"}, epochs=4, device="cpu").fit(holey).impute(holey).interval(0.9)
    inside = ((lower <= data) & (data <= upper))[:, 0]
    assert 0.87 < inside[np.isnan(holey[:, 0])].mean() < 0.93


def test_scores_of_categories_do_not_depend_on_the_order_of_labels() -> None:
    """Scores agree with `to_frame`; the user orders the labels of `grade`, the panel sorts them."""
    truth = ward()
    panel = Panel.from_frame(truth, categories=["unit", "grade"])
    cells = missingness.random(panel, 0.2, 0)
    model = replace(DEFAULT, latent_dim=4, encoder=Attention(32), decoder_widths=(32,))
    quick = replace(recipe.DEFAULT_RECIPE, learning_rate=2e-2)
    kinds = {"grade": ["low", "mid", "high"], "unit": "categorical"}
    methods = {"gp-vae": GPVAE(model, kinds=kinds, recipe=quick, epochs=60, device="cpu"), "linear": Linear()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = evaluate(panel, cells, methods)
    hidden = {name: cells[:, panel.columns.index(name)] for name in kinds}
    nearest = result.imputations["linear"].to_frame()
    judged = {each["name"]: each for each in result.report().summary["trust"]["classes"]}
    for name in kinds:
        right = nearest[name][hidden[name]] == truth[name][hidden[name]]
        assert judged[name]["nearest"] == pytest.approx(right.mean())
    for score in result.scores:
        filled = result.imputations[score.method].to_frame()
        right = np.concatenate([filled[name][hidden[name]] == truth[name][hidden[name]] for name in kinds])
        assert score.accuracy == pytest.approx(right.mean())
        assert right.mean() > 0.6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        visits = {"vae": GPVAE(**VAE, kinds=kinds | {"visits": "categorical"}, epochs=1, device="cpu"), "mean": Mean()}
        of_all, of_text = evaluate(panel, cells, visits).scores
    assert of_all.accuracy is not None
    assert of_text.accuracy is None  # it fills fewer columns of classes, so the shares would not compare
    dose, visits, heat = (panel.columns.index(name) for name in ("dose", "visits", "heat"))
    errors = [
        np.abs(result.imputations["linear"].mean_rows[:, j] - panel.values[:, j])[cells[:, j]]
        / np.nanstd(np.where(cells, np.nan, panel.values)[:, j])
        for j in (dose, visits, heat)
    ]
    assert result.scores[1].mae == pytest.approx(np.concatenate(errors).mean())


def test_a_vae_does_not_read_missing_classes_as_the_first_class() -> None:
    data = ward().drop(columns=["dose", "visits", "alarm", "grade"])
    data.loc[np.random.default_rng(0).random(300) < 0.6, "unit"] = None
    small = replace(VAE["model"], latent_dim=4, decoder_widths=(32,), encoder=Convolution(32, 1))
    rates = replace(VAE["recipe"], learning_rate=5e-3)
    fitted = GPVAE(small, recipe=rates, kinds={"unit": "categorical"}, epochs=150, device="cpu").fit(data)
    filled = fitted.impute(data).to_frame()
    assert (filled["unit"] == ward()["unit"])[data["unit"].isna()].mean() > 0.55


def test_an_impossible_true_value_has_density_zero(fitted: GPVAE) -> None:
    holey, _ = with_gaps(ward())
    panel = Panel.from_frame(holey, categories=["alarm", "unit", "grade"])
    truth = np.where(panel.observed, panel.values, 0.0)
    density = fitted.log_likelihood(panel, truth, samples=5)
    assert (density[~panel.observed[:, 0], 0] == -np.inf).all()
    assert np.isfinite(density[~panel.observed[:, 1], 1]).all()
