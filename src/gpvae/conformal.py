"""Intervals for any method, from its errors at cells whose value is known (split conformal prediction)."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from gpvae import missingness
from gpvae.imputation import Margins
from gpvae.imputer import Filled, Imputer, from_plain
from gpvae.panel import Bools, DataError, Floats, Panel
from gpvae.scaling import Scaling


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
    sure. A column with too few known cells shares the errors of all columns, counted in its standard deviations.

    share: of the observed cells that are hidden to calibrate by.
    """

    imputer: Imputer
    _: KW_ONLY
    share: float = 0.1
    seed: int = 0

    FEWEST = 40  # errors that a column needs to stand for itself

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        if not 0 < self.share < 1:
            raise ValueError(f"share={self.share!r} makes no sense: it is between 0 and 1")
        method = cast(Imputer, clone(self.imputer))
        panel = method._read(data)
        hidden = missingness.random(panel, self.share, [self.seed, 2])
        visible = missingness.hide(panel, hidden)
        method.fit(visible, checkpoint=checkpoint, logs=logs)
        scaling = method.schema_.scaling
        if not set(scaling.kinds) <= {"real", "positive"}:
            raise DataError("conformal intervals are for columns of real numbers, not for counts or categories")
        missing = ~visible.observed & scaling.known
        filled, column = method._fill(visible, missing, samples=100, seed=self.seed), np.nonzero(missing)[1]
        errors = np.abs(panel.values[missing] - filled.mean) / _units(filled, column, scaling)
        self.errors_ = _by_column(errors, column, (hidden & scaling.varies)[missing], self.FEWEST, len(scaling.kinds))
        self.imputer_, self.schema_, self.history_ = method, method.schema_, method.history_
        return self

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Filled:
        filled, column = self.imputer_._fill(panel, missing, samples, seed), np.nonzero(missing)[1]
        unit = _units(filled, column, self.schema_.scaling)
        return Filled(filled.mean, filled.std, margins=Margins(filled.mean, unit, column, self.errors_))

    @property
    def name(self) -> str:
        return f"{type(self).__name__}({self.imputer.name})"

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "imputer": self.imputer._to_plain()}

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


def _units(filled: Filled, column: NDArray[np.int64], scaling: Scaling) -> Floats:
    """What errors are counted in: the method's deviations, or the columns'. (cell,)"""
    usual = np.where(scaling.scale > 0, scaling.scale, 1.0)[column]
    return usual if filled.std is None else np.where(filled.std > 0, filled.std, usual)


def _by_column(
    errors: Floats, column: NDArray[np.int64], usable: Bools, fewest: int, columns: int
) -> tuple[Floats, ...]:
    """Sorted; those of all columns where one has too few of its own."""
    together = np.sort(errors[usable])
    own = [np.sort(errors[usable & (column == j)]) for j in range(columns)]
    return tuple(each if len(each) >= fewest else together for each in own)
