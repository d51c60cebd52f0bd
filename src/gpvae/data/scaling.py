"""Scaling between the data's units and a model's, by the kind of each column."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpvae.data.limits import Limits, on_grid
from gpvae.data.panel import Bools, DataError, Floats, Panel

Kind = Literal["real", "positive", "count", "binary", "categorical", "ordinal"]
Kinds = Mapping[Any, str | Sequence[Any]]  # by column: a kind, or the levels of an ordinal one in their order
CLASSES = ("binary", "categorical", "ordinal")  # kinds of columns that hold one of a few levels
DISCRETE = ("count", *CLASSES)
MAX_LEVELS = 100
SINGLE = 1e-6  # relative accuracy of single precision
ROUNDING = 4  # last places in which equal numbers may differ


@dataclass(frozen=True)
class Scaling:
    """Converts values between the data's units and a model's.

    real      (x - shift) / scale
    positive  (log x - shift) / scale
    count     x
    classes   the index of x among the column's levels

    A constant column has the kind real and scale 0: it is scaled to 0, and back to its constant. On the way back,
    numbers become values that their column can take: within its bounds, and on its grid.
    """

    shift: Floats  # (feature,) NaN where a column was never observed
    scale: Floats  # (feature,)
    kinds: tuple[Kind, ...] = ()  # (feature,) empty: all real
    levels: tuple[tuple[float, ...], ...] = ()  # (feature,) increasing; for text, the codes of its labels
    lower: Floats = field(default_factory=lambda: np.empty(0))  # (feature,) NaN where a column has no such bound
    upper: Floats = field(default_factory=lambda: np.empty(0))
    step: Floats = field(default_factory=lambda: np.empty(0))  # (feature,) of its grid, 0 where a column has none
    origin: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        for name, nothing in (("lower", np.nan), ("upper", np.nan), ("step", 0.0), ("origin", 0.0)):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.shift), nothing))
        if not self.kinds:
            object.__setattr__(self, "kinds", ("real",) * len(self.shift))
        if not self.levels:
            object.__setattr__(self, "levels", ((),) * len(self.shift))

    @classmethod
    def of(
        cls, panel: Panel, *, standardise: bool, kinds: Sequence[Kind] = (), levels: Mapping[int, Sequence[float]] = {}
    ) -> "Scaling":
        """`levels` of classes by column index; where none are given, they are the values that occur."""
        requested = kinds or ("real",) * len(panel.columns)
        known: Bools = np.any(panel.observed, axis=0)
        columns = [
            _column_scale(panel, j, kind, levels.get(j), standardise=standardise or kind == "positive")
            if known[j]
            else (np.nan, 0.0 if standardise or kind == "positive" else 1.0, "real", ())
            for j, kind in enumerate(requested)
        ]
        shift, scale, column_kinds, column_levels = zip(*columns, strict=True)
        return cls(np.array(shift), np.array(scale), column_kinds, column_levels)

    @property
    def known(self) -> Bools:
        """Columns with at least one observed value."""
        return ~np.isnan(self.shift)

    @property
    def varies(self) -> Bools:
        """Columns that are not constant, which a model can learn from."""
        return self.scale > 0

    def of_kind(self, *kinds: str) -> Bools:
        """Columns of one of these kinds. (feature,)"""
        return np.array([kind in kinds for kind in self.kinds])

    def apply(self, values: Floats) -> Floats:
        """From the data's units to the model's; `values` itself if they are the same. (row, feature)"""
        if (self.shift == 0).all() and (self.scale == 1).all() and not self.of_kind("positive", *CLASSES).any():
            return values
        reciprocal = np.divide(1, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        logarithmic = self.of_kind("positive")
        if logarithmic.any():
            values = values.copy()
            with np.errstate(divide="ignore", invalid="ignore"):  # callers refuse or mask values that are not positive
                values[:, logarithmic] = np.log(values[:, logarithmic])
        scaled = (values - self.shift) * reciprocal
        for j in np.flatnonzero(self.of_kind(*CLASSES)):
            known = np.isin(values[:, j], self.levels[j])
            scaled[:, j] = np.where(known, np.searchsorted(self.levels[j], values[:, j]), np.nan)
        return scaled

    def undo(self, scaled: NDArray[Any], feature: NDArray[np.int64]) -> Floats:
        """From the model's units to the data's, for cells (cell, ...) of the columns `feature` (cell,)."""
        trailing = (-1,) + (1,) * (scaled.ndim - 1)
        values = self.shift[feature].reshape(trailing) + self.scale[feature].reshape(trailing) * scaled
        for j in np.flatnonzero(self.of_kind("positive", *CLASSES)):
            cells = feature == j
            if self.kinds[j] == "positive":
                values[cells] = np.exp(values[cells])
            else:
                values[cells] = np.array(self.levels[j])[scaled[cells].astype(np.int64)]
        for j in np.flatnonzero(self.is_limited):
            cells, slack = feature == j, SINGLE * self.scale[j]  # draws are in single precision
            inside = on_grid(values[cells], self.origin[j], self.step[j]) if self.step[j] else values[cells]
            inside = np.where(inside < self.lower[j] + slack, self.lower[j], inside)
            values[cells] = np.where(inside > self.upper[j] - slack, self.upper[j], inside)
        return values

    @property
    def is_limited(self) -> Bools:
        """(feature,)"""
        return ~np.isnan(self.lower) | ~np.isnan(self.upper) | (self.step > 0)

    @property
    def bounds(self) -> Floats:
        """Least and greatest scaled value, infinite where there is none. (feature, 2)"""
        bounds = np.stack([self.lower, self.upper], axis=1)
        scaled = (bounds - self.shift[:, None]) / np.where(self.scale > 0, self.scale, 1)[:, None]
        return np.where(np.isnan(bounds), [-np.inf, np.inf], scaled)

    @property
    def scaled_step(self) -> Floats:
        """(feature,)"""
        return self.step / np.where(self.scale > 0, self.scale, 1)

    def limited(self, limits: Sequence[Limits]) -> "Scaling":
        """With the limits of each column, in those of real numbers that vary."""
        chosen = self.varies & self.of_kind("real")
        used = [limit if choose else Limits() for limit, choose in zip(limits, chosen, strict=True)]
        lower, upper, step, origin = np.array(used, dtype=np.float64).reshape(-1, 4).T
        ends = [np.where(np.isinf(end), np.nan, end) for end in (lower, upper)]
        return replace(self, lower=ends[0], upper=ends[1], step=step, origin=origin)

    @property
    def limits(self) -> list[Limits]:
        """Of each column."""
        ends = np.nan_to_num(self.lower, nan=-np.inf), np.nan_to_num(self.upper, nan=np.inf)
        columns = zip(*(each.tolist() for each in (*ends, self.step, self.origin)), strict=True)
        return [Limits(*column) for column in columns]

    def log_jacobian(self, values: Floats) -> Floats:
        """Log |d scaled / d value|, 0 for discrete columns; added to a log density, it changes to the data's units."""
        log_jacobian = np.broadcast_to(-np.log(np.where(self.varies, self.scale, 1)), values.shape).copy()
        positive = self.of_kind("positive")
        with np.errstate(divide="ignore", invalid="ignore"):
            log_jacobian[:, positive] -= np.log(values[:, positive])
        return log_jacobian


def _column_scale(
    panel: Panel, j: int, kind: Kind, levels: Sequence[float] | None, *, standardise: bool
) -> tuple[float, float, Kind, tuple[float, ...]]:
    """Shift, scale, kind and levels of a column that has values; a constant column becomes real."""
    if kind == "real" and not standardise:
        return 0.0, 1.0, kind, ()
    column = panel.values[:, j]
    seen = column[~np.isnan(column)]
    if kind != "real" and seen.min() == seen.max():
        return float(seen[0]), 0.0, "real", ()
    if kind in DISCRETE:
        return 0.0, 1.0, kind, _levels(panel, j, kind, seen, levels) if kind in CLASSES else ()
    shift, scale = _mean_and_deviation(np.log(seen) if kind == "positive" else seen)
    if not (np.isfinite(shift) and np.isfinite(scale)):
        raise DataError(f"the values of column {panel.columns[j]!r} are too large to scale")
    return shift, scale, kind, ()


def _mean_and_deviation(numbers: Floats) -> tuple[float, float]:
    """The deviation is 0 only if all numbers are equal but for rounding, as 1e15 and 1e15 + 1 are not."""
    with np.errstate(over="ignore", invalid="ignore"):
        shift, scale = float(numbers.mean()), float(numbers.std())
        lowest, extent = float(numbers.min()), float(numbers.max() - numbers.min())
        if not extent < np.inf:
            return shift, extent
        if extent <= ROUNDING * np.spacing(np.abs(numbers).max()):
            return shift, 0.0
        if 1e-12 * abs(shift) < scale < np.inf:
            return shift, scale
        unit = (numbers - lowest) / extent  # its squares neither overflow nor vanish
        scale = float(unit.std()) * extent
    return lowest + extent * float(unit.mean()), scale if scale > 1 / np.finfo(float).max else 0.0


def _levels(panel: Panel, j: int, kind: Kind, seen: Floats, given: Sequence[float] | None) -> tuple[float, ...]:
    name = panel.columns[j]
    labels = panel.labels.get(name)
    occurring = np.unique(seen) if given is None else np.array(given, dtype=np.float64)
    levels = occurring if labels is None else np.arange(len(labels), dtype=np.float64)
    if kind == "binary" and len(levels) != 2:
        raise DataError(f"column {name!r} is binary, so it must have 2 different values, got {len(levels)}")
    if len(levels) > MAX_LEVELS:
        raise DataError(
            f"column {name!r} is {kind}, so it must have at most {MAX_LEVELS} different values, got {len(levels)}"
        )
    return tuple(levels.tolist())


def class_columns(kinds: Kinds | None) -> tuple[str, ...]:
    """Columns that the user declares to hold classes, and that may therefore be text."""
    return tuple(name for name, kind in (kinds or {}).items() if not isinstance(kind, str) or kind in CLASSES)
