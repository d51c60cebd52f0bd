"""Devices, precisions and what runs on them."""

import pytest
import torch

from gpvae.training.config import TrainingError
from gpvae.training.cuda_graph import repeat
from gpvae.training.devices import compiled, make_fabric, tensor_cores
from gpvae.training.seeds import epoch_generator, step_generator


@pytest.mark.parametrize(
    ("device", "precision", "message"),
    [
        ("tpu", "32-true", "device must be auto, cpu or cuda, got 'tpu'"),
        ("cpu", "64", "precision must be 32-true or bf16-mixed, got '64'"),
    ],
)
def test_unknown_devices_and_precisions_are_refused(device: str, precision: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_fabric(device, precision)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU here")
def test_cuda_without_a_gpu_is_refused() -> None:
    with pytest.raises(TrainingError, match="no CUDA GPU"):
        make_fabric("cuda", "32-true")
    assert make_fabric("auto", "32-true").device.type == "cpu"


def test_tensor_cores_leave_the_cpu_alone() -> None:
    before = torch.get_float32_matmul_precision()
    with tensor_cores(torch.device("cpu")):
        assert torch.get_float32_matmul_precision() == before


def test_tensor_cores_are_restored_by_the_last_user() -> None:
    before, cuda = torch.get_float32_matmul_precision(), torch.device("cuda")
    with tensor_cores(cuda):
        with tensor_cores(cuda):
            pass
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_errors_of_a_compiled_function_are_its_own() -> None:
    def fail() -> None:
        raise KeyError("own")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "compile", lambda function, **settings: function)
        with pytest.raises(KeyError, match="own"):
            compiled(fail)()


def test_repeat_calls_a_step_so_many_times() -> None:
    calls: list[None] = []
    repeat(lambda: calls.append(None), 7, torch.device("cpu"))
    assert len(calls) == 7


def test_random_numbers_depend_on_seed_and_step_alone() -> None:
    def draw(seed: int, step: int) -> float:
        return float(torch.rand((), generator=step_generator(seed, step, torch.device("cpu"))))

    assert len({draw(seed, step) for seed in (0, 1) for step in (0, 1)}) == 4
    assert draw(0, 1) == draw(0, 1)
    assert epoch_generator(0, 1).random() == epoch_generator(0, 1).random() != epoch_generator(1, 0).random()
