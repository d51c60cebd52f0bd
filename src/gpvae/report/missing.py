"""The pattern of missing values: where, for how long, and which columns together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, Floats, Panel
from gpvae.report.formatting import percent

COLUMNS_SHOWN = 60
COLUMNS_TOGETHER = 30
NEVER_NAMED = 5
TIMES_SHOWN, SERIES_SHOWN, SERIES_NAMED = 120, 150, 12


def pattern(panel: Panel, image_shape: tuple[int, int, int] | None = None) -> dict[str, Any]:
    """Everything the report shows about gaps, JSON-ready."""
    missing = ~panel.observed
    shown = _most_missing(missing, COLUMNS_SHOWN)
    lengths, column = _gaps(panel, missing)
    never = np.flatnonzero(missing.all(axis=0))
    result: dict[str, Any] = {
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
        result["pixels"] = _rounded(missing.mean(axis=0).reshape(image_shape).mean(axis=0))
    return result


def _most_missing(missing: Bools, most: int) -> NDArray[np.int64]:
    """All columns or, if there are more than `most`, those with the most missing values; in their order."""
    if missing.shape[1] <= most:
        return np.arange(missing.shape[1])
    return np.sort(np.argsort(-missing.mean(axis=0), kind="stable")[:most])


def _over_time(panel: Panel, missing: Bools) -> dict[str, Any]:
    """The missing share of each column at each time, over all series; binned if there are many times."""
    moments, place = np.unique(panel.times, return_inverse=True)
    if len(moments) > TIMES_SHOWN:
        edges = np.linspace(moments[0], moments[-1], TIMES_SHOWN + 1)
        place = np.clip(np.searchsorted(edges, panel.times, side="right") - 1, 0, TIMES_SHOWN - 1)
        moments = (edges[:-1] + edges[1:]) / 2
    rows = np.bincount(place, minlength=len(moments))
    shares = _shares(missing, place, rows)
    return {"times": moments.tolist(), "shares": _rounded(shares.T)}


def _over_series(panel: Panel, missing: Bools) -> dict[str, Any]:
    """The missing share of each column in each series, fewest gaps first; in groups if there are many series."""
    by_series = np.add.reduceat(missing, panel.starts, axis=0, dtype=np.int64)
    order = np.argsort(by_series.sum(axis=1) / panel.lengths, kind="stable")
    group = np.empty(len(order), dtype=np.int64)
    groups = min(len(order), SERIES_SHOWN)
    group[order] = np.arange(len(order)) * groups // len(order)
    rows = np.bincount(group, panel.lengths, minlength=groups)
    counts = np.stack([np.bincount(group, column, minlength=groups) for column in by_series.T], axis=1)
    names = [str(panel.ids[i]) for i in order] if len(order) <= SERIES_NAMED else None
    return {"groups": groups, "series": len(order), "names": names, "shares": _rounded(counts / rows[:, None])}


def _shares(missing: Bools, place: NDArray[np.int64], rows: NDArray[np.int64]) -> Floats:
    counts = np.stack([np.bincount(place, column, minlength=len(rows)) for column in missing.T], axis=1)
    return np.divide(counts, rows[:, None], out=np.full(counts.shape, np.nan), where=rows[:, None] > 0)


def _gaps(panel: Panel, missing: Bools) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The length in steps of each run of missing values in a column of a series, and its column. (gap,)"""
    begins = np.zeros(len(missing), dtype=bool)
    begins[panel.starts[panel.lengths > 0]] = True
    before = np.vstack([np.zeros((1, missing.shape[1]), dtype=bool), missing[:-1]]) & ~begins[:, None]
    flat = missing.T.ravel()
    starts = (missing & ~before).T.ravel()
    lengths = np.bincount(np.cumsum(starts)[flat] - 1) if flat.any() else np.zeros(0, dtype=np.int64)
    return lengths, np.flatnonzero(starts) // len(missing)


def _gap_lengths(lengths: NDArray[np.int64], never: list[str]) -> dict[str, Any]:
    """The number of gaps of 1, 2, 3–4, 5–8, … steps and of values in them, without columns that were never observed."""
    if not len(lengths):
        return {"groups": [], "sentence": "There are no gaps."}
    group = np.ceil(np.log2(lengths)).astype(int)
    groups = [
        {"name": _length_range(k), "gaps": int((group == k).sum()), "values": int(lengths[group == k].sum())}
        for k in range(group.max() + 1)
    ]
    single = (lengths == 1).mean()
    ordered = np.sort(lengths)
    typical = ordered[np.searchsorted(np.cumsum(ordered), ordered.sum() / 2)]  # the median over values, not over gaps
    lead = f"Of {len(lengths):,} gaps, {percent(single)} are single steps; the longest has {ordered[-1]:,}."
    half = f" Half of all missing values are in gaps of {typical:,} steps or more." if typical > 1 else ""
    return {"groups": groups, "sentence": lead + half + _never_observed(never)}


def _never_observed(never: list[str]) -> str:
    if not never:
        return ""
    more = f" and {len(never) - NEVER_NAMED} more" if len(never) > NEVER_NAMED else ""
    return f" Not counted: {', '.join(never[:NEVER_NAMED])}{more}, never observed."


def _length_range(k: int) -> str:
    first, last = 2 ** (k - 1) + 1 if k else 1, 2**k
    return f"{last:,}" if first >= last else f"{first:,}–{last:,}"


def _longest(lengths: NDArray[np.int64], column: NDArray[np.int64], columns: int) -> list[int]:
    longest = np.zeros(columns, dtype=np.int64)
    np.maximum.at(longest, column, lengths)
    return longest.tolist()


def _together(panel: Panel, missing: Bools) -> dict[str, Any] | None:
    """The correlation of the gaps of different columns, where 1 means that they are always missing together."""
    partly = np.flatnonzero(missing.any(axis=0) & ~missing.all(axis=0))
    chosen = partly[_most_missing(missing[:, partly], COLUMNS_TOGETHER)] if len(partly) else partly
    if len(chosen) < 2:
        return None
    gaps = missing[:, chosen].astype(np.float32)
    both, share = gaps.T @ gaps / len(gaps), gaps.mean(axis=0, dtype=np.float64)
    std = np.sqrt(share * (1 - share))
    correlation = (both - np.outer(share, share)) / np.outer(std, std)
    conditional = both / share[:, None]  # P(second missing | first missing)
    names = [str(panel.columns[j]) for j in chosen]
    return {
        "columns": names,
        "columns_left_out": len(partly) - len(chosen),
        "correlation": _rounded(np.clip(correlation, -1, 1)),
        "conditional": _rounded(conditional),
        "sentence": _describe_together(names, correlation, conditional, share),
    }


def _describe_together(names: list[str], correlation: Floats, conditional: Floats, share: Floats) -> str:
    others = np.where(np.eye(len(names), dtype=bool), 0.0, correlation)
    i, j = np.unravel_index(np.argmax(np.abs(others)), others.shape)
    if abs(others[i, j]) <= 0.2:
        return "Columns are missing independently of each other, so other columns can usually help to fill a gap."
    how = "together" if others[i, j] > 0 else "at different steps"
    example = f"where {names[i]} is missing, {names[j]} is also missing in {percent(conditional[i, j])} of the steps"
    return f"Some columns tend to be missing {how}: {example} ({percent(share[j])} overall)."


def _rounded(shares: NDArray[Any]) -> list[list[float | None]]:
    return [[None if np.isnan(x) else round(float(x), 4) for x in row] for row in shares]
