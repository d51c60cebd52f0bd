"""Static plots (Matplotlib, from the extra `plot`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.scaling import CLASSES
from gpvae.evaluation import Evaluation
from gpvae.imputers.imputation import Imputation
from gpvae.report.capabilities import image_shape_of
from gpvae.report.evidence import Evidence, held_out_evidence
from gpvae.report.missing import pattern
from gpvae.report.trust import assess

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OBSERVED, FILLED, TRUTH = "#333333", "#0072B2", "#D55E00"  # safe for the colour-blind, distinct in grey
MARKERS = "Dosv^"


def plot_series(
    imputation: Imputation,
    series: Any = None,
    *,
    columns: Sequence[str] | None = None,
    rows: slice = slice(None),
    truth: Floats | None = None,
    level: float = 0.9,
) -> "Figure":
    """Plot one series, a panel for each column: observed points, filled values and their intervals, if any.

    `series` is an id, by default the first; `rows` selects a part of it; `truth` (row, feature) is shown where values
    were missing.
    """
    from matplotlib import pyplot as plt

    panel = imputation.panel
    names = list(columns or panel.columns)
    place = _rows(panel, series)
    times = _dates(panel, panel.times[place][rows])
    if not len(times):
        raise DataError(f"no steps in {rows}: the series has {place.stop - place.start:,} steps")
    filled, classes = imputation.mean_rows, imputation.of_kind(*CLASSES)
    lower, upper = imputation.interval_rows(level) if imputation.has_intervals else (filled, filled)
    figure, axes = plt.subplots(
        len(names), 1, sharex=True, squeeze=False, figsize=(10, 1.0 + 1.7 * len(names)), layout="constrained"
    )
    for axis, name in zip(axes[:, 0], names, strict=True):
        j = panel.columns.index(name)
        mean, low, high = (array[place, j][rows] for array in (filled, lower, upper))
        hidden = None if truth is None else truth[place, j][rows]
        _draw(axis, times, mean, low, high, panel.observed[place, j][rows], hidden, joined=not classes[j])
        axis.set_ylabel(name)
        if name in panel.labels:
            axis.set_yticks(range(len(panel.labels[name])), panel.labels[name])
    _name_time(axes[-1, 0], panel)
    title = f"filled gaps with {level:.0%} intervals" if imputation.has_intervals else "filled gaps"
    axes[0, 0].set_title(title, loc="left")
    entries = (zip(*axis.get_legend_handles_labels(), strict=True) for axis in axes[:, 0])
    handles = {label: handle for panel_entries in entries for handle, label in panel_entries}
    figure.legend(handles.values(), handles.keys(), loc="outside upper right", ncols=4, frameon=False)
    return figure


def plot_calibration(result: Imputation | Evaluation) -> "Figure":
    """Plot the share of known values inside the intervals against their level, for each method with intervals.

    For an imputation, the known values are the cells that its imputer held out when it was fitted to the same data.
    """
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(4.2, 4.2), layout="constrained")
    axis.plot([0, 1], [0, 1], "--", color=TRUTH, linewidth=1.2, label="ideal")
    curves = _calibrations(result)
    shades = np.linspace(0.0, 0.6, len(curves))
    for (name, points), marker, shade in zip(curves.items(), MARKERS, shades, strict=False):
        level, share, low, high = (np.array([point[key] for point in points]) for key in POINT)
        ends = np.stack([share - low, high - share])
        colour = tuple((1 - shade) * np.array(_rgb(FILLED)) + shade)
        axis.errorbar(level, share, yerr=ends, color=colour, marker=marker, markersize=4, linewidth=1.2, label=name)
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="level", ylabel="share inside")
    axis.legend(frameon=False, loc="upper left")
    axis.spines[["top", "right"]].set_visible(False)
    return figure


POINT = ("level", "share", "low", "high")


def _calibrations(result: Imputation | Evaluation) -> dict[str, list[dict[str, float]]]:
    evidence: dict[str, Evidence | str]
    if isinstance(result, Evaluation):
        evidence = {
            name: Evidence(each, result.panel.with_labels(each.panel.labels).values, result.cells)
            for name, each in result.imputations.items()
            if each.has_intervals
        }
    else:
        evidence = {result.method: held_out_evidence(result)}
    results = {name: assess(each, name) for name, each in evidence.items()}
    curves = {name: each["calibration"]["points"] for name, each in results.items() if each["calibration"]}
    if not curves:
        reasons = [each["unknown"] for each in results.values()] or ["no method gives intervals"]
        raise DataError(f"cannot plot calibration: {reasons[0]}")
    return curves


def plot_missingness(data: Panel | Imputation) -> "Figure":
    """Plot the missing share of each column over time, over all series."""
    from matplotlib import pyplot as plt

    panel = data.panel if isinstance(data, Imputation) else data
    missing = pattern(panel)
    names, times = missing["columns"], missing["over_time"]["times"]
    shares = np.array(missing["over_time"]["shares"], dtype=float)
    figure, axis = plt.subplots(figsize=(10, 1.0 + 0.28 * len(names)), layout="constrained")
    half = (times[-1] - times[0]) / max(1, len(times) - 1) / 2 or 0.5
    ends = _dates(panel, np.array([times[0] - half, times[-1] + half]))
    if panel.origin is not None:
        axis.xaxis_date()
    extent = (*(axis.convert_xunits(end) for end in ends), len(names) - 0.5, -0.5)
    image = axis.imshow(shares, aspect="auto", cmap="Blues", vmin=0, vmax=1, extent=extent, interpolation="nearest")
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(axis="y", length=0)
    axis.spines[:].set_visible(False)
    _name_time(axis, panel)
    figure.colorbar(image, ax=axis, label="missing share", ticks=[0, 0.5, 1], pad=0.01)
    return figure


def plot_reconstructions(
    imputation: Imputation,
    series: Any = None,
    *,
    truth: Floats | None = None,
    frames: int = 10,
    image_shape: tuple[int, int, int] | None = None,
) -> "Figure":
    """Plot frames of a series of images: truth (row, feature) if given, input, filled values and uncertainty.

    Pixels are between 0 and 1. `image_shape` is (channel, height, width), by default that of the imputer's model.
    """
    from gpvae.report.figures import Frames, reconstructions

    panel = imputation.panel
    shape = image_shape or image_shape_of(imputation)
    if shape is None:
        raise DataError("image_shape (channel, height, width) is needed, with one value for each column")
    rows = np.arange(len(panel.values))[_rows(panel, series)][:frames]
    shown = {} if truth is None else {"truth": truth[rows]}
    shown |= {"input": panel.values[rows], "filled": imputation.mean_rows[rows]}
    if imputation.stds is not None:
        std = np.nan_to_num(imputation.std_rows[rows])
        shown["uncertainty"] = 1 - std / max(float(std.max()), 1e-12)
    return reconstructions([Frames(f"series {panel.ids[0] if series is None else series}", shape, shown)])


def _rows(panel: Panel, series: Any) -> slice:
    if series is not None and series not in panel.ids:
        raise DataError(f"unknown series {series!r}")
    which = 0 if series is None else panel.ids.index(series)
    return slice(int(panel.starts[which]), int(panel.starts[which] + panel.lengths[which]))


def _draw(
    axis: "Axes",
    times: Any,
    mean: Floats,
    lower: Floats,
    upper: Floats,
    observed: Bools,
    truth: Floats | None,
    *,
    joined: bool,
) -> None:
    """Classes are not `joined` by a line, since nothing lies between two of them."""
    missing = ~observed
    # The band starts at the observation before a gap and ends at the one after it, with zero width there.
    near = missing | np.roll(missing, 1) | np.roll(missing, -1)
    near[[0, -1]] = missing[[0, -1]] | missing[[1, -2]] if len(near) > 1 else missing
    axis.plot(times, np.where(observed, mean, np.nan), ".", color=OBSERVED, markersize=3, label="observed")
    if joined:
        axis.plot(times, np.where(near, mean, np.nan), "-", color=FILLED, linewidth=1.2, label="filled")
        band = {"color": FILLED, "alpha": 0.25, "linewidth": 0, "label": "interval"}
        axis.fill_between(times, lower, upper, where=list(near), **band)
    name = None if joined else "filled"  # else the line has this label
    axis.plot(times, np.where(missing, mean, np.nan), "o", color=FILLED, markersize=2.5, label=name)
    if truth is not None:
        hidden = np.where(missing, truth, np.nan)
        axis.plot(times, hidden, "x", color=TRUTH, markersize=4, label="hidden truth")
    axis.spines[["top", "right"]].set_visible(False)


def _dates(panel: Panel, times: Floats) -> Any:
    """Times as dates, if they are dates."""
    if panel.origin is None:
        return times
    return np.datetime64(0, "us") + np.rint((panel.origin + times) * 1e6).astype("m8[us]")


def _name_time(axis: "Axes", panel: Panel) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    if panel.origin is None:
        axis.set_xlabel(str(panel.source.time or "time"))
        return
    locator = AutoDateLocator()
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
