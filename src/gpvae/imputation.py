"""What an imputer returns: the filled values, and how sure it is of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.panel import Bools, DataError, Floats, Panel

SORTED_AT_ONCE = 2**14  # cells


@dataclass(frozen=True)
class Draws:
    """Draws of the missing values, observation noise included; kept in scaled float32, for the missing cells alone."""

    scaled: NDArray[np.float32]  # (cell, sample)
    cells: NDArray[np.int64]  # (cell,) places in the flattened (row, feature)
    shift: Floats  # (feature,)
    scale: Floats  # (feature,)

    @property
    def count(self) -> int:
        return self.scaled.shape[1]

    def quantiles(self, q: Sequence[float]) -> Floats:
        """Of each cell, in scaled units, by reading the i-th of n draws as the quantile i/(n+1). (quantile, cell)

        That makes the coverage right for any n. (NumPy's "weibull"; to sort some rows at a time is ten times as fast.)
        """
        place = np.array(q) * (self.count + 1) - 1
        below = np.clip(np.floor(place + 1e-9).astype(int), 0, self.count - 1)
        above, share = np.minimum(below + 1, self.count - 1), np.clip(place - below, 0, 1)
        found = np.empty((len(q), len(self.scaled)))
        for first in range(0, len(self.scaled), SORTED_AT_ONCE):
            some = slice(first, first + SORTED_AT_ONCE)
            ordered = np.sort(self.scaled[some], axis=1)
            found[:, some] = ((1 - share) * ordered[:, below] + share * ordered[:, above]).T
        return found

    def unscale(self, scaled: NDArray[Any]) -> Floats:
        """(cell, ...) in scaled units → in the data's."""
        feature = self.cells % len(self.shift)
        trailing = (-1,) + (1,) * (scaled.ndim - 1)
        return self.shift[feature].reshape(trailing) + self.scale[feature].reshape(trailing) * scaled


@dataclass(frozen=True, repr=False)
class Imputation:
    """Predictions for the missing values of a panel, in the shape that the data came in.

    Observed cells hold what was observed: their mean is the value, their deviation 0. Cells of a column that was never
    observed, not even in training, stay missing.
    """

    panel: Panel
    mean_rows: Floats  # (row, feature)
    std_rows: Floats  # (row, feature)
    draws: Draws

    def __repr__(self) -> str:
        return f"Imputation({len(self.draws.cells)} cells filled, {self.draws.count} samples, of {self.panel})"

    @property
    def mean(self) -> Any:
        """The data without gaps: predictive means where values were missing."""
        return self.panel.restore(self.mean_rows)

    @property
    def std(self) -> Any:
        """Predictive deviations, posterior and observation noise together; 0 where observed.

        Learned noise is set so that 90 % intervals hold 90 % of held-out cells. Where errors have heavy tails that is
        less than their root mean square: most are smaller, a few much larger.
        """
        return self.panel.restore(self.std_rows)

    @property
    def samples(self) -> Any:
        """Whole data sets without gaps, drawn at random: the shape of the data with the samples in front."""
        stacked = np.repeat(self.panel.values[None], self.draws.count, axis=0)
        stacked.reshape(self.draws.count, -1)[:, self.draws.cells] = self.draws.unscale(self.draws.scaled).T
        return self.panel.restore(stacked)

    def quantile(self, q: float) -> Any:
        """The value below which the missing one lies with probability q."""
        return self.panel.restore(self.quantile_rows(q)[0])

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of the central interval that holds the missing value with probability `level`."""
        lower, upper = self.interval_rows(level)
        return self.panel.restore(lower), self.panel.restore(upper)

    def to_frame(self, *, interval: float | None = None) -> Any:
        """The table as it came, its gaps filled, everything else untouched.

        With `interval`, columns `<name>_lower` and `<name>_upper` are added behind for each column that had gaps;
        they are empty where the value was observed.
        """
        return self.panel.fill(self.mean_rows, {} if interval is None else self._interval_columns(interval))

    def quantile_rows(self, *q: float) -> list[Floats]:
        """As `quantile`, of several at once, in the panel's own layout. Each (row, feature)"""
        for each in q:
            require_samples(each, self.draws.count)
        found = self.draws.quantiles(q)
        rows = [self.panel.values.copy() for _ in q]
        for row, scaled in zip(rows, found, strict=True):
            row.flat[self.draws.cells] = self.draws.unscale(scaled)
        return rows

    def interval_rows(self, level: float = 0.9) -> tuple[Floats, Floats]:
        lower, upper = self.quantile_rows((1 - level) / 2, (1 + level) / 2)
        return lower, upper

    def draws_at(self, cells: Bools) -> Floats:
        """Draws for some missing cells (row, feature), in row order. (sample, cell)"""
        chosen = cells.flat[self.draws.cells]
        if chosen.sum() != cells.sum():
            raise ValueError("draws exist for missing cells only")
        some = replace(self.draws, scaled=self.draws.scaled[chosen], cells=self.draws.cells[chosen])
        return some.unscale(some.scaled).T

    def _interval_columns(self, level: float) -> dict[str, Floats]:
        lower, upper = self.interval_rows(level)
        columns: dict[str, Floats] = {}
        for j, name in enumerate(self.panel.columns):
            missing = ~self.panel.observed[:, j]
            if missing.any():
                columns[f"{name}_lower"] = np.where(missing, lower[:, j], np.nan)
                columns[f"{name}_upper"] = np.where(missing, upper[:, j], np.nan)
        return columns


def require_samples(q: float, samples: int) -> None:
    """Beyond the outermost draws nothing is known: the quantile q needs at least 1/q - 1 of them, from either side."""
    if not 0 < q < 1:
        raise DataError(f"a quantile lies between 0 and 1, not at {q:g}")
    needed = math.ceil(1 / min(q, 1 - q) - 1e-9) - 1
    if samples < needed:
        raise DataError(f"the quantile {q:g} needs at least {needed} samples, not {samples}")
