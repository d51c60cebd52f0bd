"""Teaching a recurrent network the labels of series, along with filling their gaps."""

import math
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from gpvae.data.batches import Batch, BatchIndex, RowTensors
from gpvae.data.panel import Panel
from gpvae.data.schema import Schema
from gpvae.imputers.point import PointMethod, PointNetwork
from gpvae.models.loss import Loss
from gpvae.training.recipe import Recipe


class RecurrentNetwork(PointNetwork, Protocol):
    hidden: int

    def loss_and_states(self, batch: Batch) -> tuple[Loss, Tensor]:
        """The loss of filling gaps, and the states behind each series' last step. (direction, batch, hidden)"""
        ...


def labels_of_rows(y: Any, panel: Panel) -> Tensor:
    """The label of each row's series, NaN where unknown. (row,)"""
    labels = np.asarray(y, dtype=np.float32)
    if labels.shape != (len(panel),):
        raise ValueError(f"y must have a label for each of the {len(panel)} series, got the shape {labels.shape}")
    if not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        raise ValueError("labels must be 0 or 1, or NaN where unknown")
    return torch.from_numpy(labels[panel.series_of_row])


class LabelHead(nn.Module):
    """The log-odds of a label from the state of each direction. (direction, batch, hidden) → (direction, batch)"""

    def __init__(self, hidden: int):
        super().__init__()
        bound = 1 / math.sqrt(hidden)
        self.weight = nn.Parameter(torch.empty(2, hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2).uniform_(-bound, bound))

    def forward(self, states: Tensor) -> Tensor:
        return (states @ self.weight.unsqueeze(-1)).squeeze(-1) + self.bias.unsqueeze(-1)


class LabelledLoss(nn.Module):
    """The loss of a network on batches of `rows`, and that of predicting labels from the last states of each direction:

    share · weight · mean cross-entropy of the known labels, both directions added

    The share of cells that are observed scales it as it scales the errors of values.
    """

    def __init__(self, network: nn.Module, head: LabelHead, rows: RowTensors, labels: Tensor, weight: float):
        """`labels` (row,) are those of each row's series, NaN where unknown."""
        super().__init__()
        self.network, self.head, self.rows, self.labels, self.weight = network, head, rows, labels, weight

    def forward(self, index: BatchIndex, generator: Generator, kl_scale: Tensor) -> Loss:
        batch = self.rows.batch(index)
        loss, states = cast(RecurrentNetwork, self.network).loss_and_states(batch)
        labels = torch.where(index.lengths > 0, self.labels[index.starts], torch.nan)
        share = batch.observed.sum() / (batch.lengths.sum() * batch.observed.shape[-1])
        label = share * self.weight * _cross_entropy(self.head(states), labels)
        return Loss(loss.total + label, {**loss.parts, "label": label})


def _cross_entropy(logit: Tensor, labels: Tensor) -> Tensor:
    """(direction, batch), (batch,)"""
    known = ~labels.isnan()
    target = torch.where(known, labels, 0).to(logit.dtype).expand_as(logit)
    error = binary_cross_entropy_with_logits(logit, target, reduction="none")
    return (error * known).sum() / known.sum().clamp(min=1)


class LabelledMethod(PointMethod):
    """A network that is also taught labels. The head that predicts them serves training only and is not saved."""

    labels: Tensor  # (row,) of each row's series, NaN where unknown

    def __init__(self, network: RecurrentNetwork, schema: Schema, recipe: Recipe, weight: float):
        super().__init__(network, schema, recipe)
        self.weight, self.head = weight, LabelHead(network.hidden)

    def to(self, device: torch.device) -> None:
        super().to(device)
        self.head.to(device)

    def objective(self, rows: RowTensors, *, compile: bool) -> nn.Module:
        return LabelledLoss(self.network, self.head, rows, self.labels.to(rows.values.device), self.weight)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": [*self.network.parameters(), *self.head.parameters()]}]
