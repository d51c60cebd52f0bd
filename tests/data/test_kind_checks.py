"""Kinds of columns: what is refused, and text in frames and files."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ward import KINDS, ward, with_gaps

from gpvae import BRITS, DEFAULT, GPVAE, Conformal, DataError, Linear, ModelConfig, Panel, load, read
from gpvae.data.files import read_table
from gpvae.models.likelihoods import Bernoulli


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
def test_values_that_do_not_fit_their_kind_are_refused(change: dict[str, Any], message: str, fitted: GPVAE) -> None:
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
def test_invalid_kinds_are_refused(kinds: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        GPVAE(kinds=kinds, device="cpu").fit(ward())


def test_kinds_need_a_mapping_and_a_likelihood_for_real_columns() -> None:
    with pytest.raises(TypeError, match="kinds must map columns to kinds"):
        GPVAE(kinds=["count"], device="cpu").fit(ward())  # type: ignore[arg-type]
    bits = np.random.default_rng(0).integers(0, 2, (30, 2)).astype(float)
    with pytest.raises(ValueError, match="a Bernoulli likelihood is for all columns"):
        GPVAE(ModelConfig(likelihood=Bernoulli()), kinds={"x0": "binary"}, device="cpu").fit(bits)


def test_imputers_without_kinds_leave_text_unchanged(tmp_path: Path) -> None:
    holey, _ = with_gaps(ward())
    panel = Panel.from_frame(holey, categories=["unit"])
    with pytest.warns(UserWarning, match="BRITS fills only numbers and leaves 'unit' unchanged; mean, .* fill categ"):
        imputer = BRITS(epochs=1, device="cpu").fit(panel)
    assert imputer.schema_.columns == ("dose", "visits", "heat")
    assert imputer.impute(panel).to_frame()["unit"].equals(holey["unit"])
    imputer.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="'unit' was not among the columns that BRITS was fitted on and is left unch"):
        load(tmp_path / "model").impute(panel)
    constant = holey.assign(unit=holey["unit"].where(holey["unit"] == "heart"))
    for text in (panel, Panel.from_frame(constant, categories=["unit"])):
        with pytest.raises(DataError, match="conformal intervals need columns of real numbers"):
            Conformal(Linear()).fit(text)
    with pytest.raises(DataError, match="conformal intervals need columns of real numbers"):
        Conformal(GPVAE(kinds={"visits": "count"}, epochs=1, device="cpu")).fit(holey)


def test_text_columns_of_a_file_are_filled(tmp_path: Path, fitted: GPVAE) -> None:
    holey, _ = with_gaps(ward())
    holey.astype({"alarm": object}).to_csv(tmp_path / "ward.csv", index=False, na_rep="NA")
    table = read_table(tmp_path / "ward.csv").with_categories(["alarm", "unit", "grade"])
    panel = table.panel(categories=["alarm", "unit", "grade"])
    assert panel.labels["alarm"] == ("False", "True")
    assert panel.observed.sum() == holey.notna().to_numpy().sum()
    assert len(read(tmp_path / "ward.csv", categories=["unit"]).columns) == 4
    model = replace(DEFAULT, latent_dim=3, decoder_widths=(16,))
    imputer = GPVAE(model, kinds=KINDS, epochs=2, device="cpu").fit(panel)
    table.write(tmp_path / "out.csv", imputer.impute(panel, samples=20).to_frame(interval=0.8), force=False)
    before, after = ((tmp_path / name).read_text().splitlines() for name in ("ward.csv", "out.csv"))
    assert len(before) == len(after)
    assert after[0].startswith(before[0] + ",")
    for old, new in zip(before[1:], after[1:], strict=True):
        for cell, filled in zip(old.split(","), new.split(","), strict=False):
            assert (filled not in ("", "NA")) if cell == "NA" else cell == filled


def test_text_columns_given_as_numbers_or_empty(fitted: GPVAE) -> None:
    numbers = with_gaps(ward())[0].assign(unit=1.0)
    with pytest.raises(DataError, match=r"column 'unit' must hold text, such as 'heart', got numbers"):
        fitted.impute(numbers)
    for nothing in (np.nan, None):
        filled = fitted.impute(numbers.assign(unit=nothing), samples=5).to_frame()
        assert set(filled["unit"]) <= {"heart", "lung", "skin"}


def test_booleans_with_gaps_are_filled_and_mixed_types_refused() -> None:
    frame = pd.DataFrame({"x": np.arange(40.0), "b": [True, None, False, True] * 10})
    model = replace(DEFAULT, latent_dim=2, decoder_widths=(8,))
    filled = GPVAE(model, kinds={"b": "binary"}, epochs=1, device="cpu").fit(frame).impute(frame, samples=5).to_frame()
    assert set(filled["b"]) == {True, False}
    for odd in ([1, "a"] * 20, [pd.Timestamp("2020-01-01"), None] * 20):
        with pytest.raises(
            DataError, match=r"text or booleans, but column 'b' holds|column 'b' must hold numbers or categories"
        ):
            GPVAE(kinds={"b": "categorical"}, device="cpu").fit(frame.assign(b=pd.Categorical(odd)))


def test_column_names_may_be_numbers(tmp_path: Path) -> None:
    frame = pd.DataFrame({0: np.arange(40.0), 1: ["a", None, "b", "a"] * 10})
    fitted = GPVAE(replace(DEFAULT, latent_dim=2), kinds={1: "categorical"}, epochs=1, device="cpu").fit(frame)  # type: ignore
    fitted.save(tmp_path / "model")
    again = load(tmp_path / "model", device="cpu")
    assert again.impute(frame, samples=5).to_frame().equals(fitted.impute(frame, samples=5).to_frame())


def test_a_text_column_that_looks_like_numbers_in_a_new_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,r\n" + "\n".join(f"{i},{'123x'[i % 4]}" for i in range(40)) + "\n")
    (tmp_path / "b.csv").write_text("x,r\n" + "\n".join(f"{i},{['1', '2', 'NA'][i % 3]}" for i in range(40)) + "\n")
    model = replace(DEFAULT, latent_dim=2, decoder_widths=(8,))
    fitted = GPVAE(model, kinds={"r": "categorical"}, epochs=1, device="cpu").fit(
        read(tmp_path / "a.csv", categories=["r"])
    )
    table = read_table(tmp_path / "b.csv").with_text(["r"])
    panel = table.panel(categories=["r"])
    table.write(tmp_path / "out.csv", fitted.impute(panel, samples=5).to_frame(), force=False)
    cells = [line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert set(cells) <= {"1", "2", "3", "x"}
    assert cells[:2] == ["1", "2"]
