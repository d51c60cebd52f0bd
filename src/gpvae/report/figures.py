"""The paper's two figures, from plain arrays (Matplotlib, from the extra `plot`)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import DataError, Floats
from gpvae.report.plots import FILLED, OBSERVED, TRUTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = "#8FB8DE"  # a calm blue, neither black nor white nor grey
LINES = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # safe for the colour-blind, beside those of plots.py
STYLES = ("-", "--", ":")
PAGE = 7.0  # inches, the width of a page's text
DPI = 400  # a frame's pixels are still larger than those of the file
SMALL = 7.5  # points


@dataclass(frozen=True)
class Frames:
    """Frames of one series of images in several rows: the truth, the input, and what methods filled in."""

    title: str
    image_shape: tuple[int, int, int]  # (channel, height, width), one channel or three
    rows: Mapping[str, NDArray[Any]]  # (time, channel·height·width) from 0 to 1, NaN = missing

    def __post_init__(self) -> None:
        if self.image_shape[0] not in (1, 3):
            raise DataError(f"{self.title}: images must have 1 or 3 channels, got {self.image_shape[0]}")
        if not any(map(len, self.rows.values())):
            raise DataError(f"{self.title}: no frames to draw")
        shape = (len(next(iter(self.rows.values()))), math.prod(self.image_shape))
        for name, row in self.rows.items():
            if row.shape != shape:
                raise DataError(f"{self.title}: row {name!r} must have shape {shape}, got {row.shape}")

    @cached_property
    def image(self) -> NDArray[Any]:
        """All rows below each other as one image, with white lines between frames. (height, width, colour)"""
        channels, height, width = self.image_shape
        lines = [_visible(row.reshape(-1, channels, height, width)) for row in self.rows.values()]
        framed = np.pad(lines, ((0, 0), (0, 0), (0, self.gap), (0, self.gap), (0, 0)), constant_values=1.0)
        stacked = framed.transpose(0, 2, 1, 3, 4)  # (row, height, time, width, colour)
        return stacked.reshape(len(lines) * framed.shape[2], -1, 3)[: -self.gap, : -self.gap]

    @property
    def gap(self) -> int:
        """Pixels between two frames."""
        return max(1, round(self.image_shape[1] / 28))

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the image, in units of a frame's width."""
        height, width, _ = self.image.shape
        return width / self.image_shape[2], height / self.image_shape[2]


def reconstructions(sets: Sequence[Frames]) -> "Figure":
    """The paper's figure 2: a block for each data set, with its rows of frames below each other.

    Missing pixels are blue; in colour images, the more channels of a pixel are missing, the bluer it is.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    if not sets:
        raise DataError("no data set to draw")
    named = [i == 0 or [*each.rows] != [*sets[0].rows] for i, each in enumerate(sets)]
    margins = [0.15 + max(map(_inches, each.rows)) * names for each, names in zip(sets, named, strict=True)]
    frame = (PAGE - 0.05 - sum(margins)) / sum(each.size[0] for each in sets)  # inches
    top, bottom, tallest = 0.25, 0.3, frame * max(each.size[1] for each in sets)
    figure = Figure(figsize=(PAGE, top + tallest + bottom), dpi=DPI)
    left = 0.0
    for each, margin, names in zip(sets, margins, named, strict=True):
        width, height = frame * each.size[0], frame * each.size[1]
        place = np.array([left + margin, bottom + tallest - height, width, height])
        _draw_block(figure.add_axes(tuple(place / np.tile(figure.get_size_inches(), 2))), each, named=names)
        left += margin + width
    if any(np.isnan(row).any() for each in sets for row in each.rows.values()):
        colours = any(each.image_shape[0] == 3 for each in sets)
        label = "missing (tinted: one or two of three channels)" if colours else "missing"
        handles = [Patch(facecolor=MISSING, label=label)]
        figure.legend(handles=handles, loc="lower right", frameon=False, fontsize=SMALL, borderaxespad=0.1)
    return figure


def _inches(text: str) -> float:
    from matplotlib.textpath import TextPath

    return TextPath((0, 0), text, size=SMALL).get_extents().width / 72


def _draw_block(axis: "Axes", frames: Frames, *, named: bool) -> None:
    axis.imshow(frames.image, interpolation="nearest", aspect="auto")
    height = frames.image_shape[1]
    middles = (height - 1) / 2 + (height + frames.gap) * np.arange(len(frames.rows))
    axis.set_yticks(middles, [*frames.rows] if named else [""] * len(middles), fontsize=SMALL)
    axis.set_xticks([])
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    axis.set_title(frames.title, fontsize=SMALL + 1, pad=4)


def _visible(images: NDArray[Any]) -> Floats:
    """Colours of images (time, channel, height, width), clipped to 0..1. (time, height, width, colour)

    A missing channel is drawn as the mean of the others, mixed with its share of blue.
    """
    from matplotlib.colors import to_rgb

    missing = np.isnan(images)
    values = np.clip(np.where(missing, 0.0, images), 0.0, 1.0)
    seen = (~missing).sum(axis=1, keepdims=True)
    mean = values.sum(axis=1, keepdims=True) / np.maximum(seen, 1)
    share = missing.mean(axis=1, keepdims=True)
    blue = np.reshape(to_rgb(MISSING), (3, 1, 1))
    mixed = (1 - share) * np.where(missing, mean, values) + share * blue
    return mixed.transpose(0, 2, 3, 1)


def patient(
    times: Floats,
    variables: Sequence[str],
    observed: Floats,
    held_out: Floats,
    lines: Mapping[str, Floats],
    mean: Floats,
    lower: Floats,
    upper: Floats,
    *,
    level: float = 0.9,
    unit: str = "hours",
) -> "Figure":
    """The paper's figure 3: one patient, a panel for each variable, with points, baselines and the GP-VAE's band.

    Arrays are (time, variable). `observed` has the input of the methods and `held_out` the values hidden from them,
    NaN elsewhere; titles give the missing share of the input. The line named "forward" is drawn as steps.
    """
    from matplotlib.figure import Figure

    given = {"observed": observed, "held_out": held_out, "mean": mean, "lower": lower, "upper": upper}
    named = {f"line {name!r}": values for name, values in lines.items()}
    _require_shapes({**given, **named}, (len(times), len(variables)))
    across = min(3, math.ceil(math.sqrt(len(variables))))
    down = math.ceil(len(variables) / across)
    figure = Figure(figsize=(PAGE, 0.6 + 1.45 * down), dpi=DPI, layout="constrained")
    axes = figure.subplots(down, across, sharex=True, squeeze=False).ravel()
    for j, (axis, name) in enumerate(zip(axes, variables, strict=False)):
        _draw_points(axis, times, observed[:, j], color=OBSERVED, marker="o", markersize=2.6, label="observed")
        _draw_points(axis, times, held_out[:, j], color=TRUTH, marker="D", markersize=3.2, label="held out")
        _draw_lines(axis, times, {label: values[:, j] for label, values in lines.items()})
        interval = f"its {100 * level:g} % interval"
        axis.plot(times, mean[:, j], color=FILLED, linewidth=1.6, label="GP-VAE")
        axis.fill_between(
            times, lower[:, j], upper[:, j], color=FILLED, alpha=0.25, linewidth=0, zorder=1, label=interval
        )
        axis.set_title(f"{name}, {100 * np.isnan(observed[:, j]).mean():.0f} % missing", fontsize=SMALL + 0.5)
        axis.tick_params(labelsize=SMALL - 1)
        axis.spines[["top", "right"]].set_visible(False)
        axis.xaxis.set_tick_params(labelbottom=j + across >= len(variables))  # if no panel is below
    for axis in axes[len(variables) :]:
        axis.remove()
    figure.supxlabel(unit, fontsize=SMALL)
    handles, labels = axes[0].get_legend_handles_labels()
    look: dict[str, Any] = {"frameon": False, "fontsize": SMALL, "columnspacing": 1.4}
    figure.legend(handles, labels, loc="outside upper center", ncols=min(len(labels), 7), **look)
    return figure


def _require_shapes(given: Mapping[str, Floats], shape: tuple[int, int]) -> None:
    for name, array in given.items():
        if array.shape != shape:
            raise DataError(f"{name} must have shape {shape} (time, variable), got {array.shape}")
    if not math.prod(shape):
        raise DataError("no times or no variables to draw")
    if (~np.isnan(given["observed"]) & ~np.isnan(given["held_out"])).any():
        raise DataError("a value cannot be both observed and held out")


def _draw_lines(axis: "Axes", times: Floats, lines: Mapping[str, Floats]) -> None:
    for (name, values), colour, style in zip(lines.items(), cycle(LINES), cycle(STYLES), strict=False):
        steps = "steps-post" if name.lower() == "forward" else "default"
        axis.plot(times, values, style, color=colour, linewidth=0.9, drawstyle=steps, label=name)


def _draw_points(axis: "Axes", times: Floats, values: Floats, **look: Any) -> None:
    there = ~np.isnan(values)
    axis.plot(times[there], values[there], linestyle="none", markeredgewidth=0, zorder=3, **look)
