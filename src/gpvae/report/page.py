"""The report as one self-contained HTML file: no network, no server, no other file."""

import gzip
import json
import secrets
from base64 import b64encode
from dataclasses import asdict, dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Self

import numpy as np

from gpvae.data.atomic import atomic_write
from gpvae.evaluation import Evaluation
from gpvae.imputers.imputation import Imputation
from gpvae.report.evidence import Evidence, held_out_evidence
from gpvae.report.formatting import decimal, percent
from gpvae.report.summary import summarise

WEB = Path(__file__).parent / "web"
PLOTLY = WEB / "vendor" / "plotly-cartesian.min.js"
SCRIPTS = (
    "unpack",
    "look",
    "overview",
    "trust",
    "series",
    "choose",
    "latent",
    "images",
    "start",
)  # in this order: each uses names of those before
INLINE_HEIGHT = 760  # pixels, in a notebook


@dataclass(frozen=True, repr=False)
class Report:
    """The content of a report; `html` is its page, which a notebook displays."""

    summary: dict[str, Any]

    def __repr__(self) -> str:
        data = self.summary["data"]
        return f"Report({data['series']:,} series, {data['steps']:,} steps, {len(self.summary['columns'])} columns)"

    @property
    def html(self) -> str:
        return _render(self.summary)

    def written(self, path: str | Path | None, *, overwrite: bool = False) -> Self:
        """Write the page to `path`, if given, whole or not at all; return the report."""
        if path is not None:
            with atomic_write(Path(path), force=overwrite) as partial:
                partial.write_bytes(self.html.encode("utf-8", "xmlcharrefreplace"))
        return self

    def _repr_html_(self) -> str:
        attributes = f'width="100%" height="{INLINE_HEIGHT}" style="border:1px solid #8888" sandbox="allow-scripts"'
        return f'<iframe title="gpvae report" {attributes} srcdoc="{escape(self.html)}"></iframe>'


def of_imputation(imputation: Imputation) -> Report:
    return Report(summarise(imputation, evidence=held_out_evidence(imputation)))


def of_part(imputation: Imputation, cells: int) -> Report:
    """A preview of the first series, about `cells` cells: quick to make and small enough for a notebook."""
    ends = np.cumsum(imputation.panel.lengths) * len(imputation.panel.columns)
    count = max(1, int(np.searchsorted(ends, cells, side="right")))
    part = imputation if count >= len(imputation.panel) else imputation.part(0, count)
    others = "" if part is imputation else f" It has the first {count:,} of {len(imputation.panel):,} series."
    reason = f"This preview shows filled values only; .report() also checks them against held-out cells.{others}"
    return Report(summarise(part, evidence=reason))


def of_evaluation(evaluation: Evaluation) -> Report:
    """Show the last method that gives intervals, or else the last one, beside the others."""
    imputations = evaluation.imputations
    name = ([key for key, each in imputations.items() if each.has_intervals] or [*imputations])[-1]
    imputation = replace(imputations[name], method=name)
    truth = evaluation.panel.with_labels(imputation.panel.labels).values
    others = {key: each for key, each in imputations.items() if key != name}
    scores = [asdict(score) for score in evaluation.scores]
    evidence = Evidence(imputation, truth, evaluation.cells, others)
    held_out = ~imputation.panel.observed & ~np.isnan(truth)
    return Report(summarise(imputation, evidence=evidence, truth=truth, held_out=held_out, scores=scores))


def _render(summary: dict[str, Any]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    series, latent = dict(summary["series"]), summary["latent"]
    packs = [pack["data"] for pack in series["packs"]]
    series["packs"] = [{"first": pack["first"], "last": pack["last"]} for pack in series["packs"]]
    in_page = summary | {"series": series, "latent": latent and {k: v for k, v in latent.items() if k != "packs"}}
    environment = Environment(loader=FileSystemLoader(WEB), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": percent, "decimal": decimal}
    return environment.get_template("page.html").render(
        **summary,
        json=_for_script(in_page),
        packs=packs,
        latent_packs=latent["packs"] if latent else [],
        style=(WEB / "page.css").read_text(encoding="utf-8"),
        scripts=[(WEB / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS],
        plotly=_plotly(),
        nonce=secrets.token_urlsafe(16),
    )


def _for_script(plain: dict[str, Any]) -> str:
    """JSON in which no name can end the script element."""
    text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@cache
def _plotly() -> str:
    """The vendored script, compressed."""
    return b64encode(gzip.compress(PLOTLY.read_bytes(), mtime=0)).decode()
