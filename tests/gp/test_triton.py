"""The Triton kernels against the readable formulas in float64: on a GPU, or else in Triton's interpreter."""

import pytest
import torch
from test_chains import assert_same_kl, kl_case
from torch import Tensor
from torch.nn.functional import conv2d

from gpvae.gp import fast, linear_recurrence
from gpvae.models import images

gpu = pytest.importorskip("gpvae.gp.gpu", reason="no Triton, or too old", exc_type=ImportError)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU, `conftest.py` selects the interpreter; route the calls to it."""
    monkeypatch.setattr(fast, "_on_triton", lambda x: x.dtype == torch.float32)


@pytest.mark.parametrize("latents", [1, 3])
@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(("time", "order"), [(2, 1), (5, 4), (30, 3)])
@pytest.mark.parametrize("steps", [8, 12])
def test_kl(time: int, order: int, grid: bool, latents: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one segment or several; on a grid, all but the first share the factor's last row."""
    monkeypatch.setattr(gpu, "_segments", lambda lanes, time, shortest, longest: (-(-time // steps), steps))
    monkeypatch.setattr(gpu, "UNIFORM_FROM", 10)
    single = tuple(x.detach().float() for x in kl_case(3, time, 3, order, grid=grid, weight_latents=latents))
    exact = tuple(x.double().requires_grad_() for x in single)
    tested = tuple(x.to(DEVICE).requires_grad_() for x in single)
    lengths = torch.tensor([[time, 0], [1, 0], [(time + 1) // 2, 0]])[:, 0]  # not contiguous
    assert_same_kl(exact, lengths, tested, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("steps", [4, 7, 40])
@pytest.mark.parametrize("time", [1, 2, 23])
def test_recurrence(time: int, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one segment, in several, and in segments of segments."""
    monkeypatch.setattr(gpu, "_segments", lambda lanes, time, shortest, longest: (-(-time // steps), steps))
    generator = torch.Generator().manual_seed(time)
    a = (1.9 * torch.rand(2, time, 3, generator=generator) - 0.95).to(DEVICE).requires_grad_()
    b = torch.randn(4, 2, time, 3, generator=generator).to(DEVICE).requires_grad_()
    grad = torch.randn(4, 2, time, 3, generator=generator)
    exact = [x.detach().cpu().double().requires_grad_() for x in (a, b)]
    ours, theirs = linear_recurrence(a, b), linear_recurrence(*exact)
    torch.testing.assert_close(ours.cpu().double(), theirs, rtol=1e-5, atol=1e-5)
    found = torch.autograd.grad(ours, (a, b), grad.to(DEVICE))
    for got, wanted in zip(found, torch.autograd.grad(theirs, exact, grad.double()), strict=True):
        torch.testing.assert_close(got.cpu().double(), wanted, rtol=1e-4, atol=1e-4)


def test_segments_fill_the_gpu_and_cover_the_series() -> None:
    for lanes, time in [(2240, 48), (16, 2**20), (10**6, 48), (1, 7), (4096, 16384)]:
        segments, steps = gpu._segments(lanes, time, shortest=8, longest=120)
        assert (segments - 1) * steps < time <= segments * steps
        assert 8 <= steps <= 120
    assert gpu._segments(16, 2**20, shortest=8, longest=120)[0] * 16 >= gpu.LANES_WANTED


@pytest.mark.parametrize(
    ("frames", "shape", "hidden"), [(1, (1, 3, 2), 5), (3, (1, 6, 7), 20), (5, (2, 9, 5), 100), (2, (6, 8, 8), 70)]
)
def test_two_convolutions(
    frames: int, shape: tuple[int, int, int], hidden: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full and partial tiles, more tiles than programs.

    Of small whole numbers, and halves where a ReLU would else meet 0, all that is computed is exact even in the ten
    bits that tensor cores keep.
    """
    kernels = pytest.importorskip("gpvae.models.gpu")
    monkeypatch.setattr(kernels, "SHARES", 2)
    generator = torch.Generator().manual_seed(hidden)

    def whole(*size: int) -> Tensor:
        return torch.randint(-2, 3, size, generator=generator).float()

    image, grad = whole(frames, *shape), whole(frames, *shape[1:])
    given = whole(hidden, shape[0], 3, 3), whole(hidden) + 0.5, whole(1, hidden, 3, 3)
    exact = [each.double().requires_grad_() for each in given]
    ours = [each.to(DEVICE).requires_grad_() for each in given]
    theirs = conv2d(conv2d(image.double(), exact[0], exact[1], padding=1).relu(), exact[2], padding=1).squeeze(1)
    found = kernels.two_convolutions(image.to(DEVICE), ours[0].flatten(1), ours[1], ours[2][0].flatten(1).T)
    assert torch.equal(found.cpu().double(), theirs)
    gradients = torch.autograd.grad(found, ours, grad.to(DEVICE))
    for got, wanted in zip(gradients, torch.autograd.grad(theirs, exact, grad.double()), strict=True):
        assert torch.equal(got.cpu().double(), wanted)


@pytest.mark.parametrize("outputs", [1, 3])
def test_image_preprocessor_by_triton(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It equals the layers applied one by one."""
    torch.manual_seed(0)
    network = images.ImagePreprocessor((2, 5, 4), filters=20, outputs=outputs).to(DEVICE)
    for weight in network.parameters():
        torch.nn.init.normal_(weight)
    x = torch.rand(3, 2, 40, device=DEVICE)
    plain = network.layers(x.reshape(6, 2, 5, 4)).reshape(3, 2, 20 * outputs)
    monkeypatch.setattr(images, "_on_triton", lambda x: True)
    calls = list[int]()
    fused = images.fused
    monkeypatch.setattr(images, "fused", lambda *given: calls.append(1) or fused(*given))
    found = network(x)
    assert len(calls) == outputs
    torch.testing.assert_close(found, plain, rtol=2e-2, atol=2e-2 * float(plain.detach().abs().max()))
