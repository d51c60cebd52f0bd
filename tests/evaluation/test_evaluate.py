"""`gpvae.evaluate`: from a table, an array or a dict to a comparison in one line."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.typing import NDArray

import gpvae
from gpvae import Conformal, DataError, Linear, Mean, Panel, missingness
from gpvae.evaluation.held_out import Evaluation
from gpvae.imputers import registry

METHODS = ["mean", Linear()]
Array = NDArray[np.float64]


def table(who: str = "u") -> pd.DataFrame:
    steps = np.arange(60)
    return pd.DataFrame({"who": who, "when": steps, "x": np.sin(steps / 4), "y": np.cos(steps / 4) * 5})


def scores(result: Evaluation) -> list[Any]:
    return [replace(score, seconds=None) for score in result.scores]


def test_a_share_is_hidden_as_by_hand() -> None:
    panel = Panel.from_frame(table(), time="when")
    by_hand = gpvae.evaluate(panel, missingness.blocks(panel, 0.2, 5), {"mean": Mean(), "Linear": Linear()}, seed=5)
    assert scores(gpvae.evaluate(table(), 0.2, METHODS, gaps="blocks", time="when", seed=5)) == scores(by_hand)


def test_series_and_times_are_named() -> None:
    both = pd.concat([table("u"), table("v")]).sample(frac=1, random_state=0)
    result = gpvae.evaluate(both, methods=METHODS, id="who", time="when")
    assert sorted(result.panel.ids) == ["u", "v"]
    assert len(gpvae.evaluate(table(), methods=METHODS).panel) == 1


def test_cells_in_the_shape_of_the_array(waves: Array) -> None:
    cells = np.random.default_rng(0).random(waves.shape) < 0.1
    result = gpvae.evaluate(waves, cells, METHODS)
    panel = Panel.of(waves)
    assert np.array_equal(result.cells, cells.reshape(panel.values.shape) & panel.observed)
    with pytest.raises(DataError, match=r"held_out has shape \(12, 30\), the data's panel \(360, 3\)"):
        gpvae.evaluate(waves, cells[..., 0], METHODS)


def test_sets_of_pypots_say_themselves_what_is_hidden(waves: Array) -> None:
    cells = (np.random.default_rng(0).random(waves.shape) < 0.1) & ~np.isnan(waves)
    result = gpvae.evaluate({"X": np.where(cells, np.nan, waves), "X_ori": waves}, methods=METHODS)
    assert scores(result) == scores(gpvae.evaluate(waves, cells, METHODS))
    with pytest.raises(DataError, match="must have the arrays 'X' and 'X_ori', got 'X'"):
        gpvae.evaluate({"X": waves})
    with pytest.raises(DataError, match="'X' has"):
        gpvae.evaluate({"X": waves[1:], "X_ori": waves})


def test_categories_are_those_of_the_methods() -> None:
    frame = table().assign(side=np.where(np.arange(60) % 20 < 10, "left", "right"))
    kinds = {"side": "categorical"}
    result = gpvae.evaluate(frame, 0.2, {"linear": Linear(kinds=kinds), "mean": Mean(kinds=kinds)}, time="when")
    accuracy = [score.accuracy for score in result.scores]
    assert accuracy[0] is not None
    assert accuracy[1] is not None
    assert accuracy[0] > 0.8 > accuracy[1]


def test_the_default_compares_the_same_methods_as_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(registry, "method", lambda name, **_: (built.append(name), Linear())[1])
    result = gpvae.evaluate(table(), time="when")
    assert tuple(built) == registry.COMPARED == tuple(score.method for score in result.scores)


def test_mistakes_are_named() -> None:
    with pytest.raises(DataError, match="gaps must be one of random, temporal"):
        gpvae.evaluate(table(), gaps="spatial")
    with pytest.raises(DataError, match="two methods named 'Linear'"):
        gpvae.evaluate(table(), methods=[Linear(), Linear()])
    with pytest.raises(ValueError, match="there is no method 'linaer'"):
        gpvae.evaluate(table(), methods=["linaer"])


@pytest.mark.parametrize("make", [lambda frame: frame, pl.from_pandas], ids=["pandas", "polars"])
def test_the_result_is_a_frame_like_the_data(make: Any) -> None:
    data = make(table())
    result = gpvae.evaluate(data, methods=["mean", Conformal(Linear())], time="when")
    frame = result.to_frame()
    assert type(frame) is type(data)
    assert list(frame["method"]) == ["mean", "Conformal(Linear)"]
    assert list(frame["mae"]) == [score.mae for score in result.scores]
    assert np.isnan(np.array(frame["coverage"])).tolist() == [True, False]
    assert gpvae.evaluate(table()[["x"]].to_numpy(), methods=["mean"]).to_frame()["method"].tolist() == ["mean"]


def test_the_result_is_shown_as_a_table() -> None:
    result = gpvae.evaluate(table(), methods=["mean", "linear"], time="when")
    heading, names, *rows = repr(result).splitlines()
    assert heading == "12 hidden cells, errors in standard deviations"
    assert names.split() == ["mae", "mse", "crps", "seconds"]  # neither has intervals
    assert [row.split()[:2] for row in rows] == [[s.method, f"{s.mae:.3f}"] for s in result.scores]
    assert len({len(line) for line in [names, *rows]}) == 1
    assert result._repr_html_().count("<tr>") == 3
