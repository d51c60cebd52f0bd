"""Columns that are not real numbers: their likelihoods, and that what comes out is of the kind that went in."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Generator, Tensor

from gpvae import BRITS, GPVAE, VAE, Conformal, DataError, Linear, Mean, ModelConfig, Panel, load, missingness, read
from gpvae.data.files import read_table
from gpvae.data.scaling import Scaling
from gpvae.evaluation import evaluate
from gpvae.imputers.imputation import Draws
from gpvae.models.distributions import (
    Bernoulli,
    Categorical,
    Gaussian,
    Likelihood,
    Ordinal,
    PerColumn,
    Poisson,
    likelihood_for,
)
from gpvae.models.model import PLAIN, LatentModel

LIKELIHOODS: dict[str, tuple[Likelihood, list[int]]] = {  # with the levels of each feature; for counts, enough of them
    "binary": (Bernoulli(3), [2, 2, 2]),
    "count": (Poisson([0.5, 3.0]), [60, 60]),
    "ordinal": (Ordinal(3, 5), [5, 5, 5]),
    "two in order": (Ordinal(2, 2), [2, 2]),
    "categorical": (Categorical(2, 4), [4, 4]),
}


def decoded(likelihood: Likelihood, seed: int = 0) -> Tensor:
    return torch.randn((7, likelihood.outputs), generator=Generator().manual_seed(seed)).double()


def doubled(name: str) -> tuple[Any, list[int]]:
    likelihood, levels = LIKELIHOODS[name]
    assert isinstance(likelihood, torch.nn.Module)
    return likelihood.double(), levels


def probabilities(likelihood: Likelihood, z: Tensor, feature: int, level: int, features: int) -> Tensor:
    values = torch.zeros(7, features).double()
    values[:, feature] = level
    return likelihood.log_prob(z, values)[:, feature].exp()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_probabilities_add_up_to_one_and_moments_are_theirs(name: str) -> None:
    likelihood, levels = doubled(name)
    z = decoded(likelihood)
    for j, count in enumerate(levels):
        p = torch.stack([probabilities(likelihood, z, j, k, len(levels)) for k in range(count)])
        torch.testing.assert_close(p.sum(0), torch.ones(7).double())
        if name == "categorical":
            assert torch.equal(likelihood.mean(z)[:, j], p.argmax(0).double())
            continue
        k = torch.arange(count).double().unsqueeze(-1)
        mean = (k * p).sum(0)
        torch.testing.assert_close(likelihood.mean(z)[:, j], mean)
        torch.testing.assert_close(likelihood.variance(z)[:, j], (k**2 * p).sum(0) - mean**2)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_samples_are_drawn_with_their_probabilities(name: str) -> None:
    likelihood, levels = doubled(name)
    z, n = decoded(likelihood), 20_000
    drawn = likelihood.sample(z.expand(n, 7, -1), Generator().manual_seed(1))
    for j, count in enumerate(levels):
        for k in range(min(count, 6)):
            p = probabilities(likelihood, z, j, k, len(levels))
            share = (drawn[..., j] == k).double().mean(0)
            assert ((share - p).abs() < 5 * (p * (1 - p) / n).sqrt() + 1e-9).all()


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_gradients_of_the_log_probability(name: str) -> None:
    likelihood, levels = doubled(name)
    z = decoded(likelihood).requires_grad_()
    values = torch.stack([torch.arange(7) % count for count in levels], dim=-1).double()
    assert torch.autograd.gradcheck(lambda x: likelihood.log_prob(x, values), z)
    extreme = (1e3 * decoded(likelihood)).requires_grad_()
    log_prob = likelihood.log_prob(extreme, values)
    assert log_prob.isfinite().all()
    assert (log_prob <= 1e-9).all()
    assert torch.autograd.grad(log_prob.sum(), extreme)[0].isfinite().all()


def test_poisson_is_scipys() -> None:
    likelihood, _ = doubled("count")
    z, x = decoded(likelihood), torch.tensor([[0.0, 4.0]]).double()
    expected = stats.poisson.logpmf(x.numpy(), likelihood.rate(z).numpy())
    np.testing.assert_allclose(likelihood.log_prob(z, x).numpy(), expected, rtol=1e-9)
    assert likelihood.rate(torch.zeros(2).double()).tolist() == pytest.approx([0.5, 3.0], rel=1e-4)


@pytest.mark.parametrize("count", [0, 3, 10**5, 10**7])
def test_poisson_of_large_counts_in_single_precision(count: int) -> None:
    likelihood = Poisson([max(count, 1.0)])
    z = torch.linspace(-0.001, 0.001, 5).unsqueeze(-1)
    found = likelihood.log_prob(z, torch.full((5, 1), float(count)))
    expected = stats.poisson.logpmf(count, likelihood.rate(z).double().numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)


def test_many_columns_of_classes_are_cheap() -> None:
    """A column with many levels does not make the others wide: groups of one size go together."""
    kinds, levels = ["categorical"] * 30 + ["ordinal"] * 3, [3] * 29 + [90] + [4, 4, 5]
    likelihood = likelihood_for(kinds, levels, "gaussian", None)
    assert likelihood.outputs == 29 * 3 + 90 + 3
    assert sorted(len(group) for _, group in likelihood.groups()) == [1, 1, 2, 29]
    z = torch.randn((4, likelihood.outputs), generator=Generator().manual_seed(0))
    drawn = likelihood.sample(z, Generator().manual_seed(1))
    assert (drawn.max(0).values < torch.tensor(levels)).all()
    model = LatentModel(ModelConfig(latent_dim=2, decoder_widths=(4,), encoder_filters=8), 33, kinds, levels)
    assert model.widest >= sum(levels)


def test_what_the_encoder_sees() -> None:
    observed = torch.tensor([[True, True], [True, False]])
    likelihood = Categorical(2, 3)
    seen = likelihood.seen(torch.tensor([[2.0, 1.0], [0.0, 0.0]]), observed)
    assert seen.tolist() == [[0, 0, 1, 0, 1, 0], [1, 0, 0, 0, 0, 0]]
    ordinal = Ordinal(2, 3).seen(torch.tensor([[2.0, 1.0], [1.0, 0.0]]), observed)
    assert ordinal.tolist() == [[1, 0], [0, 0]]


def test_columns_are_told_apart() -> None:
    parts: list[tuple[Likelihood, list[int]]] = [(Gaussian(2), [3, 0]), (Categorical(1, 3), [1]), (Poisson([2.0]), [2])]
    mixed = PerColumn(parts, 4)
    assert (mixed.outputs, mixed.inputs) == (6, 6)
    z = torch.randn((5, 6), generator=Generator().manual_seed(0))
    x = torch.tensor([[0.3, 2.0, 4.0, -1.0]]).expand(5, 4)
    log_prob = mixed.log_prob(z, x)
    torch.testing.assert_close(log_prob[:, [3, 0]], parts[0][0].log_prob(z[:, :2], x[:, [3, 0]]))
    torch.testing.assert_close(log_prob[:, [1]], parts[1][0].log_prob(z[:, 2:5], x[:, [1]]))
    torch.testing.assert_close(log_prob[:, [2]], parts[2][0].log_prob(z[:, 5:], x[:, [2]]))
    assert mixed.sample(z, Generator().manual_seed(0)).shape == (5, 4)
    with pytest.raises(ValueError, match="every one of 4 features needs one likelihood"):
        PerColumn(parts[:2], 4)


def test_scaling_there_and_back() -> None:
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


def ward(rows: int = 300, seed: int = 0) -> pd.DataFrame:
    """Patients of a ward: everything follows one hidden wave."""
    rng = np.random.default_rng(seed)
    wave = np.sin(np.arange(rows) / 6 + rng.uniform(0, 6))
    level = np.digitize(wave + 0.1 * rng.normal(size=rows), [-0.5, 0.5])
    return pd.DataFrame(
        {
            "dose": np.exp(2 + wave + 0.1 * rng.normal(size=rows)),
            "visits": rng.poisson(np.exp(1 + wave)).astype(float),
            "alarm": wave + 0.2 * rng.normal(size=rows) > 0,
            "unit": np.array(["heart", "lung", "skin"])[level],
            "grade": np.array(["low", "mid", "high"])[level],
            "heat": 37 + wave + 0.1 * rng.normal(size=rows),
        }
    )


KINDS: dict[str, Any] = {
    "dose": "positive",
    "visits": "count",
    "alarm": "binary",
    "unit": "categorical",
    "grade": ["low", "mid", "high"],
}


def with_gaps(frame: pd.DataFrame, share: float = 0.2) -> tuple[pd.DataFrame, NDArray[np.bool_]]:
    gaps = np.random.default_rng(9).random(frame.shape) < share
    holey = frame.astype({"alarm": object}).mask(gaps)
    return holey.assign(alarm=holey["alarm"].astype("boolean")), gaps


@pytest.fixture(scope="module")
def fitted() -> GPVAE:
    model = ModelConfig(latent_dim=4, encoder_filters=32, encoder_window=9, encoder_widths=(32,), decoder_widths=(32,))
    holey, _ = with_gaps(ward())
    return GPVAE(model, kinds=KINDS, epochs=150, learning_rate=5e-3, device="cpu").fit(holey)


def test_every_column_comes_back_as_its_kind_and_better_than_by_guessing(fitted: GPVAE) -> None:
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


def test_dictionary_types_are_kept(fitted: GPVAE) -> None:
    holey, _ = with_gaps(ward())
    order = pd.CategoricalDtype(["skin", "unused", "lung", "heart"])
    named = holey.assign(unit=holey["unit"].astype(order))
    filled = fitted.impute(named, samples=5).to_frame()
    assert filled["unit"].dtype == order
    assert not filled["unit"].isna().any()
    enum = pl.from_pandas(holey).with_columns(pl.col("unit").cast(pl.Enum(["skin", "lung", "heart"])))
    assert fitted.impute(enum, samples=5).to_frame()["unit"].dtype == pl.Enum(["skin", "lung", "heart"])


def test_order_of_a_categorical_is_its_order() -> None:
    holey, _ = with_gaps(ward(60))
    order = pd.CategoricalDtype(["low", "mid", "high"], ordered=True)
    panel = Panel.from_frame(holey.assign(grade=holey["grade"].astype(order)), categories=["grade", "unit"])
    assert panel.labels == {"grade": ("low", "mid", "high"), "unit": ("heart", "lung", "skin")}


def test_probability_of_the_truth(fitted: GPVAE) -> None:
    """Of classes and counts it is a probability; of a positive value a density in its own units."""
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


def test_level_that_does_not_occur_in_new_data(fitted: GPVAE) -> None:
    """A model may fill in a category that the new table does not have yet."""
    holey, _ = with_gaps(ward(seed=3))
    only = holey.assign(unit=holey["unit"].where(holey["unit"] != "lung"))
    filled = fitted.impute(only, samples=20).to_frame()
    assert set(filled["unit"]) == {"heart", "lung", "skin"}
    assert filled["unit"].dtype == only["unit"].dtype


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dose": 0.0}, r"column 'dose' is positive, so it must hold numbers above 0, got 0 \(row 8\)"),
        (
            {"visits": 1.5},
            r"column 'visits' is count, so it must hold whole numbers from 0 to 16,777,216, got 1.5 \(row 8\)",
        ),
        ({"visits": 1e8}, r"column 'visits' is count, so it must hold whole numbers from 0 to 16,777,216, got 1e\+08"),
        (
            {"unit": "brain"},
            r"column 'unit' holds 'brain' \(row 8\), which is not among its known labels: 'heart', 'lung', 'skin'",
        ),
    ],
)
def test_values_that_do_not_suit_their_column(change: dict[str, Any], message: str, fitted: GPVAE) -> None:
    frame = ward()
    for name, value in change.items():
        frame.loc[7, name] = value
    with pytest.raises(DataError, match=message):
        fitted.impute(frame)
    if "unit" not in change:
        with pytest.raises(DataError, match=message):
            GPVAE(kinds=KINDS, device="cpu").fit(frame)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (
            {"colour": "count"},
            "'colour', but there is no such column of numbers; the columns are dose, visits, heat",
        ),
        (
            {"unit": "count"},
            "kinds names a column 'unit', but there is no such column of numbers; the columns are dose, visits, heat",
        ),
        ({"unit": "magic"}, "the kind of column 'unit' must be one of real, positive, .*, got 'magic'"),
        ({"dose": "magic"}, "the kind of column 'dose' must be one of real, positive, .*, got 'magic'"),
        ({"visits": "binary"}, "column 'visits' is binary, so it must have 2 different values, got"),
        ({"heat": "categorical"}, "column 'heat' is categorical, so it must have at most 100 different values, got"),
        ({"visits": [3, 1, 2]}, "the levels of column 'visits' are numbers and must increase"),
        ({"grade": "ordinal"}, "column 'grade' is text, so its order is unknown"),
        ({"grade": ["low", "low", "high"]}, "column 'grade' must have at least two different levels"),
        ({"visits": [0, 1, 2, 3]}, "column 'visits' is ordinal, so it must hold one of 0, 1, 2, 3, got "),
        (
            {"grade": ["low", "high"]},
            "column 'grade' holds 'mid' .* which is not among its known labels: 'low', 'high'",
        ),
    ],
    ids=str,
)
def test_kinds_that_make_no_sense(kinds: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        GPVAE(kinds=kinds, device="cpu").fit(ward())


def test_kinds_need_a_mapping_and_a_gaussian() -> None:
    with pytest.raises(TypeError, match="kinds names columns and their kinds"):
        GPVAE(kinds=["count"], device="cpu").fit(ward())  # type: ignore[arg-type]
    bits = np.random.default_rng(0).integers(0, 2, (30, 2)).astype(float)
    with pytest.raises(ValueError, match="only where others are real numbers"):
        GPVAE(ModelConfig(likelihood="bernoulli"), kinds={"x0": "binary"}, device="cpu").fit(bits)


def test_trained_methods_without_kinds_leave_text_alone() -> None:
    holey, _ = with_gaps(ward())
    panel = Panel.from_frame(holey, categories=["unit"])
    imputer = BRITS(epochs=1, device="cpu").fit(panel)
    assert imputer.schema_.columns == ("dose", "visits", "heat")
    with pytest.warns(
        UserWarning, match="column 'unit' was not among the columns that BRITS was fitted on and is left unchanged"
    ):
        filled = imputer.impute(panel).to_frame()
    assert filled["unit"].equals(holey["unit"])
    constant = holey.assign(unit=holey["unit"].where(holey["unit"] == "heart"))
    for text in (panel, Panel.from_frame(constant, categories=["unit"])):
        with pytest.raises(DataError, match="conformal intervals need columns of real numbers"):
            Conformal(Linear()).fit(text)
    with pytest.raises(DataError, match="conformal intervals need columns of real numbers"):
        Conformal(GPVAE(kinds={"visits": "count"}, epochs=1, device="cpu")).fit(holey)


def test_text_in_a_file(tmp_path: Path, fitted: GPVAE) -> None:
    holey, _ = with_gaps(ward())
    holey.astype({"alarm": object}).to_csv(tmp_path / "ward.csv", index=False, na_rep="NA")
    table = read_table(tmp_path / "ward.csv").with_categories(["alarm", "unit", "grade"])
    panel = table.panel(categories=["alarm", "unit", "grade"])
    assert panel.labels["alarm"] == ("False", "True")
    assert panel.observed.sum() == holey.notna().to_numpy().sum()
    assert len(read(tmp_path / "ward.csv", categories=["unit"]).columns) == 4
    model = ModelConfig(latent_dim=3, decoder_widths=(16,))
    imputer = GPVAE(model, kinds=KINDS, epochs=2, device="cpu").fit(panel)
    table.write(tmp_path / "out.csv", imputer.impute(panel, samples=20).to_frame(interval=0.8), force=False)
    before, after = ((tmp_path / name).read_text().splitlines() for name in ("ward.csv", "out.csv"))
    assert len(before) == len(after)
    assert after[0].startswith(before[0] + ",")
    for old, new in zip(before[1:], after[1:], strict=True):
        for cell, filled in zip(old.split(","), new.split(","), strict=False):
            assert (filled not in ("", "NA")) if cell == "NA" else cell == filled


def cells_of(result: Any, name: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Filled values, deviations and draws of a column's missing cells."""
    j = result.panel.columns.index(name)
    missing = ~result.panel.observed[:, j]
    return result.mean_rows[missing, j], result.std_rows[missing, j], result.samples[:, missing, j]


def test_moments_and_quantiles_are_those_of_the_draws(fitted: GPVAE) -> None:
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


def test_quantiles_of_whole_numbers_lie_outside() -> None:
    """Of the draws 1…9, the quantile 0.05 lies before the first, 0.15 between the first and second: the first."""
    scaling = Scaling(np.zeros(1), np.ones(1), ("count",), ((),))
    draws = Draws(np.arange(1, 10, dtype=np.float32)[None], np.zeros(1, dtype=np.int64), scaling)
    assert draws.quantiles([0.15, 0.2, 0.5, 0.8, 0.85]).ravel().tolist() == [1, 2, 5, 8, 9]


def test_numbers_as_classes_have_deviations_in_their_own_units() -> None:
    rng = np.random.default_rng(0)
    data = rng.choice([10.0, 20.0, 300.0], size=(200, 1))
    data[::4] = np.nan
    model = ModelConfig(latent_dim=2, decoder_widths=(8,))
    result = GPVAE(model, kinds={"x0": [10, 20, 100, 300]}, epochs=2, device="cpu").fit(data).impute(data, samples=500)
    assert result.draws is not None
    assert result.draws.scaling.levels == ((10, 20, 100, 300),)
    missing = np.isnan(data)
    np.testing.assert_allclose(result.std[missing], result.samples[:, missing].std(0), rtol=1e-6)
    assert (result.std[missing] > 20).all()


def test_counts_start_from_what_is_typical() -> None:
    data = np.random.default_rng(0).poisson([3, 2000], size=(300, 2)).astype(float)
    data[::5] = np.nan
    model = replace(PLAIN, latent_dim=2, decoder_widths=(8,))
    fitted = GPVAE(model, kinds={"x0": "count", "x1": "count"}, epochs=1, device="cpu").fit(data)
    likelihood = fitted.model_.likelihood
    assert isinstance(likelihood, PerColumn)
    poisson = likelihood.parts[0]
    assert isinstance(poisson, Poisson)
    np.testing.assert_allclose(poisson.typical.numpy(), [3, 2000], rtol=0.1)
    assert np.abs(fitted.impute(data).mean[::5, 1] - 2000).mean() < 500


def test_noise_of_real_columns_is_set_beside_other_kinds() -> None:
    """Nine in ten: the interval of a real column is calibrated though another holds counts."""
    rng = np.random.default_rng(0)
    data = np.stack([rng.standard_t(3, 4000) * 5, rng.poisson(3, 4000)], axis=1)
    holey = np.where(rng.random(data.shape) < 0.2, np.nan, data)
    model = ModelConfig(latent_dim=2, encoder_filters=8, encoder_widths=(8,), decoder_widths=(8,))
    lower, upper = GPVAE(model, kinds={"x1": "count"}, epochs=4, device="cpu").fit(holey).impute(holey).interval(0.9)
    inside = ((lower <= data) & (data <= upper))[:, 0]
    assert 0.87 < inside[np.isnan(holey[:, 0])].mean() < 0.93


def test_categories_are_scored_whatever_the_order_of_their_labels() -> None:
    """Against what `to_frame` says; `grade` is ordered by its user, and sorted in the panel."""
    truth = ward()
    panel = Panel.from_frame(truth, categories=["unit", "grade"])
    cells = missingness.random(panel, 0.2, 0)
    model = ModelConfig(latent_dim=4, encoder_filters=32, encoder_window=9, encoder_widths=(32,), decoder_widths=(32,))
    kinds = {"grade": ["low", "mid", "high"], "unit": "categorical"}
    methods = {"gp-vae": GPVAE(model, kinds=kinds, epochs=60, learning_rate=2e-2, device="cpu"), "linear": Linear()}
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
        visits = {"vae": GPVAE(VAE, kinds=kinds | {"visits": "categorical"}, epochs=1, device="cpu"), "mean": Mean()}
        of_all, of_text = evaluate(panel, cells, visits).scores
    assert of_all.accuracy is not None
    assert of_text.accuracy is None  # its share would be of other cells
    dose, visits, heat = (panel.columns.index(name) for name in ("dose", "visits", "heat"))
    errors = [
        np.abs(result.imputations["linear"].mean_rows[:, j] - panel.values[:, j])[cells[:, j]]
        / np.nanstd(np.where(cells, np.nan, panel.values)[:, j])
        for j in (dose, visits, heat)
    ]
    assert result.scores[1].mae == pytest.approx(np.concatenate(errors).mean())


def test_plain_vae_does_not_take_missing_classes_for_the_first() -> None:
    data = ward().drop(columns=["dose", "visits", "alarm", "grade"])
    data.loc[np.random.default_rng(0).random(300) < 0.6, "unit"] = None
    small = ModelConfig.from_plain(VAE.to_plain() | {"latent_dim": 4, "decoder_widths": (32,), "encoder_filters": 32})
    fitted = GPVAE(small, kinds={"unit": "categorical"}, epochs=150, learning_rate=5e-3, device="cpu").fit(data)
    filled = fitted.impute(data).to_frame()
    assert (filled["unit"] == ward()["unit"])[data["unit"].isna()].mean() > 0.55


def test_text_that_comes_as_numbers_or_not_at_all(fitted: GPVAE) -> None:
    numbers = with_gaps(ward())[0].assign(unit=1.0)
    with pytest.raises(DataError, match=r"column 'unit' must hold text, such as 'heart', got numbers"):
        fitted.impute(numbers)
    for nothing in (np.nan, None):
        filled = fitted.impute(numbers.assign(unit=nothing), samples=5).to_frame()
        assert set(filled["unit"]) <= {"heart", "lung", "skin"}


def test_booleans_beside_nothing_and_other_things() -> None:
    frame = pd.DataFrame({"x": np.arange(40.0), "b": [True, None, False, True] * 10})
    model = ModelConfig(latent_dim=2, decoder_widths=(8,))
    filled = GPVAE(model, kinds={"b": "binary"}, epochs=1, device="cpu").fit(frame).impute(frame, samples=5).to_frame()
    assert set(filled["b"]) == {True, False}
    for odd in ([1, "a"] * 20, [pd.Timestamp("2020-01-01"), None] * 20):
        with pytest.raises(DataError, match=r"column 'b' (holds|must hold numbers or categories)"):
            GPVAE(kinds={"b": "categorical"}, device="cpu").fit(frame.assign(b=pd.Categorical(odd)))


def test_columns_whose_names_are_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({0: np.arange(40.0), 1: ["a", None, "b", "a"] * 10})
    fitted = GPVAE(ModelConfig(latent_dim=2), kinds={1: "categorical"}, epochs=1, device="cpu").fit(frame)  # type: ignore
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    assert again.impute(frame, samples=5).to_frame().equals(fitted.impute(frame, samples=5).to_frame())


def test_truth_that_cannot_be_has_no_density(fitted: GPVAE) -> None:
    holey, _ = with_gaps(ward())
    panel = Panel.from_frame(holey, categories=["alarm", "unit", "grade"])
    truth = np.where(panel.observed, panel.values, 0.0)
    density = fitted.log_likelihood(panel, truth, samples=5)
    assert (density[~panel.observed[:, 0], 0] == -np.inf).all()
    assert np.isfinite(density[~panel.observed[:, 1], 1]).all()


def test_model_of_text_meets_a_file_that_looks_like_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,r\n" + "\n".join(f"{i},{'123x'[i % 4]}" for i in range(40)) + "\n")
    (tmp_path / "b.csv").write_text("x,r\n" + "\n".join(f"{i},{['1', '2', 'NA'][i % 3]}" for i in range(40)) + "\n")
    model = ModelConfig(latent_dim=2, decoder_widths=(8,))
    fitted = GPVAE(model, kinds={"r": "categorical"}, epochs=1, device="cpu").fit(
        read(tmp_path / "a.csv", categories=["r"])
    )
    table = read_table(tmp_path / "b.csv").with_text(["r"])
    panel = table.panel(categories=["r"])
    table.write(tmp_path / "out.csv", fitted.impute(panel, samples=5).to_frame(), force=False)
    cells = [line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert set(cells) <= {"1", "2", "3", "x"}
    assert cells[:2] == ["1", "2"]
