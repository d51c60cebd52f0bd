"""What a likelihood p(x | parameters) of the values of one step has to offer."""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpvae.models.likelihoods.sampling import Random

Params = Any  # what `unpack` returns: a tensor, `RealParams`, or a tuple with one entry for each group of columns


class RealParams(NamedTuple):
    """Parameters of real columns. A decoder may shift the first two; calibration multiplies the scale."""

    location: Tensor  # (..., feature)
    log_scale: Tensor | None = None  # (..., feature) None where one learned noise level serves all steps
    scale_factor: Tensor | float = 1.0  # broadcasts against (..., feature)


class Likelihood(nn.Module, ABC):
    """p(x | parameters), elementwise over the features of a step.

    A decoder returns `outputs` numbers a step, `unpack` gives them their names: (..., output) → parameters. Everything
    else maps those parameters, and values (..., feature), to (..., feature).
    """

    features: int
    inputs: int  # numbers a step that an encoder is given
    outputs: int  # numbers a step that a decoder returns

    @property
    def widest(self) -> int:
        """The most numbers that it computes for one step."""
        return self.outputs

    @abstractmethod
    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        """Values as an encoder is given them, 0 where missing. (..., feature) → (..., input)"""

    @abstractmethod
    def unpack(self, decoded: Tensor) -> Params: ...

    @abstractmethod
    def log_prob(self, params: Params, values: Tensor) -> Tensor: ...

    @abstractmethod
    def mean(self, params: Params) -> Tensor: ...

    @abstractmethod
    def variance(self, params: Params) -> Tensor: ...

    @abstractmethod
    def sample(self, params: Params, random: Random) -> Tensor:
        """Draws along the first dimension, stratified over each cell's distribution (see `sampling`)."""

    # Most likelihoods are of one kind of column, do not depend on the data, and take values to be missing at random.

    def groups(self) -> list[tuple["Likelihood", Tensor]]:
        """Each likelihood that this one is made of, with its features."""
        return [(self, torch.arange(self.features))]

    def split(self, params: Params) -> tuple[Params, ...]:
        """The parameters of each of the `groups`."""
        return (params,)

    def real_columns(self) -> Tensor:
        """Features whose location is decoded. (real column,)"""
        real = [features for part, features in self.groups() if isinstance(part, RealLikelihood)]
        return torch.cat(real) if real else torch.zeros(0, dtype=torch.long)

    def numeric_columns(self) -> Tensor:
        """Columns whose missing values a plain VAE may take for zeros: not counts or classes. (feature,) bool"""
        return torch.ones(self.features, dtype=torch.bool)

    def shift(self, params: Params, location: Tensor, log_scale: Tensor | None = None) -> Params:
        """Move the locations, and the logarithms of the scales, of the real columns. (..., real column)"""
        return params

    def calibrate(self, params: Params, factor: Tensor) -> Params:
        """Multiply the scales of the real columns by `factor` (..., real column)."""
        return params

    def init_from_data(self, values: Tensor, observed: Tensor) -> None:
        """Set what depends on typical values. (row, feature)"""

    def log_selection(self, params: Params, values: Tensor, observed: Tensor) -> Tensor | None:
        """Log p(observed or missing | parameters, value); None where values are missing at random."""
        return None

    def given_missing(self, params: Params) -> Params:
        """The parameters once it is known that the value is missing."""
        return params

    def fast_parameters(self) -> list[nn.Parameter]:
        """Those few that learn at a higher rate than the networks."""
        return []


class RealLikelihood(Likelihood):
    """Of real columns: a location and a scale for each value."""

    noise_is_fixed = False
    decodes_scale = False  # or one noise level serves all steps of a column

    def __init__(self, features: int, outputs: int):
        super().__init__()
        self.features, self.inputs, self.outputs = features, features, outputs

    @abstractmethod
    def scale(self, params: RealParams) -> Tensor: ...

    @abstractmethod
    def cdf(self, error: NDArray[Any], column: int) -> NDArray[Any]:
        """Distribution function of an error in units of the scale, in one of the columns."""

    @abstractmethod
    def best_nll(self, error: Tensor) -> float:
        """Mean negative log density of errors (cell,) under the one scale that makes it least."""

    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        return values * observed

    def unpack(self, decoded: Tensor) -> RealParams:
        return RealParams(decoded)

    def mean(self, params: RealParams) -> Tensor:
        return params.location

    def shift(self, params: RealParams, location: Tensor, log_scale: Tensor | None = None) -> RealParams:
        moved = params._replace(location=params.location + location)
        if params.log_scale is None or log_scale is None:
            return moved
        return moved._replace(log_scale=params.log_scale + log_scale)

    def calibrate(self, params: RealParams, factor: Tensor) -> RealParams:
        return params._replace(scale_factor=params.scale_factor * factor)


class DiscreteLikelihood(Likelihood):
    """Of columns with one decoded number for each feature."""

    def __init__(self, features: int):
        super().__init__()
        self.features = self.inputs = self.outputs = features

    def embed(self, values: Tensor, observed: Tensor) -> Tensor:
        return values * observed

    def unpack(self, decoded: Tensor) -> Tensor:
        return decoded


class LikelihoodSpec(ABC):
    """The setting `ModelConfig.likelihood`: what the real columns of a table follow."""

    standardises = True  # whether values may be scaled to zero mean and unit deviation
    mixes = True  # whether columns of other kinds may stand beside

    @abstractmethod
    def build(self, features: int) -> Likelihood: ...
