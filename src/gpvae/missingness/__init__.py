"""Ways to remove values: each takes a panel, a share and a seed, and says which observed cells to remove.

`random` removes an exact share. The others remove each observed cell with this probability on average: `spatial`,
`temporal_positive`, `temporal_negative` and `not_at_random` are those of the paper, `blocks` are outages, `like_own`
imitates the gaps that the panel has.
"""

from collections.abc import Callable

from gpvae.data.panel import Bools
from gpvae.missingness.cells import blocks, by_value, hide, like_own, not_at_random, random
from gpvae.missingness.fields import spatial, temporal_positive
from gpvae.missingness.repulsion import temporal_negative

MECHANISMS: dict[str, Callable[..., Bools]] = {
    "random": random,
    "spatial": spatial,  # needs the shape of the image
    "temporal+": temporal_positive,
    "temporal-": temporal_negative,
    "not-at-random": not_at_random,
    "blocks": blocks,
    "like-own": like_own,  # needs gaps to imitate
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
