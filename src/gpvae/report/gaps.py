"""Whether draws hold together over gaps: what is computed from several filled values at once."""

from typing import Any

from gpvae.evaluation import joint
from gpvae.evaluation.joint import JointScore
from gpvae.report.coverage import is_low
from gpvae.report.evidence import Evidence
from gpvae.report.formatting import decimal, percent

MIN_GAPS = 10  # for a share that says anything
MIN_DRAWS = 19  # for a 90 % interval


def over_gaps(evidence: Evidence) -> dict[str, Any] | None:
    """A sentence and a small table about held-out gaps of at least two cells; None without draws or such gaps."""
    imputation = evidence.imputation
    if imputation.draws is None or imputation.draws.count < MIN_DRAWS:
        return None
    cells = joint.longer_gaps(imputation.panel, evidence.numeric_cells)
    if not cells.any():
        return None
    length = joint.find_gaps(imputation.panel, cells).length
    if len(length) < MIN_GAPS:
        return None
    score = joint.score(imputation, evidence.truth, cells, evidence.units)
    cells_each = f"{length.min():,}" if length.min() == length.max() else f"{length.min():,} to {length.max():,}"
    lead = (
        f"Of {len(length):,} held-out gaps of {cells_each} cells, {percent(score.mean_coverage.value)} have their mean"
    )
    return {"sentence": f"{lead} in its 90 % interval: {_conclusion(score)}.", "rows": _rows(score)}


def _conclusion(score: JointScore) -> str:
    value, low, high = score.mean_coverage
    if is_low(value, high):
        return "intervals of means and sums over gaps are too narrow"
    if low < 0.8:
        return "too few gaps to tell whether draws hold together"
    return "draws hold together, so means and sums over gaps can be computed from them"


def _rows(score: JointScore) -> list[list[str]]:
    """What, the figure, and what would be right."""
    true_correlation = decimal(score.true_lag_correlation, ".2f")
    return [
        ["mean in its 90 % interval (and the sum)", percent(score.mean_coverage.value), "90 %"],
        ["maximum in its 90 % interval", percent(score.max_coverage.value), "90 %"],
        ["roughness: steps of the draws / steps of the truth", decimal(score.roughness, ".2f"), "1"],
        ["lag-one correlation of errors", decimal(score.lag_correlation, ".2f"), f"{true_correlation}, the truth's"],
        ["energy score", decimal(score.energy), "lower is better"],
        ["variogram score", decimal(score.variogram), "lower is better"],
    ]
