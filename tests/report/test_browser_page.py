"""The whole page in a browser: sections, colours, phones, keyboard, safety."""

from pathlib import Path

import pytest
from browser import DESKTOP, PHONE, Show
from report_examples import HOSTILE

pytestmark = pytest.mark.slow


def test_all_charts_are_drawn_without_console_messages(show: Show, pages: dict[str, Path]) -> None:
    for name in pages:
        opened = show(name)
        opened.all_sections()
        assert opened.messages == [], name
        assert all(wanted == drawn for wanted, drawn in opened.requested_and_drawn_types()), name
        drawn = opened.page.eval_on_selector_all(".chart", "all => all.filter(each => !each.data).map(each => each.id)")
        assert [each for each in drawn if each != "trajectories"] == [], name


@pytest.mark.parametrize("screen", [DESKTOP, PHONE])
@pytest.mark.parametrize("section", ["Trust", "Latent space", "Training"])
def test_section_links_scroll_below_the_navigation(show: Show, screen: dict[str, int], section: str) -> None:
    opened = show("uneven", viewport=screen)
    opened.page.get_by_role("link", name=section).click()
    opened.page.wait_for_timeout(2000)
    edge, top = opened.page.evaluate(
        """id => [document.querySelector('.top').getBoundingClientRect().bottom,
                  document.getElementById(id).getBoundingClientRect().top]""",
        section.split()[0].lower(),
    )
    assert 0 <= top - edge < 30


def test_printing_draws_every_chart(show: Show) -> None:
    opened = show("uneven")
    opened.page.pdf()
    assert opened.page.eval_on_selector_all(".chart", "all => all.filter(each => !each.data).length") == 0
    assert opened.messages == []


def test_markup_in_names_is_shown_as_text(show: Show) -> None:
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
    assert opened.messages == []


def test_content_security_policy_blocks_requests_and_handlers(show: Show) -> None:
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


def test_light_and_dark_colours(show: Show) -> None:
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
def test_phone_does_not_scroll_sideways(show: Show, name: str) -> None:
    opened = show(name, viewport=PHONE, is_mobile=True, has_touch=True)
    opened.all_sections()
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.messages == []


def test_phone_shows_all_links_and_whole_tables(show: Show) -> None:
    opened = show("uneven", viewport=PHONE)
    cut = "all => all.filter(each => each.scrollWidth > each.clientWidth).length"
    assert opened.page.eval_on_selector_all(".top nav, .scroll", cut) == 0


def test_keyboard_reaches_all_controls(show: Show) -> None:
    opened = show("plain")
    reached: list[str] = []
    for _ in range(40):
        opened.page.keyboard.press("Tab")
        reached.append(opened.page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
    assert {"Skip to the report", "Series", "theme", "search", "sort", "list", "baseline", "all"} <= {*reached}
    assert opened.page.evaluate(
        "document.activeElement.matches(':focus-visible') || document.activeElement === document.body"
    )
