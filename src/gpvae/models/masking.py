"""What training practises on: mixtures of series, and what the encoder may see of a series.

Hidden from it, and scored, are single values, runs of them, and what other series lack.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from gpvae.data.batches import Batch


class Mixture(NamedTuple):
    """Of each series of a batch, which other is mixed into it, and by how much."""

    other: Tensor  # (batch,)
    angle: Tensor  # (batch,) 0: not at all; a right angle: it is the other


def mixtures(batch: int, share: Tensor, generator: Generator) -> Mixture:
    """Any two of a batch, at any angle, for a share of the series."""
    mixes, anyone, turn = torch.rand((3, batch), generator=generator, device=generator.device)
    other = torch.arange(batch, device=generator.device) + 1 + ((batch - 1) * anyone).long()
    return Mixture(other % batch, torch.where(mixes < share, math.pi / 2 * turn, 0.0))


def mixed(batch: Batch, mixture: Mixture) -> Batch:
    """Series that never were: x cos θ + x' sin θ, where both are observed.

    Of two independent Gaussian series of mean zero with the same covariance that is another one. A series of whose
    observed values less than half would be left stays as it is.
    """
    both = batch.observed & batch.observed[mixture.other]
    enough = 2 * both.sum((1, 2)) >= batch.observed.sum((1, 2))
    angle = torch.where(enough, mixture.angle, 0.0)[:, None, None]
    observed = torch.where(angle > 0, both, batch.observed)
    values = batch.values * angle.cos() + batch.values[mixture.other] * angle.sin()
    return replace(batch, values=torch.where(observed, values, 0.0), observed=observed)


def shown_by_chance(
    shape: tuple[int, ...], shares: tuple[float, float], runs: float, generator: Generator, columns: int
) -> Tensor:
    """What the encoder may see: all but single values, or all but one run of steps in each of some columns.

    Of single values it hides a share between the two, another in each series; runs in the share `runs` of the series.
    They begin and end anywhere, also before the series and behind it: more than a quarter hide its first steps, as
    many its last, and a few all of it. In half of those series they are the same for all those columns, of which there
    are few in one series and many in another: a model that never saw an outage of one column, all others visible,
    would make little of the others.
    (batch, time, feature)
    """
    batch, time = shape

    def uniform(*size: int) -> Tensor:
        return torch.rand(size, generator=generator, device=generator.device)

    lowest, highest = shares
    share = lowest if lowest == highest else lowest + (highest - lowest) * uniform(batch, 1, 1)
    single = uniform(batch, time, columns) < share
    if not runs:
        return ~single
    step = torch.arange(time, device=generator.device).view(1, -1, 1)
    ends = time * (1.5 * uniform(2, batch, 1, columns) - 0.25)
    ends = torch.where(uniform(batch, 1, 1) < 0.5, ends, ends[..., :1])
    some = uniform(batch, 1, columns) < uniform(batch, 1, 1)
    run = some & (step >= ends.amin(0)) & (step < ends.amax(0))
    return ~torch.where(uniform(batch, 1, 1) < runs, run, single)


def lenders(batch: int, share: float, generator: Generator) -> Tensor:
    """Of each series, which one of the batch lends it its gaps: for a share of them any, for the others itself."""
    lends, anyone = torch.rand((2, batch), generator=generator, device=generator.device)
    return torch.where(lends < share, (batch * anyone).long(), torch.arange(batch, device=generator.device))


def lacking(batch: Batch, lender: Tensor) -> Tensor:
    """What the lender of each series lacks: behind its end, nothing. (batch, time, feature)"""
    return (batch.valid.unsqueeze(-1) & ~batch.observed)[lender]


def as_shown(batch: Batch, shown: Tensor, lacked: Tensor | None) -> Batch:
    """The batch as training lets the encoder see it: as `shown`, or without what lenders lacked, if that hides any."""
    if lacked is not None:
        teaches = (batch.observed & lacked).flatten(1).any(-1)
        shown = torch.where(teaches[:, None, None], ~lacked, shown)
    return replace(batch, observed=batch.observed & shown)
