"""How far filled values are from the true ones, beside other methods."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Floats
from gpvae.data.scaling import CLASSES
from gpvae.imputers.simple import nearest
from gpvae.report.confidence import blocks_of, mean_and_margin, share
from gpvae.report.evidence import Evidence
from gpvae.report.formatting import percent

MIN_CELLS = 10  # fewer say nothing about which method is better


def numeric_errors(evidence: Evidence, name: str) -> dict[str, Any]:
    """Mean absolute errors of every method, in standard deviations of each column, with 95 % intervals."""
    cells = evidence.numeric_cells
    units = evidence.units.scale[np.nonzero(cells)[1]]
    block = blocks_of(evidence.imputation.panel)[np.nonzero(cells)[0]]
    methods = {**evidence.others, name: evidence.imputation}
    errors = {key: np.abs(each.mean_rows - evidence.truth)[cells] / units for key, each in methods.items()}
    bars = [{"name": key, "main": key == name} | _bar(error, block) for key, error in errors.items()]
    return {"methods": bars, "sentence": _comparison(errors, block, name)}


def _bar(error: Floats, block: NDArray[np.int64]) -> dict[str, float | None]:
    mean, margin = mean_and_margin(error, block)
    if len(np.unique(block)) < 2:
        return {"error": mean, "low": None, "high": None}
    return {"error": mean, "low": max(0.0, mean - margin), "high": mean + margin}


def _comparison(errors: Mapping[str, Floats], block: NDArray[np.int64], name: str) -> str:
    lead = f"The mean absolute error of {name} is {float(errors[name].mean()):.2f} standard deviations"
    others = {key: error for key, error in errors.items() if key != name}
    if not others:
        return f"{lead}."
    if len(errors[name]) < MIN_CELLS or len(np.unique(block)) < 2:
        return f"{lead}; there are too few cells to tell whether another method is better."
    best = min(others, key=lambda key: others[key].mean())
    best_error = float(others[best].mean())
    gain, margin = mean_and_margin(others[best] - errors[name], block)
    if abs(gain) <= margin:
        return f"{lead}, that of {best}, the best other method, {best_error:.2f}: the difference may be chance."
    difference = percent(abs(gain) / best_error)
    if gain > 0:
        return f"{lead}, {difference} less than that of {best}, the best other method."
    return f"{lead}, {difference} more than that of {best}: use {best} for this data, or find out why."


def class_accuracies(evidence: Evidence) -> list[dict[str, Any]]:
    """For each categorical column with such cells, the share that is right, beside two simple guesses."""
    columns = np.flatnonzero(evidence.imputation.of_kind(*CLASSES)).tolist()
    filled = evidence.imputation.mean_rows
    cells = {j: evidence.cells[:, j] & ~np.isnan(filled[:, j]) for j in columns}
    return [_accuracy(evidence, j, filled[:, j], cells[j]) for j in columns if cells[j].any()]


def _accuracy(evidence: Evidence, j: int, filled: Floats, cells: NDArray[np.bool_]) -> dict[str, Any]:
    panel, truth = evidence.imputation.panel, evidence.truth[cells, j]
    name, most_frequent = str(panel.columns[j]), _mode(panel.values[panel.observed[:, j], j])
    nearest_values = nearest(panel.select([panel.columns[j]]), np.array([most_frequent]))[cells, 0]
    right = share(filled[cells] == truth, blocks_of(panel)[cells])
    by_mode, by_nearest = (float(np.mean(guess == truth)) for guess in (most_frequent, nearest_values))
    sentence = (
        f"{name}: {percent(right['share'])} of {len(truth):,} held-out cells got the right category; the most frequent "
        f"category would be right in {percent(by_mode)}, the nearest in time in {percent(by_nearest)}."
    )
    return right | {"name": name, "most_frequent": by_mode, "nearest": by_nearest, "sentence": sentence}


def _mode(values: Floats) -> float:
    levels, counts = np.unique(values, return_counts=True)
    return float(levels[np.argmax(counts)]) if len(values) else 0.0
