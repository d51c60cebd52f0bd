"""The hot loops of chains and neighbour factors as Triton kernels.

Every kernel runs lanes over (series, segment of time, latent dimension); a lane processes its segment step by step and
keeps the steps it needs of the past in registers. Few long series are split into many segments, many short ones into
few.

KL of a chain from the prior, for a target step t and its sources t - l, l = 0 … p (see `chains.kl_steps`):

    y = Σ_l u_l m_{t-l}                                  v_l = u_l σ_{t-l}
    G_l = v_l + c_{t-l} G_{l-1}                          the newer steps, carried back to t - l
    H_l = v_l + k_l,  k_l = c_{t-l-1} H_{l+1}            the older steps, carried up to t - l
    KL_t = ½ (y² + Σ_{l<p} (1 - c_{t-l-1}²) G_l² + G_p² - 1) - log u_0 - log σ_t - ½ log(1 - c_{t-1}²)

and with g the gradient of KL_t, the gradients are

    ∂m_{t-l} += g u_l y      ∂σ_{t-l} += g u_l (G_l + k_l)      ∂c_{t-l} += g G_{l-1} H_l  (it joins t-l and t-l+1)
    ∂u_l = g (y m_{t-l} + σ_{t-l} (G_l + k_l))
    ∂σ_t -= g / σ_t          ∂c_{t-1} += g c_{t-1} / (1 - c_{t-1}²)      ∂u_0 -= g / u_0

In the kernels `c` at step s stands for c_{s-1}, the correlation with the step before.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.library import custom_op

if tuple(int(number) for number in triton.__version__.split(".")[:2]) < (3, 6):
    raise ImportError(f"the kernels need Triton 3.6 or later, for its tuples; this is {triton.__version__}")

HALF_LOG_2 = tl.constexpr(0.34657359027997264)


@triton.jit
def _lane(chains, latents, first_segment, segments, LANES: tl.constexpr):
    """The lanes of a program: their series, segment, latent dimension, and which of them exist."""
    lane = tl.program_id(0).to(tl.int64) * LANES + tl.arange(0, LANES)
    latent = (lane % latents).to(tl.int32)
    series = lane // latents % chains
    segment = (lane // latents // chains).to(tl.int32)
    return lane, series, first_segment + segment, latent, segment < segments


@triton.jit
def _at_series(mean, std, corr, series, latent, exists, time, latents):
    """Where each lane's series begins: `corr` such that step s finds what joins it to s - 1; and where it ends."""
    place = series * time * latents + latent
    return mean + place, std + place, corr + place - (series + 1) * latents, tl.where(exists, time, 0)


@triton.jit
def _load_steps(mean, std, corr, first, stop, latents, COUNT: tl.constexpr, STRIDE: tl.constexpr):
    """m, σ and the correlation with the step before, at COUNT steps from `first` on: 0, 1 and 0 where there is none."""
    m, s, c = (), (), ()
    for i in tl.static_range(COUNT):
        step = first + STRIDE * i
        inside = (step >= 0) & (step < stop)
        m = m + (tl.load(mean + step * latents, mask=inside, other=0.0),)
        s = s + (tl.load(std + step * latents, mask=inside, other=1.0),)
        c = c + (tl.load(corr + step * latents, mask=inside & (step > 0), other=0.0),)
    return m, s, c


@triton.jit
def _load_weights(weights, series, row, latent, exists, w_series, w_row, w_lag, w_latent, ORDER: tl.constexpr):
    """Row `row` of the prior's factor: u_0 … u_p."""
    place = weights + series * w_series + (row + 0 * series) * w_row + latent * w_latent  # in 64 bits, as `series` is
    u = (tl.load(place, mask=exists, other=1.0),)
    for lag in tl.static_range(1, ORDER + 1):
        u = u + (tl.load(place + lag * w_lag, mask=exists, other=0.0),)
    return u


@triton.jit
def kl_forward(
    mean, std, corr, weights, lengths, out,
    chains, time, latents, first_segment, segments, segment_steps, rows, w_series, w_row, w_lag, w_latent,
    ORDER: tl.constexpr, UNIFORM: tl.constexpr, UNROLL: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The KL of each lane's segment, summed over its steps."""
    lane, series, segment, latent, exists = _lane(chains, latents, first_segment, segments, LANES)
    start = segment * segment_steps
    length = tl.load(lengths + series, mask=exists, other=0)
    length = tl.minimum(length, start + segment_steps)
    u = _load_weights(weights, series, rows - 1, latent, exists, w_series, w_row, w_lag, w_latent, ORDER)
    mean, std, corr, end = _at_series(mean, std, corr, series, latent, exists, time, latents)
    m_past, s_past, c_past = _load_steps(mean, std, corr, start - 1, end, latents, ORDER, -1)
    free_past = ()
    for ago in tl.static_range(ORDER):
        free_past = free_past + ((1 - c_past[ago]) * (1 + c_past[ago]),)
    total = tl.zeros([LANES], tl.float32)
    m_next, s_next, c_next = _load_steps(mean, std, corr, start, end, latents, UNROLL, 1)
    for block in range(tl.cdiv(segment_steps, UNROLL)):
        m_now, s_now, c_now = m_next, s_next, c_next
        m_next, s_next, c_next = _load_steps(mean, std, corr, start + (block + 1) * UNROLL, end, latents, UNROLL, 1)
        for inner in tl.static_range(UNROLL):
            step = start + block * UNROLL + inner
            m, s, c = (m_now[inner],) + m_past, (s_now[inner],) + s_past, (c_now[inner],) + c_past
            free = ((1 - c[0]) * (1 + c[0]),) + free_past  # 1 - c²
            if not UNIFORM:
                row = tl.minimum(step, rows - 1)
                u = _load_weights(weights, series, row, latent, exists, w_series, w_row, w_lag, w_latent, ORDER)
            y = u[0] * m[0]
            newer = u[0] * s[0]
            square = tl.zeros([LANES], tl.float32)
            for lag in tl.static_range(1, ORDER + 1):
                square += free[lag - 1] * (newer * newer)
                newer = u[lag] * s[lag] + c[lag - 1] * newer
                y += u[lag] * m[lag]
            square += newer * newer + y * y
            precision = s[0] * u[0] * s[0] * u[0] * free[0]
            total += tl.where(step < length, 0.5 * (square - 1) - HALF_LOG_2 * tl.log2(precision), 0.0)
            m_past, s_past, c_past, free_past = m[:ORDER], s[:ORDER], c[:ORDER], free[:ORDER]
    tl.store(out + lane, total, mask=exists)


@triton.jit
def kl_backward(
    mean, std, corr, weights, lengths, grad, d_mean, d_std, d_corr, d_weights,
    chains, time, latents, first_segment, segments, segment_steps, rows, w_series, w_row, w_lag, w_latent, span,
    ORDER: tl.constexpr, UNIFORM: tl.constexpr, LEARNED: tl.constexpr, UNROLL: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Gradients at the sources of each lane's segment: all targets from its first step to p behind its last.

    Those of the weights (where LEARNED) are left for each lane, to be added up: over its segment where the weights are
    UNIFORM, (lane, lag); else for each of the first `span` steps, (series, step, lag, latent).
    """
    lane, series, segment, latent, exists = _lane(chains, latents, first_segment, segments, LANES)
    start = segment * segment_steps
    stop = tl.where(exists, tl.minimum(start + segment_steps, time), start)
    length = tl.load(lengths + series, mask=exists, other=0)
    g = tl.load(grad + series, mask=exists, other=0.0)
    u = _load_weights(weights, series, rows - 1, latent, exists, w_series, w_row, w_lag, w_latent, ORDER)
    zero = tl.zeros([LANES], tl.float32)
    mean, std, corr, end = _at_series(mean, std, corr, series, latent, exists, time, latents)
    d_mean, d_std, d_corr, _ = _at_series(d_mean, d_std, d_corr, series, latent, exists, time, latents)
    m_past, s_past, c_past = _load_steps(mean, std, corr, start - 1, end, latents, ORDER, -1)
    dm_past, ds_past, dc_past = (), (), ()
    for _ in tl.static_range(ORDER):
        dm_past, ds_past, dc_past = dm_past + (zero,), ds_past + (zero,), dc_past + (zero,)
    du = (zero,) + dm_past
    m_next, s_next, c_next = _load_steps(mean, std, corr, start, end, latents, UNROLL, 1)
    for block in range(tl.cdiv(segment_steps + ORDER, UNROLL)):
        m_now, s_now, c_now = m_next, s_next, c_next
        m_next, s_next, c_next = _load_steps(mean, std, corr, start + (block + 1) * UNROLL, end, latents, UNROLL, 1)
        for inner in tl.static_range(UNROLL):
            step = start + block * UNROLL + inner
            m, s, c = (m_now[inner],) + m_past, (s_now[inner],) + s_past, (c_now[inner],) + c_past
            if not UNIFORM:
                row = tl.minimum(step, rows - 1)
                u = _load_weights(weights, series, row, latent, exists, w_series, w_row, w_lag, w_latent, ORDER)
            # Behind the end of a series there are no targets; all gradients are those for g = 1 until they are stored.
            real = tl.where(step < length, 1.0, 0.0)
            w = (real * u[0],)
            y = w[0] * m[0]
            newer = (w[0] * s[0],)
            for lag in tl.static_range(1, ORDER + 1):
                w = w + (real * u[lag],)
                newer = newer + (w[lag] * s[lag] + c[lag - 1] * newer[lag - 1],)
                y += w[lag] * m[lag]
            own = step < stop
            dm, ds, dc, new_du = (), (), (), ()
            carried = zero  # k_l
            for lag in tl.static_range(ORDER, -1, -1):
                older = w[lag] * s[lag] + carried
                pull = newer[lag] + carried
                m_before = dm_past[lag - 1] if lag > 0 else zero
                s_before = ds_past[lag - 1] if lag > 0 else -real / s[0]
                dm = (m_before + y * w[lag],) + dm
                ds = (s_before + pull * w[lag],) + ds
                if lag > 0:
                    c_before = dc_past[lag - 2] if lag > 1 else real * c[0] / ((1 - c[0]) * (1 + c[0]))
                    dc = (c_before + newer[lag - 1] * older,) + dc
                    carried = c[lag - 1] * older
                if LEARNED:
                    here = y * m[lag] + pull * s[lag]
                    here -= real / u[0] if lag == 0 else zero
                    if UNIFORM:
                        new_du = (du[lag] + tl.where(own, here, 0.0),) + new_du
                    else:
                        place = ((series * span + step) * (ORDER + 1) + lag) * latents + latent
                        tl.store(d_weights + place, g * here, mask=own)
            # `dc` holds lags 0 … p - 1: the correlation with the step before, of the sources t … t - p + 1
            done = step - ORDER
            flush = (done >= start) & (done < stop)
            tl.store(d_mean + done * latents, g * dm[ORDER], mask=flush)
            tl.store(d_std + done * latents, g * ds[ORDER], mask=flush)
            tl.store(d_corr + done * latents, g * dc_past[ORDER - 1], mask=flush & (done > 0))
            m_past, s_past, c_past = m[:ORDER], s[:ORDER], c[:ORDER]
            dm_past, ds_past, dc_past = dm[:ORDER], ds[:ORDER], dc
            if LEARNED and UNIFORM:
                du = new_du
    if LEARNED and UNIFORM:
        for lag in tl.static_range(ORDER + 1):
            tl.store(d_weights + lane * (ORDER + 1) + lag, g * du[lag], mask=exists)


@triton.jit
def recurrence(
    a, b, y, product, carry, chains, a_chains, time, latents, segments, segment_steps,
    REVERSE: tl.constexpr, ENDS: tl.constexpr, CARRY: tl.constexpr, UNROLL: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """y_t = a_t y_{t-1} + b_t along each lane's segment; in REVERSE y_t = a_{t+1} y_{t+1} + b_t.

    With ENDS only the last y and the product of the a's are kept, (series, segment, latent); with CARRY the segment
    starts from what the one before ended in.
    """
    _, series, segment, latent, exists = _lane(chains, latents, 0, segments, LANES)
    end = (series * segments + segment) * latents + latent
    state = tl.zeros([LANES], tl.float32)
    if CARRY:
        state = tl.load(carry + end, mask=exists, other=0.0)
    through = tl.full([LANES], 1.0, tl.float32)
    start = segment * segment_steps
    stop = tl.where(exists, tl.minimum(start + segment_steps, time), start)
    for block in range(tl.cdiv(segment_steps, UNROLL)):
        factors, terms = (), ()
        for inner in tl.static_range(UNROLL):
            place = start + block * UNROLL + inner
            inside = place < stop
            step = time - 1 - place if REVERSE else place
            a_step = step + 1 if REVERSE else step
            a_here = ((series % a_chains) * time + a_step) * latents + latent
            factors = factors + (tl.load(a + a_here, mask=inside & (place > 0), other=1.0),)
            terms = terms + (tl.load(b + (series * time + step) * latents + latent, mask=inside, other=0.0),)
        for inner in tl.static_range(UNROLL):
            place = start + block * UNROLL + inner
            inside = place < stop
            state = factors[inner] * state + terms[inner]
            through = through * factors[inner]
            if not ENDS:
                step = time - 1 - place if REVERSE else place
                tl.store(y + (series * time + step) * latents + latent, state, mask=inside)
    if ENDS:
        tl.store(y + end, state, mask=exists)
        tl.store(product + end, through, mask=exists)


LANES, WARPS = 128, 4  # of one program: one lane per thread
LANES_WANTED = 2**16  # enough to fill a large GPU
LARGEST_ORDER = 24  # beyond it, the past does not fit into registers
LONGEST = 120  # steps of a segment; each computes p steps twice
UNROLL = 4
UNIFORM_FROM = 64  # steps of a segment from which a kernel without loads of weights is worth compiling


def _segments(lanes: int, time: int, shortest: int, longest: int) -> tuple[int, int]:
    """The number of segments and their steps, for `lanes` series × latent dimensions."""
    steps = min(longest, max(shortest, lanes * time // LANES_WANTED))
    return triton.cdiv(time, steps), steps


def _launches(segments: int, uniform: bool) -> list[tuple[int, int, bool]]:
    """(first segment, segments, uniform): on an even grid all but the first rows of the factor are equal."""
    return [(0, 1, False), (1, segments - 1, True)] if uniform and segments > 1 else [(0, segments, False)]


def _strides(weights: Tensor) -> tuple[int, int, int, int]:
    """Strides over series, rows, lags and latent dimensions; 0 for shared ones."""
    of_latent = weights.stride(-1) if weights.shape[-1] > 1 else 0
    return weights.stride(0) if weights.ndim == 4 else 0, weights.stride(-3), weights.stride(-2), of_latent


class _Launch:
    """Arguments that the launches of a KL kernel share."""

    def __init__(self, mean: Tensor, weights: Tensor):
        self.chains, self.time, self.latents = mean.shape
        self.order, self.rows = weights.shape[-2] - 1, weights.shape[-3]
        self.strides = _strides(weights)
        lanes = self.chains * self.latents
        self.segments, self.steps = _segments(lanes, self.time, shortest=8, longest=LONGEST)
        uniform = weights.ndim == 3 and self.steps >= UNIFORM_FROM and self.rows <= self.order + 1
        self.parts = _launches(self.segments, uniform)

    def __call__(self, kernel, first: int, count: int, uniform: bool, *tensors: Tensor, extra=(), **flags) -> None:
        programs = triton.cdiv(self.chains * self.latents * count, LANES)
        sizes = (self.chains, self.time, self.latents, first, count, self.steps, self.rows, *self.strides, *extra)
        with torch.cuda.device_of(tensors[0]):
            kernel[(programs,)](
                *tensors, *sizes, ORDER=self.order, UNIFORM=uniform, UNROLL=UNROLL if uniform else 1,
                LANES=LANES, num_warps=WARPS, **flags,
            )  # fmt: skip


@custom_op("gpvae::chain_kl", mutates_args=())
def chain_kl(mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """KL of each series, summed over its first `length` steps and all latent dimensions. (series,)"""
    mean, std, corr, weights, lengths = (x.contiguous() for x in (mean, std, corr, weights, lengths))
    launch = _Launch(mean, weights)
    parts = mean.new_empty(launch.segments, launch.chains, launch.latents)
    for first, count, uniform in launch.parts:
        launch(kl_forward, first, count, uniform, mean, std, corr, weights, lengths, parts[first:])
    return parts.sum((0, 2))


@chain_kl.register_fake
def _(mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    return mean.new_empty(mean.shape[0])


@custom_op("gpvae::chain_kl_gradients", mutates_args=())
def chain_kl_gradients(
    grad: Tensor, mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of mean, standard deviation and correlation, and of the weights if they are learned, else empty."""
    mean, std, corr, weights, lengths = (x.contiguous() for x in (mean, std, corr, weights, lengths))
    launch = _Launch(mean, weights)
    d_mean, d_std, d_corr = torch.empty_like(mean), torch.empty_like(std), torch.empty_like(corr)
    d_weights = torch.zeros_like(weights if learned else weights[:0])
    for first, count, uniform in launch.parts:
        span = min(launch.time, count * launch.steps)
        wanted = (count, launch.chains, launch.latents, launch.order + 1)
        if not uniform:
            wanted = (launch.chains, span, launch.order + 1, launch.latents)
        d_part = mean.new_empty(wanted if learned else 0)
        tensors = (mean, std, corr, weights, lengths, grad.contiguous(), d_mean, d_std, d_corr, d_part)
        launch(kl_backward, first, count, uniform, *tensors, extra=(span,), LEARNED=learned)
        if learned:
            _add_up(d_weights, d_part, uniform)
    return d_mean, d_std, d_corr, d_weights


def _add_up(d_weights: Tensor, part: Tensor, uniform: bool) -> None:
    """Sum the gradients of the lanes over the rows and latent dimensions that share weights."""
    if uniform:
        part = part.sum((0, 1)).mT.unsqueeze(0)  # (1, lag, latent)
    elif d_weights.ndim == 3:
        part = part.sum(0)
    if d_weights.shape[-1] == 1:
        part = part.sum(-1, keepdim=True)
    if d_weights.ndim == 4:
        d_weights += part
    elif uniform:
        d_weights[-1:] += part
    else:
        own = d_weights.shape[0] - 1
        d_weights[:own] += part[:own]
        d_weights[own] += part[own:].sum(0)


@chain_kl_gradients.register_fake
def _(
    grad: Tensor, mean: Tensor, std: Tensor, corr: Tensor, weights: Tensor, lengths: Tensor, learned: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    like = (mean, std, corr, weights if learned else weights[:0])
    d_mean, d_std, d_corr, d_weights = (torch.empty_like(x, memory_format=torch.contiguous_format) for x in like)
    return d_mean, d_std, d_corr, d_weights


def _keep(ctx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _kl_backward(ctx, grad: Tensor):
    learned = ctx.needs_input_grad[3]
    *chain, d_weights = chain_kl_gradients(grad, *ctx.saved_tensors, learned)
    return *chain, d_weights if learned else None, None


chain_kl.register_autograd(_kl_backward, setup_context=_keep)


@custom_op("gpvae::linear_recurrence", mutates_args=())
def linear_recurrence(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    """y_t = a_t y_{t-1} + b_t, or in reverse y_t = a_{t+1} y_{t+1} + b_t. (series, time, latent)

    `a` may have fewer series than `b`: they then go round.
    """
    a, b = a.contiguous(), b.contiguous()
    chains, time, latents = b.shape
    segments, steps = _segments(chains * latents, time, shortest=64, longest=time)
    y = torch.empty_like(b)
    if segments == 1:
        _recur(a, b, y, y, y, reverse, segments, steps)
        return y
    ends, through = b.new_empty(2, chains, segments, latents)
    _recur(a, b, ends, through, y, reverse, segments, steps, ENDS=True)
    carry = torch.zeros_like(ends)
    carry[:, 1:] = linear_recurrence(through[:, :-1], ends[:, :-1], False)
    _recur(a, b, y, y, carry, reverse, segments, steps, CARRY=True)
    return y


@linear_recurrence.register_fake
def _(a: Tensor, b: Tensor, reverse: bool) -> Tensor:
    return torch.empty_like(b, memory_format=torch.contiguous_format)


def _recur(
    a: Tensor, b: Tensor, y: Tensor, through: Tensor, carry: Tensor, reverse: bool, segments: int, steps: int, **flags
) -> None:
    chains, time, latents = b.shape
    programs = triton.cdiv(chains * latents * segments, LANES)
    sizes = (chains, a.shape[0], time, latents, segments, steps)
    flags = {"ENDS": False, "CARRY": False} | flags
    with torch.cuda.device_of(b):
        recurrence[(programs,)](
            a, b, y, through, carry, *sizes, REVERSE=reverse, UNROLL=8, LANES=LANES, num_warps=WARPS, **flags
        )
