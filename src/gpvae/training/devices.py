"""Where and how precisely training computes: Fabric, tensor cores, compilation."""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from lightning_fabric.plugins import MixedPrecision

from gpvae.training.config import TrainingError


def make_fabric(device: str, precision: str, logs: Path | None = None) -> Fabric:
    """Lightning Fabric on one device: "auto" (a CUDA GPU if there is one), "cpu" or "cuda"."""
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be auto, cpu or cuda, got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("device is cuda, but PyTorch finds no CUDA GPU on this machine")
    if precision not in ("32-true", "bf16-mixed"):
        raise ValueError(f"precision must be 32-true or bf16-mixed, got {precision!r}")
    accelerator = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    loggers: list[Logger] = [] if logs is None else [_tensorboard(logs)]
    plugin = Bf16Autocast("bf16-mixed", accelerator) if precision == "bf16-mixed" else None
    return Fabric(accelerator=accelerator, devices=1, plugins=plugin, loggers=loggers)


class Bf16Autocast(MixedPrecision):
    """Autocast to bfloat16, but leave inputs as they are: Fabric's own also rounds the data to be modelled."""

    def convert_input(self, data: Any) -> Any:
        return data


def _tensorboard(folder: Path) -> TensorBoardLogger:
    try:
        return TensorBoardLogger(root_dir=folder, name="")
    except ModuleNotFoundError:
        raise TrainingError("TensorBoard is not installed: pip install 'gpvae[tensorboard]'") from None


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """Let float32 matrix products on CUDA run in TF32: ten bits of mantissa, far below the noise of any loss here.

    The setting belongs to the process. It is restored when the last user is done; if PyTorch's newer switches are in
    use, it is left alone.
    """
    global _users, _precision_before
    if device.type != "cuda":
        yield
        return
    with _lock:
        _users += 1
        if _users == 1:
            with suppress(RuntimeError):
                _precision_before = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _precision_before is not None:
                torch.set_float32_matmul_precision(_precision_before)
                _precision_before = None


_lock = threading.Lock()
_users = 0
_precision_before: str | None = None


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled by PyTorch, or as it is, with a warning, where that fails (no C++ compiler, for example)."""
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    chosen = torch.compile(function, dynamic=False)

    def call(*args: Any) -> Any:
        nonlocal chosen
        try:
            # Shapes and models from earlier in the process count too; at PyTorch's own limit, 8, it silently gives up.
            with torch._dynamo.config.patch(recompile_limit=256):
                return chosen(*args)
        except TorchDynamoException as error:
            warnings.warn(f"training continues without torch.compile: {error}", stacklevel=2)
            chosen = function
            return function(*args)

    return call
