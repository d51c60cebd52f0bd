"""The page: what it can show, and how it is written."""

import gzip
import json
import re
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from report_examples import (
    HOSTILE,
    fill_by_hand,
    imputation_of_images,
    imputation_with_classes,
    panel_with_gaps,
    summary,
)
from typer.testing import CliRunner

from gpvae import (
    GPVAE,
    Conformal,
    DataError,
    Imputation,
    Linear,
    Mean,
    cli,
)
from gpvae.evaluation import evaluate
from gpvae.missingness import random
from gpvae.report.evidence import Evidence
from gpvae.report.page import SCRIPTS, Report, of_part


def edge(name: str) -> Imputation:
    panel, truth = panel_with_gaps()
    whole = panel.with_values(truth)
    lengths = [np.where(np.arange(n)[:, None] % 3 == 1, np.nan, np.arange(n)[:, None] * 1.0) for n in (1, 2, 9)]
    lost = np.column_stack([np.where(np.arange(9) % 3, np.arange(9.0), np.nan), np.full(9, np.nan), np.ones(9)])
    return {
        "nothing missing": lambda: fill_by_hand(whole, truth),
        "one column": lambda: fill_by_hand(panel.select(["a"]), truth[:, :1]),
        "one step": lambda: Linear().fit(truth).impute(np.array([[np.nan, 1.0, 2.0]])),
        "single values": lambda: Linear().fit(panel).impute(panel),
        "lengths": lambda: Mean().fit(lengths).impute(lengths),
        "stays missing": lambda: Linear().fit(lost).impute(lost),
        "classes": imputation_with_classes,
        "images": lambda: imputation_of_images()[0],
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


@pytest.mark.filterwarnings("ignore:column .* observed value:UserWarning", "ignore:column .* constant:UserWarning")
@pytest.mark.parametrize("name", EDGES)
def test_every_kind_of_imputation_has_a_page(name: str) -> None:
    report = edge(name).report()
    json.dumps(report.summary, allow_nan=False)
    assert report.html.startswith("<!DOCTYPE html>")
    assert "nan" not in re.sub(r"<script.*?</script>", "", report.html, flags=re.DOTALL).lower().split()


def test_page_is_self_contained() -> None:
    panel, truth = panel_with_gaps()
    html = Report(summary(fill_by_hand(panel, truth))).html
    outside = re.sub(r'<script type="text/plain".*?</script>', "", html, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", outside)
    assert "default-src 'none'" in html
    assert len(html) < 1e6


def test_markup_in_names_is_escaped() -> None:
    panel, truth = panel_with_gaps(columns=(HOSTILE, "b"))
    panel = replace(panel, ids=(HOSTILE, "s1", "s2"))
    imputation = replace(fill_by_hand(panel, truth), method=HOSTILE)
    evidence = Evidence(imputation, truth, ~panel.observed, {HOSTILE: imputation})
    report = Report(summary(imputation, evidence=evidence))
    tags = re.findall(r"<(script|img)\b", report.html)
    assert tags.count("img") == 0
    packs = len(report.summary["series"]["packs"])
    assert tags.count("script") == 2 + len(SCRIPTS) + packs  # the JSON and Plotly, then the scripts and packs
    assert json.loads(re.findall(r'id="data">(.*?)</script>', report.html)[0])["columns"][0]["name"] == HOSTILE


def test_page_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panel, truth = panel_with_gaps()
    imputation, path = fill_by_hand(panel, truth), tmp_path / "report.html"
    imputation.report(path)
    before = path.read_bytes()
    with pytest.raises(DataError, match="exists already"):
        imputation.report(path)
    monkeypatch.setattr("gpvae.report.page._render", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        imputation.report(path, overwrite=True)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]


def test_names_with_lone_surrogates_can_be_written(tmp_path: Path) -> None:
    panel, truth = panel_with_gaps(columns=("a", "b"))
    fill_by_hand(replace(panel, columns=("\ud800", "b")), truth).report(tmp_path / "report.html")
    assert "&#55296;" in (tmp_path / "report.html").read_text()


def test_notebook_preview() -> None:
    panel, truth = panel_with_gaps(series=50)
    imputation = fill_by_hand(panel, truth)
    shown = of_part(imputation, cells=1000).summary
    assert len(shown["series"]["ids"]) == 8
    assert "It has the first 8 of 50 series" in shown["trust"]["unknown"]
    html = imputation._repr_html_()
    assert html.startswith("<iframe")
    assert 'sandbox="allow-scripts"' in html
    assert len(html) < 2e6
    broken = replace(imputation, imputer=3, method="<b>")
    assert "cannot be shown" in broken._repr_html_()


def test_report_of_an_evaluation_has_the_held_out_values(tmp_path: Path) -> None:
    panel, truth = panel_with_gaps()
    whole = panel.with_values(truth)
    result = evaluate(whole, random(whole, 0.2, 0), {"mean": Mean(), "linear": Conformal(Linear())})
    report = result.report(tmp_path / "report.html")
    content = report.summary
    assert content["series"]["truth"]
    assert content["model"]["name"] == "linear"
    assert [score["method"] for score in content["scores"]] == ["mean", "linear"]
    assert content["trust"]["cells"] == result.cells.sum()
    pack = gzip.decompress(b64decode(content["series"]["packs"][0]["data"]))
    state = np.frombuffer(pack, np.uint8, truth.size, 8 * len(truth))
    assert (state & 4 > 0).sum() == (state & 3 == 2).sum() == result.cells.sum()


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    panel, _ = panel_with_gaps(steps=25)
    frame: Any = pd.DataFrame(panel.values, columns=["a", "b", "c"])
    frame.insert(0, "name", np.repeat(panel.ids, panel.lengths))
    frame.to_csv("table.csv", index=False)
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(cli.app, [*words, "--id", "name", "--epochs", "1", "--device", "cpu"])


@pytest.mark.usefixtures("table")
def test_impute_and_evaluate_write_a_report() -> None:
    result = run("impute", "table.csv", "-o", "filled.csv", "--report", "report.html")
    assert result.exit_code == 0, result.output
    assert "report: report.html" in result.output
    assert "not fully independent" in Path("report.html").read_text()
    result = run("evaluate", "table.csv", "--methods", "linear,gp-vae", "--report", "judged.html")
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
def test_unwritable_report_is_refused_before_training(
    command: str, path: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GPVAE, "fit", lambda *_, **__: 1 / 0)
    Path("there.html").write_text("precious")
    Path("folder").mkdir()
    words = ["impute", "table.csv", "-o", "filled.csv"] if command == "impute" else ["evaluate", "table.csv"]
    result = run(*words, "--report", path)
    assert result.exit_code == 1
    assert message in result.output.replace("\n", "")
    assert Path("there.html").read_text() == "precious"


@pytest.mark.usefixtures("table")
def test_force_overwrites_a_report() -> None:
    Path("report.html").write_text("old")
    words = ["evaluate", "table.csv", "--methods", "mean,linear", "--report", "report.html", "--force"]
    assert run(*words).exit_code == 0
    assert Path("report.html").read_text().startswith("<!DOCTYPE html>")
