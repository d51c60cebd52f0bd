"""A point of a training run, in memory or in a file, from which it continues bit for bit."""

import json
from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from gpvae.data.atomic import atomic_write
from gpvae.data.codec import from_json
from gpvae.data.sealed import BLANK, read_regular, require_seal, seal
from gpvae.training.config import TrainingError
from gpvae.training.state import Snapshots, TrainState, Weights, copy_weights

STAGES = ("planned", "mixup")  # of a forked run


@dataclass(frozen=True)
class Start:
    """What a run continues from."""

    weights: Weights
    moments: Weights  # of the optimiser, as "0.exp_avg", by the number of the parameter
    snapshots: Snapshots
    state: TrainState

    @classmethod
    def of(cls, module: nn.Module, optimizer: torch.optim.Optimizer, snapshots: Snapshots, state: TrainState) -> Self:
        """A copy of the tensors of a run."""
        moments = optimizer.state_dict()["state"]
        named = {f"{i}.{name}": value for i, moment in moments.items() for name, value in moment.items()}
        kept = Snapshots(_copy(snapshots.best), _copy(snapshots.average))
        return cls(copy_weights(module), _copy(named), kept, state)

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[TrainState, Snapshots]:
        """Put the tensors into `module` and `optimizer`; what they are trained with from now on is a copy."""
        module.load_state_dict(self.weights)
        moments: dict[int, Weights] = {}
        for name, value in self.moments.items():
            number, moment = name.split(".", 1)
            moments.setdefault(int(number), {})[moment] = value.clone()
        optimizer.load_state_dict({"state": moments, "param_groups": optimizer.state_dict()["param_groups"]})
        device = next(module.parameters()).device
        best, average = (_copy(weights, device) for weights in (self.snapshots.best, self.snapshots.average))
        return deepcopy(self.state), Snapshots(best, average)


@dataclass(frozen=True)
class Checkpoint:
    """A run in a safetensors file. `fingerprint` identifies its data and settings; no other run continues from it."""

    path: Path
    fingerprint: str

    def stage(self, name: str) -> "Checkpoint":
        """The file of one branch of a forked run."""
        assert name in STAGES
        return replace(self, path=self.path.with_name(f"{self.path.name}.{name}"))

    def exists(self) -> bool:
        return self.path.exists()

    def remove(self) -> None:
        """Delete the file and those of all stages."""
        for checkpoint in (self, *map(self.stage, STAGES)):
            checkpoint.path.unlink(missing_ok=True)

    def save(self, start: Start) -> None:
        tensors = {
            **_prefixed("weights.", start.weights),
            **_prefixed("moments.", start.moments),
            **_prefixed("best.", start.snapshots.best),
            **_prefixed("average.", start.snapshots.average),
        }
        header = {"fingerprint": self.fingerprint, "state": json.dumps(asdict(start.state)), "sha256": BLANK}
        content = save_tensors({name: value.cpu().contiguous() for name, value in tensors.items()}, header)
        with atomic_write(self.path, force=True) as partial:
            partial.write_bytes(seal(content))

    def load(self) -> Start:
        tensors, header = self._read()
        if header.get("fingerprint") != self.fingerprint:
            raise TrainingError(f"{self.path} belongs to a run with other data or settings; delete it to start again")
        return Start(
            weights=_without_prefix("weights.", tensors),
            moments=_without_prefix("moments.", tensors),
            snapshots=Snapshots(_without_prefix("best.", tensors), _without_prefix("average.", tensors)),
            state=self._state(header.get("state", "")),
        )

    def restore(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[TrainState, Snapshots]:
        start = self.load()
        try:
            return start.restore(module, optimizer)
        except (KeyError, RuntimeError, ValueError) as error:  # tensors are missing, or of other shapes
            raise self._damaged(error) from error

    def _read(self) -> tuple[Weights, dict[str, str]]:
        try:
            content = read_regular(self.path)
            tensors, header = load_tensors(content), _header(content)
            if header.get("fingerprint") == self.fingerprint:
                require_seal(content, header.get("sha256"))
        except (SafetensorError, OSError, ValueError, RecursionError, MemoryError) as error:
            raise self._damaged(error) from error
        return tensors, header

    def _state(self, text: str) -> TrainState:
        try:
            values = json.loads(text)
            known = {field.name for field in fields(TrainState)}
            if not isinstance(values, dict) or values.keys() != known:
                raise ValueError(f"its state must have the fields {', '.join(sorted(known))}")
            return from_json(TrainState, values)
        except (ValueError, RecursionError) as error:
            raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> TrainingError:
        reason = str(error).partition("\n")[0]
        return TrainingError(f"{self.path} is not a checkpoint, or a damaged one ({reason}): delete it to start again")


def _header(content: bytes) -> dict[str, str]:
    """The metadata of a safetensors file: behind 8 bytes that say how long it is."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return header.get("__metadata__", {})


@torch.no_grad()
def _copy(tensors: Weights, device: torch.device | None = None) -> Weights:
    return {name: value.to(device or value.device, copy=True) for name, value in tensors.items()}


def _prefixed(prefix: str, tensors: Weights) -> Weights:
    return {prefix + name: value for name, value in tensors.items()}


def _without_prefix(prefix: str, tensors: dict[str, Tensor]) -> Weights:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
