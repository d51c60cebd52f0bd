"""BRITS (Cao et al., NeurIPS 2018): an LSTM each way through a series that fills its own gaps as it goes.

At each step, with x the values, m = 1 where they are observed, δ the time since each feature was last observed:

h' = γ_h h,  γ_h = exp(-relu(W_γ δ + b))      the state fades with time
x̂  = W_x h' + b                               history: what the past says
xᶜ = m x + (1 - m) x̂
ẑ  = W_z xᶜ + b,  diag W_z = 0                regression: what the other features say
β  = σ(W_β [γ_x; m] + b),  γ_x = exp(-relu(w δ + b)), one weight for each feature
ĉ  = β ẑ + (1 - β) x̂                          combined
cᶜ = m x + (1 - m) ĉ
h, c = LSTM([cᶜ; m], h', c)

All that does not depend on h is computed before the loop over time, both directions go through it together, and its
gradient is written by hand. Tensors in here are (direction, time, batch, ·), the backward series turned around.
"""

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import l1_loss, pad

from gpvae.data.batches import Batch
from gpvae.data.panel import Panel
from gpvae.data.schema import Schema
from gpvae.imputers.both_ways import BothWays
from gpvae.imputers.held_out import HeldOut
from gpvae.imputers.labels import LabelledMethod, labels_of_rows
from gpvae.imputers.neural import Method, NeuralImputer
from gpvae.imputers.point import PointMethod
from gpvae.models.likelihoods.sampling import Random
from gpvae.models.loss import Loss
from gpvae.training.recipe import Recipe
from gpvae.training.state import TrainState


@dataclass(eq=False, repr=False)
class BRITS(NeuralImputer):
    """Fill gaps by recurrent networks that read the series both ways and fill it as they go. It gives single values.

    hidden: size of the recurrent states.
    consistency: weight of the difference between the two directions in the loss.
    label_weight: weight of predicting the labels y of `fit` from the last states, in units of the mean error of a
        value; 0: labels are not used. In the authors' code, which adds up the errors of all steps where we average, it
        is 1 / (0.9 · steps).

    The other settings are those of `GPVAE`.
    """

    hidden: int = 108
    consistency: float = 0.1
    label_weight: float = 0.0
    recipe: Recipe = field(default=Recipe(batch_size=32), kw_only=True)
    method_: PointMethod = field(init=False)
    _y: NDArray[np.float32] | None = field(default=None, init=False)  # labels, while fitting

    def _new_method(self, schema: Schema, share_observed: float) -> PointMethod:
        network = BritsNetwork(len(schema.columns), hidden=self.hidden, consistency=self.consistency)
        if self._y is None:
            return PointMethod(network, schema, self.recipe)
        return LabelledMethod(network, schema, self.recipe, self.label_weight)

    def fit(
        self, data: Any, y: Any = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        """With `label_weight`, y are the labels of the series: 0, 1, or NaN where unknown."""
        if not self.label_weight >= 0:
            raise ValueError(f"label_weight must not be negative, got {self.label_weight!r}")
        if self.label_weight and y is None:
            raise ValueError("label_weight needs labels: fit(data, y)")
        self._y = np.asarray(y, dtype=np.float32) if self.label_weight else None
        try:
            return super().fit(data, checkpoint=checkpoint, logs=logs)
        finally:
            self._y = None

    def _train(
        self, method: Method, panel: Panel, held_out: HeldOut, fabric: Fabric, checkpoint: str | Path | None
    ) -> TrainState:
        if isinstance(method, LabelledMethod):
            method.labels = labels_of_rows(self._y, panel)
        return super()._train(method, panel, held_out, fabric, checkpoint)

    def _fingerprint(self, panel: Panel) -> str:
        described = "" if self._y is None else hashlib.sha256(self._y.tobytes()).hexdigest()
        return super()._fingerprint(panel) + described


class Estimates(NamedTuple):
    """Of every value, observed or not. (direction, time, batch, feature)"""

    history: Tensor  # x̂
    regression: Tensor  # ẑ
    combined: Tensor  # ĉ
    states: Tensor  # h behind each step. (direction, time, batch, hidden)


PART = 256  # steps of which `fill` keeps everything


class BritsNetwork(nn.Module):
    """Both directions' weights, the loss that trains them, and their filling of gaps."""

    others: Tensor

    def __init__(self, features: int, *, hidden: int = 108, consistency: float = 0.1):
        super().__init__()
        if features < 1 or hidden < 1 or consistency < 0:
            raise ValueError(f"features, hidden ≥ 1, consistency ≥ 0, not {features}, {hidden}, {consistency}")
        self.features, self.hidden, self.consistency = features, hidden, consistency
        of_hidden, of_features = 1 / math.sqrt(hidden), 1 / math.sqrt(features)
        self.fade = _Linears(features, hidden, of_hidden)
        self.fade_values = _Linears(1, features, of_features)  # a diagonal
        self.history = _Linears(hidden, features, of_hidden)
        self.regression = _Linears(features, features, of_features)
        self.blend = _Linears(2 * features, features, 1 / math.sqrt(2 * features))
        self.gates = _Linears(hidden + 2 * features, 4 * hidden, of_hidden)  # [h'; cᶜ; m] → o, i, f, g
        self.register_buffer("others", 1 - torch.eye(features), persistent=False)

    @property
    def widest(self) -> int:
        """Numbers that `fill` makes of a time step: those of the trace, both ways."""
        return 2 * (8 * self.hidden + 8 * self.features)

    def loss(self, batch: Batch, generator: Generator, kl_scale: Tensor | float = 1.0) -> Loss:
        """Errors of all three estimates where values are observed, and how far the two fillings of gaps are apart.

        share · (mean of (|x̂ - x| + |ẑ - x| + |ĉ - x|) / 3 over observed cells, both directions added
                 + 0.1 · mean of |cᶜ_forward - cᶜ_backward| over all cells)

        The share of cells that are observed gives every observed value the same weight, however full its batch is.
        Nothing here is random, and nothing has to warm up.
        """
        return self.loss_and_states(batch)[0]

    def loss_and_states(self, batch: Batch) -> tuple[Loss, Tensor]:
        """The loss, and the states behind each series' last step. (direction, batch, hidden)"""
        read = BothWays.of(batch)
        found = self.estimates(read)
        last = (batch.lengths - 1).clamp(min=0).view(1, 1, -1, 1).expand(2, 1, -1, self.hidden)
        return self._loss(batch, read, found), found.states.gather(1, last).squeeze(1)

    def _loss(self, batch: Batch, read: BothWays, found: Estimates) -> Loss:
        cells = batch.steps * self.features
        errors = [l1_loss(estimate * read.observed, read.values, reduction="sum") for estimate in found[:3]]
        forward, backward = read.in_time(found.combined)
        gaps = (batch.valid.unsqueeze(-1) & ~batch.observed).transpose(0, 1)
        share = read.observed[0].sum() / (batch.lengths.sum() * self.features)
        reconstruction = (errors[0] + errors[1] + errors[2]) / (3 * cells)
        consistency = self.consistency * share * ((forward - backward) * gaps).abs().sum() / cells
        return Loss(reconstruction + consistency, {"reconstruction": reconstruction, "consistency": consistency})

    @torch.no_grad()
    def fill(self, batch: Batch, random: Random) -> Tensor:
        """The mean of both directions' ĉ, and observed values as they are. (batch, time, feature)

        Part by part, so that a long series takes little more memory than what is returned.
        """
        read, weights = BothWays.of(batch), self._weights()
        combined = torch.empty_like(read.values)
        h = c = combined.new_zeros(2, len(batch.values), self.hidden)
        for first in range(0, combined.shape[1], PART):
            part = slice(first, first + PART)
            given = self._given(read.values[:, part], read.observed[:, part], read.elapsed[:, part])
            trace, h, c = _run(given, weights, h, c)
            combined[:, part] = torch.lerp(trace.history, trace.regression, given.blend)
        forward, backward = read.in_time(combined)
        return torch.where(batch.observed, batch.values, ((forward + backward) / 2).transpose(0, 1))

    def estimates(self, read: BothWays) -> Estimates:
        given = self._given(read.values, read.observed, read.elapsed)
        found: Any = _Recurrence.apply(*given, *self._weights())
        history, regression, states = found
        return Estimates(history, regression, torch.lerp(history, regression, given.blend), states)

    def _given(self, values: Tensor, observed: Tensor, elapsed: Tensor) -> "_Given":
        """All that does not depend on the state, for all steps at once."""
        weight, bias = self.fade_values.weight.unsqueeze(1), self.fade_values.bias.unsqueeze(1)
        decay_values = torch.addcmul(bias, elapsed, weight).relu().neg().exp()
        blend = self.blend(torch.cat([decay_values, observed], dim=-1)).sigmoid()
        return _Given(values, observed, 1 - observed, self.fade(elapsed), blend)

    def _weights(self) -> "_Weights":
        regression = self.regression.weight * self.others
        biases = (self.history.bias, self.regression.bias, self.gates.bias)
        return _Weights(self.history.weight, regression, self.gates.weight, *biases)


class _Linears(nn.Module):
    """x W + b, with a W and a b for each direction. (direction, time, batch, ·)"""

    def __init__(self, inputs: int, outputs: int, bound: float):
        super().__init__()
        self.weight = nn.Parameter(_uniform((2, inputs, outputs), bound))
        self.bias = nn.Parameter(_uniform((2, 1, outputs), bound))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.baddbmm(self.bias, x.flatten(1, 2), self.weight)
        return y.to(x.dtype).unflatten(1, x.shape[1:3])  # autocast may have made it bfloat16


def _uniform(shape: tuple[int, ...], bound: float) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound)


class _Given(NamedTuple):
    """What the loop is given for each step. (direction, time, batch, ·)"""

    values: Tensor  # x, 0 where missing
    observed: Tensor  # m
    missing: Tensor  # 1 - m
    fade: Tensor  # γ_h = exp(-relu(fade))
    blend: Tensor  # β


class _Weights(NamedTuple):
    """What the loop multiplies with, and adds. (direction, inputs, outputs)"""

    history: Tensor  # W_x, from h' to x̂
    regression: Tensor  # W_z, from xᶜ to ẑ
    gates: Tensor  # from [h'; cᶜ; m] to o, i, f, g
    history_bias: Tensor
    regression_bias: Tensor
    gates_bias: Tensor


class _Trace(NamedTuple):
    """What the loop leaves behind. (direction, time, batch, ·)"""

    decay: Tensor  # γ_h
    history: Tensor  # x̂
    completed: Tensor  # xᶜ
    regression: Tensor  # ẑ
    inputs: Tensor  # [h'; cᶜ; m]
    gates: Tensor  # o, i, f, g
    cell: Tensor  # c
    squashed: Tensor  # tanh c

    @classmethod
    def begin(cls, given: _Given) -> "_Trace":
        x, fade = given.values, given.fade
        features, hidden = x.shape[-1], fade.shape[-1]
        inputs, gates = (x.new_empty(*x.shape[:-1], width) for width in (hidden + 2 * features, 4 * hidden))
        inputs[..., -features:] = given.observed
        return cls(
            decay=fade.clamp(min=0).neg_().exp_(),
            history=torch.empty_like(x),
            completed=torch.empty_like(x),
            regression=torch.empty_like(x),
            inputs=inputs,
            gates=gates,
            cell=torch.empty_like(fade),
            squashed=torch.empty_like(fade),
        )

    @property
    def decayed(self) -> Tensor:
        """The state h'."""
        return self.inputs[..., : self.cell.shape[-1]]

    @property
    def filled(self) -> Tensor:
        """The values cᶜ."""
        return self.inputs[..., self.cell.shape[-1] : -self.history.shape[-1]]


Fields = TypeVar("Fields", bound=tuple[Tensor, ...])  # one of the named tuples


def _steps(tensors: Fields) -> list[Fields]:
    """The same for each step, as views."""
    kind: Any = type(tensors)
    return [kind(*step) for step in zip(*(x.unbind(1) for x in tensors), strict=True)]


def _part(tensors: Fields, part: slice) -> Fields:
    """The same for some of the steps, as views."""
    kind: Any = type(tensors)
    return kind(*(x[:, part] for x in tensors))


def _run(given: _Given, weights: _Weights, h: Tensor, c: Tensor) -> tuple[_Trace, Tensor, Tensor]:
    """Every step, from the state h, c (direction, batch, hidden); and the state behind the last.

    Everything is written where it will be kept. That also keeps it from being autocast: the products are too small to
    gain by it.
    """
    trace, combined = _Trace.begin(given), torch.empty_like(given.values[:, 0])
    for at, to in zip(_steps(given), _steps(trace), strict=True):
        decayed, filled = to.decayed, to.filled
        torch.mul(h, to.decay, out=decayed)
        torch.baddbmm(weights.history_bias, decayed, weights.history, out=to.history)
        torch.addcmul(at.values, at.missing, to.history, out=to.completed)
        torch.baddbmm(weights.regression_bias, to.completed, weights.regression, out=to.regression)
        torch.lerp(to.history, to.regression, at.blend, out=combined)
        torch.addcmul(at.values, at.missing, combined, out=filled)
        torch.baddbmm(weights.gates_bias, to.inputs, weights.gates, out=to.gates)
        o, i, f, g = to.gates.chunk(4, dim=-1)
        to.gates[..., : -g.shape[-1]].sigmoid_()
        _tanh(g, out=g)
        torch.mul(f, c, out=to.cell).addcmul_(i, g)
        _tanh(to.cell, out=to.squashed)
        h, c = o * to.squashed, to.cell
    return trace, h, c


def _tanh(x: Tensor, *, out: Tensor) -> None:
    """By tanh x = 2 σ(2 x) - 1 on CPUs, where PyTorch's σ is several times as fast."""
    if x.is_cuda:
        torch.tanh(x, out=out)
    else:
        torch.add(x, x, out=out).sigmoid_().mul_(2).sub_(1)


class _Recurrence(Function):
    """x̂, ẑ and h of every step, from `_Given` and `_Weights`."""

    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        given, weights = _Given(*inputs[:5]), _Weights(*inputs[5:])
        start = torch.zeros_like(given.fade[:, 0])
        trace, _, _ = _run(given, weights, start, start)
        ctx.save_for_backward(given.missing, given.blend, *weights, *trace)
        ctx.set_materialize_grads(False)
        return trace.history, trace.regression, trace.gates[..., : trace.cell.shape[-1]] * trace.squashed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        missing, blend, *saved = ctx.saved_tensors
        weights, trace = _Weights(*saved[:6]), _Trace(*saved[6:])
        blended = missing * blend
        d_history, d_regression = (torch.zeros_like(blend) if grad is None else grad for grad in grads[:2])
        d_states = torch.zeros_like(blend[..., :1, :1]) if grads[2] is None else grads[2]  # often, nobody asks for them
        incoming = _Incoming(d_history, d_regression, d_states, blended, missing - blended, missing, trace.decay)
        return None, None, None, *_run_back(incoming, weights, trace)


class _Incoming(NamedTuple):
    """What the way back is given for each step. (direction, time, batch, ·)"""

    history: Tensor  # ∂x̂ from outside
    regression: Tensor  # ∂ẑ from outside
    states: Tensor  # ∂h from outside; or zeros (direction, time, 1, 1)
    blended: Tensor  # (1 - m) β, of cᶜ by ẑ
    kept: Tensor  # (1 - m) (1 - β), of cᶜ by x̂ directly
    missing: Tensor  # 1 - m, of xᶜ by x̂
    decay: Tensor  # γ_h, of h' by h


class _Slopes(NamedTuple):
    """Of the LSTM at each step. (direction, time, batch, ·)"""

    output: Tensor  # of h by o before its sigmoid: tanh(c) o (1 - o)
    cell: Tensor  # of h by c: o (1 - tanh² c)
    rest: Tensor  # of c by i, f, g before theirs: g i (1 - i),  c_{t-1} f (1 - f),  i (1 - g²). (…, 3, hidden)
    forget: Tensor  # of c by c_{t-1}: f

    @classmethod
    def of(cls, trace: _Trace, before: Tensor) -> "_Slopes":
        """`before` is c_{t-1}."""
        o, i, f, g = trace.gates.chunk(4, dim=-1)
        h, new, old = o * trace.squashed, i * g, f * before
        rest = torch.stack([_less(new, new, i), _less(old, old, f), _less(i, new, g)], dim=-2)
        return cls(_less(h, h, o), _less(o, h, trace.squashed), rest, f)


def _less(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The difference a - b c."""
    return torch.addcmul(a, b, c, value=-1)


class _Found(NamedTuple):
    """Gradients for each step. (direction, time, batch, ·)"""

    history: Tensor  # of x̂
    regression: Tensor  # of ẑ
    gates: Tensor  # of o, i, f, g before σ and tanh
    inputs: Tensor  # of [h'; cᶜ], h' for the gates' sake alone; behind them some of m's, for a width that is fast
    decayed: Tensor  # of h'

    @classmethod
    def begin(cls, trace: _Trace) -> "_Found":
        needed = trace.cell.shape[-1] + trace.history.shape[-1]
        inputs = trace.inputs[..., : -(-needed // 16) * 16]
        like = (trace.history, trace.regression, trace.gates, inputs, trace.cell)
        return cls(*(torch.empty_like(x, memory_format=torch.contiguous_format) for x in like))


BLOCK = 8  # steps of which the way back keeps everything: new memory is slow, and long products gain little


def _run_back(incoming: _Incoming, weights: _Weights, trace: _Trace) -> tuple[Tensor, ...]:
    """Gradients of fade, β and the weights, block by block of steps from the last."""
    d_fade, d_blend = torch.empty_like(trace.decay), torch.empty_like(trace.history)
    d_weights = _Weights(*(torch.zeros_like(w) for w in weights))
    before, hidden = pad(trace.cell[:, :-1], (0, 0, 0, 0, 1, 0)), trace.cell.shape[-1]
    d_h, d_c = (torch.zeros_like(before[:, 0]) for _ in range(2))
    for first in reversed(range(0, before.shape[1], BLOCK)):
        part = slice(first, first + BLOCK)
        done = _part(trace, part)
        found = _block_back(_part(incoming, part), weights, done, _Slopes.of(done, before[:, part]), d_h, d_c)
        d_filled = found.inputs[..., hidden : hidden + d_blend.shape[-1]]
        torch.mul(incoming.missing[:, part] * d_filled, done.regression - done.history, out=d_blend[:, part])
        torch.mul(found.decayed * done.decayed, -(done.decay < 1).to(d_h.dtype), out=d_fade[:, part])
        for d_w, x, d_y in zip(d_weights[:3], (done.decayed, done.completed, done.inputs), found, strict=False):
            d_w.baddbmm_(x.flatten(1, 2).mT, d_y.flatten(1, 2))
        for d_b, d_y in zip(d_weights[3:], found, strict=False):
            d_b.add_(d_y.flatten(1, 2).sum(1, keepdim=True))
    return d_fade, d_blend, *d_weights


def _block_back(
    incoming: _Incoming, weights: _Weights, trace: _Trace, slopes: _Slopes, d_h: Tensor, d_c: Tensor
) -> _Found:
    """Every step of a block, last first; ∂h and ∂c are brought to its start."""
    features, hidden = trace.history.shape[-1], d_h.shape[-1]
    found, d_completed = _Found.begin(trace), torch.empty_like(trace.history[:, 0])
    from_history, from_regression, from_gates = (w.mT for w in weights[:3])
    from_gates = from_gates[..., : found.inputs.shape[-1]]
    for at, slope, to in reversed(list(zip(_steps(incoming), _steps(slopes), _steps(found), strict=True))):
        d_h.add_(at.states)
        d_c.addcmul_(d_h, slope.cell)
        torch.mul(d_h, slope.output, out=to.gates[..., :hidden])
        torch.mul(d_c.unsqueeze(-2), slope.rest, out=to.gates[..., hidden:].unflatten(-1, (3, hidden)))
        d_c.mul_(slope.forget)
        torch.bmm(to.gates, from_gates, out=to.inputs)
        d_filled = to.inputs[..., hidden : hidden + features]
        torch.addcmul(at.regression, at.blended, d_filled, out=to.regression)
        torch.bmm(to.regression, from_regression, out=d_completed)
        torch.addcmul(at.history, at.kept, d_filled, out=to.history).addcmul_(at.missing, d_completed)
        torch.baddbmm(to.inputs[..., :hidden], to.history, from_history, out=to.decayed)
        torch.mul(to.decayed, at.decay, out=d_h)
    return found
