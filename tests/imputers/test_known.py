"""Columns that are always known: learned from, in gaps too, and never hidden or filled."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import gpvae
from gpvae import Conformal, DataError, GPFactor, GPNet, Panel
from gpvae.training import correction


def demand(rows: int = 3000, seed: int = 0) -> NDArray[Any]:
    """A temperature, and the power that it takes to heat or to cool, which is not correlated with it."""
    rng = np.random.default_rng(seed)
    temperature = rng.normal(size=rows)
    return np.column_stack([temperature, temperature**2 + 0.1 * rng.normal(size=rows)])


def with_outages(values: NDArray[Any]) -> tuple[Panel, NDArray[np.bool_]]:
    cells = np.zeros(values.shape, dtype=bool)
    for first in range(50, len(values) - 40, 120):
        cells[first : first + 30, 1] = True
    return Panel.from_array(np.where(cells, np.nan, values)), cells


def test_gaps_are_filled_by_what_is_known_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correction, "FIRST_STEPS", 600)
    values = demand()
    panel, cells = with_outages(values)
    error = {
        name: np.abs(imputer.fit(panel).impute(panel, samples=50).mean_rows - values)[cells].mean()
        for name, imputer in (("core", GPFactor(known=("x0",))), ("net", GPNet(known=("x0",))))
    }
    spread = np.abs(values[:, 1] - np.median(values[:, 1])).mean()
    assert error["core"] > 0.8 * spread  # the network has to find it
    assert error["net"] < 0.3 * spread


def test_known_columns_are_never_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    panel, _ = with_outages(demand())
    imputer, seen = GPNet(known=("x0",)), list[NDArray[np.bool_]]()
    masked = GPNet._masked

    def spied(self: GPNet, part: Panel, hidden: list[NDArray[np.bool_]]) -> Any:
        seen.extend(hidden)
        return masked(self, part, hidden)

    monkeypatch.setattr(GPNet, "_masked", spied)
    imputer.fit(panel)
    held_out = imputer.held_out(panel)
    assert held_out is not None
    assert held_out[:, 1].any()
    assert not held_out[:, 0].any()
    assert len(seen) > 4
    assert not any(cells[:, 0].any() for cells in seen)
    assert sum(int(cells[:, 1].sum()) for cells in seen) > 100
    conformal = Conformal(imputer).fit(panel)
    held_out = conformal.held_out(panel)
    assert held_out is not None
    assert not held_out[:, 0].any()


def patients(count: int = 12, hours: int = 20) -> pd.DataFrame:
    """Whose pulse goes with their age, which only their first hour tells."""
    rng = np.random.default_rng(1)
    rows = []
    for patient in range(count):
        age = rng.normal()
        pulse = age + 0.05 * rng.normal(size=hours)
        pulse[rng.random(hours) < 0.2] = np.nan
        rows.append(pd.DataFrame({"patient": patient, "hour": range(hours), "age": age, "pulse": pulse}))
        rows[-1].loc[1:, "age"] = np.nan
    return pd.concat(rows, ignore_index=True)


def test_what_never_changes_in_a_series_is_needed_once(tmp_path: Path) -> None:
    frame = patients()
    frame.loc[frame.patient == 11, "pulse"] = np.nan
    imputer = GPFactor(known=("age",)).fit(Panel.from_frame(frame, id="patient", time="hour"))
    imputer.save(tmp_path / "model")
    for each in (imputer, gpvae.load(tmp_path / "model")):
        filled = each.impute(frame, samples=20)
        table = filled.to_frame()
        ages = frame.groupby("patient").age.first()
        pd.testing.assert_series_equal(table.age, frame.age)
        assert filled.filled.any(axis=0).tolist() == [False, True]
        new = table[table.patient == 11].pulse
        assert np.abs(new - ages[11]).max() < 0.4  # told by the age alone
    latents = imputer.latents(Panel.from_frame(frame, id="patient", time="hour"))
    assert np.isfinite(latents.mean).all()


def test_gaps_of_known_columns_are_refused_by_name() -> None:
    frame = patients()
    frame.loc[4, "age"] = 1.5
    with pytest.raises(DataError, match=r"'age' is known.*empty at patient 0, hour 1, row 2; give it a value"):
        GPNet(known=("age",)).fit(Panel.from_frame(frame, id="patient", time="hour"))
    frame = patients()
    frame.loc[frame.patient == 3, "age"] = np.nan
    with pytest.raises(DataError, match="series 3 has no value of it"):
        GPFactor(known=("age",)).fit(Panel.from_frame(frame, id="patient", time="hour"))
    with pytest.raises(DataError, match="known names 'weight', which is no column of numbers; those are age, pulse"):
        GPFactor(known=("weight",)).fit(Panel.from_frame(patients(), id="patient", time="hour"))
    fitted = GPFactor(known=("age",)).fit(Panel.from_frame(patients(), id="patient", time="hour"))
    with pytest.raises(DataError, match="series 3 has no value of it"):
        fitted.impute(frame)
