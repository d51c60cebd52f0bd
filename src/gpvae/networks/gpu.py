"""A perceptron with one wide hidden layer between few inputs and few outputs, on very many rows, as Triton kernels.

    h = relu(x W₁ᵀ + b₁),   y = h W₂ᵀ          x: (row, input), h: (row, hidden), y: (row, output)

The hidden layer, by far the largest of these, never leaves the chip: the gradients find it again from x.

    ∂h = (∂y W₂) · (h > 0),   ∂W₁ = ∂hᵀ x,   ∂b₁ = Σ ∂h,   ∂W₂ = ∂yᵀ h
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

ROWS, HIDDEN = 128, 64  # of a tile
PROGRAMS = 1024  # that share the rows when gradients are added up; a fixed number, so that sums are always the same


@triton.jit
def _tile(x, rows, row, WIDTH: tl.constexpr, PADDED: tl.constexpr):
    """Some rows of (row, WIDTH), zeros behind them."""
    column = tl.arange(0, PADDED)
    inside = (row < rows)[:, None] & (column < WIDTH)[None, :]
    return tl.load(x + row.to(tl.int64)[:, None] * WIDTH + column[None, :], mask=inside, other=0.0)


@triton.jit
def _weights(first, bias, second, hidden, HIDDEN_ALL: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
             IN_PADDED: tl.constexpr, OUT_PADDED: tl.constexpr):  # fmt: skip
    """What leads to some of the hidden units and on from them: (input, hidden), (hidden,), (hidden, output)."""
    inputs, outputs = tl.arange(0, IN_PADDED), tl.arange(0, OUT_PADDED)
    exists = hidden < HIDDEN_ALL
    to = tl.load(
        first + hidden[None, :] * IN + inputs[:, None], mask=exists[None, :] & (inputs < IN)[:, None], other=0.0
    )
    on = tl.load(
        second + outputs[None, :] * HIDDEN_ALL + hidden[:, None],
        mask=exists[:, None] & (outputs < OUT)[None, :],
        other=0.0,
    )
    return to, tl.load(bias + hidden, mask=exists, other=0.0), on


@triton.jit
def forward(
    x, first, bias, second, y, rows,
    HIDDEN_ALL: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, IN_PADDED: tl.constexpr, OUT_PADDED: tl.constexpr,
    ROWS: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = _tile(x, rows, row, IN, IN_PADDED)
    total = tl.zeros([ROWS, OUT_PADDED], tl.float32)
    for start in range(0, HIDDEN_ALL, HIDDEN):
        hidden = start + tl.arange(0, HIDDEN)
        to, shift, on = _weights(first, bias, second, hidden, HIDDEN_ALL, IN, OUT, IN_PADDED, OUT_PADDED)
        h = tl.maximum(tl.dot(here, to) + shift[None, :], 0.0)
        total = tl.dot(h, on, total)
    output = tl.arange(0, OUT_PADDED)
    inside = (row < rows)[:, None] & (output < OUT)[None, :]
    tl.store(y + row.to(tl.int64)[:, None] * OUT + output[None, :], total, mask=inside)


@triton.jit
def backward(
    x, first, bias, second, d_y, d_first, d_bias, d_second, rows, tiles,
    HIDDEN_ALL: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, IN_PADDED: tl.constexpr, OUT_PADDED: tl.constexpr,
    ROWS: tl.constexpr, HIDDEN: tl.constexpr,
):  # fmt: skip
    """The share of each program's rows in the gradients of some hidden units, to be added up."""
    share = tl.program_id(0)
    hidden = tl.program_id(1) * HIDDEN + tl.arange(0, HIDDEN)
    to, shift, on = _weights(first, bias, second, hidden, HIDDEN_ALL, IN, OUT, IN_PADDED, OUT_PADDED)
    back = tl.trans(on)
    sum_first = tl.zeros([IN_PADDED, HIDDEN], tl.float32)
    sum_bias = tl.zeros([HIDDEN], tl.float32)
    sum_second = tl.zeros([OUT_PADDED, HIDDEN], tl.float32)
    for tile in range(share, tiles, tl.num_programs(0)):
        row = tile * ROWS + tl.arange(0, ROWS)
        here, grad = _tile(x, rows, row, IN, IN_PADDED), _tile(d_y, rows, row, OUT, OUT_PADDED)
        h = tl.maximum(tl.dot(here, to) + shift[None, :], 0.0)
        d_h = tl.where(h > 0, tl.dot(grad, back), 0.0)
        sum_first = tl.dot(tl.trans(here), d_h, sum_first)
        sum_second = tl.dot(tl.trans(grad), h, sum_second)
        sum_bias += tl.sum(d_h, 0)
    inputs, outputs = tl.arange(0, IN_PADDED), tl.arange(0, OUT_PADDED)
    exists = hidden < HIDDEN_ALL
    place = share * HIDDEN_ALL + hidden
    tl.store(
        d_first + place[None, :] * IN + inputs[:, None], sum_first, mask=exists[None, :] & (inputs < IN)[:, None]
    )
    tl.store(d_bias + place, sum_bias, mask=exists)
    tl.store(
        d_second + (share * OUT + outputs)[:, None] * HIDDEN_ALL + hidden[None, :],
        sum_second,
        mask=(outputs < OUT)[:, None] & exists[None, :],
    )


@custom_op("gpvae::narrow_perceptron", mutates_args=())
def narrow_perceptron(x: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> Tensor:
    """(row, input), (hidden, input), (hidden,), (output, hidden) → (row, output); x has no gradient."""
    x, first, bias, second = (each.contiguous() for each in (x, first, bias, second))
    y = x.new_empty(len(x), len(second))
    if len(x):
        with torch.cuda.device_of(x):
            forward[(triton.cdiv(len(x), ROWS),)](x, first, bias, second, y, len(x), **_sizes(first, second))
    return y


@narrow_perceptron.register_fake
def _(x: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> Tensor:
    return x.new_empty(len(x), len(second))


@custom_op("gpvae::narrow_perceptron_gradients", mutates_args=())
def narrow_perceptron_gradients(
    d_y: Tensor, x: Tensor, first: Tensor, bias: Tensor, second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    d_y, x, first, bias, second = (each.contiguous() for each in (d_y, x, first, bias, second))
    tiles = triton.cdiv(len(x), ROWS)
    shares = max(1, min(PROGRAMS, tiles))
    d_first, d_bias, d_second = (each.new_zeros(shares, *each.shape) for each in (first, bias, second))
    if len(x):
        with torch.cuda.device_of(x):
            backward[(shares, triton.cdiv(len(first), HIDDEN))](
                x, first, bias, second, d_y, d_first, d_bias, d_second, len(x), tiles, **_sizes(first, second)
            )
    return d_first.sum(0), d_bias.sum(0), d_second.sum(0)


@narrow_perceptron_gradients.register_fake
def _(d_y: Tensor, x: Tensor, first: Tensor, bias: Tensor, second: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(first), torch.empty_like(bias), torch.empty_like(second)


def _sizes(first: Tensor, second: Tensor) -> dict[str, int]:
    (hidden, inputs), outputs = first.shape, len(second)
    padded = {"IN_PADDED": _padded(inputs), "OUT_PADDED": _padded(outputs)}
    return {"HIDDEN_ALL": hidden, "IN": inputs, "OUT": outputs, **padded, "ROWS": ROWS, "HIDDEN": HIDDEN}


def _padded(width: int) -> int:
    return max(16, triton.next_power_of_2(width))  # what tensor cores take


def _keep(ctx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx, d_y: Tensor):
    return None, *narrow_perceptron_gradients(d_y, *ctx.saved_tensors)


narrow_perceptron.register_autograd(_backward, setup_context=_keep)
