"""The vendored plotly.js is the file its README describes, and draws every trace type of the report."""

import hashlib
import re

from gpvae.report.page import PLOTLY, WEB

# Other uses of `type` in Plotly's charts: axes, error bars and shapes; and of an input element.
NOT_TRACES = {"date", "linear", "data", "line", "rect", "checkbox"}


def test_the_file_is_the_one_written_down() -> None:
    written = dict(re.findall(r"^\| ([\w -]+) \| (.+?) \|$", (PLOTLY.parent / "README.md").read_text(), re.MULTILINE))
    script = PLOTLY.read_bytes()
    assert written["file"] == PLOTLY.name
    assert written["SHA-256"] == hashlib.sha256(script).hexdigest()
    assert f"plotly.js (cartesian - minified) v{written['version']}\n" in script[:100].decode()
    assert (PLOTLY.parent / "LICENSE").read_text().startswith("MIT License")


def test_the_bundle_has_every_trace_type_of_the_report() -> None:
    bundled = {*re.findall(r'moduleType:"trace",name:"(\w+)"', PLOTLY.read_text(encoding="utf-8"))}
    scripts = [path.read_text(encoding="utf-8") for path in WEB.glob("*.js")]
    types = {name for script in scripts for name in re.findall(r'\btype[:=]\s*"(\w+)"', script)}
    assert types - NOT_TRACES == {"bar", "heatmap", "scatter"}
    assert {"bar", "heatmap", "scatter"} <= bundled
