"""Figures 2 and 3, drawn from the examples of the runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stand_ins import CHANGE_COUNTS, FakeExecute, example_of, task

from gpvae.paper.reproduction import Run, figures, reproduce


def test_figure_2_shows_truth_input_and_every_method(
    executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    draw = figures.figures.reconstructions
    monkeypatch.setattr(figures.figures, "reconstructions", lambda blocks: draw(drawn.append(blocks) or blocks))
    assert reproduce(["F2"], tmp_path, quick=True) == {"F2": tmp_path / "quick" / "F2.png"}
    picture = (tmp_path / "quick" / "F2.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert b"seeds 0; commit " in picture
    ((digits, sprites),) = drawn
    assert (digits.title, sprites.title) == ("Healing MNIST", "SPRITES")
    methods = ["mean", "forward", "VAE", "HI-VAE", "HI-VAE, ours", "GP-VAE", "GP-VAE, ours"]
    for data, frames in (("healing_mnist", digits), ("sprites", sprites)):
        assert list(frames.rows) == ["truth", "input", *methods]
        example = example_of(Run(task(data, "gp-vae"), 0))
        assert np.array_equal(frames.rows["truth"], example.truth)
        visible = np.where(example.hidden, np.nan, example.truth)
        assert np.array_equal(frames.rows["input"], visible, equal_nan=True)
        assert (frames.rows["GP-VAE"] == 0).all()
        assert np.allclose(frames.rows["GP-VAE, ours"], CHANGE_COUNTS[data] / 10)


def test_figure_3_shows_six_variables_of_a_patient(
    executed: FakeExecute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the most often measured to the rarest; the band is the 90 % interval with our settings."""
    drawn: list[Any] = []
    draw = figures.figures.patient
    monkeypatch.setattr(figures.figures, "patient", lambda *given: draw(*(drawn.append(given) or given)))
    assert reproduce(["F3"], tmp_path) == {"F3": tmp_path / "F3.png"}
    assert (tmp_path / "F3.png").read_bytes().startswith(b"\x89PNG")
    ((hours, names, known, held_out, others, ours, lower, upper),) = drawn
    assert hours.tolist() == list(range(48))
    assert names == list("abcdef")
    example = example_of(Run(task("physionet2012", "gp-vae"), 0))
    hidden = ~np.isnan(held_out)
    assert np.array_equal(hidden, example.hidden[:, :6])
    assert not (hidden & ~np.isnan(known)).any()
    assert np.array_equal(np.where(hidden, held_out, known), example.truth[:, :6], equal_nan=True)
    assert list(others) == ["forward", "BRITS"]
    assert (ours == 4).all()  # four changes
    np.testing.assert_allclose(upper - ours, 1.6449, rtol=1e-4)
    np.testing.assert_allclose(ours - lower, 1.6449, rtol=1e-4)
