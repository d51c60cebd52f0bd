"""Scores of held-out cells against loops over those cells; categorical columns are tested with the kinds of columns."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from gpvae import GPVAE, Conformal, DataError, Linear, Mean, Panel, missingness
from gpvae.evaluation import Score, evaluate


@pytest.fixture
def panel(waves: NDArray[np.float64]) -> Panel:
    return Panel.of(waves)


def test_scores_match_a_loop_in_standard_deviations_of_the_visible_values(panel: Panel, tiny: GPVAE) -> None:
    held_out = missingness.random(panel, 0.2, 0)
    result = evaluate(panel, held_out, {"gp-vae": tiny}, level=0.5, samples=20, seed=3)
    (score,) = result.scores
    imputation = result.imputations["gp-vae"]
    visible = missingness.hide(panel, held_out)
    lower, upper = imputation.interval_rows(0.5)
    samples = np.asarray(imputation.samples).reshape(20, *held_out.shape)
    log_density = tiny.log_likelihood(visible, panel.values, samples=20, seed=3)
    found = []
    for i, j in zip(*np.nonzero(held_out), strict=True):
        truth, unit = panel.values[i, j], np.nanstd(visible.values[:, j])
        draws = samples[:, i, j]
        spread = np.abs(draws[:, None] - draws).mean() / 2
        found.append(
            [
                abs(imputation.mean_rows[i, j] - truth) / unit,
                (imputation.mean_rows[i, j] - truth) ** 2 / unit**2,
                (np.abs(draws - truth).mean() - spread) / unit,
                -(log_density[i, j] + np.log(unit)),
                lower[i, j] <= truth <= upper[i, j],
            ]
        )
    expected = np.mean(found, axis=0)
    scored = np.array([score.mae, score.mse, score.crps, score.nll, score.coverage], dtype=float)
    np.testing.assert_allclose(scored, expected, rtol=1e-5)
    assert score.accuracy is None
    assert score.seconds is not None
    assert score.seconds > 0


def test_a_method_without_distribution_has_neither_nll_nor_draws_to_score(panel: Panel) -> None:
    held_out = missingness.random(panel, 0.2, 0)
    point, interval = evaluate(panel, held_out, {"linear": Linear(), "conformal": Conformal(Linear())}).scores
    assert replace(point, seconds=None) == Score("linear", point.mae, point.mse, crps=point.mae)
    assert (interval.mae, interval.crps, interval.nll) == (point.mae, point.mae, None)
    assert interval.coverage == pytest.approx(0.9, abs=0.1)


def test_a_column_that_does_not_vary_is_not_scored(waves: NDArray[np.float64]) -> None:
    waves[..., 1] = 7.0
    panel = Panel.of(waves)
    held_out = missingness.random(panel, 0.2, 0)
    with pytest.warns(UserWarning, match="constant"):
        result = evaluate(panel, held_out, {"mean": Mean()})
    assert np.array_equal(result.cells, held_out & [True, False, True])
    with pytest.raises(DataError, match="no held-out cell lies in a column that varies"):
        evaluate(panel, held_out & [False, True, False], {"mean": Mean()})
