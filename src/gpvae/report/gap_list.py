"""A list of all gaps: where they are, of which kind, how uncertain their values are, and whether that was checked."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.frames import table_like
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.runs import Runs, find_runs
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.widths import KINDS, PAIR, SHORT
from gpvae.report.coverage import Coverage, is_low
from gpvae.report.evidence import held_out_evidence
from gpvae.report.kinds import longest_checked, shares_by_kind

LEVEL, WIDTH = 0.9, 2 * 1.645  # an interval, and how wide it is in standard deviations


def gap_list(imputation: Imputation) -> Any:
    """See `Imputation.gaps`."""
    panel = imputation.panel
    gaps = find_runs(panel, ~panel.observed)
    gaps = gaps.at(np.lexsort((gaps.column, gaps.first)))
    kinds = _kinds(panel, gaps)
    return table_like(
        panel.source,
        {
            "series": [panel.ids[i] for i in panel.series_of_row[gaps.first].tolist()],
            "column": [str(panel.columns[j]) for j in gaps.column.tolist()],
            "start": panel.times_at(gaps.first),
            "end": panel.times_at(gaps.first + gaps.length - 1),
            "length": gaps.length,
            "kind": [KINDS[k] for k in kinds.tolist()],
            "uncertainty": _uncertainty(imputation, gaps),
            "trust": _trust(imputation, gaps, kinds),
        },
    )


def _kinds(panel: Panel, gaps: Runs) -> NDArray[np.int64]:
    """As `gap_kinds`, of whole gaps: an outage is one in most of its rows. Columns without any value do not count."""
    known: Bools = np.any(panel.observed, axis=0)
    outage = ~np.any(panel.observed[:, known], axis=1)
    row, _ = gaps.cells()
    is_outage = _mean(np.asarray(outage, dtype=np.float64)[row], gaps) > 0.5
    return np.where(gaps.length <= PAIR, 0, 1 + (gaps.length > SHORT) + 2 * is_outage)


def _mean(values: Floats, gaps: Runs) -> Floats:
    return gaps.mean(values) if len(gaps.length) else np.empty(0)


def _uncertainty(imputation: Imputation, gaps: Runs) -> Floats:
    """Mean standard deviation of each gap over the deviation of its column; NaN where there is none."""
    panel = imputation.panel
    deviations = np.full(panel.values.shape, np.nan)
    if imputation.conformal is not None:
        lower, upper = imputation.quantiles((1 - LEVEL) / 2, (1 + LEVEL) / 2)
        deviations.flat[imputation.cells] = (upper - lower) / WIDTH
    elif imputation.stds is not None:
        deviations.flat[imputation.cells] = imputation.stds
    column_std = np.array([np.std(x[~np.isnan(x)]) if (~np.isnan(x)).any() else 0.0 for x in panel.values.T])
    deviations /= np.where(column_std > 0, column_std, np.nan)
    filled = imputation.filled[gaps.cells()].astype(np.float64)
    with np.errstate(invalid="ignore"):
        return _mean(np.where(filled > 0, deviations[gaps.cells()], 0), gaps) / _mean(filled, gaps)


def _trust(imputation: Imputation, gaps: Runs, kinds: NDArray[np.int64]) -> list[str]:
    evidence = held_out_evidence(imputation) if imputation.has_intervals else "there are no intervals"
    coverage = None if isinstance(evidence, str) or not evidence.numeric_cells.any() else Coverage.of(evidence)
    try:
        shares = {} if coverage is None else shares_by_kind(coverage)
    except DataError:  # too few samples for intervals
        shares = {}
    longest = longest_checked(coverage) if coverage is not None and shares else 0
    filled = _mean(imputation.filled[gaps.cells()].astype(np.float64), gaps) > 0
    return [
        _of_gap(shares.get(kind), length > longest) if some else "left empty"
        for kind, length, some in zip(kinds.tolist(), gaps.length.tolist(), filled.tolist(), strict=True)
    ]


def _of_gap(share: dict[str, Any] | None, longer: bool) -> str:
    if share is None:
        return "not checked"
    if longer:
        return "longer than checked"
    return "too narrow" if is_low(share["share"], share["high"]) else "checked"
