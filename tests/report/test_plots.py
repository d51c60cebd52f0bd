"""Static plots."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from report_examples import (
    fill_by_hand,
    imputation_of_images,
    panel_with_gaps,
)

from gpvae import (
    Conformal,
    DataError,
    Linear,
    Mean,
)
from gpvae.evaluation import evaluate
from gpvae.missingness import random
from gpvae.report import plot_calibration, plot_missingness, plot_reconstructions, plot_series


def test_plot_series_over_dates() -> None:
    panel, truth = panel_with_gaps()
    figure = plot_series(fill_by_hand(panel, truth), "s1", columns=["b"], truth=truth)
    (axis,) = figure.axes
    assert [line.get_label() for line in axis.get_lines()][:2] == ["observed", "filled"]
    first = np.asarray(axis.get_lines()[0].get_xdata())[0]
    assert first == np.datetime64("2024-03-01")
    assert any(isinstance(each, PolyCollection) for each in axis.collections)
    with pytest.raises(DataError, match="unknown series 's9'"):
        plot_series(fill_by_hand(panel, truth), "s9")


def test_plot_series_rejects_rows_outside_the_series() -> None:
    panel, truth = panel_with_gaps()
    with pytest.raises(DataError, match="the series has 40 steps"):
        plot_series(fill_by_hand(panel, truth), rows=slice(900, 1000))


def test_plot_series_labels_categories() -> None:
    panel, truth = panel_with_gaps()
    named = replace(panel, values=np.round(panel.values % 2), labels={"b": ("dry", "wet", "white")})
    shown = replace(fill_by_hand(panel, truth), panel=named)
    first, second, _ = plot_series(shown).axes
    assert [each.get_text() for each in second.get_yticklabels()] == ["dry", "wet", "white"]
    assert "dry" not in [each.get_text() for each in first.get_yticklabels()]
    assert [[line.get_linestyle() for line in axis.get_lines()] for axis in (first, second)] == [
        ["None", "-", "None"],
        ["None", "None"],  # nothing lies between two categories
    ]
    legend = plot_series(shown, columns=["b", "a"]).legends[0]
    assert [each.get_text() for each in legend.get_texts()] == ["observed", "filled", "interval"]


def test_plot_series_of_single_values() -> None:
    panel, _ = panel_with_gaps()
    (axis, *_) = plot_series(Linear().fit(panel).impute(panel)).axes
    assert axis.get_title(loc="left") == "filled gaps"


def test_plot_calibration() -> None:
    panel, truth = panel_with_gaps()
    whole = panel.with_values(truth)
    methods = {"mean": Mean(), "a": Conformal(Linear()), "b": Conformal(Mean())}
    (axis,) = plot_calibration(evaluate(whole, random(whole, 0.2, 0), methods)).axes
    _, labels = axis.get_legend_handles_labels()
    assert labels == ["ideal", "a", "b"]
    with pytest.raises(DataError, match="cannot plot calibration: The imputer is not available"):
        plot_calibration(fill_by_hand(panel, truth))


def test_plot_missingness() -> None:
    panel, truth = panel_with_gaps()
    axis = plot_missingness(fill_by_hand(panel, truth)).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a", "b", "c"]
    gaps = ~panel.observed.reshape(3, 40, 3)
    np.testing.assert_allclose(np.asarray(axis.images[0].get_array()), gaps.mean(axis=0).T, atol=1e-3)


def test_plot_reconstructions() -> None:
    imputation, truth = imputation_of_images()
    (axis,) = plot_reconstructions(imputation, truth=truth, frames=4).axes
    assert [label.get_text() for label in axis.get_yticklabels()] == ["truth", "input", "filled", "uncertainty"]
    panel, whole = panel_with_gaps()
    with pytest.raises(DataError, match=r"image_shape \(channel, height, width\) is needed"):
        plot_reconstructions(fill_by_hand(panel, whole))
