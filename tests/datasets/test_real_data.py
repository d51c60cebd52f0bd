"""On real tables as they are published, read from the folder that GPVAE_DATA names."""

import os
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpvae import (
    DEFAULT,
    GPVAE,
    DataError,
    Forward,
    Imputer,
    Linear,
    Mean,
    Panel,
    cli,
    missingness,
    read,
)
from gpvae.data.files import read_table
from gpvae.data.panel import Bools
from gpvae.datasets import healing_mnist, physionet
from gpvae.evaluation import evaluate
from gpvae.paper.reproduction import Record, driver, runs_of
from gpvae.paper.reproduction.gaps import LENGTH_SCALES

DATA = os.environ.get("GPVAE_DATA")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not DATA, reason="GPVAE_DATA names no folder with the real data"),
]


def test_beijing_station_is_read_and_filled() -> None:
    (path,) = Path(DATA or "").glob("beijing_multisite/PRSA_Data_Dongsi_*.csv.gz")
    columns = ["PM2.5", "CO", "TEMP", "PRES"]
    panel = read(path, time="No", columns=columns)
    assert panel.values.shape == (35064, 4)
    assert panel.observed.mean(axis=0).round(3).tolist() == [0.979, 0.909, 0.999, 0.999]
    first = Panel.from_frame(panel.fill(panel.values), time="No", columns=columns)
    assert np.array_equal(first.values, panel.values, equal_nan=True)
    model = GPVAE(replace(DEFAULT, latent_dim=4, decoder_widths=(32,)), epochs=1, device="cpu").fit(panel)
    filled = model.impute(panel, samples=2)
    assert np.isfinite(filled.mean).all()
    assert np.array_equal(filled.mean[panel.observed], panel.values[panel.observed])


def test_italian_air_quality_with_semicolons_and_decimal_commas() -> None:
    """Its dates alone are no times (24 rows have the same), which is said; its last rows are empty, and left out."""
    path = Path(DATA or "") / "air_quality_uci" / "AirQualityUCI.csv.gz"
    table = read_table(path).table
    assert [table[name][0].as_py() for name in ("CO(GT)", "T", "AH", "RH")] == [2.6, 13.6, 0.7578, 48.9]
    with pytest.raises(DataError, match=r"AirQualityUCI.csv.gz: two rows have the same time: Date 2004-03-10"):
        read(path)


def standardised_error(imputer: Imputer, panel: Panel, held_out: Bools) -> float:
    result = evaluate(panel, held_out, {"": imputer})
    (score,) = result.scores
    assert score.mae is not None
    return score.mae


def test_simple_methods_on_physionet() -> None:
    """Set a, a tenth of what was measured hidden: MAE .462 for the mean and .454 for forward, in deviations."""
    patients = physionet.read(Path(DATA or "") / "physionet2012" / "set-a.tar.xz")
    assert patients.values.shape == (4000, 48, 35)
    means = dict(zip(physionet.VARIABLES, np.nanmean(patients.values, axis=(0, 1)), strict=True))
    assert means["HR"] == pytest.approx(86.7232041323, rel=1e-11)
    assert means["DiasABP"] == pytest.approx(59.540976152469405, rel=1e-13)
    panel = Panel.from_array(patients.values)
    assert 1 - panel.observed.mean() == pytest.approx(0.805, abs=5e-4)
    held_out = missingness.random(panel, 0.1, 0)
    assert standardised_error(Mean(), panel, held_out) == pytest.approx(0.462, abs=0.004)
    assert standardised_error(Forward(), panel, held_out) == pytest.approx(0.454, abs=0.004)
    assert standardised_error(Linear(), panel, held_out) < 0.40


def test_simple_methods_on_healing_mnist() -> None:
    """Half of the pixels missing at random: MSE .068 for the mean (.069 in the paper) and .099 for forward."""
    digits = healing_mnist.read_images(Path(DATA or "") / "mnist" / "t10k-images-idx3-ubyte.gz")[::5]
    truth = healing_mnist.rotated(digits, seed=0).astype(np.float64)
    gaps = np.random.default_rng(0).random(truth.shape) < 0.5
    data = np.where(gaps, np.nan, truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pixels at the margin are always black
        mean, forward = (method.fit(data).impute(data).mean for method in (Mean(), Forward(before=0.0)))
    assert np.mean((mean - truth)[gaps] ** 2) == pytest.approx(0.068, abs=0.001)
    assert np.mean((forward - truth)[gaps] ** 2) == pytest.approx(0.099, abs=0.0015)


@pytest.mark.parametrize(("name", "error"), [("spatial", 0.099), ("temporal+", 0.117), ("temporal-", 0.093)])
def test_forward_on_healing_mnist_with_the_papers_mechanisms(name: str, error: float) -> None:
    """Half of the pixels missing: the length scales are not published; ours give forward imputation the same MSE."""
    digits = healing_mnist.read_images(Path(DATA or "") / "mnist" / "t10k-images-idx3-ubyte.gz")[::10]
    truth = Panel.of(healing_mnist.rotated(digits, seed=0).astype(np.float64))
    shape = {"image_shape": (28, 28)} if name == "spatial" else {}
    gaps = missingness.MECHANISMS[name](truth, 0.5, 0, **shape, length_scale=LENGTH_SCALES[name])
    data = missingness.hide(truth, gaps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pixels at the margin are always black
        filled = Forward(before=0.0).fit(data).impute(data).mean
    assert np.mean((filled.reshape(gaps.shape) - truth.values)[gaps] ** 2) == pytest.approx(error, abs=0.002)


def test_a_table_of_the_paper_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T3 in small, of the methods that are quick: in processes of their own the numbers are the same."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cheap = [run for run in runs_of("T3", 1, quick=True) if run.task.method in ("mean", "forward", "gp-vae")]
    monkeypatch.setattr(driver, "runs_of", lambda name, seeds, quick: cheap)
    rows: list[list[dict[str, str]]] = []
    for jobs in ("1", "2"):
        folder = tmp_path / jobs
        words = ["reproduce", "T3", "--quick", "--seeds", "1", "--device", "cpu", "--jobs", jobs, "-o", str(folder)]
        result = CliRunner().invoke(cli.app, words)
        assert result.exit_code == 0, result.output
        found = [{**row, "seconds": ""} for row in Record(folder / "quick" / "runs.csv").rows()]
        rows.append(sorted(found, key=lambda row: (row["method"], row["changes"])))
    assert rows[0] == rows[1]
    assert [(row["method"], row["changes"]) for row in rows[0]] == [
        ("forward", "0"),
        ("gp-vae", "0"),
        ("gp-vae", "4"),
        ("mean", "0"),
    ]
    assert all(0.4 < float(row["auroc"]) < 0.9 for row in rows[0])
    assert all(0.2 < float(row["mse"]) < 1.5 for row in rows[0])
    pages = [(tmp_path / jobs / "quick" / "T3.md").read_text(encoding="utf-8") for jobs in ("1", "2")]
    assert pages[0] == pages[1]
    assert (pages[0].count("| measured |"), pages[0].count("| paper's settings |")) == (2, 1)
    assert pages[0].count("| ours |") == 1
