"""Neural networks: an encoder that convolves over time, an image preprocessor, a decoder for each step."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, max_pool1d, pad

fused: Any = None
with suppress(ImportError):  # PyTorch for CPUs comes without Triton
    from gpvae.networks.gpu import two_convolutions as fused


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

    def forward(self, x: Tensor) -> Tensor:
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
