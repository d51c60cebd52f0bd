"""What the encoder is given of a batch: values, and what else the model is to see."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from gpvae.data.batches import Batch
from gpvae.models.encoders import mlp, require_positive
from gpvae.models.images import ImagePreprocessor
from gpvae.models.likelihoods import Likelihood, MixedLikelihood, Params


class Features(NamedTuple):
    """What is made of a batch before it is encoded."""

    x: Tensor  # (batch, time, channel) for the encoder
    context: Tensor  # (batch, time, …) for the decoder; empty where it sees the latent series alone


class Inputs(nn.Module, ABC):
    """Maps a batch, and its values as the likelihood embeds them, to the encoder's input."""

    channels: int
    widest: int  # the most numbers that it computes for one time step

    @abstractmethod
    def forward(self, embedded: Tensor, batch: Batch) -> Features: ...


class Decoder(nn.Module, ABC):
    """g: maps each step of the latent series to the likelihood's parameters.

    (..., time, latent) and the context (time, …) → parameters of (..., time, feature)
    """

    widest: int

    @abstractmethod
    def forward(self, z: Tensor, context: Tensor, likelihood: Likelihood) -> Params: ...


class InputsSpec(ABC):
    """The setting `ModelConfig.inputs`: what encoder and decoder see."""

    @abstractmethod
    def build(self, likelihood: Likelihood) -> Inputs: ...

    @abstractmethod
    def build_decoder(self, latent_dim: int, widths: tuple[int, ...], likelihood: Likelihood) -> Decoder: ...


@dataclass(frozen=True)
class Values(InputsSpec):
    """Values alone, zeros where they are missing; with `observed` also which those are, with `steps` the time since
    the step before.
    """

    observed: bool = False
    steps: bool = False

    def build(self, likelihood: Likelihood) -> "ValueInputs":
        return ValueInputs(likelihood, self)

    def build_decoder(self, latent_dim: int, widths: tuple[int, ...], likelihood: Likelihood) -> "StepDecoder":
        return StepDecoder(latent_dim, widths, likelihood)


@dataclass(frozen=True)
class Frames(InputsSpec):
    """Each step is an image of `shape` (channels, height, width), preprocessed by `filters` 3×3 convolutions.

    observed: which pixels are observed is seen, too.
    channels: of the preprocessed image.
    relu: behind the last convolution.
    """

    shape: tuple[int, int, int]
    filters: int = 256
    observed: bool = False
    channels: int = 1
    relu: bool = False

    def __post_init__(self) -> None:
        require_positive(self, "filters", "channels")

    def build(self, likelihood: Likelihood) -> "FrameInputs":
        if isinstance(likelihood, MixedLikelihood):
            raise ValueError("the pixels of frames cannot have kinds of their own")
        if math.prod(self.shape) != likelihood.features:
            size = math.prod(self.shape)
            raise ValueError(f"frames of shape {self.shape} have {size} values, the data {likelihood.features} columns")
        return FrameInputs(self)

    def build_decoder(self, latent_dim: int, widths: tuple[int, ...], likelihood: Likelihood) -> "StepDecoder":
        return StepDecoder(latent_dim, widths, likelihood)


class ValueInputs(Inputs):
    """Embedded values, and what else `Values` asks for."""

    def __init__(self, likelihood: Likelihood, spec: Values):
        super().__init__()
        self.spec = spec
        self.channels = likelihood.inputs + spec.observed * likelihood.features + spec.steps
        self.widest = self.channels

    def forward(self, embedded: Tensor, batch: Batch) -> Features:
        x = [embedded]
        x += [batch.observed.to(batch.values.dtype)] if self.spec.observed else []
        x += [log_steps(batch)] if self.spec.steps else []
        return Features(torch.cat(x, dim=-1), no_context(batch))


class FrameInputs(Inputs):
    """Frames through `ImagePreprocessor`; which pixels are observed are further channels."""

    def __init__(self, spec: Frames):
        super().__init__()
        channels, height, width = spec.shape
        self.observed, self.channels = spec.observed, spec.channels * height * width
        self.widest = height * width * max(spec.filters, spec.channels)
        shape = channels * (1 + spec.observed), height, width
        self.preprocessor = ImagePreprocessor(shape, filters=spec.filters, outputs=spec.channels, relu=spec.relu)

    def forward(self, embedded: Tensor, batch: Batch) -> Features:
        if self.observed:
            embedded = torch.cat([embedded, batch.observed.to(embedded.dtype)], dim=-1)
        return Features(self.preprocessor(embedded), no_context(batch))


class StepDecoder(Decoder):
    """The paper's decoder: an MLP on each step."""

    def __init__(self, latent_dim: int, widths: tuple[int, ...], likelihood: Likelihood):
        super().__init__()
        self.mlp = mlp([latent_dim, *widths, likelihood.outputs])
        self.widest = max(*widths, likelihood.widest)

    def forward(self, z: Tensor, context: Tensor, likelihood: Likelihood) -> Params:
        return likelihood.unpack(single_precision(self.mlp(z)))


def no_context(batch: Batch) -> Tensor:
    return batch.values[..., :0]


def single_precision(x: Tensor) -> Tensor:
    """float32 of what autocast made bfloat16; float64 stays."""
    return x if x.dtype == torch.float64 else x.float()


def log_steps(batch: Batch) -> Tensor:
    """log(τ_t - τ_{t-1}), 0 for the first step and on a grid of unit steps. (batch, time, 1)"""
    if isinstance(batch.times, Tensor):
        steps = batch.times.diff(dim=-1).log().to(batch.values.dtype)
    else:
        steps = batch.values.new_full((len(batch.values), batch.values.shape[1] - 1), math.log(batch.times))
    return (pad(steps, (1, 0)) * batch.valid).unsqueeze(-1)
