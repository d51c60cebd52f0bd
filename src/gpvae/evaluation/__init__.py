"""How well are cells filled whose value is known? Hide them, fill them, compare."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import CLASSES, Scaling
from gpvae.evaluation import metrics
from gpvae.imputers.base import Imputer
from gpvae.imputers.imputation import Imputation

if TYPE_CHECKING:
    from gpvae.report.page import Report


@dataclass(frozen=True)
class Score:
    """Averages over held-out cells, each column of numbers counted in its own standard deviations."""

    method: str
    mae: float | None  # None: no column of numbers was scored
    mse: float | None
    crps: float | None  # of a single value, this is the absolute error
    nll: float | None = None  # None: the method gives no distribution
    coverage: float | None = None
    accuracy: float | None = None  # of all columns of categories, the share that is right; None: it fills not all
    seconds: float | None = None  # to fit and fill


@dataclass(frozen=True)
class Evaluation:
    scores: list[Score]
    imputations: dict[str, Imputation]  # by method
    cells: Bools  # (row, feature) those that were scored
    panel: Panel  # as it was, with nothing hidden

    def report(self, path: str | Path | None = None, *, overwrite: bool = False) -> "Report":
        """One HTML page that shows the last method that gives intervals, or the last, beside the others."""
        from gpvae.report import page

        return page.of_evaluation(self).written(path, overwrite=overwrite)


def evaluate(
    panel: Panel,
    held_out: Bools,
    methods: Mapping[str, Imputer],
    *,
    level: float = 0.9,
    samples: int = 100,
    seed: int = 0,
) -> Evaluation:
    """Fit each method without the `held_out` cells, and score what it fills in.

    Columns of which too little is left to see them vary have no standard deviation to count in: they are not scored.
    """
    visible = missingness.hide(panel, held_out)
    units = Scaling.of(visible, standardise=True)
    cells = held_out & units.varies
    if not cells.any():
        raise DataError("no held-out cell lies in a column that varies, so there is nothing to score")
    imputations, found = dict[str, Imputation](), dict[str, tuple[float, Floats | None]]()
    for name, imputer in methods.items():
        started = time.perf_counter()
        imputations[name] = imputer.fit(visible).impute(visible, samples=samples, seed=seed)
        seconds, density = time.perf_counter() - started, None
        if imputer.gives_distributions:
            density = imputer.log_likelihood(visible, panel.values, samples=samples, seed=seed)
        found[name] = seconds, density
    classes = _columns(panel, methods, *CLASSES) | np.array([name in panel.labels for name in panel.columns])
    asked = classes & cells.any(axis=0)
    scores: list[Score] = []
    for name, (seconds, density) in found.items():
        own = _columns(panel, {name: methods[name]}, *CLASSES)
        score = _score_of_numbers(name, panel, imputations[name], density, cells & ~classes, units, level)
        imputation = imputations[name]
        truth = panel.relabelled(imputation.panel.labels).values  # labels are numbered as the method's user orders them
        right = (imputation.mean_rows == truth)[cells & asked]
        all_of_them = asked.any() and bool((own >= asked).all())  # or shares would be of different cells
        scores.append(replace(score, seconds=seconds, accuracy=float(right.mean()) if all_of_them else None))
    return Evaluation(scores, imputations, cells, panel)


def _columns(panel: Panel, methods: Mapping[str, Imputer], *kinds: str) -> Bools:
    """Columns that one of the methods takes to be of one of these kinds. (feature,)"""
    chosen = np.zeros(len(panel.columns), dtype=bool)
    for imputer in methods.values():
        chosen[imputer.schema_.places(panel)] |= imputer.schema_.scaling.of_kind(*kinds)
    return chosen


def _score_of_numbers(
    name: str,
    panel: Panel,
    imputation: Imputation,
    log_density: Floats | None,
    cells: Bools,
    units: Scaling,
    level: float,
) -> Score:
    if not cells.any():
        return Score(name, None, None, None)
    truth, point = units.apply(panel.values)[cells], units.apply(imputation.mean_rows)[cells]
    if np.isnan(point).any():
        column = panel.columns[np.nonzero(cells)[1][np.isnan(point)][0]]
        raise DataError(f"{name} leaves hidden cells of column {column!r} missing, so it cannot be scored")
    mae = float(metrics.absolute_error(truth, point).mean())
    score = Score(name, mae, float(metrics.squared_error(truth, point).mean()), crps=mae)
    if imputation.has_intervals:
        inside = metrics.covered(panel.values, *imputation.interval_rows(level))
        score = replace(score, coverage=float(inside[cells].mean()))
    if log_density is None or imputation.draws is None:
        return score
    feature = np.nonzero(cells)[1]
    draws = (imputation.draws_at(cells) - units.shift[feature]) / units.scale[feature]
    nll = -float((log_density[cells] + np.log(units.scale[feature])).mean())
    return replace(score, crps=float(metrics.crps(truth, draws).mean()), nll=nll)
