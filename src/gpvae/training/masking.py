"""What training hides: `target, visible = masking.apply(batch, masking.draw(...))`.

The model is trained to predict the target from what is visible of it. Hidden are single cells, runs of steps, or the
gaps of another series; with mixup, the target is a mixture of two series. Drawing the random numbers and applying them
are apart, so that the latter can be compiled.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from gpvae.data.batches import Batch


class Mixup(NamedTuple):
    """Which other series is mixed into each of a batch, and by how much."""

    other: Tensor  # (batch,)
    angle: Tensor  # (batch,) 0: not at all; π/2: it is the other


class MaskDraw(NamedTuple):
    """The random numbers of one batch."""

    visibility: Tensor  # (batch, time, feature) bool: what may be visible
    donor_index: Tensor | None  # (batch,) the series whose gaps are borrowed
    mixup: Mixup | None


@dataclass(frozen=True)
class Masking:
    """How values are hidden in training. Shares lie between 0 and 1.

    cells: share of the cells of a series to hide; drawn between two numbers for each series.
    runs: share of the series in which runs of steps are hidden instead of single cells.
    borrowed: share of the series in which the gaps of another series of the batch are hidden instead; None: half of the
        share that is observed. In sparse tables borrowed gaps leave hardly anything visible.
    visible_weight: weight of visible values in the bound; None: half of the share that is observed, at most 0.3. In
        sparse tables, copying what is visible is learned soon, and takes capacity from the rest.
    mixup: share of the series that are mixed with another one: x cos θ + x' sin θ.
    """

    MAX_VISIBLE_WEIGHT = 0.3
    BORROWED = 0.5  # where nearly all is observed

    cells: tuple[float, float] = (0.0, 1.0)
    runs: float = 0.2
    borrowed: float | None = None
    visible_weight: float | None = None
    mixup: float = 0.0

    def __post_init__(self) -> None:
        lowest, highest = self.cells
        shares = (lowest, highest, self.runs, self.borrowed or 0.0, self.visible_weight or 0.0, self.mixup)
        if lowest > highest or not all(0 <= share <= 1 for share in shares):
            raise ValueError(
                f"the settings of Masking must be shares between 0 and 1, cells from low to high, got {self}"
            )

        if not (highest or self.runs or self.borrowed is None or self.borrowed or self.mixup):
            raise ValueError("this Masking hides nothing; use masking=None instead")

    def resolve(self, share_observed: float) -> "Masking":
        """The same with everything decided that the data decides."""
        half = share_observed / 2
        return replace(
            self,
            borrowed=self.BORROWED * share_observed if self.borrowed is None else self.borrowed,
            visible_weight=min(self.MAX_VISIBLE_WEIGHT, half) if self.visible_weight is None else self.visible_weight,
        )

    def draw(self, shape: tuple[int, int], features: int, generator: Generator) -> MaskDraw:
        """Random numbers for a batch of `shape` (batch, time)."""
        batch = shape[0]
        return MaskDraw(
            random_visibility(shape, features, self.cells, self.runs, generator),
            donor_index(batch, self.borrowed, generator) if self.borrowed else None,
            draw_mixup(batch, self.mixup, generator) if self.mixup and batch > 1 else None,
        )

    def apply(self, batch: Batch, draw: MaskDraw) -> tuple[Batch, Batch]:
        """The target, and what is visible of it."""
        borrowed = None if draw.donor_index is None else borrowed_gaps(batch, draw.donor_index)
        target = batch if draw.mixup is None else mix(batch, draw.mixup)
        return target, apply_visibility(target, draw.visibility, borrowed)


def random_visibility(
    shape: tuple[int, int], features: int, cells: tuple[float, float], runs: float, generator: Generator
) -> Tensor:
    """All but single cells, or all but one run of steps in each of some columns. (batch, time, feature) bool

    Runs begin and end anywhere, also before the series and behind it: more than a quarter hide its first steps, as many
    its last, and a few all of it. In half of those series the run is the same for all columns that have one, and those
    are few in one series and many in another: a model that never saw an outage of one column, the others visible, would
    make little of the others.
    """
    batch, time = shape

    def uniform(*size: int) -> Tensor:
        return torch.rand(size, generator=generator, device=generator.device)

    lowest, highest = cells
    share = lowest if lowest == highest else lowest + (highest - lowest) * uniform(batch, 1, 1)
    single = uniform(batch, time, features) < share
    if not runs:
        return ~single
    step = torch.arange(time, device=generator.device).view(1, -1, 1)
    ends = time * (1.5 * uniform(2, batch, 1, features) - 0.25)
    ends = torch.where(uniform(batch, 1, 1) < 0.5, ends, ends[..., :1])
    columns = uniform(batch, 1, features) < uniform(batch, 1, 1)
    run = columns & (step >= ends.amin(0)) & (step < ends.amax(0))
    return ~torch.where(uniform(batch, 1, 1) < runs, run, single)


def donor_index(batch: int, share: float, generator: Generator) -> Tensor:
    """The series whose gaps each series borrows: any of the batch for a share of them, for the others itself."""
    borrows, donor = torch.rand((2, batch), generator=generator, device=generator.device)
    return torch.where(borrows < share, (batch * donor).long(), torch.arange(batch, device=generator.device))


def borrowed_gaps(batch: Batch, donor: Tensor) -> Tensor:
    """What the donor of each series lacks; nothing behind its end. (batch, time, feature) bool"""
    return (batch.valid.unsqueeze(-1) & ~batch.observed)[donor]


def apply_visibility(batch: Batch, visibility: Tensor, borrowed: Tensor | None) -> Batch:
    """The batch without what is hidden: the borrowed gaps where they hide anything, else what `visibility` says."""
    if borrowed is not None:
        hides = (batch.observed & borrowed).flatten(1).any(-1)
        visibility = torch.where(hides[:, None, None], ~borrowed, visibility)
    return replace(batch, observed=batch.observed & visibility)


def draw_mixup(batch: int, share: float, generator: Generator) -> Mixup:
    """Any two of a batch, at any angle, for a share of the series."""
    mixes, other, turn = torch.rand((3, batch), generator=generator, device=generator.device)
    partner = torch.arange(batch, device=generator.device) + 1 + ((batch - 1) * other).long()
    return Mixup(partner % batch, torch.where(mixes < share, math.pi / 2 * turn, 0.0))


def mix(batch: Batch, mixup: Mixup) -> Batch:
    """X cos θ + x' sin θ where both are observed: of independent Gaussian series of mean zero and equal covariance,
    another one. A series of whose observed values less than half would be left stays as it is.
    """
    both = batch.observed & batch.observed[mixup.other]
    enough = 2 * both.sum((1, 2)) >= batch.observed.sum((1, 2))
    angle = torch.where(enough, mixup.angle, 0.0)[:, None, None]
    observed = torch.where(angle > 0, both, batch.observed)
    values = batch.values * angle.cos() + batch.values[mixup.other] * angle.sin()
    return replace(batch, values=torch.where(observed, values, 0.0), observed=observed)
