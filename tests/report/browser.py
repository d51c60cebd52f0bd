"""A report in a real browser: Chromium, without a window."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
Show = Callable[..., "OpenPage"]
DESKTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


class OpenPage:
    """A page, and the messages of its console."""

    def __init__(self, browser: Any, path: Path, **look: Any):
        self.context = browser.new_context(**{"viewport": DESKTOP, **look})
        self.page = self.context.new_page()
        self.messages: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self._require_local(request.url))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def _require_local(self, url: str) -> None:
        if not url.startswith(("file:", "blob:", "data:")):
            self.messages.append(f"requested {url}")

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

    def requested_and_drawn_types(self) -> list[tuple[str, str]]:
        """The type of every trace in every chart; Plotly draws a type that the bundle lacks as scatter."""
        pick = "all => all.flatMap(({data, _fullData}) => data.map((trace, i) => [trace.type, _fullData[i].type]))"
        return [(wanted, drawn) for wanted, drawn in self.page.eval_on_selector_all(".js-plotly-plot", pick)]
