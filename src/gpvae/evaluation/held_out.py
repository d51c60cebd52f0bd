"""Score imputation methods on held-out cells."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import CLASSES, Scaling
from gpvae.evaluation import joint, metrics
from gpvae.evaluation.joint import JointScore
from gpvae.imputers.base import Imputer
from gpvae.imputers.imputation import Imputation
from gpvae.training.progress import busy

if TYPE_CHECKING:
    from gpvae.report.page import Report


@dataclass(frozen=True)
class Score:
    """Averages over held-out cells. Numeric columns are measured in units of their own standard deviation."""

    method: str
    mae: float | None  # None: no numeric column was scored
    mse: float | None
    crps: float | None  # the absolute error for a method that gives single values
    nll: float | None = None  # None: the method gives no distribution
    coverage: float | None = None
    accuracy: float | None = None  # over all categorical columns; None: the method does not fill all of them
    seconds: float | None = None  # to fit and impute


@dataclass(frozen=True)
class Evaluation:
    scores: list[Score]
    imputations: dict[str, Imputation]  # by method
    cells: Bools  # (row, feature) the scored cells
    panel: Panel  # the original, with nothing hidden

    @cached_property
    def gap_cells(self) -> Bools:
        """The scored cells that lie in gaps of at least two, in columns that every method takes for numbers."""
        categorical = np.any([each.of_kind(*CLASSES) for each in self.imputations.values()], axis=0)
        return joint.longer_gaps(self.panel, self.cells & ~categorical)

    def over_gaps(self, level: float = 0.9) -> dict[str, JointScore]:
        """Scores of draws over those gaps, for every method that draws; errors in units as in `scores`."""
        if not self.gap_cells.any():
            return {}
        units = Scaling.of(missingness.hide(self.panel, self.cells), standardise=True)
        return {
            name: joint.score(imputation, self.panel.values, self.gap_cells, units, level=level)
            for name, imputation in self.imputations.items()
            if imputation.draws is not None
        }

    def report(self, path: str | Path | None = None, *, overwrite: bool = False) -> "Report":
        """One HTML page about the last method that gives intervals, or else the last, next to the other methods."""
        from gpvae.report import page

        return page.of_evaluation(self).written(path, overwrite=overwrite)


@dataclass(frozen=True)
class _Trial:
    """One method's fit on the visible cells, and its imputation of the held-out ones."""

    imputer: Imputer
    imputation: Imputation
    log_density: Floats | None  # (row, feature) of the true values; None: the method gives no distribution
    seconds: float

    @classmethod
    def of(cls, imputer: Imputer, visible: Panel, truth: Floats, samples: int, seed: int, show: bool) -> "_Trial":
        started, log_density = time.perf_counter(), None
        with busy(f"fitting {imputer.name}", show=show and not imputer.shows_progress):
            imputer.fit(visible)
        with busy(f"filling with {imputer.name}", show=show):
            imputation = imputer.impute(visible, samples=samples, seed=seed)
            seconds = time.perf_counter() - started
            if imputer.gives_distributions:
                log_density = imputer.log_likelihood(visible, truth, samples=samples, seed=seed)
        return cls(imputer, imputation, log_density, seconds)

    def categorical(self, panel: Panel) -> Bools:
        """Columns that the method treats as categorical. (feature,)"""
        schema, chosen = self.imputer.schema_, np.zeros(len(panel.columns), dtype=bool)
        chosen[schema.column_index(panel)] = schema.scaling.of_kind(*CLASSES)
        return chosen


def evaluate(
    panel: Panel,
    held_out: Bools,
    methods: Mapping[str, Imputer],
    *,
    level: float = 0.9,
    samples: int = 100,
    seed: int = 0,
    verbose: bool = False,
) -> Evaluation:
    """Fit each method without the `held_out` cells, and score what it fills in; `verbose` says on a terminal which.

    A column whose visible values do not vary has no standard deviation to serve as unit, so it is not scored.
    """
    visible = missingness.hide(panel, held_out)
    units = Scaling.of(visible, standardise=True)
    cells = held_out & units.varies
    if not cells.any():
        raise DataError("no held-out cell lies in a column that varies, so there is nothing to score")
    trials = {name: _Trial.of(each, visible, panel.values, samples, seed, verbose) for name, each in methods.items()}
    labelled = np.array([name in panel.labels for name in panel.columns])
    categorical = np.any([labelled, *(trial.categorical(panel) for trial in trials.values())], axis=0)
    scores = [
        replace(
            _score_numbers(name, panel, trial, cells & ~categorical, units, level),
            accuracy=_accuracy(panel, trial, cells, categorical & cells.any(axis=0)),
            seconds=trial.seconds,
        )
        for name, trial in trials.items()
    ]
    return Evaluation(scores, {name: trial.imputation for name, trial in trials.items()}, cells, panel)


def _accuracy(panel: Panel, trial: _Trial, cells: Bools, columns: Bools) -> float | None:
    """Share of the cells in these columns that were filled with the right category.

    None if the method does not treat all of the columns as categorical: shares over different cells do not compare.
    """
    if not columns.any() or (columns & ~trial.categorical(panel)).any():
        return None
    truth = panel.with_labels(trial.imputation.panel.labels).values  # the method may number its categories differently
    return float((trial.imputation.mean_rows == truth)[cells & columns].mean())


def _score_numbers(name: str, panel: Panel, trial: _Trial, cells: Bools, units: Scaling, level: float) -> Score:
    if not cells.any():
        return Score(name, None, None, None)
    imputation = trial.imputation
    truth, point = units.apply(panel.values)[cells], units.apply(imputation.mean_rows)[cells]
    if np.isnan(point).any():
        column = panel.columns[np.nonzero(cells)[1][np.isnan(point)][0]]
        raise DataError(f"{name} leaves hidden cells of column {column!r} missing, so it cannot be scored")
    mae = float(metrics.absolute_error(truth, point).mean())
    score = Score(name, mae, float(metrics.squared_error(truth, point).mean()), crps=mae)
    if imputation.has_intervals:
        inside = metrics.covered(panel.values, *imputation.interval_rows(level))
        score = replace(score, coverage=float(inside[cells].mean()))
    if trial.log_density is None or imputation.draws is None:
        return score
    feature = np.nonzero(cells)[1]
    draws = (imputation.draws_at(cells) - units.shift[feature]) / units.scale[feature]
    nll = -float((trial.log_density[cells] + np.log(units.scale[feature])).mean())
    return replace(score, crps=float(metrics.crps(truth, draws).mean()), nll=nll)
