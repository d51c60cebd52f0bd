"""The paper's figures: every value is drawn where it belongs."""

from itertools import pairwise
from typing import Any, cast

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from gpvae.report.figures import MISSING, Frames, patient, reconstructions

BLUE = np.array(to_rgb(MISSING))


def drawn(frames: Frames, row: int, time: int) -> Any:
    """One frame, cut out of the image in the figure. (height, width, colour)"""
    (image,) = reconstructions([frames]).axes[0].images
    assert image.get_interpolation() == "nearest"
    _, height, width = frames.image_shape
    top, left = row * (height + frames.gap), time * (width + frames.gap)
    return np.asarray(image.get_array())[top : top + height, left : left + width]


def grey(**rows: Any) -> Frames:
    return Frames("digits", (1, 2, 3), rows)


def test_frames_are_drawn_in_their_rows_and_in_time() -> None:
    values = np.random.default_rng(0).uniform(size=(3, 4, 6))  # (row, time, pixel)
    frames = grey(truth=values[0], input=values[1], mean=values[2])
    for row in range(3):
        for time in range(4):
            expected = np.repeat(values[row, time].reshape(2, 3, 1), 3, axis=2)
            np.testing.assert_allclose(drawn(frames, row, time), expected)


def test_rows_are_named_from_the_top_in_the_given_order() -> None:
    frames = grey(truth=np.zeros((4, 6)), input=np.ones((4, 6)), mean=np.zeros((4, 6)))
    axis = reconstructions([frames]).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["truth", "input", "mean"]
    np.testing.assert_allclose(axis.get_yticks(), [0.5, 3.5, 6.5])  # the middles of two pixels and a gap
    assert axis.yaxis_inverted()
    assert not axis.get_xticks().size


def test_colours_come_channel_by_channel_and_are_clipped() -> None:
    values = np.zeros((1, 3, 2, 2))
    values[0, :, 0, 1] = -0.5, 0.25, 1.5
    picture = drawn(Frames("sprites", (3, 2, 2), {"truth": values.reshape(1, -1)}), 0, 0)
    np.testing.assert_allclose(picture[0, 1], [0.0, 0.25, 1.0])
    assert picture.sum() == 1.25
    values[0, 1, 0, 1] = np.nan  # values are clipped before they are mixed with blue
    picture = drawn(Frames("sprites", (3, 2, 2), {"input": values.reshape(1, -1)}), 0, 0)
    np.testing.assert_allclose(picture[0, 1], (2 * np.array([0.0, 0.5, 1.0]) + BLUE) / 3)


def test_only_missing_pixels_are_blue() -> None:
    values = np.array([[np.nan, 0.0, 0.5, 1.0, np.nan, 0.2]])
    picture = drawn(grey(input=values), 0, 0).reshape(-1, 3)
    np.testing.assert_array_equal(np.isclose(picture, BLUE).all(axis=1), np.isnan(values[0]))
    assert np.ptp(BLUE) > 0.2  # not grey


def test_partly_missing_pixels_are_tinted() -> None:
    nan = np.nan
    values = np.array([[0.9, 0.9, 0.9, nan], [0.3, 0.3, nan, nan], [0.6, nan, nan, nan]]).reshape(1, -1)
    picture = drawn(Frames("sprites", (3, 1, 4), {"input": values}), 0, 0)[0]
    expected = [[0.9, 0.3, 0.6], (2 * np.array([0.9, 0.3, 0.6]) + BLUE) / 3, (0.9 + 2 * BLUE) / 3, BLUE]
    np.testing.assert_allclose(picture, expected)


def test_legend_explains_missing_pixels() -> None:
    whole, gaps = np.zeros((1, 6)), np.full((1, 6), np.nan)
    assert not reconstructions([grey(truth=whole)]).legends
    (legend,) = reconstructions([grey(truth=whole, input=gaps)]).legends
    assert [text.get_text() for text in legend.get_texts()] == ["missing"]
    (patch,) = legend.get_patches()
    np.testing.assert_allclose(to_rgb(patch.get_facecolor()), BLUE)


def test_blocks_are_side_by_side_with_equal_frames() -> None:
    digits = grey(truth=np.zeros((4, 6)), mean=np.zeros((4, 6)))
    sprites = Frames("sprites", (3, 64, 96), {"truth": np.zeros((2, 3 * 64 * 96))})
    figure = reconstructions([digits, sprites, digits])
    assert [axis.get_title() for axis in figure.axes] == ["digits", "sprites", "digits"]
    names = [[label.get_text() for label in axis.get_yticklabels()] for axis in figure.axes]
    assert names == [["truth", "mean"], ["truth"], ["", ""]]  # the same names are not repeated
    boxes = [axis.get_position() for axis in figure.axes]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))
    assert boxes[-1].x1 < 1
    np.testing.assert_allclose([box.y1 for box in boxes], boxes[0].y1)
    inches = figure.get_size_inches()
    widths = [box.width * inches[0] / frames.size[0] for box, frames in zip(boxes, (digits, sprites), strict=False)]
    heights = [box.height * inches[1] / frames.size[1] for box, frames in zip(boxes, (digits, sprites), strict=False)]
    np.testing.assert_allclose([*widths, *heights], widths[0])


def test_row_names_fit_on_the_page() -> None:
    frames = Frames("digits", (1, 2, 3), {"a name that is longer than most": np.zeros((4, 6)), "i": np.zeros((4, 6))})
    figure = reconstructions([frames])
    figure.draw_without_rendering()
    ends = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert min(end.x0 for end in ends) >= 0
    assert max(end.x1 for end in ends) <= figure.axes[0].get_window_extent().x0


@pytest.mark.parametrize("shape", [(4, 5), (3, 6), (24,)])
def test_row_with_wrong_shape_is_rejected(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"digits: row 'mean' must have shape \(4, 6\), got"):
        grey(truth=np.zeros((4, 6)), mean=np.zeros(shape))


def test_invalid_frames_are_rejected() -> None:
    for rows in ({}, {"truth": np.zeros((0, 6))}):
        with pytest.raises(ValueError, match="digits: no frames"):
            grey(**rows)
    with pytest.raises(ValueError, match="must have 1 or 3 channels, got 2"):
        Frames("digits", (2, 1, 3), {"truth": np.zeros((4, 6))})
    with pytest.raises(ValueError, match="no data set"):
        reconstructions([])


def chart(variables: int = 2, **changes: Any) -> tuple[dict[str, Any], Figure]:
    """The arguments of a patient's figure, and the figure."""
    rng = np.random.default_rng(1)
    whole = rng.normal(size=(20, variables))
    place = rng.uniform(size=whole.shape)
    given: dict[str, Any] = {
        "times": np.cumsum(rng.uniform(0.5, 1.5, size=20)),
        "variables": [f"v{j}" for j in range(variables)],
        "observed": np.where(place < 0.5, whole, np.nan),
        "held_out": np.where(place > 0.8, whole, np.nan),
        "lines": {"forward": whole + 1, "BRITS": whole + 2},
        "mean": whole + 3,
        "lower": whole + 2.5,
        "upper": whole + 4,
    } | changes
    return given, patient(**given)


def line(axis: Axes, label: str) -> Any:
    (match,) = [candidate for candidate in axis.lines if candidate.get_label() == label]
    return match


@pytest.mark.parametrize(("label", "name"), [("observed", "observed"), ("held out", "held_out")])
def test_points_are_drawn_exactly_where_there_are_values(label: str, name: str) -> None:
    given, figure = chart()
    for j, axis in enumerate(figure.axes):
        points, values = line(axis, label), given[name][:, j]
        there = ~np.isnan(values)
        assert 0 < there.sum() < 20
        np.testing.assert_array_equal(points.get_xdata(), given["times"][there])
        np.testing.assert_array_equal(points.get_ydata(), values[there])
        assert points.get_linestyle() == "None"


def test_observed_and_held_out_points_differ_in_colour_and_shape() -> None:
    observed, held_out = (line(chart()[1].axes[0], label) for label in ("observed", "held out"))
    assert observed.get_color() != held_out.get_color()
    assert observed.get_marker() != held_out.get_marker()


def test_lines_and_steps_of_baselines() -> None:
    given, figure = chart()
    for j, axis in enumerate(figure.axes):
        lines = {**given["lines"], "GP-VAE": given["mean"]}
        for name, values in lines.items():
            np.testing.assert_array_equal(line(axis, name).get_xdata(), given["times"])
            np.testing.assert_array_equal(line(axis, name).get_ydata(), values[:, j])
        assert [line(axis, name).get_drawstyle() for name in lines] == ["steps-post", "default", "default"]
        assert line(axis, "GP-VAE").get_linewidth() > line(axis, "BRITS").get_linewidth()
        assert len({line(axis, name).get_color() for name in lines}) == 3


def test_the_band_reaches_from_lower_to_upper() -> None:
    given, figure = chart()
    for j, axis in enumerate(figure.axes):
        (band,) = axis.collections
        (path,) = cast(PolyCollection, band).get_paths()
        outline = {(x, y) for x, y in np.asarray(path.vertices).tolist()}
        lower, upper = (zip(given["times"], given[edge][:, j], strict=True) for edge in ("lower", "upper"))
        assert outline == {*lower, *upper}


def test_titles_give_the_missing_share_of_the_input() -> None:
    observed, held_out = np.full((20, 2), np.nan), np.full((20, 2), np.nan)
    observed[:15, 0] = held_out[15, 0] = 1.0
    _, figure = chart(variables=2, observed=observed, held_out=held_out)
    assert [axis.get_title() for axis in figure.axes] == ["v0, 25 % missing", "v1, 100 % missing"]


def test_one_legend_for_all_panels() -> None:
    _, figure = chart(level=0.5)
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["observed", "held out", "forward", "BRITS", "GP-VAE", "its 50 % interval"]
    assert all(axis.get_legend() is None for axis in figure.axes)


@pytest.mark.parametrize(("variables", "with_hours"), [(1, [0]), (4, [2, 3]), (5, [2, 3, 4]), (9, [6, 7, 8])])
def test_panel_for_each_variable_with_time_labels_at_the_bottom(variables: int, with_hours: list[int]) -> None:
    _, figure = chart(variables, unit="days")
    assert len(figure.axes) == variables
    figure.draw_without_rendering()
    shown = [any(tick.label1.get_visible() for tick in axis.xaxis.get_major_ticks()) for axis in figure.axes]
    assert np.flatnonzero(shown).tolist() == with_hours
    assert figure.get_supxlabel() == "days"


@pytest.mark.parametrize("name", ["observed", "held_out", "mean", "lower", "upper"])
def test_array_with_wrong_shape_is_rejected(name: str) -> None:
    changes: dict[str, Any] = {name: np.zeros((20, 3))}
    with pytest.raises(ValueError, match=rf"{name} must have shape \(20, 2\) .*, got \(20, 3\)"):
        chart(**changes)


def test_invalid_charts_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"line 'mean' must have shape .*, got \(19, 2\)"):
        chart(lines={"mean": np.zeros((19, 2))})
    with pytest.raises(ValueError, match="cannot be both"):
        chart(observed=np.zeros((20, 2)))
    with pytest.raises(ValueError, match="no variables"):
        chart(variables=0)
