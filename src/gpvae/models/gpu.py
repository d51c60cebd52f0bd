"""Two 3×3 convolutions of an image, from few channels through many to one, as Triton kernels.

Around each pixel p lie nine, p + s_k. With x_p the values of all channels there (channel·9 of them, 0 outside),

    h_p = relu(W₁ x_p + b₁),   g_p = W₂ h_p,   y_p = Σ_k g_{p+s_k, k}          h: (hidden,), g: (9,)

g_p is what p gives to each of its neighbours. The hidden layer, by far the largest of these, never leaves the chip: the
gradients find it again from x. Turned around, what p gives is asked for by the same nine, ∂g_{p, k} = ∂y_{p-s_k}, and

    ∂h = (W₂ᵀ ∂g) · (h > 0),   ∂W₁ = Σ_p ∂h xᵀ,   ∂b₁ = Σ_p ∂h,   ∂W₂ = Σ_p ∂g hᵀ

Products are done by tensor cores, in TF32.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

PIXELS, MOST_HIDDEN = 64, 64  # of a tile
SHARES = 1024  # that pixels are divided into to add up gradients; a fixed number, so that sums are always the same
NEIGHBOURS = tl.constexpr(9)


@triton.jit
def _around(image, pixel, pixels, height, width, FLIP: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr):
    """The values of all channels around some pixels, or on the other side of them (FLIP). (pixel, channel·9)"""
    number = tl.arange(0, PADDED)
    channel, down, right = number // NEIGHBOURS, number % NEIGHBOURS // 3 - 1, number % 3 - 1
    if FLIP:
        down, right = -down, -right
    y = (pixel // width % height)[:, None] + down[None, :]
    x = (pixel % width)[:, None] + right[None, :]
    exists = (pixel < pixels)[:, None] & (channel < CHANNELS)[None, :]
    inside = exists & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    frame = (pixel // (width * height)).to(tl.int64)
    plane = frame[:, None] * CHANNELS + channel[None, :]
    return tl.load(image + (plane * height + y) * width + x, mask=inside, other=0.0)


@triton.jit
def _weights(first, bias, second, hidden, HIDDEN_ALL: tl.constexpr, IN: tl.constexpr, IN_PADDED: tl.constexpr):
    """What leads to some of the hidden units and on from them: (input, hidden), (hidden,), (hidden, neighbour)."""
    inputs, neighbour = tl.arange(0, IN_PADDED), tl.arange(0, 16)
    exists = hidden < HIDDEN_ALL
    leads = exists[None, :] & (inputs < IN)[:, None]
    goes = exists[:, None] & (neighbour < NEIGHBOURS)[None, :]
    to = tl.load(first + hidden[None, :] * IN + inputs[:, None], mask=leads, other=0.0)
    on = tl.load(second + neighbour[None, :] * HIDDEN_ALL + hidden[:, None], mask=goes, other=0.0)
    return to, tl.load(bias + hidden, mask=exists, other=0.0), on


@triton.jit
def give(
    image, first, bias, second, given, pixels, height, width,
    CHANNELS: tl.constexpr, HIDDEN_ALL: tl.constexpr, IN_PADDED: tl.constexpr, PIXELS: tl.constexpr,
    HIDDEN: tl.constexpr,
):  # fmt: skip
    """What each pixel gives to each of its neighbours. (pixel, 9)"""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    here = _around(image, pixel, pixels, height, width, False, CHANNELS, IN_PADDED)
    total = tl.zeros([PIXELS, 16], tl.float32)
    for start in range(0, HIDDEN_ALL, HIDDEN):
        hidden = start + tl.arange(0, HIDDEN)
        to, shift, on = _weights(first, bias, second, hidden, HIDDEN_ALL, CHANNELS * NEIGHBOURS, IN_PADDED)
        h = tl.maximum(tl.dot(here, to) + shift[None, :], 0.0)
        total = tl.dot(h, on, total)
    neighbour = tl.arange(0, 16)
    inside = (pixel < pixels)[:, None] & (neighbour < NEIGHBOURS)[None, :]
    tl.store(given + pixel.to(tl.int64)[:, None] * NEIGHBOURS + neighbour[None, :], total, mask=inside)


@triton.jit
def take(given, out, pixels, height, width, PIXELS: tl.constexpr):
    """What each pixel gets from its neighbours, added up. (pixel,)"""
    pixel = tl.program_id(0) * PIXELS + tl.arange(0, PIXELS)
    number = tl.arange(0, 16)
    down, right = number // 3 - 1, number % 3 - 1
    y = (pixel // width % height)[:, None] + down[None, :]
    x = (pixel % width)[:, None] + right[None, :]
    exists = (pixel < pixels)[:, None] & (number < NEIGHBOURS)[None, :]
    inside = exists & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    giver = pixel.to(tl.int64)[:, None] + (down * width + right)[None, :]
    total = tl.sum(tl.load(given + giver * NEIGHBOURS + number[None, :], mask=inside, other=0.0), 1)
    tl.store(out + pixel, total, mask=pixel < pixels)


@triton.jit
def backward(
    image, first, bias, second, d_out, d_first, d_bias, d_second, pixels, height, width, tiles,
    CHANNELS: tl.constexpr, HIDDEN_ALL: tl.constexpr, IN_PADDED: tl.constexpr, PIXELS: tl.constexpr,
    HIDDEN: tl.constexpr,
):  # fmt: skip
    """The share of each program's pixels in the gradients of some hidden units, to be added up."""
    many: tl.constexpr = CHANNELS * NEIGHBOURS
    share = tl.program_id(0)
    hidden = tl.program_id(1) * HIDDEN + tl.arange(0, HIDDEN)
    to, shift, on = _weights(first, bias, second, hidden, HIDDEN_ALL, many, IN_PADDED)
    back = tl.trans(on)
    sum_first = tl.zeros([IN_PADDED, HIDDEN], tl.float32)
    sum_bias = tl.zeros([HIDDEN], tl.float32)
    sum_second = tl.zeros([16, HIDDEN], tl.float32)
    for tile in range(share, tiles, tl.num_programs(0)):
        pixel = tile * PIXELS + tl.arange(0, PIXELS)
        here = _around(image, pixel, pixels, height, width, False, CHANNELS, IN_PADDED)
        grad = _around(d_out, pixel, pixels, height, width, True, 1, 16)
        h = tl.maximum(tl.dot(here, to) + shift[None, :], 0.0)
        d_h = tl.where(h > 0, tl.dot(grad, back), 0.0)
        sum_first = tl.dot(tl.trans(here), d_h, sum_first)
        sum_second = tl.dot(tl.trans(grad), h, sum_second)
        sum_bias += tl.sum(d_h, 0)
    inputs, neighbour = tl.arange(0, IN_PADDED), tl.arange(0, 16)
    exists = hidden < HIDDEN_ALL
    place = share * HIDDEN_ALL + hidden
    to_place = d_first + place[None, :] * many + inputs[:, None]
    tl.store(to_place, sum_first, mask=exists[None, :] & (inputs < many)[:, None])
    tl.store(d_bias + place, sum_bias, mask=exists)
    on_place = d_second + (share * NEIGHBOURS + neighbour)[:, None] * HIDDEN_ALL + hidden[None, :]
    tl.store(on_place, sum_second, mask=(neighbour < NEIGHBOURS)[:, None] & exists[None, :])


@custom_op("gpvae::two_convolutions", mutates_args=())
def two_convolutions(image: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> Tensor:
    """(frame, channel, height, width), (hidden, channel·9), (hidden,), (9, hidden) → (frame, height, width)

    `image` has no gradient.
    """
    image, first, bias, second = (each.contiguous() for each in (image, first, bias, second))
    frames, _, height, width = image.shape
    pixels = frames * height * width
    given, out = image.new_empty(pixels, 9), image.new_empty(frames, height, width)
    if pixels:
        tiles = (triton.cdiv(pixels, PIXELS),)
        with torch.cuda.device_of(image):
            give[tiles](image, first, bias, second, given, pixels, height, width, **_sizes(image, first))
            take[tiles](given, out, pixels, height, width, PIXELS=PIXELS)
    return out


@two_convolutions.register_fake
def _(image: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> Tensor:
    return image.new_empty(len(image), *image.shape[2:])


@custom_op("gpvae::two_convolutions_gradients", mutates_args=())
def two_convolutions_gradients(
    d_out: Tensor, image: Tensor, first: Tensor, bias: Tensor, second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    d_out, image, first, bias, second = (each.contiguous() for each in (d_out, image, first, bias, second))
    height, width = image.shape[2:]
    tiles = triton.cdiv(d_out.numel(), PIXELS)
    shares = max(1, min(SHARES, tiles))
    d_first, d_bias, d_second = (each.new_zeros(shares, *each.shape) for each in (first, bias, second))
    if tiles:
        sizes = _sizes(image, first)
        with torch.cuda.device_of(image):
            backward[(shares, triton.cdiv(len(first), sizes["HIDDEN"]))](
                image, first, bias, second, d_out, d_first, d_bias, d_second,
                d_out.numel(), height, width, tiles, **sizes,
            )  # fmt: skip
    return d_first.sum(0), d_bias.sum(0), d_second.sum(0)


@two_convolutions_gradients.register_fake
def _(d_out: Tensor, image: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(first), torch.empty_like(bias), torch.empty_like(second)


def _sizes(image: Tensor, first: Tensor) -> dict[str, int]:
    hidden, inputs = first.shape
    tile = {"PIXELS": PIXELS, "HIDDEN": min(MOST_HIDDEN, _padded(hidden))}
    return {"CHANNELS": image.shape[1], "HIDDEN_ALL": hidden, "IN_PADDED": _padded(inputs), **tile}


def _padded(width: int) -> int:
    return max(16, triton.next_power_of_2(width))  # what tensor cores take


def _keep(ctx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, d_out: Tensor):
    return None, *two_convolutions_gradients(d_out, *ctx.saved_tensors)


two_convolutions.register_autograd(_backward, setup_context=_keep)
