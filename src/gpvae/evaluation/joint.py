"""Do draws hold together over a gap? Intervals of its mean and maximum, how draws move, and multivariate scores.

A gap is a maximal run of hidden cells in one column of a series. Everything here needs the draws of a method, apart
from `cell_coverage`, which needs intervals. The sum of a gap lies in its interval whenever its mean does.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scoringrules
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.runs import Index, Runs, find_runs
from gpvae.data.scaling import Scaling
from gpvae.evaluation import metrics
from gpvae.imputers.draws import CELLS_PER_CHUNK, Draws
from gpvae.imputers.imputation import Imputation

RESAMPLES, MAX_RESAMPLED = 1000, 2000  # of the bootstrap; more groups than this are merged at random
MAX_GAPS = 1000  # that multivariate scores are averaged over: they take all pairs of draws, or of cells
MAX_CELLS = 100  # of a gap, from its start, that the variogram score takes


class Share(NamedTuple):
    """A share with its 95 % bootstrap interval, which is NaN if there is nothing to resample."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class JointScore:
    """What takes two cells is None if all gaps are single cells; `roughness`, too, if the truth does not change."""

    mean_coverage: Share  # how many gaps have their mean in its interval
    max_coverage: Share
    roughness: float | None  # mean |step| of the draws inside gaps, divided by that of the truth
    energy: float  # mean energy score of a gap
    variogram: float | None  # mean variogram score (p = ½) of a pair of cells in a gap, averaged over gaps
    lag_correlation: float | None  # of neighbouring errors in gaps: draws less their mean
    true_lag_correlation: float | None  # the truth less the mean of the draws


class _Sums(NamedTuple):
    """Over neighbouring cells in gaps; of draws, their mean."""

    steps: float  # |x_t+1 - x_t|
    products: float  # e_t e_t+1, where e are deviations from the mean of the draws
    squares: float  # (e_t² + e_t+1²) / 2


class _GapScores(NamedTuple):
    mean_inside: Bools  # (gap,)
    max_inside: Bools  # (gap,)
    draws: _Sums
    truth: _Sums


def find_gaps(panel: Panel, cells: Bools) -> Runs:
    """The gaps that hidden cells (row, feature) make."""
    if not cells.any():
        raise DataError("there is no hidden cell, so there is no gap")
    return find_runs(panel, cells)


def longer_gaps(panel: Panel, cells: Bools) -> Bools:
    """The cells that lie in gaps of at least two. (row, feature)"""
    gaps, longer = find_runs(panel, cells), np.zeros_like(cells)
    longer[gaps.at(gaps.length > 1).cells()] = True
    return longer


def outage_of(panel: Panel, cells: Bools, gaps: Runs) -> Index:
    """The outage that each gap belongs to: a maximal run of rows in which some column is hidden. (gap,)"""
    outages = find_gaps(panel, np.asarray(cells.any(axis=1))[:, None])
    return np.searchsorted(outages.first, gaps.first, side="right") - 1


def score(
    imputation: Imputation,
    truth: Floats,
    cells: Bools,
    units: Scaling,
    *,
    level: float = 0.9,
    by_outage: bool = False,
    seed: int = 0,
) -> JointScore:
    """Compare draws of the hidden `cells` with the `truth` (row, feature), in columns that vary in these `units`.

    by_outage: resample outages instead of gaps, for gaps of many columns at the same rows, which are not independent.
    """
    if imputation.draws is None:
        raise DataError(f"{imputation.method} gives no draws, so gaps cannot be scored")
    cells = cells & units.varies
    gaps = find_gaps(imputation.panel, cells)
    scores = [
        _score_gaps(*_scaled(imputation, truth, part, units), part, level) for part in gaps.chunks(CELLS_PER_CHUNK)
    ]
    groups = _groups(imputation.panel, cells, gaps, by_outage)
    inside = (np.concatenate([part[i] for part in scores]) for i in range(2))
    mean_coverage, max_coverage = (share(hits, np.ones(len(hits)), groups, seed) for hits in inside)
    draws, true = (_total(sums) for sums in ([part.draws for part in scores], [part.truth for part in scores]))
    energy, variogram = _multivariate(imputation, truth, gaps, units, seed)
    return JointScore(
        mean_coverage,
        max_coverage,
        _ratio(draws.steps, true.steps),
        energy,
        variogram,
        _ratio(draws.products, draws.squares),
        _ratio(true.products, true.squares),
    )


def cell_coverage(
    imputation: Imputation, truth: Floats, cells: Bools, *, level: float = 0.9, by_outage: bool = False, seed: int = 0
) -> Share:
    """The share of hidden cells inside their interval; gaps, or outages, are resampled."""
    gaps = find_gaps(imputation.panel, cells)
    inside = metrics.covered(truth, *imputation.interval_rows(level))[gaps.cells()]
    hits = np.add.reduceat(inside, gaps.offsets, dtype=np.float64)
    return share(hits, gaps.length, _groups(imputation.panel, cells, gaps, by_outage), seed)


def share(hits: NDArray[np.generic], counts: NDArray[np.generic], groups: Index, seed: int) -> Share:
    """Σ hits / Σ counts (gap,) with a percentile bootstrap over `groups` (gap,) 0, 1, …"""
    rng, size = np.random.default_rng(seed), int(groups.max()) + 1
    if size > MAX_RESAMPLED:
        groups, size = (rng.permutation(size) % MAX_RESAMPLED)[groups], MAX_RESAMPLED
    hits, counts = np.bincount(groups, hits, size), np.bincount(groups, counts, size)
    value = float(hits.sum() / counts.sum())
    if size < 2:
        return Share(value, np.nan, np.nan)
    picked = rng.integers(size, size=(RESAMPLES, size))
    lower, upper = np.quantile(hits[picked].sum(axis=1) / counts[picked].sum(axis=1), [0.025, 0.975])
    return Share(value, float(lower), float(upper))


def _groups(panel: Panel, cells: Bools, gaps: Runs, by_outage: bool) -> Index:
    return outage_of(panel, cells, gaps) if by_outage else np.arange(len(gaps.first))


def _scaled(imputation: Imputation, truth: Floats, gaps: Runs, units: Scaling) -> tuple[Floats, Floats]:
    """Truth (cell,) and draws (cell, sample) of all cells of the gaps, in these units."""
    row, column = gaps.cells()
    draws = _draws_at(imputation, row * truth.shape[1] + column).values()
    shift, scale = units.shift[column], units.scale[column]
    return (truth[row, column] - shift) / scale, (draws - shift[:, None]) / scale[:, None]


def _draws_at(imputation: Imputation, cells: Index) -> Draws:
    """The draws of missing cells, given as indices into the flattened (row, feature)."""
    assert imputation.draws is not None
    places = np.searchsorted(imputation.cells, cells)
    if not np.array_equal(imputation.cells[np.minimum(places, len(imputation.cells) - 1)], cells):
        raise ValueError("draws exist only for missing cells")
    return imputation.draws.at(places)


def _score_gaps(truth: Floats, draws: Floats, gaps: Runs, level: float) -> _GapScores:
    inside = np.ones(len(truth) - 1, dtype=bool)  # steps from a cell to the next one that stay in a gap
    inside[gaps.offsets[1:] - 1] = False
    centre = draws.mean(axis=1, keepdims=True)
    return _GapScores(
        _inside(gaps.mean(truth), gaps.mean(draws), level),
        _inside(gaps.maximum(truth), gaps.maximum(draws), level),
        _sums(draws, centre, inside),
        _sums(truth[:, None], centre, inside),
    )


def _sums(values: Floats, centre: Floats, inside: Bools) -> _Sums:
    """Of values (cell, draw); `inside`: the pairs of neighbours that count. (cell - 1,)"""
    errors, count = values - centre, values.shape[1]
    return _Sums(
        float(np.abs(np.diff(values, axis=0)[inside]).sum() / count),
        float((errors[1:] * errors[:-1])[inside].sum() / count),
        float((errors[1:] ** 2 + errors[:-1] ** 2)[inside].sum() / (2 * count)),
    )


def _total(sums: list[_Sums]) -> _Sums:
    return _Sums(*np.sum(sums, axis=0).tolist())


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _inside(truth: Floats, draws: Floats, level: float) -> Bools:
    """Whether the truth (gap,) is in the central interval of draws (gap, sample).

    The i-th of n sorted draws is the quantile i/(n + 1): even where the draws of a cell are stratified, those of a
    gap's mean are not.
    """
    lower, upper = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2], axis=1, method="weibull")
    return metrics.covered(truth, lower, upper)


def _multivariate(
    imputation: Imputation, truth: Floats, gaps: Runs, units: Scaling, seed: int
) -> tuple[float, float | None]:
    """Energy and variogram score, averaged over gaps; over some if there are many.

    Energy: E‖X - x‖ - ½ E‖X - X'‖ over the cells of a gap. Variogram: (E|X_s - X_t|^½ - |x_s - x_t|^½)², averaged
    over its pairs of cells s ≠ t, so that long gaps do not outweigh short ones.
    """
    chosen = np.random.default_rng(seed).permutation(len(gaps.first))[:MAX_GAPS]
    energy, variogram = list[Floats](), list[Floats]()
    for i in chosen:
        true, draws = _scaled(imputation, truth, gaps.at(np.array([i])), units)
        energy.append(np.asarray(scoringrules.es_ensemble(true, draws.T, backend="numpy")))
        true, draws = true[:MAX_CELLS], draws[:MAX_CELLS]
        if len(true) > 1:
            total = np.asarray(scoringrules.vs_ensemble(true, draws.T, backend="numpy"))
            variogram.append(total / (len(true) * (len(true) - 1)))
    return float(np.mean(energy)), float(np.mean(variogram)) if variogram else None
