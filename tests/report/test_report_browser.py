"""The report in a real browser: Chromium, without a window."""

import math
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reporting import HOSTILE, filled, gappy, log_normal
from test_report import classes, images, uneven

from gpvae import Imputation, Linear, Panel
from gpvae.report.page import Report
from gpvae.report.summary import summarise
from gpvae.report.trust import Evidence

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

if not CHROMIUM:
    pytest.skip("there is no chromium here: `apt-get install chromium` (make test tries to)", allow_module_level=True)
sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra `dev`")

Show = Callable[..., "Opened"]
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


class Opened:
    """A page, and what it complained of."""

    def __init__(self, browser: Any, path: Path, **look: Any):
        self.context = browser.new_context(**{"viewport": DESKTOP, **look})
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self._require_local(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def _require_local(self, url: str) -> None:
        if not url.startswith(("file:", "blob:", "data:")):
            self.complaints.append(f"asked for {url}")

    def section(self, name: str) -> Any:
        self.page.evaluate("id => document.getElementById(id).scrollIntoView({behavior: 'instant'})", name)
        self.page.wait_for_timeout(150)
        return self.page.locator(f"#{name}")

    def traces(self, chart: str = "plot") -> list[dict[str, Any]]:
        self.page.wait_for_selector(f"#{chart} .main-svg", state="attached")
        pick = "traces => traces.map(({name, x, y, yaxis}) => ({name, x: [...x], y: [...y], yaxis}))"
        return self.page.evaluate(f"({pick})(document.getElementById('{chart}').data)")

    def named(self, name: str) -> dict[str, Any]:
        return next(trace for trace in self.traces() if trace["name"] == name)

    def range(self, axis: str = "xaxis") -> list[Any]:
        return self.page.evaluate(f"document.getElementById('plot').layout.{axis}.range")

    def all_sections(self) -> None:
        for name in self.page.eval_on_selector_all("section", "all => all.map(each => each.id)"):
            self.section(name)


@pytest.fixture
def show(browser: Any, pages: dict[str, Path]) -> Iterator[Show]:
    """Open a page by its name; it is closed behind the test."""
    shown: list[Opened] = []

    def one(name: str, **look: Any) -> Opened:
        shown.append(Opened(browser, pages[name], **look))
        return shown[-1]

    yield one
    for each in shown:
        each.context.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    panel, truth = gappy(series=30, steps=50)
    imputation = filled(panel, truth)
    evidence = Evidence(imputation, truth, ~panel.observed, {"linear": Linear().fit(panel).impute(panel)})
    hostile_panel, hostile_truth = gappy(columns=(HOSTILE, "b"))
    hostile = replace(filled(replace(hostile_panel, ids=(HOSTILE, "s1", "s2")), hostile_truth), method=HOSTILE)
    hostile_evidence = Evidence(hostile, hostile_truth, ~hostile_panel.observed, {HOSTILE: hostile})
    steps = 60_000
    lost = np.random.default_rng(0).random((steps, 2)) < 0.2
    wave = np.sin(np.arange(steps)[:, None] / 50) + np.array([0.0, 5.0])
    wave[31_234, 0] = 40.0  # one value among many
    lost[31_234, 0] = False
    long = filled(Panel.from_array(np.where(lost, np.nan, wave)), wave, samples=20)
    pictures, frames = images()
    summaries = {
        "plain": summarise(imputation, evidence=evidence, truth=truth, held_out=~panel.observed),
        "hostile": summarise(hostile, evidence=hostile_evidence, truth=hostile_truth, held_out=~hostile_panel.observed),
        "long": summarise(long, evidence="none"),
        "images": summarise(pictures, evidence="none", truth=frames, held_out=~pictures.panel.observed),
        "classes": summarise(classes(), evidence="none"),
        "many": summarise(_many(), evidence="none"),
        "uneven": uneven(),
        "nothing": summarise(filled(panel.with_values(truth), truth), evidence="none"),
        "positive": summarise(log_normal(), evidence="none"),
        "single": summarise(Linear().fit(panel).impute(panel), evidence="none"),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gpvae.report.summary.CELLS_KEPT", 75)
        summaries["cut"] = summarise(imputation, evidence="none")
    for name, summary in summaries.items():
        Report(summary).written(folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in summaries}


def _many() -> Imputation:
    panel, truth = gappy(series=10_000, steps=4, columns=("a", "b"))
    return filled(panel, truth, samples=20)


def test_everything_is_shown_without_a_complaint(show: Show, pages: dict[str, Path]) -> None:
    for name in pages:
        opened = show(name)
        opened.all_sections()
        assert opened.complaints == [], name
        drawn = opened.page.eval_on_selector_all(".chart", "all => all.filter(each => !each.data).map(each => each.id)")
        assert [each for each in drawn if each != "trajectories"] == [], name


@pytest.mark.parametrize("screen", [DESKTOP, PHONE])
@pytest.mark.parametrize("section", ["Trust", "Latent space", "Training"])
def test_a_section_that_is_jumped_to_lies_under_the_navigation(
    show: Show, screen: dict[str, int], section: str
) -> None:
    opened = show("uneven", viewport=screen)
    opened.page.get_by_role("link", name=section).click()
    opened.page.wait_for_timeout(2000)
    edge, top = opened.page.evaluate(
        """id => [document.querySelector('.top').getBoundingClientRect().bottom,
                  document.getElementById(id).getBoundingClientRect().top]""",
        section.split()[0].lower(),
    )
    assert 0 <= top - edge < 30


@pytest.mark.parametrize("screen", [DESKTOP, PHONE])
def test_what_latents_drive_has_only_columns_that_vary(show: Show, screen: dict[str, int]) -> None:
    opened = show("uneven", viewport=screen)
    opened.section("latent")
    opened.page.wait_for_selector("#influence .main-svg", state="attached")
    shown = opened.page.evaluate(
        """() => { const {data, layout} = document.getElementById('influence');
                   return [layout.xaxis.ticktext, data[0].z[0].length, data[0].texttemplate]; }"""
    )
    assert shown == [["a", "b"], 2, "%{z:.2f}" if screen is DESKTOP else ""]
    assert "Not shown: still, never" in opened.page.inner_text("#influence + figcaption")


def test_axes_of_series_and_epochs_have_whole_numbers(show: Show) -> None:
    opened = show("uneven")
    ticks = "#{} .xaxislayer-above .xtick text"
    opened.section("training")
    opened.page.wait_for_selector("#history .main-svg", state="attached")
    assert {*opened.page.locator(ticks.format("history")).all_text_contents()} == {"1", "2", "3"}
    opened.section("overview")
    opened.page.wait_for_selector("#map-series .main-svg", state="attached")
    assert {*opened.page.locator(ticks.format("map-series")).all_text_contents()} == {"s0", "s1", "s2", "s3"}


def test_a_column_never_observed_says_so(show: Show) -> None:
    opened = show("uneven")
    opened.section("series")
    opened.traces()
    assert "never observed: stays missing" in opened.page.locator("#plot .annotation-text").all_text_contents()


def test_on_paper_every_chart_is_drawn(show: Show) -> None:
    opened = show("uneven")
    opened.page.pdf()
    assert opened.page.eval_on_selector_all(".chart", "all => all.filter(each => !each.data).length") == 0
    assert opened.complaints == []


def test_a_series_is_chosen_and_its_band_is_seen(show: Show) -> None:
    opened = show("plain")
    opened.section("series")
    before = opened.named("observed")
    opened.page.locator("#list [role=option]").nth(3).click()
    sync_api.expect(opened.page.locator("#chosen")).to_contain_text("s3")
    opened.page.wait_for_timeout(200)
    after = opened.named("observed")
    assert after["y"] != before["y"]
    fill = opened.page.locator("#plot .fills path").first
    assert fill.evaluate("path => path.getBBox().height") > 3
    assert float(fill.evaluate("path => getComputedStyle(path).fillOpacity")) > 0
    assert {"90 % band", "50 % band", "sample", "filled", "held-out truth"} <= {
        trace["name"] for trace in opened.traces()
    }


def test_what_is_drawn_is_what_was_filled_in(show: Show) -> None:
    opened = show("plain")
    opened.section("series")
    panel, truth = gappy(series=30, steps=50)
    imputation, rows = filled(panel, truth), slice(0, 50)
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


def test_positive_values_are_drawn_and_named_as_they_are(show: Show) -> None:
    opened = show("positive")
    opened.section("series")
    imputation, rows = log_normal(), slice(0, 60)
    gaps = ~imputation.panel.observed[rows, 1]
    mean, (lower, upper) = imputation.mean_rows[rows, 1][gaps], imputation.interval_rows(0.9)
    below, above = lower[rows, 1][gaps], upper[rows, 1][gaps]
    (shown,) = (trace for trace in opened.traces() if trace["name"] == "filled" and trace["yaxis"] == "y2")
    np.testing.assert_allclose(shown["y"], mean, rtol=0.005)
    drawn = [y for trace in opened.traces() if trace["yaxis"] == "y2" for y in trace["y"] if y is not None]
    assert min(drawn) > 0
    told = opened.page.evaluate(
        "document.getElementById('plot').data.filter(({name}) => name === 'filled').map((each) => each.customdata)[1]"
    )
    numbers = [re.match(r"filled: (.*)<br>50.*<br>90&#37;: (.*) to (.*)", each) for each in told]
    value, low, high = np.array([[float(x.replace(",", "")) for x in each.groups()] for each in numbers if each]).T
    assert len(value) == len(mean)
    np.testing.assert_allclose(value, mean, rtol=0.05)
    off = 0.04 * np.log(above / below) + 0.45  # said with one digit where no more is kept
    assert (np.abs(np.log(low / below)) < off).all()
    assert (np.abs(np.log(high / above)) < off).all()


@pytest.mark.parametrize("method", ["mean", "forward", "linear"])
def test_baselines_are_those_of_the_library(show: Show, method: str) -> None:
    from gpvae.imputers import registry as methods

    opened = show("plain")
    opened.section("series")
    opened.page.select_option("#baseline", method)
    panel, _ = gappy(series=30, steps=50)
    expected = methods.method(method).fit(panel).impute(panel).mean_rows[:50, 0]
    np.testing.assert_allclose(opened.named("baseline")["y"], expected, rtol=1e-4, atol=1e-4)


def test_zoom_moves_all_columns_together(show: Show) -> None:
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
    for trace in opened.traces():  # of every column only what is in view
        assert len(trace["x"]) < 60
    opened.page.get_by_role("button", name="all", exact=True).click()
    assert opened.range() == whole
    assert opened.complaints == []


def test_a_long_series_is_thinned_by_view_and_not_cut(show: Show) -> None:
    opened = show("long")
    opened.section("series")
    assert "of 60,000 steps, where most is missing" in opened.page.inner_text("#seen")
    opened.page.get_by_role("button", name="all", exact=True).click()
    seen = opened.named("observed")
    assert len(seen["x"]) <= 720
    assert max(seen["y"]) == 40.0
    assert "extremes of 360 stretches" in opened.page.inner_text("#seen")
    took = opened.page.evaluate(
        """async () => {
            const button = document.querySelector('[data-zoom=in]'), before = performance.now();
            for (let i = 0; i < 5; i++) { button.click(); await new Promise((done) => requestAnimationFrame(done)); }
            return performance.now() - before;
        }"""
    )
    assert took < 5000
    assert opened.complaints == []


def test_of_a_series_that_is_too_long_the_beginning_is_shown(show: Show) -> None:
    opened = show("cut")
    opened.section("series")
    assert "50 steps (this file has the first 25, to keep it small)" in opened.page.inner_text("#chosen")
    panel, _ = gappy(series=30, steps=50)
    shown = np.concatenate([opened.named(name)["x"] for name in ("observed", "filled")])
    assert len(shown) == 25
    np.testing.assert_allclose(opened.named("observed")["y"], panel.values[:25, 0][panel.observed[:25, 0]], rtol=1e-6)
    assert opened.complaints == []


def test_ten_thousand_series_are_searched_and_sorted(show: Show) -> None:
    opened = show("many")
    opened.section("series")
    rows = opened.page.locator("#list [role=option]")
    assert rows.count() < 40
    assert opened.page.inner_text("#count") == "10,000 of 10,000 series"
    opened.page.fill("#search", "S9876")
    assert rows.count() == 1
    rows.first.click()
    sync_api.expect(opened.page.locator("#chosen")).to_contain_text("s9876")
    opened.page.fill("#search", "")
    opened.page.select_option("#sort", "missing")
    panel, _ = gappy(series=10_000, steps=4, columns=("a", "b"))
    most = (~panel.observed).reshape(10_000, -1).mean(axis=1).max()
    assert f"{100 * most:.0f} % missing" in rows.first.inner_text()
    opened.page.select_option("#sort", "uncertainty")
    assert rows.first.inner_text() != rows.nth(5).inner_text()
    opened.page.locator("#list").focus()
    opened.page.keyboard.press("End")
    opened.page.wait_for_timeout(200)
    assert opened.page.locator("[role=option][aria-selected=true]").count() == 1
    assert rows.count() < 40
    assert opened.complaints == []


def test_columns_are_chosen(show: Show) -> None:
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


def test_hostile_names_stay_text(show: Show) -> None:
    opened = show("hostile")
    opened.all_sections()
    page = opened.page
    page.locator("#columns summary").click()
    page.hover("#plot .nsewdrag >> nth=0")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("#plot a").count() == 0
    assert HOSTILE in page.inner_text("#column-list")
    assert HOSTILE[:15] in page.text_content("#plot .annotation-text >> nth=0")
    assert opened.complaints == []


def test_nothing_may_be_fetched_and_no_handler_may_be_slipped_in(show: Show) -> None:
    opened = show("plain")
    opened.page.evaluate(
        """async () => {
            document.body.insertAdjacentHTML('beforeend', '<img src="data:," onerror="window.hacked=1">');
            await fetch('https://example.org').catch(() => { window.refused = true; });
        }"""
    )
    opened.page.wait_for_timeout(100)
    assert opened.page.evaluate("[window.hacked, window.refused]") == [None, True]


def luminance(colour: str) -> float:
    red, green, blue = (int(part) for part in colour[4:-1].split(",")[:3])
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def test_light_and_dark(show: Show) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('#plot .annotation-text')).fill"
    for scheme, light in (("light", True), ("dark", False)):
        opened = show("plain", color_scheme=scheme)
        opened.section("series")
        opened.traces()
        assert (luminance(opened.page.evaluate(paper)) > 0.5) == light
        assert (luminance(opened.page.evaluate(ink)) > 0.5) != light
        for _ in range(1 if light else 2):
            opened.page.click("#theme")
        if light:
            opened.page.click("#theme")
        assert opened.page.inner_text("#theme") == "Colours: dark"
        assert luminance(opened.page.evaluate(paper)) < 0.5


@pytest.mark.parametrize("name", ["plain", "hostile", "images", "classes", "many"])
def test_a_phone_has_nothing_to_scroll_sideways(show: Show, name: str) -> None:
    opened = show(name, viewport=PHONE, is_mobile=True, has_touch=True)
    opened.all_sections()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.complaints == []


def test_a_phone_shows_all_links_and_whole_tables(show: Show) -> None:
    opened = show("uneven", viewport=PHONE)
    cut = "all => all.filter(each => each.scrollWidth > each.clientWidth).length"
    assert opened.page.eval_on_selector_all(".top nav, .scroll", cut) == 0


def test_the_keyboard_reaches_everything(show: Show) -> None:
    opened = show("plain")
    reached: list[str] = []
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        reached.append(opened.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert {"Skip to the report", "Series", "theme", "search", "sort", "list", "baseline", "all"} <= {*reached}
    assert opened.page.evaluate(
        "document.activeElement.matches(':focus-visible') || document.activeElement === document.body"
    )


def test_frames_of_images(show: Show) -> None:
    opened = show("images")
    opened.section("images")
    labels = opened.page.locator("#frames span").all_inner_texts()
    assert labels == ["truth", "input", "filled", "uncertainty"]
    assert opened.page.locator("#frames canvas").count() == 4
    imputation, _ = images()
    pixels = opened.page.evaluate(
        """() => {
            const canvas = document.querySelectorAll('#frames canvas')[1];
            return [...canvas.getContext('2d').getImageData(0, 0, 4, 3).data];
        }"""
    )
    blue = np.array(pixels).reshape(3, 4, 4)[..., :3]
    missing = np.isnan(imputation.panel.values[0]).reshape(3, 4)
    np.testing.assert_array_equal((blue == [143, 184, 222]).all(axis=-1), missing)


def test_classes_have_their_labels(show: Show) -> None:
    opened = show("classes")
    opened.section("series")
    opened.traces()
    assert {"clear", "rain"} <= {*opened.page.locator("#plot .ytick").all_text_contents()}
    counts = [trace for trace in opened.traces() if trace["name"] == "filled" and trace["yaxis"] == "y2"]
    assert all(math.isclose(value, round(value)) for value in counts[0]["y"])
