"""Neural networks: encoders over time, an image preprocessor, a decoder for each step."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, linear, max_pool1d, pad, scaled_dot_product_attention

fused: Any = None
with suppress(ImportError):  # PyTorch for CPUs comes without Triton
    from gpvae.models.gpu import two_convolutions as fused


def mlp(sizes: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class TimeConvolution(nn.Module):
    """One convolution over time that keeps the length, then dense layers on each step. (batch, time, channel)"""

    LARGE = 4096  # numbers in a window

    def __init__(self, inputs: int, *, filters: int, window: int, widths: Sequence[int], outputs: int):
        super().__init__()
        # Asymmetric zero padding of our own: for even windows "same" leaves the choice of side to the backend.
        self.margin = ((window - 1) // 2, window // 2)
        self.window = window
        self.convolution = nn.Conv1d(inputs, filters, window)
        self.dense = mlp([filters, *widths, outputs])

    @property
    def head(self) -> nn.Linear:
        """The last layer."""
        return cast(nn.Linear, self.dense[-1])

    def forward(self, x: Tensor, times: Tensor | float, valid: Tensor) -> Tensor:
        return self.dense(self._convolve(x).relu())

    def _convolve(self, x: Tensor) -> Tensor:
        """In training as one matrix product over all windows, unless they are large: libraries are slow to find the
        gradients of a wide convolution of few channels. It takes `window` times the memory of x.
        """
        if not torch.is_grad_enabled() or self.convolution.weight[0].numel() > self.LARGE:
            return self.convolution(pad(x.mT, self.margin)).mT
        windows = pad(x, (0, 0, *self.margin)).unfold(1, self.window, 1)  # (batch, time, channel, window)
        return linear(windows.flatten(2), self.convolution.weight.flatten(1), self.convolution.bias)

    def sees_any(self, observed: Tensor) -> Tensor:
        """Whether anything observed (batch, time) lies within the window around each step. (batch, time)"""
        padded = pad(observed.float().unsqueeze(1), self.margin)
        return max_pool1d(padded, self.window, stride=1).squeeze(1) > 0


class Attention(nn.Module):
    """Layers in which steps look at those within reach, and of dense networks on each. (batch, time, channel)

    The cost is linear in the length of a series: it is cut into blocks, and a step looks at its own block and the two
    beside it. What matters of times is their differences, which turn queries and keys against each other (Su et al.
    2021, "RoFormer").
    """

    HEADS = 4
    MULTIPLE = 2 * HEADS  # the width is one: of each head there are pairs of numbers
    BLOCK = 32  # steps; series of up to two blocks are looked at whole
    SLOWEST = 1000.0  # steps, about, that the slowest of the turns takes by one radian

    def __init__(self, inputs: int, *, width: int, layers: int, outputs: int):
        super().__init__()
        if width % self.MULTIPLE:
            raise ValueError(f"the width of an attentive encoder is a multiple of {self.MULTIPLE}, not {width}")
        self.enter = nn.Linear(inputs, width)
        self.looks = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
        self.hears = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.thinks = nn.ModuleList(
            [nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)) for _ in range(layers)]
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers + 1)])
        self.head = nn.Linear(width, outputs)

    def forward(self, x: Tensor, times: Tensor | float, valid: Tensor) -> Tensor:
        h, turns = self.enter(x), self._turns(times, x)
        first, second, last = self.norms[:-1:2], self.norms[1::2], self.norms[-1]
        for look, hear, think, norm, other in zip(self.looks, self.hears, self.thinks, first, second, strict=True):
            h = h + hear(self._attend(look(norm(h)), turns, valid))
            h = h + think(other(h))
        return self.head(gelu(last(h)))

    def sees_any(self, observed: Tensor) -> Tensor:
        """It has something to say of every step: training, which hides values, shows it what to say of nothing."""
        return torch.ones_like(observed)

    def _turns(self, times: Tensor | float, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each step's angles. (batch or 1, 1, time, width of a head / 2)"""
        half = self.enter.out_features // self.HEADS // 2
        pace = self.SLOWEST ** -torch.linspace(0, 1, half, device=x.device, dtype=torch.float64)
        if not isinstance(times, Tensor):
            times = times * torch.arange(x.shape[1], device=x.device, dtype=torch.float64).unsqueeze(0)
        angle = times[:, None, :, None] * pace
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    def _attend(self, looks: Tensor, turns: tuple[Tensor, Tensor], valid: Tensor) -> Tensor:
        """Softmax(q · k / √e) v over the steps within reach. (batch, time, 3 width) → (batch, time, width)"""
        time, block = looks.shape[1], self.BLOCK
        query, key, value = looks.unflatten(-1, (3, self.HEADS, -1)).permute(2, 0, 3, 1, 4)  # (batch, head, time, e)
        query, key = _turned(query, *turns), _turned(key, *turns)
        if time <= 2 * block:
            reached = valid | ~valid.any(-1, keepdim=True)  # pieces of no length, whose outcome nobody looks at
            heard = scaled_dot_product_attention(query, key, value, attn_mask=reached[:, None, None, :])
            return heard.transpose(1, 2).flatten(2)
        blocks = -(-time // block)
        behind = blocks * block - time
        query = pad(query, (0, 0, 0, behind)).unflatten(2, (blocks, block)).movedim(2, 1)
        key, value = (
            pad(each, (0, 0, block, behind + block)).unfold(2, 3 * block, block).movedim(2, 1).mT
            for each in (key, value)
        )
        reached = pad(valid, (block, behind + block)).unfold(1, 3 * block, block)
        reached = reached | ~reached.any(-1, keepdim=True)  # likewise blocks of padding alone
        heard = scaled_dot_product_attention(query, key, value, attn_mask=reached[:, :, None, None, :])
        return heard.movedim(2, 3).flatten(1, 2).flatten(2)[:, :time]


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Its first and second half as the coordinates of points in the plane, each turned by its angle."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)


class AcrossColumns(nn.Module):
    """What the cells of a step say together, whichever of them are visible. (..., column, channel) → (..., output)

    h_d = relu(V relu(U x_d + e_d))                                    x_d: what is known of a cell; e_d: of its column
    Σ_d softmax_d(a_q · h_d / √width - `RESERVE` [d is hidden]) h_d    for each of the `LOOKS` q

    A dense layer has to learn what to make of every gap; here hidden cells weigh less, and the visible ones more.
    """

    LOOKS = 8
    RESERVE = 2.0  # hidden cells have something to say too, of their surroundings, but begin with e⁻² of the weight
    SPREAD = 0.3  # of what is learned about columns and looks, in the beginning

    def __init__(self, columns: int, channels: int, *, width: int):
        super().__init__()
        self.cell, self.within = nn.Linear(channels, width), nn.Linear(width, width)
        self.column = nn.Parameter(self.SPREAD * torch.randn(columns, width))
        self.look = nn.Parameter(self.SPREAD * torch.randn(self.LOOKS, width))

    @property
    def outputs(self) -> int:
        return self.look.numel()

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        h = self.within((self.cell(x) + self.column).relu()).relu()
        weight = h @ self.look.mT / self.look.shape[-1] ** 0.5 - self.RESERVE * ~visible.unsqueeze(-1)
        return (weight.softmax(-2).mT @ h).flatten(-2)


class ImagePreprocessor(nn.Module):
    """3×3 convolutions on each frame, down to one channel: (..., channels·height·width) → (..., height·width).

    The last convolution has no ReLU: a single channel behind one dies easily, and the encoder then sees nothing.

    On CUDA by kernels of our own: libraries are slow to find the gradients of convolutions from or to so few channels.
    """

    def __init__(self, shape: tuple[int, int, int], *, filters: int):
        super().__init__()
        self.shape = shape  # (channels, height, width)
        self.layers = nn.Sequential(
            nn.Conv2d(shape[0], filters, 3, padding=1), nn.ReLU(), nn.Conv2d(filters, 1, 3, padding=1)
        )
        for layer in self._convolutions():
            assert layer.bias is not None
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def _convolutions(self) -> tuple[nn.Conv2d, nn.Conv2d]:
        first, _, last = self.layers
        return cast(nn.Conv2d, first), cast(nn.Conv2d, last)

    def forward(self, x: Tensor) -> Tensor:
        frames = x.reshape(-1, *self.shape)
        if not _on_triton(x):
            return self.layers(frames).reshape(*x.shape[:-1], -1)
        first, last = self._convolutions()
        one = fused(frames, first.weight.flatten(1), first.bias, last.weight[0].flatten(1).T)
        return (one + last.bias).reshape(*x.shape[:-1], -1)


def _on_triton(x: Tensor) -> bool:
    return fused is not None and x.is_cuda and x.dtype == torch.float32 and not x.requires_grad


def stack_channels(values: Tensor, observed: Tensor) -> Tensor:
    """Both as features of one step: all values, then what was seen of them. Works for flat frames, channels first."""
    return torch.cat([values, observed.to(values.dtype)], dim=-1)
