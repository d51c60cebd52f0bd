"""What is filled in a series depends on it alone, not on what else is in the table."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from battery import IMPUTERS, has_intervals

from gpvae import Imputer, Panel
from gpvae.imputers import latent
from gpvae.imputers.gpvae import GPVAE
from gpvae.imputers.latent import LatentMethod

LENGTHS = {"a": 17, "b": 40, "c": 9, "d": 40, "e": 23}
COLUMNS = ["x0", "x1", "x2"]


@pytest.fixture(scope="module")
def table() -> Any:
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame(np.sin(np.arange(n)[:, None] / 4 + rng.uniform(0, 6, 3)) + 2, columns=COLUMNS).assign(
            who=name, hour=np.arange(n)
        )
        for name, n in LENGTHS.items()
    ]
    frame = pd.concat(parts, ignore_index=True)
    frame[COLUMNS] = frame[COLUMNS].mask(rng.random((len(frame), 3)) < 0.3)
    return frame


def panel(frame: Any) -> Panel:
    return Panel.from_frame(frame, id="who", time="hour")


def results(imputer: Imputer, frame: Any, columns: list[str] = COLUMNS) -> Any:
    """Values, and ends of intervals, of the series b."""
    filled = imputer.impute(panel(frame), samples=40)
    parts = [filled.mean, *(filled.interval(0.9) if has_intervals(imputer) else ())]
    order = [filled.panel.columns.index(name) for name in columns]
    return np.stack(parts)[:, (frame["who"] == "b").to_numpy()][..., order]


NAMES = [name for name in IMPUTERS if "conformal" not in name or name == "conformal gp-vae"]


@pytest.mark.parametrize("name", NAMES)
def test_company_and_the_order_of_columns_change_nothing(name: str, table: Any) -> None:
    imputer = IMPUTERS[name]().fit(panel(table))
    expected = results(imputer, table)
    alone = table[table["who"] == "b"]
    late = alone.assign(who="z", hour=alone["hour"] ** 2)  # at uneven times
    companies = [alone, table[table["who"] > "a"], pd.concat([table, late], ignore_index=True), table[::-1]]
    for company in companies:
        found = results(imputer, company)
        found = found[:, ::-1] if company.index[0] > company.index[-1] else found
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results(imputer, table[["hour", *COLUMNS[::-1], "who"]]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "numbers"), [(1, 1), (100, 5_000), (1_500, 2**18)])
def test_how_much_is_computed_at_a_time_changes_nothing(
    table: Any, monkeypatch: pytest.MonkeyPatch, rows: int, numbers: int
) -> None:
    imputer = IMPUTERS["gp-vae"]().fit(panel(table))
    assert isinstance(imputer, GPVAE)
    expected = results(imputer, table)
    monkeypatch.setattr(LatentMethod, "rows_at_once", rows)
    monkeypatch.setattr(latent, "NUMBERS_AT_ONCE", {"cpu": numbers})
    np.testing.assert_allclose(results(imputer, table), expected, rtol=1e-5, atol=1e-5)


def test_series_have_random_numbers_of_their_own(table: Any) -> None:
    """Two series with the same values are not filled by the same draws."""
    imputer = IMPUTERS["gp-vae"]().fit(panel(table))
    alone = table[table["who"] == "b"]
    draws = imputer.impute(panel(pd.concat([alone, alone.assign(who="z")], ignore_index=True)), samples=40).draws
    assert draws is not None
    first, second = np.split(draws.scaled, 2)
    assert not np.array_equal(first, second)
    np.testing.assert_allclose(first.mean(), second.mean(), atol=0.1)
