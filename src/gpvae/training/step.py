"""One optimisation step: forward, backward, clipping, optimiser. Nothing here waits for the device."""

import math
from typing import Any, Self

import torch
from lightning_fabric import Fabric
from torch import Generator, Tensor, nn

from gpvae.training.config import DivergedError, TrainingConfig
from gpvae.training.cuda_graph import GraphedStep
from gpvae.training.devices import compiled
from gpvae.training.optimizers import scale_lr
from gpvae.training.schedule import kl_scale, lr_factor
from gpvae.training.seeds import step_seed
from gpvae.training.state import TrainState


class TrainStep:
    """Steps of `module(batch, generator, kl_scale)`; on CUDA as graphs. `compile` compiles clipping and optimiser.

    The module returns a named tuple of `total`, the scalar to minimise, and `parts`, scalars by name to be logged. On
    CUDA it must not wait for the device, and may draw random numbers only from `generator`.
    `module` and `optimizer` are what Fabric's `setup` returned.
    """

    def __init__(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        fabric: Fabric,
        config: TrainingConfig,
        *,
        compile: bool = False,
    ):
        self.module, self.optimizer, self.fabric, self.config = module, optimizer, fabric, config
        self.params = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.generator = Generator(fabric.device)
        self.kl_scale = torch.zeros((), device=fabric.device)
        self.sums = LossSums(fabric.device)
        self.update = compiled(self._clip_and_step) if compile else self._clip_and_step
        self.graphed = GraphedStep(self._step, self.generator) if fabric.device.type == "cuda" else None

    def begin_epoch(self, state: TrainState) -> None:
        self.kl_scale.fill_(kl_scale(state.epoch, self.config))
        scale_lr(self.optimizer, lr_factor(state.epoch, self.config))
        self.sums.begin(state)

    def __call__(self, batch: Any, state: TrainState) -> None:
        self.generator.manual_seed(step_seed(self.config.seed, state.step))
        (self.graphed or self._step)(batch)
        state.count_step()

    def _step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        loss = self.module(batch, self.generator, self.kl_scale)
        self.fabric.backward(loss.total)
        self.sums.add({"loss": loss.total, **loss.parts, "gradient": self.update()})

    def _clip_and_step(self) -> Tensor:
        """Returns the norm of the gradient before clipping.

        `fabric.clip_gradients` takes twice as long on CPU (78 µs against 39 µs with 24 tensors), one norm per tensor.
        """
        grads = [p.grad for p in self.params if p.grad is not None]
        norm = torch.cat([grad.flatten().float() for grad in grads]).norm()
        factor = (self.config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(grads, factor)  # pyright: ignore[reportPrivateImportUsage]
        self.optimizer.step()
        return norm

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Free gradients and graphs."""
        self.optimizer.zero_grad()
        if self.graphed:
            self.graphed.clear()


class LossSums:
    """Sums of losses over the steps of an epoch, on the device; read once per epoch."""

    def __init__(self, device: torch.device):
        self.names: list[str] = []
        self.sums = torch.zeros(0, dtype=torch.float64, device=device)
        self.finite_steps = torch.zeros((), dtype=torch.int64, device=device)  # before the first bad one

    def begin(self, state: TrainState) -> None:
        """Start an epoch, or continue an interrupted one."""
        if state.sums:
            self._name(list(state.sums))
        self.sums.copy_(torch.tensor([state.sums.get(name, 0.0) for name in self.names], dtype=torch.float64))
        self.finite_steps.fill_(state.step_in_epoch)

    @torch.no_grad()
    def add(self, losses: dict[str, Tensor]) -> None:
        if not self.names:
            self._name(list(losses))
        fine = self.sums.isfinite().all()  # after the first bad step everything is bad
        self.sums += torch.stack([value.detach() for value in losses.values()]).where(fine, 0.0)
        self.finite_steps += self.sums.isfinite().all()

    def read(self, state: TrainState) -> None:
        """Copy the sums into `state`; raise if a loss was not finite."""
        state.sums = dict(zip(self.names, self.sums.tolist(), strict=True))
        finite_steps = int(self.finite_steps)
        if finite_steps == state.step_in_epoch:
            return
        bad = ", ".join(f"{name} is {total}" for name, total in state.sums.items() if not math.isfinite(total))
        step = state.step - state.step_in_epoch + finite_steps
        raise DivergedError(f"the loss is not finite at step {step}: {bad}; a smaller learning rate may help")

    def _name(self, names: list[str]) -> None:
        self.names = names
        self.sums = torch.zeros(len(names), dtype=torch.float64, device=self.sums.device)
