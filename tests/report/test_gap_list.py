"""`Imputation.gaps`: a row for each gap, with its kind, its uncertainty and whether that was checked."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_examples import fill_by_hand

from gpvae import Conformal, GapSelection, Linear, Panel
from gpvae.imputers.widths import KINDS
from gpvae.report import gap_list
from gpvae.report.evidence import Evidence

HOURS = pd.date_range("2024-01-01", periods=400, freq="h")
COLUMNS = ["series", "column", "start", "end", "length", "kind", "uncertainty", "trust"]


def table(who: str = "u") -> Any:
    """A single cell, a gap of 5, one of 30, an outage of 8 and one of 20 rows; `empty` has no value at all."""
    wave = np.random.default_rng(0).normal(size=(400, 2))
    wave[10, 0] = wave[50:55, 0] = wave[100:130, 1] = wave[200:208] = wave[300:320] = np.nan
    return pd.DataFrame({"who": who, "hour": HOURS, "a": wave[:, 0], "b": 10 * wave[:, 1]})


def gaps_of(frame: Any, imputer: Any, **options: Any) -> Any:
    panel = Panel.from_frame(frame, id="who", time="hour")
    return imputer.fit(panel).impute(panel, **options).gaps()


def test_each_gap_has_a_row_in_the_order_of_time() -> None:
    both = pd.concat([table("u"), table("v")[:150]], ignore_index=True)
    gaps = gaps_of(both, Linear())
    assert list(gaps.columns) == COLUMNS
    assert gaps["series"].tolist() == ["u"] * 7 + ["v"] * 3
    assert gaps["column"].tolist() == ["a", "a", "b", "a", "b", "a", "b", "a", "a", "b"]
    assert gaps["length"].tolist() == [1, 5, 30, 8, 8, 20, 20, 1, 5, 30]
    assert gaps["start"].tolist() == [HOURS[i] for i in (10, 50, 100, 200, 200, 300, 300, 10, 50, 100)]
    assert ((gaps["end"] - gaps["start"]) / pd.Timedelta("1h") + 1).tolist() == gaps["length"].tolist()
    kinds = [0, 1, 2, 3, 3, 4, 4, 0, 1, 2]
    assert gaps["kind"].tolist() == [KINDS[k] for k in kinds]
    assert gaps["uncertainty"].isna().all()  # single values
    assert set(gaps["trust"]) == {"not checked"}


def test_columns_without_values_make_no_outage() -> None:
    with pytest.warns(UserWarning, match="no observed value"):
        gaps = gaps_of(table().assign(c=np.nan), Linear())
    assert gaps["kind"].tolist() == [KINDS[k] for k in (2, 0, 1, 2, 3, 3, 4, 4)]
    empty = gaps[gaps["column"] == "c"]
    assert (empty["length"].tolist(), empty["trust"].tolist()) == ([400], ["left empty"])


def test_uncertainty_is_in_deviations_of_the_column() -> None:
    panel = Panel.from_frame(table(), id="who", time="hour")
    truth = np.nan_to_num(panel.values)
    gaps = fill_by_hand(panel, truth, spread=2.0).gaps()
    expected = {name: 2 / np.nanstd(table()[name]) for name in ("a", "b")}
    np.testing.assert_allclose(gaps["uncertainty"], gaps["column"].map(expected), rtol=0.3)
    narrow = fill_by_hand(panel, truth, spread=1.0).gaps()["uncertainty"]
    np.testing.assert_allclose(gaps["uncertainty"], 2 * narrow, rtol=1e-6)


def test_conformal_intervals_have_an_uncertainty() -> None:
    """Of white noise, linear interpolation is off by about 1.2 deviations; there are few cells to count on."""
    gaps = gaps_of(table(), Conformal(Linear()))
    assert gaps["uncertainty"].between(0.7, 2).all()


def test_gaps_that_stay_empty_say_so() -> None:
    gaps = gaps_of(table(), Conformal(Linear()), gaps=GapSelection(max_gap="10h"))
    assert ((gaps["trust"] == "left empty") == (gaps["length"] > 10)).all()
    assert (gaps["uncertainty"].isna() == (gaps["length"] > 10)).all()


@pytest.mark.parametrize("wrong", [False, True])
def test_trust_is_what_held_out_cells_say(wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Single cells and gaps of 8 are held out; the intervals of single cells hold, or miss a third of the cells."""
    panel = Panel.from_frame(table(), id="who", time="hour")
    truth = np.random.default_rng(1).normal(size=(2000, 2))
    cells = np.zeros(truth.shape, dtype=bool)
    cells[::20, 0] = True
    for first in range(5, 1900, 100):
        cells[first : first + 8, 1] = True
    checked = fill_by_hand(Panel.from_array(np.where(cells, np.nan, truth)), truth, spread=3.0)
    moved = truth + np.where(wrong & (np.arange(2000) % 60 == 0), 50.0, 0.0)[:, None]
    monkeypatch.setattr(gap_list, "held_out_evidence", lambda imputation: Evidence(checked, moved, cells))
    trust = fill_by_hand(panel, np.nan_to_num(panel.values)).gaps()["trust"].tolist()
    single = "too narrow" if wrong else "checked"
    assert trust == [single, "checked", "not checked", *["not checked"] * 4]
    longer = table()
    longer.loc[60:69, "b"] = np.nan  # of a kind that was checked, but longer
    own = Panel.from_frame(longer, id="who", time="hour")
    gaps = fill_by_hand(own, np.nan_to_num(own.values)).gaps()
    assert gaps["trust"].tolist()[2] == "longer than checked"


def test_arrays_get_a_dict_and_no_gaps_an_empty_list() -> None:
    found = Linear().fit(np.ones((5, 1)) * np.arange(5)[:, None]).impute(np.arange(5.0)[:, None]).gaps()
    assert list(found) == COLUMNS
    assert all(len(column) == 0 for column in found.values())
