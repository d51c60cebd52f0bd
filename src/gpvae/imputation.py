"""What an imputer returns: the filled values, and how sure it is of each."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.panel import Bools, DataError, Floats, Panel


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

    def unscale(self, scaled: NDArray[Any]) -> Floats:
        """(cell, ...) in scaled units → in the data's."""
        feature = self.cells % len(self.shift)
        trailing = (-1,) + (1,) * (scaled.ndim - 1)
        return self.shift[feature].reshape(trailing) + self.scale[feature].reshape(trailing) * scaled


@dataclass(frozen=True)
class Imputation:
    """Predictions for the missing values of a panel, in the shape that the data came in.

    Observed cells hold what was observed: their mean is the value, their deviation 0. Cells of a column that was never
    observed, not even in training, stay missing.
    """

    panel: Panel
    mean_rows: Floats  # (row, feature)
    std_rows: Floats  # (row, feature)
    draws: Draws = field(repr=False)

    @property
    def mean(self) -> Any:
        """The data without gaps: predictive means where values were missing."""
        return self.panel.restore(self.mean_rows)

    @property
    def std(self) -> Any:
        """Predictive standard deviations, posterior and observation noise together; 0 where observed."""
        return self.panel.restore(self.std_rows)

    @property
    def samples(self) -> Any:
        """Whole data sets without gaps, drawn at random: the shape of the data with the samples in front."""
        stacked = np.repeat(self.panel.values[None], self.draws.count, axis=0)
        stacked.reshape(self.draws.count, -1)[:, self.draws.cells] = self.draws.unscale(self.draws.scaled).T
        return self.panel.restore(stacked)

    def quantile(self, q: float) -> Any:
        """The value below which the missing one lies with probability q."""
        return self.panel.restore(self.quantile_rows(q))

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

    def quantile_rows(self, q: float) -> Floats:
        """As `quantile`, in the panel's own layout. (row, feature)"""
        require_samples(q, self.draws.count)
        # "weibull" reads the i-th of n draws as the quantile i/(n+1), which makes the coverage right for any n.
        scaled = np.quantile(self.draws.scaled, q, axis=1, method="weibull")
        rows = self.panel.values.copy()
        rows.flat[self.draws.cells] = self.draws.unscale(scaled)
        return rows

    def interval_rows(self, level: float = 0.9) -> tuple[Floats, Floats]:
        return self.quantile_rows((1 - level) / 2), self.quantile_rows((1 + level) / 2)

    def draws_at(self, cells: Bools) -> Floats:
        """Draws for some missing cells (row, feature), in row order. (sample, cell)"""
        chosen = cells.flat[self.draws.cells]
        if chosen.sum() != cells.sum():
            raise ValueError("draws exist for missing cells only")
        return self.draws.unscale(self.draws.scaled)[chosen].T

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
