"""Data frames as they come: named columns in `fit`, and columns that would silently stay unfilled."""

import inspect
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from gpvae import Conformal, DataError, GPFactor, Linear, Panel
from gpvae.imputers import registry

ROWS = 24


def two_series() -> pd.DataFrame:
    """With times in disorder, as text, and gaps."""
    day = [f"2024-01-{i + 1:02d}" for i in range(ROWS)]
    x = np.where(np.arange(ROWS) % 5 == 2, np.nan, np.sin(np.arange(ROWS)))
    parts = [pd.DataFrame({"who": who, "day": day, "x": x + shift}) for who, shift in (("a", 0), ("b", 9))]
    return pd.concat(parts).sample(frac=1, random_state=0)


@pytest.mark.parametrize("name", registry.METHODS)
def test_fit_takes_the_names_of_columns(name: str) -> None:
    frame, imputer = two_series(), registry.method(name, epochs=1, device="cpu", verbose=False)
    fit: Any = imputer.fit
    assert fit(frame, id="who", time="day") is imputer
    assert (imputer.schema_.id, imputer.schema_.time) == ("who", "day")
    assert not imputer.impute(frame).to_frame()["x"].isna().any()


def test_fit_with_names_is_fit_to_the_panel() -> None:
    frame = two_series()
    fit: Any = Conformal(Linear()).fit
    named = fit(frame, id="who").impute(frame).to_frame()
    panel = Panel.from_frame(frame, id="who")
    pd.testing.assert_frame_equal(named, Conformal(Linear()).fit(panel).impute(panel).to_frame())


@pytest.mark.parametrize("name", registry.METHODS)
def test_help_shows_the_names(name: str) -> None:
    assert {"id", "time"} < {*inspect.signature(registry.method(name).fit).parameters}


def test_names_need_a_frame() -> None:
    fit: Any = Linear().fit
    with pytest.raises(DataError, match="id and time name columns of a data frame"):
        fit(np.ones((3, 2)), id="who")
    with pytest.raises(DataError, match="there is no column 'whom'"):
        fit(two_series(), id="whom")


COLUMNS: dict[str, Any] = {
    "decimal": pd.Series([Decimal(1), None, Decimal(3)] * 8, dtype=object),
    "object": pd.Series([1, None, 3] * 8, dtype=object),
    "text": pd.Series(["u", None, "v"] * 8, dtype=object),
    "string": pd.array(["u", None, "v"] * 8, dtype="string"),
    "category": pd.Categorical(["u", None, "v"] * 8),
    "boolean": pd.array([True, None, False] * 8, dtype="boolean"),
    "never": pd.Series([None] * ROWS, dtype=object),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("imputer", [Linear(), GPFactor()], ids=["linear", "gp-factor"])
def test_gaps_that_are_not_filled_are_warned_of(imputer: Any, name: str) -> None:
    frame = pd.DataFrame({"x": np.arange(float(ROWS)), name: COLUMNS[name]})
    with pytest.warns(UserWarning, match=f"'{name}'") as said:
        filled = imputer.fit(frame).impute(frame).to_frame()
    assert filled[name].isna().sum() >= 8
    assert sum(f"'{name}'" in str(each.message) for each in said) == 1
    assert ("convert them to float" in str(said[0].message)) == (name in ("decimal", "object"))


def test_decimals_of_polars_are_warned_of() -> None:
    decimals = pl.Series([Decimal("1.5"), None, Decimal("2.5")])
    frame = pl.DataFrame({"x": [1.0, 2.0, 3.0], "d": decimals})
    with pytest.warns(UserWarning, match="'d' hold numbers as objects: convert them to float"):
        Linear().fit(frame).impute(frame)


def test_columns_without_gaps_and_filled_categories_are_not_warned_of() -> None:
    frame = pd.DataFrame({"x": np.arange(float(ROWS)), "text": COLUMNS["text"], "whole": ["u", "v"] * 12})
    imputer = Linear(kinds={"text": "categorical"})
    assert not imputer.fit(frame).impute(frame).to_frame()["text"].isna().any()


def test_the_work_on_wide_tables_grows_with_their_width() -> None:
    """Counted, not timed: how often the schema of the frame is computed."""
    import narwhals as nw

    counts: list[int] = []
    original: Any = nw.DataFrame.schema
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nw.DataFrame, "schema", property(lambda self: (counts.append(1), original.fget(self))[1]))
        for width in (5, 50):
            counts.clear()
            frame = pd.DataFrame(np.ones((4, width)), columns=[f"c{j}" for j in range(width)])
            Panel.from_frame(frame)
            assert 0 < len(counts) < 5
