"""The two hot loops of training and sampling, fast for each shape and device.

Triton kernels on CUDA (`gpu.py`), elsewhere vector operations with hand-written gradients. They are tested against the
readable versions in `chains.py`.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

gpu: Any = None
with suppress(ImportError):  # CPU builds of PyTorch have no Triton, and older builds too old a version
    from gpvae.gp import gpu


def linear_recurrence(a: Tensor, b: Tensor) -> Tensor:
    """y_t = a_t y_{t-1} + b_t with y_{-1} = 0. (..., time, latent); `a` broadcasts over leading dimensions."""
    return _Recurrence.apply(a.expand(*a.shape[:-1], b.shape[-1]), b)  # pyright: ignore[reportReturnType]


def chain_kl(mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """KL(chain ‖ neighbour factor) over the first `lengths` steps of each series. (series, time, latent) → (series,)

    weights: (row, 1 + p, latent or 1), the last row holding for all later steps, or (series, time, 1 + p, latent or 1).
    """
    order = weights.shape[-2] - 1
    if _on_triton(mean) and 1 <= order <= gpu.LARGEST_ORDER:
        return gpu.chain_kl(mean, std, corr, weights, lengths)
    return _ChainKL.apply(mean, std, corr, weights, lengths)  # pyright: ignore[reportReturnType]


def _on_triton(x: Tensor) -> bool:
    return gpu is not None and x.is_cuda and x.dtype == torch.float32


class _Recurrence(Function):
    """The gradient is the same recurrence reversed: λ_t = ∂y_t + a_{t+1} λ_{t+1};  ∂b_t = λ_t,  ∂a_t = λ_t y_{t-1}."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        y = _recur(a, b, reverse=False)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor]:  # pyright: ignore
        a, y = ctx.saved_tensors
        d_b = _recur(a, grads[0], reverse=True)
        d_a = (d_b * lag(y, 1)).sum_to_size(a.shape) if ctx.needs_input_grad[0] else None
        return d_a, d_b


def _recur(a: Tensor, b: Tensor, *, reverse: bool) -> Tensor:
    if _on_triton(b):
        flat = (-1, *b.shape[-2:])
        return gpu.linear_recurrence(a.reshape(flat), b.reshape(flat), reverse).reshape(b.shape)
    if reverse:
        return _scan(lag(a.flip(-2), 1), b.flip(-2)).flip(-2)
    return _scan(a, b)


def lag(x: Tensor, steps: int) -> Tensor:
    """x_{t-steps} at step t, zeros before the start. (..., time, latent)"""
    return pad(x[..., : x.shape[-2] - steps, :], (0, 0, steps, 0))


def _scan(a: Tensor, b: Tensor) -> Tensor:
    """y_t = a_t y_{t-1} + b_t by odd-even reduction: O(T) work in O(log T) vector operations.

    Two steps combine to y_{t} = a_t a_{t-1} y_{t-2} + (a_t b_{t-1} + b_t). Solve this for the odd t, then compute the
    even ones.
    """
    time = b.shape[-2]
    if time <= 1:
        return b.clone()
    pairs = time // 2
    y = torch.empty_like(b)
    a_odd, a_even = a[..., 1::2, :], a[..., 0::2, :]
    y_odd = _scan(a_odd * a_even[..., :pairs, :], torch.addcmul(b[..., 1::2, :], a_odd, b[..., 0 : 2 * pairs : 2, :]))
    y[..., 1::2, :] = y_odd
    y[..., 0, :] = b[..., 0, :]
    rest = time - pairs - 1  # the even steps 2, 4, …
    torch.addcmul(b[..., 2::2, :], a_even[..., 1:, :], y_odd[..., :rest, :], out=y[..., 2::2, :])
    return y


PART = 8192  # steps processed at a time, so that memory never holds all lags of a long series


class _ChainKL(Function):
    """The equations are in `gpu.py`. Long series are processed in parts, each with the p steps before it."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
        ctx.save_for_backward(mean, std, corr, weights, lengths)
        return torch.stack([part.kl() for part in _parts(mean, std, corr, weights, lengths)]).sum(0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        mean, std, corr, weights, lengths = ctx.saved_tensors
        d_mean, d_std, d_corr, d_weights = (torch.zeros_like(x) for x in (mean, std, mean, weights))
        learned = ctx.needs_input_grad[3]
        for part in _parts(mean, std, corr, weights, lengths):
            part.add_gradients(grads[0], d_mean, d_std, d_corr, d_weights if learned else None)
        return d_mean, d_std, d_corr[:, 1:], d_weights if learned else None, None


def _parts(mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor) -> Iterator["_Part"]:
    time, before = mean.shape[-2], pad(corr, (0, 0, 1, 0))
    for first in range(0, time, PART):
        yield _Part(mean, std, before, weights, lengths, first, min(first + PART, time))


class _Part:
    """The target steps `first` to `last` - 1 of every series, with the p steps before them.

    Arrays are padded by p steps in front, so that a lag is a view; they are zero before the start of the series.
    """

    def __init__(
        self, mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor, first: int, last: int
    ):
        """`corr` is the correlation with the previous step."""
        self.order, self.targets = weights.shape[-2] - 1, slice(first, last)
        self.steps = torch.arange(first, last, device=mean.device)
        self.sources = slice(max(0, first - self.order), last)
        self.lead = self.order - (first - self.sources.start)  # steps before the start of the series
        self.mean, self.std, self.corr = (pad(x[:, self.sources], (0, 0, self.lead, 0)) for x in (mean, std, corr))
        self.free = 1 - self.corr**2
        self.valid = (self.steps < lengths.unsqueeze(-1)).unsqueeze(-1).to(mean.dtype)
        self.own_times = weights.ndim == 4
        if self.own_times:
            u = weights[:, self.targets]
        else:
            u = weights[self.steps.clamp(max=weights.shape[0] - 1)]
            u = u.expand(*u.shape[:-1], mean.shape[-1])  # small, and faster than broadcasting
        self.u = u.movedim(-2, 0).contiguous()  # (lag, [series,] time, latent)

    def at(self, padded: Tensor, steps: int) -> Tensor:
        """x_{t-steps} at step t, as a view."""
        return padded[:, self.order - steps : self.order - steps + len(self.steps)]

    def newer(self) -> Tensor:
        """G, lag by lag. (lag, series, time, latent)"""
        g = self.std.new_empty(self.order + 1, *self.at(self.std, 0).shape)
        torch.mul(self.u[0], self.at(self.std, 0), out=g[0])
        for steps in range(1, self.order + 1):
            torch.mul(self.u[steps], self.at(self.std, steps), out=g[steps])
            g[steps].addcmul_(self.at(self.corr, steps - 1), g[steps - 1])
        return g

    def whitened_mean(self) -> Tensor:
        y = self.u[0] * self.at(self.mean, 0)
        for steps in range(1, self.order + 1):
            y.addcmul_(self.u[steps], self.at(self.mean, steps))
        return y

    def kl(self) -> Tensor:
        newer = self.newer()
        square = self.whitened_mean() ** 2
        for steps in range(self.order):
            square.addcmul_(self.at(self.free, steps), newer[steps] ** 2)
        square.addcmul_(newer[-1], newer[-1])
        logs = (self.u[0] * self.at(self.std, 0)).log() + 0.5 * torch.log1p(-(self.at(self.corr, 0) ** 2))
        return ((0.5 * (square - 1) - logs) * self.valid).sum((-2, -1))

    def add_gradients(
        self, grad: Tensor, d_mean: Tensor, d_std: Tensor, d_corr: Tensor, d_weights: Tensor | None
    ) -> None:
        g, newer = grad[:, None, None] * self.valid, self.newer()
        gy = g * self.whitened_mean()
        d_m, d_s, d_c = (torch.zeros_like(self.std) for _ in range(3))
        d_u: list[Tensor] = []
        self.at(d_s, 0).sub_(g / self.at(self.std, 0))
        self.at(d_c, 0).add_(g * self.at(self.corr, 0) / self.at(self.free, 0))
        carried = torch.zeros_like(gy)
        for steps in range(self.order, -1, -1):
            u, s = self.u[steps], self.at(self.std, steps)
            pull = (newer[steps] + carried).mul_(g)
            self.at(d_m, steps).addcmul_(gy, u)
            self.at(d_s, steps).addcmul_(pull, u)
            if d_weights is not None:
                here = torch.addcmul(gy * self.at(self.mean, steps), pull, s)
                here = here if steps else here - g / u
                d_u.append(here if self.own_times else here.sum(0))
            if steps > 0:
                older = torch.addcmul(carried, u, s)
                self.at(d_c, steps - 1).addcmul_(g * newer[steps - 1], older)
                carried = self.at(self.corr, steps - 1) * older
        for whole, part in ((d_mean, d_m), (d_std, d_s), (d_corr, d_c)):
            whole[:, self.sources] += part[:, self.lead :]
        if d_weights is not None:
            self._add_to_rows(torch.stack(d_u[::-1]).movedim(0, -2), d_weights)

    def _add_to_rows(self, d_u: Tensor, d_weights: Tensor) -> None:
        """Add the gradients of the weights, summed over the steps and latent dimensions that share them."""
        if d_weights.shape[-1] == 1:
            d_u = d_u.sum(-1, keepdim=True)
        if self.own_times:
            d_weights[:, self.targets] += d_u
        else:
            d_weights.index_add_(0, self.steps.clamp(max=len(d_weights) - 1), d_u)
