"""Methods that predict single values: validated by the absolute error of held-out cells."""

from typing import Protocol, cast

import numpy as np
import torch
from torch import Generator, Tensor, nn

from gpvae.data.batches import Batch, BatchIndex, PredictionWindow, RowTensors, prediction_windows, series_windows
from gpvae.data.panel import Bools, Panel
from gpvae.data.schema import Schema
from gpvae.imputers.base import Prediction
from gpvae.imputers.held_out import HeldOut
from gpvae.imputers.neural import NUMBERS_AT_ONCE, Method, prediction_batches
from gpvae.models.likelihoods.sampling import Random
from gpvae.models.loss import Loss
from gpvae.training.recipe import Recipe


class PointNetwork(Protocol):
    """A network that fills in single values."""

    @property
    def widest(self) -> int:
        """The most numbers that it computes for one time step."""
        ...

    def loss(self, batch: Batch, generator: Generator, kl_scale: Tensor | float = 1.0) -> Loss: ...

    def fill(self, batch: Batch, random: Random) -> Tensor:
        """A value for every cell. (batch, time, feature)"""
        ...


class BatchLoss(nn.Module):
    """The loss of a network on batches of `rows`."""

    def __init__(self, network: nn.Module, rows: RowTensors):
        super().__init__()
        self.network, self.rows = network, rows

    def forward(self, index: BatchIndex, generator: Generator, kl_scale: Tensor) -> Loss:
        return cast(PointNetwork, self.network).loss(self.rows.batch(index), generator, kl_scale)


class PointMethod(Method):
    """A `PointNetwork`."""

    def __init__(
        self,
        network: PointNetwork,
        schema: Schema,
        recipe: Recipe,
        *,
        windowed: bool = False,
        validated_windows: int = 10**9,
    ):
        """`windowed`: long series are filled in windows. `validated_windows`: fewer for networks slow to fill."""
        assert isinstance(network, nn.Module)
        super().__init__(network, schema, recipe)
        self.point: PointNetwork = network
        self.windowed, self.validated_windows = windowed, validated_windows

    def objective(self, rows: RowTensors, *, compile: bool) -> nn.Module:
        return BatchLoss(self.network, rows)

    @torch.no_grad()
    def score(self, held_out: HeldOut) -> float:
        error, cells = 0.0, 0
        for batch, targets, generator in held_out.subset(self.validated_windows).batches(self._steps_at_once()):
            errors = (self.point.fill(batch, generator) - targets.values).abs() * targets.observed
            error, cells = error + float(errors.sum()), cells + int(targets.observed.sum())
        return error / cells

    @torch.no_grad()
    def predict(self, panel: Panel, missing: Bools, samples: int, seed: int) -> Prediction:
        scaled = np.zeros(panel.values.shape, dtype=np.float32)
        parts = parts_of(panel, self.recipe.window if self.windowed else None)
        for rows, places, batch, streams in prediction_batches(self, panel, parts, self._steps_at_once(), seed):
            scaled[rows] = self.point.fill(batch, streams).flatten(0, 1)[places].float().cpu().numpy()
        return Prediction(self.schema.scaling.undo(scaled[missing], np.nonzero(missing)[1]))

    def _steps_at_once(self) -> int:
        return max(1, NUMBERS_AT_ONCE[self.device.type] // self.point.widest)


def parts_of(panel: Panel, window: int | None = None) -> list[PredictionWindow]:
    """Every series whole, or in overlapping windows."""
    series = series_windows(panel)
    if window is None:
        return [(whole, slice(0, whole.length)) for whole in series]
    return [part for whole in series for part in prediction_windows(whole, window)]
