"""The Kalman filter, the exact log-likelihood and its hand-written gradient against dense Gaussian algebra."""

from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from dense_twin import (
    CLOCKS,
    KINDS,
    Case,
    random_case,
    random_rows,
    random_space,
    seeded,
    state_covariance,
    with_shared_delta,
)
from torch import Tensor
from torch.autograd import gradcheck

from gpvae.gp.chains import LOG_2PI
from gpvae.gp.state_space import Kind, Rows, State, StateSpace, Step, filter_rows, log_likelihood, stationary

assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)
every_kind = pytest.mark.parametrize("name", KINDS)


def random_start(case: Case) -> State:
    """A mean for each replicate, and a covariance with correlations."""
    states = case.space.loadings.shape[1]
    mean = torch.randn(case.lanes, states, case.rows.values.shape[-1], generator=seeded(1), dtype=torch.float64)
    root = torch.randn(case.lanes, states, states, generator=seeded(2), dtype=torch.float64)
    return State(mean, root @ root.mT / states)


def dense_step(space: StateSpace, delta: Tensor) -> tuple[Tensor, Tensor]:
    """A and Q as matrices."""
    transition = state_covariance(space, delta)
    return transition, torch.eye(transition.shape[-1]) - transition @ transition.mT


def exact_step(kind: Kind, delta: float, length: float, frequency: float) -> tuple[Tensor, Tensor]:
    """exp(FΔ) and ∫ exp(Fs) L Lᵀ exp(Fs)ᵀ ds of ds = F s dt + L dB, with 500 digits (Van Loan 1978)."""
    with mpmath.workdps(500):
        rate, omega = 1 / mpmath.mpf(length), mpmath.mpf(frequency)
        smooth = mpmath.sqrt(3) * rate
        drift, diffusion = {
            "exponential": ([[-rate]], [[2 * rate]]),
            "matern": ([[0, smooth], [-smooth, -2 * smooth]], [[0, 0], [0, 4 * smooth]]),
            "oscillator": ([[-rate, -omega], [omega, -rate]], [[2 * rate, 0], [0, 2 * rate]]),
        }[kind]
        n, f, q = len(drift), mpmath.matrix(drift), mpmath.matrix(diffusion)
        whole = mpmath.zeros(2 * n)
        whole[:n, :n], whole[:n, n:], whole[n:, n:] = -f, q, f.T
        power = mpmath.expm(whole * mpmath.mpf(delta))
        transition = power[n:, n:].T
        noise = transition * power[:n, n:]
        return (torch.tensor(np.array(x.tolist(), dtype=float)) for x in (transition, noise))  # pyright: ignore


@every_kind
def test_covariance_is_that_of_the_kernels(name: str) -> None:
    space, lags = random_space(KINDS[name]), torch.tensor([0.0, 1e-3, 0.4, 3.0, 50.0], dtype=torch.float64)
    expected = space.loadings @ state_covariance(space, lags) @ space.loadings.T
    assert_close(space.covariance(lags), expected)


@every_kind
def test_step_as_matrices(name: str) -> None:
    space, delta = random_space(KINDS[name]), torch.tensor([[0.0, 0.3], [1.7, 40.0]], dtype=torch.float64)
    step, (transition, noise) = space.step(delta), dense_step(space, delta)
    x = torch.randn(*transition.shape[:-1], 4, generator=seeded(0), dtype=torch.float64)
    covariance = x @ x.mT
    assert_close(step.apply(x), transition @ x)
    assert_close(step.apply_transposed(x), transition.mT @ x)
    assert_close(step.predict(covariance), transition @ covariance @ transition.mT + noise)
    root = step.draw(torch.eye(transition.shape[-1], dtype=torch.float64).expand_as(transition))
    assert_close(root @ root.mT, noise)


@pytest.mark.parametrize("kind", ["exponential", "matern", "oscillator"])
@pytest.mark.parametrize("delta", [1e-12, 1e-7, 1e-3, 0.0115, 0.0116, 0.2, 3.0, 200.0])
def test_step_keeps_its_digits_at_any_time(kind: Kind, delta: float) -> None:
    """Relative to each number, not to the largest; the Matérn changes its formula between 0.0115 and 0.0116."""
    step = at_length(kind, 1.0, 2.5).step(torch.tensor(delta, dtype=torch.float64))
    transition, noise = exact_step(kind, delta, 1.0, 2.5)
    eye = torch.eye(len(noise), dtype=torch.float64)
    torch.testing.assert_close(step.apply(eye), transition, rtol=1e-12, atol=1e-80)
    torch.testing.assert_close(step.noise, noise.diagonal(), rtol=2e-11, atol=0)
    if kind == "matern":
        torch.testing.assert_close(step.shared, noise[0, 1:], rtol=1e-12, atol=1e-80)
    root = step.draw(eye)
    torch.testing.assert_close(root @ root.mT, noise, rtol=1e-9, atol=1e-20)


def at_length(kind: Kind, length: float, frequency: float) -> StateSpace:
    space = random_space((kind,))
    settings = torch.tensor([[length], [frequency]], dtype=torch.float64)
    return StateSpace(space.kinds, settings[0], settings[1], space.loadings, space.noise)


@pytest.mark.parametrize("z", [1e-9, 1e-4, 0.0199, 0.0201, 1.0, 20.0])
def test_gradient_of_the_matern_noise_at_tiny_steps(z: float) -> None:
    """d/dz (1 - exp(-2z)(1 + 2z + 2z²)) = 4 z² exp(-2z)"""
    delta = torch.tensor(z / 3**0.5, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(at_length("matern", 1.0, 0.0).step(delta).noise[0], delta)
    expected = 3**0.5 * 4 * torch.tensor(z, dtype=torch.float64) ** 2 * np.exp(-2 * z)
    torch.testing.assert_close(slope, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_of_no_time_and_of_almost_none_are_zero(dtype: torch.dtype) -> None:
    space = random_space(KINDS["mixed"]).to(dtype)
    steps = space.step(torch.tensor([0.0, 1e-16, 1e-30], dtype=dtype))
    draws = steps.draw(torch.ones(3, space.loadings.shape[1], 1, dtype=dtype))
    assert (draws[0] == 0).all()
    assert (draws.abs() < 1e-5).all()


@every_kind
@pytest.mark.parametrize("start", [False, True], ids=["stationary", "start"])
def test_filter_equals_conditioning_on_earlier_rows(name: str, start: bool) -> None:
    case = random_case(name)
    first = random_start(case) if start else stationary(case.space, 2, 2)
    density = torch.zeros(2, 2, dtype=torch.float64)
    for t, row in enumerate(filter_rows(case.space, case.rows, first)):
        for rows, state in ((t, row.before), (t + 1, row.after)):
            mean, covariance = case.until(rows).moments(first)
            assert_close(state.mean, mean[t])
            assert_close(state.covariance, covariance[t])
        count = case.rows.observed[t].sum(-1, keepdim=True)
        density += row.innovation.log_density() - 0.5 * LOG_2PI * count.double()
        assert_close(density, case.until(t + 1).log_density(first))


@every_kind
@pytest.mark.parametrize("clock", CLOCKS)
def test_log_likelihood(name: str, clock: str) -> None:
    case = with_shared_delta(random_case(name), clock)
    assert_close(log_likelihood(case.space, case.rows), case.log_density().sum())
    start = random_start(case)
    found = log_likelihood(case.space, case.rows, start)
    assert_close(found, case.log_density(start).sum())


def test_log_likelihood_of_no_data_and_of_one_row() -> None:
    case = random_case("mixed")
    assert log_likelihood(*case.until(0)) == 0
    first = case._replace(rows=Rows(*(x[:1] for x in case.rows)))
    assert_close(log_likelihood(*first), first.log_density().sum())


def without_ties(case: Case) -> Case:
    """An interval of 0 has a slope on one side only."""
    return case._replace(rows=case.rows._replace(delta=case.rows.delta.clamp(min=0.1)))


def parameters(case: Case) -> list[Tensor]:
    """Everything that has a gradient."""
    space = case.space
    inputs = (space.length, space.frequency, space.loadings, space.noise, case.rows.values, case.rows.delta)
    return [x.clone().requires_grad_() for x in inputs]


def rebuilt(case: Case, *inputs: Tensor) -> Case:
    space, (values, delta) = StateSpace(case.space.kinds, *inputs[:4]), inputs[4:]
    return Case(space, Rows(values, case.rows.observed, delta))


@every_kind
def test_gradient_by_finite_differences(name: str) -> None:
    case = without_ties(random_case(name, time=6))
    start = random_start(case)
    assert gradcheck(lambda *inputs: log_likelihood(*rebuilt(case, *inputs), start), parameters(case))


@every_kind
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("start", [False, True], ids=["stationary", "start"])
def test_gradient_equals_that_of_the_dense_twin(name: str, clock: str, start: bool) -> None:
    case = without_ties(with_shared_delta(random_case(name), clock))
    inputs, first = parameters(case), random_start(case) if start else None
    same = rebuilt(case, *inputs)
    totals = (3 * log_likelihood(*same, first), 3 * same.log_density(first).sum())
    found, expected = (
        torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True) for total in totals
    )
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-8, atol=1e-8)
    assert (found[4][~case.rows.observed] == 0).all()


def extreme_cases() -> dict[str, Case]:
    """Where numbers may cancel."""
    space, rows = random_space(KINDS["mixed"]), random_rows()
    loadings = space.loadings.clone()
    loadings[1], loadings[2] = 2 * loadings[0], 0  # related exactly; nothing but noise
    tiny = torch.full_like(space.noise, 1e-6)

    def case(length: Tensor | float, loadings: Tensor, noise: Tensor) -> Case:
        length = torch.as_tensor(length, dtype=torch.float64).expand(len(space.kinds))
        return Case(StateSpace(space.kinds, length, space.frequency, loadings, noise), rows).typical()

    return {
        "tiny noise": case(space.length, space.loadings, tiny),
        "related columns": case(space.length, loadings, tiny),
        "long": case(3e5, space.loadings, space.noise),
        "long, tiny noise": case(3e5, loadings, tiny),
        "short": case(0.3, space.loadings, tiny),
    }


@pytest.mark.parametrize("name", extreme_cases())
def test_extremes(name: str) -> None:
    case = extreme_cases()[name]
    torch.testing.assert_close(log_likelihood(*case), case.log_density().sum(), rtol=1e-7, atol=1e-7)
    last = list(filter_rows(*case, stationary(case.space, 2, 2)))[-1]
    mean, covariance = (x[-1] for x in case.moments())
    torch.testing.assert_close(last.after.mean, mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(last.after.covariance, covariance, rtol=1e-6, atol=1e-6)


def test_processes_in_the_wrong_order() -> None:
    ones = torch.ones(2)
    with pytest.raises(ValueError, match="order exponential, matern, oscillator, got matern, exponential"):
        StateSpace(("matern", "exponential"), ones, ones, torch.ones(2, 3), ones)


@pytest.mark.parametrize(
    ("lengths", "frequencies", "loadings"), [(2, 2, (2, 2)), (2, 2, (3, 3)), (3, 2, (2, 3)), (2, 1, (2, 3))]
)
def test_shapes_that_do_not_match(lengths: int, frequencies: int, loadings: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="do not match 2 processes with 3 states of 2 columns") as error:
        StateSpace(
            ("exponential", "matern"),
            torch.ones(lengths),
            torch.ones(frequencies),
            torch.ones(loadings),
            torch.ones(2),
        )
    assert f"loadings {loadings}, {lengths} lengths and {frequencies} frequencies" in str(error.value)


def test_process_of_each_state() -> None:
    assert random_space(KINDS["mixed"]).process.tolist() == [0, 1, 1, 2, 2, 3, 3]


def test_a_step_of_one_row_stands_for_all() -> None:
    space = random_space(KINDS["mixed"])
    even, uneven = (space.step(torch.linspace(0.5, 1, rows, dtype=torch.float64).unsqueeze(-1)) for rows in (1, 3))
    for step, rows in ((even, (0, 0, 0)), (uneven, (0, 1, 2))):
        for t, row in enumerate(rows):
            assert all(torch.equal(x, y) for x, y in zip(step.at(t), Step(*(x[row] for x in step)), strict=True))
