"""The latent series of a model, and which columns they drive."""

from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Floats, Panel
from gpvae.imputers.gpvae import GPVAE
from gpvae.imputers.imputation import Imputation
from gpvae.report.capabilities import latent_model_of
from gpvae.report.numbers import rounded
from gpvae.report.packing import pack_latents

MAX_NUMBERS, MAX_STEPS = 200_000, 5_000  # in the page; steps of each series
ROWS_TO_PROBE = 500  # for the influence of latent series
COLUMNS_SHOWN, LATENTS_SHOWN = 40, 24


def summarise(imputation: Imputation) -> dict[str, Any] | None:
    """None if the method has no latent series."""
    method, panel = latent_model_of(imputation), imputation.panel
    if method is None:
        return None
    dims = method.method_.network.latent_dim
    kept = _series_within(np.minimum(panel.lengths, MAX_STEPS) * dims, MAX_NUMBERS)
    part = panel.pick(np.arange(kept))
    packs, strides = _packs(method, part)
    scales = method.length_scales()
    probed = _series_within(np.minimum(part.lengths, ROWS_TO_PROBE), ROWS_TO_PROBE)
    influence = method.influence(part.pick(np.arange(probed), ROWS_TO_PROBE))
    return {
        "dims": dims,
        "kept": kept,
        "packs": packs,
        "strides": strides,
        "length_scales": [rounded(scale) for scale in scales],
        "in_steps": [rounded(scale / method.schema_.time_unit) for scale in scales],
        **_influence(method, influence),
        "sentence": _describe_scales(scales / method.schema_.time_unit),
    }


def _packs(method: GPVAE, panel: Panel) -> tuple[list[str], list[int]]:
    """The latent series of each series, thinned if it is long, and the stride."""
    latents, packs, strides = method.latents(panel), list[str](), list[int]()
    for _, rows in panel.series():
        stride = -(-(rows.stop - rows.start) // MAX_STEPS)
        thinned = slice(rows.start, rows.stop, stride)
        packs.append(b64encode(pack_latents(latents.mean[thinned], latents.std[thinned])).decode())
        strides.append(stride)
    return packs, strides


def _series_within(sizes: NDArray[np.int64], limit: int) -> int:
    return max(1, int(np.searchsorted(np.cumsum(sizes), limit, side="right")))


def _influence(method: GPVAE, influence: Floats) -> dict[str, Any]:
    """The most important latents and columns, then all latents together, then the nearest visible values."""
    known = np.nan_to_num(influence[:-2])
    order = np.argsort(-(known**2).sum(axis=1), kind="stable")
    columns = np.sort(np.argsort(-known.max(axis=0), kind="stable")[:COLUMNS_SHOWN])
    shown = order[:LATENTS_SHOWN].tolist()
    rows = {f"latent {k + 1}": influence[k] for k in shown} | {"all latent series": influence[-2]}
    if method.decoder_sees_context:
        rows["nearest visible values"] = influence[-1]
    return {
        "influence": {
            "rows": [*rows],
            "latents": len(shown),
            "columns": [str(method.schema_.columns[j]) for j in columns],
            "columns_left_out": len(method.schema_.columns) - len(columns),
            "values": [[rounded(row[j]) for j in columns] for row in rows.values()],
            "sentence": _describe_influence(method, influence),
        },
        "order": order.tolist(),
    }


def _describe_influence(method: GPVAE, influence: Floats) -> str:
    known = np.nan_to_num(influence)
    k = int(np.argmax((known[:-2] ** 2).sum(axis=1)))
    j = int(np.argmax(known[k]))
    together, nearest = known[-2:].sum(axis=1) / max(1, np.isfinite(influence[-2]).sum())
    sentence = (
        f"Latent {k + 1} matters most, above all to {method.schema_.columns[j]}: when it is fixed at its mean, the "
        f"decoded values change by {known[k, j]:.2g} standard deviations; with all latent series fixed, by "
        f"{together:.2g} on average."
    )
    if method.decoder_sees_context:
        sentence += f" With the nearest visible values fixed, another input of the decoder, by {nearest:.2g}."
        if together < 0.1 * nearest:
            sentence += " So the model fills mostly from the nearest values, and the latent series add little."
    return sentence


def _describe_scales(steps: Floats) -> str:
    """steps: the length scale of each latent series, in time steps."""
    if not steps.any():
        return "This model has no prior over time: the latent values of each step are independent."
    finite = steps[np.isfinite(steps)]
    if not len(finite):
        return "The prior's correlation never falls to one half."
    shared = "All latent series share a prior" if len(np.unique(steps)) == 1 else "Latent series have different priors"
    low, high = finite.min(), finite.max()
    scale = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    return f"{shared}: the correlation falls to one half within {scale} steps, the length scale."
