"""Networks over time: (batch, time, channel) → (batch, time, output)."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, max_pool1d, pad, scaled_dot_product_attention

from gpvae.models.prior import Times


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class TimeEncoder(nn.Module, ABC):
    """What all encoders offer."""

    widest: int  # the most numbers that it computes for one time step

    @property
    @abstractmethod
    def head(self) -> nn.Linear:
        """The last layer."""

    @abstractmethod
    def forward(self, x: Tensor, times: Times, valid: Tensor) -> Tensor: ...

    @abstractmethod
    def reaches(self, observed: Tensor) -> Tensor:
        """Steps (batch, time) whose output depends on a step of which something is `observed` (batch, time)."""


class EncoderSpec(ABC):
    """The setting `ModelConfig.encoder`."""

    @abstractmethod
    def build(self, inputs: int, outputs: int) -> TimeEncoder: ...


def require_positive(spec: object, *names: str) -> None:
    """Sizes are at least 1, or an error names the setting."""
    for name in names:
        value = getattr(spec, name)
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True)
class Convolution(EncoderSpec):
    """The paper's encoder: one convolution over `window` steps, then dense layers on each step.

    relu: behind the convolution; it is linear without.
    """

    filters: int = 128
    window: int = 25
    widths: tuple[int, ...] = (128,)
    relu: bool = True

    def __post_init__(self) -> None:
        require_positive(self, "filters", "window")
        if any(width < 1 for width in self.widths):
            raise ValueError(f"widths must be at least 1, got {self.widths}")

    def build(self, inputs: int, outputs: int) -> "ConvolutionEncoder":
        return ConvolutionEncoder(inputs, self, outputs)


class ConvolutionEncoder(TimeEncoder):
    """One convolution over time that keeps the length, then dense layers on each step."""

    LARGE = 4096  # numbers in a window

    def __init__(self, inputs: int, spec: Convolution, outputs: int):
        super().__init__()
        # Asymmetric zero padding of our own: for even windows "same" leaves the choice of side to the backend.
        self.margin = ((spec.window - 1) // 2, spec.window // 2)
        self.window, self.widest = spec.window, max(spec.filters, outputs, *spec.widths)
        self.relu = spec.relu
        self.convolution = nn.Conv1d(inputs, spec.filters, spec.window)
        self.dense = mlp([spec.filters, *spec.widths, outputs])

    @property
    def head(self) -> nn.Linear:
        return cast(nn.Linear, self.dense[-1])

    def forward(self, x: Tensor, times: Times, valid: Tensor) -> Tensor:
        h = self._convolve(x)
        return self.dense(h.relu() if self.relu else h)

    def _convolve(self, x: Tensor) -> Tensor:
        """In training as one matrix product over all windows, unless they are large: libraries are slow to find the
        gradients of a wide convolution of few channels. It takes `window` times the memory of x.
        """
        if not torch.is_grad_enabled() or self.convolution.weight[0].numel() > self.LARGE:
            return self.convolution(pad(x.mT, self.margin)).mT
        windows = pad(x, (0, 0, *self.margin)).unfold(1, self.window, 1)  # (batch, time, channel, window)
        return linear(windows.flatten(2), self.convolution.weight.flatten(1), self.convolution.bias)

    def reaches(self, observed: Tensor) -> Tensor:
        padded = pad(observed.float().unsqueeze(1), self.margin)
        return max_pool1d(padded, self.window, stride=1).squeeze(1) > 0


@dataclass(frozen=True)
class Attention(EncoderSpec):
    """Layers of attention over nearby steps; the cost is linear in the length of a series."""

    width: int = 128
    layers: int = 3

    def __post_init__(self) -> None:
        require_positive(self, "width", "layers")
        if self.width % AttentionEncoder.MULTIPLE:
            raise ValueError(f"width must be a multiple of {AttentionEncoder.MULTIPLE}, got {self.width}")

    def build(self, inputs: int, outputs: int) -> "AttentionEncoder":
        return AttentionEncoder(inputs, self, outputs)


class AttentionEncoder(TimeEncoder):
    """A pre-norm transformer with local attention and rotary position encoding (Su et al. 2021, "RoFormer").

    A series is cut into blocks, and a step attends to its own block and the two beside it. Only differences of times
    matter: they rotate queries and keys against each other.
    """

    HEADS = 4
    MULTIPLE = 2 * HEADS  # of the width: each head needs pairs of numbers
    BLOCK = 32  # steps; series of up to two blocks are attended to whole
    SLOWEST = 1000.0  # steps that the slowest rotation takes for about one radian

    def __init__(self, inputs: int, spec: Attention, outputs: int):
        super().__init__()
        width, layers = spec.width, range(spec.layers)
        self.widest = max(3 * width, outputs)
        self.embed = nn.Linear(inputs, width)
        self.qkv = nn.ModuleList([nn.Linear(width, 3 * width) for _ in layers])
        self.proj = nn.ModuleList([nn.Linear(width, width) for _ in layers])
        self.mlp = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in layers]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * spec.layers + 1)])
        self.last = nn.Linear(width, outputs)

    @property
    def head(self) -> nn.Linear:
        return self.last

    def forward(self, x: Tensor, times: Times, valid: Tensor) -> Tensor:
        h, rotation = self.embed(x), self._rotation(times, x)
        before_attention, before_mlp, last = self.norms[:-1:2], self.norms[1::2], self.norms[-1]
        for qkv, proj, dense, norm, other in zip(
            self.qkv, self.proj, self.mlp, before_attention, before_mlp, strict=True
        ):
            h = h + proj(self._attend(qkv(norm(h)), rotation, valid))
            h = h + dense(other(h))
        return self.last(gelu(last(h)))

    def reaches(self, observed: Tensor) -> Tensor:
        """Everywhere: training, which hides values, teaches it what to predict from nothing."""
        return torch.ones_like(observed)

    def _rotation(self, times: Times, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each step's angles. (batch or 1, 1, time, width of a head / 2)"""
        half = self.embed.out_features // self.HEADS // 2
        frequency = self.SLOWEST ** -torch.linspace(0, 1, half, device=x.device, dtype=torch.float64)
        if not isinstance(times, Tensor):
            times = times * torch.arange(x.shape[1], device=x.device, dtype=torch.float64).unsqueeze(0)
        angle = times[:, None, :, None] * frequency
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    def _attend(self, qkv: Tensor, rotation: tuple[Tensor, Tensor], valid: Tensor) -> Tensor:
        """Softmax(q · k / √e) v over the steps within reach. (batch, time, 3 width) → (batch, time, width)"""
        query, key, value = qkv.unflatten(-1, (3, self.HEADS, -1)).permute(2, 0, 3, 1, 4)  # (batch, head, time, e)
        query, key = _rotate(query, *rotation), _rotate(key, *rotation)
        if qkv.shape[1] <= 2 * self.BLOCK:
            allowed = _some(valid)[:, None, None, :]
            return scaled_dot_product_attention(query, key, value, attn_mask=allowed).transpose(1, 2).flatten(2)
        return self._attend_locally(query, key, value, valid)

    def _attend_locally(self, query: Tensor, key: Tensor, value: Tensor, valid: Tensor) -> Tensor:
        time, block = valid.shape[1], self.BLOCK
        blocks = -(-time // block)
        padding = blocks * block - time
        query = pad(query, (0, 0, 0, padding)).unflatten(2, (blocks, block)).movedim(2, 1)
        key, value = (
            pad(x, (0, 0, block, padding + block)).unfold(2, 3 * block, block).movedim(2, 1).mT for x in (key, value)
        )
        allowed = _some(pad(valid, (block, padding + block)).unfold(1, 3 * block, block))
        attended = scaled_dot_product_attention(query, key, value, attn_mask=allowed[:, :, None, None, :])
        return attended.movedim(2, 3).flatten(1, 2).flatten(2)[:, :time]


def _some(valid: Tensor) -> Tensor:
    """Steps that may be attended to; all of them where none is valid, whose outcome nobody uses."""
    return valid | ~valid.any(-1, keepdim=True)


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate pairs (x_i, x_{i + e/2}) as points in the plane, each by its angle."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
