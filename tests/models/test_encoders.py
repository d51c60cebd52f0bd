"""Attention over time: against a dense twin, padding, times, reach."""

import math

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import gelu, layer_norm

from gpvae.models.encoders import Attention, AttentionEncoder

INPUTS, WIDTH, OUTPUTS = 3, 16, 5
LENGTHS = [1, 20, 64, 65, 96, 130]  # one block, two, and several with a last one that is full or not


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def attention(layers: int = 1) -> AttentionEncoder:
    """In double precision, with weights large enough for attention to be uneven."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Attention(WIDTH, layers).build(INPUTS, OUTPUTS).double().requires_grad_(False)
    for qkv in network.qkv:
        assert isinstance(qkv, nn.Linear)
        qkv.weight *= 3
    return network


def inputs(series: int, time: int, seed: int = 1) -> Tensor:
    return torch.randn(series, time, INPUTS, generator=seeded(seed), dtype=torch.float64)


def irregular(series: int, time: int) -> Tensor:
    return (0.2 + torch.rand(series, time, generator=seeded(2), dtype=torch.float64)).cumsum(-1)


def valid_for(lengths: list[int], time: int) -> Tensor:
    return torch.arange(time) < torch.tensor(lengths).unsqueeze(-1)


def twin(network: AttentionEncoder, x: Tensor, times: Tensor) -> Tensor:
    """One series (time, channel), every step beside every other: what is out of reach has the weight 0.

    Queries and keys are complex numbers, so that rotation is multiplication.
    """
    step = torch.arange(len(x))
    reach = (step.unsqueeze(-1) // 32 - step // 32).abs() <= 1
    half = WIDTH // 8
    frequency = torch.tensor([1000.0 ** (-i / (half - 1)) for i in range(half)], dtype=torch.float64)
    rotation = torch.exp(1j * times.unsqueeze(-1) * frequency)  # (time, half)

    def normed(h: Tensor, norm: nn.Module) -> Tensor:
        assert isinstance(norm, nn.LayerNorm)
        return layer_norm(h, (WIDTH,), norm.weight, norm.bias)

    h = network.embed(x)
    for layer, (qkv, proj, mlp) in enumerate(zip(network.qkv, network.proj, network.mlp, strict=True)):
        queries, keys, values = qkv(normed(h, network.norms[2 * layer])).split(WIDTH, dim=-1)
        attended = []
        for head in range(4):
            mine = slice(head * WIDTH // 4, (head + 1) * WIDTH // 4)
            q, k = (torch.complex(*each[:, mine].split(half, dim=-1)) * rotation for each in (queries, keys))
            score = (q @ k.conj().T).real / math.sqrt(WIDTH // 4)
            weight = torch.where(reach, (score - score.max()).exp(), 0.0)
            attended.append(weight / weight.sum(-1, keepdim=True) @ values[:, mine])
        h = h + proj(torch.cat(attended, dim=-1))
        h = h + mlp(normed(h, network.norms[2 * layer + 1]))
    return network.head(gelu(normed(h, network.norms[-1])))


@pytest.mark.parametrize("time", LENGTHS)
@pytest.mark.parametrize("layers", [1, 2])
def test_local_attention_equals_a_dense_computation(time: int, layers: int) -> None:
    network, x, times = attention(layers), inputs(2, time), irregular(2, time)
    found = network(x, times, valid_for([time, time], time))
    for i in range(2):
        torch.testing.assert_close(found[i], twin(network, x[i], times[i]), rtol=1e-10, atol=1e-10)


def test_gradients_equal_those_of_a_dense_computation() -> None:
    network, times = attention(), irregular(1, 70)
    x = inputs(1, 70).requires_grad_()
    target = torch.randn(70, OUTPUTS, generator=seeded(3), dtype=torch.float64)
    found = torch.autograd.grad((network(x, times, valid_for([70], 70))[0] * target).sum(), x)[0]
    expected = torch.autograd.grad((twin(network, x[0], times[0]) * target).sum(), x)[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("time", [64, 200])  # attended to whole, and in seven blocks
@pytest.mark.parametrize("grid", [True, False])
def test_padding_and_other_series_change_nothing(time: int, grid: bool) -> None:
    """Some are so short that whole blocks, and whole neighbourhoods of blocks, are padding; one is nothing else."""
    lengths = [time, 1, 33, 64, time // 2 + 3, 0]
    network, x, times = attention(layers=2), inputs(6, time), irregular(6, time)
    together = network(x, 0.7 if grid else times, valid_for(lengths, time))
    assert together.isfinite().all()
    for i, n in enumerate(lengths[:-1]):
        alone = network(x[i : i + 1, :n], 0.7 if grid else times[i : i + 1, :n], valid_for([n], n))
        torch.testing.assert_close(together[i, :n], alone[0])
    inside = valid_for(lengths, time).unsqueeze(-1)
    other = network(torch.where(inside, x, 50.0), 0.7 if grid else times, inside.squeeze(-1))
    torch.testing.assert_close(other * inside, together * inside)


def test_gradients_of_pure_padding_are_finite() -> None:
    for time in (8, 100):
        network = attention().requires_grad_()
        network(inputs(2, time), 1.0, valid_for([5, 0], time))[0, :5].sum().backward()
        gradients = [value.grad for value in network.parameters()]
        assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("time", [40, 100])
def test_only_differences_of_times_matter(time: int) -> None:
    network, x, valid = attention(layers=2), inputs(2, time), valid_for([time, time - 7], time)
    times = irregular(2, time)
    found = network(x, times, valid)
    torch.testing.assert_close(network(x, times + torch.tensor([[1234.5], [-8.0]]), valid), found)
    assert not torch.allclose(network(x, 1.1 * times, valid), found, atol=1e-3)
    even = 0.7 * torch.arange(time, dtype=torch.float64).expand(2, time)
    on_grid = network(x, 0.7, valid)
    torch.testing.assert_close(network(x, even, valid), on_grid)
    torch.testing.assert_close(network(x, even + 55.0, valid), on_grid)
    assert not torch.allclose(network(x, 1.0, valid), on_grid, atol=1e-3)


def test_rotation_is_computed_in_double_precision() -> None:
    """Late times differ by as much as early ones."""
    network, x, valid = attention().float(), inputs(1, 40).float(), valid_for([40], 40)
    times = irregular(1, 40)
    torch.testing.assert_close(network(x, times + 1e7, valid), network(x, times, valid), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("layers", "step", "first", "last"),
    [
        (1, 100, 64, 159),  # its own block, from 96 to 127, and those beside it
        (1, 0, 0, 63),
        (1, 199, 160, 199),
        (2, 100, 32, 191),  # two layers reach as far again
    ],
)
def test_steps_beyond_reach_have_no_influence_and_those_within_have(
    layers: int, step: int, first: int, last: int
) -> None:
    network, x, valid = attention(layers), inputs(1, 200).requires_grad_(), valid_for([200], 200)
    moved = torch.autograd.grad(network(x, 1.0, valid)[0, step].square().sum(), x)[0].abs().sum(-1).squeeze(0)
    within = (torch.arange(200) >= first) & (torch.arange(200) <= last)
    assert (moved[within] > 0).all()
    assert (moved[~within] == 0).all()


def test_padding_within_reach_has_no_influence() -> None:
    for time in (50, 100):
        network, x = attention(), inputs(1, time).requires_grad_()
        outcome = network(x, 1.0, valid_for([45], time))[0, :45]
        moved = torch.autograd.grad(outcome.square().sum(), x)[0].abs().sum(-1).squeeze(0)
        assert (moved[:45] > 0).all()
        assert (moved[45:] == 0).all()


def test_reaches_every_step() -> None:
    reached = attention().reaches(torch.zeros(2, 7, dtype=torch.bool))
    assert reached.dtype == torch.bool
    assert reached.shape == (2, 7)
    assert reached.all()


@pytest.mark.parametrize("width", [4, 12, 20])
def test_widths_that_do_not_fit_are_refused(width: int) -> None:
    with pytest.raises(ValueError, match=f"width must be a multiple of 8, got {width}"):
        Attention(width)
    smallest = Attention(8, 1).build(INPUTS, OUTPUTS)
    assert smallest(inputs(1, 4).float(), 1.0, valid_for([4], 4)).isfinite().all()
