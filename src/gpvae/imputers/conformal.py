"""Intervals for any method, from its errors at cells whose value is known (split conformal prediction)."""

import warnings
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from gpvae import missingness
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import Scaling
from gpvae.data.schema import Schema
from gpvae.imputers.base import HeldOutCells, Imputer, Prediction, from_plain
from gpvae.imputers.imputation import ConformalIntervals, require_errors


@dataclass(eq=False, repr=False)
class Conformal(Imputer):
    """The values of `imputer`, with intervals calibrated on held-out cells.

        filled = Conformal(BRITS()).fit(data).impute(data)
        lower, upper = filled.interval(0.9)

    A tenth of the observed cells is hidden from the method and filled by it. An interval then reaches as far around
    each value as it takes to hold its share of those errors, column by column: with n errors up to the k-th smallest,
    k = ⌈level (n + 1)⌉. If the missing cells are missing as those were hidden, at random, the interval holds the true
    value with at least that probability, however good or bad the method and whatever the data; somewhat more often,
    since the hidden cells are seen again when gaps are filled. Gaps of another kind, long outages say, are harder to
    fill than single cells, and that promise does not reach them.

    Errors are counted in the method's own deviations where it gives any, so that intervals are wider where it is less
    sure. A column with too few known cells for an interval shares the errors of all columns.

    share: of the observed cells that are hidden to calibrate by.
    """

    imputer: Imputer
    _: KW_ONLY
    share: float = 0.1
    seed: int = 0

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        if not 0 < self.share < 1:
            raise ValueError(f"share={self.share!r} makes no sense: it is between 0 and 1")
        method = cast(Imputer, clone(self.imputer))
        panel = method._read(data)
        self._require_numbers(method, panel)
        hidden = self._hidden(panel)
        visible = missingness.hide(panel, hidden)
        method.fit(visible, checkpoint=checkpoint, logs=logs)
        scaling = method.schema_.scaling
        known = hidden & scaling.varies
        filled, column = method._fill(visible, known, samples=100, seed=self.seed), np.nonzero(known)[1]
        errors = np.abs(panel.values[known] - filled.mean) / _units(filled, column, scaling)
        self.errors_ = tuple(np.sort(errors[column == j]) for j in range(len(scaling.kinds)))
        self.imputer_, self.schema_, self.history_ = method, method.schema_, method.history_
        self.seconds_, self.held_out_ = method.seconds_, HeldOutCells.of(panel, known)
        return self

    def require_level(self, panel: Panel, level: float) -> None:
        """Before fitting: there will be enough to calibrate such intervals by."""
        require_errors(int(self._hidden(panel).sum()), level)

    def _hidden(self, panel: Panel) -> Bools:
        """Cells to calibrate by; of a column of which hardly anything would be left, none."""
        hidden = missingness.random(panel, self.share, [self.seed, 2])
        return hidden & ((panel.observed & ~hidden).sum(axis=0) >= 2)

    def _require_numbers(self, method: Imputer, panel: Panel) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said again when it is fitted
            schema = method._new_schema(panel)
        if schema.labels or not {*schema.scaling.kinds} <= {"real", "positive"}:
            raise DataError("conformal intervals are for columns of real numbers, not for counts or categories")

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        filled, column = self.imputer_._fill(panel, missing, samples, seed), np.nonzero(missing)[1]
        scaling = self.schema_.scaling
        self._warn_of_empty_series(panel, missing)
        floor = np.where(scaling.of_kind("positive"), 0.0, -np.inf)[column]
        together = np.sort(np.concatenate(self.errors_))
        unit = _units(filled, column, scaling)
        return Prediction(
            filled.mean,
            filled.std,
            conformal=ConformalIntervals(filled.mean, unit, floor, column, self.errors_, together),
        )

    def _warn_of_empty_series(self, panel: Panel, missing: Bools) -> None:
        seen = np.add.reduceat(panel.observed, panel.starts, axis=0)
        for j in np.flatnonzero((missing.any(axis=0)) & ((seen == 0).any(axis=0)) & self.schema_.scaling.varies):
            empty = int((seen[:, j] == 0).sum())
            where = f"column {panel.columns[j]!r} has no value in {empty:,} series"
            warnings.warn(f"{where}: intervals there, calibrated on single cells, are likely too narrow", stacklevel=4)

    def _new_schema(self, panel: Panel) -> Schema:
        return self.imputer._new_schema(panel)

    def _select(self, panel: Panel) -> Panel:
        return self.imputer_._select(panel)

    @property
    def name(self) -> str:
        return f"{type(self).__name__}({self.imputer.name})"

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "imputer": self.imputer.to_plain()}

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], device: str) -> Self:
        return cls(**{**settings, "imputer": from_plain(settings["imputer"], device)})

    def _tensors(self) -> dict[str, Tensor]:
        own = {f"errors.{j}": torch.tensor(errors) for j, errors in enumerate(self.errors_)}
        return own | {f"imputer.{name}": value for name, value in self.imputer_._tensors().items()}

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.errors_ = tuple(tensors[f"errors.{j}"].numpy() for j in range(len(self.schema_.columns)))
        self.imputer_ = cast(Imputer, clone(self.imputer))
        self.imputer_.schema_, self.imputer_.history_ = self.schema_, self.history_
        inner = {name.removeprefix("imputer."): t for name, t in tensors.items() if name.startswith("imputer.")}
        self.imputer_._restore(inner)


def _units(filled: Prediction, column: NDArray[np.int64], scaling: Scaling) -> Floats:
    """What errors are counted in: the method's deviations, or the columns'; 0 for a column that does not vary. (cell,)

    Of a positive column it is the deviation of its logarithm times the value.
    """
    usual = scaling.scale[column] * np.where(scaling.of_kind("positive")[column], np.abs(filled.mean), 1.0)
    return usual if filled.std is None else np.where(filled.std > 0, filled.std, usual)
