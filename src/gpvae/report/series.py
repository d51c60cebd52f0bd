"""The values of the series, packed for the page."""

from base64 import b64encode
from dataclasses import replace
from typing import Any

import numpy as np

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.imputers.imputation import Imputation
from gpvae.report.numbers import group_means, uncertainty
from gpvae.report.packing import BAND, LEVELS, Packer, runs_of_series

MAX_CELLS = 12_000_000  # cells in the page; a filled one takes about 7 bytes
MAX_CELLS_WITH_SAMPLES = 4_000_000  # with more filled cells, no draws are included
SAMPLES = 3


def summarise(
    imputation: Imputation, column_std: Floats, truth: Floats | None, held_out: Bools | None
) -> dict[str, Any]:
    panel, width = imputation.panel, len(imputation.panel.columns)
    hidden = np.zeros(len(panel)) if truth is None or held_out is None else _share_by_series(panel, held_out)
    gaps, series = _share_by_series(panel, ~panel.observed), panel.series_of_row[imputation.cells // width]
    kept = max(1, int(np.searchsorted(np.cumsum(panel.lengths) * width, MAX_CELLS, side="right")))
    max_steps = max(1, MAX_CELLS // width)  # in case the first series alone is too long
    packer, reason = _packer(imputation)
    return {
        "ids": [str(name) for name in panel.ids],
        "lengths": panel.lengths.tolist(),
        "missing": [round(float(share), 4) for share in gaps - hidden],
        "hidden": [round(float(share), 4) for share in hidden],
        "uncertainty": group_means(uncertainty(imputation, column_std), series, len(panel)),
        "kept": kept,
        "max_steps": max_steps,
        "bands": packer.bands,
        "without_bands": reason,
        "samples": packer.samples,
        "certainty": packer.certainty,
        "truth": truth is not None,
        "levels": LEVELS,
        "packs": [
            _pack(packer, imputation, first, last, max_steps, truth, held_out)
            for first, last in runs_of_series(panel, kept)
        ],
    }


def _pack(
    packer: Packer,
    imputation: Imputation,
    first: int,
    last: int,
    max_steps: int,
    truth: Floats | None,
    held_out: Bools | None,
) -> dict[str, Any]:
    part = _beginning(imputation.part(first, last), max_steps)
    start = int(imputation.panel.starts[first])
    rows = slice(start, start + len(part.panel.values))
    known = None if truth is None else truth[rows]
    packed = packer.pack(part, known, None if held_out is None else held_out[rows])
    return {"first": first, "last": last, "data": b64encode(packed).decode()}


def _beginning(imputation: Imputation, steps: int) -> Imputation:
    """The first steps of a single series that is longer; others unchanged."""
    panel = imputation.panel
    if len(panel) > 1 or len(panel.values) <= steps:
        return imputation
    kept = slice(0, int(np.searchsorted(imputation.cells, steps * len(panel.columns))))
    return replace(
        imputation,
        panel=panel.pick(np.arange(1), steps),
        cells=imputation.cells[kept],
        values=imputation.values[kept],
        stds=None if imputation.stds is None else imputation.stds[kept],
        draws=None if imputation.draws is None else imputation.draws.at(kept),
        conformal=None if imputation.conformal is None else imputation.conformal.at(kept),
    )


def _share_by_series(panel: Panel, cells: Bools) -> Floats:
    return np.add.reduceat(cells.sum(axis=1), panel.starts) / (panel.lengths * cells.shape[1])


def _packer(imputation: Imputation) -> tuple[Packer, str]:
    """What the page includes of each filled cell; and, if that is no intervals, the reason."""
    draws, reason = imputation.draws, _reason_without_bands(imputation)
    few = len(imputation.cells) <= MAX_CELLS_WITH_SAMPLES
    samples = min(SAMPLES, draws.count) if not reason and draws is not None and few else 0
    certainty = draws is not None and bool(draws.scaling.of_kind("binary", "categorical", "ordinal").any())
    return Packer(not reason, samples, certainty), reason


def _reason_without_bands(imputation: Imputation) -> str:
    """Why there are no intervals; empty if there are."""
    if not imputation.has_intervals:
        return f"{imputation.method} gives single values without intervals."
    try:
        imputation.part(0, 1).quantiles(*BAND)
    except DataError as error:
        return f"There are no intervals: {error}."
    return ""
