"""Coverage by kind of gap, and whether the table's own gaps are longer than those that were checked."""

from typing import Any

import numpy as np

from gpvae.data.panel import Bools
from gpvae.data.runs import find_runs
from gpvae.imputers.widths import KINDS, gap_kinds
from gpvae.report.confidence import share
from gpvae.report.coverage import MIN_CELLS, Coverage, is_low
from gpvae.report.formatting import percent


def by_kind(coverage: Coverage) -> dict[str, Any] | None:
    """A sentence and a small table; None where all held-out cells are of one kind."""
    groups = {KINDS[k]: group for k, group in shares_by_kind(coverage).items()}
    if len(groups) < 2:
        return None
    rows = [[name, percent(group["share"]), f"{group['cells']:,}"] for name, group in groups.items()]
    return {"sentence": f"{_sentence(groups)}{_longer(coverage)}", "rows": rows}


def shares_by_kind(coverage: Coverage) -> dict[int, dict[str, Any]]:
    """The share of held-out cells inside their intervals, of each kind (an index among `KINDS`) with enough cells."""
    columns = _known_columns(coverage)
    kinds = np.full(coverage.cells.shape, -1)
    kinds[:, columns] = gap_kinds(coverage.imputation.panel, columns)
    kind = kinds[coverage.cells]
    found = [k for k in range(len(KINDS)) if (kind == k).sum() >= MIN_CELLS]
    return {k: share(coverage.inside[kind == k], coverage.block[kind == k]) for k in found}


def longest_checked(coverage: Coverage) -> int:
    """The most rows of a gap that was held out."""
    return int(find_runs(coverage.imputation.panel, coverage.cells).length.max())


def _sentence(groups: dict[str, dict[str, Any]]) -> str:
    parts = [f"{name}: {percent(group['share'])} of {group['cells']:,}" for name, group in groups.items()]
    low = [name for name, group in groups.items() if is_low(group["share"], group["high"])]
    lead = f"In their 90 % interval, by kind of gap – {'; '.join(parts)}."
    return f"{lead} Trust the intervals less in {' and in '.join(low)}." if low else lead


def _longer(coverage: Coverage) -> str:
    """Where the table has gaps that are longer than any of those that were held out."""
    panel = coverage.imputation.panel
    gaps = find_runs(panel, ~panel.observed & _known_columns(coverage))
    checked = longest_checked(coverage)
    held_out = np.logical_or.reduceat(coverage.cells[gaps.cells()], gaps.offsets)
    longer = gaps.length[~held_out & (gaps.length > checked)]
    if not len(longer):
        return ""
    count = "1 gap is" if len(longer) == 1 else f"{len(longer):,} gaps are"
    return f" {count} longer than the {checked} rows that could be checked, up to {longer.max():,}: trust them less."


def _known_columns(coverage: Coverage) -> Bools:
    """Columns of which something is known. (feature,)"""
    known: Bools = np.any(coverage.imputation.panel.observed | coverage.cells, axis=0)
    return known
