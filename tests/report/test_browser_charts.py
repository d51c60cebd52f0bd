"""The other charts in a browser."""

import numpy as np
import pytest
from browser import DESKTOP, PHONE, Show
from report_examples import imputation_of_images

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("screen", [DESKTOP, PHONE])
def test_influence_shows_only_columns_that_vary(show: Show, screen: dict[str, int]) -> None:
    opened = show("uneven", viewport=screen)
    opened.section("latent")
    opened.page.wait_for_selector("#influence .main-svg", state="attached")
    shown = opened.page.evaluate(
        """() => { const {data, layout} = document.getElementById('influence');
                   return [layout.xaxis.ticktext, data[0].z[0].length, data[0].texttemplate]; }"""
    )
    assert shown == [["a", "b"], 2, "%{z:.2f}" if screen is DESKTOP else ""]
    assert "Not shown: still, never" in opened.page.inner_text("#influence + figcaption")


INFLUENCE = """() => { const {data, layout} = document.getElementById('influence');
                       return [layout.xaxis.ticktext, layout.yaxis.ticktext, data[0].texttemplate, data[0].z]; }"""


def test_shares_of_columns_are_percentages_that_add_up(show: Show) -> None:
    opened = show("factors")
    opened.section("latent")
    opened.page.wait_for_selector("#influence .main-svg", state="attached")
    columns, rows, text, shares = opened.page.evaluate(INFLUENCE)
    assert (columns, text) == (["a", "b", "c"], "%{z:.0%}")
    assert "latent 1, daily" in rows
    assert rows[-2:] == ["own process", "noise"]
    np.testing.assert_allclose(np.sum(shares, axis=0), 1, atol=1e-4)
    note = opened.page.inner_text("#latent-note")
    assert "Latent 1: a daily pattern." in note
    assert opened.page.locator("#latent-count").count() == 0  # there are not more than six
    assert len(opened.traces("trajectories")) == 2 * (len(rows) - 2)  # a line and its band for each


def test_without_latent_series_only_shares_are_shown(show: Show) -> None:
    opened = show("noise")
    opened.section("latent")
    opened.page.wait_for_selector("#influence .main-svg", state="attached")
    columns, rows, _, _ = opened.page.evaluate(INFLUENCE)
    assert (columns, rows) == (["a", "b", "c"], ["own process", "noise"])
    assert opened.page.locator("#trajectories").count() == 0


def test_axes_of_series_and_epochs_have_integer_ticks(show: Show) -> None:
    opened = show("uneven")
    ticks = "#{} .xaxislayer-above .xtick text"
    opened.section("training")
    opened.page.wait_for_selector("#history .main-svg", state="attached")
    assert {*opened.page.locator(ticks.format("history")).all_text_contents()} == {"1", "2", "3"}
    opened.section("overview")
    opened.page.wait_for_selector("#map-series .main-svg", state="attached")
    assert {*opened.page.locator(ticks.format("map-series")).all_text_contents()} == {"s0", "s1", "s2", "s3"}


def test_frames_of_images(show: Show) -> None:
    opened = show("images")
    opened.section("images")
    labels = opened.page.locator("#frames span").all_inner_texts()
    assert labels == ["truth", "input", "filled", "uncertainty"]
    assert opened.page.locator("#frames canvas").count() == 4
    imputation, _ = imputation_of_images()
    pixels = opened.page.evaluate(
        """() => {
            const canvas = document.querySelectorAll('#frames canvas')[1];
            return [...canvas.getContext('2d').getImageData(0, 0, 4, 3).data];
        }"""
    )
    blue = np.array(pixels).reshape(3, 4, 4)[..., :3]
    missing = np.isnan(imputation.panel.values[0]).reshape(3, 4)
    np.testing.assert_array_equal((blue == [143, 184, 222]).all(axis=-1), missing)
