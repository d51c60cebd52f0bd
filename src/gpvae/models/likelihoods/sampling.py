"""Random numbers whose draws are stratified: one in each n-th of the distribution (Latin hypercube sampling).

Each draw is distributed as if it were alone, but n of them lie closer to the whole: quantiles read from 20 stratified
draws are about as exact as those read from 100 independent ones.
"""

import torch
from torch import Generator, Tensor


def stratified(ranks: Tensor, generator: Generator) -> Tensor:
    """Uniform numbers in the order of `ranks`, 0 to n - 1 along the first dimension: u_i = (rank_i + v_i) / n."""
    within = torch.rand(ranks.shape, generator=generator, device=ranks.device)
    edge = torch.finfo(within.dtype).eps / 2
    return ((ranks + within) / len(ranks)).clamp(edge, 1 - edge)


def uniform_like(x: Tensor, generator: Generator) -> Tensor:
    """Stratified along the first dimension, in random order; cells are independent of each other."""
    return stratified(torch.rand(x.shape, generator=generator, device=x.device).argsort(0), generator)


def normal_like(x: Tensor, generator: Generator) -> Tensor:
    return torch.special.ndtri(uniform_like(x, generator)).to(x.dtype)
