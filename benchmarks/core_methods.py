"""Methods that `core.py` compares with, besides those of the registry: the season before, and scikit-learn's."""

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from protocol_data import Experiment
from protocols import new_imputer
from sklearn.exceptions import ConvergenceWarning
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.schema import Schema
from gpvae.imputers import registry
from gpvae.imputers.base import Imputer, Prediction
from gpvae.imputers.conformal import Conformal
from gpvae.imputers.simple import forward, linear

SEASONS = 4  # looked back and ahead
CONFORMAL = "conformal "
NAMES = ("seasonal naive", "iterative", *registry.METHODS, *(CONFORMAL + name for name in registry.METHODS))


@dataclass(eq=False, repr=False)
class SeasonalNaive(Imputer):
    """The value one season earlier, or later if that is missing, or two seasons away, …; else the line.

    period: the season in steps of the mean length; with 1 it is the last value.
    """

    _: KW_ONLY
    period: int = 1

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        self.schema_, self.history_ = self._new_schema(self._read(data)), []
        return self

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True, kinds={})

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        fallback = self.schema_.scaling.shift
        if self.period == 1:
            return Prediction(forward(panel, fallback, backfill=True)[missing])
        values = panel.values.copy()
        for seasons in range(1, SEASONS + 1):
            for offset in (-seasons, seasons):
                values = np.where(np.isnan(values), shifted(panel, offset * self.period), values)
        return Prediction(np.where(np.isnan(values), linear(panel, fallback), values)[missing])


def shifted(panel: Panel, steps: int) -> Floats:
    """The values nearest to so many mean steps later; NaN beyond the ends of a series. (row, feature)"""
    row = np.concatenate([nearest_rows(panel.times[rows], steps, rows.start) for _, rows in panel.series()])
    return np.where(row[:, None] >= 0, panel.values[row], np.nan)


def nearest_rows(times: Floats, steps: int, first: int) -> NDArray[np.int64]:
    """The row of the time nearest to `steps` mean steps later, -1 if that is outside of the series. (row,)"""
    step = (times[-1] - times[0]) / max(1, len(times) - 1)
    wanted = times + steps * step
    after = np.clip(np.searchsorted(times, wanted), 1, max(1, len(times) - 1))
    nearer = np.where(wanted - times[after - 1] <= times[after % len(times)] - wanted, after - 1, after)
    inside = (wanted > times[0] - step / 2) & (wanted < times[-1] + step / 2)
    return np.where(inside, first + nearer, -1)


@dataclass(eq=False, repr=False)
class Iterative(Imputer):
    """scikit-learn's IterativeImputer with its defaults: each column regressed on the others, row by row."""

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        panel = self._read(data)
        self.schema_, self.history_ = self._new_schema(panel), []
        self.model_ = IterativeImputer(keep_empty_features=True, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model_.fit(panel.values)
        return self

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True, kinds={})

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        return Prediction(np.asarray(self.model_.transform(panel.values))[missing])


def new_method(name: str, experiment: Experiment, changes: Mapping[str, Any], seed: int, period: int = 1) -> Imputer:
    """A method by its name; `conformal linear` puts conformal intervals around the line."""
    if name == "seasonal naive":
        return SeasonalNaive(period=period)
    if name == "iterative":
        return Iterative()
    if name.startswith(CONFORMAL):
        return Conformal(new_method(name.removeprefix(CONFORMAL), experiment, changes, seed), seed=seed)
    return new_imputer(name, experiment, changes, seed, "cpu")
