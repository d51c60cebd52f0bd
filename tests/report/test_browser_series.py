"""The series view in a browser: values, zoom, choice of series and columns."""

import math
import re

import numpy as np
import pytest
from browser import Show
from report_examples import (
    fill_by_hand,
    log_normal_imputation,
    panel_with_gaps,
)

from gpvae.imputers import registry

expect = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra `dev`").expect

pytestmark = pytest.mark.slow


def test_choosing_a_series_draws_its_bands(show: Show) -> None:
    opened = show("plain")
    opened.section("series")
    before = opened.named("observed")
    opened.page.locator("#list [role=option]").nth(3).click()
    expect(opened.page.locator("#chosen")).to_contain_text("s3")
    opened.page.wait_for_timeout(200)
    after = opened.named("observed")
    assert after["y"] != before["y"]
    fill = opened.page.locator("#plot .fills path").first
    assert fill.evaluate("path => path.getBBox().height") > 3
    assert float(fill.evaluate("path => getComputedStyle(path).fillOpacity")) > 0
    assert {"90 % band", "50 % band", "sample", "filled", "held-out truth"} <= {
        trace["name"] for trace in opened.traces()
    }


def test_drawn_values_are_the_filled_ones(show: Show) -> None:
    opened = show("plain")
    opened.section("series")
    panel, truth = panel_with_gaps(series=30, steps=50)
    imputation, rows = fill_by_hand(panel, truth), slice(0, 50)
    gaps = ~panel.observed[rows, 0]
    days = np.datetime64("2024-03-01", "ms") + np.arange(50) * np.timedelta64(1, "D")
    shown = opened.named("filled")
    np.testing.assert_array_equal(shown["x"], days[gaps].astype(np.int64))
    np.testing.assert_allclose(shown["y"], imputation.mean_rows[rows, 0][gaps], atol=0.01)
    held = opened.named("held-out truth")
    np.testing.assert_allclose(held["y"], truth[rows, 0][gaps], rtol=1e-6)
    band = opened.named("90 % band")
    lower, upper = imputation.interval_rows(0.9)
    assert min(y for y in band["y"] if y is not None) == pytest.approx(lower[rows, 0].min(), abs=0.25)
    assert max(y for y in band["y"] if y is not None) == pytest.approx(upper[rows, 0].max(), abs=0.25)


def test_positive_values_and_their_labels(show: Show) -> None:
    opened = show("positive")
    opened.section("series")
    imputation, rows = log_normal_imputation(), slice(0, 60)
    gaps = ~imputation.panel.observed[rows, 1]
    mean, (lower, upper) = imputation.mean_rows[rows, 1][gaps], imputation.interval_rows(0.9)
    below, above = lower[rows, 1][gaps], upper[rows, 1][gaps]
    (shown,) = (trace for trace in opened.traces() if trace["name"] == "filled" and trace["yaxis"] == "y2")
    np.testing.assert_allclose(shown["y"], mean, rtol=0.005)
    drawn = [y for trace in opened.traces() if trace["yaxis"] == "y2" for y in trace["y"] if y is not None]
    assert min(drawn) > 0
    labels = opened.page.evaluate(
        "document.getElementById('plot').data.filter(({name}) => name === 'filled').map((each) => each.customdata)[1]"
    )
    numbers = [re.match(r"filled: (.*)<br>50.*<br>90&#37;: (.*) to (.*)", each) for each in labels]
    value, low, high = np.array([[float(x.replace(",", "")) for x in each.groups()] for each in numbers if each]).T
    assert len(value) == len(mean)
    np.testing.assert_allclose(value, mean, rtol=0.05)
    off = 0.04 * np.log(above / below) + 0.45  # labels have one digit where the pack has no more
    assert (np.abs(np.log(low / below)) < off).all()
    assert (np.abs(np.log(high / above)) < off).all()


@pytest.mark.parametrize("method", ["mean", "forward", "linear"])
def test_baselines_match_the_library(show: Show, method: str) -> None:
    opened = show("plain")
    opened.section("series")
    opened.page.select_option("#baseline", method)
    panel, _ = panel_with_gaps(series=30, steps=50)
    expected = registry.method(method).fit(panel).impute(panel).mean_rows[:50, 0]
    np.testing.assert_allclose(opened.named("baseline")["y"], expected, rtol=1e-4, atol=1e-4)


def test_zoom_applies_to_all_columns(show: Show) -> None:
    opened = show("plain")
    opened.section("series")
    assert {trace["yaxis"] for trace in opened.traces()} == {"y", "y2", "y3"}
    whole = opened.range()
    opened.page.get_by_label("Zoom in").click()
    zoomed = opened.range()
    assert zoomed[0] > whole[0]
    assert zoomed[1] < whole[1]
    box = opened.page.locator("#plot .nsewdrag").first.bounding_box()
    opened.page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 20)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 20, steps=4)
    opened.page.mouse.up()
    opened.page.wait_for_timeout(300)
    dragged = opened.range()
    assert dragged[1] - dragged[0] < 0.3 * (zoomed[1] - zoomed[0])
    for trace in opened.traces():  # only what is in view
        assert len(trace["x"]) < 60
    opened.page.get_by_role("button", name="all", exact=True).click()
    assert opened.range() == whole
    assert opened.messages == []


def test_long_series_is_thinned_but_keeps_extremes(show: Show) -> None:
    opened = show("long")
    opened.section("series")
    assert "of 60,000 steps are shown, those with the most gaps" in opened.page.inner_text("#seen")
    opened.page.get_by_role("button", name="all", exact=True).click()
    seen = opened.named("observed")
    assert len(seen["x"]) <= 720
    assert max(seen["y"]) == 40.0
    assert "extremes of 360 bins" in opened.page.inner_text("#seen")
    took = opened.page.evaluate(
        """async () => {
            const button = document.querySelector('[data-zoom=in]'), before = performance.now();
            for (let i = 0; i < 5; i++) { button.click(); await new Promise((done) => requestAnimationFrame(done)); }
            return performance.now() - before;
        }"""
    )
    assert took < 5000
    assert opened.messages == []


def test_series_that_is_too_long_shows_its_beginning(show: Show) -> None:
    opened = show("cut")
    opened.section("series")
    assert "50 steps (only the first 25 are included, to keep the file small)" in opened.page.inner_text("#chosen")
    panel, _ = panel_with_gaps(series=30, steps=50)
    shown = np.concatenate([opened.named(name)["x"] for name in ("observed", "filled")])
    assert len(shown) == 25
    np.testing.assert_allclose(opened.named("observed")["y"], panel.values[:25, 0][panel.observed[:25, 0]], rtol=1e-6)
    assert opened.messages == []


def test_search_and_sort_ten_thousand_series(show: Show) -> None:
    opened = show("many")
    opened.section("series")
    rows = opened.page.locator("#list [role=option]")
    assert rows.count() < 40
    assert opened.page.inner_text("#count") == "10,000 of 10,000 series"
    opened.page.fill("#search", "S9876")
    assert rows.count() == 1
    rows.first.click()
    expect(opened.page.locator("#chosen")).to_contain_text("s9876")
    opened.page.fill("#search", "")
    opened.page.select_option("#sort", "missing")
    panel, _ = panel_with_gaps(series=10_000, steps=4, columns=("a", "b"))
    most = (~panel.observed).reshape(10_000, -1).mean(axis=1).max()
    assert f"{100 * most:.0f} % missing" in rows.first.inner_text()
    opened.page.select_option("#sort", "uncertainty")
    assert rows.first.inner_text() != rows.nth(5).inner_text()
    opened.page.locator("#list").focus()
    opened.page.keyboard.press("End")
    opened.page.wait_for_timeout(200)
    assert opened.page.locator("[role=option][aria-selected=true]").count() == 1
    assert rows.count() < 40
    assert opened.messages == []


def test_choosing_columns(show: Show) -> None:
    opened = show("plain")
    opened.section("series")
    opened.page.locator("#columns summary").click()
    opened.page.locator("#column-list").get_by_label("b").uncheck()
    assert {trace["yaxis"] for trace in opened.traces()} == {"y", "y2"}
    assert opened.page.inner_text("#columns summary") == "Columns: 2 of 3"
    opened.page.fill("#column-search", "c")
    assert opened.page.locator("#column-list label").count() == 1
    opened.page.keyboard.press("Escape")
    assert not opened.page.locator("#column-search").is_visible()


def test_column_never_observed_is_annotated(show: Show) -> None:
    opened = show("uneven")
    opened.section("series")
    opened.traces()
    assert "never observed, stays missing" in opened.page.locator("#plot .annotation-text").all_text_contents()


def test_classes_have_labels(show: Show) -> None:
    opened = show("classes")
    opened.section("series")
    opened.traces()
    assert {"clear", "rain"} <= {*opened.page.locator("#plot .ytick").all_text_contents()}
    counts = [trace for trace in opened.traces() if trace["name"] == "filled" and trace["yaxis"] == "y2"]
    assert all(math.isclose(value, round(value)) for value in counts[0]["y"])
