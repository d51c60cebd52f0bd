"""Neural networks: an encoder that convolves over time, an image preprocessor, a decoder for each step."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, max_pool1d, pad

fused_perceptron: Any = None
with suppress(ImportError):  # PyTorch for CPUs comes without Triton
    from gpvae.networks.gpu import narrow_perceptron as fused_perceptron


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

    Computed as a perceptron on the neighbourhoods of all pixels: libraries are slow to find the gradients of
    convolutions from or to so few channels.
    """

    def __init__(self, shape: tuple[int, int, int], *, filters: int):
        super().__init__()
        self.shape = shape  # (channels, height, width)
        first, last = nn.Conv2d(shape[0], filters, 3, padding=1), nn.Conv2d(filters, 1, 3, padding=1)
        self.layers = nn.Sequential(first, nn.ReLU(), last)
        for layer in (first, last):
            assert layer.bias is not None
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        first, _, last = self.layers
        height, width = self.shape[1:]
        frames = pad(x.reshape(-1, *self.shape), (1, 1, 1, 1))
        around = frames.unfold(2, 3, 1).unfold(3, 3, 1)  # (frame, channel, height, width, 3, 3)
        around = around.permute(0, 2, 3, 1, 4, 5).reshape(-1, 9 * self.shape[0])
        # What each pixel gives to each of its neighbours; then, what each gets from them.
        given = _narrow_perceptron(around, first.weight.flatten(1), first.bias, last.weight[0].flatten(1).T)
        given = pad(given.unflatten(0, (-1, height, width)), (0, 0, 1, 1, 1, 1))
        got = [given[:, i : i + height, j : j + width, 3 * i + j] for i in range(3) for j in range(3)]
        return (torch.stack(got).sum(0) + last.bias).reshape(*x.shape[:-1], -1)


def _narrow_perceptron(x: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> Tensor:
    """One hidden layer with ReLU, on many rows. (row, input), (hidden, input), (hidden,), (output, hidden)"""
    if fused_perceptron is not None and x.is_cuda and x.dtype == torch.float32 and not x.requires_grad:
        return fused_perceptron(x, first, bias, second)
    return linear(linear(x, first, bias).relu(), second)


def stack_channels(values: Tensor, observed: Tensor) -> Tensor:
    """Both as features of one step: all values, then what was seen of them. Works for flat frames, channels first."""
    return torch.cat([values, observed.to(values.dtype)], dim=-1)
