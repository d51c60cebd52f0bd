"""The latent series of a method, as a report shows them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpvae.data.panel import Floats, Panel


class Latents(NamedTuple):
    """The posterior of the latent series at the rows of a panel."""

    mean: NDArray[np.float32]  # (row, latent)
    std: NDArray[np.float32]  # (row, latent)


class Influence(NamedTuple):
    """How much each latent series matters to each column."""

    values: Floats  # (latent + others, column) NaN where it is not known
    others: tuple[str, ...]  # what the last rows are about
    sentence: str  # what to conclude


@dataclass(frozen=True)
class LatentView:
    """What a report shows of the latent series of a fitted method."""

    names: tuple[str, ...]  # (latent,)
    words: tuple[str, ...]  # (latent,) what each is, or nothing
    columns: tuple[str, ...]  # of the influence
    summary: str  # what the latent series are
    note: str  # added below the plot of the series
    measure: Literal["change", "share"]  # of influence: in standard deviations of a column, or of its variance
    posterior: Callable[[Panel], Latents]
    influence: Callable[[Panel], Influence]  # from some rows, if rows are needed
