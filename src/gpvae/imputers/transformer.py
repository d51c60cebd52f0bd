"""What scikit-learn asks of a transformer: every imputer can stand in a pipeline, and be chosen by a grid search."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from gpvae.data.panel import DataError, FrameSource, Panel, eager_frame, plain
from gpvae.data.scaling import CLASSES
from gpvae.data.schema import Schema
from gpvae.imputers.imputation import Imputation
from gpvae.missingness import hide, random

SCORED = 0.1  # of the observed cells


class Transformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator, ABC):
    """The part of an imputer's contract that scikit-learn defines.

    A table of shape (row, column) is one series, whose rows are in the order of time. A frame comes back as a frame
    with all of its columns, of which `feature_names_in_` has the names; `n_features_in_` is their number.
    """

    __metadata_request__fit: ClassVar = {"data": UNUSED}  # it is X
    schema_: Schema
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    @abstractmethod
    def impute(self, data: Any) -> Imputation:
        """Fill the gaps of `data`."""

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The data with its gaps filled, as `impute(X).to_frame()`; its columns must be those of `fit`."""
        self._require_features(X)
        return self.impute(X).to_frame()

    def score(self, X: Any, y: None = None) -> float:  # noqa: N803
        """Minus the mean absolute error over a tenth of the observed cells of `X`, which are hidden and filled.

        Errors of numbers are in standard deviations of their column in `X`; of a category the error is 0 or 1. The
        cells are chosen at random, always the same ones for the same data, so that scores of different imputers
        compare. Methods without distributions have this score, too; `log_likelihood` is for those with them.
        """
        self._require_features(X)
        schema = self.schema_
        panel = schema.panel(X).with_labels(schema.labels).select(schema.columns)
        cells = random(panel, SCORED, seed=0)
        errors = np.abs(self.impute(hide(panel, cells)).mean_rows - panel.values)
        counted = panel.observed.sum(axis=0) > 1
        units = np.full(len(counted), np.nan)
        units[counted] = np.nanstd(panel.values[:, counted], axis=0)
        classes = schema.scaling.of_kind(*CLASSES)
        errors = np.where(classes, errors > 0, errors / np.where(units > 0, units, np.nan))[cells]
        if np.isnan(errors).all():
            raise DataError("no hidden cell lies in a column that varies, so there is nothing to score")
        return -float(np.nanmean(errors))

    def _remember_features(self, data: Any) -> None:
        """Names and number of the columns that `fit` was given."""
        self._set_features(*_features(data))

    def _set_features(self, count: int, names: list[str] | None) -> None:
        self.n_features_in_ = count
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif "feature_names_in_" in vars(self):
            del self.feature_names_in_

    def _require_features(self, data: Any) -> None:
        """Check that the columns are those of `fit`, with scikit-learn's messages."""
        check_is_fitted(self)
        if isinstance(data, Panel):
            return
        validate_data(self, data, reset=False, skip_check_array=True, ensure_2d=False)
        count, _ = _features(data)
        if count != self.n_features_in_:
            name, expected = type(self).__name__, self.n_features_in_
            raise DataError(f"X has {count} features, but {name} is expecting {expected} features as input")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.three_d_array = True
        assert tags.transformer_tags is not None
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _features(data: Any) -> tuple[int, list[str] | None]:
    """Number of columns, and their names if there are any and all are text."""
    if isinstance(data, Panel):
        return _named(data.source.table.columns) if isinstance(data.source, FrameSource) else (len(data.columns), None)
    data = plain(data)
    if isinstance(data, list | tuple):
        return np.shape(data[0])[-1], None
    return (data.shape[-1], None) if isinstance(data, np.ndarray) else _named(eager_frame(data).columns)


def _named(columns: list[Any]) -> tuple[int, list[str] | None]:
    return len(columns), list(columns) if all(isinstance(name, str) for name in columns) else None
