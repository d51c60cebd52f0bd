"""Figures 2 and 3 of the paper, from the examples in the results folder."""

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from gpvae.datasets.healing_mnist import IMAGE_SHAPE as DIGIT_SHAPE
from gpvae.datasets.physionet import VARIABLES
from gpvae.datasets.sprites import IMAGE_SHAPE as SPRITE_SHAPE
from gpvae.paper.reproduction.experiment import Example
from gpvae.paper.reproduction.record import Results
from gpvae.paper.reproduction.runs import runs_of
from gpvae.paper.tables import METHOD_NAMES
from gpvae.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HALF_WIDTH = NormalDist().inv_cdf(0.95)  # of a 90 % interval, in standard deviations


def draw(name: str, results: Results, *, quick: bool) -> "Figure":
    return (_reconstructions if name == "F2" else _patient)(results, quick=quick)


def _examples(figure: str, data: str, results: Results, *, quick: bool) -> dict[str, Example]:
    """By the name of the method in the figure."""
    runs = [run for run in runs_of(figure, 1, quick=quick) if run.task.data == data]
    names = [METHOD_NAMES[run.task.method].removesuffix(" imputation") + ", ours" * bool(run.changes) for run in runs]
    return {name: results.example(run) for name, run in zip(names, runs, strict=True)}


def _reconstructions(results: Results, *, quick: bool) -> "Figure":
    """The first test series of both image data sets, as each method fills it."""
    blocks: list[figures.Frames] = []
    for data, title, shape in (("healing_mnist", "Healing MNIST", DIGIT_SHAPE), ("sprites", "SPRITES", SPRITE_SHAPE)):
        examples = _examples("F2", data, results, quick=quick)
        first = next(iter(examples.values()))
        rows = {"truth": first.truth, "input": np.where(first.hidden, np.nan, first.truth)}
        rows |= {name: example.filled for name, example in examples.items()}
        blocks.append(figures.Frames(title, shape, rows))
    return figures.reconstructions(blocks)


def _patient(results: Results, *, quick: bool) -> "Figure":
    """Six variables of one patient, from the most to the least often measured one that has held-out values."""
    examples = _examples("F3", "physionet2012", results, quick=quick)
    ours = examples.pop("GP-VAE, ours")
    examples.pop("GP-VAE")
    assert ours.std is not None
    known = ~np.isnan(ours.truth) & ~ours.hidden
    candidates = np.flatnonzero(ours.hidden.any(0) & known.any(0))
    by_count = candidates[np.argsort(-known[:, candidates].sum(0), kind="stable")]
    chosen = by_count[np.unique(np.linspace(0, len(by_count) - 1, 6).round().astype(int))]
    margin = HALF_WIDTH * ours.std[:, chosen]
    return figures.patient(
        np.arange(len(ours.truth), dtype=np.float64),
        [VARIABLES[j] for j in chosen],
        np.where(known, ours.truth, np.nan)[:, chosen],
        np.where(ours.hidden, ours.truth, np.nan)[:, chosen],
        {name: example.filled[:, chosen] for name, example in examples.items()},
        ours.filled[:, chosen],
        ours.filled[:, chosen] - margin,
        ours.filled[:, chosen] + margin,
    )
