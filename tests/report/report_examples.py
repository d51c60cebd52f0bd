"""Imputations for the tests of the report: some made by hand, some by small models."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from gpvae import (
    DEFAULT,
    GPVAE,
    GPFactor,
    Imputation,
    ModelConfig,
    Panel,
)
from gpvae.data.panel import Floats
from gpvae.data.scaling import Scaling
from gpvae.imputers.draws import Draws
from gpvae.models.encoders import Attention
from gpvae.models.inputs import Frames
from gpvae.models.likelihoods import Bernoulli
from gpvae.report.evidence import Evidence
from gpvae.report.summary import summarise

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><b>%{x}</b>"


def panel_with_gaps(
    series: int = 3, steps: int = 40, columns: Sequence[str] = ("a", "b", "c"), missing: float = 0.3, seed: int = 0
) -> tuple[Panel, Floats]:
    """Daily waves from 2024-03-01 on, as a panel with gaps and as values without."""
    rng = np.random.default_rng(seed)
    phase, days = rng.uniform(0, 6, (series, 1, len(columns))), np.arange(steps)[None, :, None]
    waves = np.sin(days / 4 + phase) * 5 + 10.0 * np.arange(len(columns))
    truth = waves.reshape(-1, len(columns)).astype(np.float64)
    lost = rng.random(truth.shape) < missing
    frame: dict[str, Any] = {
        "name": np.repeat([f"s{i}" for i in range(series)], steps),
        "day": np.tile(np.datetime64("2024-03-01") + np.arange(steps), series).astype("M8[ns]"),
    }
    frame |= dict(zip(columns, np.where(lost, np.nan, truth).T, strict=True))
    panel = Panel.from_frame(pd.DataFrame(frame), id="name", time="day", columns=[*columns])
    return panel, truth


def log_normal_imputation(series: int = 4, steps: int = 60) -> Imputation:
    """A real column, and a positive one whose values and intervals range over five orders of magnitude."""
    panel, truth = panel_with_gaps(series, steps, columns=("real", "positive"), missing=0.4)
    rng, cells = np.random.default_rng(3), np.flatnonzero(~panel.observed)
    panel = panel.with_values(np.where(np.arange(2) == 1, np.exp(2.4 * (panel.values - 10) / 2), panel.values))
    scaling, feature = Scaling.of(panel, standardise=True, kinds=("real", "positive")), cells % 2
    deviation = np.where(feature == 1, rng.uniform(0.2, 1.5, len(cells)), 1.0)
    centre = np.where(feature == 1, 2.4 * (truth.flat[cells] - 10) / 2, truth.flat[cells])
    values = centre[:, None] + deviation[:, None] * rng.normal(size=(len(cells), 60))
    scaled = (values - scaling.shift[feature, None]) / scaling.scale[feature, None]
    draws = Draws(scaled.astype(np.float32), feature, scaling)
    drawn = draws.values()
    return Imputation(panel, cells, drawn.mean(axis=1), drawn.std(axis=1), draws, method="by hand")


def fill_by_hand(panel: Panel, truth: Floats, *, spread: float = 1.0, samples: int = 60, seed: int = 1) -> Imputation:
    """Draws whose error has deviation 1 and that claim a deviation of `spread`, evenly spaced as an imputer's are."""
    rng, scaling = np.random.default_rng(seed), Scaling.of(panel, standardise=True)
    cells = np.flatnonzero(~panel.observed)
    centre = truth.flat[cells] + rng.normal(size=len(cells))
    ranks = rng.permuted(np.tile(np.arange(samples), (len(cells), 1)), axis=1)
    values = centre[:, None] + spread * stats.norm.ppf((ranks + rng.random(ranks.shape)) / samples)
    feature = cells % len(panel.columns)
    scaled = (values - scaling.shift[feature, None]) / scaling.scale[feature, None]
    draws = Draws(scaled.astype(np.float32), feature, scaling)
    return Imputation(panel, cells, values.mean(axis=1), values.std(axis=1), draws, method="by hand")


def summary(imputation: Imputation, **given: Any) -> dict[str, Any]:
    return summarise(imputation, **{"evidence": "none", **given})


def imputation_with_classes() -> Imputation:
    rng = np.random.default_rng(0)
    sky = ["clear" if day % 12 < 6 else "rain" for day in range(60)]
    table = pd.DataFrame(
        {
            "sky": [None if lost else each for each, lost in zip(sky, rng.random(60) < 0.3, strict=True)],
            "visits": np.where(rng.random(60) < 0.3, np.nan, rng.poisson(4, 60)),
            "heat": rng.normal(size=60),
        }
    )
    small = replace(DEFAULT, latent_dim=2, encoder=Attention(16), decoder_widths=(8,))
    model = GPVAE(small, kinds={"sky": "categorical", "visits": "count"}, epochs=2, device="cpu")
    return model.fit(table).impute(table)


def uneven_summary() -> dict[str, Any]:
    """A summary of four columns, one of them constant and one never observed."""
    panel, truth = panel_with_gaps(series=4, columns=("a", "b", "still", "never"))
    truth[:, 2], truth[:, 3] = 7.0, np.nan
    panel = panel.with_values(np.where(panel.observed, truth, np.nan))
    small = replace(DEFAULT, latent_dim=8, encoder=Attention(16), decoder_widths=(8,))
    with warnings.catch_warnings(action="ignore"):  # "never" has no observed value
        imputation = GPVAE(small, epochs=3, device="cpu").fit(panel).impute(panel)
        return summary(imputation, evidence=Evidence(imputation, truth, ~panel.observed & ~np.isnan(truth)))


def imputation_of_images() -> tuple[Imputation, NDArray[Any]]:
    rng = np.random.default_rng(0)
    truth = (rng.random((6, 5, 12)) < 0.4).astype(float)
    data = np.where(rng.random(truth.shape) < 0.3, np.nan, truth)
    frames = Frames((1, 3, 4), filters=2)
    config = ModelConfig(latent_dim=2, inputs=frames, decoder_widths=(8,), likelihood=Bernoulli())
    return GPVAE(config, epochs=1, device="cpu").fit(data).impute(data), truth.reshape(-1, 12)


def imputation_by_factors(*, shared: bool = True) -> Imputation:
    """Three columns that share a day and a slow series, or, if not, white noise; one more that does not vary."""
    rng, t = np.random.default_rng(0), np.arange(480)
    values = rng.normal(size=(480, 4))
    if shared:
        level = np.cumsum(rng.normal(size=480)) / 10
        values[:, :3] *= 0.3
        values[:, :3] += np.sin(2 * np.pi * t / 24)[:, None] * [3, 2, 1] + level[:, None] * [1, -1, 2]
    values[:, 3] = 7.0
    frame = pd.DataFrame(np.where(rng.random(values.shape) < 0.2, np.nan, values), columns=["a", "b", "c", "still"])
    frame = frame.assign(when=pd.date_range("2024-01-01", periods=480, freq="h"))
    with warnings.catch_warnings(action="ignore"):  # "still" is constant
        return GPFactor().fit(frame).impute(frame, samples=20)
