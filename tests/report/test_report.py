"""The report without a browser: what it says, what it keeps, how it is written."""

import gzip
import json
import re
import warnings
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from numpy.typing import NDArray
from reporting import HOSTILE, filled, gappy, log_normal
from typer.testing import CliRunner

from gpvae import (
    BRITS,
    GP,
    GPVAE,
    Conformal,
    DataError,
    Imputation,
    Imputer,
    Linear,
    Mean,
    ModelConfig,
    Panel,
    cli,
    load,
)
from gpvae.evaluation import evaluate
from gpvae.gp.kernels import RBF, Cauchy
from gpvae.imputers.imputation import Margins
from gpvae.missingness import hide, random
from gpvae.report import plot_calibration, plot_missingness, plot_reconstructions, plot_series
from gpvae.report.missing import pattern
from gpvae.report.packing import FINE, LEVELS, LOGARITHM, NOT_NEGATIVE, Packer
from gpvae.report.page import SCRIPTS, Report, of_part
from gpvae.report.summary import _how_it_went, summarise
from gpvae.report.trust import Evidence, judge, own_evidence


def summary(imputation: Imputation, **given: Any) -> dict[str, Any]:
    return summarise(imputation, **{"evidence": "none", **given})


class Unpacked:
    """What unpack.js does with a pack."""

    def __init__(self, packed: bytes, panel: Panel, packer: Packer, truth: bool):
        self.bytes, self.at = gzip.decompress(packed), 0
        cells = panel.values.size
        self.times = self.take(len(panel.values), "<f8")
        self.state = self.take(cells, "u1")
        count = int((self.state & 3 == 2).sum())
        self.observed = self.take(int((self.state & 3 == 1).sum()), "<f4")
        self.truth = self.take(int((self.state & 4 > 0).sum()), "<f4") if truth else None
        groups = len(panel) * len(panel.columns)
        self.scale = self.take(len(panel.columns), "u1")
        self.lowest, self.span, self.widest = (self.take(groups, "<f4") for _ in range(3))
        self.mean = self.take(count, "<u2")
        if packer.bands:
            self.width, self.place, self.lower, self.upper = (self.take(count, "u1") for _ in range(4))
            self.samples = [self.take(count, "u1") for _ in range(packer.samples)]
        assert self.at == len(self.bytes)

    def take(self, count: int, kind: str) -> NDArray[Any]:
        size = np.dtype(kind).itemsize
        planes = np.frombuffer(self.bytes, np.uint8, count * size, self.at).reshape(size, count)
        self.at += count * size
        return np.ascontiguousarray(planes.T).view(kind).ravel()


def in_pack_order(panel: Panel, rows: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([rows[place].T.ravel() for _, place in panel.series()])


class TestPacking:
    def test_what_is_unpacked_is_what_was_packed(self) -> None:
        panel, truth = gappy(series=4, steps=30)
        imputation, packer = filled(panel, truth), Packer(bands=True, samples=3, certainty=False)
        held_out = ~panel.observed & (np.arange(panel.values.size).reshape(panel.values.shape) % 2 == 0)
        found = Unpacked(packer.pack(imputation, truth, held_out), panel, packer, truth=True)
        np.testing.assert_array_equal(found.times, panel.times)
        np.testing.assert_array_equal(found.state & 3, in_pack_order(panel, np.where(panel.observed, 1, 2)))
        seen, held = (in_pack_order(panel, each) for each in (panel.observed, held_out))
        np.testing.assert_array_equal(found.observed, in_pack_order(panel, panel.values)[seen].astype(np.float32))
        np.testing.assert_array_equal(found.truth, in_pack_order(panel, truth)[held].astype(np.float32))
        lengths = [int(length) for length in panel.lengths for _ in panel.columns]
        group = np.repeat(np.arange(len(lengths)), lengths)[~seen]
        mean = found.lowest[group] + found.mean / LEVELS * found.span[group]
        exact = in_pack_order(panel, imputation.mean_rows)[~seen]
        assert (np.abs(mean - exact) <= found.span[group] / LEVELS).all()
        width = found.widest[group] * np.exp(found.width / -32.0)
        low = mean - (found.place / 32 - 2) * width
        bands = [in_pack_order(panel, rows)[~seen] for rows in imputation.quantile_rows(0.05, 0.25, 0.75, 0.95)]
        ends = (low, low + found.lower / 32 * width, low + found.upper / 32 * width, low + width)
        for near, band in zip(ends, bands, strict=True):
            assert (np.abs(near - band) <= 0.05 * (bands[3] - bands[0])).all()
        assert (found.scale == 0).all()
        for k, sample in enumerate(found.samples):
            near = low + (sample / 16 - 7.5) * width
            stacked = np.full(panel.values.size, np.nan)
            assert imputation.draws is not None
            stacked[imputation.cells] = imputation.draws.values()[:, k]
            exact = in_pack_order(panel, stacked.reshape(panel.values.shape))[~seen]
            assert (np.abs(near - exact) <= 0.1 * (bands[3] - bands[0])).all()

    def test_positive_values_keep_their_order_of_magnitude(self) -> None:
        """Off by no more than 0.5 %, ends of bands by no more than 4 % of the band, both counted in the logarithm."""
        imputation, packer = log_normal(), Packer(bands=True, samples=3, certainty=False)
        panel = imputation.panel
        found = Unpacked(packer.pack(imputation, None, None), panel, packer, truth=False)
        assert found.scale.tolist() == [0, LOGARITHM | NOT_NEGATIVE]
        lengths = [int(length) for length in panel.lengths for _ in panel.columns]
        gaps = ~in_pack_order(panel, panel.observed)
        group = np.repeat(np.arange(len(lengths)), lengths)[gaps]
        positive = group % 2 == 1
        mean = found.lowest[group] + found.mean / LEVELS * found.span[group]
        width = found.widest[group] * np.exp(found.width / -32.0)
        low = mean - (found.place / 32 - 2) * width
        exact = in_pack_order(panel, imputation.mean_rows)[gaps]
        assert exact[positive].max() / exact[positive].min() > 1e4
        np.testing.assert_allclose(np.exp(mean[positive]), exact[positive], rtol=0.005)
        np.testing.assert_allclose(mean[~positive], exact[~positive], atol=0.01)
        bands = np.array(
            [in_pack_order(panel, rows)[gaps] for rows in imputation.quantile_rows(0.05, 0.25, 0.75, 0.95)]
        )
        bands[:, positive] = np.log(bands[:, positive])
        ends = (low, low + found.lower / 32 * width, low + found.upper / 32 * width, low + width)
        for near, band in zip(ends, bands, strict=True):
            assert (np.abs(near - band) <= 0.04 * (bands[3] - bands[0])).all()

    @pytest.mark.filterwarnings("ignore:column .* has no value in:UserWarning")
    def test_a_positive_column_whose_intervals_reach_zero_is_kept_as_it_is(self) -> None:
        imputation, packer = log_normal(), Packer(bands=True, samples=0, certainty=False)
        count = len(imputation.cells)
        floor = np.where(imputation.cells % 2 == 1, 0.0, -np.inf)
        errors = (np.linspace(0, 3, 50),) * 2
        margins = Margins(imputation.values, np.ones(count), floor, imputation.cells % 2, errors, errors[0])
        packed = packer.pack(replace(imputation, draws=None, margins=margins), None, None)
        assert Unpacked(packed, imputation.panel, packer, truth=False).scale.tolist() == [0, FINE | NOT_NEGATIVE]

    def test_series_are_packed_in_runs_that_are_all_there(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpvae.report.packing.CELLS_TOGETHER", 250)
        panel, truth = gappy(series=5)
        packs = summary(filled(panel, truth))["series"]["packs"]
        assert [(pack["first"], pack["last"]) for pack in packs] == [(0, 2), (2, 4), (4, 5)]

    def test_a_page_of_too_many_series_keeps_the_first_and_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpvae.report.summary.CELLS_KEPT", 250)
        panel, truth = gappy(series=5)
        found = summary(filled(panel, truth))["series"]
        assert (found["kept"], found["packs"][-1]["last"], len(found["ids"])) == (2, 2, 5)

    def test_of_a_series_that_is_too_long_its_first_steps_are_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpvae.report.summary.CELLS_KEPT", 75)
        panel, truth = gappy(series=2)
        imputation = filled(panel, truth)
        found = summary(imputation, truth=truth, held_out=~panel.observed)["series"]
        assert (found["kept"], found["steps_kept"], found["lengths"]) == (1, 25, [40, 40])
        (pack,) = found["packs"]
        packer = Packer(bands=True, samples=3, certainty=False)
        begun = Unpacked(b64decode(pack["data"]), panel.pick(np.arange(1), 25), packer, truth=True)
        np.testing.assert_array_equal(begun.times, panel.times[:25])
        np.testing.assert_array_equal(begun.state & 3, np.where(panel.observed[:25], 1, 2).T.ravel())
        gaps = ~panel.observed[:25].T.ravel()
        np.testing.assert_array_equal(begun.truth, truth[:25].T.ravel()[gaps].astype(np.float32))

    def test_size(self) -> None:
        """A tenth of 1,000 series × 48 × 35 with four fifths missing, of which a page may have 15 MB."""
        panel, truth = gappy(series=100, steps=48, columns=[f"c{j}" for j in range(35)], missing=0.8)
        packs = summary(filled(panel, truth))["series"]["packs"]
        assert sum(len(pack["data"]) for pack in packs) < 1.2e6


class TestMissing:
    def test_gaps_are_counted_as_they_lie(self) -> None:
        nan, one = np.nan, 1.0
        data = [
            np.array([[nan, one], [nan, one], [one, nan], [nan, one]]),
            np.array([[nan, one], [one, nan], [nan, nan]]),
        ]
        found = pattern(Panel.from_list(data))
        # x0: 2, 1 and, in the next series, 1, 1; x1: 1 and 2.
        assert [(each["name"], each["gaps"], each["values"]) for each in found["gaps"]["groups"]] == [
            ("1", 4, 4),
            ("2", 2, 4),
        ]
        assert found["longest"] == [2, 2]
        assert "Of 6 gaps, 67 % are single steps; the longest has 2." in found["gaps"]["sentence"]

    def test_what_goes_missing_together(self) -> None:
        rng = np.random.default_rng(0)
        lost = rng.random((400, 3)) < 0.3
        lost[:, 1] = lost[:, 0]
        found = pattern(Panel.from_array(np.where(lost, np.nan, 1.0)))["together"]
        np.testing.assert_allclose(found["correlation"], np.corrcoef(lost.T), atol=1e-3)
        assert "where x0 is missing, x1 is too in 100 % of the steps" in found["sentence"]

    def test_over_time_and_over_series(self) -> None:
        panel, _ = gappy(series=4, steps=10)
        found = pattern(panel)
        gaps = ~panel.observed.reshape(4, 10, 3)
        np.testing.assert_allclose(found["over_time"]["shares"], gaps.mean(axis=0).T, atol=1e-3)
        shares = gaps.mean(axis=1)
        fullest = np.argsort(shares.sum(axis=1), kind="stable")
        np.testing.assert_allclose(found["over_series"]["shares"], shares[fullest], atol=1e-3)

    def test_a_column_without_observations_has_no_gaps(self) -> None:
        values = np.array([[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan]])
        found = pattern(replace(Panel.from_array(values), columns=("a", "never")))
        assert found["gaps"]["groups"] == [{"name": "1", "gaps": 1, "values": 1}]
        assert found["gaps"]["sentence"].endswith("the longest has 1. Not counted: never, never observed.")

    def test_few_series_are_named(self) -> None:
        panel, _ = gappy(series=3)
        assert {*pattern(panel)["over_series"]["names"]} == {"s0", "s1", "s2"}
        assert pattern(gappy(series=30)[0])["over_series"]["names"] is None

    def test_what_was_hidden_for_a_test_is_not_missing(self) -> None:
        panel, truth = gappy()
        hidden = ~panel.observed & (np.arange(len(truth)) % 2 == 0)[:, None]
        found = summary(filled(panel, truth), truth=truth, held_out=hidden)
        own = ~panel.observed & ~hidden
        assert found["data"]["missing"] == own.sum() == sum(column["missing"] for column in found["columns"])
        assert found["series"]["missing"][0] == pytest.approx(own[:40].mean(), abs=1e-4)
        assert found["series"]["hidden"][0] == pytest.approx(hidden[:40].mean(), abs=1e-4)
        assert found["data"]["sentence"].endswith(f"For the test, {hidden.sum()} known values were hidden.")
        assert sum(group["values"] for group in found["missing"]["gaps"]["groups"]) == own.sum()
        complete = summary(filled(panel, truth), truth=truth, held_out=~panel.observed)
        assert complete["data"]["sentence"].startswith("Nothing is missing. For the test")

    def test_long_data_is_binned(self) -> None:
        found = pattern(Panel.from_array(np.where(np.arange(5000) < 2500, np.nan, 1.0)[:, None]))["over_time"]
        assert len(found["times"]) == len(found["shares"][0]) == 120
        assert found["shares"][0][0] == 1
        assert found["shares"][0][-1] == 0


class TestTrust:
    @pytest.mark.parametrize(
        ("spread", "verdict", "words"),
        [
            (1.0, "calibrated", "can be taken at their word"),
            (0.4, "narrow", "much too narrow"),
            (3.0, "wide", "on the safe side"),
        ],
    )
    def test_the_verdict_follows_the_numbers(self, spread: float, verdict: str, words: str) -> None:
        panel, truth = gappy(series=20, steps=60)
        found = judge(Evidence(filled(panel, truth, spread=spread), truth, ~panel.observed), "by hand")
        assert found["coverage"]["verdict"] == verdict
        assert words in found["coverage"]["sentence"]
        expected = {1.0: 0.9, 0.4: 0.49, 3.0: 1.0}[spread]  # P(|N(0, 1)| < 1.645 spread)
        assert abs(found["coverage"]["share"] - expected) < 0.05
        outer = found["pit"]["shares"][0] + found["pit"]["shares"][-1]
        assert {1.0: abs(outer - 0.2) < 0.05, 0.4: outer > 0.4, 3.0: outer < 0.05}[spread]
        assert {1.0: "evenly", 0.4: "too sure", 3.0: "too cautious"}[spread] in found["pit"]["sentence"]
        assert sum(found["pit"]["shares"]) == pytest.approx(1)  # those beyond all draws too

    def test_cells_that_set_the_intervals_do_not_vouch_for_them(self) -> None:
        panel, truth = gappy(series=20, steps=60)
        found = judge(Evidence(filled(panel, truth), truth, ~panel.observed, caveat="They were used."), "by hand")
        assert found["coverage"]["verdict"] == "calibrated"
        assert "at their word" not in found["coverage"]["sentence"]
        assert "cells that it had kept aside" in found["coverage"]["sentence"]
        assert "of others, and in gaps longer than most, expect less" in found["coverage"]["sentence"]

    @pytest.mark.parametrize(
        "maker", [GPVAE(epochs=3, device="cpu"), Conformal(Linear()), GP(epochs=2, device="cpu")], ids=lambda m: m.name
    )
    def test_the_order_of_columns_does_not_matter(self, maker: Imputer) -> None:
        """A model may have learned from a table with another one."""
        panel, _ = gappy(series=6, steps=60)
        fitted = maker.fit(panel)
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
            asked = cells if each is panel else cells[:, ::-1]
            evidence = Evidence(fitted.impute(hide(each, asked)), each.values, asked)
            shares.append(judge(evidence, "by hand")["coverage"]["share"])
        assert shares[0] == pytest.approx(shares[1])

    def test_draws_that_lean_are_not_called_even(self) -> None:
        panel, truth = gappy(series=60, steps=60)
        found = judge(Evidence(filled(panel, truth - 0.06), truth, ~panel.observed), "by hand")
        assert found["pit"]["sentence"] == (
            "The truth falls about evenly among the draws. On the whole draws are a little too low."
        )

    def test_shares_by_column_and_distance_are_those_of_their_cells(self) -> None:
        panel, truth = gappy(series=6, steps=50, missing=0.5)
        imputation, cells = filled(panel, truth), ~panel.observed
        found = judge(Evidence(imputation, truth, cells), "by hand")
        lower, upper = imputation.interval_rows(0.9)
        inside = (lower <= truth) & (truth <= upper)
        for each in found["by_column"]["columns"]:
            j = panel.columns.index(each["name"])
            assert each["share"] == pytest.approx(inside[cells[:, j], j].mean())
        near = 0
        for _, rows in panel.series():
            seen = panel.observed[rows]
            for t, j in np.argwhere(~seen):
                near += bool(np.abs(np.flatnonzero(seen[:, j]) - t).min() == 1)
        assert found["by_distance"]["groups"][0]["name"] == "1"
        assert found["by_distance"]["groups"][0]["cells"] == near

    def test_errors_beside_others(self) -> None:
        panel, truth = gappy(series=20, steps=60)
        others = {"linear": Linear().fit(panel).impute(panel), "mean": Mean().fit(panel).impute(panel)}
        found = judge(Evidence(filled(panel, truth), truth, ~panel.observed, others), "by hand")["errors"]
        error = {each["name"]: each["error"] for each in found["methods"]}
        scale = np.nanstd(panel.values, axis=0)
        exact = (np.abs(others["mean"].mean_rows - truth) / scale)[~panel.observed].mean()
        assert error["mean"] == pytest.approx(exact)
        assert error["linear"] < error["by hand"] < error["mean"]
        assert all(each["low"] < each["error"] < each["high"] for each in found["methods"])
        assert "more than linear: take linear for this data" in found["sentence"]

    @pytest.mark.parametrize("count", [1, 2, 9])
    def test_a_few_cells_tell_nothing(self, count: int) -> None:
        panel, truth = gappy(series=1)
        cells = np.zeros_like(panel.observed)
        cells[tuple(np.argwhere(~panel.observed)[:count].T)] = True
        others = {"linear": Linear().fit(panel).impute(panel)}
        imputation = filled(panel, truth, spread=0.1)
        found = judge(Evidence(imputation, truth, cells, others), "by hand")
        assert found["coverage"] is found["calibration"] is found["pit"] is None
        assert "too few to tell" in found["none"]
        assert "too few cells to tell whether another method does better" in found["errors"]["sentence"]
        assert all((each["low"] is None) == (count == 1) for each in found["errors"]["methods"])
        evidence = Evidence(imputation, truth, cells, others)
        shown = Report(summary(imputation, evidence=evidence)).html
        assert ("Bars are 95 % intervals" in shown) == (count > 1)

    def test_cells_that_fail_together_count_as_few(self) -> None:
        panel, truth = gappy(series=20, steps=60, missing=0.5)
        good, poor = (filled(panel, truth, spread=spread) for spread in (1.0, 0.05))
        assert good.draws is not None
        assert poor.draws is not None
        failing = np.isin(panel.series_of_row[good.cells // 3], [0])
        draws = replace(good.draws, scaled=np.where(failing[:, None], poor.draws.scaled, good.draws.scaled))
        found = judge(Evidence(replace(good, draws=draws), truth, ~panel.observed), "x")
        point = found["calibration"]["points"][-1]
        assert point["share"] < 0.87
        assert point["high"] > 0.9  # one of twenty series: that may be chance
        assert found["coverage"]["verdict"] == "unclear"
        assert found["by_column"]["sentence"].startswith("In no column")

    def test_single_values_have_errors_but_no_intervals(self) -> None:
        panel, truth = gappy()
        found = judge(Evidence(Linear().fit(panel).impute(panel), truth, ~panel.observed), "Linear")
        assert found["errors"]
        assert found["calibration"] is None
        assert "single values" in found["none"]

    def test_too_few_samples_are_said(self) -> None:
        panel, truth = gappy()
        imputation = filled(panel, truth, samples=5)
        assert "at least 19 samples" in judge(Evidence(imputation, truth, ~panel.observed), "x")["none"]
        found = summary(imputation)["series"]
        assert not found["bands"]
        assert "at least 19 samples" in found["without_bands"]

    def test_an_imputer_is_judged_by_what_it_held_out(self, tiny: GPVAE, waves: Any, tmp_path: Path) -> None:
        imputation = tiny.fit(waves).impute(waves)
        found = imputation.report().summary
        held_out = tiny.kept_aside(imputation.panel)
        assert held_out is not None
        assert found["trust"]["cells"] == held_out.sum()
        ended = (
            "they watched over training, which may have been done in two ways, and set the level of the noise, "
            "where it is learned"
        )
        assert ended in found["trust"]["caveat"]
        assert "half of them lie in gaps like those of the data" in found["trust"]["caveat"]
        best = GPVAE(tiny.model, epochs=2, anneal=False, device="cpu").fit(waves).impute(waves).report()
        assert "chose the best epoch and set the level of the noise, where" in best.summary["trust"]["caveat"]
        assert [each["name"] for each in found["trust"]["errors"]["methods"]] == ["mean", "forward", "linear", "GPVAE"]
        tiny.save(tmp_path / "model")
        loaded = GPVAE.load(tmp_path / "model", device="cpu")
        assert loaded.impute(waves).report().summary["trust"] == found["trust"]
        for imputer in (tiny, loaded):
            other = imputer.impute(waves[:4]).report().summary["trust"]
            assert other["coverage"] is None
            assert "GPVAE kept no cells of this data aside, or was fitted to other data" in other["none"]
            assert "gpvae evaluate … --report" in other["none"]
        conformal = Conformal(Linear()).fit(waves)
        conformal.save(tmp_path / "conformal")
        judged = [each.impute(waves).report().summary["trust"] for each in (conformal, load(tmp_path / "conformal"))]
        assert judged[0]["cells"] > 0
        assert judged[0] == judged[1]
        linear = Linear().fit(waves).impute(waves).report().summary["trust"]
        assert "Linear keeps no cells aside" in linear["none"]

    def test_text_that_a_method_leaves_alone_is_left_alone(self) -> None:
        """Be it more labels than categories may have."""
        frame = pd.DataFrame({"x": np.sin(np.arange(150.0)), "name": [f"n{i}" for i in range(150)]})
        frame.loc[::7, "x"] = np.nan
        panel = Panel.from_frame(frame, categories=["name"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = BRITS(epochs=1, device="cpu").fit(panel).impute(panel).report().summary["trust"]
        assert found["cells"] > 0

    def test_all_of_the_data_sets_the_units_and_fits_the_baselines(
        self, waves: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("gpvae.report.trust.ROWS_FILLED_AGAIN", 60)
        data = waves + 100 * np.arange(len(waves))[:, None, None]
        imputer = Conformal(Linear()).fit(data)
        imputation = imputer.impute(data)
        evidence = own_evidence(imputation)
        assert isinstance(evidence, Evidence)
        assert len(evidence.truth) < len(imputation.panel.values)
        cells = imputer.kept_aside(imputation.panel)
        assert cells is not None
        scale = np.nanstd(hide(imputation.panel, cells).values, axis=0)
        np.testing.assert_allclose(evidence.units.scale, scale)
        mean = evidence.others["mean"].maker
        assert mean is not None
        np.testing.assert_allclose(mean.schema_.scaling.scale, scale)

    def test_conformal_intervals_hold_what_they_were_set_to(self, waves: Any) -> None:
        found = Conformal(Linear()).fit(waves).impute(waves).report().summary
        assert found["trust"]["coverage"]["verdict"] == "calibrated"
        assert found["trust"]["pit"] is None
        assert "epoch" not in found["trust"]["caveat"]
        assert "hold their share of these very cells" in found["trust"]["caveat"]
        assert found["series"]["bands"]
        assert not found["series"]["samples"]


def classes() -> Imputation:
    rng = np.random.default_rng(0)
    sky = ["clear" if day % 12 < 6 else "rain" for day in range(60)]
    table = pd.DataFrame(
        {
            "sky": [None if lost else each for each, lost in zip(sky, rng.random(60) < 0.3, strict=True)],
            "visits": np.where(rng.random(60) < 0.3, np.nan, rng.poisson(4, 60)),
            "heat": rng.normal(size=60),
        }
    )
    small = ModelConfig(latent_dim=2, encoder_filters=16, decoder_widths=(8,))
    model = GPVAE(small, kinds={"sky": "categorical", "visits": "count"}, epochs=2, device="cpu")
    return model.fit(table).impute(table)


def uneven() -> dict[str, Any]:
    """A summary of four columns, one of which does not vary, and one was never observed."""
    panel, truth = gappy(series=4, columns=("a", "b", "still", "never"))
    truth[:, 2], truth[:, 3] = 7.0, np.nan
    panel = panel.with_values(np.where(panel.observed, truth, np.nan))
    small = ModelConfig(latent_dim=8, encoder_filters=16, decoder_widths=(8,))
    with warnings.catch_warnings(action="ignore"):  # "never" has no observed value
        imputation = GPVAE(small, epochs=3, device="cpu").fit(panel).impute(panel)
        return summary(imputation, evidence=Evidence(imputation, truth, ~panel.observed & ~np.isnan(truth)))


def images() -> tuple[Imputation, NDArray[Any]]:
    rng = np.random.default_rng(0)
    truth = (rng.random((6, 5, 12)) < 0.4).astype(float)
    data = np.where(rng.random(truth.shape) < 0.3, np.nan, truth)
    config = ModelConfig(
        latent_dim=2,
        encoder_filters=16,
        decoder_widths=(8,),
        image_shape=(1, 3, 4),
        image_filters=2,
        likelihood="bernoulli",
    )
    return GPVAE(config, epochs=1, device="cpu").fit(data).impute(data), truth.reshape(-1, 12)


def edge(name: str) -> Imputation:
    panel, truth = gappy()
    whole = panel.with_values(truth)
    lengths = [np.where(np.arange(n)[:, None] % 3 == 1, np.nan, np.arange(n)[:, None] * 1.0) for n in (1, 2, 9)]
    lost = np.column_stack([np.where(np.arange(9) % 3, np.arange(9.0), np.nan), np.full(9, np.nan), np.ones(9)])
    return {
        "nothing missing": lambda: filled(whole, truth),
        "one column": lambda: filled(panel.select(["a"]), truth[:, :1]),
        "one step": lambda: Linear().fit(truth).impute(np.array([[np.nan, 1.0, 2.0]])),
        "single values": lambda: Linear().fit(panel).impute(panel),
        "lengths": lambda: Mean().fit(lengths).impute(lengths),
        "stays missing": lambda: Linear().fit(lost).impute(lost),
        "classes": classes,
        "images": lambda: images()[0],
        "conformal": lambda: Conformal(Linear()).fit(panel).impute(panel),
        "numbers for names": lambda: Linear().fit(pd.DataFrame(lost[:, ::2])).impute(pd.DataFrame(lost[:, ::2])),
    }[name]()


EDGES = [
    "nothing missing",
    "one column",
    "one step",
    "single values",
    "lengths",
    "stays missing",
    "classes",
    "images",
    "conformal",
    "numbers for names",
]


class TestPage:
    @pytest.mark.filterwarnings("ignore:column .* observed value:UserWarning", "ignore:column .* constant:UserWarning")
    @pytest.mark.parametrize("name", EDGES)
    def test_anything_can_be_shown(self, name: str) -> None:
        report = edge(name).report()
        json.dumps(report.summary, allow_nan=False)
        assert report.html.startswith("<!DOCTYPE html>")
        assert "nan" not in re.sub(r"<script.*?</script>", "", report.html, flags=re.DOTALL).lower().split()

    def test_it_needs_nothing_else(self) -> None:
        panel, truth = gappy()
        html = Report(summary(filled(panel, truth))).html
        outside = re.sub(r'<script type="text/plain".*?</script>', "", html, flags=re.DOTALL)
        assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", outside)
        assert "default-src 'none'" in html
        assert len(html) < 2.5e6

    def test_hostile_names_are_text(self) -> None:
        panel, truth = gappy(columns=(HOSTILE, "b"))
        panel = replace(panel, ids=(HOSTILE, "s1", "s2"))
        imputation = replace(filled(panel, truth), method=HOSTILE)
        evidence = Evidence(imputation, truth, ~panel.observed, {HOSTILE: imputation})
        report = Report(summary(imputation, evidence=evidence))
        tags = re.findall(r"<(script|img)\b", report.html)
        assert tags.count("img") == 0
        packs = len(report.summary["series"]["packs"])
        assert tags.count("script") == 2 + len(SCRIPTS) + packs  # the JSON, Plotly, the page's own
        assert json.loads(re.findall(r'id="data">(.*?)</script>', report.html)[0])["columns"][0]["name"] == HOSTILE

    def test_is_written_whole_or_not_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        panel, truth = gappy()
        imputation, path = filled(panel, truth), tmp_path / "report.html"
        imputation.report(path)
        before = path.read_bytes()
        with pytest.raises(DataError, match="exists already"):
            imputation.report(path)
        monkeypatch.setattr("gpvae.report.page._render", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            imputation.report(path, overwrite=True)
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir()] == ["report.html"]

    def test_names_that_are_no_text_can_be_written(self, tmp_path: Path) -> None:
        panel, truth = gappy(columns=("a", "b"))
        filled(replace(panel, columns=("\ud800", "b")), truth).report(tmp_path / "report.html")
        assert "&#55296;" in (tmp_path / "report.html").read_text()

    def test_in_a_notebook(self) -> None:
        panel, truth = gappy(series=50)
        imputation = filled(panel, truth)
        shown = of_part(imputation, cells=1000).summary
        assert len(shown["series"]["ids"]) == 8
        assert "the first 8 of 50 series" in shown["trust"]["none"]
        html = imputation._repr_html_()
        assert html.startswith("<iframe")
        assert 'sandbox="allow-scripts"' in html
        assert len(html) < 4e6
        broken = replace(imputation, maker=3, method="<b>")
        assert "cannot be shown" in broken._repr_html_()

    def test_held_out_truth_of_an_evaluation_is_there(self, tmp_path: Path) -> None:
        panel, truth = gappy()
        whole = panel.with_values(truth)
        result = evaluate(whole, random(whole, 0.2, 0), {"mean": Mean(), "linear": Conformal(Linear())})
        report = result.report(tmp_path / "report.html")
        found = report.summary
        assert found["series"]["truth"]
        assert found["model"]["name"] == "linear"
        assert [score["method"] for score in found["scores"]] == ["mean", "linear"]
        assert found["trust"]["cells"] == result.cells.sum()
        pack = gzip.decompress(b64decode(found["series"]["packs"][0]["data"]))
        state = np.frombuffer(pack, np.uint8, truth.size, 8 * len(truth))
        assert (state & 4 > 0).sum() == (state & 3 == 2).sum() == result.cells.sum()


class TestLatents:
    def test_of_each_row_and_series(self, tiny: GPVAE, waves: Any) -> None:
        latents = tiny.fit(waves).latents(waves)
        assert latents.mean.shape == latents.std.shape == (360, 3)
        assert (latents.std > 0).all()
        alone = tiny.latents(waves[4:5])
        np.testing.assert_allclose(latents.mean[120:150], alone.mean, atol=1e-4)

    def test_a_latent_that_is_not_decoded_has_no_influence(self, tiny: GPVAE, waves: Any) -> None:
        tiny.fit(waves)
        first: Any = next(iter(tiny.model_.decoder.children()))
        first.weight.data[:, 1] = 0
        influence = tiny.influence(waves)
        assert influence.shape == (5, 3)  # three latents, all of them, and the surroundings
        assert (influence[1] == 0).all()
        assert (influence[[0, 2, 3, 4]] > 0).all()

    def test_of_one_long_series_a_stretch_is_probed(
        self, tiny: GPVAE, waves: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        long = waves.reshape(1, -1, 3).copy()
        imputation = tiny.fit(long).impute(long)
        monkeypatch.setattr("gpvae.report.summary.ROWS_TO_PROBE", 50)
        probed: list[int] = []
        influence = GPVAE.influence
        monkeypatch.setattr(GPVAE, "influence", lambda own, x: (probed.append(len(x.values)), influence(own, x))[1])
        summary(imputation)
        assert probed == [50]

    @pytest.mark.filterwarnings("error")
    def test_a_column_without_a_value_has_no_influence_known(self, tiny: GPVAE, waves: Any) -> None:
        empty = waves[:2].copy()
        empty[..., 1] = np.nan
        influence = tiny.fit(waves).influence(empty)
        assert np.isnan(influence[:, 1]).all()
        assert (influence[:, [0, 2]] > 0).all()

    @pytest.mark.parametrize(("kernel", "expected"), [(Cauchy(7.0), 7.0), (RBF(5.0), 5 * np.sqrt(2 * np.log(2)))])
    def test_length_scales(self, kernel: Any, expected: float, waves: Any) -> None:
        config = ModelConfig(kernel=kernel, learn_kernel=False, latent_dim=3, encoder_filters=16, decoder_widths=(8,))
        model = GPVAE(config, epochs=1, device="cpu").fit(Panel.from_array(waves, times=np.arange(30) * 10.0))
        np.testing.assert_allclose(model.length_scales(), 10 * expected, rtol=0.01)

    def test_report_of_them(self, tiny: GPVAE, waves: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("gpvae.report.summary.LATENT_NUMBERS", 400)
        found = summary(tiny.fit(waves).impute(waves))["latent"]
        assert (found["kept"], len(found["packs"]), found["dims"]) == (4, 4, 3)
        assert found["influence"]["rows"][-2:] == ["all latent series", "nearest visible values"]
        assert sorted(found["order"]) == [0, 1, 2]


def test_training_says_how_it_went(tiny: GPVAE, waves: Any) -> None:
    imputation = tiny.fit(waves).impute(waves)
    found = summary(imputation)["training"]
    assert found["epochs"] == 6
    last = found["parts"]["validation"][-1]
    assert f"The negative log density of held-out cells is {last:.3f} after the last of 6" in found["sentence"]
    facts = dict(summary(imputation)["model"]["facts"])
    assert {"latent series", "time to fit", "time to fill", "parameters"} <= {*facts}


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([3.0, 1.0, *[-1.0] * 9, -1.001], "had levelled off"),
        ([12.0 - epoch for epoch in range(12)], "was still falling"),
        ([3.0, -1.0, *[0.0] * 10], "later ones did not improve on it"),
        ([3.0, 1.0, -1.0, -1.0, -1.001], "too few to tell whether more would help"),
    ],
)
def test_whether_training_was_done(scores: list[float | None], words: str) -> None:
    told = _how_it_went({"validation": scores}, "error", keeps_last=False)
    assert told.startswith("The error of held-out cells was lowest in epoch")
    assert words in told
    told = _how_it_went({"validation": scores}, "error", keeps_last=True)
    assert told.startswith(f"The error of held-out cells is {scores[-1]:.3f} after the last of {len(scores)} epochs")
    assert words.replace("later ones did not improve on it", "it was lowest in epoch 2 (-1.000)") in told


class TestPlots:
    def test_series_over_dates(self) -> None:
        panel, truth = gappy()
        figure = plot_series(filled(panel, truth), "s1", columns=["b"], truth=truth)
        (axis,) = figure.axes
        assert [line.get_label() for line in axis.get_lines()][:2] == ["observed", "filled"]
        first = np.asarray(axis.get_lines()[0].get_xdata())[0]
        assert first == np.datetime64("2024-03-01")
        assert any(isinstance(each, PolyCollection) for each in axis.collections)
        with pytest.raises(DataError, match="there is no series 's9'"):
            plot_series(filled(panel, truth), "s9")

    def test_rows_outside_a_series_are_refused(self) -> None:
        panel, truth = gappy()
        with pytest.raises(DataError, match="the series has 40 steps"):
            plot_series(filled(panel, truth), rows=slice(900, 1000))

    def test_categories_are_named(self) -> None:
        panel, truth = gappy()
        named = replace(panel, values=np.round(panel.values % 2), labels={"b": ("dry", "wet", "white")})
        shown = replace(filled(panel, truth), panel=named)
        first, second, _ = plot_series(shown).axes
        assert [each.get_text() for each in second.get_yticklabels()] == ["dry", "wet", "white"]
        assert "dry" not in [each.get_text() for each in first.get_yticklabels()]
        assert [[line.get_linestyle() for line in axis.get_lines()] for axis in (first, second)] == [
            ["None", "-", "None"],
            ["None", "None"],  # nothing lies between two categories
        ]
        legend = plot_series(shown, columns=["b", "a"]).legends[0]
        assert [each.get_text() for each in legend.get_texts()] == ["observed", "filled", "interval"]

    def test_single_values_have_a_plot_too(self) -> None:
        panel, _ = gappy()
        (axis, *_) = plot_series(Linear().fit(panel).impute(panel)).axes
        assert axis.get_title(loc="left") == "filled gaps"

    def test_calibration(self) -> None:
        panel, truth = gappy()
        whole = panel.with_values(truth)
        methods = {"mean": Mean(), "a": Conformal(Linear()), "b": Conformal(Mean())}
        (axis,) = plot_calibration(evaluate(whole, random(whole, 0.2, 0), methods)).axes
        _, labels = axis.get_legend_handles_labels()
        assert labels == ["as promised", "a", "b"]
        with pytest.raises(DataError, match="no calibration to draw: The imputer is not at hand"):
            plot_calibration(filled(panel, truth))

    def test_missingness(self) -> None:
        panel, truth = gappy()
        axis = plot_missingness(filled(panel, truth)).axes[0]
        assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b", "c"]
        gaps = ~panel.observed.reshape(3, 40, 3)
        np.testing.assert_allclose(np.asarray(axis.images[0].get_array()), gaps.mean(axis=0).T, atol=1e-3)

    def test_reconstructions(self) -> None:
        imputation, truth = images()
        (axis,) = plot_reconstructions(imputation, truth=truth, frames=4).axes
        assert [label.get_text() for label in axis.get_yticklabels()] == ["truth", "input", "filled", "uncertainty"]
        panel, whole = gappy()
        with pytest.raises(DataError, match="image_shape is needed"):
            plot_reconstructions(filled(panel, whole))


class TestCommands:
    @pytest.fixture
    def table(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.chdir(tmp_path)
        panel, _ = gappy(steps=25)
        frame: Any = pd.DataFrame(panel.values, columns=["a", "b", "c"])
        frame.insert(0, "name", np.repeat(panel.ids, panel.lengths))
        frame.to_csv("table.csv", index=False)
        return tmp_path

    def run(self, *words: str) -> Any:
        return CliRunner().invoke(cli.app, [*words, "--id", "name", "--epochs", "1", "--device", "cpu"])

    @pytest.mark.usefixtures("table")
    def test_impute_and_evaluate_write_one(self) -> None:
        result = self.run("impute", "table.csv", "-o", "filled.csv", "--report", "report.html")
        assert result.exit_code == 0, result.output
        assert "report: report.html" in result.output
        assert "not untouched" in Path("report.html").read_text()
        result = self.run("evaluate", "table.csv", "--methods", "linear,gp-vae", "--report", "judged.html")
        assert result.exit_code == 0, result.output
        assert "All scores" in Path("judged.html").read_text()

    @pytest.mark.usefixtures("table")
    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("there.html", "--report: there.html exists already"),
            ("table.csv", "--report: table.csv"),
            ("folder", "--report: folder is a folder; name a file in it"),
            ("nowhere/report.html", "--report: cannot write nowhere/report.html: there is no folder nowhere"),
        ],
    )
    @pytest.mark.parametrize("command", ["impute", "evaluate"])
    def test_what_cannot_be_written_is_said_at_once(
        self, command: str, path: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(GPVAE, "fit", lambda *_, **__: 1 / 0)
        Path("there.html").write_text("precious")
        Path("folder").mkdir()
        words = ["impute", "table.csv", "-o", "filled.csv"] if command == "impute" else ["evaluate", "table.csv"]
        result = self.run(*words, "--report", path)
        assert result.exit_code == 1
        assert message in result.output.replace("\n", "")
        assert Path("there.html").read_text() == "precious"

    @pytest.mark.usefixtures("table")
    def test_force_replaces_it(self) -> None:
        Path("report.html").write_text("old")
        words = ["evaluate", "table.csv", "--methods", "mean,linear", "--report", "report.html", "--force"]
        assert self.run(*words).exit_code == 0
        assert Path("report.html").read_text().startswith("<!DOCTYPE html>")


def test_hidden_cells_of_panels_are_picked_with_their_rows() -> None:
    panel, _ = gappy(series=4, steps=10)
    part = panel.pick(np.array([1, 3]), 6)
    assert part.ids == ("s1", "s3")
    np.testing.assert_array_equal(part.values, np.concatenate([panel.values[10:16], panel.values[30:36]]))
    assert part.origin == panel.origin
    np.testing.assert_array_equal(part.fill(part.values)["b"], part.values[:, 1])
    assert not hide(part, part.observed).observed.any()
