"""A transformer of sktime that fills gaps. Needs sktime: `pip install 'gpvae[sktime]'`."""

from typing import Any, ClassVar, Self, cast

import pandas as pd
from sklearn.base import clone
from sktime.transformations.base import BaseTransformer  # pyright: ignore[reportMissingImports]

from gpvae import GPNet, Imputer, Linear, Mean


class GapFiller(BaseTransformer):
    """Fill the gaps of a series, a panel or a hierarchy by an imputer of this library.

    >>> from gpvae import Linear
    >>> from gpvae.adapters.sktime import GapFiller
    >>> from sktime.datasets import load_airline
    >>> y = load_airline()
    >>> y.iloc[10:13] = float("nan")
    >>> filled = GapFiller(Linear()).fit_transform(y)
    >>> int(filled.isna().sum())
    0

    Before a forecaster: `GapFiller() * NaiveForecaster()`. The series of a panel or hierarchy share one model. A column
    that has no value at all is filled as the imputer does it, or stays missing.

    imputer: any imputer of gpvae; None: `gpvae.GPNet()`.
    """

    _tags: ClassVar = {
        "authors": ["gpvae"],
        "maintainers": ["gpvae"],
        "python_dependencies": ["gpvae"],
        "scitype:transform-input": "Series",
        "scitype:transform-output": "Series",
        "scitype:instancewise": False,  # series share one model
        "skip-inverse-transform": True,
        "X_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
        "y_inner_mtype": "None",
        "fit_is_empty": False,
        "transform-returns-same-time-index": True,
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:missing_values:removes": True,
        "capability:categorical_in_X": False,
    }

    def __init__(self, imputer: Imputer | None = None):
        self.imputer = imputer
        super().__init__()

    def _fit(self, X: pd.DataFrame, y: Any = None) -> Self:  # noqa: N803
        self.imputer_ = GPNet() if self.imputer is None else cast(Imputer, clone(self.imputer))
        self.imputer_.fit(_with_times(X))
        return self

    def _transform(self, X: pd.DataFrame, y: Any = None) -> pd.DataFrame:  # noqa: N803
        return self.imputer_.impute(_with_times(X)).to_frame().set_axis(X.index, axis=0)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Small settings for sktime's own tests."""
        return [{"imputer": Linear()}, {"imputer": Mean()}]


def _with_times(frame: pd.DataFrame) -> pd.DataFrame:
    """One series as a panel of one: whole numbers in its index are times then, too."""
    if isinstance(frame.index, pd.MultiIndex):
        return frame
    return frame.set_axis(pd.MultiIndex.from_arrays([[0] * len(frame), frame.index]), axis=0)
