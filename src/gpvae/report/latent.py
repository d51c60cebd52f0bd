"""The latent series of a model, and which columns they drive."""

from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Floats, Panel
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.latent_view import Latents, LatentView
from gpvae.report.numbers import rounded
from gpvae.report.packing import pack_latents

MAX_NUMBERS, MAX_STEPS = 200_000, 5_000  # in the page; steps of each series
ROWS_TO_PROBE = 500  # for the influence of latent series
COLUMNS_SHOWN, LATENTS_SHOWN = 40, 24


def summarise(imputation: Imputation) -> dict[str, Any] | None:
    """None if the method has no latent series."""
    view = None if imputation.imputer is None else imputation.imputer.latent_view()
    if view is None:
        return None
    panel, dims = imputation.panel, len(view.names)
    kept = _series_within(np.minimum(panel.lengths, MAX_STEPS) * dims, MAX_NUMBERS) if dims else 0
    part = panel.pick(np.arange(kept))
    packs, strides = _packs(view.posterior(part), part) if kept else ([], [])
    return {
        "dims": dims,
        "names": [*view.names],
        "words": [*view.words],
        "kept": kept,
        "packs": packs,
        "strides": strides,
        "note": view.note,
        "sentence": view.summary,
        **_influence(view, panel),
    }


def _packs(latents: Latents, panel: Panel) -> tuple[list[str], list[int]]:
    """The latent series of each series, thinned if it is long, and the stride."""
    packs, strides = list[str](), list[int]()
    for _, rows in panel.series():
        stride = -(-(rows.stop - rows.start) // MAX_STEPS)
        thinned = slice(rows.start, rows.stop, stride)
        packs.append(b64encode(pack_latents(latents.mean[thinned], latents.std[thinned])).decode())
        strides.append(stride)
    return packs, strides


def _series_within(sizes: NDArray[np.int64], limit: int) -> int:
    return max(1, int(np.searchsorted(np.cumsum(sizes), limit, side="right")))


def _influence(view: LatentView, panel: Panel) -> dict[str, Any]:
    """The most important latents and columns, then all other rows."""
    probed = _series_within(np.minimum(panel.lengths, ROWS_TO_PROBE), ROWS_TO_PROBE)
    influence, dims = view.influence(panel.pick(np.arange(probed), ROWS_TO_PROBE)), len(view.names)
    known = np.nan_to_num(influence.values[:dims])
    order = np.argsort(-(known**2).sum(axis=1), kind="stable")
    columns = np.sort(np.argsort(-_weight(view, influence.values), kind="stable")[:COLUMNS_SHOWN])
    shown = order[:LATENTS_SHOWN].tolist()
    rows = {view.names[k]: influence.values[k] for k in shown}
    if view.measure == "share" and len(shown) < dims:
        rows[f"{dims - len(shown)} other latents"] = influence.values[order[LATENTS_SHOWN:]].sum(axis=0)
    rows |= dict(zip(influence.others, influence.values[dims:], strict=True))
    return {
        "influence": {
            "rows": [*rows],
            "coloured": len(shown) + 1 if view.measure == "change" else len(rows),
            "measure": view.measure,
            "columns": [view.columns[j] for j in columns],
            "columns_left_out": len(view.columns) - len(columns),
            "values": [[rounded(row[j]) for j in columns] for row in rows.values()],
            "sentence": influence.sentence,
        },
        "order": order.tolist(),
    }


def _weight(view: LatentView, values: Floats) -> Floats:
    """By which columns are chosen: how much a latent matters to them; without latents, whether they vary. (column,)"""
    latents = np.nan_to_num(values[: len(view.names)])
    return latents.max(axis=0) if len(latents) else np.isfinite(values).any(axis=0).astype(float)
