"""One visible training loop for any loss of (batch, generator, warmth); checkpoints, resume, progress.

Every random number of step s comes from a generator seeded by (seed, s), and every epoch's batches from (seed, epoch):
a resumed run therefore needs no random state to take up exactly where it stopped.

Nothing in an epoch waits for the device. On CUDA a step is recorded once for each shape of batch, as a graph of kernels
that is then replayed without Python in between.
"""

import json
import math
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from rich import get_console
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Generator, Tensor, nn

from gpvae.data.files import atomic_write
from gpvae.training.muon import Muon

Parts = dict[str, float]
GRADIENT = "gradient"  # its length stands among the parts of a loss
JUDGEMENTS = 100  # of held-out cells, in a run
# Where learning rates rise and fall: shares of the epochs in which they rise and after which they fall; the last.
RISE, HOLD, LAST_PACE = 0.05, 0.6, 0.02
# A run is forked, at half of its epochs at the latest, where a line through the scores of three tenths of them falls by
# so little in a tenth; and where there are so many scores to lay it through.
TREND, LITTLE, LATEST, FEWEST = 0.3, 0.015, 0.5, 24
AVERAGED_FROM = 0.65  # with harder practice the learning rate does not fall; weights are averaged from here on
SECONDS_BETWEEN_LINES = 60  # of a log
Report = Callable[["Progression", "TrainingConfig"], None]


class Scored(Protocol):
    """What a loss returns: the number to minimise, and its parts by name."""

    @property
    def total(self) -> Tensor: ...
    @property
    def parts(self) -> dict[str, Tensor]: ...


Loss = Callable[[Any, Generator, Tensor], Scored]  # of a batch, with random numbers and the warmth


class TrainingError(RuntimeError):
    """Training cannot go on; the message says at which step and why."""


@dataclass(frozen=True)
class TrainingConfig:
    epochs: int
    learning_rate: float = 1e-3
    anneal: bool = False  # the learning rate rises over the first epochs, and falls in the last to `LAST_PACE`
    clip_norm: float = 10.0  # gradients longer than this are shortened to it
    warm_up: int = 0  # epochs over which the `warmth` that losses are given rises to 1
    keeps_last: bool = False  # the last weights, not those of the best epoch; such a run may be forked
    patience: int | None = (
        None  # epochs behind the warm-up without a better validation score before training stops; None: never
    )
    seed: int = 0


@dataclass
class Progression:
    """Where a run stands, apart from its tensors."""

    epoch: int = 0
    step: int = 0  # over all epochs
    step_in_epoch: int = 0
    sums: Parts = field(default_factory=dict)  # of this epoch's losses
    best_score: float | None = None
    best_epoch: int | None = None
    forked: int | None = None  # the epochs after which it was
    steps_at_fork: int = 0
    steps_as_planned: int = 0  # once harder practice has its turn
    averaged: int = 0  # epochs whose weights the average holds
    history: list[Parts] = field(default_factory=list)
    planned: list[Parts] | None = None  # that of the run as planned, once harder practice has its turn

    def count_step(self) -> None:
        self.step, self.step_in_epoch = self.step + 1, self.step_in_epoch + 1

    def means(self) -> Parts:
        return {name: total / self.step_in_epoch for name, total in self.sums.items()}

    def count_epoch(self, score: float | None, *, judged: bool = True) -> bool:
        """Close the epoch; True if it was the best so far, or the last of those that nobody judges."""
        better = judged and (score is None or self.best_score is None or score < self.best_score)
        if better:
            self.best_score, self.best_epoch = score, self.epoch
        self.history.append(self.means() | ({} if score is None else {"validation": score}))
        self.epoch, self.step_in_epoch, self.sums = self.epoch + 1, 0, {}
        return better

    def warmth(self, config: TrainingConfig) -> float:
        return min(1.0, (self.epoch + 1) / (config.warm_up + 1))

    def is_judged(self, config: TrainingConfig) -> bool:
        """The last epoch is, and at most `JUDGEMENTS` in all, evenly: where epochs are short, judging takes longer.

        All are where patience counts them.
        """
        every = 1 if config.patience is not None else -(-config.epochs // JUDGEMENTS)
        return (config.epochs - 1 - self.epoch) % every == 0

    def pace(self, config: TrainingConfig) -> float:
        """What the learning rate is multiplied with in this epoch."""
        if not config.anneal or config.epochs == 1:
            return 1.0
        risen = min(1.0, (self.epoch + 1) / (RISE * config.epochs + 1))
        if self.practises_harder:
            return risen
        falling = max(0.0, (self.epoch / (config.epochs - 1) - HOLD) / (1 - HOLD))
        return risen * (LAST_PACE + (1 - LAST_PACE) * (1 + math.cos(math.pi * falling)) / 2)

    def out_of_patience(self, config: TrainingConfig) -> bool:
        return config.patience is not None and self._waiting(config) >= config.patience

    @property
    def practises_harder(self) -> bool:
        return self.planned is not None

    def is_to_be_forked(self, config: TrainingConfig) -> bool:
        """Between epochs: whether scores hardly fall any more, and that before the learning rate falls: then any do."""
        early = self.epoch < max(config.warm_up, TREND * config.epochs)
        late = self.epoch > LATEST * config.epochs
        return self.forked is None and not early and not late and self._fall(config) < LITTLE

    def go_back(self) -> None:
        """To the fork, where harder practice begins."""
        assert self.forked is not None
        self.planned, self.history = self.history, self.history[: self.forked]
        self.steps_as_planned = self.step
        self.epoch, self.step = self.forked, self.steps_at_fork

    def choose_branch(self) -> bool:
        """By the last score of each, if both were finished; True for harder practice."""
        assert self.planned is not None
        planned = self.planned[-1]["validation"]
        whole = len(self.history) == len(self.planned)
        if whole and self.history[-1]["validation"] < (planned if math.isfinite(planned) else math.inf):
            return True
        self.history = self.planned
        return False

    @property
    def steps_done(self) -> int:
        """In both branches."""
        return self.step + (self.steps_as_planned - self.steps_at_fork if self.practises_harder else 0)

    def epochs_in_all(self, config: TrainingConfig) -> int:
        """As far as is known by now."""
        return config.epochs + (0 if self.forked is None else config.epochs - self.forked)

    def averages(self, config: TrainingConfig) -> bool:
        """Whether the weights that this epoch ends with are averaged with those of others."""
        return self.practises_harder and self.epoch >= AVERAGED_FROM * config.epochs

    def _fall(self, config: TrainingConfig) -> float:
        """Of a line through the last scores, in a tenth of the epochs; without end if there is none."""
        first = self.epoch - TREND * config.epochs
        recent = {
            i: parts["validation"] for i, parts in enumerate(self.history) if i >= first and "validation" in parts
        }
        if len(recent) < FEWEST or not all(map(math.isfinite, recent.values())):
            return math.inf
        slope, _ = np.polyfit([*recent], [*recent.values()], 1)
        return -0.1 * config.epochs * float(slope)

    def _waiting(self, config: TrainingConfig) -> int:
        """Epochs behind the warm-up without a better score."""
        return 0 if self.best_epoch is None else self.epoch - 1 - max(self.best_epoch, config.warm_up)


def train(
    model: nn.Module,
    loss: Loss,
    batches: Callable[[int], Iterable[Any]],
    config: TrainingConfig,
    *,
    fabric: Fabric,
    validate: Callable[[], float] | None = None,
    checkpoint: "Checkpoint | None" = None,
    harder: Callable[[bool], None] | None = None,
    report: Report | None = None,
    groups: list[dict[str, Any]] | None = None,
    compile: bool = False,
) -> Progression:
    """Minimise `loss(batch, generator, warmth)` over `batches(epoch)`; `model` ends with its best weights, or its last.

    A batch is a tensor or a tuple of tensors and numbers; on CUDA `loss` is recorded, so it must not wait for the
    device. With a checkpoint, the run is kept there after every epoch and when interrupted, and goes on from there.
    `harder` is told before each epoch whether to practise harder. Where scores hardly fall any more, that is done
    beside what was planned: from there on once more, with a learning rate that stays, and an average of the last
    weights; the last score of each tells which of the two to take. `groups` are the optimiser's: of parameters that
    learn at rates of their own, or as matrices (see `muon`). With `compile` it is compiled: worth it for long runs.
    """
    kept = Kept(best={} if config.keeps_last else _copy(model))
    run = Progression()
    update = update_of(model, loss, config, fabric, run, groups=groups, compile=compile)
    optimizer = update.optimizer
    if checkpoint and checkpoint.exists():
        checkpoint.restore(model, optimizer, kept, run)
    with _interrupts_between_steps() as interrupted:
        while run.epoch < config.epochs and not run.out_of_patience(config):
            model.train()
            update.begin_epoch()
            if harder:
                harder(run.practises_harder)
            for _ in _steps(update, batches(run.epoch), run, config, report):
                if interrupted():
                    update.add_up()
                    if checkpoint:
                        checkpoint.save(model, optimizer, kept, run)
                    raise KeyboardInterrupt
            try:
                update.add_up()
            except TrainingError as error:
                if not run.practises_harder:
                    raise
                warnings.warn(f"with mixtures of series {error}; training without them is kept", stacklevel=2)
                break
            model.eval()
            if run.averages(config):
                _average(kept.average, model, run)
            if run.averaged and run.epoch == config.epochs - 1:
                model.load_state_dict(kept.average)
            judged = validate is None or run.is_judged(config)
            if run.count_epoch(validate() if validate and judged else None, judged=judged) and not config.keeps_last:
                kept.best = _copy(model)
            _log(run, fabric)
            if harder and config.keeps_last:
                _fork_or_go_back(model, optimizer, kept, run, config)
            if checkpoint:
                checkpoint.save(model, optimizer, kept, run)
    if not config.keeps_last:
        model.load_state_dict(kept.best)
    elif run.practises_harder and not run.choose_branch():
        model.load_state_dict(kept.planned)
    if harder:
        harder(False)
    update.close()
    return run


def _fork_or_go_back(
    model: nn.Module, optimizer: torch.optim.Optimizer, kept: "Kept", run: Progression, config: TrainingConfig
) -> None:
    """Between epochs, if it is time for that."""
    if run.is_to_be_forked(config):
        run.forked, run.steps_at_fork = run.epoch, run.step
        kept.fork = {name: value.detach().clone() for name, value in _state(model, optimizer).items()}
    elif run.epoch == config.epochs and run.forked is not None and not run.practises_harder:
        kept.planned = _copy(model)
        run.go_back()
        with torch.no_grad():
            for name, value in _state(model, optimizer).items():
                value.copy_(kept.fork[name])  # in place: what is recorded knows them by where they are
        kept.fork = {}


def _log(run: Progression, fabric: Fabric) -> None:
    branch = "harder/" if run.practises_harder else ""
    fabric.log_dict({f"{branch}{name}": value for name, value in run.history[-1].items()}, step=run.epoch)
    for logger in fabric.loggers:
        logger.save()


def _steps(
    update: "Update", batches: Iterable[Any], run: Progression, config: TrainingConfig, report: Report | None
) -> Iterator[None]:
    """Of one epoch, but for those that were done before the run was interrupted."""
    for index, batch in enumerate(batches):
        if index < run.step_in_epoch:
            continue
        update(batch)
        run.count_step()
        if report:
            report(run, config)
        yield


def update_of(
    model: nn.Module,
    loss: Loss,
    config: TrainingConfig,
    fabric: Fabric,
    run: Progression,
    *,
    groups: list[dict[str, Any]] | None = None,
    compile: bool = False,
) -> "Update":
    """What `train` calls for every batch."""
    on_cuda = fabric.device.type == "cuda"
    groups = groups or [{"params": list(model.parameters())}]
    optimizer = (Muon if any(group.get("matrices") for group in groups) else torch.optim.Adam)(
        groups,
        lr=config.learning_rate,
        capturable=on_cuda,
        fused=not compile,
        foreach=compile,
    )
    fabric.setup(model, optimizer)
    update = (RecordedUpdate if on_cuda else Update)(loss, optimizer, fabric, config, run)
    if compile:
        update.descend = compiled(update.descend)
    return update


class Update:
    """One step of training after another; their losses are added up on the device, and looked at when asked for."""

    def __init__(
        self, loss: Loss, optimizer: torch.optim.Optimizer, fabric: Fabric, config: TrainingConfig, run: Progression
    ):
        self.loss, self.optimizer, self.fabric = loss, optimizer, fabric
        self.config, self.run = config, run
        self.rates = [group["lr"] for group in optimizer.param_groups]
        for group, rate in zip(optimizer.param_groups, self.rates, strict=True):
            if config.anneal and fabric.device.type == "cuda":
                group["lr"] = torch.tensor(rate, device=fabric.device)  # to be changed in what is recorded
        self.learned = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self.generator = Generator(fabric.device)
        self.warmth = torch.zeros((), device=fabric.device)
        self.names: list[str] = []
        self.sums = torch.zeros(0, dtype=torch.float64, device=fabric.device)
        self.finite = torch.zeros((), dtype=torch.int64, device=fabric.device)  # steps before the first bad one

    def begin_epoch(self) -> None:
        self.warmth.fill_(self.run.warmth(self.config))
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            now = rate * self.run.pace(self.config)
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(now)
            else:
                group["lr"] = now
        if self.run.sums:  # of an epoch that was interrupted
            self._name(list(self.run.sums))
        self.sums.copy_(torch.tensor([self.run.sums.get(name, 0.0) for name in self.names], dtype=torch.float64))
        self.finite.fill_(self.run.step_in_epoch)

    def __call__(self, batch: Any) -> None:
        self.generator.manual_seed(_step_seed(self.config.seed, self.run.step))
        self._step(batch)

    def _step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        with self.fabric.autocast():
            loss = self.loss(batch, self.generator, self.warmth)
        self.fabric.backward(loss.total)
        self._count({"loss": loss.total, **loss.parts, GRADIENT: self.descend()})

    def descend(self) -> Tensor:
        """Shorten the gradients where they are too long, and follow them; their length as it was."""
        gradients = [parameter.grad for parameter in self.learned if parameter.grad is not None]
        length = torch.cat([gradient.flatten().float() for gradient in gradients]).norm()
        shorter = (self.config.clip_norm / (length + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, shorter)  # pyright: ignore[reportPrivateImportUsage]
        self.optimizer.step()
        return length

    @torch.no_grad()
    def _count(self, losses: dict[str, Tensor]) -> None:
        if not self.names:
            self._name(list(losses))
        fine = self.sums.isfinite().all()  # behind the first bad step everything is bad
        self.sums += torch.stack([value.detach() for value in losses.values()]).where(fine, 0.0)
        self.finite += self.sums.isfinite().all()

    def close(self) -> None:
        """Let go of gradients, and of what was recorded."""
        self.optimizer.zero_grad()

    def _name(self, names: list[str]) -> None:
        self.names = names
        self.sums = torch.zeros(len(names), dtype=torch.float64, device=self.fabric.device)

    def add_up(self) -> None:
        """Put the sums into the run; complain if a loss was not finite."""
        self.run.sums = dict(zip(self.names, self.sums.tolist(), strict=True))
        if int(self.finite) == self.run.step_in_epoch:
            return
        bad = [f"{name} is {total}" for name, total in self.run.sums.items() if not math.isfinite(total)]
        step = self.run.step - self.run.step_in_epoch + int(self.finite)
        advice = "a smaller learning rate may help"
        raise TrainingError(f"the loss is not finite at step {step}: {', '.join(bad)}; {advice}")


class RecordedUpdate(Update):
    """The same on CUDA: the first few steps with a new shape of batch as ever, then recorded, then replayed."""

    WARM_UPS = 3

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.stream = torch.cuda.Stream(self.fabric.device)
        self.seen: Counter[Hashable] = Counter()
        self.recorded: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any]] = {}

    def _step(self, batch: Any) -> None:
        shape = _shape(batch)
        if shape not in self.recorded:
            self.seen[shape] += 1
            if self.seen[shape] <= self.WARM_UPS:
                with _aside(self.stream):
                    super()._step(batch)
                return
            self.recorded[shape] = self._record(batch)
        graph, inputs = self.recorded[shape]
        for place, value in zip(_tensors(inputs), _tensors(batch), strict=True):
            place.copy_(value)
        graph.replay()

    def close(self) -> None:
        self.recorded.clear()
        super().close()

    def _record(self, batch: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
        inputs = _map(torch.clone, batch)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        pool = next((known.pool() for known, _ in self.recorded.values()), None)
        with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
            super()._step(inputs)
        return graph, inputs


@contextmanager
def _aside(stream: torch.cuda.Stream) -> Iterator[None]:
    """On the stream that is recorded, as CUDA graphs want it."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def repeat(step: Callable[[], None], count: int, device: torch.device) -> None:
    """Do a step over and over; on CUDA recorded after the first few times, so it must not wait for the device."""
    first = min(count, RecordedUpdate.WARM_UPS) if device.type == "cuda" else count
    with _aside(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext():
        for _ in range(first):
            step()
    if count > first:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        for _ in range(count - first):
            graph.replay()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` compiled by PyTorch; as it is, with a warning, where that cannot be done (no compiler, say)."""
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    chosen = torch.compile(function, dynamic=False)

    def call(*args: Any) -> Any:
        nonlocal chosen
        try:
            # Shapes and models that came before count too: PyTorch's own limit would silently end at the eighth.
            with torch._dynamo.config.patch(recompile_limit=256):
                return chosen(*args)
        except TorchDynamoException as error:
            warnings.warn(f"training goes on without torch.compile: {error}", stacklevel=2)
            chosen = function
            return function(*args)

    return call


@contextmanager
def tensor_cores(device: torch.device) -> Iterator[None]:
    """Let float32 matrix products on CUDA run in TF32: ten bits of mantissa, far below the noise of any loss here.

    The setting is the process's. It is put back when the last of those who asked for it is done; where somebody has
    chosen by PyTorch's newer switches, it is left alone.
    """
    global _on_tensor_cores, _precision_before
    if device.type != "cuda":
        yield
        return
    with _precision_lock:
        _on_tensor_cores += 1
        if _on_tensor_cores == 1:
            with suppress(RuntimeError):
                _precision_before = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        with _precision_lock:
            _on_tensor_cores -= 1
            if _on_tensor_cores == 0 and _precision_before is not None:
                torch.set_float32_matmul_precision(_precision_before)
                _precision_before = None


_precision_lock = threading.Lock()
_on_tensor_cores = 0
_precision_before: str | None = None


def _tensors(batch: Any) -> list[Tensor]:
    return [part for part in (batch if isinstance(batch, tuple) else (batch,)) if isinstance(part, Tensor)]


def _map(change: Callable[[Tensor], Tensor], batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return change(batch)
    parts = [change(part) if isinstance(part, Tensor) else part for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)


def _shape(batch: Any) -> Hashable:
    """What a recording depends on: the tensors' shapes, and all that is not a tensor."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    return tuple((part.shape, part.dtype) if isinstance(part, Tensor) else part for part in parts)


@contextmanager
def _interrupts_between_steps() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back until the step is done, so that weights, moments and counts fit together.

    A second one is heard at once. Signals reach the main thread alone; in others there is nothing to hold back.
    """
    asked = False

    def hold(signum: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    before = signal.signal(signal.SIGINT, hold)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def fabric_for(device: str, precision: str, logs: Path | None = None) -> Fabric:
    """Lightning Fabric on one device: "auto" (a CUDA GPU if there is one), "cpu" or "cuda"."""
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"the device must be auto, cpu or cuda, not {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("the device cuda was asked for, but PyTorch sees no CUDA GPU here")
    if precision not in ("32-true", "bf16-mixed"):
        raise ValueError(f"the precision must be 32-true or bf16-mixed, not {precision!r}")
    accelerator = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    loggers: list[Logger] = [] if logs is None else [_tensorboard(logs)]
    return Fabric(accelerator=accelerator, devices=1, precision=precision, loggers=loggers)


def _tensorboard(folder: Path) -> TensorBoardLogger:
    try:
        return TensorBoardLogger(root_dir=folder, name="")
    except ModuleNotFoundError:
        raise TrainingError("TensorBoard is not installed: pip install 'gpvae[tensorboard]'") from None


def step_generator(seed: int, step: int, device: torch.device) -> Generator:
    return Generator(device).manual_seed(_step_seed(seed, step))


def _step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng([seed, epoch])


@dataclass
class Kept:
    """Tensors beside the model's."""

    best: dict[str, Tensor]  # weights of the best epoch
    planned: dict[str, Tensor] = field(default_factory=dict)  # weights at the end of the run as planned
    fork: dict[str, Tensor] = field(default_factory=dict)  # the `_state` at the fork
    average: dict[str, Tensor] = field(default_factory=dict)  # of weights


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that training changes."""
    moments = optimizer.state_dict()["state"]
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    return tensors | {f"adam.{i}.{name}": value for i, state in moments.items() for name, value in state.items()}


def _copy(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _average(average: dict[str, Tensor], model: nn.Module, run: Progression) -> None:
    """Of the weights of n epochs, the model's being the last; w̄ ← w̄ + (w - w̄) / n."""
    run.averaged += 1
    for name, value in _copy(model).items():
        known = average.get(name, value).to(value.device)
        average[name] = torch.lerp(known, value, 1 / run.averaged) if value.is_floating_point() else value


@dataclass(frozen=True)
class Checkpoint:
    """A run in one safetensors file. `fingerprint` says what it is a run of; it will not continue anything else."""

    path: Path
    fingerprint: str

    def exists(self) -> bool:
        return self.path.exists()

    def save(self, model: nn.Module, optimizer: Any, kept: Kept, run: Progression) -> None:
        tensors = _state(model, optimizer)
        for group, more in vars(kept).items():
            tensors |= {f"{group}.{name}": value for name, value in more.items()}
        header = {"fingerprint": self.fingerprint, "run": json.dumps(asdict(run))}
        contiguous = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        with atomic_write(self.path, force=True) as partial:
            save_file(contiguous, partial, metadata=header)

    def restore(self, model: nn.Module, optimizer: Any, kept: Kept, run: Progression) -> None:
        """Put the saved run into `model`, `optimizer`, `kept` and `run`."""
        tensors, header = self._read()
        if header.get("fingerprint") != self.fingerprint:
            raise TrainingError(f"{self.path} belongs to a run on other data or settings; remove it to start anew")
        model.load_state_dict(_group(tensors, "model."))
        for group in vars(kept):
            setattr(kept, group, _group(tensors, f"{group}."))
        moments: dict[int, dict[str, Tensor]] = {}
        for name, value in _group(tensors, "adam.").items():
            i, moment = name.split(".", 1)
            moments.setdefault(int(i), {})[moment] = value
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        for name, value in json.loads(header["run"]).items():
            setattr(run, name, value)

    def _read(self) -> tuple[dict[str, Tensor], dict[str, str]]:
        try:
            with safe_open(self.path, framework="pt") as file:
                names = list(file.keys())
                return {name: file.get_tensor(name) for name in names}, file.metadata() or {}
        except (SafetensorError, OSError) as error:
            raise TrainingError(f"{self.path} is not a checkpoint, or a damaged one: {error}") from error


def _group(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


@contextmanager
def progress_bar(steps_per_epoch: int, *, show: bool) -> Iterator[Report | None]:
    """A bar on the terminal with the time left and the parts of the loss; in a log a line now and then."""
    console = get_console()
    if not show:
        yield None
    elif not (console.is_terminal or console.is_jupyter):
        yield _lines(console, steps_per_epoch)
    else:
        columns = [
            TextColumn("training"),
            BarColumn(),
            TextColumn("{task.fields[epoch]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[parts]}"),
        ]
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("training", total=None, epoch="", parts="")

            def report(run: Progression, config: TrainingConfig) -> None:
                parts = run.history[-1] if run.history else {}
                progress.update(
                    task,
                    completed=run.steps_done,
                    total=run.epochs_in_all(config) * steps_per_epoch,
                    epoch=_place(run, config),
                    parts="  ".join(f"{name} {value:.3f}" for name, value in parts.items()),
                )

            yield report


def _lines(console: Console, steps_per_epoch: int) -> Report:
    """At most one in `SECONDS_BETWEEN_LINES`; the time left by what was done since the last."""
    last: tuple[float, int] | None = None  # when it was, and the steps that were done

    def report(run: Progression, config: TrainingConfig) -> None:
        nonlocal last
        now, done = time.monotonic(), run.steps_done
        then, before = last = last or (now, done)
        if now - then < SECONDS_BETWEEN_LINES:
            return
        left = max(0, run.epochs_in_all(config) * steps_per_epoch - done)
        minutes = (now - then) / max(1, done - before) * left / 60
        last = now, done
        console.print(f"training: {_place(run, config)}, {minutes:.0f} min left", markup=False)

    return report


def _place(run: Progression, config: TrainingConfig) -> str:
    return f"epoch {run.epoch + 1}/{config.epochs}{', with mixtures' if run.practises_harder else ''}"
