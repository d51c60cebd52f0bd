"""Results made by hand, to be shown."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from gpvae import Imputation, Panel
from gpvae.data.panel import Floats
from gpvae.data.scaling import Scaling
from gpvae.imputers.imputation import Draws

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><b>%{x}</b>"


def gappy(
    series: int = 3, steps: int = 40, columns: Sequence[str] = ("a", "b", "c"), missing: float = 0.3, seed: int = 0
) -> tuple[Panel, Floats]:
    """Waves on days from 2024-03-01 on, with gaps; and the same without."""
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


def log_normal(series: int = 4, steps: int = 60) -> Imputation:
    """A real column and a positive one, whose values, and their intervals, range over five orders of magnitude."""
    panel, truth = gappy(series, steps, columns=("real", "positive"), missing=0.4)
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


def filled(panel: Panel, truth: Floats, *, spread: float = 1.0, samples: int = 60, seed: int = 1) -> Imputation:
    """Draws that are off from the truth by 1, as they say if `spread` is 1; spread evenly, as those of imputers are."""
    rng, scaling = np.random.default_rng(seed), Scaling.of(panel, standardise=True)
    cells = np.flatnonzero(~panel.observed)
    centre = truth.flat[cells] + rng.normal(size=len(cells))
    ranks = rng.permuted(np.tile(np.arange(samples), (len(cells), 1)), axis=1)
    values = centre[:, None] + spread * stats.norm.ppf((ranks + rng.random(ranks.shape)) / samples)
    feature = cells % len(panel.columns)
    scaled = (values - scaling.shift[feature, None]) / scaling.scale[feature, None]
    draws = Draws(scaled.astype(np.float32), feature, scaling)
    return Imputation(panel, cells, values.mean(axis=1), values.std(axis=1), draws, method="by hand")
