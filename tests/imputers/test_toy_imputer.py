"""A new method is one file and one entry: `ToyMedian` below costs 10 lines of class and 1 of registry.

With those, it is found by name, fills, is saved and loaded.
"""

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import DataError, load
from gpvae.data.panel import Bools, Panel
from gpvae.data.schema import Schema
from gpvae.imputers import registry
from gpvae.imputers.base import Imputer, Prediction
from gpvae.imputers.registry import METHODS, MethodInfo, method

Array = NDArray[Any]


@dataclass(eq=False, repr=False)
class ToyMedian(Imputer):
    offset: float = 0.0

    def fit(self, data: Any, y: None = None, **_: Any) -> Self:
        self.schema_, self.history_ = self._new_schema(self._read(data)), []
        return self

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=True)

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        return Prediction((np.nanmedian(panel.values, axis=0) + self.offset)[np.nonzero(missing)[1]])


ENTRY = MethodInfo("the median of the column", f"{__name__}:ToyMedian", takes=())


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "METHODS", MappingProxyType({**METHODS, "median": ENTRY}))


@pytest.mark.usefixtures("registered")
def test_a_new_imputer_is_one_class_and_one_entry(waves: Array, tmp_path: Path) -> None:
    imputer = method("median", offset=2.0, epochs=3)
    filled = imputer.fit(waves).impute(waves)
    gaps = np.isnan(waves)
    expected = np.broadcast_to(np.nanmedian(waves, axis=(0, 1)) + 2, waves.shape)
    np.testing.assert_array_equal(filled.mean, np.where(gaps, expected, waves))
    with pytest.raises(DataError, match="ToyMedian gives single values, without intervals"):
        filled.interval(0.9)
    imputer.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert isinstance(loaded, ToyMedian)
    assert loaded.offset == 2.0
    assert np.array_equal(loaded.impute(waves).mean, filled.mean)


def test_an_imputer_without_an_entry_has_no_name() -> None:
    with pytest.raises(ValueError, match="there is no method 'median'"):
        method("median")
