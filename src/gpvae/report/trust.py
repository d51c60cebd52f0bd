"""How far to trust what was filled in, by cells whose value is known: numbers, and what to conclude from them."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import CLASSES, Scaling
from gpvae.imputers.conformal import Conformal
from gpvae.imputers.gpvae import GPVAE
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.neural import Trained
from gpvae.imputers.simple import Forward, Linear, Mean, nearest, neighbours
from gpvae.report.words import percent

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DISTANCES = (1, 2, 3, 5, 9, 17, 33)  # steps to the nearest observation: the first of each group
ROWS_FILLED_AGAIN = 2_500
BLOCKS = 40  # that few series are cut into, for errors of means
COLUMNS_SHOWN = 24
CELLS_AT_LEAST = 10  # for a share that says anything
NEAR = 0.01  # a share that is off by less is as promised
USED = "They were used to set the intervals: of others, and in gaps longer than most, expect less."
NONE = "none"  # of an observation: there is none in the series
UNKNOWN: dict[str, Any] = dict.fromkeys(
    ("cells", "caveat", "classes", "errors", "coverage", "calibration", "by_column", "by_distance", "pit", "none")
)
Z = 1.96  # of 95 % intervals


@dataclass(frozen=True)
class Evidence:
    """Cells whose value is known, and how they were filled while they were hidden."""

    imputation: Imputation
    truth: Floats  # (row, feature)
    cells: Bools  # (row, feature)
    others: Mapping[str, Imputation] = field(default_factory=dict)
    caveat: str = ""
    whole: Panel | None = None  # the data that these rows are part of, with the cells hidden; None: these are all

    @cached_property
    def units(self) -> Scaling:
        """Means and deviations of all of the data, the cells not among them."""
        return Scaling.of(self.imputation.panel if self.whole is None else self.whole, standardise=True)


def own_evidence(imputation: Imputation) -> Evidence | str:
    """The cells that the imputer held out when it was fitted to this data, filled once more; or why there are none."""
    how = "gpvae evaluate … --report, in Python gpvae.evaluation.evaluate"
    advice = f"{how}, hides some cells, fills them, and judges by them."
    if imputation.maker is None:
        return f"The imputer is not at hand, so no cell with a known value was filled. {advice}"
    if not isinstance(imputation.maker, Trained | Conformal):
        return f"{imputation.method} keeps no cells aside to be judged by. {advice}"
    cells = imputation.maker.kept_aside(imputation.panel)
    if cells is None or not cells.any():
        return f"{imputation.method} kept no cells of this data aside, or was fitted to other data. {advice}"
    series, steps = _series_to_ask(imputation.panel, cells)
    panel = imputation.panel.pick(series, steps)
    asked = cells[imputation.panel.rows_of(series, panel.lengths)]
    whole, visible = missingness.hide(imputation.panel, cells), missingness.hide(panel, asked)
    samples = 100 if imputation.draws is None else imputation.draws.count
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said when the data was filled
        again = imputation.maker.impute(visible, samples=samples)
        plain = {"mean": Mean(), "forward": Forward(), "linear": Linear()}
        if isinstance(imputation.maker, Conformal):
            plain.pop(imputation.maker.imputer.name.lower(), None)  # its values are those
        known = whole.select(imputation.maker.schema_.columns)
        others = {name: each.fit(known).impute(visible) for name, each in plain.items()}
    return Evidence(again, panel.values, asked, others, f"{_caveat(imputation)} {advice}", whole)


def _caveat(imputation: Imputation) -> str:
    """What the cells kept aside did besides, and how they lie."""
    kept = "These cells were kept from training and are filled here once more, hidden."
    though = "They are not untouched, though:"
    if isinstance(imputation.maker, Conformal):
        return (
            f"{kept} {though} the intervals are as wide as it takes to hold their share of these very cells, so expect "
            "a little less of others. They are single cells, chosen at random; longer gaps are harder."
        )
    last = isinstance(imputation.maker, Trained) and imputation.maker.keeps_last
    roles = ["watched over training, which may have been done in two ways," if last else "chose the best epoch"]
    if isinstance(imputation.maker, GPVAE):
        roles.append("set the level of the noise, where it is learned")
    lie = "They were chosen at random, cell by cell; longer gaps are harder."
    if not imputation.panel.observed.all():
        lie = "About half of them lie in gaps like those of the data, the others were chosen at random, cell by cell."
    return f"{kept} {though} they {' and '.join(roles)}, so expect a little less of others. {lie}"


def _series_to_ask(panel: Panel, cells: Bools) -> tuple[NDArray[np.int64], int]:
    """Series with such cells, from here and there, and steps of each: as many as are filled in reasonable time."""
    before = np.concatenate([[0], np.cumsum(cells.any(axis=1))])
    held = np.flatnonzero(before[panel.starts + panel.lengths] > before[panel.starts])
    rows = int(np.minimum(panel.lengths[held], ROWS_FILLED_AGAIN).sum())
    return held[:: max(1, -(-rows // ROWS_FILLED_AGAIN))], ROWS_FILLED_AGAIN


def in_short(imputation: Imputation, *, intervals: bool) -> list[str]:
    """What the cells say that the imputer had kept aside, of the intervals too if wanted; nothing if there are none."""
    evidence = own_evidence(imputation)
    if isinstance(evidence, str):
        return []
    judged = judge(evidence, imputation.method)
    told = [judged["errors"], judged["coverage"] if intervals else None, *judged["classes"]]
    lead = f"How far to trust it, by {judged['cells']:,} known cells that had been kept aside:"
    return [lead, *(each["sentence"] for each in told if each)]


def judge(evidence: Evidence | str, name: str) -> dict[str, Any]:
    """JSON-ready, with None for what cannot be told; `name` is what to call the method."""
    if isinstance(evidence, str):
        return UNKNOWN | {"none": evidence}
    numbers = _numbers(evidence)
    judged = UNKNOWN | {"cells": int(evidence.cells.sum()), "caveat": evidence.caveat}
    judged["classes"] = _accuracies(evidence)
    if not numbers.any():
        return judged | {"none": "No column of numbers has a held-out cell."}
    judged["errors"] = _errors(evidence, numbers, name)
    own, block = evidence.imputation, _blocks(evidence.imputation.panel)[np.nonzero(numbers)[0]]
    if not own.has_intervals:
        return judged | {"none": f"{name} gives single values, so there are no intervals to check."}
    try:
        inside = _inside(own, evidence.truth, numbers, 0.9)
    except DataError as error:
        return judged | {"none": f"There are too few samples to read intervals from: {error}."}
    if len(inside) < CELLS_AT_LEAST:
        held = "1 held-out cell is" if len(inside) == 1 else f"{len(inside)} held-out cells are"
        return judged | {"none": f"Only {held} of columns of numbers: too few to tell whether the intervals hold."}
    verdict = _verdict(inside, block, untouched=not evidence.caveat)
    judged["coverage"] = {"share": float(inside.mean()), "cells": len(inside)} | verdict
    judged["calibration"] = _calibration(own, evidence.truth, numbers, block)
    judged["by_column"] = _by_column(inside, numbers, own.panel.columns, block)
    judged["by_distance"] = _by_distance(inside, numbers, own.panel, block)
    if own.draws is not None and own.margins is None:
        judged["pit"] = _pit(own, evidence.truth, numbers)
    return judged


def _numbers(evidence: Evidence) -> Bools:
    """The cells of columns of numbers that every method fills, and that vary."""
    own = evidence.imputation
    cells = evidence.cells & ~own.of_kind(*CLASSES) & evidence.units.varies
    for each in (own, *evidence.others.values()):
        cells = cells & ~np.isnan(each.mean_rows)
    return cells


def _accuracies(evidence: Evidence) -> list[dict[str, Any]]:
    own, mean, found = evidence.imputation, evidence.imputation.mean_rows, list[dict[str, Any]]()
    for j in np.flatnonzero(own.of_kind(*CLASSES)).tolist():
        asked = evidence.cells[:, j] & ~np.isnan(mean[:, j])
        if asked.any():
            right = (mean[:, j] == evidence.truth[:, j])[asked]
            seen = own.panel.values[own.panel.observed[:, j], j]
            usual = np.unique(seen, return_counts=True) if len(seen) else (np.zeros(1), np.zeros(1))
            guess = usual[0][np.argmax(usual[1])]
            by_guess = float((evidence.truth[asked, j] == guess).mean())
            near = nearest(own.panel.select([own.panel.columns[j]]), np.array([guess]))[:, 0]
            by_nearest = float((near == evidence.truth[:, j])[asked].mean())
            shares = _share(right, _blocks(own.panel)[asked])
            sentence = (
                f"{own.panel.columns[j]}: {percent(shares['share'])} of {len(right):,} held-out cells got the right "
                f"category; always the most frequent one would be right in {percent(by_guess)}, the nearest in time in "
                f"{percent(by_nearest)}."
            )
            named = {"name": str(own.panel.columns[j]), "guess": by_guess, "nearest": by_nearest, "sentence": sentence}
            found.append(named | shares)
    return found


def _share(inside: Bools, block: NDArray[np.int64]) -> dict[str, Any]:
    """A share with its 95 % interval, which takes cells of different blocks to be independent.

    independent: how many independent cells would tell it as surely; never more than there are.
    """
    share, half = _ratio(inside.astype(np.float64), block)
    alone = len(inside) if not half else share * (1 - share) * (Z / half) ** 2
    independent = max(1.0, min(float(len(inside)), alone))
    low, high = _wilson(share, independent, Z)
    return {"cells": len(inside), "share": share, "low": low, "high": high, "independent": independent}


def _wilson(p: float, n: float, z: float) -> tuple[float, float]:
    centre, spread = p + z**2 / (2 * n), z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2))
    low, high = (centre - spread) / (1 + z**2 / n), (centre + spread) / (1 + z**2 / n)
    return float(min(low, p)), float(max(high, p))


def _too_few(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that hold fewer than 90 % by more than chance explains, as many as there are to look at; worst first."""
    z = NormalDist().inv_cdf(1 - 0.025 / len(groups))
    few = [each for each in groups if _is_low(each["share"], _wilson(each["share"], each["independent"], z)[1])]
    return sorted(few, key=lambda each: each["share"])


def _is_low(share: float, high: float) -> bool:
    """Of a share in 90 % intervals, by more than chance explains: the end of its own interval is `high`."""
    return share <= 0.9 - NEAR and high < 0.9


def _inside(own: Imputation, truth: Floats, cells: Bools, level: float) -> Bools:
    lower, upper = _at(own, cells, (1 - level) / 2, (1 + level) / 2)
    tiny = 1e-9 * np.abs(truth[cells])
    return (lower - tiny <= truth[cells]) & (truth[cells] <= upper + tiny)


def _at(own: Imputation, cells: Bools, *q: float) -> Floats:
    """Quantiles of some filled cells. (quantile, cell)"""
    chosen = cells.ravel()[own.cells]
    if own.margins is not None:
        return own.quantiles(*q)[:, chosen]
    assert own.draws is not None
    return own.draws.at(chosen).quantiles(q)


def _verdict(inside: Bools, block: NDArray[np.int64], *, untouched: bool) -> dict[str, str]:
    found = _share(inside, block)
    share, cells = found["share"], "held-out cells" if untouched else "cells that it had kept aside"
    told = f"Of {len(inside):,} {cells}, {percent(share, 1)} lie in their 90 % interval"
    if _is_low(share, found["high"]):
        widely = "much too narrow: do not rely on them" if share < 0.8 else "somewhat too narrow: allow for more"
        return {"verdict": "narrow", "sentence": f"{told}: they are {widely}."}
    if share >= 0.9 + NEAR and found["low"] > 0.9:
        wide = "they are wider than they need be, so on the safe side."
        return {"verdict": "wide", "sentence": f"{told}: {wide if untouched else f'more than should. {USED}'}"}
    if found["low"] < 0.8:
        sentence = f"{told}: these are too few, or too alike, to tell whether intervals hold what they promise."
        return {"verdict": "unclear", "sentence": sentence}
    word = "the intervals can be taken at their word."
    return {"verdict": "calibrated", "sentence": f"{told}: {word if untouched else f'as many as should. {USED}'}"}


def _calibration(own: Imputation, truth: Floats, cells: Bools, block: NDArray[np.int64]) -> dict[str, Any]:
    points: list[dict[str, Any]] = []
    for level in LEVELS:
        points.append({"level": level} | _share(_inside(own, truth, cells, level), block))
    off = max(points, key=lambda point: abs(point["share"] - point["level"]))
    most = f"{percent(off['level'])} intervals hold {percent(off['share'], 1)}"
    if abs(off["share"] - off["level"]) < 0.03:
        sentence = f"At every level the intervals hold about the share they promise; at most off: {most}."
    elif all(point["share"] >= point["level"] - 0.01 for point in points):
        sentence = f"Intervals hold more than they promise; most of all, {most}. They could be narrower."
    elif all(point["share"] <= point["level"] + 0.01 for point in points):
        sentence = f"Intervals hold less than they promise; most of all, {most}. Read them as narrower than they say."
    else:
        sentence = f"Some levels hold more than they promise, others less; most off: {most}."
    return {"points": points, "sentence": sentence}


def _by_column(inside: Bools, cells: Bools, columns: Sequence[str], block: NDArray[np.int64]) -> dict[str, Any]:
    column = np.nonzero(cells)[1]
    found: list[dict[str, Any]] = [
        _share(inside[column == j], block[column == j]) | {"name": str(columns[j])} for j in np.unique(column).tolist()
    ]
    poor = _too_few(found)
    if not poor:
        sentence = "In no column do the intervals hold significantly fewer values than they promise."
    else:
        named = ", ".join(f"{each['name']} ({percent(each['share'])})" for each in poor[:3])
        more = f" and {len(poor) - 3} more" if len(poor) > 3 else ""
        sentence = f"The intervals of {named}{more} hold fewer than 90 %: trust them less there."
    shown = sorted(found, key=lambda each: each["share"])[:COLUMNS_SHOWN]
    return {"columns": shown, "of": len(found), "sentence": sentence}


def _by_distance(inside: Bools, cells: Bools, panel: Panel, block: NDArray[np.int64]) -> dict[str, Any]:
    last, following = (each[cells] for each in neighbours(panel))
    row = np.nonzero(cells)[0]
    far = np.iinfo(np.int64).max
    distance = np.minimum(np.where(last >= 0, row - last, far), np.where(following >= 0, following - row, far))
    group = np.where(distance == far, -1, np.searchsorted(DISTANCES, distance, side="right") - 1)
    found: list[dict[str, Any]] = [
        _share(inside[group == k], block[group == k]) | {"name": NONE if k < 0 else _steps(k)}
        for k in [*range(len(DISTANCES)), -1]
        if (group == k).any()
    ]
    found = [each for each in found if each["cells"] >= CELLS_AT_LEAST] or found
    poor = _too_few(found)
    if len(found) == 1:
        sentence = f"These are all cells {_away(found[0]['name'])}, so this says nothing of others."
    elif not poor:
        sentence = "Intervals hold what they promise however far the nearest observation of the column is."
    else:
        worst, where = percent(poor[0]["share"]), _away(poor[0]["name"])
        sentence = f"For cells {where}, intervals hold only {worst}: be careful there."
    return {"groups": found, "sentence": sentence}


def _steps(k: int) -> str:
    first = DISTANCES[k]
    if k + 1 == len(DISTANCES):
        return f"{first} or more"
    return str(first) if DISTANCES[k + 1] == first + 1 else f"{first} to {DISTANCES[k + 1] - 1}"


def _away(name: str) -> str:
    if name == NONE:
        return "of a column that their series has no observation of"
    return f"{name} step{'' if name == '1' else 's'} from the nearest observation of their column"


def _pit(own: Imputation, truth: Floats, cells: Bools) -> dict[str, Any]:
    """Where the truth lies among the draws, ties broken at random: uniform if the distributions are right."""
    assert own.draws is not None
    draws, asked = own.draws.at(cells.ravel()[own.cells]), truth[cells]
    generator, places = np.random.default_rng(0), list[Floats]()
    for first in range(0, len(asked), 2**14):
        some = slice(first, first + 2**14)
        values = draws.at(some).values()
        near = np.abs(values - asked[some, None]) <= 1e-9 * np.abs(asked[some, None])
        below, same = ((values < asked[some, None]) & ~near).sum(axis=1), near.sum(axis=1)
        places.append(draws.levels(below - 1 + generator.random(len(below)) * (same + 1)))
    pit = np.concatenate(places)
    counts = np.histogram(pit, bins=10, range=(0, 1))[0]
    return {"shares": (counts / len(pit)).tolist(), "cells": len(pit), "sentence": _shape(pit, counts)}


def _shape(pit: Floats, counts: NDArray[np.int64]) -> str:
    n = len(pit)
    outer, chance = (counts[0] + counts[-1]) / n, max(0.02, Z * np.sqrt(0.16 / n))
    centre, lean = pit.mean(), max(0.015, Z * np.sqrt(1 / 12 / n))
    leans = abs(centre - 0.5) > lean
    sentence = (
        f"The truth falls {'about evenly among the draws.' if leans else 'evenly among the draws, as it should.'}"
    )
    most = int(np.argmax(np.abs(counts - n / 10)))
    if abs(counts[most] / n - 0.1) > max(0.02, 2.8 * np.sqrt(0.09 / n)):  # 2.8: the largest of ten
        sentence = (
            f"The truth falls unevenly among the draws: in {percent(counts[most] / n)} of the cells instead of 10 % "
        )
        sentence += f"between {10 * most} and {10 * most + 10} % of them."
    found = f"{percent(outer)} instead of 20 %"
    if outer > 0.2 + chance:
        sentence = f"The truth lies in the outermost tenths of the draws too often ({found}): the model is too sure."
    elif outer < 0.2 - chance:
        sentence = f"The truth seldom lies in the outermost tenths of the draws ({found}): the model is too cautious."
    if leans:
        sentence += f" On the whole draws are a little too {'low' if centre > 0.5 else 'high'}."
    return sentence


def _errors(evidence: Evidence, cells: Bools, name: str) -> dict[str, Any]:
    """Mean absolute errors in deviations of each column; 95 % intervals from series, or stretches, that differ."""
    panel = evidence.imputation.panel
    units = evidence.units.scale[np.nonzero(cells)[1]]
    block = _blocks(panel)[np.nonzero(cells)[0]]
    methods = {**evidence.others, name: evidence.imputation}
    errors = {each: np.abs(found.mean_rows - evidence.truth)[cells] / units for each, found in methods.items()}
    bars = [{"name": each, "own": each == name} | _mean_with_bar(error, block) for each, error in errors.items()]
    return {"methods": bars, "sentence": _against(errors, block, name)}


def _blocks(panel: Panel) -> NDArray[np.int64]:
    """Series, or, where they are few, stretches of them: within one, errors go together. (row,)"""
    if len(panel) >= BLOCKS // 2:
        return panel.series_of_row
    return np.arange(len(panel.values)) * BLOCKS // max(1, len(panel.values))


def _mean_with_bar(error: Floats, block: NDArray[np.int64]) -> dict[str, float | None]:
    mean, half = _ratio(error, block)
    if len(np.unique(block)) < 2:
        return {"error": mean, "low": None, "high": None}
    return {"error": mean, "low": max(0.0, mean - half), "high": mean + half}


def _ratio(error: Floats, block: NDArray[np.int64]) -> tuple[float, float]:
    """The mean over cells, and Z times its deviation if blocks are independent: Σ_b (e_b - m n_b)², over n²."""
    _, number = np.unique(block, return_inverse=True)
    total, count = np.bincount(number, error), np.bincount(number)
    mean, blocks = error.mean(), len(count)
    spread = np.sqrt(np.sum((total - mean * count) ** 2) * blocks / max(1, blocks - 1)) / len(error)
    return float(mean), float(Z * spread)


def _against(errors: Mapping[str, Floats], block: NDArray[np.int64], name: str) -> str:
    own = float(errors[name].mean())
    told = f"{name} is off by {own:.2f} standard deviations of a column on average"
    others = {each: error for each, error in errors.items() if each != name}
    if not others:
        return f"{told}."
    if len(errors[name]) < CELLS_AT_LEAST or len(np.unique(block)) < 2:
        return f"{told}; there are too few cells to tell whether another method does better."
    best = min(others, key=lambda each: others[each].mean())
    less, bar = _ratio(others[best] - errors[name], block)
    if abs(less) <= bar:
        return f"{told}, {best}, the best of the others, by {float(others[best].mean()):.2f}: that may be chance."
    share = abs(less) / float(others[best].mean())
    if less > 0:
        return f"{told}, {percent(share)} less than the best of the others, {best}."
    return f"{told}, {percent(share)} more than {best}: take {best} for this data, or find out why."
