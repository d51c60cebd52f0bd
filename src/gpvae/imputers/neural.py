"""Imputers whose network is learned step by step: windows, batches, held-out cells, checkpoints, early stopping."""

import hashlib
import json
import math
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from gpvae import missingness
from gpvae.data.batches import (
    Batch,
    Batches,
    BatchIndex,
    PredictionWindow,
    RowTensors,
    Window,
    group_by_length,
    series_windows,
    windows,
)
from gpvae.data.panel import Bools, Panel
from gpvae.data.schema import Schema
from gpvae.imputers.base import HeldOutCells, Imputer, Prediction
from gpvae.models.model import Loss
from gpvae.training.loop import (
    Checkpoint,
    TrainingConfig,
    epoch_generator,
    fabric_for,
    progress_bar,
    step_generator,
    tensor_cores,
    train,
)

ORDER = 7  # of batches, which cells are held out, practice, the pace, which weights: others are not continued
# Of training, where that is left to us: so many steps, unless the epochs become too few or too many. With a falling
# learning rate nothing is gained by stopping early, and much by going on; but a table of a few windows has little to
# say, and is known by heart sooner.
STEPS_AT_LEAST, STEPS_ANNEALED, EPOCHS_AT_LEAST = 3000, 10_000, 40
EPOCHS_AT_MOST, EPOCHS_OF_FEW, FEW = 800, 200, 3  # the second of up to so many batches an epoch; of more, more
BATCHES, SMALLEST_BATCH, LARGEST_BATCH = 50, 16, 64  # in an epoch, unless they become too small or too large
NUMBERS_AT_ONCE = {"cpu": 2**24, "cuda": 2**26}  # that a layer may make in one go: 64 MB, 256 MB
COMPILE_FROM = 50_000  # steps of training on CUDA with one shape of batch that repay a compiler's quarter of a minute

StepLoss = Callable[[BatchIndex, Generator, Tensor], Loss]


@dataclass(frozen=True)
class Exam:
    """Cells kept from training, to judge by."""

    rows: RowTensors  # what may be seen
    answers: RowTensors  # the held-out cells
    pieces: list[Window]
    seed: int

    def some(self, count: int) -> "Exam":
        """With at most so many pieces that have held-out cells, from here and there."""
        if count >= len(self.pieces):
            return self
        held = self.answers.observed[:-1].any(-1).cumsum(0).cpu().numpy()
        before = np.concatenate([[0], held])
        asked = [piece for piece in self.pieces if before[piece.start + piece.length] > before[piece.start]]
        return replace(self, pieces=asked[:: -(-len(asked) // count)])

    def in_turn(self, count: int) -> "Iterator[Exam]":
        """The same questions in so many parts, of which each may see the answers to the others.

        With all answers hidden at once there would be more gaps than there are in the end. A run of hidden steps is one
        question, in all columns where it begins at the same row.
        """
        held = self.answers.observed
        begins = held & ~held.roll(1, dims=0)
        row = torch.arange(len(held), device=held.device).unsqueeze(-1)
        first = torch.where(begins, row, 0).cummax(0).values
        turn = torch.from_numpy(np.random.default_rng(self.seed).integers(count, size=len(held))).to(held.device)
        for number in range(count):
            asked = held & (turn[first] == number)
            seen, told = self.rows.observed | (held & ~asked), self.answers.values
            rows = replace(self.rows, values=self.rows.values + told * (held & ~asked), observed=seen)
            yield replace(self, rows=rows, answers=replace(self.answers, values=told * asked, observed=asked))

    def questions(self, steps_at_once: int) -> Iterator[tuple[Batch, Batch, Generator]]:
        """Batches of what may be seen, the held-out cells of the same steps, and random numbers."""
        size = max(1, steps_at_once // max(piece.length for piece in self.pieces))
        for first in range(0, len(self.pieces), size):
            cut = BatchIndex.of(self.pieces[first : first + size], self.rows.values.device)
            held = self.answers.batch(cut)
            yield self.rows.batch(cut), held, step_generator(self.seed, first, held.values.device)


@dataclass(eq=False, repr=False, kw_only=True)
class Trained(Imputer):
    """What those imputers share. Their network is `model_`; it has to offer `loss(batch, generator, warmth)`."""

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 1e-3
    anneal: bool = False
    window: int = 64
    validation: float = 0.1
    patience: int | None = None
    standardise: bool = True
    precision: str = "32-true"
    device: str = "auto"
    seed: int = 0
    verbose: bool = False
    model_: Any = field(init=False)

    @abstractmethod
    def _new_network(self, schema: Schema) -> nn.Module:
        """Fresh weights; PyTorch's global generator has been seeded, and is put back afterwards."""

    @abstractmethod
    def _loss(self, network: Any, rows: RowTensors, *, compile: bool) -> StepLoss:
        """What a step of training minimises; `compile` says that the run is long enough to repay a compiler."""

    @abstractmethod
    def _score(self, network: Any, exam: Exam) -> float:
        """How badly the held-out cells are predicted."""

    def fit(
        self, data: Any, y: None = None, *, checkpoint: str | Path | None = None, logs: str | Path | None = None
    ) -> Self:
        self._require_sensible_settings()
        started = time.perf_counter()
        panel = self._read(data)
        schema = self._new_schema(panel)
        panel = panel.with_labels(schema.labels)
        fabric = fabric_for(self.device, self.precision, None if logs is None else Path(logs))
        held_out = self._hold_out(panel, schema)
        rows = schema.rows(panel, panel.observed & ~held_out, fabric.device)
        unasked = replace(rows, observed=torch.zeros_like(rows.observed))
        exam = Exam(
            rows=rows,
            answers=schema.rows(panel, held_out, fabric.device) if held_out.any() else unasked,
            pieces=windows(panel, self.window),
            seed=int(self.seed),
        )
        network = self._seeded_network(schema).to(fabric.device)
        plan = Batches(panel, self.window, self.batch_size or _batch_size(len(exam.pieces)))
        steps = math.ceil(len(exam.pieces) / plan.balanced_size)
        config = self._training_config(steps)
        long = fabric.device.type == "cuda" and steps * config.epochs >= COMPILE_FROM * plan.shapes

        def batches(epoch: int) -> Iterator[BatchIndex]:
            return plan.epoch(epoch_generator(self.seed, epoch), fabric.device)

        with tensor_cores(fabric.device), progress_bar(steps, show=self.verbose) as report:
            self._before(network, exam)
            run = train(
                network,
                self._loss(network, exam.rows, compile=long),
                batches,
                config,
                fabric=fabric,
                validate=(lambda: self._score(network, exam)) if held_out.any() else None,
                checkpoint=Checkpoint(Path(checkpoint), self._fingerprint(panel)) if checkpoint else None,
                harder=self._harder(network, exam.rows, plan.balanced_size),
                report=report,
                groups=self._groups(network),
                compile=long,
            )
            if held_out.any():
                self._afterwards(network, exam)
        self.model_, self.schema_, self.history_ = network.eval(), schema, run.history
        self.held_out_ = HeldOutCells.of(panel, held_out) if held_out.any() else None
        self.seconds_ = time.perf_counter() - started
        return self

    def _new_schema(self, panel: Panel) -> Schema:
        return Schema.of(panel, standardise=self.standardise)

    def _groups(self, network: Any) -> list[dict[str, Any]] | None:
        """Of parameters, where some learn at rates of their own."""
        return None

    def _before(self, network: Any, exam: Exam) -> None:
        """What the network has to know of the data before it is trained."""

    def _harder(self, network: Any, rows: RowTensors, series: int) -> Callable[[bool], None] | None:
        """Turns harder practice on and off, if there is any for batches of so many series."""
        return None

    def _afterwards(self, network: Any, exam: Exam) -> None:
        """What the held-out cells settle once training is over."""

    def _warm_up(self, epochs: int, steps_per_epoch: int) -> int:
        """Epochs over which `warmth` rises to 1."""
        return 0

    def _settings_that_make_sense(self) -> dict[str, tuple[bool, str]]:
        """Which settings are fine, and what is wanted of them."""
        return {
            "epochs": (self.epochs is None or self.epochs >= 1, "at least 1, or None"),
            "batch_size": (self.batch_size is None or self.batch_size >= 1, "at least 1, or None"),
            "learning_rate": (0 < self.learning_rate < math.inf, "above 0"),
            "window": (self.window >= 2, "at least 2"),
            "validation": (0 <= self.validation < 1, "at least 0 and below 1"),
            "patience": (self.patience is None or self.patience >= 1, "at least 1, or None"),
        }

    def _require_sensible_settings(self) -> None:
        for name, (fine, wanted) in self._settings_that_make_sense().items():
            if not fine:
                raise ValueError(f"{name}={getattr(self, name)!r} makes no sense: it is {wanted}")

    def _seeded_network(self, schema: Schema) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(self.seed))
            return self._new_network(schema)

    def _training_config(self, steps_per_epoch: int) -> TrainingConfig:
        enough = math.ceil((STEPS_ANNEALED if self.anneal else STEPS_AT_LEAST) / steps_per_epoch)
        if self.anneal:  # patience does not end it
            enough = min(EPOCHS_AT_MOST, EPOCHS_OF_FEW * max(FEW, steps_per_epoch) // FEW, enough)
        epochs = self.epochs or max(EPOCHS_AT_LEAST, enough)
        return TrainingConfig(
            epochs=epochs,
            learning_rate=self.learning_rate,
            anneal=self.anneal,
            clip_norm=1.0 if self.anneal else 10.0,
            keeps_last=self.keeps_last,
            warm_up=self._warm_up(epochs, steps_per_epoch),
            patience=self.patience or (None if self.anneal else math.ceil(epochs / 5)),
            seed=int(self.seed),
        )

    @property
    def keeps_last(self) -> bool:
        """The weights of the last epoch, or of the best."""
        return False

    def _hold_out(self, panel: Panel, schema: Schema) -> Bools:
        """Cells to judge by, in columns that vary: half in gaps like those to be filled, if there are any."""
        learnable = panel.observed & schema.scaling.varies
        if round(self.validation * learnable.sum()) < 1:
            return np.zeros(panel.values.shape, dtype=bool)
        known = panel.with_values(np.where(learnable, panel.values, np.nan))
        gaps = np.zeros(learnable.shape, dtype=bool)
        if not panel.observed.all():
            gaps = missingness.like_own(known, self.validation / 2, [self.seed, 2])
        cells = learnable.sum() - gaps.sum()
        share = (round(self.validation * learnable.sum()) - gaps.sum()) / cells
        return gaps | missingness.random(missingness.hide(known, gaps), share, [self.seed, 1])

    def _fingerprint(self, panel: Panel) -> str:
        """Of the settings and the data that decide how training goes."""
        settings = {k: v for k, v in self._settings().items() if k not in ("device", "verbose")}
        digest = hashlib.sha256(json.dumps([self.name, settings, {"order": ORDER}]).encode())
        for array in (panel.values, panel.times, panel.lengths):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def _batches_of(
        self, panel: Panel, parts: list[PredictionWindow], steps_at_once: int, seed: int
    ) -> Iterator[tuple[NDArray[np.int64], Tensor, Batch, Generator]]:
        """Rows to predict; where they stand in a flattened (batch, time); the batch; and random numbers for it."""
        device = self._device
        rows = self.schema_.rows(panel, panel.observed, device)
        with tensor_cores(device):
            for number, group in enumerate(group_by_length(parts, steps_at_once)):
                cut = BatchIndex.of([piece for piece, _ in group], device)
                steps = [np.arange(keep.start, keep.stop) for _, keep in group]
                found = np.concatenate([piece.start + kept for (piece, _), kept in zip(group, steps, strict=True)])
                places = np.concatenate([i * cut.time + kept for i, kept in enumerate(steps)])
                generator = step_generator(seed, number, device)
                yield found, torch.from_numpy(places).to(device), rows.batch(cut), generator

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"seed": int(self.seed)}  # NumPy's integers are none to JSON

    @property
    def _device(self) -> torch.device:
        return next(self.model_.parameters()).device

    @classmethod
    def _from_settings(cls, settings: dict[str, Any], device: str) -> Self:
        return cls(**{**settings, "device": device})

    def _tensors(self) -> dict[str, Tensor]:
        return self.model_.state_dict()

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        network = self._seeded_network(self.schema_)
        network.load_state_dict(tensors)
        self.model_ = network.to(fabric_for(self.device, self.precision).device).eval()


def _batch_size(pieces: int) -> int:
    return min(LARGEST_BATCH, max(SMALLEST_BATCH, pieces // BATCHES))


class PointNetwork(Protocol):
    """A network that gives single values."""

    @property
    def widest(self) -> int:
        """The most numbers that it makes of one time step."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...

    def loss(self, batch: Batch, generator: Generator, warmth: Tensor | float = 1.0) -> Loss: ...

    def fill(self, batch: Batch, generator: Generator) -> Tensor:
        """A value for every cell. (batch, time, feature)"""
        ...


class PointImputer(Trained):
    """Those that give single values: judged by the absolute error of held-out cells."""

    JUDGED: ClassVar[int] = 10**9  # pieces to judge by: fewer for those that are slow to fill

    def _loss(self, network: PointNetwork, rows: RowTensors, *, compile: bool) -> StepLoss:
        return lambda cut, generator, warmth: network.loss(rows.batch(cut), generator, warmth)

    @torch.no_grad()
    def _score(self, network: PointNetwork, exam: Exam) -> float:
        error, cells = 0.0, 0
        for batch, held, generator in exam.some(self.JUDGED).questions(_steps_at_once(network)):
            errors = (network.fill(batch, generator) - held.values).abs() * held.observed
            error, cells = error + float(errors.sum()), cells + int(held.observed.sum())
        return error / cells

    def _parts(self, panel: Panel) -> list[PredictionWindow]:
        """What is filled in one go: whole series, unless the method is not made for long ones."""
        return [(piece, slice(0, piece.length)) for piece in series_windows(panel)]

    @torch.no_grad()
    def _fill(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        scaled = np.zeros(panel.values.shape, dtype=np.float32)
        steps = _steps_at_once(self.model_)
        for rows, keep, batch, generator in self._batches_of(panel, self._parts(panel), steps, seed):
            scaled[rows] = self.model_.fill(batch, generator).flatten(0, 1)[keep].float().cpu().numpy()
        return Prediction(self.schema_.scaling.undo(scaled[missing], np.nonzero(missing)[1]))


def _steps_at_once(network: PointNetwork) -> int:
    device = next(network.parameters()).device
    return max(1, NUMBERS_AT_ONCE[device.type] // network.widest)


def rows_of(pieces: list[Window]) -> NDArray[np.int64]:
    """The rows of a panel that a batch of pieces holds, in the batch's order."""
    return np.concatenate([np.arange(piece.start, piece.start + piece.length) for piece in pieces])
