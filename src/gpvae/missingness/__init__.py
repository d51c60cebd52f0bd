"""Missingness mechanisms: each takes a panel, a rate and a seed, and chooses observed cells to remove.

`random` removes exactly this share of the cells; the others remove it on average. `spatial`, `temporal_positive`,
`temporal_negative` and `not_at_random` are those of the paper, `blocks` are outages, and `like_own` imitates the gaps
that the panel has.
"""

from collections.abc import Callable

from gpvae.data.panel import Bools
from gpvae.missingness.cells import blocks, by_value, hide, like_own, not_at_random, random
from gpvae.missingness.fields import spatial, temporal_positive
from gpvae.missingness.repulsion import temporal_negative

MECHANISMS: dict[str, Callable[..., Bools]] = {
    "random": random,
    "spatial": spatial,  # needs image_shape
    "temporal+": temporal_positive,
    "temporal-": temporal_negative,
    "not-at-random": not_at_random,
    "blocks": blocks,
    "like-own": like_own,  # needs a panel with gaps
}

__all__ = [
    "MECHANISMS",
    "blocks",
    "by_value",
    "hide",
    "like_own",
    "not_at_random",
    "random",
    "spatial",
    "temporal_negative",
    "temporal_positive",
]
