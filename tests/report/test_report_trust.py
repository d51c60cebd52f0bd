"""How reliable filled values are, judged by cells whose value is known."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_examples import fill_by_hand, panel_with_gaps, summary

from gpvae import (
    BRITS,
    GP,
    GPVAE,
    Conformal,
    Imputation,
    Imputer,
    Linear,
    Mean,
    Panel,
    load,
)
from gpvae.data.scaling import Scaling
from gpvae.imputers.draws import Draws
from gpvae.missingness import hide
from gpvae.report.evidence import Evidence, held_out_evidence
from gpvae.report.page import Report
from gpvae.report.trust import assess
from gpvae.training import recipe


@pytest.mark.parametrize(
    ("spread", "verdict", "words"),
    [
        (1.0, "calibrated", "well calibrated"),
        (0.4, "narrow", "much too narrow"),
        (3.0, "wide", "wider than necessary, which is safe"),
    ],
)
def test_verdict_matches_the_coverage(spread: float, verdict: str, words: str) -> None:
    panel, truth = panel_with_gaps(series=20, steps=60)
    result = assess(Evidence(fill_by_hand(panel, truth, spread=spread), truth, ~panel.observed), "by hand")
    assert result["coverage"]["verdict"] == verdict
    assert words in result["coverage"]["sentence"]
    expected = {1.0: 0.9, 0.4: 0.49, 3.0: 1.0}[spread]  # P(|N(0, 1)| < 1.645 spread)
    assert abs(result["coverage"]["share"] - expected) < 0.05
    outer = result["pit"]["shares"][0] + result["pit"]["shares"][-1]
    assert {1.0: abs(outer - 0.2) < 0.05, 0.4: outer > 0.4, 3.0: outer < 0.05}[spread]
    assert {1.0: "evenly", 0.4: "overconfident", 3.0: "too cautious"}[spread] in result["pit"]["sentence"]
    assert sum(result["pit"]["shares"]) == pytest.approx(1)  # including those beyond all draws


def test_cells_that_set_the_intervals_do_not_prove_calibration() -> None:
    panel, truth = panel_with_gaps(series=20, steps=60)
    result = assess(
        Evidence(fill_by_hand(panel, truth), truth, ~panel.observed, caveat="They set the intervals."), "by hand"
    )
    assert result["coverage"]["verdict"] == "calibrated"
    assert "well calibrated" not in result["coverage"]["sentence"]
    assert "These cells also set the interval widths, so expect slightly lower" in result["coverage"]["sentence"]


@pytest.mark.parametrize(
    "imputer", [GPVAE(epochs=3, device="cpu"), Conformal(Linear()), GP(epochs=2, device="cpu")], ids=lambda m: m.name
)
def test_column_order_does_not_matter(imputer: Imputer) -> None:
    """A table may have the columns in another order than the one that the model was fitted to."""
    panel, _ = panel_with_gaps(series=6, steps=60)
    fitted = imputer.fit(panel)
    turned = panel.select(panel.columns[::-1])
    here, there = (fitted.impute(each) for each in (panel, turned))
    assert (np.diff(there.cells) > 0).all()
    np.testing.assert_allclose(there.mean_rows[:, ::-1], here.mean_rows)
    for one, other in zip(here.interval_rows(0.5), there.interval_rows(0.5), strict=True):
        np.testing.assert_allclose(other[:, ::-1], one)
    for which in range(3):
        part = there.part(which, which + 1)
        np.testing.assert_allclose(part.mean_rows, there.mean_rows[60 * which : 60 * (which + 1)])
    cells = panel.observed & (np.arange(len(panel.values)) % 7 == 0)[:, None]
    shares = []
    for each in (panel, turned):
        hidden = cells if each is panel else cells[:, ::-1]
        evidence = Evidence(fitted.impute(hide(each, hidden)), each.values, hidden)
        shares.append(assess(evidence, "by hand")["coverage"]["share"])
    assert shares[0] == pytest.approx(shares[1])


def test_biased_draws_are_reported() -> None:
    panel, truth = panel_with_gaps(series=60, steps=60)
    result = assess(Evidence(fill_by_hand(panel, truth - 0.06), truth, ~panel.observed), "by hand")
    assert result["pit"]["sentence"] == (
        "True values are almost evenly distributed among the draws. The draws are slightly too low on average."
    )


def test_coverage_by_column_and_distance() -> None:
    panel, truth = panel_with_gaps(series=6, steps=50, missing=0.5)
    imputation, cells = fill_by_hand(panel, truth), ~panel.observed
    result = assess(Evidence(imputation, truth, cells), "by hand")
    lower, upper = imputation.interval_rows(0.9)
    inside = (lower <= truth) & (truth <= upper)
    for each in result["by_column"]["columns"]:
        j = panel.columns.index(each["name"])
        assert each["share"] == pytest.approx(inside[cells[:, j], j].mean())
    near = 0
    for _, rows in panel.series():
        seen = panel.observed[rows]
        for t, j in np.argwhere(~seen):
            near += bool(np.abs(np.flatnonzero(seen[:, j]) - t).min() == 1)
    assert result["by_distance"]["groups"][0]["name"] == "1"
    assert result["by_distance"]["groups"][0]["cells"] == near


def test_errors_of_other_methods() -> None:
    panel, truth = panel_with_gaps(series=20, steps=60)
    others = {"linear": Linear().fit(panel).impute(panel), "mean": Mean().fit(panel).impute(panel)}
    result = assess(Evidence(fill_by_hand(panel, truth), truth, ~panel.observed, others), "by hand")["errors"]
    error = {each["name"]: each["error"] for each in result["methods"]}
    scale = np.nanstd(panel.values, axis=0)
    exact = (np.abs(others["mean"].mean_rows - truth) / scale)[~panel.observed].mean()
    assert error["mean"] == pytest.approx(exact)
    assert error["linear"] < error["by hand"] < error["mean"]
    assert all(each["low"] < each["error"] < each["high"] for each in result["methods"])
    assert "more than that of linear: use linear for this data" in result["sentence"]


@pytest.mark.parametrize("count", [1, 2, 9])
def test_few_cells_give_no_verdict(count: int) -> None:
    panel, truth = panel_with_gaps(series=1)
    cells = np.zeros_like(panel.observed)
    cells[tuple(np.argwhere(~panel.observed)[:count].T)] = True
    others = {"linear": Linear().fit(panel).impute(panel)}
    imputation = fill_by_hand(panel, truth, spread=0.1)
    result = assess(Evidence(imputation, truth, cells, others), "by hand")
    assert result["coverage"] is result["calibration"] is result["pit"] is None
    assert "too few to tell" in result["unknown"]
    assert "too few cells to tell whether another method is better" in result["errors"]["sentence"]
    assert all((each["low"] is None) == (count == 1) for each in result["errors"]["methods"])
    evidence = Evidence(imputation, truth, cells, others)
    shown = Report(summary(imputation, evidence=evidence)).html
    assert ("Bars are 95 % intervals" in shown) == (count > 1)


def test_correlated_failures_widen_the_interval_of_the_share() -> None:
    panel, truth = panel_with_gaps(series=20, steps=60, missing=0.5)
    good, poor = (fill_by_hand(panel, truth, spread=spread) for spread in (1.0, 0.05))
    assert good.draws is not None
    assert poor.draws is not None
    failing = np.isin(panel.series_of_row[good.cells // 3], [0])
    draws = replace(good.draws, scaled=np.where(failing[:, None], poor.draws.scaled, good.draws.scaled))
    result = assess(Evidence(replace(good, draws=draws), truth, ~panel.observed), "x")
    point = result["calibration"]["points"][-1]
    assert point["share"] < 0.87
    assert point["high"] > 0.9  # one of twenty series fails, which may be chance
    assert result["coverage"]["verdict"] == "unclear"
    assert result["by_column"]["sentence"].startswith("No column has significantly fewer")


def test_single_values_have_errors_but_no_intervals() -> None:
    panel, truth = panel_with_gaps()
    result = assess(Evidence(Linear().fit(panel).impute(panel), truth, ~panel.observed), "Linear")
    assert result["errors"]
    assert result["calibration"] is None
    assert "single values" in result["unknown"]


def test_too_few_samples_are_reported() -> None:
    panel, truth = panel_with_gaps()
    imputation = fill_by_hand(panel, truth, samples=5)
    assert "at least 19 samples" in assess(Evidence(imputation, truth, ~panel.observed), "x")["unknown"]
    result = summary(imputation)["series"]
    assert not result["bands"]
    assert "at least 19 samples" in result["without_bands"]


def test_imputer_is_checked_on_its_held_out_cells(tiny: GPVAE, waves: Any, tmp_path: Path) -> None:
    imputation = tiny.fit(waves).impute(waves)
    result = imputation.report().summary
    held_out = tiny.held_out(imputation.panel)
    assert held_out is not None
    assert result["trust"]["cells"] == held_out.sum()
    uses = "monitor training (and to choose between its branches, if it forked) and to set the noise level, if"
    assert uses in result["trust"]["caveat"]
    assert "half of them lie in gaps like those of the data" in result["trust"]["caveat"]
    best = GPVAE(tiny.model, recipe=recipe.PLAIN, epochs=2, device="cpu").fit(waves).impute(waves).report()
    assert "used to select the best epoch and to set the noise level, if" in best.summary["trust"]["caveat"]
    assert [each["name"] for each in result["trust"]["errors"]["methods"]] == ["mean", "forward", "linear", "GPVAE"]
    tiny.save(tmp_path / "model")
    loaded = GPVAE.load(tmp_path / "model", device="cpu")
    assert loaded.impute(waves).report().summary["trust"] == result["trust"]
    for imputer in (tiny, loaded):
        other = imputer.impute(waves[:4]).report().summary["trust"]
        assert other["coverage"] is None
        assert "GPVAE was fitted to other data, so it held out no cells of this data" in other["unknown"]
        assert "gpvae evaluate … --report" in other["unknown"]
    conformal = Conformal(Linear()).fit(waves)
    conformal.save(tmp_path / "conformal")
    judged = [each.impute(waves).report().summary["trust"] for each in (conformal, load(tmp_path / "conformal"))]
    assert judged[0]["cells"] > 0
    assert judged[0] == judged[1]
    linear = Linear().fit(waves).impute(waves).report().summary["trust"]
    assert "Linear holds out no cells" in linear["unknown"]


def test_text_column_that_a_method_ignores() -> None:
    """Even if it has more labels than a categorical column may have."""
    frame = pd.DataFrame({"x": np.sin(np.arange(150.0)), "name": [f"n{i}" for i in range(150)]})
    frame.loc[::7, "x"] = np.nan
    panel = Panel.from_frame(frame, categories=["name"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = BRITS(epochs=1, device="cpu").fit(panel).impute(panel).report().summary["trust"]
    assert result["cells"] > 0


def test_units_and_baselines_use_all_data(waves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpvae.report.evidence.MAX_ROWS", 60)
    data = waves + 100 * np.arange(len(waves))[:, None, None]
    imputer = Conformal(Linear()).fit(data)
    imputation = imputer.impute(data)
    evidence = held_out_evidence(imputation)
    assert isinstance(evidence, Evidence)
    assert len(evidence.truth) < len(imputation.panel.values)
    cells = imputer.held_out(imputation.panel)
    assert cells is not None
    scale = np.nanstd(hide(imputation.panel, cells).values, axis=0)
    np.testing.assert_allclose(evidence.units.scale, scale)
    mean = evidence.others["mean"].imputer
    assert mean is not None
    np.testing.assert_allclose(mean.schema_.scaling.scale, scale)


def test_conformal_intervals_are_calibrated(waves: Any) -> None:
    result = Conformal(Linear()).fit(waves).impute(waves).report().summary
    assert result["trust"]["coverage"]["verdict"] == "calibrated"
    assert result["trust"]["pit"] is None
    assert "epoch" not in result["trust"]["caveat"]
    assert "cover the right share of these very cells" in result["trust"]["caveat"]
    assert result["series"]["bands"]
    assert not result["series"]["samples"]


def waves_by_hand(series: int, *, tied: bool) -> Evidence:
    """Errors with deviation 1 that are the same in all of a gap, and draws that know it, or have the same marginals."""
    panel, truth = panel_with_gaps(series=series, steps=60, missing=0.0)
    cells = np.tile(np.arange(60) % 12 < 6, series)[:, None] & np.ones(3, dtype=bool)
    rng, gap = np.random.default_rng(0), np.arange(len(cells)) // 12
    shape = (60, gap[-1] + 1, 3)
    errors = rng.normal(size=shape)[:, gap] if tied else rng.normal(size=(60, *cells.shape))
    values = truth + rng.normal(size=shape[1:])[gap] + errors + 0.01 * rng.normal(size=(60, *cells.shape))
    visible, feature = hide(panel, cells), np.nonzero(cells)[1]
    scaling = Scaling(np.zeros(3), np.ones(3))
    draws = Draws(values[:, cells].T.astype(np.float32), feature, scaling, stratified=False)
    filled = Imputation(visible, np.flatnonzero(cells), draws.values().mean(axis=1), draws=draws, method="by hand")
    return Evidence(filled, truth, cells)


def test_draws_over_gaps() -> None:
    tied, untied = (assess(waves_by_hand(20, tied=each), "by hand")["gaps"] for each in (True, False))
    assert tied["sentence"].startswith("Of 300 held-out gaps of 6 cells, ")
    assert "draws hold together" in tied["sentence"]
    assert untied["sentence"].endswith(": intervals of means and sums over gaps are too narrow.")
    values = {what: (value, right) for what, value, right in tied["rows"]}
    assert values["lag-one correlation of errors"] == ("1.00", "1.00, the truth's")
    assert {what: value for what, value, _ in untied["rows"]}["lag-one correlation of errors"] in ("0.00", "-0.00")
    assert assess(waves_by_hand(1, tied=True), "by hand")["gaps"]["sentence"].startswith("Of 15 held-out gaps")


def test_without_gaps_or_enough_draws_nothing_is_said_of_them() -> None:
    evidence = waves_by_hand(20, tied=True)
    single = np.zeros_like(evidence.cells)
    single[::12] = True
    assert assess(replace(evidence, cells=single), "by hand")["gaps"] is None
    few = np.arange(len(evidence.cells))[:, None] < 30
    assert assess(replace(evidence, cells=evidence.cells & few), "by hand")["gaps"] is None
