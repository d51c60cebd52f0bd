"""Score imputation methods on held-out cells."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpvae import missingness
from gpvae.data.frames import table_like
from gpvae.data.known import known_columns, with_known
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import CLASSES, Scaling, class_columns
from gpvae.evaluation import joint, metrics
from gpvae.evaluation.joint import JointScore
from gpvae.imputers import registry
from gpvae.imputers.base import Imputer
from gpvae.imputers.imputation import Imputation
from gpvae.training.progress import busy

if TYPE_CHECKING:
    from gpvae.report.page import Report

MECHANISMS = tuple(name for name in missingness.MECHANISMS if name != "spatial")  # which is for images


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


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Scores of several methods on the same hidden cells; printed, or shown in a notebook, it is a table."""

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

    def to_frame(self) -> Any:
        """A row for each method, in a frame like the data, for arrays a dict of columns."""
        rows = zip(*(astuple(score) for score in self.scores), strict=True)
        columns = {field.name: list(column) for field, column in zip(fields(Score), rows, strict=True)}
        numbers = {name: np.array(column, dtype=np.float64) for name, column in columns.items() if name != "method"}
        return table_like(self.panel.source, {"method": columns["method"], **numbers})

    def _rows(self) -> list[list[str]]:
        """A heading, and a row for each method, of the scores that any of them has."""
        names = [field.name for field in fields(Score) if field.name != "method"]
        shown = [name for name in names if any(getattr(score, name) is not None for score in self.scores)]
        numbers = [[getattr(score, name) for name in shown] for score in self.scores]
        cells = [["" if number is None else f"{number:.3f}" for number in row] for row in numbers]
        return [["", *shown], *([score.method, *row] for score, row in zip(self.scores, cells, strict=True))]

    def __repr__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows]
        return "\n".join([f"{int(self.cells.sum()):,} hidden cells, errors in standard deviations", *lines])

    def _repr_html_(self) -> str:
        rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._rows()]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table>{body}</table><p>{escape(repr(self).splitlines()[0])}</p>"

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


class _Question(NamedTuple):
    """A table, and the cells to hide. (row, feature)"""

    panel: Panel
    cells: Bools


def evaluate(
    data: Any,
    held_out: Bools | float = 0.1,
    methods: Mapping[str, Imputer] | Sequence[str | Imputer] = registry.COMPARED,
    *,
    gaps: str = "random",
    id: str | None = None,
    time: str | None = None,
    level: float = 0.9,
    samples: int = 100,
    seed: int = 0,
    verbose: bool = False,
) -> Evaluation:
    """Hide some observed cells, fit each method to the rest, and score what it fills in.

        gpvae.evaluate(table)
        gpvae.evaluate(table, 0.2, ["linear", "gp-net", gpvae.BRITS(epochs=20)], gaps="blocks")

    data: whatever imputers take; of a frame, `id` and `time` may name the columns of series and times. Or a dict with
        arrays "X" and "X_ori", as PyPOTS and BenchPOTS have it: the cells that only "X" lacks are those to score.
    held_out: the share of the observed cells to hide, or the cells themselves: in the shape of an array, else
        (row, feature) in the rows and columns of `Panel.of(data)`.
    methods: names, or imputers. gaps: the mechanism that hides a share: see `gpvae.missingness`. Columns that an
        imputer knows are not hidden.
    level: of the intervals whose coverage is counted. verbose: say on a terminal what is being fitted.

    A column whose visible values do not vary has no standard deviation to serve as unit, so it is not scored.
    """
    imputers = _imputers(methods, seed)
    question = _question(data, held_out, imputers, gaps, id, time, seed)
    return _evaluate(question.panel, question.cells, imputers, level, samples, seed, verbose)


def _imputers(methods: Mapping[str, Imputer] | Sequence[str | Imputer], seed: int) -> dict[str, Imputer]:
    if isinstance(methods, Mapping):
        return dict(methods)
    imputers: dict[str, Imputer] = {}
    for method in methods:
        name = method.name if isinstance(method, Imputer) else method
        if name in imputers:
            raise DataError(f"there are two methods named {name!r}: give them names of your own, {{name: imputer, …}}")
        built = method if isinstance(method, Imputer) else registry.method(method, seed=seed, verbose=False)
        imputers[name] = built
    return imputers


def _question(
    data: Any,
    held_out: Bools | float,
    imputers: Mapping[str, Imputer],
    gaps: str,
    id: str | None,
    time: str | None,
    seed: int,
) -> _Question:
    if isinstance(data, Mapping):
        return _pypots_question(data)
    categories = [name for each in imputers.values() for name in class_columns(getattr(each, "kinds", None))]
    categories = list(dict.fromkeys(categories))
    named = id is not None or time is not None
    panel = Panel.from_frame(data, id=id, time=time, categories=categories) if named else data
    known = [name for each in imputers.values() for name in each.known]
    panel = with_known(Panel.of(panel, categories=categories), known)
    if isinstance(held_out, int | float):
        if gaps not in MECHANISMS:
            raise DataError(f"gaps must be one of {', '.join(MECHANISMS)}, got {gaps!r}")
        return _Question(panel, missingness.MECHANISMS[gaps](panel, held_out, seed) & ~known_columns(panel, known))
    cells = np.asarray(held_out, dtype=bool)
    if cells.shape[-1:] != panel.values.shape[1:] or cells.size != panel.values.size:
        raise DataError(f"held_out has shape {cells.shape}, the data's panel {panel.values.shape}")
    return _Question(panel, cells.reshape(panel.values.shape) & panel.observed)


def _pypots_question(data: Mapping[str, Any]) -> _Question:
    if not {"X", "X_ori"} <= {*data}:
        raise DataError(f"a dict must have the arrays 'X' and 'X_ori', got {', '.join(map(repr, data))}")
    visible, panel = Panel.of(data["X"]), Panel.of(data["X_ori"])
    if visible.values.shape != panel.values.shape:
        raise DataError(f"'X' has {visible.values.shape} rows and columns, 'X_ori' {panel.values.shape}")
    return _Question(panel, panel.observed & ~visible.observed)


def _evaluate(
    panel: Panel,
    held_out: Bools,
    methods: Mapping[str, Imputer],
    level: float,
    samples: int,
    seed: int,
    verbose: bool,
) -> Evaluation:
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
