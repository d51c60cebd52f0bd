"""What a report shows, as a plain dict that could be written as JSON: no HTML, no plots."""

import datetime as dt
from importlib.metadata import version
from typing import Any

import numpy as np

from gpvae.data.panel import Bools, Floats, Panel
from gpvae.imputers.imputation import Imputation
from gpvae.report import latent, missing, series, training, trust
from gpvae.report.capabilities import has_binary_pixels, image_shape_of
from gpvae.report.evidence import Evidence
from gpvae.report.formatting import duration, percent
from gpvae.report.numbers import group_means, rounded, uncertainty


def summarise(
    imputation: Imputation,
    *,
    evidence: Evidence | str,
    truth: Floats | None = None,
    held_out: Bools | None = None,
    scores: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """All of a report.

    evidence: cells with a known value, or why there are none.
    truth, held_out: (row, feature), if cells of this data were hidden; shown beside the filled values.
    scores: of several methods, shown as a table.
    """
    panel = imputation.panel
    hidden = np.zeros(panel.values.shape, dtype=bool) if truth is None or held_out is None else held_out
    original = panel if truth is None else panel.with_values(np.where(hidden, truth, panel.values))
    columns = _columns(imputation, original)
    pattern = missing.pattern(original, image_shape_of(imputation))
    for column, longest in zip(columns, pattern.pop("longest"), strict=True):
        column["longest_gap"] = longest
    return {
        "gpvae": version("gpvae"),
        "date": dt.date.today().isoformat(),
        "data": _data(imputation, original, int(hidden.sum())),
        "columns": columns,
        "missing": pattern,
        "model": _model(imputation),
        "series": series.summarise(imputation, np.array([column["std"] for column in columns]), truth, held_out),
        "trust": trust.assess(evidence, imputation.method),
        "scores": scores or [],
        "latent": latent.summarise(imputation),
        "training": training.summarise(imputation),
        "images": _images(imputation),
    }


def _images(imputation: Imputation) -> dict[str, Any] | None:
    shape = image_shape_of(imputation)
    return shape and {"shape": list(shape), "binary": has_binary_pixels(imputation)}


def _data(imputation: Imputation, original: Panel, hidden: int) -> dict[str, Any]:
    """original: the data before values were hidden."""
    panel = imputation.panel
    return {
        "series": len(panel),
        "steps": len(panel.values),
        "shortest": int(panel.lengths.min()),
        "longest": int(panel.lengths.max()),
        "cells": panel.values.size,
        "missing": int((~original.observed).sum()),
        "hidden": hidden,
        "filled": len(imputation.cells),
        "clock": panel.clock,
        "origin": panel.origin,
        "time": panel.source.time,
        "id": panel.source.id,
        "sentence": _amount_missing(imputation, original, hidden),
    }


def _amount_missing(imputation: Imputation, original: Panel, hidden: int) -> str:
    panel, gaps = imputation.panel, ~original.observed
    unfilled = int((~panel.observed).sum()) - len(imputation.cells)
    tested = f" For the test, {hidden:,} known values were hidden." if hidden else ""
    if not gaps.any():
        return f"No values are missing.{tested}" if hidden else "No values are missing, so there was nothing to fill."
    shares = gaps.mean(axis=0)
    worst, affected = int(np.argmax(shares)), int((shares > 0).sum())
    sentence = f"{percent(gaps.mean(), 1)} of the values are missing"
    if len(shares) > 1:
        columns = "all" if affected == len(shares) else f"{affected} of {len(shares)}"
        sentence += f", in {columns} columns, most in {panel.columns[worst]} ({percent(shares[worst])})"
    rest = f"{unfilled:,} of them stay missing." if unfilled else "All of them are filled."
    return f"{sentence}. {rest}{tested}"


def _columns(imputation: Imputation, original: Panel) -> list[dict[str, Any]]:
    panel, width = imputation.panel, len(imputation.panel.columns)
    kinds, levels = _kinds(imputation)
    gaps = (~original.observed).sum(axis=0)
    filled = np.bincount(imputation.cells % width, minlength=width)
    mean, std = _moments(panel)
    uncertainties = group_means(uncertainty(imputation, std), imputation.cells % width, width)
    return [
        {
            "name": str(name),
            "kind": kinds[j],
            "levels": levels[j],
            "labels": [str(label) for label in panel.labels[name]] if name in panel.labels else None,
            "missing": int(gaps[j]),
            "filled": int(filled[j]),
            "mean": rounded(mean[j]) if panel.observed[:, j].any() else None,
            "std": rounded(std[j]),
            "uncertainty": uncertainties[j],
        }
        for j, name in enumerate(panel.columns)
    ]


def _moments(panel: Panel) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the observed values of each column. (feature,)"""
    count = np.maximum(1, panel.observed.sum(axis=0))
    mean = np.where(panel.observed, panel.values, 0).sum(axis=0) / count
    return mean, np.sqrt((np.where(panel.observed, panel.values - mean, 0) ** 2).sum(axis=0) / count)


def _kinds(imputation: Imputation) -> tuple[list[str], list[list[float] | None]]:
    """The kind of each column and, for classes, its levels."""
    columns, imputer = imputation.panel.columns, imputation.imputer
    kinds = ["text" if name in imputation.panel.labels else "real" for name in columns]
    levels: list[list[float] | None] = [None] * len(columns)
    if imputer is not None:
        schema = imputer.schema_
        for name, kind, values in zip(schema.columns, schema.scaling.kinds, schema.scaling.levels, strict=True):
            if name in columns:
                kinds[columns.index(name)] = kind
                levels[columns.index(name)] = list(values) or None
    return kinds, levels


def _model(imputation: Imputation) -> dict[str, Any]:
    imputer = imputation.imputer
    facts = [["method", imputation.method], *([] if imputer is None else map(list, imputer.facts()))]
    if imputer is not None and imputer.seconds_ is not None:
        facts.append(["time to fit", duration(imputer.seconds_)])
    if imputation.seconds is not None:
        facts.append(["time to fill", duration(imputation.seconds)])
    if imputation.draws is not None:
        facts.append(["samples drawn", f"{imputation.draws.count:,}"])
    settings = {} if imputer is None else imputer.to_json()["settings"]
    return {"name": imputation.method, "facts": facts, "settings": _flat(settings)}


def _flat(settings: dict[str, Any], prefix: str = "") -> list[list[str]]:
    rows: list[list[str]] = []
    for name, value in settings.items():
        nested = isinstance(value, dict) and value
        rows += _flat(value, f"{prefix}{name}.") if nested else [[f"{prefix}{name}", str(value)]]
    return rows
