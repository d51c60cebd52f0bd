"""The training loop, whole.

Random numbers of each step depend only on the seed and the step, and batches only on the seed and the epoch, so a run
resumed from a checkpoint equals one that was never interrupted, bit for bit.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from lightning_fabric import Fabric
from torch import nn
from torch.optim import Optimizer

from gpvae.training.checkpoint import Checkpoint, Start
from gpvae.training.config import TrainingConfig
from gpvae.training.interrupt import interrupts_between_steps
from gpvae.training.optimizers import make_optimizer
from gpvae.training.progress import Report
from gpvae.training.schedule import is_averaged, is_over, is_validated
from gpvae.training.state import Snapshots, Stage, TrainState, copy_weights
from gpvae.training.step import TrainStep


def train(
    objective: nn.Module,
    batches: Callable[[int], Iterable[Any]],
    config: TrainingConfig,
    *,
    fabric: Fabric,
    validate: Callable[[], float] | None = None,
    checkpoint: Checkpoint | None = None,
    start: Start | None = None,
    until: Callable[[TrainState], bool] | None = None,
    on_stop: Callable[[Start], None] | None = None,
    stage: Stage = Stage(),
    report: Report | None = None,
    param_groups: list[dict[str, Any]] | None = None,
    compile: bool = False,
) -> TrainState:
    """Minimise `objective(batch, generator, kl_scale)` over `batches(epoch)`; see `TrainStep` for what it returns.

    A batch is a tensor, or a tuple of tensors and numbers. Lower validation scores are better. The run is saved to
    `checkpoint` after every epoch and on Ctrl-C, and resumes from there, else from `start`. If `until(state)` is True
    between epochs, training ends early with the weights as they are, and `on_stop` receives what another run can start
    from. `param_groups` are the optimiser's (see `make_optimizer`); `compile` compiles its step, for long runs.
    """
    optimizer = make_optimizer(objective, config, fabric.device, param_groups=param_groups, compile=compile)
    module, optimizer = fabric.setup(objective, optimizer)
    state, snapshots = _resume(module, optimizer, checkpoint, start)

    def save() -> None:
        if checkpoint:
            checkpoint.save(Start.of(module, optimizer, snapshots, state))

    step = TrainStep(module, optimizer, fabric, config, compile=compile)
    with step, interrupts_between_steps() as interrupted:
        while not is_over(state, config) and not (until and until(state)):
            module.train()
            step.begin_epoch(state)
            for batch in islice(batches(state.epoch), state.step_in_epoch, None):
                step(batch, state)
                if report:
                    report(state, config, stage)
                if interrupted():
                    step.sums.read(state)
                    save()
                    raise KeyboardInterrupt
            step.sums.read(state)
            module.eval()
            if is_averaged(state.epoch, config):
                _average(module, snapshots, state, config)
            score = validate() if validate and is_validated(state.epoch, config) else None
            if state.end_epoch(score) and config.keep == "best":
                snapshots.best = copy_weights(module)
            _log(fabric, state, stage)
            save()
    if on_stop and not is_over(state, config):
        on_stop(Start.of(module, optimizer, snapshots, state))
    if snapshots.best and is_over(state, config):
        module.load_state_dict(snapshots.best)
    return state


def _resume(
    module: nn.Module, optimizer: Optimizer, checkpoint: Checkpoint | None, start: Start | None
) -> tuple[TrainState, Snapshots]:
    if checkpoint and checkpoint.exists():
        return checkpoint.restore(module, optimizer)
    return start.restore(module, optimizer) if start else (TrainState(), Snapshots())


def _average(module: nn.Module, snapshots: Snapshots, state: TrainState, config: TrainingConfig) -> None:
    """Add the weights to their average, which replaces them in the last epoch."""
    snapshots.add_to_average(module.state_dict(), state.averaged)
    state.averaged += 1
    if state.epoch == config.epochs - 1:
        module.load_state_dict(snapshots.average)


def _log(fabric: Fabric, state: TrainState, stage: Stage) -> None:
    prefix = f"{stage.name}/" if stage.name == "mixup" else ""
    fabric.log_dict({prefix + name: value for name, value in state.history[-1].items()}, step=state.epoch)
    for logger in fabric.loggers:
        logger.save()
