"""Training of the correction: what it learns, when it stops, and what it keeps."""

import copy
import itertools
import os
import signal

import pytest
import torch
from torch import Tensor

from gpvae.models.correction import NEAR as LAGS
from gpvae.models.correction import CoreRows, Correction, neighbours
from gpvae.training import correction
from gpvae.training.correction import Budget, Masked, loss_of, student_nll, train

ROWS, COLUMNS = 400, 2


def masked(seed: int, *, learnable: bool = True) -> Masked:
    """Half of the cells are hidden; where it can be learned, what is left of column 0 is the square of column 1."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(ROWS, COLUMNS, generator=generator).double()
    hidden = torch.rand(ROWS, COLUMNS, generator=generator) < 0.5
    hidden[:, 1] = False
    noise = torch.randn(ROWS, COLUMNS, generator=generator).double()
    residual = values[:, 1:].square() * torch.tensor([1.0, 0.0]) - 1 + 0.3 * noise if learnable else noise
    mean, std = torch.zeros_like(values), torch.ones_like(values)
    rows = CoreRows.of(values, ~hidden, mean, std, torch.zeros(ROWS).double())
    return Masked(rows.inputs, torch.where(hidden, residual, 0).float(), hidden)


NEAR = neighbours(torch.tensor([ROWS]), LAGS)


def trained(network: Correction, budget: Budget, *, learnable: bool = True) -> tuple[list[float], list[Masked]]:
    held_out = [masked(99, learnable=learnable)]

    def practice(number: int) -> list[Masked]:
        return [masked(10 * number + i, learnable=learnable) for i in range(4)]

    history = train(network, practice, NEAR, held_out, budget, seed=0)
    return [each["validation"] for each in history], held_out


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(correction, "FIRST_STEPS", 60)


def network_of(seed: int = 0) -> Correction:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Correction(COLUMNS, LAGS, width=32)


def test_it_learns_what_the_linear_model_leaves() -> None:
    network = network_of()
    losses, held_out = trained(network, Budget(None))
    assert losses[-1] < losses[0] - 0.5
    assert loss_of(network, held_out, NEAR) == pytest.approx(min(losses))


def test_where_nothing_can_be_learned_it_stays_with_the_linear_model() -> None:
    """Rounds end early, and the best of them is kept: here, that before the first."""
    network = network_of()
    losses, held_out = trained(network, Budget(None), learnable=False)
    assert len(losses) < 1 + correction.ROUNDS
    assert loss_of(network, held_out, NEAR) == pytest.approx(min(losses))
    assert min(losses) > losses[0] - 0.05


def test_without_time_nothing_is_trained() -> None:
    network = network_of()
    before = copy.deepcopy(network.state_dict())
    losses, _ = trained(network, Budget(0.0))
    assert len(losses) == 1
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize("when", [0, 1])
def test_ctrl_c_keeps_the_best_round(when: int) -> None:
    """Pressed while the masks of a round are made: the rounds before it count."""
    network, held_out = network_of(), [masked(99)]

    def practice(number: int) -> list[Masked]:
        if number == when:
            os.kill(os.getpid(), signal.SIGINT)
        return [masked(i) for i in range(4)]

    history = train(network, practice, NEAR, held_out, Budget(None), seed=0)
    assert len(history) == 1 + when
    assert loss_of(network, held_out, NEAR) == pytest.approx(history[-1]["validation"])
    assert history[-1]["validation"] <= history[0]["validation"]


def test_nothing_to_practise_on_ends_training() -> None:
    nothing = masked(0)
    nothing = Masked(nothing.inputs, nothing.residual, torch.zeros_like(nothing.hidden))
    assert len(train(network_of(), lambda _: [nothing], NEAR, [masked(99)], Budget(None), seed=0)) == 1


def test_rounds_go_on_and_fit_into_the_time_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a tenth of a second whenever it is read: 500 steps in a second."""
    ticks, steps = itertools.count(), list[tuple[int, int]]()
    monkeypatch.setattr(correction, "monotonic", lambda: 0.1 * next(ticks))
    monkeypatch.setattr(correction, "PASSES", 10**6)
    monkeypatch.setattr(correction, "GAIN", -1e9)

    def report(step: int, planned: int, loss: float) -> None:
        steps.append((step, planned))

    def practice(number: int) -> list[Masked]:
        return [masked(number)]

    train(network_of(), practice, NEAR, [masked(99)], Budget(4.0), seed=0, report=report)
    planned = list(dict.fromkeys(planned for step, planned in steps if step > correction.LEAST_STEPS))
    assert planned[:2] == [60, 180]
    assert planned[-1] < 60 * 3 ** (len(planned) - 1)
    assert steps[-1][0] == steps[-1][1]
    assert 0.1 * next(ticks) < 4.0 + 1.0  # the round that was under way ends with its score


def test_reserved_time_is_not_spent() -> None:
    budget = Budget(100.0)
    budget.reserve(60.0)
    assert 39 < budget.left <= 40


def test_the_same_seed_learns_the_same() -> None:
    first, second = network_of(), network_of()
    assert trained(first, Budget(None))[0] == trained(second, Budget(None))[0]


def density(x: Tensor, log_scale: float, tails: float) -> Tensor:
    return torch.distributions.StudentT(tails, 0.0, torch.tensor(log_scale).exp()).log_prob(x)


def test_loss_is_that_of_student_but_for_a_constant() -> None:
    x = torch.linspace(-8, 8, 33).double()
    left = student_nll(x, torch.full_like(x, 0.4), 5.0) + density(x, 0.4, 5.0)
    torch.testing.assert_close(left, left[:1].expand_as(left), rtol=1e-6, atol=1e-6)


def test_far_residuals_do_not_spoil_the_rest() -> None:
    far, spoilt = masked(1), torch.rand(ROWS, COLUMNS, generator=torch.Generator().manual_seed(0))
    far = replace_residual(far, torch.where(far.hidden & (spoilt < 0.02), 1e9, far.residual))
    network = network_of()
    history = train(network, lambda _: [far], NEAR, [masked(99)], Budget(None), seed=0)
    assert min(each["validation"] for each in history) < history[0]["validation"] - 0.2


def replace_residual(each: Masked, residual: Tensor) -> Masked:
    return Masked(each.inputs, residual, each.hidden)
