"""Imputers whose network is trained: one `fit` for all of them; what differs is their `Method`."""

import hashlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from threading import get_ident
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Generator, Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from gpvae.data.atomic import claim
from gpvae.data.batches import (
    Batch,
    Batches,
    BatchIndex,
    PredictionWindow,
    RowTensors,
    Window,
    group_by_length,
    windows,
)
from gpvae.data.panel import Bools, DataError, Floats, Panel
from gpvae.data.schema import Schema
from gpvae.imputers.base import Imputer, Prediction, fingerprint
from gpvae.imputers.held_out import HeldOut, HeldOutCells, hold_out
from gpvae.imputers.model_folder import require_no_nan
from gpvae.models.likelihoods.sampling import Streams
from gpvae.training.checkpoint import Checkpoint
from gpvae.training.devices import make_fabric, tensor_cores
from gpvae.training.fork import train_with_fork
from gpvae.training.loop import train
from gpvae.training.progress import Show, busy, progress_bar
from gpvae.training.recipe import Recipe
from gpvae.training.seeds import epoch_generator, series_generator
from gpvae.training.state import TrainState

PROCEDURE = 8  # a checkpoint of a run that was planned otherwise is not continued
NUMBERS_AT_ONCE = {"cpu": 2**24, "cuda": 2**26}  # that a layer may compute in one go: 64 MB, 256 MB
COMPILE_FROM = 50_000  # steps of training on CUDA with one shape of batch that repay a compiler's quarter of a minute


class Method(ABC):
    """A network, and how it is trained, validated and used to predict."""

    def __init__(self, network: nn.Module, schema: Schema, recipe: Recipe):
        self.network, self.schema, self.recipe = network, schema, recipe

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    def to(self, device: torch.device) -> None:
        self.network.to(device)

    @abstractmethod
    def objective(self, rows: RowTensors, *, compile: bool) -> nn.Module:
        """The loss of (batch index, generator, kl_scale); `compile`: the run is long enough to repay a compiler."""

    @abstractmethod
    def score(self, held_out: HeldOut) -> float:
        """How badly the held-out cells are predicted."""

    @abstractmethod
    def predict(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        """Fill the cells `missing` (row, feature)."""

    # What only some methods have.

    def alternative(self, rows: RowTensors, *, batch_size: int, compile: bool) -> nn.Module | None:
        """The loss of the second branch of a forked run."""
        return None

    def calibrate(self, held_out: HeldOut) -> None:
        """What held-out cells decide once training is over."""
        return

    def parameter_groups(self) -> list[dict[str, Any]]:
        """For the optimiser."""
        return [{"params": list(self.network.parameters())}]

    @property
    def slow_kl(self) -> bool:
        """Whether the weight of the KL rises over many steps, however few epochs there are."""
        return False

    def log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        """Of every cell at the value `scaled`, in the model's units. (row, feature)"""
        raise DataError("this method gives single values, not distributions")

    def tensors(self) -> dict[str, Tensor]:
        """What was learned."""
        return self.network.state_dict()

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.network.load_state_dict(tensors)


class Slice(NamedTuple):
    """A batch to predict with."""

    rows: NDArray[np.int64]  # of the panel
    places: Tensor  # of those rows in a flattened (batch, time)
    batch: Batch
    streams: Streams  # random numbers of each series, along the first dimension


def prediction_batches(
    method: Method, panel: Panel, parts: list[PredictionWindow], steps_at_once: int, seed: int
) -> Iterator[Slice]:
    """Parts of a panel in batches of at most so many steps, with random numbers that do not depend on the batch."""
    device = method.device
    rows = method.schema.rows(panel, panel.observed, device)
    with tensor_cores(device):
        for group in group_by_length(parts, steps_at_once):
            index = BatchIndex.of([window for window, _ in group], device)
            steps = [np.arange(keep.start, keep.stop) for _, keep in group]
            panel_rows = np.concatenate([window.start + kept for (window, _), kept in zip(group, steps, strict=True)])
            places = np.concatenate([i * index.time + kept for i, kept in enumerate(steps)])
            streams = Streams([_generator(seed, panel, window, device) for window, _ in group], [1] * len(group), 0)
            yield Slice(panel_rows, torch.from_numpy(places).to(device), rows.batch(index), streams)


def _generator(seed: int, panel: Panel, window: Window, device: torch.device) -> Generator:
    offset = window.start - int(panel.starts[panel.series_of_row[window.start]])
    return series_generator(seed, panel.id_at(window.start), offset, device=device)


@dataclass(eq=False, repr=False, kw_only=True)
class NeuralImputer(Imputer):
    """An imputer with a `Method` that is trained by a `Recipe`."""

    masks: ClassVar[bool] = False  # whether training may hide values, and mix series

    epochs: int | None = None
    recipe: Recipe = Recipe()
    standardise: bool = True
    precision: str = "32-true"
    device: str = "auto"
    seed: int = 0
    verbose: Show = False
    method_: Any = field(init=False)

    @abstractmethod
    def _new_method(self, schema: Schema, share_observed: float) -> Method:
        """Fresh weights, by PyTorch's global generator, which has been seeded and is put back afterwards."""

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        self._require_valid_settings()
        started = time.perf_counter()
        panel = self._read(data)
        schema = self._new_schema(panel)
        panel = panel.with_labels(schema.labels)
        fabric = make_fabric(self.device, self.precision, None if logs is None else Path(logs))
        cells = hold_out(panel, self.recipe.validation, self.seed, schema.scaling.varies)
        held_out = self._held_out(panel, schema, cells, fabric.device)
        method = self._seeded_method(schema, _share_observed(held_out.rows))
        method.to(fabric.device)
        with tensor_cores(fabric.device):
            run = self._train(method, panel, held_out, fabric, checkpoint)
            if held_out.exists:
                with busy("calibrating intervals", show=bool(self.verbose)):
                    method.calibrate(held_out)
        method.network.eval()
        self.method_, self.schema_, self.history_ = method, schema, run.history
        self.held_out_ = HeldOutCells.of(cells, fingerprint(panel)) if cells.any() else None
        self.seconds_ = time.perf_counter() - started
        return self

    def _held_out(self, panel: Panel, schema: Schema, cells: Bools, device: torch.device) -> HeldOut:
        rows = schema.rows(panel, panel.observed & ~cells, device)
        nothing = replace(rows, observed=torch.zeros_like(rows.observed))
        targets = schema.rows(panel, cells, device) if cells.any() else nothing
        return HeldOut(rows, targets, windows(panel, self.recipe.window), int(self.seed))

    def _train(
        self, method: Method, panel: Panel, held_out: HeldOut, fabric: Fabric, checkpoint: str | Path | None
    ) -> TrainState:
        recipe = method.recipe
        plan = Batches(panel, recipe.window, recipe.batch_size_for(len(held_out.windows)))
        steps = math.ceil(len(held_out.windows) / plan.balanced_size)
        config = recipe.training_config(self.epochs, steps, seed=int(self.seed), slow_kl=method.slow_kl)
        compile = fabric.device.type == "cuda" and steps * config.epochs >= COMPILE_FROM * plan.shapes
        objective = method.objective(held_out.rows, compile=compile)
        forks = held_out.exists and config.keep == "last"
        second = method.alternative(held_out.rows, batch_size=plan.balanced_size, compile=compile) if forks else None
        with claim(Path(checkpoint) if checkpoint else None), progress_bar(steps, show=self.verbose) as report:
            arguments: dict[str, Any] = {
                "batches": lambda epoch: plan.epoch(epoch_generator(self.seed, epoch), fabric.device),
                "config": config,
                "fabric": fabric,
                "validate": (lambda: method.score(held_out)) if held_out.exists else None,
                "checkpoint": Checkpoint(Path(checkpoint), self._fingerprint(panel)) if checkpoint else None,
                "report": report,
                "param_groups": method.parameter_groups(),
                "compile": compile,
            }
            if second is None:
                return train(objective, **arguments)
            return train_with_fork(objective, second, **arguments)

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=self.standardise)

    def _require_valid_settings(self) -> None:
        if self.epochs is not None and (not isinstance(self.epochs, Integral) or self.epochs < 1):
            raise ValueError(f"epochs must be a whole number of at least 1, or None, got {self.epochs!r}")
        if not isinstance(self.seed, Integral) or self.seed < 0:
            raise ValueError(f"seed must be a whole number that is not negative, got {self.seed!r}")
        recipe = self.recipe
        if not isinstance(recipe, Recipe):
            raise TypeError(f"recipe must be a Recipe, got {recipe!r}")
        if not self.masks and (recipe.masking or recipe.fork_mixup or recipe.optimizer != "adam"):
            raise ValueError(f"{self.name} takes no masking, fork_mixup or optimizer: those are for GPVAE")

    def _seeded_method(self, schema: Schema, share_observed: float) -> Method:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(self.seed))
            return self._new_method(schema, share_observed)

    def _fingerprint(self, panel: Panel) -> str:
        """Of the settings and the data that decide how training goes."""
        settings = {name: value for name, value in self._settings().items() if name not in ("device", "verbose")}
        described = json.dumps([self.name, settings, PROCEDURE, fingerprint(panel)])
        return hashlib.sha256(described.encode()).hexdigest()

    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        return self.method_.predict(panel, missing, samples, seed)

    def _log_density(self, panel: Panel, scaled: NDArray[np.float32], samples: int, seed: int) -> Floats:
        return self.method_.log_density(panel, scaled, samples, seed)

    def facts(self) -> list[tuple[str, str]]:
        return [
            ("parameters", f"{sum(value.numel() for value in self.method_.network.parameters()):,}"),
            ("training epochs", f"{len(self.history_):,}"),
            ("device", self.method_.device.type),
        ]

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], device: str) -> Self:
        return super()._from_settings({**settings, "device": device}, device)

    def _tensors(self) -> dict[str, Tensor]:
        return self.method_.tensors()

    def _restored_method(self, resolved: Any) -> Method:
        """A method to load weights into; `resolved` is what `_resolved` returned."""
        return self._new_method(self.schema_, 1.0)

    def _restore(self, tensors: dict[str, Tensor], resolved: Any) -> None:
        require_no_nan(tensors)
        with torch.random.fork_rng(devices=[]), only_shapes_of(tensors):
            method = self._restored_method(resolved)
        method.load_tensors(tensors)
        method.to(make_fabric(self.device, self.precision).device)
        method.network.eval()
        self.method_ = method


@contextmanager
def only_shapes_of(tensors: Mapping[str, Tensor]) -> Iterator[None]:
    """Refuse to build a parameter of a shape that none of these has: before it is filled, and before the next."""
    left, thread = Counter(value.shape for value in tensors.values()), get_ident()

    def require_shape(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and get_ident() == thread:
            left[parameter.shape] -= 1
            if left[parameter.shape] < 0:
                raise ValueError(f"its settings make a parameter of shape {tuple(parameter.shape)} that was not saved")

    hook = register_module_parameter_registration_hook(require_shape)
    try:
        yield
    finally:
        hook.remove()


def _share_observed(rows: RowTensors) -> float:
    """Share of the cells that are observed, in columns where any is."""
    observed = rows.observed[:-1]  # the last row is padding
    known = observed[:, observed.any(0)]
    return float(known.double().mean()) if known.numel() else 1.0
