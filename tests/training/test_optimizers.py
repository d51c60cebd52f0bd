"""Muon: what the iteration computes, steps by hand and against PyTorch's; which optimiser a model gets."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from gpvae.training.config import TrainingConfig
from gpvae.training.optimizers import COEFFICIENTS, ITERATIONS, Muon, make_optimizer, orthogonalize, scale_lr


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (3, 5, 7), (1, 8), (8, 1)])
def test_iteration_changes_singular_values_alone(shape: tuple[int, ...]) -> None:
    """By a polynomial, applied five times: computed here from the decomposition itself."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    s = s / s.square().sum(-1, keepdim=True).sqrt()
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        s = a * s + b * s**3 + c * s**5
    torch.testing.assert_close(orthogonalize(x), u * s.unsqueeze(-2) @ vt, rtol=1e-5, atol=1e-5)


def test_singular_values_end_near_one_whatever_they_were() -> None:
    u, _ = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(2)))
    v, _ = torch.linalg.qr(torch.randn(60, 40, generator=torch.Generator().manual_seed(3)))
    values = torch.logspace(-2, 2, 40)
    found = (u.T @ orthogonalize(u * values @ v.T) @ v).diagonal()
    share = values / values.norm()
    assert ((found > 0.6) & (found < 1.25))[share > 1 / 500].all()
    assert (found > 200 * share)[share <= 1 / 500].all()  # small ones catch up
    assert not orthogonalize(torch.zeros(3, 4)).any()


def groups(matrices: Sequence[Tensor], others: Sequence[Tensor]) -> list[dict[str, object]]:
    return [{"params": others}, {"params": matrices, "matrices": True, "lr": 0.3}]


def test_two_steps_by_hand() -> None:
    generator = torch.Generator().manual_seed(4)
    shapes = [(5, 3), (4, 4), (5, 3)]
    matrices = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    bias, twin = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    optimizer, adam = Muon(groups(matrices, [bias]), lr=0.1), torch.optim.Adam([twin], lr=0.1)
    expected, moments = [matrix.detach().clone() for matrix in matrices], [torch.zeros(shape) for shape in shapes]
    for _ in range(2):
        for i, matrix in enumerate(matrices):
            gradient = torch.randn(matrix.shape, generator=generator)
            matrix.grad = gradient.clone()
            moments[i] = 0.95 * moments[i] + 0.05 * gradient
            ahead = 0.95 * moments[i] + 0.05 * gradient
            expected[i] -= 0.3 * 0.2 * max(shapes[i]) ** 0.5 * orthogonalize(ahead)
        bias.grad = torch.randn(4, generator=generator)
        twin.grad = bias.grad.clone()
        optimizer.step()
        adam.step()
    for found, wanted in zip(matrices, expected, strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-4, atol=1e-5)
    assert torch.equal(bias, twin)
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 3]


def test_matrices_without_a_gradient_stay() -> None:
    still, moved = nn.Parameter(torch.eye(3)), nn.Parameter(torch.eye(3))
    optimizer = Muon(groups([still, moved], []), lr=0.1)
    moved.grad = torch.ones(3, 3)
    optimizer.step()
    assert torch.equal(still, torch.eye(3))
    assert not torch.equal(moved, torch.eye(3))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch.optim.Muon came with PyTorch 2.9")
@pytest.mark.parametrize("shape", [(48, 48), (20, 70), (70, 20)])
def test_steps_agree_with_those_of_pytorch(shape: tuple[int, int]) -> None:
    """Within the accuracy of bfloat16, in which PyTorch iterates."""
    generator = torch.Generator().manual_seed(5)
    ours = [nn.Parameter(torch.zeros(shape)) for _ in range(3)]
    theirs = [nn.Parameter(torch.zeros(shape)) for _ in range(3)]
    optimizer = Muon(groups(ours, []), lr=0.1)
    twin = torch.optim.Muon(theirs, lr=0.3, weight_decay=0.0, momentum=0.95, adjust_lr_fn="match_rms_adamw")
    for _ in range(2):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(shape, generator=generator)
            other.grad = one.grad.clone()
        optimizer.step()
        twin.step()
    for one, other in zip(ours, theirs, strict=True):
        assert float((one - other).detach().norm() / other.detach().norm()) < 0.03


def test_matrices_make_it_muon() -> None:
    layer, config, cpu = nn.Linear(3, 2), TrainingConfig(epochs=1, learning_rate=0.1), torch.device("cpu")
    plain = make_optimizer(layer, config, cpu)
    assert type(plain) is torch.optim.Adam
    assert [len(group["params"]) for group in plain.param_groups] == [2]
    given = groups([layer.weight], [layer.bias])
    optimizer = make_optimizer(layer, config, cpu, param_groups=given)
    assert type(optimizer) is Muon
    assert [set(group) for group in given] == [{"params"}, {"params", "matrices", "lr"}]  # they can be used again
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.3]


@pytest.mark.parametrize("as_tensor", [False, True])
def test_learning_rates_are_scaled_from_their_initial_values(as_tensor: bool) -> None:
    """Tensors in place, because CUDA graphs know them by their address."""
    layer, config = nn.Linear(3, 2), TrainingConfig(epochs=1, learning_rate=0.1)
    optimizer = make_optimizer(layer, config, torch.device("cpu"), param_groups=groups([layer.weight], [layer.bias]))
    if as_tensor:
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(group["lr"])
    rates = [group["lr"] for group in optimizer.param_groups]
    for factor in (0.5, 0.25):
        scale_lr(optimizer, factor)
        assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.1 * factor, 0.3 * factor])
    if as_tensor:
        assert all(group["lr"] is rate for group, rate in zip(optimizer.param_groups, rates, strict=True))
