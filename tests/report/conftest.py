"""Pages of reports, and a browser to open them."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, OpenPage, Show
from report_examples import (
    HOSTILE,
    fill_by_hand,
    imputation_by_factors,
    imputation_of_images,
    imputation_with_classes,
    log_normal_imputation,
    panel_with_gaps,
    uneven_summary,
)

from gpvae import Imputation, Linear, Panel
from gpvae.report.evidence import Evidence
from gpvae.report.page import Report
from gpvae.report.summary import summarise


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not CHROMIUM:
        pytest.skip("chromium is not installed: `apt-get install chromium` (make test tries to)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra `dev`")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser: Any, pages: dict[str, Path]) -> Iterator[Show]:
    """Open a page by its name; it is closed after the test."""
    shown: list[OpenPage] = []

    def one(name: str, **look: Any) -> OpenPage:
        shown.append(OpenPage(browser, pages[name], **look))
        return shown[-1]

    yield one
    for each in shown:
        each.context.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    panel, truth = panel_with_gaps(series=30, steps=50)
    imputation = fill_by_hand(panel, truth)
    evidence = Evidence(imputation, truth, ~panel.observed, {"linear": Linear().fit(panel).impute(panel)})
    hostile_panel, hostile_truth = panel_with_gaps(columns=(HOSTILE, "b"))
    hostile = replace(fill_by_hand(replace(hostile_panel, ids=(HOSTILE, "s1", "s2")), hostile_truth), method=HOSTILE)
    hostile_evidence = Evidence(hostile, hostile_truth, ~hostile_panel.observed, {HOSTILE: hostile})
    steps = 60_000
    lost = np.random.default_rng(0).random((steps, 2)) < 0.2
    wave = np.sin(np.arange(steps)[:, None] / 50) + np.array([0.0, 5.0])
    wave[31_234, 0] = 40.0  # one outlier
    lost[31_234, 0] = False
    long = fill_by_hand(Panel.from_array(np.where(lost, np.nan, wave)), wave, samples=20)
    pictures, frames = imputation_of_images()
    summaries = {
        "plain": summarise(imputation, evidence=evidence, truth=truth, held_out=~panel.observed),
        "hostile": summarise(hostile, evidence=hostile_evidence, truth=hostile_truth, held_out=~hostile_panel.observed),
        "long": summarise(long, evidence="none"),
        "images": summarise(pictures, evidence="none", truth=frames, held_out=~pictures.panel.observed),
        "classes": summarise(imputation_with_classes(), evidence="none"),
        "many": summarise(_many(), evidence="none"),
        "uneven": uneven_summary(),
        "factors": summarise(imputation_by_factors(), evidence="none"),
        "noise": summarise(imputation_by_factors(shared=False), evidence="none"),
        "nothing": summarise(fill_by_hand(panel.with_values(truth), truth), evidence="none"),
        "positive": summarise(log_normal_imputation(), evidence="none"),
        "single": summarise(Linear().fit(panel).impute(panel), evidence="none"),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gpvae.report.series.MAX_CELLS", 75)
        summaries["cut"] = summarise(imputation, evidence="none")
    for name, summary in summaries.items():
        Report(summary).written(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in summaries}


def _many() -> Imputation:
    panel, truth = panel_with_gaps(series=10_000, steps=4, columns=("a", "b"))
    return fill_by_hand(panel, truth, samples=20)
