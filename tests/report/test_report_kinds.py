"""Coverage by kind of gap, and gaps that are longer than any that was checked."""

import numpy as np
import pytest
from report_examples import fill_by_hand

from gpvae import Panel
from gpvae.data.panel import Bools, Floats
from gpvae.imputers.widths import KINDS
from gpvae.report.evidence import Evidence
from gpvae.report.trust import assess


def gaps_of_two_kinds(rows: int = 4000) -> tuple[Panel, Floats, Bools, Bools]:
    """Single cells of one column, and outages of 20 rows."""
    truth = np.random.default_rng(0).normal(size=(rows, 2))
    single, outages = (np.zeros(truth.shape, dtype=bool) for _ in range(2))
    single[::50, 0] = True
    for first in range(25, rows - 25, 100):
        outages[first : first + 20] = True
    return Panel.from_array(np.where(single | outages, np.nan, truth)), truth, single, outages


def test_shares_are_those_of_each_kind() -> None:
    panel, truth, single, outages = gaps_of_two_kinds()
    imputation = fill_by_hand(panel, truth, spread=3.0)
    result = assess(Evidence(imputation, truth, single | outages), "by hand")["by_kind"]
    names = [row[0] for row in result["rows"]]
    assert names == [KINDS[0], KINDS[4]]
    assert [int(row[2].replace(",", "")) for row in result["rows"]] == [single.sum(), outages.sum()]
    assert "Trust the intervals less" not in result["sentence"]


def test_the_kind_whose_intervals_are_too_narrow_is_named() -> None:
    panel, truth, single, outages = gaps_of_two_kinds()
    imputation = fill_by_hand(panel, truth)
    moved = np.where(outages, truth + np.where(np.arange(len(truth)) % 3 == 0, 5.0, 0.0)[:, None], truth)
    result = assess(Evidence(imputation, moved, single | outages), "by hand")["by_kind"]
    assert result["sentence"].endswith(f"Trust the intervals less in {KINDS[4]}.")


@pytest.mark.parametrize("own", [0, 1, 2])
def test_longer_gaps_than_were_checked_are_counted(own: int) -> None:
    panel, truth, single, outages = gaps_of_two_kinds()
    values = panel.values.copy()
    for i in range(own):
        values[60 + 100 * i : 95 + 100 * i, 1] = np.nan
    cells = (single | outages) & ~np.isnan(truth)
    imputation = fill_by_hand(panel.with_values(values), truth)
    cells[60 : 60 + 100 * own, 1] &= outages[60 : 60 + 100 * own, 1]
    sentence = assess(Evidence(imputation, truth, cells), "by hand")["by_kind"]["sentence"]
    assert ("longer than the 20 rows that could be checked, up to 35: trust them less" in sentence) == (own > 0)
    assert (" 1 gap is longer" in sentence) == (own == 1)
    assert (" 2 gaps are longer" in sentence) == (own == 2)


def test_gaps_of_one_kind_say_nothing() -> None:
    _, truth, single, _ = gaps_of_two_kinds()
    alone = Panel.from_array(np.where(single, np.nan, truth))
    assert assess(Evidence(fill_by_hand(alone, truth), truth, single), "by hand")["by_kind"] is None
