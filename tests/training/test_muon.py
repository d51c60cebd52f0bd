"""Orthogonal steps: what the iteration computes, one step by hand, and that all else is Adam's."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from gpvae.training.muon import COEFFICIENTS, ITERATIONS, Muon, orthogonal


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4), (3, 5, 7), (1, 8), (8, 1)])
def test_iteration_changes_singular_values_alone(shape: tuple[int, ...]) -> None:
    """By a polynomial, applied so many times: found here through the decomposition itself."""
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    u, s, vt = torch.linalg.svd(x, full_matrices=False)
    s = s / s.square().sum(-1, keepdim=True).sqrt()
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        s = a * s + b * s**3 + c * s**5
    torch.testing.assert_close(orthogonal(x), u * s.unsqueeze(-2) @ vt, rtol=1e-5, atol=1e-5)


def test_singular_values_end_near_one_whatever_they_were() -> None:
    u, _ = torch.linalg.qr(torch.randn(40, 40, generator=torch.Generator().manual_seed(2)))
    v, _ = torch.linalg.qr(torch.randn(60, 40, generator=torch.Generator().manual_seed(3)))
    values = torch.logspace(-2, 2, 40)
    found = (u.T @ orthogonal(u * values @ v.T) @ v).diagonal()
    share = values / values.norm()
    assert ((found > 0.6) & (found < 1.25))[share > 1 / 500].all()
    assert (found > 200 * share)[share <= 1 / 500].all()  # small ones catch up
    assert not orthogonal(torch.zeros(3, 4)).any()


def grouped(matrices: Sequence[Tensor], others: Sequence[Tensor]) -> list[dict[str, object]]:
    return [{"params": others}, {"params": matrices, "matrices": True, "lr": 0.3}]


def test_two_steps_by_hand() -> None:
    generator = torch.Generator().manual_seed(4)
    shapes = [(5, 3), (4, 4), (5, 3)]
    matrices = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes]
    bias, twin = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(4))
    optimizer, adam = Muon(grouped(matrices, [bias]), lr=0.1), torch.optim.Adam([twin], lr=0.1)
    expected, moments = [matrix.detach().clone() for matrix in matrices], [torch.zeros(shape) for shape in shapes]
    for _ in range(2):
        for i, matrix in enumerate(matrices):
            gradient = torch.randn(matrix.shape, generator=generator)
            matrix.grad = gradient.clone()
            moments[i] = 0.95 * moments[i] + 0.05 * gradient
            ahead = 0.95 * moments[i] + 0.05 * gradient
            expected[i] -= 0.3 * 0.2 * max(shapes[i]) ** 0.5 * orthogonal(ahead)
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
    optimizer = Muon(grouped([still, moved], []), lr=0.1)
    moved.grad = torch.ones(3, 3)
    optimizer.step()
    assert torch.equal(still, torch.eye(3))
    assert not torch.equal(moved, torch.eye(3))
