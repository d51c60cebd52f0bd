"""A mechanism whose steps repel each other: a determinantal point process for each column of each series.

P(Y) = det(L_Y) / det(L + I), with L_ij = q_i R_ij q_j and R an RBF kernel over time. It has the marginal kernel
K = L (L + I)⁻¹: P(A ⊆ Y) = det(K_A), and P(i, j ∈ Y) = K_ii K_jj - K_ij² is at most the product. The weights q make all
marginals equal, K_ii = rate: with equal weights, the two ends, which have neighbours on one side only, would be chosen
far more often than the rest.
"""

from collections.abc import Sequence

import numpy as np

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.missingness.checks import require_process
from gpvae.missingness.grids import Draw, RowIndex, draw_on_grids, rbf

ENUMERATED = 10  # longest series whose subsets are enumerated
CORE, CONTEXT = (
    128,
    96,
)  # steps of a long series whose marginals are computed together, and steps of context on either side
NEGLIGIBLE = 1e-6  # entries of K up to this are taken as zero
CACHED = 2**18  # numbers in the sampler's state, about 2 MB


def temporal_negative(
    panel: Panel, rate: float, seed: int | Sequence[int], *, length_scale: float = 2.0, jitter: float = 1e-6
) -> Bools:
    """Neighbouring steps of a column rarely go missing together. (row, feature)

    `length_scale` is in median time steps. The paper does not give it; 2 reproduces the error of its forward imputation
    on Healing MNIST. Any rate can be reached: at length scales beyond about 2 / rate, where the kernel cannot hold so
    many steps, the jitter adds independent ones, and repulsion fades.

    Series that share their times share K. Subsets of short series are looked up in a list of all subsets, those of
    longer ones drawn step by step in linear time. In series of more than CORE + 2 CONTEXT steps, K is truncated CONTEXT
    steps from the diagonal.
    """
    require_process(panel, rate, length_scale, jitter)
    rng = np.random.default_rng(seed)

    def prepare(times: Floats, _: RowIndex) -> Draw:
        if len(times) <= ENUMERATED:
            return _enumerated(ensemble(times, rate, length_scale, jitter)[0], rng)
        return _chained(marginal_band(times, rate, length_scale, jitter), rng)

    return draw_on_grids(panel, prepare)


def ensemble(times: Floats, rate: float, length_scale: float, jitter: float) -> tuple[Floats, Floats]:
    """L and K, both (time, time), with K_ii = rate.

    By Newton's method on θ = 2 log q: log det(L + I) - rate Σ_i θ_i is convex with the gradient K_ii - rate and the
    second derivatives [i = j] K_ii - K_ij².
    """
    kernel, one = rbf(times, length_scale, jitter), np.eye(len(times))
    theta = np.full(len(times), np.log(rate / (1 - rate)))
    for _ in range(200):
        weights = np.exp(theta / 2)
        weighted = weights[:, None] * kernel * weights
        marginal = one - np.linalg.inv(one + weighted)
        excess = np.diag(marginal) - rate
        if np.abs(excess).max() < 1e-7:
            return weighted, marginal
        step = np.linalg.solve(one * np.diag(marginal) - marginal**2, excess)
        theta -= step * min(1, 2 / np.abs(step).max())
    raise DataError(
        f"no process on {len(times)} steps with length_scale {length_scale} has the rate {rate}: "
        "choose a shorter length scale or more jitter"
    )


def subset_probabilities(weighted: Floats) -> tuple[Bools, Floats]:
    """All subsets (subset, step) and their probabilities det(L_Y) / det(L + I). (subset,)"""
    steps = len(weighted)
    subsets = (np.arange(2**steps)[:, None] >> np.arange(steps)) & 1 == 1
    pairs = subsets[:, :, None] & subsets[:, None, :]
    return subsets, np.linalg.det(np.where(pairs, weighted, np.eye(steps))) / np.linalg.det(weighted + np.eye(steps))


def _enumerated(weighted: Floats, rng: np.random.Generator) -> Draw:
    """Exact sampling by inversion of the cumulative probabilities."""
    subsets, probabilities = subset_probabilities(weighted)
    sums = np.cumsum(probabilities)[:-1]

    def draw(series: int, features: int) -> Bools:
        chosen = np.searchsorted(sums, rng.random((series, features)), side="right")
        return np.stack([step[chosen] for step in subsets.T], axis=1)

    return draw


def marginal_band(times: Floats, rate: float, length_scale: float, jitter: float) -> Floats:
    """K_{i-k, i} for the lags k = 0, 1, … that are not negligible, zero before the start. (time, lag)

    K decays quickly in time, so that of a long series it can be computed in windows.
    """
    if len(times) <= CORE + 2 * CONTEXT:
        return _trimmed(_lags(ensemble(times, rate, length_scale, jitter)[1], 0, len(times)))
    known: dict[bytes, Floats] = {}  # even grids have few different windows
    bands: list[Floats] = []
    for first in range(0, len(times), CORE):
        start = max(0, first - CONTEXT)
        window = times[start : first + CORE + CONTEXT]
        key = np.round(np.diff(window), 5).tobytes()
        if key not in known:
            known[key] = ensemble(window, rate, length_scale, jitter)[1]
        bands.append(_lags(known[key][first - start :][:CORE], first - start, CONTEXT + 1))
    return _trimmed(np.concatenate(bands))


def _trimmed(band: Floats) -> Floats:
    return band[:, : 1 + int(np.flatnonzero(np.abs(band).max(axis=0) > NEGLIGIBLE).max(initial=0))]


def _lags(marginals: Floats, first: int, reach: int) -> Floats:
    """Entries of row i, step first + i, at the lags 0, 1, …, reach - 1; zero before the start. (core, lag)"""
    steps = first + np.arange(len(marginals))[:, None] - np.arange(reach)
    return np.where(steps >= 0, np.take_along_axis(marginals, np.maximum(steps, 0), axis=1), 0)


def _chained(band: Floats, rng: np.random.Generator) -> Draw:
    """In parts that fit into the CPU cache; time and memory grow with the square of the band's width."""
    size = max(1, CACHED // band.shape[1] ** 2)

    def draw(series: int, features: int) -> Bools:
        count = series * features
        parts = [sample_chain(band, min(size, count - start), rng) for start in range(0, count, size)]
        return np.concatenate(parts, axis=1).reshape(len(band), series, features).swapaxes(0, 1)

    return draw


def sample_chain(band: Floats, count: int, rng: np.random.Generator) -> Bools:
    """Sample subsets by the chain rule, step by step given all earlier decisions. (time, draw)

    Starting with M = K, step i is taken with probability p = M_ii. Given this decision, the later steps have
    M ← M - M_:i M_i: / (p - [not taken]). M keeps the bandwidth of K, so a square of that width is all that is stored.
    """
    steps, width = band.shape
    state, other = (np.zeros((width, width, count)) for _ in range(2))
    for lag in range(width):  # the first steps
        for i in range(lag, min(width, steps)):
            state[i - lag, i] = state[i, i - lag] = band[i, lag]
    taken = np.empty((steps, count), dtype=bool)
    for i in range(steps):
        inclusion = state[0, 0]
        taken[i] = rng.random(count) < inclusion
        row = state[0, 1:]
        other[:-1, :-1] = state[1:, 1:] - row[:, None] * (row / (inclusion - ~taken[i]))
        entering = band[i + width, ::-1, None] if i + width < steps else np.zeros((width, 1))
        other[-1], other[:, -1] = entering, entering
        state, other = other, state
    return taken
