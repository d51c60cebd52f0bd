"""Static plots (Matplotlib, from the extra `plot`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gpvae.imputation import Imputation
from gpvae.panel import Bools, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

OBSERVED, FILLED, TRUTH = "#333333", "#0072B2", "#D55E00"  # safe for the colour-blind, distinct in grey


def plot_series(
    imputation: Imputation,
    series: Any = None,
    *,
    columns: Sequence[str] | None = None,
    rows: slice = slice(None),
    truth: Floats | None = None,
    level: float = 0.9,
) -> "Figure":
    """One series, a panel for each column: observed points, the filled values, their interval.

    `series` is an id, by default the first; `rows` cuts a stretch out of it; `truth` (row, feature) is shown where
    values were missing.
    """
    from matplotlib import pyplot as plt

    panel = imputation.panel
    names = list(columns or panel.columns)
    which = 0 if series is None else panel.ids.index(series)
    place = slice(int(panel.starts[which]), int(panel.starts[which] + panel.lengths[which]))
    times, unit = _readable(panel.times[place][rows] - panel.times[place.start], panel.clock)
    lower, upper = imputation.interval_rows(level)
    figure, axes = plt.subplots(
        len(names), 1, sharex=True, squeeze=False, figsize=(10, 1.0 + 1.7 * len(names)), layout="constrained"
    )
    for axis, name in zip(axes[:, 0], names, strict=True):
        j = panel.columns.index(name)
        mean, low, high = (array[place, j][rows] for array in (imputation.mean_rows, lower, upper))
        hidden = None if truth is None else truth[place, j][rows]
        _draw(axis, times, mean, low, high, panel.observed[place, j][rows], hidden)
        axis.set_ylabel(name)
    axes[-1, 0].set_xlabel(unit)
    axes[0, 0].set_title(f"filled gaps with {level:.0%} intervals", loc="left")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=4, frameon=False)
    return figure


def _draw(
    axis: "Axes", times: Floats, mean: Floats, lower: Floats, upper: Floats, observed: Bools, truth: Floats | None
) -> None:
    missing = ~observed
    # The band reaches from the observation before a gap to the one behind it, where it has no width.
    near = missing | np.roll(missing, 1) | np.roll(missing, -1)
    near[[0, -1]] = missing[[0, -1]] | missing[[1, -2]] if len(near) > 1 else missing
    axis.plot(times, np.where(observed, mean, np.nan), ".", color=OBSERVED, markersize=3, label="observed")
    axis.plot(times, np.where(near, mean, np.nan), "-", color=FILLED, linewidth=1.2, label="filled")
    axis.fill_between(times, lower, upper, where=list(near), color=FILLED, alpha=0.25, linewidth=0, label="interval")
    axis.plot(times, np.where(missing, mean, np.nan), "o", color=FILLED, markersize=2.5)
    if truth is not None:
        hidden = np.where(missing, truth, np.nan)
        axis.plot(times, hidden, "x", color=TRUTH, markersize=4, label="hidden truth")
    axis.spines[["top", "right"]].set_visible(False)


def _readable(seconds: Floats, clock: str) -> tuple[Floats, str]:
    """Times from the start of the series, in a unit that suits their length."""
    if clock == "number":
        return seconds, "time"
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if len(seconds) and seconds[-1] - seconds[0] >= 2 * length:
            return seconds / length, f"{unit} from the start"
    return seconds, "seconds from the start"
