"""Means, sums, extremes and any other function of completed tables, with intervals from joint draws."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpvae.data.calendar import periods_of
from gpvae.data.frames import table_like
from gpvae.data.panel import DataError, Floats, Panel
from gpvae.data.runs import Runs, find_runs
from gpvae.imputers.draws import Draws, require_level, require_samples
from gpvae.imputers.imputation import Imputation

CELLS_AT_ONCE = 2**20
Columns = dict[str, Any]
Reduce = Callable[[Floats, Runs], Floats]  # values (cell,) of runs → (run,)
STATISTICS: dict[str, Reduce] = {
    "mean": lambda values, runs: runs.mean(values),
    "sum": lambda values, runs: runs.sum(values),
    "min": lambda values, runs: runs.minimum(values),
    "max": lambda values, runs: runs.maximum(values),
}


@dataclass(frozen=True)
class Aggregate:
    """A function of the completed table: a number, or an array, whose shape all but `draws` have."""

    estimate: Floats  # the mean over the draws
    std: Floats
    lower: Floats
    upper: Floats
    draws: Floats  # (draw, ...)

    @classmethod
    def of(cls, draws: Floats, level: float) -> "Aggregate":
        """The i-th of n sorted draws is the quantile i/(n + 1): draws of an aggregate are not stratified."""
        ends = [(1 - level) / 2, (1 + level) / 2]
        lower, upper = np.quantile(draws, ends, axis=0, method="weibull")
        deviations = draws - draws[0]  # exactly 0 where nothing was filled
        return cls(draws[0] + deviations.mean(axis=0), deviations.std(axis=0), lower, upper, draws)


class _Groups(NamedTuple):
    """The cells to aggregate, and the columns that say what they are."""

    runs: Runs
    labels: Columns


def aggregate(
    imputation: Imputation, function: str | Callable[[Any], Any], by: str | float | None, level: float
) -> Any:
    require_level(level)
    draws = imputation.require_draws()
    require_samples((1 - level) / 2, draws.count)
    if by is None and callable(function):
        return _of_tables(imputation, function, level)
    groups = _groups(imputation.panel, imputation.filled, "column" if by is None else by)
    columns = _of_groups(imputation, draws, _reduce(function), groups, level)
    return table_like(imputation.panel.source, columns)


def _of_tables(imputation: Imputation, function: Callable[[Any], Any], level: float) -> Aggregate:
    results = [_as_floats(function(table)) for table in imputation.tables()]
    shapes = {result.shape for result in results}
    if len(shapes) > 1:
        raise DataError(f"the function must return the same shape for every completed table, got {sorted(shapes)}")
    return Aggregate.of(np.stack(results), level)


def _as_floats(result: Any) -> Floats:
    try:
        return np.asarray(result, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"the function must return a number or an array of numbers, got {type(result)}") from None


def _reduce(function: str | Callable[[Any], Any]) -> Reduce:
    if callable(function):
        return lambda values, runs: np.array([_as_number(function(x)) for x in np.split(values, runs.offsets[1:])])
    if function not in STATISTICS:
        raise DataError(f"the function must be one of {', '.join(STATISTICS)}, or a function, got {function!r}")
    return STATISTICS[function]


def _as_number(result: Any) -> float:
    number = _as_floats(result)
    if number.ndim:
        raise DataError(f"the function must return one number for each group, got an array of shape {number.shape}")
    return float(number)


def _groups(panel: Panel, filled: NDArray[np.bool_], by: str | float) -> _Groups:
    numeric = np.array([name not in panel.labels for name in panel.columns])
    if by == "gap":
        runs = _in_order(panel, find_runs(panel, filled & numeric))
        return _Groups(runs, _names(panel, runs) | _times(panel, runs))
    if by == "column":
        runs = _for_columns(np.zeros(1, dtype=np.int64), np.array([len(panel.values)]), numeric)
        return _Groups(runs, {"column": _columns(panel, runs)})
    if by == "series":
        runs = _for_columns(panel.starts, panel.lengths, numeric)
        return _Groups(runs, _names(panel, runs))
    return _by_period(panel, numeric, by)


def _by_period(panel: Panel, numeric: NDArray[np.bool_], by: str | float) -> _Groups:
    start, end = periods_of(panel, by)
    begins = np.append(True, (start[1:] != start[:-1]) | (np.diff(panel.series_of_row) != 0))
    first = np.flatnonzero(begins)
    runs = _in_order(panel, _for_columns(first, np.diff(first, append=len(start)), numeric))
    return _Groups(runs, _names(panel, runs) | {"start": start[runs.first], "end": end[runs.first]})


def _for_columns(first: NDArray[np.int64], length: NDArray[np.int64], numeric: NDArray[np.bool_]) -> Runs:
    """These rows in each of these columns."""
    columns = np.flatnonzero(numeric)
    first, length = first[length > 0], length[length > 0]
    return Runs(np.tile(columns, len(first)), np.repeat(first, len(columns)), np.repeat(length, len(columns)))


def _in_order(panel: Panel, runs: Runs) -> Runs:
    """By series, column and time."""
    return runs.at(np.lexsort((runs.first, runs.column, panel.series_of_row[runs.first])))


def _names(panel: Panel, runs: Runs) -> Columns:
    series = [panel.ids[i] for i in panel.series_of_row[runs.first].tolist()]
    return {"series": series, "column": _columns(panel, runs)}


def _columns(panel: Panel, runs: Runs) -> list[str]:
    return [str(panel.columns[j]) for j in runs.column.tolist()]


def _times(panel: Panel, runs: Runs) -> Columns:
    return {"start": panel.times_at(runs.first), "end": panel.times_at(runs.first + runs.length - 1)}


def _of_groups(imputation: Imputation, draws: Draws, reduce: Reduce, groups: _Groups, level: float) -> Columns:
    statistics, counts = [np.empty((4, 0))], [np.empty(0, dtype=np.int64)]
    for values, filled in _reduced(imputation, draws, reduce, groups.runs):
        part = Aggregate.of(values, level)
        statistics.append(np.stack([part.estimate, part.std, part.lower, part.upper]))
        counts.append(filled)
    numbers = zip(("estimate", "std", "lower", "upper"), np.concatenate(statistics, axis=1), strict=True)
    return {**groups.labels, "cells": groups.runs.length, "filled": np.concatenate(counts), **dict(numbers)}


def _reduced(
    imputation: Imputation, draws: Draws, reduce: Reduce, runs: Runs
) -> Iterator[tuple[Floats, NDArray[np.int64]]]:
    """The statistic of some groups at a time (draw, group), and how many cells of each were filled (group,)."""
    panel, all_filled = imputation.panel, imputation.filled
    for part in runs.chunks(CELLS_AT_ONCE) if len(runs.first) else ():
        row, column = part.cells()
        values, filled = panel.values[row, column], all_filled[row, column]
        cells = (row * len(panel.columns) + column)[filled]
        chosen = draws.at(np.searchsorted(imputation.cells, cells))
        results = np.empty((draws.count, len(part.first)))
        for i in range(draws.count):
            values[filled] = chosen.draw(i)
            results[i] = reduce(values, part)
        yield results, np.add.reduceat(filled, part.offsets, dtype=np.int64)
