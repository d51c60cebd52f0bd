"""Between the data's units and a model's, column by column, each by its kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gpvae.data.codec import from_json, to_json
from gpvae.data.panel import Bools, DataError, Floats, Panel

Kind = Literal["real", "positive", "count", "binary", "categorical", "ordinal"]
Kinds = Mapping[Any, str | Sequence[Any]]  # by column: a kind, or the levels of an ordinal one in their order
CLASSES = ("binary", "categorical", "ordinal")  # columns that hold one of a few levels
DISCRETE = ("count", *CLASSES)
MOST_LEVELS = 100


@dataclass(frozen=True)
class Scaling:
    """Between the data's units and a model's.

    real      (x - shift) / scale
    positive  (log x - shift) / scale
    count     as it is
    classes   the place of x among the column's levels

    A constant column, of whatever kind, has scale 0: it enters as 0 and leaves as itself.
    """

    shift: Floats  # (feature,) NaN where a column was never observed
    scale: Floats  # (feature,)
    kinds: tuple[Kind, ...] = ()  # (feature,) none: all real
    levels: tuple[tuple[float, ...], ...] = ()  # (feature,) increasing, for text in the order of its labels

    def __post_init__(self) -> None:
        if not self.kinds:
            object.__setattr__(self, "kinds", ("real",) * len(self.shift))
        if not self.levels:
            object.__setattr__(self, "levels", ((),) * len(self.shift))

    @classmethod
    def of(
        cls, panel: Panel, *, standardise: bool, kinds: Sequence[Kind] = (), levels: Mapping[int, Sequence[float]] = {}
    ) -> "Scaling":
        """`levels` of classes, by column, where they are known; otherwise all that occur."""
        asked = kinds or ("real",) * len(panel.columns)
        known: Bools = np.any(panel.observed, axis=0)
        columns = [
            _column_scale(panel, j, kind, levels.get(j), standardise=standardise or kind == "positive")
            if known[j]
            else (np.nan, 0.0 if standardise or kind == "positive" else 1.0, "real", ())
            for j, kind in enumerate(asked)
        ]
        shift, scale, found, ordered = zip(*columns, strict=True)
        return cls(np.array(shift), np.array(scale), found, ordered)

    @property
    def known(self) -> Bools:
        """Columns of which something was observed."""
        return ~np.isnan(self.shift)

    @property
    def varies(self) -> Bools:
        """Columns that a model can learn something about."""
        return self.scale > 0

    def of_kind(self, *kinds: str) -> Bools:
        """Which columns are of one of these kinds. (feature,)"""
        return np.array([kind in kinds for kind in self.kinds])

    def apply(self, values: Floats) -> Floats:
        """(row, feature) in the data's units → in the model's; `values` itself where those are the same."""
        if (self.shift == 0).all() and (self.scale == 1).all() and not self.of_kind("positive", *CLASSES).any():
            return values
        reciprocal = np.divide(1, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        logarithmic = self.of_kind("positive")
        if logarithmic.any():
            values = values.copy()
            with np.errstate(divide="ignore", invalid="ignore"):  # what is not positive is refused, or NaN, elsewhere
                values[:, logarithmic] = np.log(values[:, logarithmic])
        scaled = (values - self.shift) * reciprocal
        for j in np.flatnonzero(self.of_kind(*CLASSES)):
            known = np.isin(values[:, j], self.levels[j])
            scaled[:, j] = np.where(known, np.searchsorted(self.levels[j], values[:, j]), np.nan)
        return scaled

    def undo(self, scaled: NDArray[Any], feature: NDArray[np.int64]) -> Floats:
        """(cell, ...) in the model's units → in the data's, for cells of the columns `feature` (cell,)."""
        trailing = (-1,) + (1,) * (scaled.ndim - 1)
        values = self.shift[feature].reshape(trailing) + self.scale[feature].reshape(trailing) * scaled
        for j in np.flatnonzero(self.of_kind("positive", *CLASSES)):
            cells = feature == j
            if self.kinds[j] == "positive":
                values[cells] = np.exp(values[cells])
            else:
                values[cells] = np.array(self.levels[j])[scaled[cells].astype(np.int64)]
        return values

    def log_slope(self, values: Floats) -> Floats:
        """Log |d scaled / d value| where that is defined, 0 for what is discrete: turns densities into the data's."""
        slope = np.broadcast_to(-np.log(np.where(self.varies, self.scale, 1)), values.shape).copy()
        positive = self.of_kind("positive")
        with np.errstate(divide="ignore", invalid="ignore"):
            slope[:, positive] -= np.log(values[:, positive])
        return slope


def _column_scale(
    panel: Panel, j: int, kind: Kind, levels: Sequence[float] | None, *, standardise: bool
) -> tuple[float, float, Kind, tuple[float, ...]]:
    """Shift, scale, kind and levels of a column with values; one that does not vary is real."""
    if kind == "real" and not standardise:
        return 0.0, 1.0, kind, ()
    column = panel.values[:, j]
    seen = column[~np.isnan(column)]
    if kind != "real" and seen.min() == seen.max():
        return float(seen[0]), 0.0, "real", ()
    if kind in DISCRETE:
        return 0.0, 1.0, kind, _levels(panel, j, kind, seen, levels) if kind in CLASSES else ()
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.log(seen) if kind == "positive" else seen
        shift, scale = float(numbers.mean()), float(numbers.std())
    if not np.isfinite(scale):
        raise DataError(f"the values of column {panel.columns[j]!r} are too large to be scaled")
    return shift, scale if scale > 1e-12 * abs(shift) else 0.0, kind, ()


def _levels(panel: Panel, j: int, kind: Kind, seen: Floats, given: Sequence[float] | None) -> tuple[float, ...]:
    name = panel.columns[j]
    labels = panel.labels.get(name)
    occurring = np.unique(seen) if given is None else np.array(given, dtype=np.float64)
    levels = occurring if labels is None else np.arange(len(labels), dtype=np.float64)
    if kind == "binary" and len(levels) != 2:
        raise DataError(f"column {name!r} is not binary: it has {len(levels)} different values")
    if len(levels) > MOST_LEVELS:
        raise DataError(f"column {name!r} has {len(levels)} different values: too many to be {kind}")
    return tuple(levels.tolist())


def class_columns(kinds: Kinds | None) -> tuple[str, ...]:
    """Columns that may hold text, by what the user says of them."""
    return tuple(name for name, kind in (kinds or {}).items() if not isinstance(kind, str) or kind in CLASSES)


def kinds_to_plain(kinds: Kinds | None) -> list[list[Any]] | None:
    return None if kinds is None else to_json(kinds, Kinds)


def kinds_from_plain(pairs: list[list[Any]] | None) -> Kinds | None:
    return None if pairs is None else from_json(Kinds, pairs)
