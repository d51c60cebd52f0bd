"""What a report shows, as a plain dict that could be written as JSON: no HTML, no plots."""

import datetime as dt
import math
from base64 import b64encode
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.imputers.base import Imputer
from gpvae.imputers.conformal import Conformal
from gpvae.imputers.gpvae import GPVAE
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.neural import Trained
from gpvae.report import missing, trust
from gpvae.report.packing import BAND, LEVELS, Packer, pack_latents, together
from gpvae.report.trust import Evidence
from gpvae.report.words import duration, percent

CELLS_KEPT = 12_000_000  # values of so many cells are in the page; each that is filled takes some 7 bytes
CELLS_WITH_SAMPLES = 4_000_000  # beyond so many filled ones, no draws are kept
SAMPLES_KEPT = 3
LATENT_NUMBERS, LATENT_STEPS = 200_000, 5_000
ROWS_TO_PROBE = 500  # for what latent series do
COLUMNS_SHOWN, LATENTS_SHOWN = 40, 24
EPOCHS_TO_TELL = 10  # fewer that were judged say nothing of what more would bring


def summarise(
    imputation: Imputation,
    *,
    evidence: Evidence | str,
    truth: Floats | None = None,
    held_out: Bools | None = None,
    scores: list[dict[str, Any]] | None = None,
    latents: bool = True,
) -> dict[str, Any]:
    """All of a report.

    evidence: cells to judge by, or why there are none.
    truth, held_out: (row, feature) where cells of this very data were hidden, to be shown beside what is filled in.
    scores: of several methods, to be shown in a table.
    latents: show the latent series, which have to be computed.
    """
    panel = imputation.panel
    hidden = np.zeros(panel.values.shape, dtype=bool) if truth is None or held_out is None else held_out
    given = panel if truth is None else panel.with_values(np.where(hidden, truth, panel.values))
    columns = _columns(imputation, given)
    pattern = missing.pattern(given, image_shape_of(imputation))
    for column, longest in zip(columns, pattern.pop("longest"), strict=True):
        column["longest_gap"] = longest
    return {
        "gpvae": version("gpvae"),
        "made": dt.date.today().isoformat(),
        "data": {
            "series": len(panel),
            "steps": len(panel.values),
            "shortest": int(panel.lengths.min()),
            "longest": int(panel.lengths.max()),
            "cells": panel.values.size,
            "missing": int((~given.observed).sum()),
            "hidden": int(hidden.sum()),
            "filled": len(imputation.cells),
            "clock": panel.clock,
            "origin": panel.origin,
            "time": panel.source.time,
            "id": panel.source.id,
            "sentence": _how_much(imputation, given, int(hidden.sum())),
        },
        "columns": columns,
        "missing": pattern,
        "model": _model(imputation),
        "series": _series(imputation, np.array([column["std"] for column in columns]), truth, held_out),
        "trust": trust.judge(evidence, imputation.method),
        "scores": scores or [],
        "latent": _latent(imputation) if latents else None,
        "training": _training(imputation),
        "images": _images(imputation),
    }


def method_of(imputation: Imputation) -> Imputer | None:
    """The method itself, without what is calibrated around it."""
    maker = imputation.maker
    return getattr(maker, "imputer_", None) if isinstance(maker, Conformal) else maker


def image_shape_of(imputation: Imputation) -> tuple[int, int, int] | None:
    method = method_of(imputation)
    shape = method.model.image_shape if isinstance(method, GPVAE) else None
    return shape if shape and math.prod(shape) == len(imputation.panel.columns) and shape[0] in (1, 3) else None


def _images(imputation: Imputation) -> dict[str, Any] | None:
    shape, method = image_shape_of(imputation), method_of(imputation)
    if shape is None or not isinstance(method, GPVAE):
        return None
    return {"shape": list(shape), "binary": method.model.likelihood == "bernoulli"}


def _how_much(imputation: Imputation, given: Panel, hidden: int) -> str:
    """given: the data before values were hidden."""
    panel, gaps = imputation.panel, ~given.observed
    left = int((~panel.observed).sum()) - len(imputation.cells)
    tested = f" For the test, {hidden:,} known values were hidden." if hidden else ""
    if not gaps.any():
        return f"Nothing is missing.{tested}" if hidden else "Nothing is missing: there was nothing to fill."
    shares = gaps.mean(axis=0)
    worst, some = int(np.argmax(shares)), int((shares > 0).sum())
    told = f"{percent(gaps.mean(), 1)} of the values are missing"
    if len(shares) > 1:
        of_all = "all" if some == len(shares) else f"{some} of {len(shares)}"
        told += f", in {of_all} columns; most of all in {panel.columns[worst]} ({percent(shares[worst])})"
    stay = f"{left:,} of them could not be filled and stay missing." if left else "All of them are filled."
    return f"{told}. {stay}{tested}"


def _columns(imputation: Imputation, given: Panel) -> list[dict[str, Any]]:
    panel, width = imputation.panel, len(imputation.panel.columns)
    kinds, levels = _kinds(imputation)
    gaps = (~given.observed).sum(axis=0)
    filled = np.bincount(imputation.cells % width, minlength=width)
    observed = panel.observed
    count = np.maximum(1, observed.sum(axis=0))
    mean = np.where(observed, panel.values, 0).sum(axis=0) / count
    spread = np.sqrt((np.where(observed, panel.values - mean, 0) ** 2).sum(axis=0) / count)
    unsure = _uncertainty(imputation, spread)
    by_column = _averages(unsure, imputation.cells % width, width)
    return [
        {
            "name": str(name),
            "kind": kinds[j],
            "levels": levels[j],
            "labels": [str(label) for label in panel.labels[name]] if name in panel.labels else None,
            "missing": int(gaps[j]),
            "filled": int(filled[j]),
            "mean": _number(mean[j]) if observed[:, j].any() else None,
            "std": _number(spread[j]),
            "uncertainty": by_column[j],
        }
        for j, name in enumerate(panel.columns)
    ]


def _kinds(imputation: Imputation) -> tuple[list[str], list[list[float] | None]]:
    columns = imputation.panel.columns
    kinds = ["text" if name in imputation.panel.labels else "real" for name in columns]
    levels: list[list[float] | None] = [None] * len(columns)
    maker = imputation.maker
    if maker is not None:
        known = zip(maker.schema_.columns, maker.schema_.scaling.kinds, maker.schema_.scaling.levels, strict=True)
        for name, kind, own in known:
            if name in columns:
                kinds[columns.index(name)] = kind
                levels[columns.index(name)] = list(own) or None
    return kinds, levels


def _uncertainty(imputation: Imputation, spread: Floats) -> Floats | None:
    """Deviation of each filled cell, in deviations of its column; NaN for classes. (cell,)"""
    if imputation.stds is None and imputation.margins is None:
        return None
    stds = imputation.stds if imputation.margins is None else _half_widths(imputation)
    if stds is None:
        return None
    unit = spread[imputation.cells % len(spread)]
    return np.divide(stds, unit, out=np.full(len(unit), np.nan), where=unit > 0)


def _half_widths(imputation: Imputation) -> Floats | None:
    """Of 90 % intervals, as deviations of a Gaussian."""
    try:
        lower, upper = imputation.quantiles(0.05, 0.95)
    except DataError:
        return None
    return (upper - lower) / (2 * 1.645)


def _averages(values: Floats | None, group: NDArray[np.int64], groups: int) -> list[float | None]:
    if values is None:
        return [None] * groups
    there = np.isfinite(values)
    count = np.bincount(group[there], minlength=groups)
    total = np.bincount(group[there], values[there], minlength=groups)
    return [_number(total[i] / count[i]) if count[i] else None for i in range(groups)]


def _series(imputation: Imputation, spread: Floats, truth: Floats | None, held_out: Bools | None) -> dict[str, Any]:
    panel, width = imputation.panel, len(imputation.panel.columns)
    gaps, hidden = _share_of_series(panel, ~panel.observed), np.zeros(len(panel))
    if held_out is not None and truth is not None:
        hidden = _share_of_series(panel, held_out)
    unsure = _averages(_uncertainty(imputation, spread), panel.series_of_row[imputation.cells // width], len(panel))
    kept = max(1, int(np.searchsorted(np.cumsum(panel.lengths) * width, CELLS_KEPT, side="right")))
    most = max(1, CELLS_KEPT // width)  # steps of the first series, should it alone be too long
    packer, why = _packer(imputation)
    packs: list[dict[str, Any]] = []
    for first, last in together(panel, kept):
        part = _beginning(imputation.part(first, last), most)
        start = int(panel.starts[first])
        rows = slice(start, start + len(part.panel.values))
        known = None if truth is None else truth[rows]
        packed = packer.pack(part, known, None if held_out is None else held_out[rows])
        packs.append({"first": first, "last": last, "data": b64encode(packed).decode()})
    return {
        "ids": [str(name) for name in panel.ids],
        "lengths": panel.lengths.tolist(),
        "missing": [round(float(share), 4) for share in gaps - hidden],
        "hidden": [round(float(share), 4) for share in hidden],
        "uncertainty": unsure,
        "kept": kept,
        "steps_kept": most,
        "bands": packer.bands,
        "without_bands": why,
        "samples": packer.samples,
        "certainty": packer.certainty,
        "truth": truth is not None,
        "levels": LEVELS,
        "packs": packs,
    }


def _beginning(imputation: Imputation, steps: int) -> Imputation:
    """Of one series that is longer, its first steps; others as they are."""
    panel = imputation.panel
    if len(panel) > 1 or len(panel.values) <= steps:
        return imputation
    some = slice(0, int(np.searchsorted(imputation.cells, steps * len(panel.columns))))
    return replace(
        imputation,
        panel=panel.pick(np.arange(1), steps),
        cells=imputation.cells[some],
        values=imputation.values[some],
        stds=None if imputation.stds is None else imputation.stds[some],
        draws=None if imputation.draws is None else imputation.draws.at(some),
        margins=None if imputation.margins is None else imputation.margins.at(some),
    )


def _share_of_series(panel: Panel, cells: Bools) -> Floats:
    return np.add.reduceat(cells.sum(axis=1), panel.starts) / (panel.lengths * cells.shape[1])


def _packer(imputation: Imputation) -> tuple[Packer, str]:
    """What can be kept of each filled cell; and, where there are no intervals, why."""
    draws, bands, why = imputation.draws, False, f"{imputation.method} gives single values, without intervals."
    if imputation.has_intervals:
        try:
            imputation.part(0, 1).quantiles(*BAND)
            bands, why = True, ""
        except DataError as error:
            why = f"There are no intervals: {error}."
    few = len(imputation.cells) <= CELLS_WITH_SAMPLES
    samples = min(SAMPLES_KEPT, draws.count) if bands and draws is not None and few else 0
    certainty = draws is not None and bool(draws.scaling.of_kind("binary", "categorical", "ordinal").any())
    return Packer(bands, samples, certainty), why


def _model(imputation: Imputation) -> dict[str, Any]:
    maker, method = imputation.maker, method_of(imputation)
    facts: list[list[str]] = [["method", imputation.method]]
    if isinstance(method, GPVAE) and hasattr(method, "model_"):
        facts += _facts_of_latent_model(method)
    if isinstance(method, Trained) and hasattr(method, "model_"):
        facts.append(["parameters", f"{sum(value.numel() for value in method.model_.parameters()):,}"])
        facts.append(["epochs of training", f"{len(method.history_):,}"])
        facts.append(["device", str(method._device.type)])
    if maker is not None and maker.seconds_ is not None:
        facts.append(["time to fit", duration(maker.seconds_)])
    if imputation.seconds is not None:
        facts.append(["time to fill", duration(imputation.seconds)])
    if imputation.draws is not None:
        facts.append(["samples drawn", f"{imputation.draws.count:,}"])
    settings = {} if maker is None else maker.to_plain()["settings"]
    return {"name": imputation.method, "facts": facts, "settings": _flat(settings)}


def _facts_of_latent_model(method: GPVAE) -> list[list[str]]:
    config = method.model_.config
    time = type(config.kernel).__name__ + " kernel" if config.neighbours else "none: each step for itself"
    return [
        ["latent series", f"{config.latent_dim}"],
        ["prior over time", time],
        ["encoder", config.encoder],
        ["likelihood", {"student": "Student's t", "gaussian": "Gaussian"}.get(config.likelihood, config.likelihood)],
        [
            "β, the weight of the prior",
            "a hundredth of the share observed" if config.beta is None else f"{config.beta:g}",
        ],
    ]


def _flat(settings: dict[str, Any], before: str = "") -> list[list[str]]:
    rows: list[list[str]] = []
    for name, value in settings.items():
        inner = isinstance(value, dict) and value
        rows += _flat(value, f"{before}{name}.") if inner else [[f"{before}{name}", str(value)]]
    return rows


def _training(imputation: Imputation) -> dict[str, Any] | None:
    method = method_of(imputation)
    history = getattr(method, "history_", [])
    if not history:
        return None
    names = dict.fromkeys(name for epoch in history for name in epoch)
    parts = {name: [_number(epoch.get(name)) for epoch in history] for name in names if name != "gradient"}
    score = "negative log density" if method is not None and method.gives_distributions else "absolute error"
    keeps_last = isinstance(method, Trained) and method.keeps_last
    told = _how_it_went(parts, score, keeps_last=keeps_last)
    return {"epochs": len(history), "parts": parts, "score": score, "sentence": told}


def _how_it_went(parts: dict[str, list[float | None]], score: str, *, keeps_last: bool) -> str:
    scores = [(value, epoch) for epoch, value in enumerate(parts.get("validation", []), 1) if value is not None]
    epochs = len(next(iter(parts.values())))
    if not scores:
        return f"{epochs} epochs; no cells were kept aside to judge them by."
    best, when = min(scores)
    told = f"The {score} of held-out cells was lowest in epoch {when} of {epochs} ({best:.3f}), whose weights are used"
    if keeps_last:
        told = f"The {score} of held-out cells is {scores[-1][0]:.3f} after the last of {epochs} epochs"
    if len(scores) < EPOCHS_TO_TELL:
        return f"{told}; there are too few to tell whether more would help."
    tenth = scores[-(len(scores) // 10) - 1 :]
    if when < 0.9 * epochs:
        later = f"it was lowest in epoch {when} ({best:.3f})" if keeps_last else "later ones did not improve on it"
        return f"{told}; {later}."
    still = tenth[0][0] - tenth[-1][0] > 0.02 * (max(scores)[0] - best)
    return f"{told}; it {'was still falling, so more epochs may help' if still else 'had levelled off'}."


def _latent(imputation: Imputation) -> dict[str, Any] | None:
    method, panel = method_of(imputation), imputation.panel
    if not isinstance(method, GPVAE):
        return None
    dims = method.model_.latent_dim
    steps = np.minimum(panel.lengths, LATENT_STEPS)
    kept = max(1, int(np.searchsorted(np.cumsum(steps) * dims, LATENT_NUMBERS, side="right")))
    some = panel.pick(np.arange(kept))
    found, packs, every = method.latents(some), list[str](), list[int]()
    for _, rows in some.series():
        step = -(-(rows.stop - rows.start) // LATENT_STEPS)
        thinned = slice(rows.start, rows.stop, step)
        packs.append(b64encode(pack_latents(found.mean[thinned], found.std[thinned])).decode())
        every.append(step)
    scales = method.length_scales()
    probed = _series_within(np.minimum(some.lengths, ROWS_TO_PROBE), ROWS_TO_PROBE)
    influence = method.influence(some.pick(np.arange(probed), ROWS_TO_PROBE))
    return {
        "dims": dims,
        "kept": kept,
        "packs": packs,
        "every": every,
        "length_scales": [_number(scale) for scale in scales],
        "in_steps": [_number(scale / method.schema_.time_unit) for scale in scales],
        **_influences(method, influence),
        "sentence": _what_scales_say(method, scales),
    }


def _series_within(lengths: NDArray[np.int64], rows: int) -> int:
    return max(1, int(np.searchsorted(np.cumsum(lengths), rows, side="right")))


def _influences(method: GPVAE, influence: Floats) -> dict[str, Any]:
    """The matrix of latents that matter most and columns that they matter to; then all latents, and surroundings."""
    known = np.nan_to_num(influence[:-2])
    order = np.argsort(-(known**2).sum(axis=1), kind="stable")
    columns = np.sort(np.argsort(-known.max(axis=0), kind="stable")[:COLUMNS_SHOWN])
    shown = order[:LATENTS_SHOWN].tolist()
    rows = {f"latent {k + 1}": influence[k] for k in shown} | {"all latent series": influence[-2]}
    if len(method.model_.locations):
        rows["nearest visible values"] = influence[-1]
    return {
        "influence": {
            "rows": [*rows],
            "latents": len(shown),
            "columns": [str(method.schema_.columns[j]) for j in columns],
            "columns_left_out": len(method.schema_.columns) - len(columns),
            "values": [[_number(each[j]) for j in columns] for each in rows.values()],
            "sentence": _what_drives(method, influence),
        },
        "order": order.tolist(),
    }


def _what_drives(method: GPVAE, influence: Floats) -> str:
    known = np.nan_to_num(influence)
    k = int(np.argmax((known[:-2] ** 2).sum(axis=1)))
    j = int(np.argmax(known[k]))
    together, surroundings = known[-2:].sum(axis=1) / max(1, np.isfinite(influence[-2]).sum())
    told = f"Latent {k + 1} matters most, above all to {method.schema_.columns[j]}: held at its average, what is "
    told += "decoded moves by "
    told += f"{known[k, j]:.2g} standard deviations; with all latent series held, by {together:.2g} on average."
    if len(method.model_.locations):
        told += " The decoder also sees the nearest visible values of each column, which it goes out from: held at "
        told += f"theirs, it moves by {surroundings:.2g}."
        if together < 0.1 * surroundings:
            told += " So here it fills mostly by what lies nearest, and the latent series add little."
    return told


def _what_scales_say(method: GPVAE, scales: Floats) -> str:
    if not scales.any():
        return "This model has no prior over time: each step has latent values of its own."
    steps = scales / method.schema_.time_unit
    known = steps[np.isfinite(steps)]
    if not len(known):
        return "The prior's correlation never falls to one half."
    shared = (
        "All latent series share one prior" if len(np.unique(steps)) == 1 else "Latent series differ in their prior"
    )
    fall = f"{known.min():.3g}" if known.min() == known.max() else f"{known.min():.3g} to {known.max():.3g}"
    return f"{shared}: its correlation falls to one half within {fall} steps, the length scale."


def _number(value: Any) -> float | None:
    """Six digits are enough for a page; JSON has no NaN."""
    return None if value is None or not np.isfinite(value) else float(f"{value:.6g}")
