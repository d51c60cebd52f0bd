"""Convolutions on image frames, before the encoder."""

from contextlib import suppress
from typing import Any, cast

import torch
from torch import Tensor, nn

fused: Any = None
with suppress(ImportError):  # PyTorch for CPUs comes without Triton
    from gpvae.models.gpu import two_convolutions as fused


class ImagePreprocessor(nn.Module):
    """3×3 convolutions on each frame: (..., channels·height·width) → (..., outputs·height·width).

    `relu`: behind the last convolution. A single channel behind one dies easily, and the encoder then sees nothing.

    On CUDA by kernels of our own, for one output after the other: libraries are slow to find the gradients of
    convolutions from or to so few channels.
    """

    def __init__(self, shape: tuple[int, int, int], *, filters: int, outputs: int = 1, relu: bool = False):
        super().__init__()
        self.shape, self.relu = shape, relu  # (channels, height, width)
        self.layers = nn.Sequential(
            nn.Conv2d(shape[0], filters, 3, padding=1), nn.ReLU(), nn.Conv2d(filters, outputs, 3, padding=1)
        )
        for layer in self._convolutions():
            assert layer.bias is not None
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def _convolutions(self) -> tuple[nn.Conv2d, nn.Conv2d]:
        first, _, last = self.layers
        return cast(nn.Conv2d, first), cast(nn.Conv2d, last)

    def forward(self, x: Tensor) -> Tensor:
        convolved = self._convolve(x.reshape(-1, *self.shape))
        return (convolved.relu() if self.relu else convolved).reshape(*x.shape[:-1], -1)

    def _convolve(self, frames: Tensor) -> Tensor:
        if not _on_triton(frames):
            return self.layers(frames)
        first, last = self._convolutions()
        assert last.bias is not None
        outputs = [fused(frames, first.weight.flatten(1), first.bias, each.flatten(1).T) for each in last.weight]
        return torch.stack(outputs, dim=1) + last.bias[:, None, None]


def _on_triton(x: Tensor) -> bool:
    return fused is not None and x.is_cuda and x.dtype == torch.float32 and not x.requires_grad
