"""What `gpvae impute --dry-run` says: what would be filled, by what, in what time, and what would be written."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpvae.data.gaps import GapSelection
    from gpvae.data.panel import Panel
    from gpvae.imputers.base import Imputer

COLUMNS = 8  # that are listed
SIMPLE = ("Mean", "Forward", "Linear")
CORE_SECONDS, CORE_CELLS = 10, 160_000  # of gp-factor: at least, and cells a second (docs/default.md)


def plan(imputer: "Imputer", panel: "Panel", gaps: "GapSelection", outputs: Sequence[Path | None]) -> Iterator[str]:
    """The lines to print, before any training."""
    from gpvae.data.gaps import count_gaps
    from gpvae.data.runs import find_runs

    wanted = gaps.wanted(panel)
    runs = find_runs(panel, wanted)
    yield f"would fill {int(wanted.sum()):,} cells in {count_gaps(panel, wanted):,} gaps"
    columns = [j for j in range(len(panel.columns)) if wanted[:, j].any()]
    for j in columns[:COLUMNS]:
        length = runs.length[runs.column == j]
        yield f"  {panel.columns[j]}: {length.sum():,} cells in {len(length):,} gaps, up to {length.max():,} rows long"
    if len(columns) > COLUMNS:
        yield f"  and {len(columns) - COLUMNS:,} more columns"
    yield from gaps.summary(panel)
    yield f"would use {imputer.name}: {_duration(imputer, panel)}"
    yield f"would write {', '.join(str(path) for path in outputs if path)}; nothing is written now"


def _duration(imputer: "Imputer", panel: "Panel") -> str:
    name, minutes = type(imputer).__name__, imputer.get_params().get("minutes")
    if "schema_" in vars(imputer):
        return "it is trained already, so this takes seconds"
    if minutes:
        return f"at most about {minutes:g} minutes"
    if name in SIMPLE:
        return "a few seconds at most"
    core = CORE_SECONDS + panel.values.size / CORE_CELLS
    if name == "GPFactor":
        return f"about {core:,.0f} seconds on one CPU core"
    if name == "GPNet":
        return f"about {core:,.0f} seconds to a few minutes; --minutes limits it"
    return "minutes on a GPU, minutes to hours on a CPU"
