"""The Triton kernels against the readable formulas in float64: on a GPU, or elsewhere in Triton's interpreter."""

import pytest
import torch
from test_linalg import assert_same_kl, kl_case

from gpvae.linalg import fast, linear_recurrence

gpu = pytest.importorskip("gpvae.linalg.gpu", reason="Triton is not installed")
DEVICE = "cuda"
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA GPU here")


@pytest.mark.parametrize("latents", [1, 3])
@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(("time", "order"), [(2, 4), (5, 4), (40, 4), (200, 4), (200, 9)])
@pytest.mark.parametrize("many", [True, False])
def test_kl(time: int, order: int, grid: bool, latents: int, many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one segment or several, each with weights of its own or the grid's last row for all."""
    if not many:
        monkeypatch.setattr(gpu, "LANES_WANTED", 1)
        monkeypatch.setattr(gpu, "LONGEST", 64)
    case = tuple(x.detach().float().to(DEVICE) for x in kl_case(3, time, 3, order, grid=grid, weight_latents=latents))
    exact = tuple(x.double().cpu().requires_grad_() for x in case)
    tested = tuple(x.requires_grad_() for x in case)
    assert_same_kl(exact, torch.tensor([time, 1, (time + 1) // 2]), tested, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("time", "wanted"), [(1, 1), (13, 1), (500, 1), (500, 2**16), (5000, 2**16)])
def test_recurrence(time: int, wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one go, in segments, and in segments of segments."""
    monkeypatch.setattr(gpu, "LANES_WANTED", wanted)
    generator = torch.Generator().manual_seed(time)
    a = (1.9 * torch.rand(2, time, 3, generator=generator) - 0.95).to(DEVICE).requires_grad_()
    b = torch.randn(4, 2, time, 3, generator=generator).to(DEVICE).requires_grad_()
    grad = torch.randn(4, 2, time, 3, generator=generator).to(DEVICE)
    assert fast._on_triton(b)
    exact = [x.detach().cpu().double().requires_grad_() for x in (a, b)]
    ours, theirs = linear_recurrence(a, b), linear_recurrence(*exact)
    torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(ours, (a, b), grad)
    for got, wanted_grad in zip(found, torch.autograd.grad(theirs, exact, grad.cpu().double()), strict=True):
        torch.testing.assert_close(got.cpu().double(), wanted_grad, rtol=1e-4, atol=1e-4)
