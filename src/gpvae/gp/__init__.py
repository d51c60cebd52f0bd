"""Structured Gaussian algebra on tensors: definitions in `chains`, fast implementations in `fast` and `gpu`."""

from gpvae.gp.chains import LOG_2PI, Chain, NeighbourFactor, chain_kl, grid_factor, kl_steps, neighbour_factor
from gpvae.gp.fast import linear_recurrence

__all__ = [
    "LOG_2PI",
    "Chain",
    "NeighbourFactor",
    "chain_kl",
    "grid_factor",
    "kl_steps",
    "linear_recurrence",
    "neighbour_factor",
]
