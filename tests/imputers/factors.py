"""Factor models with known parameters, and their dense Gaussian process."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpvae import GPFactor, Panel
from gpvae.gp.state_space import Kind, StateSpace
from gpvae.imputers.factor import Block
from gpvae.models.factor import Composition, Extent, FactorModel, Relations, Warp

Array = NDArray[np.float64]


def random_model(columns: int, seed: int = 0, *, bent: bool = True) -> FactorModel:
    """Two shared processes and one of each column's own; without `bent`, warps are the identity."""
    generator, own = torch.Generator().manual_seed(seed), list[Kind](["matern"]) * columns

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    ends, zeros = torch.tensor([[-2.5, 2.5]]).double().expand(columns, 2), torch.zeros(3, columns).double()
    straight = Warp.straight(ends, 1e3 * ends)  # no draw comes back cut
    bends = replace(
        straight, exponent=0.5 + uniform(columns), centre=uniform(columns) - 0.5, spread=0.8 + uniform(columns)
    )
    return FactorModel(
        Composition(("exponential", "oscillator", *own), tuple(range(columns))),
        length=2 + 8 * uniform(2 + columns),
        frequency=torch.cat([torch.tensor([0.0, 0.7]), torch.zeros(columns)]).double(),
        weights=uniform(columns, 3) - 0.5,
        amplitude=0.3 + uniform(columns),
        noise=0.05 + 0.1 * uniform(columns),
        warp=bends if bent else straight,
        relations=Relations(torch.zeros(columns, columns).double(), *zeros),
    )


def known_imputer(panel: Panel, *blocks: Sequence[int], bent: bool = True) -> GPFactor:
    """A model that knows the scale of the panel's columns, and has random parameters for each block of columns."""
    imputer = GPFactor()
    imputer.schema_, imputer.history_ = imputer._new_schema(panel), []
    imputer.extent_ = Extent(1.0, float(len(panel.values)))
    imputer.blocks_ = [Block(tuple(each), random_model(len(each), seed, bent=bent)) for seed, each in enumerate(blocks)]
    return imputer


def dense_posterior(space: StateSpace, times: Array, warped: Array, row: int) -> tuple[Array, Array]:
    """Mean (column,) and covariance (column, column) of measurements in a row, given what is not NaN. (time, column)"""
    lags = torch.from_numpy(times[:, None] - times)
    later = space.covariance(lags.abs())  # of the later with the earlier of two rows
    signal = torch.where((lags >= 0)[..., None, None], later, later.mT).numpy()
    everything = signal.transpose(0, 2, 1, 3).reshape(warped.size, warped.size)
    noise, seen = np.tile(space.noise.numpy(), len(times)), ~np.isnan(warped).ravel()
    asked = np.arange(warped.size).reshape(warped.shape)[row]
    cells = everything + np.diag(noise)
    gain = np.linalg.solve(cells[seen][:, seen], everything[seen][:, asked]).T
    return gain @ warped.ravel()[seen], cells[asked][:, asked] - gain @ everything[seen][:, asked]


def gappy_walk(time: int, columns: int, seed: int = 0, missing: float = 0.3) -> Array:
    """Noisy waves in different units, with single cells and a run of whole rows missing."""
    rng = np.random.default_rng(seed)
    steps = np.arange(time)[:, None]
    waves = (
        np.sin(steps / rng.uniform(2, 20, columns) + rng.uniform(0, 6, columns)) + rng.normal(size=(time, columns)) / 4
    )
    waves[rng.random(waves.shape) < missing] = np.nan
    waves[time // 3 : time // 3 + 4] = np.nan
    return waves * 10.0 ** rng.integers(-2, 3, columns) + rng.normal(size=columns)
