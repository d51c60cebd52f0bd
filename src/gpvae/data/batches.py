"""From the rows of a panel to padded tensors: batches of whole series, or of windows of long ones."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from gpvae.data.panel import Bools, Floats, Panel

SORT_POOL = 8  # batches whose windows are sorted by length together


@dataclass(frozen=True)
class Batch:
    values: Tensor  # (batch, time, feature) scaled; 0 where not observed
    observed: Tensor  # (batch, time, feature) bool
    times: Tensor | float  # (batch, time) float64, in time units; or the spacing of an even grid
    lengths: Tensor  # (batch,) steps before the padding
    mean_steps: Tensor | None = None  # average number of steps in the batches of an epoch

    @property
    def valid(self) -> Tensor:
        """Steps that are not padding. (batch, time) bool"""
        return torch.arange(self.values.shape[-2], device=self.lengths.device) < self.lengths.unsqueeze(-1)

    @property
    def steps(self) -> Tensor:
        """The divisor of sums over the batch: `mean_steps` if known, else its own number of steps.

        `mean_steps` gives every time step of an epoch the same weight, however full its batch is.
        """
        return self.lengths.sum() if self.mean_steps is None else self.mean_steps


@dataclass(frozen=True)
class Window:
    """Consecutive rows of one series, or all of them."""

    start: int
    length: int


PredictionWindow = tuple[Window, slice]  # the rows that a model sees, and the steps among them that it predicts


class BatchIndex(NamedTuple):
    """The windows of one batch, on the device; windows of length 0 fill it up."""

    starts: Tensor  # (batch,)
    lengths: Tensor  # (batch,)
    time: int  # steps of the batch, padding included
    mean_steps: Tensor | None = None  # see `Batch`

    @classmethod
    def of(cls, windows: list[Window], device: torch.device) -> "BatchIndex":
        pairs = [[window.start, window.length] for window in windows]
        starts, lengths = torch.tensor(pairs, device=device).T.contiguous()
        return cls(starts, lengths, max(window.length for window in windows))


@dataclass(frozen=True)
class RowTensors:
    """The scaled rows of a panel on a device; one empty row at the end serves as padding."""

    values: Tensor  # (row + 1, feature) float32, 0 where missing
    observed: Tensor  # (row + 1, feature) bool
    times: Tensor  # (row,) float64, in time units
    spacing: float | None  # of an even grid

    @classmethod
    def of(cls, panel: Panel, scaled: Floats, observed: Bools, time_unit: float, device: torch.device) -> "RowTensors":
        """`scaled` holds the panel's values in the model's units; only the `observed` ones are used."""
        times = (panel.times - panel.times[panel.starts][panel.series_of_row]) / time_unit
        shape = (len(scaled) + 1, scaled.shape[1])
        values, padded_observed = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=bool)
        np.copyto(values[:-1], scaled, where=observed, casting="same_kind")
        padded_observed[:-1] = observed
        return cls(
            values=torch.from_numpy(values).to(device),
            observed=torch.from_numpy(padded_observed).to(device),
            times=torch.from_numpy(times).to(device),
            spacing=_even_spacing(panel, time_unit),
        )

    def batch(self, index: BatchIndex) -> Batch:
        step = torch.arange(index.time, device=self.values.device)
        row = index.starts.unsqueeze(-1) + step
        row = torch.where(step < index.lengths.unsqueeze(-1), row, len(self.values) - 1)
        return Batch(self.values[row], self.observed[row], self.times_of(index), index.lengths, index.mean_steps)

    def times_of(self, index: BatchIndex) -> Tensor | float:
        """Padding continues in unit steps after the last row, so that all times of a series differ."""
        if self.spacing is not None:
            return self.spacing
        step, last = torch.arange(index.time, device=self.times.device), (index.lengths - 1).clamp(min=0).unsqueeze(-1)
        return self.times[index.starts.unsqueeze(-1) + step.minimum(last)] + (step - last).clamp(min=0)


def elapsed(times: Tensor, observed: Tensor) -> Tensor:
    """δ: time since the last observation before each step, or since the start where there was none.

    δ_1 = 0,  δ_t = s_t - s_{t-1} + (0 if observed at t-1, else δ_{t-1})

    Time is the second dimension of both arguments.
    """
    start = times[:, :1].expand_as(observed[:, :1])
    latest = torch.where(observed[:, :-1], times[:, :-1], start).cummax(1).values
    return times - torch.cat([start, latest], dim=1)


def median_step(panel: Panel) -> float:
    """The median time between neighbouring rows: the unit of length scales."""
    return float(np.median(panel.time_steps)) if len(panel.time_steps) else 1.0


def _even_spacing(panel: Panel, time_unit: float) -> float | None:
    steps = panel.time_steps / time_unit
    if not len(steps):
        return 1.0
    spacing = float(np.median(steps))
    return spacing if np.allclose(steps, spacing, rtol=1e-6, atol=0) else None


def windows(panel: Panel, size: int, generator: np.random.Generator | None = None) -> list[Window]:
    """Every series split into windows of at most `size` rows; with a generator, the first split is at random."""
    found: list[Window] = []
    for start, length in zip(panel.starts.tolist(), panel.lengths.tolist(), strict=True):
        shift = int(generator.integers(size)) if generator is not None and length > size else 0
        bounds = [0, *range(size - shift, length, size), length]
        found += [Window(start + a, b - a) for a, b in pairwise(bounds) if b > a]
    return found


@dataclass(frozen=True)
class Batches:
    """Shuffles a panel's windows into batches of few different shapes, anew for every epoch."""

    panel: Panel
    window: int
    size: int  # largest number of windows in a batch

    @property
    def balanced_size(self) -> int:
        """Windows per batch, such that the last batch is about as full as the others."""
        long = self.panel.lengths > self.window
        most = int(np.where(long, -(-self.panel.lengths // self.window) + 1, 1).sum())
        return -(-most // -(-most // self.size))

    @property
    def shapes(self) -> int:
        """Approximate number of different batch lengths."""
        return len(np.unique(self._buckets(np.minimum(self.panel.lengths, self.window))))

    def _buckets(self, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.minimum(_bucket(lengths), min(self.window, self.panel.lengths.max()))

    def epoch(self, generator: np.random.Generator, device: torch.device) -> Iterator[BatchIndex]:
        """Every window once, in random order.

        Windows of similar length share a batch: of every `SORT_POOL` batches of the shuffled windows, the windows are
        sorted by bucket, then the batches are shuffled again. All indices go to the device in one copy.
        """
        pool, size = windows(self.panel, self.window, generator), self.balanced_size
        starts, lengths = np.array([(window.start, window.length) for window in pool], dtype=np.int64).T
        buckets = self._buckets(lengths)
        order = generator.permutation(len(pool))
        order = order[np.lexsort((buckets[order], np.arange(len(order)) // (SORT_POOL * size)))]
        count = -(-len(order) // size)
        padded = np.zeros((2, count * size), dtype=np.int64)
        padded[:, : len(order)] = starts[order], lengths[order]
        times = np.maximum.reduceat(buckets[order], np.arange(0, len(order), size))
        on_device = torch.from_numpy(padded).to(device).unflatten(-1, (count, size))
        mean_steps = torch.tensor(lengths.sum() / count, dtype=torch.float32, device=device)
        for i in generator.permutation(count).tolist():
            yield BatchIndex(on_device[0, i], on_device[1, i], int(times[i]), mean_steps)


def _bucket(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rounded up to 2, 4, … 16, 20, 24, 28, 32, 40, …: above 8, at most a fifth is padding."""
    grain = 2 ** np.maximum(np.ceil(np.log2(lengths)).astype(np.int64) - 3, 1)
    return -(-lengths // grain) * grain


def series_windows(panel: Panel) -> list[Window]:
    """Every series as one window."""
    return [Window(*bounds) for bounds in zip(panel.starts.tolist(), panel.lengths.tolist(), strict=True)]


def prediction_windows(series: Window, size: int) -> list[PredictionWindow]:
    """Overlapping windows of a long series, with the steps to predict in each; together these are all steps, once.

    Each window predicts at most `size` steps. It sees half as many before and after them, or more on one side at an
    end of the series, so that all windows have the same length. Draws in different windows are independent.
    """
    if series.length <= size:
        return [(series, slice(0, series.length))]
    margin = size // 2
    length = min(series.length, size + 2 * margin)
    found: list[PredictionWindow] = []
    for first in range(0, series.length, size):
        start = min(max(first - margin, 0), series.length - length)
        predicted = slice(first - start, min(first + size, series.length) - start)
        found.append((Window(series.start + start, length), predicted))
    return found


def group_by_length(parts: list[PredictionWindow], max_steps: int) -> Iterator[list[PredictionWindow]]:
    """Groups of at most `max_steps` padded steps (or of one window), the shortest windows first."""
    parts = sorted(parts, key=lambda part: part[0].length)
    first = 0
    for i in range(1, len(parts) + 1):
        if i == len(parts) or (i + 1 - first) * parts[i][0].length > max_steps:
            yield parts[first:i]
            first = i


def series_by_length(panel: Panel, max_steps: int) -> Iterator[list[Window]]:
    """Whole series in groups of at most `max_steps` padded steps (or of one series), the shortest first."""
    parts = [(window, slice(0, window.length)) for window in series_windows(panel)]
    for group in group_by_length(parts, max_steps):
        yield [window for window, _ in group]


class NearestVisible(NamedTuple):
    """For each cell the nearest visible values of its column, strictly before and after it. (batch, time, feature)

    Closeness is 1 / √(1 + distance in time). Values and closeness are 0 where there is no such value.
    """

    interpolated: Tensor  # on the line between the two; where there is only one, its value
    previous: Tensor
    next: Tensor
    previous_closeness: Tensor
    next_closeness: Tensor

    @classmethod
    def of(cls, values: Tensor, observed: Tensor, times: Tensor | float) -> "NearestVisible":
        step = torch.arange(values.shape[1], device=values.device).unsqueeze(-1)
        at_or_before = torch.where(observed, step, -1).cummax(1).values
        at_or_after = torch.where(observed, step, len(step)).flip(1).cummin(1).values.flip(1)
        before = pad(at_or_before[:, :-1], (0, 0, 1, 0), value=-1)
        after = pad(at_or_after[:, 1:], (0, 0, 0, 1), value=len(step))
        has_previous, has_next = before >= 0, after < len(step)
        before, after = before.clamp(min=0), after.clamp(max=len(step) - 1)
        previous, following = values.gather(1, before) * has_previous, values.gather(1, after) * has_next
        since, until = (_distance(other, step, times, values.dtype) for other in (before, after))
        both = since + until
        weight = torch.where(has_previous & has_next, until / torch.where(both > 0, both, 1.0), 1.0 * has_previous)
        interpolated = weight * previous + torch.where(has_next, 1 - weight, 0.0) * following
        previous_closeness, next_closeness = has_previous * (1 + since).rsqrt(), has_next * (1 + until).rsqrt()
        return cls(interpolated, previous, following, previous_closeness, next_closeness)


def _distance(other: Tensor, step: Tensor, times: Tensor | float, dtype: torch.dtype) -> Tensor:
    """Time between each `step` and the step `other`. (batch, time, feature)"""
    if not isinstance(times, Tensor):
        return times * (other - step).abs().to(dtype)
    other_times = times.unsqueeze(-1).expand(other.shape).gather(1, other)
    return (other_times - times.unsqueeze(-1)).abs().to(dtype)
