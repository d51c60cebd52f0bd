"""What the default adds to the paper's model: the nearest visible values of each cell.

    c_td: the nearest visible values of column d before and after step t, and the line between them

The encoder sees them beside the values, and what the columns of a step say together, whichever are visible. The decoder
starts from the line and says how far to go from there:

    a_t, e_t = dense layers(z_t, c_t)                                    e_td: an embedding of each cell
    location_td = a_td + cell_mlp(e_td, c_td)_1 + sigmoid(line_logit_d) line_td
    log scale_td = a'_td + cell_mlp(e_td, c_td)_2
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from gpvae.data.batches import Batch, NearestVisible
from gpvae.models.encoders import mlp, require_positive
from gpvae.models.inputs import Decoder, Features, Inputs, InputsSpec, log_steps, single_precision
from gpvae.models.likelihoods import Likelihood, Params

CELLS_AT_ONCE = 2**18  # that networks on cells are given outside of training
CONTEXT = len(NearestVisible._fields)


@dataclass(frozen=True)
class NearestValues(InputsSpec):
    """Values, which are observed, time steps, and the nearest visible values of real columns.

    cell_width: width of the decoder's network that all cells of real columns share.
    column_width: width of the encoder's attention over the real columns of a step.
    """

    cell_width: int = 64
    column_width: int = 48

    def __post_init__(self) -> None:
        require_positive(self, "cell_width", "column_width")

    def build(self, likelihood: Likelihood) -> "ContextInputs":
        return ContextInputs(likelihood, self.column_width)

    def build_decoder(self, latent_dim: int, widths: tuple[int, ...], likelihood: Likelihood) -> "ContextDecoder":
        return ContextDecoder(latent_dim, widths, likelihood, self.cell_width)


class ContextInputs(Inputs):
    """Values, observed, time steps, context, and attention over columns; padding is zeroed by the model."""

    real: Tensor  # (real column,) features with a context

    def __init__(self, likelihood: Likelihood, column_width: int):
        super().__init__()
        self.register_buffer("real", likelihood.real_columns(), persistent=False)
        columns = len(self.real)
        self.column_attention = ColumnAttention(columns, 2 + CONTEXT, width=column_width) if columns else None
        attended = self.column_attention.outputs if self.column_attention else 0
        self.channels = likelihood.inputs + likelihood.features + CONTEXT * columns + 1 + attended
        self.widest = max(self.channels, columns * max(2 + CONTEXT, column_width))

    def forward(self, embedded: Tensor, batch: Batch) -> Features:
        values, visible = batch.values[..., self.real], batch.observed[..., self.real]
        context = torch.stack(NearestVisible.of(values, visible, batch.times), dim=-2)  # (batch, time, 5, real column)
        x = [embedded, batch.observed.to(embedded.dtype), context.flatten(-2), log_steps(batch)]
        if self.column_attention is not None:
            x.append(self._across_columns(values, visible, context))
        return Features(torch.cat(x, dim=-1), context)

    def _across_columns(self, values: Tensor, visible: Tensor, context: Tensor) -> Tensor:
        """What the cells of each step say together, of their values and context. (batch, time, output)"""
        cells = torch.cat([torch.stack([values * visible, visible.to(values.dtype)], dim=-1), context.mT], dim=-1)
        steps = max(1, CELLS_AT_ONCE // len(self.real))
        attention = cast(ColumnAttention, self.column_attention)
        return in_chunks(attention, steps, cells.flatten(0, 1), visible.flatten(0, 1)).unflatten(0, cells.shape[:2])


class ColumnAttention(nn.Module):
    """Attention over the cells of a step, whichever are visible. (..., column, channel) → (..., output)

    h_d = relu(V relu(U x_d + e_d))                                           x_d: a cell; e_d: learned for its column
    Σ_d softmax_d(query_q · h_d / √width - `HIDDEN_PENALTY` [d is hidden]) h_d        for each of the `QUERIES` q

    A dense layer would have to learn what to make of every gap; here hidden cells weigh less, and visible ones more.
    """

    QUERIES = 8
    HIDDEN_PENALTY = 2.0  # hidden cells begin with e⁻² of the weight: their context has something to say too
    FIRST_STD = 0.3  # of what is learned about columns and queries, in the beginning

    def __init__(self, columns: int, channels: int, *, width: int):
        super().__init__()
        self.embed, self.dense = nn.Linear(channels, width), nn.Linear(width, width)
        self.column = nn.Parameter(self.FIRST_STD * torch.randn(columns, width))
        self.query = nn.Parameter(self.FIRST_STD * torch.randn(self.QUERIES, width))

    @property
    def outputs(self) -> int:
        return self.query.numel()

    def forward(self, x: Tensor, visible: Tensor) -> Tensor:
        h = self.dense((self.embed(x) + self.column).relu()).relu()
        weight = h @ self.query.mT / self.query.shape[-1] ** 0.5 - self.HIDDEN_PENALTY * ~visible.unsqueeze(-1)
        return (weight.softmax(-2).mT @ h).flatten(-2)


class ContextDecoder(Decoder):
    """Dense layers on each step, a network that all cells share, and the line between the nearest visible values."""

    EMBEDDING = 8  # numbers that the dense layers pass on for each cell

    def __init__(self, latent_dim: int, widths: tuple[int, ...], likelihood: Likelihood, cell_width: int):
        super().__init__()
        columns, self.outputs = len(likelihood.real_columns()), likelihood.outputs
        self.dense = mlp([latent_dim + CONTEXT * columns, *widths, self.outputs + self.EMBEDDING * columns])
        self.cell_mlp = mlp([self.EMBEDDING + CONTEXT, cell_width, cell_width, 2])
        self.line_logit = nn.Parameter(torch.ones(columns))
        per_cell = max(self.EMBEDDING + CONTEXT, cell_width)
        self.widest = max(*widths, likelihood.widest + self.EMBEDDING * columns, columns * per_cell)
        zero_init(self.dense[-1], self.outputs)  # what is decoded begins as the line
        zero_init(self.cell_mlp[-1])

    def forward(self, z: Tensor, context: Tensor, likelihood: Likelihood) -> Params:
        flat = context.flatten(-2)
        decoded = single_precision(self.dense(torch.cat([z, flat.expand(*z.shape[:-1], -1)], dim=-1)))
        params = likelihood.unpack(decoded[..., : self.outputs])
        if not len(self.line_logit):
            return params
        embedding = decoded[..., self.outputs :].unflatten(-1, (-1, self.EMBEDDING))
        location, log_scale = self._per_cell(embedding, context.mT).unbind(-1)
        line = context[..., 0, :] * self.line_logit.sigmoid()
        return likelihood.shift(params, location + line.to(location.dtype), log_scale)

    def _per_cell(self, embedding: Tensor, context: Tensor) -> Tensor:
        """What the network that all cells share adds to location and log scale. (..., real column, 2)

        It learns from all columns at once what a value two hours ago is worth; other columns reach it only through the
        embedding.
        """
        cells = torch.cat([embedding, context.expand(*embedding.shape[:-1], -1).to(embedding.dtype)], dim=-1)
        added = in_chunks(self.cell_mlp, CELLS_AT_ONCE, cells.flatten(0, -2)).view(*cells.shape[:-1], 2)
        return single_precision(added)


def in_chunks(network: nn.Module, count: int, *inputs: Tensor) -> Tensor:
    """A network on many rows; outside of training `count` at a time, because a long and wide table has many cells."""
    if torch.is_grad_enabled():
        return network(*inputs)
    return torch.cat([network(*chunk) for chunk in zip(*(x.split(count) for x in inputs), strict=True)])


def zero_init(layer: nn.Module, outputs: int | None = None) -> None:
    """Let the first outputs of a layer, or all, begin as zeros."""
    assert isinstance(layer, nn.Linear)
    nn.init.zeros_(layer.weight[:outputs].detach())
    nn.init.zeros_(layer.bias[:outputs].detach())
