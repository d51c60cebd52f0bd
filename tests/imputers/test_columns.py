"""New data and the columns that a model was fitted on: others are refused, named or left alone."""

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from gpvae import GPVAE, DataError, Panel

Array = NDArray[Any]


@pytest.fixture
def frame(waves: Array) -> pd.DataFrame:
    return pd.DataFrame(waves[0], columns=["a", "b", "c"])


def test_columns_that_the_data_lacks_are_named(tiny: GPVAE, frame: pd.DataFrame) -> None:
    tiny.fit(frame)
    with pytest.raises(DataError, match="fitted on the columns a, b, c; the data lacks b"):
        tiny.impute(frame[["a", "c"]])


def test_columns_may_come_in_another_order(tiny: GPVAE, frame: pd.DataFrame) -> None:
    tiny.fit(frame)
    backwards = frame[["c", "b", "a"]]
    swapped = tiny.impute(backwards, samples=2)
    assert list(swapped.to_frame().columns) == ["c", "b", "a"]
    assert np.array_equal(swapped.mean, tiny.impute(frame, samples=2).mean[:, ::-1])
    truth = np.nan_to_num(frame.to_numpy())
    density = tiny.log_likelihood(frame, truth, samples=3)
    assert np.array_equal(tiny.log_likelihood(backwards, truth[:, ::-1], samples=3), density[:, ::-1], equal_nan=True)


def test_columns_that_the_model_does_not_know_are_left_alone(tiny: GPVAE, frame: pd.DataFrame) -> None:
    tiny.fit(frame)
    with pytest.warns(UserWarning, match="column 'd' was not among .* GPVAE was fitted on and is left unchanged"):
        wider = tiny.impute(frame.assign(d=np.nan), samples=2).to_frame()
    assert wider["d"].isna().all()


def test_times_must_be_of_the_same_sort(tiny: GPVAE, frame: pd.DataFrame) -> None:
    dated = frame.assign(day=pd.date_range("2020-01-01", periods=30))
    with pytest.raises(DataError, match="fitted on times given as numbers, the data has datetimes"):
        tiny.fit(frame).impute(dated)


def test_frame_is_read_like_the_one_fitted_on(tiny: GPVAE, waves: Array) -> None:
    frame = pd.DataFrame(waves.reshape(-1, 3), columns=["a", "b", "c"]).assign(who=np.repeat(range(12), 30))
    tiny.fit(Panel.from_frame(frame, id="who"))
    for kind in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        assert len(tiny.impute(kind, samples=2).panel) == 12
    assert repr(tiny.impute(frame, samples=2)).startswith("Imputation(")
    assert repr(Panel.of(waves)) == f"Panel(12 series, 360 steps, 3 columns, {np.isnan(waves).mean():.1%} missing)"


def test_arrays_must_have_the_width_that_the_model_knows(tiny: GPVAE, waves: Array) -> None:
    tiny.fit(waves)
    with pytest.raises(DataError, match="fitted on 3 columns, the data has 5"):
        tiny.impute(np.concatenate([waves, waves[..., :2]], axis=-1))
