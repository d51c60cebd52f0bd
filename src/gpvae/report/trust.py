"""How reliable filled values are, judged by cells whose value is known."""

from typing import Any

import numpy as np

from gpvae.data.panel import DataError, Panel
from gpvae.imputers.base import Imputer
from gpvae.imputers.imputation import Imputation
from gpvae.report.coverage import (
    MIN_CELLS,
    Coverage,
    by_column,
    by_distance,
    calibration,
    rank_histogram,
    verdict,
)
from gpvae.report.errors import class_accuracies, numeric_errors
from gpvae.report.evidence import Evidence, held_out_evidence
from gpvae.report.gaps import over_gaps
from gpvae.report.kinds import by_kind

EMPTY: dict[str, Any] = dict.fromkeys(
    (
        "cells",
        "caveat",
        "classes",
        "errors",
        "coverage",
        "calibration",
        "by_column",
        "by_distance",
        "pit",
        "by_kind",
        "gaps",
        "unknown",
    )
)


def brief(imputation: Imputation, *, intervals: bool) -> list[str]:
    """A few sentences on errors and, if wanted, intervals at held-out cells; none if there are no such cells."""
    evidence = held_out_evidence(imputation)
    if isinstance(evidence, str):
        return []
    result = assess(evidence, imputation.method)
    of_intervals = [result["coverage"], result["by_kind"]] if intervals else []
    parts = [result["errors"], *of_intervals, *result["classes"]]
    return [f"Checked against {result['cells']:,} held-out cells:", *(part["sentence"] for part in parts if part)]


def brief_of_fit(imputer: Imputer, panel: Panel, *, intervals: bool) -> list[str]:
    """The same of an imputer and the panel that it was fitted to; or why there is nothing to say."""
    nothing = np.empty(0, dtype=np.int64)
    given = imputer.schema_.panel(panel).with_labels(imputer.schema_.labels)
    imputation = Imputation(given, nothing, nothing.astype(float), method=imputer.name, imputer=imputer)
    return brief(imputation, intervals=intervals) or [str(held_out_evidence(imputation))]


def assess(evidence: Evidence | str, name: str) -> dict[str, Any]:
    """JSON-ready, with None for what cannot be assessed and `unknown` as the reason; `name` is the method's."""
    if isinstance(evidence, str):
        return EMPTY | {"unknown": evidence}
    result = EMPTY | {"cells": int(evidence.cells.sum()), "caveat": evidence.caveat}
    result["classes"] = class_accuracies(evidence)
    if not evidence.numeric_cells.any():
        return result | {"unknown": "No numeric column has a held-out cell."}
    result["errors"] = numeric_errors(evidence, name)
    if not evidence.imputation.has_intervals:
        return result | {"unknown": f"{name} gives single values, so there are no intervals to check."}
    return result | _assess_intervals(evidence)


def _assess_intervals(evidence: Evidence) -> dict[str, Any]:
    coverage, imputation = Coverage.of(evidence), evidence.imputation
    try:
        count = len(coverage.inside)
    except DataError as error:
        return {"unknown": f"There are too few samples for intervals: {error}."}
    if count < MIN_CELLS:
        cells = "1 held-out cell is" if count == 1 else f"{count} held-out cells are"
        return {"unknown": f"Only {cells} numeric: too few to tell whether the intervals are calibrated."}
    with_draws = imputation.draws is not None and imputation.conformal is None
    return {
        "coverage": verdict(coverage),
        "calibration": calibration(coverage),
        "by_column": by_column(coverage),
        "by_distance": by_distance(coverage),
        "by_kind": by_kind(coverage),
        "pit": rank_histogram(coverage) if with_draws else None,
        "gaps": over_gaps(evidence),
    }
