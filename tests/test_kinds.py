"""Columns that are not real numbers: their likelihoods, and that what comes out is of the kind that went in."""

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

from gpvae import GPVAE, Conformal, DataError, Linear, ModelConfig, Panel, load, read
from gpvae.distributions import Bernoulli, Categorical, Gaussian, Likelihood, Ordinal, PerColumn, Poisson
from gpvae.files import read_table
from gpvae.scaling import Scaling

LIKELIHOODS: dict[str, tuple[Likelihood, list[int]]] = {  # with the levels of each feature; for counts, enough of them
    "binary": (Bernoulli(3), [2, 2, 2]),
    "count": (Poisson([0.5, 3.0]), [60, 60]),
    "ordinal": (Ordinal([2, 5, 3]), [2, 5, 3]),
    "categorical": (Categorical([4, 2]), [4, 2]),
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


def test_what_the_encoder_sees() -> None:
    observed = torch.tensor([[True, True], [True, False]])
    likelihood = Categorical([3, 2])
    seen = likelihood.seen(torch.tensor([[2.0, 1.0], [0.0, 0.0]]), observed)
    assert seen.tolist() == [[0, 0, 1, 0, 1], [1, 0, 0, 0, 0]]
    ordinal = Ordinal([3, 2]).seen(torch.tensor([[2.0, 1.0], [1.0, 0.0]]), observed)
    assert ordinal.tolist() == [[1, 1], [0, 0]]


def test_columns_are_told_apart() -> None:
    parts: list[tuple[Likelihood, list[int]]] = [(Gaussian(2), [3, 0]), (Categorical([3]), [1]), (Poisson([2.0]), [2])]
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
    np.testing.assert_allclose(scaling.log_slope(values)[:, 1], np.log(slope), atol=1e-5)
    assert not scaling.log_slope(values)[:, 2:].any()


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
    whole = Panel.from_frame(truth, categories=["alarm", "unit", "grade"]).relabelled(panel.labels)
    whole = whole.relabelled(fitted.schema_.labels)
    density = fitted.log_likelihood(panel, whole.values)
    assert np.array_equal(np.isnan(density), panel.observed)
    assert (density[:, 1:5][~panel.observed[:, 1:5]] <= 0).all()
    assert np.nanmean(density[:, 3]) > np.log(1 / 3)
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
        ({"dose": 0.0}, r"column 'dose' is positive, so it holds numbers above 0, not 0 \(row 8\)"),
        ({"visits": 1.5}, r"column 'visits' is count, so it holds whole numbers from 0 on, not 1.5 \(row 8\)"),
        ({"unit": "brain"}, r"column 'unit' holds 'brain' \(row 8\), which is none of heart, lung, skin"),
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
        ({"colour": "count"}, "kinds names a column 'colour'; the columns are dose, visits, heat"),
        ({"dose": "magic"}, "the kind of column 'dose' is one of real, positive, .*, not 'magic'"),
        ({"visits": "binary"}, "column 'visits' is not binary: it has .* different values"),
        ({"heat": "categorical"}, "column 'heat' has .* different values: too many to be categorical"),
        ({"visits": [3, 1, 2]}, "column 'visits' holds numbers, which have an order of their own"),
        ({"grade": ["low", "high"]}, "column 'grade' holds 'mid' .* which is none of low, high"),
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
    with pytest.raises(ValueError, match="only with a Gaussian likelihood"):
        GPVAE(ModelConfig(likelihood="bernoulli"), kinds={"x0": "binary"}, device="cpu").fit(bits)


def test_methods_without_kinds_leave_text_alone() -> None:
    holey, _ = with_gaps(ward())
    panel = Panel.from_frame(holey, categories=["unit"])
    imputer = Linear().fit(panel)
    assert imputer.schema_.columns == ("dose", "visits", "heat")
    with pytest.warns(UserWarning, match="column 'unit' is not in the model: it is left as it is"):
        filled = imputer.impute(panel).to_frame()
    assert filled["unit"].equals(holey["unit"])
    with pytest.raises(DataError, match="conformal intervals are for columns of real numbers"):
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
