"""Split conformal prediction: intervals for any imputer, calibrated by its errors at held-out cells."""

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
from gpvae.data.known import known_columns
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import Scaling
from gpvae.data.schema import Schema
from gpvae.imputers.base import Imputer, Prediction, fingerprint, from_description
from gpvae.imputers.draws import ConformalIntervals, require_errors
from gpvae.imputers.held_out import HeldOutCells
from gpvae.imputers.latent_view import LatentView


@dataclass(eq=False, repr=False)
class Conformal(Imputer):
    """The values of `imputer`, with intervals calibrated on held-out cells.

        filled = Conformal(BRITS()).fit(data).impute(data)
        lower, upper = filled.interval(0.9)

    A tenth of the observed cells is hidden from the imputer, which then fills them. The half-width of an interval is
    the k-th smallest of the n absolute errors of its column, k = ⌈level (n + 1)⌉. If values are missing completely at
    random, as the hidden cells are, the interval covers the true value with at least this probability, for any imputer
    and any data. Coverage is slightly higher, since the hidden cells are visible again when gaps are filled. Coverage
    is not guaranteed in other gaps, such as long outages, which are harder to fill than single cells.

    Errors are divided by the imputer's standard deviations if it has any, so that intervals are wider where it is less
    certain. Columns with too few held-out cells use the errors of all columns.

    share: the share of observed cells that is held out for calibration.
    """

    imputer: Imputer
    _: KW_ONLY
    share: float = 0.1
    seed: int = 0

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        if not 0 < self.share < 1:
            raise ValueError(f"share must lie between 0 and 1, got {self.share!r}")
        method = cast(Imputer, clone(self.imputer))
        panel = method._read(data)
        self.left_ = method.left_
        self._require_numbers(method, panel)
        held_out = self._held_out(panel)
        visible = missingness.hide(panel, held_out)
        method.fit(visible, checkpoint=checkpoint, logs=logs)
        scaling = method.schema_.scaling
        calibrating = held_out & scaling.varies
        predicted, column = method._fill(visible, calibrating, samples=100, seed=self.seed), np.nonzero(calibrating)[1]
        errors = np.abs(panel.values[calibrating] - predicted.mean) / _error_scale(predicted, column, scaling)
        self.errors_ = tuple(np.sort(errors[column == j]) for j in range(len(scaling.kinds)))
        self.imputer_, self.schema_, self.history_ = method, method.schema_, method.history_
        self.seconds_, self.held_out_ = method.seconds_, HeldOutCells.of(calibrating, fingerprint(panel))
        return self

    def require_level(self, panel: Panel, level: float) -> None:
        """Check before fitting that there will be enough held-out cells to calibrate such intervals."""
        require_errors(int(self._held_out(panel).sum()), level)

    def _held_out(self, panel: Panel) -> Bools:
        """Cells for calibration; none in columns that would keep fewer than two values. (row, feature)"""
        held_out = missingness.random(panel, self.share, [self.seed, 2])
        enough = (panel.observed & ~held_out).sum(axis=0) >= 2
        return held_out & enough & ~known_columns(panel, self.known)

    def _require_numbers(self, method: Imputer, panel: Panel) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `fit` repeats them
            schema = method._new_schema(panel)
        if schema.labels or not {*schema.scaling.kinds} <= {"real", "positive"}:
            raise DataError("conformal intervals need columns of real numbers, not counts or categories")

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        predicted, column = self.imputer_._fill(panel, missing, samples, seed), np.nonzero(missing)[1]
        scaling = self.schema_.scaling
        self._warn_of_empty_series(panel, missing)
        lower_bound = np.where(scaling.of_kind("positive"), 0.0, -np.inf)[column]
        pooled = np.sort(np.concatenate(self.errors_))
        scale = _error_scale(predicted, column, scaling)
        intervals = ConformalIntervals(predicted.mean, scale, lower_bound, column, self.errors_, pooled)
        return Prediction(predicted.mean, predicted.std, conformal=intervals)

    def _warn_of_empty_series(self, panel: Panel, missing: Bools) -> None:
        empty = np.add.reduceat(panel.observed, panel.starts, axis=0) == 0  # (series, feature)
        for j in np.flatnonzero(missing.any(axis=0) & empty.any(axis=0) & self.schema_.scaling.varies):
            where = f"column {panel.columns[j]!r} has no value in {int(empty[:, j].sum()):,} series"
            warnings.warn(f"{where}: intervals there, calibrated on single cells, are likely too narrow", stacklevel=4)

    def _new_schema(self, panel: Panel) -> Schema:
        return self.imputer._new_schema(panel)

    def found_kinds(self, panel: Panel) -> dict[Any, str]:
        return self.imputer.found_kinds(panel)

    def _select(self, panel: Panel) -> Panel:
        return self.imputer_._select(panel)

    @property
    def known(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.imputer.known

    @property
    def name(self) -> str:
        return f"{type(self).__name__}({self.imputer.name})"

    def describe(self) -> list[str]:
        return self.imputer_.describe()

    def facts(self) -> list[tuple[str, str]]:
        return self.imputer_.facts()

    def latent_view(self) -> LatentView | None:
        return self.imputer_.latent_view()

    def _settings(self) -> dict[str, Any]:
        return {"imputer": self.imputer.to_json(), "share": self.share, "seed": self.seed}

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], device: str) -> Self:
        return cls(**{**settings, "imputer": from_description(settings["imputer"], device)})

    def _resolved(self) -> Any:
        return self.imputer_._resolved()

    def _tensors(self) -> dict[str, Tensor]:
        errors = {f"errors.{j}": torch.tensor(column) for j, column in enumerate(self.errors_)}
        return errors | {f"imputer.{name}": value for name, value in self.imputer_._tensors().items()}

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        self.errors_ = tuple(tensors[f"errors.{j}"].numpy() for j in range(len(self.schema_.columns)))
        if any(errors.ndim != 1 for errors in self.errors_):
            raise ValueError("the errors of a column must be a list")
        self.imputer_ = cast(Imputer, clone(self.imputer))
        self.imputer_.schema_, self.imputer_.history_ = self.schema_, self.history_
        inner = {name.removeprefix("imputer."): t for name, t in tensors.items() if name.startswith("imputer.")}
        self.imputer_._restore(inner, resolved)


def _error_scale(predicted: Prediction, column: NDArray[np.int64], scaling: Scaling) -> Floats:
    """The unit of errors: the imputer's standard deviations, else those of the columns; 0 in constant columns. (cell,)

    For a positive column it is the standard deviation of its logarithm times the value.
    """
    by_column = scaling.scale[column] * np.where(scaling.of_kind("positive")[column], np.abs(predicted.mean), 1.0)
    return by_column if predicted.std is None else np.where(predicted.std > 0, predicted.std, by_column)
