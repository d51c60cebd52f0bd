"""Whether intervals contain the share of true values that they should: over all, by level, column and distance."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.gaps import neighbours
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.imputers.imputation import Imputation
from gpvae.report.confidence import Z, blocks_of, share, wilson
from gpvae.report.evidence import Evidence
from gpvae.report.formatting import percent

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DISTANCES = (1, 2, 3, 5, 9, 17, 33)  # lower ends of the groups, in steps to the nearest observation
COLUMNS_SHOWN = 24
MIN_CELLS = 10  # for a share that says anything
TOLERANCE = 0.01  # a share that is off by less counts as exact
NO_OBSERVATION = "none"
CIRCULAR = (
    "These cells also set the interval widths, so expect slightly lower coverage elsewhere, and lower still in long "
    "gaps."
)


@dataclass(frozen=True)
class Coverage:
    """Intervals of an imputation, checked against the true values of numeric cells."""

    imputation: Imputation
    truth: Floats  # (cell,)
    cells: Bools  # (row, feature)
    independent: bool  # the cells had no part in setting the intervals

    @classmethod
    def of(cls, evidence: Evidence) -> "Coverage":
        cells = evidence.numeric_cells
        return cls(evidence.imputation, evidence.truth[cells], cells, not evidence.caveat)

    @cached_property
    def block(self) -> NDArray[np.int64]:
        """(cell,)"""
        return blocks_of(self.imputation.panel)[np.nonzero(self.cells)[0]]

    @cached_property
    def inside(self) -> Bools:
        """Whether the 90 % interval contains the true value. (cell,)"""
        return self.inside_at(0.9)

    def inside_at(self, level: float) -> Bools:
        lower, upper = self._quantiles((1 - level) / 2, (1 + level) / 2)
        tolerance = 1e-9 * np.abs(self.truth)
        return (lower - tolerance <= self.truth) & (self.truth <= upper + tolerance)

    def _quantiles(self, *q: float) -> Floats:
        """(quantile, cell)"""
        chosen = self.cells.ravel()[self.imputation.cells]
        if self.imputation.conformal is not None:
            return self.imputation.quantiles(*q)[:, chosen]
        assert self.imputation.draws is not None
        return self.imputation.draws.at(chosen).quantiles(q)

    def share(self, chosen: Bools) -> dict[str, Any]:
        return share(self.inside[chosen], self.block[chosen])


def verdict(coverage: Coverage) -> dict[str, Any]:
    overall = share(coverage.inside, coverage.block)
    value, independent = overall["share"], coverage.independent
    lead = f"Of {overall['cells']:,} held-out cells, {percent(value, 1)} lie in their 90 % interval"
    if is_low(value, overall["high"]):
        name = "narrow"
        conclusion = "much too narrow; do not rely on them" if value < 0.8 else "somewhat too narrow; add a margin"
        sentence = f"{lead}: the intervals are {conclusion}."
    elif value >= 0.9 + TOLERANCE and overall["low"] > 0.9:
        name = "wide"
        sentence = f"{lead}: the intervals are wider than necessary, which is safe."
        sentence = sentence if independent else f"{lead}, more than intended. {CIRCULAR}"
    elif overall["low"] < 0.8:
        name, sentence = "unclear", f"{lead}: too few independent cells to tell whether the intervals are calibrated."
    else:
        name = "calibrated"
        sentence = f"{lead}: the intervals are well calibrated." if independent else f"{lead}, as intended. {CIRCULAR}"
    return {"verdict": name, "sentence": sentence, "share": float(coverage.inside.mean()), "cells": overall["cells"]}


def is_low(value: float, high: float) -> bool:
    """Whether a share in 90 % intervals is too low by more than chance; `high` is the upper end of its interval."""
    return value <= 0.9 - TOLERANCE and high < 0.9


def calibration(coverage: Coverage) -> dict[str, Any]:
    points: list[dict[str, Any]] = [
        {"level": level} | share(coverage.inside_at(level), coverage.block) for level in LEVELS
    ]
    worst = max(points, key=lambda point: abs(point["share"] - point["level"]))
    example = f"{percent(worst['level'])} intervals contain {percent(worst['share'], 1)}"
    if abs(worst["share"] - worst["level"]) < 0.03:
        sentence = f"Intervals of every level contain about the nominal share of values; the worst: {example}."
    elif all(point["share"] >= point["level"] - 0.01 for point in points):
        sentence = f"Intervals contain more values than they should: {example}. They could be narrower."
    elif all(point["share"] <= point["level"] + 0.01 for point in points):
        sentence = f"Intervals contain fewer values than they should: {example}. They should be wider."
    else:
        sentence = f"Some levels contain more values than they should, others fewer; the worst: {example}."
    return {"points": points, "sentence": sentence}


def by_column(coverage: Coverage) -> dict[str, Any]:
    column, names = np.nonzero(coverage.cells)[1], coverage.imputation.panel.columns
    groups = [coverage.share(column == j) | {"name": str(names[j])} for j in np.unique(column).tolist()]
    low = _significantly_low(groups)
    sentence = "No column has significantly fewer values in its 90 % intervals than it should."
    if low:
        listed = ", ".join(f"{group['name']} ({percent(group['share'])})" for group in low[:3])
        more = f" and {len(low) - 3} more" if len(low) > 3 else ""
        sentence = f"The 90 % intervals of {listed}{more} contain too few values: trust them less."
    shown = sorted(groups, key=lambda group: group["share"])[:COLUMNS_SHOWN]
    return {"columns": shown, "of": len(groups), "sentence": sentence}


def _significantly_low(groups: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Groups whose share is below 90 % by more than chance, corrected for their number; worst first."""
    z = NormalDist().inv_cdf(1 - 0.025 / len(groups))
    low = [group for group in groups if is_low(group["share"], wilson(group["share"], group["effective"], z)[1])]
    return sorted(low, key=lambda group: group["share"])


def by_distance(coverage: Coverage) -> dict[str, Any]:
    group = _distance_groups(coverage.imputation.panel, coverage.cells)
    names = {k: _distance_name(k) for k in range(len(DISTANCES))} | {-1: NO_OBSERVATION}
    groups = [coverage.share(group == k) | {"name": name} for k, name in names.items() if (group == k).any()]
    groups = [each for each in groups if each["cells"] >= MIN_CELLS] or groups
    low = _significantly_low(groups)
    if len(groups) == 1:
        sentence = f"All these cells are {_position(groups[0]['name'])}, so this says nothing about other cells."
    elif not low:
        sentence = "Coverage is not significantly low at any distance to the nearest observation of the column."
    else:
        sentence = f"For cells {_position(low[0]['name'])}, only {percent(low[0]['share'])} lie in the 90 % interval."
    return {"groups": groups, "sentence": sentence}


def _distance_groups(panel: Panel, cells: Bools) -> NDArray[np.int64]:
    """The group in DISTANCES of each cell; -1 for a series without an observation of the column. (cell,)"""
    last, following = (rows[cells] for rows in neighbours(panel))
    row, far = np.nonzero(cells)[0], np.iinfo(np.int64).max
    distance = np.minimum(np.where(last >= 0, row - last, far), np.where(following >= 0, following - row, far))
    return np.where(distance == far, -1, np.searchsorted(DISTANCES, distance, side="right") - 1)


def _distance_name(k: int) -> str:
    first = DISTANCES[k]
    if k + 1 == len(DISTANCES):
        return f"{first} or more"
    return str(first) if DISTANCES[k + 1] == first + 1 else f"{first} to {DISTANCES[k + 1] - 1}"


def _position(name: str) -> str:
    if name == NO_OBSERVATION:
        return "in a column without an observation in their series"
    return f"{name} step{'' if name == '1' else 's'} from the nearest observation of their column"


def rank_histogram(coverage: Coverage) -> dict[str, Any]:
    """Where the true value lies among the draws (the probability integral transform): uniform if they are right."""
    pit = _ranks(coverage)
    counts = np.histogram(pit, bins=10, range=(0, 1))[0]
    return {"shares": (counts / len(pit)).tolist(), "cells": len(pit), "sentence": _describe_ranks(pit, counts)}


def _ranks(coverage: Coverage, at_once: int = 2**14) -> Floats:
    """The quantile that each true value is of its draws, ties broken at random. (cell,)"""
    assert coverage.imputation.draws is not None
    draws = coverage.imputation.draws.at(coverage.cells.ravel()[coverage.imputation.cells])
    generator, ranks = np.random.default_rng(0), list[Floats]()
    for first in range(0, len(coverage.truth), at_once):
        part = slice(first, first + at_once)
        truth, values = coverage.truth[part, None], draws.at(part).values()
        equal = np.abs(values - truth) <= 1e-9 * np.abs(truth)
        below, ties = ((values < truth) & ~equal).sum(axis=1), equal.sum(axis=1)
        ranks.append(draws.levels(below - 1 + generator.random(len(below)) * (ties + 1)))
    return np.concatenate(ranks)


def _describe_ranks(pit: Floats, counts: NDArray[np.int64]) -> str:
    n, bias = len(pit), pit.mean() - 0.5
    outer, chance = (counts[0] + counts[-1]) / n, max(0.02, Z * np.sqrt(0.16 / n))
    biased = abs(bias) > max(0.015, Z * np.sqrt(1 / 12 / n))
    worst = int(np.argmax(np.abs(counts - n / 10)))
    tails = f"({percent(outer)} instead of 20 %)"
    if outer > 0.2 + chance:
        sentence = f"Too many true values lie in the outer tenths of the draws {tails}: the model is overconfident."
    elif outer < 0.2 - chance:
        sentence = f"Few true values lie in the outer tenths of the draws {tails}: the model is too cautious."
    elif abs(counts[worst] / n - 0.1) > max(0.02, 2.8 * np.sqrt(0.09 / n)):  # 2.8: the largest of ten deviations
        tenth = f"{percent(counts[worst] / n)} instead of 10 % lie between {10 * worst} and {10 * worst + 10} % of them"
        sentence = f"True values are unevenly distributed among the draws: {tenth}."
    else:
        sentence = f"True values are {'almost ' if biased else ''}evenly distributed among the draws."
    return sentence + (f" The draws are slightly too {'low' if bias > 0 else 'high'} on average." if biased else "")
