"""What a model has to know of the data it was fitted on: columns, times, scales."""

import warnings
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from gpvae.batches import Rows, median_step
from gpvae.panel import Bools, DataError, Floats, FrameSource, Panel
from gpvae.times import Clock


@dataclass(frozen=True)
class Scaling:
    """Columns to zero mean and unit deviation. A constant column has scale 0: it enters as 0 and leaves as itself."""

    shift: Floats  # (feature,) NaN where a column was never observed
    scale: Floats  # (feature,)

    @classmethod
    def of(cls, panel: Panel, *, standardise: bool) -> "Scaling":
        seen: Bools = np.asarray(panel.observed.any(axis=0))
        if not standardise:
            return cls(np.where(seen, 0.0, np.nan), np.ones(len(seen)))
        shift, scale = np.full(len(seen), np.nan), np.zeros(len(seen))
        with np.errstate(over="ignore", invalid="ignore"):
            shift[seen] = np.nanmean(panel.values[:, seen], axis=0)
            scale[seen] = np.nanstd(panel.values[:, seen], axis=0)
        for name in np.array(panel.columns, dtype=object)[~np.isfinite(scale)]:
            raise DataError(f"the values of column {name!r} are too large to be scaled")
        return cls(shift, np.where(scale > 1e-12 * np.abs(shift), scale, 0.0))

    @property
    def known(self) -> Bools:
        """Columns of which something was observed."""
        return ~np.isnan(self.shift)

    @property
    def varies(self) -> Bools:
        """Columns that a model can learn something about."""
        return self.scale > 0

    def apply(self, values: Floats) -> Floats:
        return (values - self.shift) * np.divide(1, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)


@dataclass(frozen=True)
class Schema:
    """What a model has to know of the data it was fitted on."""

    columns: tuple[str, ...]
    clock: Clock
    time_unit: float
    scaling: Scaling
    id: str | None  # the columns of a frame that told series and times
    time: str | None

    @classmethod
    def of(cls, panel: Panel, *, standardise: bool) -> "Schema":
        if not panel.observed.any():
            raise DataError("the data has no observed value at all")
        scaling = Scaling.of(panel, standardise=standardise)
        _warn_of(panel.columns, ~scaling.known, "has no observed value: it stays missing")
        constant = scaling.known & ~scaling.varies
        _warn_of(panel.columns, constant, "is constant: gaps get the same value, with an interval of no width")
        return cls(panel.columns, panel.clock, median_step(panel), scaling, panel.source.id, panel.source.time)

    def select(self, panel: Panel) -> Panel:
        """The panel with these columns, or a reason why not."""
        lacking = [str(name) for name in self.columns if name not in panel.columns]
        if lacking:
            raise DataError(
                f"the model was fitted on the columns {', '.join(map(str, self.columns))}; "
                f"the data lacks {', '.join(lacking)}"
            )
        if not isinstance(panel.source, FrameSource) and len(panel.columns) != len(self.columns):
            raise DataError(f"the model was fitted on {len(self.columns)} columns, the data has {len(panel.columns)}")
        if panel.clock != self.clock and len(panel.time_steps):
            raise DataError(f"the model was fitted on times given as {self.clock}s, the data has {panel.clock}s")
        extra = np.array([name not in self.columns for name in panel.columns])
        _warn_of(panel.columns, extra & ~panel.observed.all(axis=0), "is not in the model: it is left as it is")
        unknown = ~self.scaling.known
        _warn_of(self.columns, unknown, "had no observed value when the model was fitted: it stays missing")
        return panel.select(self.columns)

    def rows(self, panel: Panel, observed: Bools, device: torch.device) -> Rows:
        """Scaled rows of which only the `observed` cells are used, and of those only the ones in columns that vary."""
        scaled = self.scaling.apply(panel.values)
        return Rows.of(panel, scaled, observed & self.scaling.varies, self.time_unit, device)


def _warn_of(columns: tuple[str, ...], which: NDArray[np.bool_], what: str) -> None:
    for name in np.array(columns, dtype=object)[which]:
        warnings.warn(f"column {name!r} {what}", stacklevel=4)
