"""The distributions of single cells: Student's t in the linear model's units, bent back to what columns can take."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from gpvae.data.panel import Bools, Floats
from gpvae.data.scaling import SINGLE, Scaling
from gpvae.imputers.factor import Block
from gpvae.imputers.masses import Ends, Masses, fit_masses, student_quantiles

NODES = (np.arange(33) + 0.5) / 33  # quantile levels that the deviation is computed from; the middle one is the median
CHUNK = 2**14  # cells that are computed together
LEAST = 1e-12  # probability of a step or a bound, at least


@dataclass(frozen=True)
class Marginals:
    """y = location + scale ε, ε ~ Student's t, for cells of columns that vary. x is y without the warp, within limits.

    Of columns that others determine (not `corrected`), only quantiles that are put back to the data's units are kept
    within limits.
    """

    scaling: Scaling
    blocks: tuple[Block, ...]
    corrected: Bools  # (column that varies,)
    tails: float  # degrees of freedom
    masses: Masses

    def fitted(self, y: Tensor, location: Tensor, scale: Tensor, column: NDArray[np.int64]) -> Masses:
        """The masses of bounds that held-out cells (cell,) show."""
        at = location.double().numpy(), scale.double().numpy()
        past = y.double().numpy()[:, None] - self._knots()[column]
        at_end = np.asarray(past * [1, -1] <= 10 * SINGLE)
        return fit_masses(self._beyond(*at, column), at[1], at_end, column, len(self.corrected))

    def quantiles(self, levels: Floats, location: Floats, scale: Floats, column: NDArray[np.int64]) -> Floats:
        """Of cells at these levels (cell, level), scaled; put back to the data's units, they keep to the limits."""
        has_ends: Bools = np.any(np.isfinite(self._knots()), axis=1)
        limited = np.flatnonzero(has_ends[column] & self.corrected[column])
        ends, levels = self._ends(location[limited], scale[limited], column[limited]), levels.copy()
        levels[limited], *at_end = ends.levels(levels[limited])
        scaled = self.unwarp(location[:, None] + scale[:, None] * student_quantiles(levels, self.tails), column)
        bounds = self.scaling.bounds[self.scaling.varies][column[limited]]
        for end, there in enumerate(at_end):
            scaled[limited] = np.where(there, bounds[:, end, None], scaled[limited])
        return scaled

    def moments(self, location: Floats, scale: Floats, column: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Median and deviation of cells, in the data's units."""
        missed = np.sqrt(self.tails / (self.tails - 2)) / special.stdtrit(self.tails, NODES).std()  # of t's own tails
        feature, median, std = np.flatnonzero(self.scaling.varies)[column], *np.zeros((2, len(column)))
        missed = np.where(np.isfinite(self.scaling.bounds[feature]).all(1), 1, missed)
        for first in range(0, len(column), CHUNK):
            at = slice(first, first + CHUNK)
            levels = np.broadcast_to(NODES, (len(column[at]), len(NODES)))
            values = self.scaling.undo(self.quantiles(levels, location[at], scale[at], column[at]), feature[at])
            median[at], unit = values[:, len(NODES) // 2], self.scaling.scale[feature[at]]
            std[at] = missed[at] * unit * ((values - median[at, None]) / unit[:, None]).std(1)
        return median, std

    def log_density(self, scaled: NDArray[np.float32], location: Tensor, scale: Tensor) -> Floats:
        """Of all cells (row, feature) at scaled values. Location and scale are (row, column)."""
        varies, density = self.scaling.varies, np.zeros(scaled.shape)
        place, student = np.cumsum(varies) - 1, torch.distributions.StudentT(self.tails)
        for block in self.blocks:
            columns = list(block.columns)
            values, at = torch.from_numpy(scaled[:, columns]).double(), place[columns]
            y = block.model.warp(values)
            log_density = student.log_prob((y - location[:, at]) / scale[:, at]) - scale[:, at].log()
            density[:, columns] = (block.model.warp.log_slope(values) + block.doubted(y, log_density)).numpy()
        for j in np.flatnonzero(varies & self.scaling.is_limited):
            at = location[:, place[j]].double().numpy(), scale[:, place[j]].double().numpy()
            values = scaled[:, j].astype(np.float64)
            if self.corrected[place[j]]:
                density[:, j] = self._on_limits(density[:, j], values, *at, int(j))
            density[~self._possible(values, int(j)), j] = -np.inf
        return density

    def warp(self, scaled: Floats) -> Floats:
        """(row, feature) → (row, column that varies)"""
        warped = np.zeros((len(scaled), len(self.scaling.scale)))
        for block in self.blocks:
            columns = list(block.columns)
            warped[:, columns] = block.model.warp(torch.from_numpy(scaled[:, columns])).numpy()
        return warped[:, self.scaling.varies]

    def unwarp(self, y: NDArray[np.floating], column: NDArray[np.int64]) -> Floats:
        """Back to scaled values, of cells (cell, …) of these columns among those that vary."""
        place, result = np.cumsum(self.scaling.varies) - 1, np.zeros(y.shape)
        for block in self.blocks:
            for i, j in enumerate(block.columns):
                cells = column == place[j]
                if cells.any():
                    values = torch.from_numpy(y[cells]).double().unsqueeze(-1)
                    result[cells] = block.model.warp.of(torch.tensor([i])).inverse(values).squeeze(-1).numpy()
        return result

    def _knots(self) -> Floats:
        """Up to where, warped, a column is at its lower bound, and from where at its upper one. (column, end)"""
        knots = self.scaling.bounds + [0.5, -0.5] * self.scaling.scaled_step[:, None]
        finite = np.isfinite(knots)
        warped = self.warp(np.where(finite, knots, 0).T).T
        return np.where(finite[self.scaling.varies], warped, knots[self.scaling.varies])

    def _beyond(self, location: Floats, scale: Floats, column: NDArray[np.int64]) -> Floats:
        """How much of the densities of cells (cell,) lies beyond the knots. (cell, end)"""
        z = (self._knots()[column] - location[:, None]) / scale[:, None]
        return special.stdtr(self.tails, [1, -1] * z)

    def _ends(self, location: Floats, scale: Floats, column: NDArray[np.int64]) -> Ends:
        return self.masses.ends(self._beyond(location, scale, column), scale, column)

    def _on_limits(self, density: Floats, values: Floats, location: Floats, scale: Floats, j: int) -> Floats:
        """The log density of rows (row,) of feature j, spread evenly over its steps.

        At a bound of a column without steps, it is the logarithm of a probability.
        """
        place, step = int(self.scaling.varies[:j].sum()), float(self.scaling.scaled_step[j])
        ends = self._ends(location, scale, np.full(len(values), place))
        if step:
            last, first = (ends.cumulative(self._level(values + x, location, scale, j)) for x in (step / 2, -step / 2))
            density = np.log(np.maximum(last - first, LEAST) / step)
        else:
            density = density + ends.log_density(self._level(values, location, scale, j))
        unit, slack, (low, high) = step or 1 / self.scaling.scale[j], _slack(values), self.scaling.bounds[j]
        for end, there in enumerate((values <= low + slack, values >= high - slack)):
            density = np.where(there, np.log(np.maximum(ends.p[:, end], LEAST) / unit), density)
        return density

    def _level(self, values: Floats, location: Floats, scale: Floats, j: int) -> Floats:
        """That the density of each row gives scaled values of feature j. (row,)"""
        rows = np.zeros((len(values), len(self.scaling.scale)))
        rows[:, j] = values
        y = self.warp(rows)[:, int(self.scaling.varies[:j].sum())]
        return special.stdtr(self.tails, (y - location) / scale)

    def _possible(self, values: Floats, j: int) -> Bools:
        """Whether scaled values of feature j are within its limits. (row,)"""
        scaling, slack, (low, high) = self.scaling, _slack(values), self.scaling.bounds[j]
        inside = (values >= low - slack) & (values <= high + slack)
        if not scaling.step[j]:
            return inside
        steps = (values * scaling.scale[j] + scaling.shift[j] - scaling.origin[j]) / scaling.step[j]
        return inside & (np.abs(steps - np.rint(steps)) * scaling.scaled_step[j] <= slack)


def _slack(values: Floats) -> Floats:
    """Of numbers in single precision."""
    return SINGLE * np.maximum(1, np.abs(values))
