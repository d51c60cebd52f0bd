"""In what pattern values are missing: where, for how long, and together with what."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats, Panel
from gpvae.report.words import percent

COLUMNS_SHOWN = 60
COLUMNS_TOGETHER = 30
NEVER_NAMED = 5
TIMES_SHOWN, SERIES_SHOWN, SERIES_NAMED = 120, 150, 12


def pattern(panel: Panel, image_shape: tuple[int, int, int] | None = None) -> dict[str, Any]:
    """JSON-ready."""
    missing = ~panel.observed
    shown = _most_missing(missing, COLUMNS_SHOWN)
    lengths, column = _gaps(panel, missing)
    never = np.flatnonzero(missing.all(axis=0))
    found: dict[str, Any] = {
        "columns": [str(panel.columns[j]) for j in shown],
        "columns_left_out": len(panel.columns) - len(shown),
        "over_time": _over_time(panel, missing[:, shown]),
        "over_series": _over_series(panel, missing[:, shown]) if len(panel) > 1 else None,
        "gaps": _gap_lengths(lengths[~np.isin(column, never)], [str(panel.columns[j]) for j in never]),
        "together": _together(panel, missing),
        "pixels": None,
        "longest": _longest(lengths, column, len(panel.columns)),
    }
    if image_shape is not None:
        found["pixels"] = _rounded(missing.mean(axis=0).reshape(image_shape).mean(axis=0))
    return found


def _most_missing(missing: Bools, most: int) -> NDArray[np.int64]:
    """Columns in their order; if they are too many, those of which most is missing."""
    if missing.shape[1] <= most:
        return np.arange(missing.shape[1])
    return np.sort(np.argsort(-missing.mean(axis=0), kind="stable")[:most])


def _over_time(panel: Panel, missing: Bools) -> dict[str, Any]:
    """The share that is missing of each column at each time, of all series; in stretches of time if those are many."""
    moments, place = np.unique(panel.times, return_inverse=True)
    if len(moments) > TIMES_SHOWN:
        edges = np.linspace(moments[0], moments[-1], TIMES_SHOWN + 1)
        place = np.clip(np.searchsorted(edges, panel.times, side="right") - 1, 0, TIMES_SHOWN - 1)
        moments = (edges[:-1] + edges[1:]) / 2
    rows = np.bincount(place, minlength=len(moments))
    shares = _shares(missing, place, rows)
    return {"times": moments.tolist(), "shares": _rounded(shares.T)}


def _over_series(panel: Panel, missing: Bools) -> dict[str, Any]:
    """The share that is missing of each column in each series, the fullest first; in groups if series are many."""
    of_series = np.add.reduceat(missing, panel.starts, axis=0, dtype=np.int64)
    order = np.argsort(of_series.sum(axis=1) / panel.lengths, kind="stable")
    group = np.empty(len(order), dtype=np.int64)
    groups = min(len(order), SERIES_SHOWN)
    group[order] = np.arange(len(order)) * groups // len(order)
    rows = np.bincount(group, panel.lengths, minlength=groups)
    counts = np.stack([np.bincount(group, each, minlength=groups) for each in of_series.T], axis=1)
    names = [str(panel.ids[i]) for i in order] if len(order) <= SERIES_NAMED else None
    return {"groups": groups, "series": len(order), "names": names, "shares": _rounded(counts / rows[:, None])}


def _shares(missing: Bools, place: NDArray[np.int64], rows: NDArray[np.int64]) -> Floats:
    counts = np.stack([np.bincount(place, each, minlength=len(rows)) for each in missing.T], axis=1)
    return np.divide(counts, rows[:, None], out=np.full(counts.shape, np.nan), where=rows[:, None] > 0)


def _gaps(panel: Panel, missing: Bools) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The length of each run of missing values in a column of a series, in steps, and the column."""
    begins = np.zeros(len(missing), dtype=bool)
    begins[panel.starts[panel.lengths > 0]] = True
    before = np.vstack([np.zeros((1, missing.shape[1]), dtype=bool), missing[:-1]]) & ~begins[:, None]
    flat = missing.T.ravel()
    starts = (missing & ~before).T.ravel()
    lengths = np.bincount(np.cumsum(starts)[flat] - 1) if flat.any() else np.zeros(0, dtype=np.int64)
    return lengths, np.flatnonzero(starts) // len(missing)


def _gap_lengths(lengths: NDArray[np.int64], never: list[str]) -> dict[str, Any]:
    """How many gaps there are of 1, 2, 3–4, 5–8, … steps, and how many values they hold.

    Columns that were never observed have no gaps: they would only hide those of the others.
    """
    if not len(lengths):
        return {"groups": [], "sentence": "There is no gap."}
    group = np.ceil(np.log2(lengths)).astype(int)
    groups = [
        {"name": _span(k), "gaps": int((group == k).sum()), "values": int(lengths[group == k].sum())}
        for k in range(group.max() + 1)
    ]
    single = (lengths == 1).mean()
    ordered = np.sort(lengths)
    typical = ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)]  # of a missing value, not of a gap
    told = f"Of {len(lengths):,} gaps, {percent(single)} are single steps; the longest has {ordered[-1]:,}."
    half = f" Half of all missing values lie in gaps of {typical:,} steps or more." if typical > 1 else ""
    return {"groups": groups, "sentence": told + half + _never_observed(never)}


def _never_observed(never: list[str]) -> str:
    if not never:
        return ""
    more = f" and {len(never) - NEVER_NAMED} more" if len(never) > NEVER_NAMED else ""
    return f" Not counted: {', '.join(never[:NEVER_NAMED])}{more}, never observed."


def _span(k: int) -> str:
    first, last = 2 ** (k - 1) + 1 if k else 1, 2**k
    return f"{last:,}" if first >= last else f"{first:,}–{last:,}"


def _longest(lengths: NDArray[np.int64], column: NDArray[np.int64], columns: int) -> list[int]:
    found = np.zeros(columns, dtype=np.int64)
    np.maximum.at(found, column, lengths)
    return found.tolist()


def _together(panel: Panel, missing: Bools) -> dict[str, Any] | None:
    """How far columns are missing at the same steps: the correlation of their gaps."""
    some = np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0))
    some = some[_most_missing(missing[:, some], COLUMNS_TOGETHER)] if len(some) else some
    if len(some) < 2:
        return None
    gaps = missing[:, some].astype(np.float32)
    both, share = gaps.T @ gaps / len(gaps), gaps.mean(axis=0, dtype=np.float64)
    spread = np.sqrt(share * (1 - share))
    correlation = (both - np.outer(share, share)) / np.outer(spread, spread)
    names = [str(panel.columns[j]) for j in some]
    apart = np.where(np.eye(len(some), dtype=bool), 0.0, correlation)
    i, j = np.unravel_index(np.argmax(np.abs(apart)), apart.shape)
    given = both[i, j] / share[i]
    told = (
        f"where {names[i]} is missing, {names[j]} is too in {percent(given)} of the steps ({percent(share[j])} overall)"
    )
    if apart[i, j] > 0.2:
        sentence = f"Some columns go missing together: {told}."
    elif apart[i, j] < -0.2:
        sentence = f"Some columns go missing by turns: {told}."
    else:
        sentence = "Columns go missing independently of each other, so others are usually there to learn from."
    return {
        "columns": names,
        "columns_left_out": int((missing.any(axis=0) & ~missing.all(axis=0)).sum()) - len(some),
        "correlation": _rounded(np.clip(correlation, -1, 1)),
        "given": _rounded(both / share[:, None]),
        "sentence": sentence,
    }


def _rounded(shares: NDArray[Any]) -> list[list[float | None]]:
    return [[None if np.isnan(x) else round(float(x), 4) for x in row] for row in shares]
