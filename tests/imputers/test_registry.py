"""The registry: every method is in the contract tests, and can do what its entry says."""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from battery import IMPUTERS
from numpy.typing import NDArray

from gpvae import GPVAE, DataError, Forward, Panel, Recipe
from gpvae.imputers.neural import NeuralImputer
from gpvae.imputers.registry import METHODS, SETTINGS, method

Array = NDArray[Any]


def test_every_method_is_in_the_contract_tests() -> None:
    assert METHODS.keys() <= IMPUTERS.keys()
    for name in METHODS:
        assert type(method(name, epochs=3, device="cpu")) is type(IMPUTERS[name]())


def test_methods_by_name() -> None:
    assert cast(Forward, method("forward", before="first", epochs=3)).before == "first"
    gpvae = cast(GPVAE, method("gp-vae", epochs=3, recipe=Recipe(window=9)))
    assert (gpvae.epochs, gpvae.recipe.window) == (3, 9)
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        method("mean", colour="red")
    with pytest.raises(ValueError, match="there is no method 'magic'; there are mean, forward"):
        method("magic")


@pytest.mark.parametrize("name", METHODS)
def test_methods_take_the_settings_that_they_list(name: str) -> None:
    imputer = method(name, **dict.fromkeys(["minutes"]))
    assert METHODS[name].trained == isinstance(imputer, NeuralImputer)
    assert {*METHODS[name].takes} == {*SETTINGS} & imputer.get_params().keys()


@pytest.mark.parametrize("name", METHODS)
def test_methods_with_distributions_give_draws(name: str, waves: Array) -> None:
    imputer = IMPUTERS[name]().fit(waves)
    result = imputer.impute(waves, samples=20)
    assert imputer.gives_distributions == METHODS[name].distributions
    assert (result.draws is not None) == result.has_intervals == METHODS[name].distributions


@pytest.mark.parametrize("name", METHODS)
def test_methods_with_kinds_fill_counts_with_whole_numbers(name: str) -> None:
    rng = np.random.default_rng(0)
    counts = np.where(rng.random((8, 20, 1)) < 0.3, np.nan, rng.poisson(2.5, (8, 20, 1)))
    counts[0, 0] = np.nan  # nothing before it to carry forward
    panel = Panel.from_array(np.concatenate([counts, rng.normal(size=(8, 20, 1))], axis=-1))
    imputer = IMPUTERS[name]()
    if "kinds" in imputer.get_params():
        imputer.set_params(kinds={"x0": "count"})
    filled = imputer.fit(panel).impute(panel, samples=20).mean[..., 0]
    assert (filled == np.rint(filled)).all() == (METHODS[name].kinds or METHODS[name].numbers)


@pytest.mark.parametrize("name", METHODS)
def test_causal_methods_fill_from_the_past_alone_and_others_refuse(name: str, waves: Array) -> None:
    imputer, later = IMPUTERS[name]().fit(waves), waves.copy()
    later[:, 20:] = np.roll(waves[:, 20:], 1, axis=0) + 3
    if not METHODS[name].causal:
        with pytest.raises(DataError, match=r"does not fill from the past alone; methods that do: forward, gp-factor"):
            imputer.impute(waves, samples=2, causal=True)
        return
    before, after = (imputer.impute(each, samples=2, causal=True).mean[:, :20] for each in (waves, later))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert np.isfinite(before).all()


def weather() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    sky = rng.choice(["dry", "wet", "ice"], 90).astype(object)
    sky[rng.random(90) < 0.2] = None
    return pd.DataFrame({"x": rng.normal(size=90), "sky": sky})


@pytest.mark.parametrize("name", METHODS)
def test_methods_with_categories_fill_text(name: str) -> None:
    frame, imputer = weather(), IMPUTERS[name]()
    panel = Panel.from_frame(frame, categories=["sky"])
    if METHODS[name].categories:
        filled = imputer.fit(panel).impute(panel, samples=20).to_frame()["sky"]
        assert {*filled} == {"dry", "wet", "ice"}
        assert filled[frame["sky"].notna()].equals(frame["sky"].dropna())
        return
    message = rf"{imputer.name} fills only numbers and leaves 'sky' unchanged; mean, .* and gp-vae fill categories"
    for data in (panel, frame):
        with pytest.warns(UserWarning, match=message):
            imputer.fit(data)
        filled = imputer.impute(data, samples=20).to_frame()["sky"]  # without another warning
        assert filled.equals(frame["sky"])
