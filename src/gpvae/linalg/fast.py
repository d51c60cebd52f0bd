"""The two hot loops of training and sampling, each by the fastest way for its shape and device.

Triton kernels on CUDA (`gpu.py`), vector operations with gradients written by hand elsewhere. What they compute is said
plainly in `chains.py`, and tested against it.
"""

from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

gpu: Any = None
with suppress(ModuleNotFoundError):  # PyTorch for CPUs comes without Triton
    from gpvae.linalg import gpu


def linear_recurrence(a: Tensor, b: Tensor) -> Tensor:
    """y_t = a_t y_{t-1} + b_t with y_{-1} = 0. (..., time, latent); `a` may lack leading dimensions that `b` has."""
    return _Recurrence.apply(a.expand(*a.shape[:-1], b.shape[-1]), b)  # pyright: ignore[reportReturnType]


def chain_kl(mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """KL(chain ‖ neighbour factor) over the first `lengths` steps of each series. (series, time, latent) → (series,)

    weights: (row, 1 + p, latent or 1), the last row serving all steps behind it, or (series, time, 1 + p, latent or 1).
    """
    order = weights.shape[-2] - 1
    if _on_triton(mean) and 1 <= order <= gpu.LARGEST_ORDER:
        return gpu.chain_kl(mean, std, corr, weights, lengths)
    return _ChainKL.apply(mean, std, corr, weights, lengths)  # pyright: ignore[reportReturnType]


def _on_triton(x: Tensor) -> bool:
    return gpu is not None and x.is_cuda and x.dtype == torch.float32


class _Recurrence(Function):
    """Its gradient is the same recurrence backwards: λ_t = ∂y_t + a_{t+1} λ_{t+1};  ∂b_t = λ_t,  ∂a_t = λ_t y_{t-1}."""

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
    """x_{t-steps} at place t, zeros before the start. (..., time, latent)"""
    return pad(x[..., : x.shape[-2] - steps, :], (0, 0, steps, 0))


def _scan(a: Tensor, b: Tensor) -> Tensor:
    """y_t = a_t y_{t-1} + b_t by odd-even reduction: O(T) work in O(log T) vector operations.

    Two steps make one: y_{t} = a_t a_{t-1} y_{t-2} + (a_t b_{t-1} + b_t). Solve that for the odd t, then fill in the
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


class _ChainKL(Function):
    """`gpu.py` has the equations. All lags of the past are views of arrays with p steps of nothing in front."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
        past = _Past(mean, std, corr, weights)
        newer, y = past.newer(), past.whitened_mean()
        square = torch.addcmul(y**2, newer[-1], newer[-1])
        for steps in range(past.order):
            square += past.at(past.free, steps) * newer[steps] ** 2
        c = past.at(past.corr, 0)
        logs = (past.u[0] * std).log() + 0.5 * torch.log1p(-(c**2))
        valid = torch.arange(past.time, device=mean.device) < lengths.unsqueeze(-1)
        ctx.past, ctx.newer, ctx.y, ctx.valid = past, newer, y, valid.unsqueeze(-1).to(mean.dtype)
        ctx.weights_shape = weights.shape
        return ((0.5 * (square - 1) - logs) * ctx.valid).sum((-2, -1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        past, learned = ctx.past, ctx.needs_input_grad[3]
        g = grads[0][:, None, None] * ctx.valid
        d_mean, d_std, d_corr = (torch.zeros_like(past.std) for _ in range(3))
        d_u: list[Tensor] = []
        c, std = past.at(past.corr, 0), past.at(past.std, 0)
        past.at(d_std, 0).sub_(g / std)
        past.at(d_corr, 0).add_(g * c / past.at(past.free, 0))
        gy = g * ctx.y
        carried = torch.zeros_like(gy)
        for steps in range(past.order, -1, -1):
            u, s = past.u[steps], past.at(past.std, steps)
            pull = (ctx.newer[steps] + carried).mul_(g)
            past.at(d_mean, steps).addcmul_(gy, u)
            past.at(d_std, steps).addcmul_(pull, u)
            if learned:
                here = torch.addcmul(gy * past.at(past.mean, steps), pull, s)
                d_u.append(here if past.own_times else here.sum(0))
            if steps > 0:
                older = torch.addcmul(carried, u, s)
                past.at(d_corr, steps - 1).addcmul_(g * ctx.newer[steps - 1], older)
                carried = past.at(past.corr, steps - 1) * older
        if learned:
            log_part = g.expand_as(gy) / past.u[0]
            d_u[-1] = d_u[-1] - (log_part if past.own_times else log_part.sum(0))
        d_weights = past.to_rows(torch.stack(d_u[::-1]), ctx.weights_shape) if learned else None
        return past.at(d_mean, 0), past.at(d_std, 0), past.at(d_corr, 0)[:, 1:], d_weights, None


class _Past:
    """Mean, deviation and correlation with the step before, by lag; and the prior's weights, lag by lag."""

    def __init__(self, mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor):
        self.time, latents = mean.shape[-2:]
        self.order = min(weights.shape[-2], self.time) - 1
        self.own_times = weights.ndim == 4
        if not self.own_times:
            weights = weights[torch.arange(self.time, device=mean.device).clamp(max=weights.shape[0] - 1)]
            weights = weights.expand(*weights.shape[:-1], latents)  # small, and quicker than to broadcast
        self.u = weights[..., : self.order + 1, :].movedim(-2, 0).contiguous()  # (lag, [series,] time, latent)
        self.mean = pad(mean, (0, 0, self.order, 0))
        self.std = pad(std, (0, 0, self.order, 0))
        self.corr = pad(corr, (0, 0, self.order + 1, 0))
        self.free = 1 - self.corr**2

    def at(self, padded: Tensor, steps: int) -> Tensor:
        """x_{t-steps} at place t: a view."""
        return padded[:, self.order - steps : self.order - steps + self.time]

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

    def to_rows(self, d_u: Tensor, shape: torch.Size) -> Tensor:
        """Gradients of the weights by lag, added up over the steps and latent dimensions that share them."""
        d_u = d_u.movedim(0, -2)
        if shape[-1] == 1:
            d_u = d_u.sum(-1, keepdim=True)
        if not self.own_times and self.time > shape[0]:
            own = shape[0] - 1
            d_u = torch.cat([d_u[:own], d_u[own:].sum(0, keepdim=True)])
        d_weights = d_u.new_zeros(shape)
        d_weights[..., : d_u.shape[-3], : d_u.shape[-2], :] = d_u
        return d_weights
