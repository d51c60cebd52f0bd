"""The warp of the factor model: one to one, with the slope it says, and little moved by values far out."""

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from gpvae.models.factor import Relations, Warp

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)

LOW, HIGH, DATA = -2.0, 3.0, 9.0  # where each column is bent, and how far it reaches on both sides
EXPONENTS, TAILS = (0.05, 0.5, 1.0, 1.4, 1.95), ((1e-3, 10.0), (2.0, 0.5), (0.0, 0.0), (0.0, 1.0), (10.0, 0.0))
X = torch.linspace(-27, 27, 541, dtype=torch.float64).unsqueeze(1).expand(-1, 5)  # as far as values come back


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def warp_of(*exponents: float) -> Warp:
    """Straight beyond its edges."""
    centre, spread = randn(2, len(exponents), seed=1)
    ends = numbers(LOW, HIGH).expand(len(exponents), 2)
    return Warp(numbers(*exponents), 0 * ends, centre, spread.exp(), ends, numbers(-DATA, DATA).expand_as(ends))


def with_tails() -> Warp:
    """Heavy, light and none."""
    return replace(warp_of(*EXPONENTS), tail=torch.tensor(TAILS, dtype=torch.float64))


def test_it_is_yeo_and_johnsons_between_the_edges() -> None:
    x, ones = numbers(-1.5, -0.2, 0, 0.7, 2.5), torch.ones(1, dtype=torch.float64)
    warp = replace(warp_of(0.3), tail=numbers(2, 2).unsqueeze(0), centre=0 * ones, spread=ones)
    expected = [(((1 + v) ** 0.3 - 1) / 0.3) if v >= 0 else -((1 - v) ** 1.7 - 1) / 1.7 for v in x.tolist()]
    assert_close(warp(x.unsqueeze(1)).squeeze(1), numbers(*expected))


def test_beyond_the_edges_it_is_a_logarithm_that_goes_on_from_there() -> None:
    warp, u = with_tails(), numbers(0, 0.1, 1, 20).unsqueeze(1)
    for side, end in enumerate((LOW, HIGH)):
        at, kappa, sign = torch.full((1, 5), end, dtype=torch.float64), warp.tail[:, side], math.copysign(1, end)
        bent = torch.where(kappa > 0, torch.log(1 + kappa * u) / kappa, u)
        assert_close(warp(at + sign * u), warp(at) + sign * warp.log_slope(at).exp() * bent)


def test_the_inverse_undoes_it() -> None:
    for warp in (with_tails(), warp_of(*EXPONENTS)):
        assert_close(warp.inverse(warp(X)), X)
        assert (warp(X).diff(dim=0) > 0).all()


def test_its_slope_is_its_derivative() -> None:
    x, warp = (X + 1e-3).requires_grad_(), with_tails()
    (slope,) = torch.autograd.grad(warp(x).sum(), x)
    assert_close(warp.log_slope(x), slope.log())
    differences = (warp(x + 1e-5) - warp(x - 1e-5)) / 2e-5
    assert_close(slope, differences, rtol=1e-6, atol=0)


def test_gradients_in_all_parameters_are_those_of_finite_differences() -> None:
    """Of values and slopes; where κ = 0 there is none."""
    warp, x = with_tails(), X[::20] + 1e-3
    tail = warp.tail.clamp(min=1e-3)

    def both(x: Tensor, exponent: Tensor, tail: Tensor, centre: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
        moved = replace(warp, exponent=exponent, tail=tail, centre=centre, spread=spread)
        return moved(x), moved.log_slope(x)

    point = tuple(each.clone().requires_grad_() for each in (x, warp.exponent, tail, warp.centre, warp.spread))
    assert torch.autograd.gradcheck(both, point)


def test_without_tails_it_goes_on_along_the_tangent() -> None:
    warp = warp_of(*EXPONENTS)
    for end in (LOW, HIGH):
        x = torch.full((5,), end, dtype=torch.float64) + math.copysign(1, end) * numbers(0, 1, 10).unsqueeze(1)
        steps = warp(x).diff(dim=0)
        assert_close(steps[1], 9 * steps[0])
        assert_close(warp.log_slope(x), warp.log_slope(x[:1]).expand(3, -1))


def test_the_lightest_tails_are_nearly_none() -> None:
    none = warp_of(*EXPONENTS)
    light = replace(none, tail=torch.full_like(none.tail, 1e-9))
    assert_close(light(X), none(X), rtol=1e-6, atol=0)
    assert_close(light.inverse(light(X)), X, rtol=1e-6, atol=1e-6)


def test_tails_shorten_what_is_far_out() -> None:
    bent, none = with_tails(), warp_of(*EXPONENTS)
    below, above = (torch.full((1, 5), x, dtype=torch.float64) for x in (-50, 50))
    assert (bent(below) > none(below))[0].tolist() == [True, True, False, False, True]
    assert (bent(above) < none(above))[0].tolist() == [True, True, False, True, False]


def test_nothing_comes_back_from_further_out_than_the_data_are_wide() -> None:
    for sign in (-1, 1):
        far = torch.full((1, 5), 1e4 * sign, dtype=torch.float64)
        assert_close(with_tails().inverse(far), torch.full_like(far, 3 * DATA * sign))


def test_of_exponent_one_without_tails_it_is_straight() -> None:
    ends = numbers(-1, 1).expand(3, 2)
    x, straight = randn(7, 3), Warp.straight(ends, 9 * ends)
    assert_close(straight(x), x)
    assert_close(straight.log_slope(x), torch.zeros_like(x))


def test_some_columns_keep_their_warp() -> None:
    warp, some = with_tails(), torch.tensor([4, 0])
    assert_close(warp.of(some)(X[:, some]), warp(X)[:, some])


def no_relations(columns: int) -> Relations:
    return Relations(randn(columns, columns) * 0, *(randn(3, columns) * 0))


def test_standardising_gives_what_is_observed_mean_0_and_variance_1() -> None:
    values, observed = randn(50, 2, 3) ** 2, torch.rand(50, 2, 3, generator=torch.Generator().manual_seed(3)) < 0.7
    observed[..., 2] = False
    ends = numbers(-1, 2).expand(3, 2)
    tails = numbers(2, 0.5, 0).unsqueeze(1).expand(3, 2)
    base = replace(Warp.straight(ends, 5 * ends), exponent=numbers(0.2, 1.3, 1), tail=tails)
    warp = base.standardising(values, observed, no_relations(3))
    for column in (0, 1):
        y = warp(values)[..., column][observed[..., column]]
        assert_close(torch.stack([y.mean(), y.var(correction=0)]), numbers(0, 1))
    assert_close(warp(values)[..., 2], values[..., 2])  # nothing is observed


def test_standardising_keeps_relations_linear() -> None:
    """x3 = 0.5 - 2 x0 + x1."""
    relations, values = no_relations(4), 3 + randn(60, 1, 4)
    relations.weights[3, :2], relations.offset[3] = numbers(-2, 1), 0.5
    values[..., 3] = 0.5 - 2 * values[..., 0] + values[..., 1]
    observed = torch.rand(values.shape, generator=torch.Generator().manual_seed(3)) < 0.7
    ends = numbers(-9, 9).expand(4, 2)
    base = replace(Warp.straight(ends, ends), exponent=numbers(1, 1, 0.5, 1))
    y = base.standardising(values, observed, relations)(values)
    assert_close(y[..., 3], y[..., 1] - 2 * y[..., 0])
