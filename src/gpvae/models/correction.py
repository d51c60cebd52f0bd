"""What a network adds to the exact linear model: a decoder on each step, as in the paper, that starts from it.

    y_td | visible = m_td + s_td (a_td + exp(b_td) ε_td),    ε_td ~ Student's t
    a_t, b_t = MLP(x_{t-2}, …, x_{t+2}, and x_{t±P} for a period P)

m_td and s_td are mean and deviation that the linear model gives a cell from all that is visible (`models.factor`), in
its warped units. x_t holds, for each column, the visible value or else m_td, how far that may be off (0 or s_td), and
whether it is visible; and the time to the next row. The network begins with a = b = 0: with the linear model.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

NEAR = (-2, -1, 0, 1, 2)  # rows that the network sees
OVERTONE = 6  # a period that is a half, a third, … to this part of another one


@dataclass(frozen=True)
class CoreRows:
    """What the linear model says of rows, given what is visible of them."""

    mean: Tensor  # (row, column) m
    std: Tensor  # (row, column) s, noise included
    inputs: Tensor  # (row + 1, 3 columns + 1) x; the last row stands for those beyond the ends of a series

    @classmethod
    def of(cls, values: Tensor, visible: Tensor, mean: Tensor, std: Tensor, log_step: Tensor) -> "CoreRows":
        """Of `values` (row, column) only the visible ones count; `log_step` (row,) is of the time to the next row."""
        known = torch.where(visible, values, mean)
        doubt = torch.where(visible, 0, std)
        x = torch.cat([known, doubt, visible.to(mean.dtype), log_step.unsqueeze(1)], dim=1)
        return cls(mean, std, torch.cat([x, torch.zeros_like(x[:1])]).float())


def lags_of(periods: Sequence[float], rows: float) -> tuple[int, ...]:
    """Where to look, in rows: near, and a season away; `periods` of series of so many rows, the strongest first.

    A season need not be a wave: what was there a day before and after says more than waves of a day do. A second season
    made the network too wide for what there was to learn from.
    """
    for period in periods:
        overtone = any(abs(other / k / period - 1) < 0.02 for other in periods for k in range(2, OVERTONE + 1))
        if len(NEAR) <= period <= rows / 2 and not overtone:
            return (-round(period), *NEAR, round(period))
    return NEAR


def neighbours(lengths: Tensor, lags: Sequence[int]) -> Tensor:
    """The rows at these lags from each row of series of these lengths; beyond their ends, the number of rows.

    (row, lag)
    """
    ends = lengths.cumsum(0)
    first, last = (torch.repeat_interleave(x, lengths).unsqueeze(1) for x in (ends - lengths, ends - 1))
    found = torch.arange(int(ends[-1])).unsqueeze(1) + torch.tensor(lags)
    return torch.where((found < first) | (found > last), int(ends[-1]), found)


class Correction(nn.Module):
    """a and b of rows. (row, lag, input) → (row, column) each"""

    SHIFT, LOG_SCALE = 10.0, 3.0  # of a and b, at most
    low: Tensor  # (input,) the range of what was seen in training; what lies beyond is taken for its end
    high: Tensor

    def __init__(self, columns: int, lags: tuple[int, ...], *, width: int, dropout: float = 0.0):
        super().__init__()
        self.lags, self.width = lags, width
        self.layers = nn.Sequential(
            *(nn.Linear(len(lags) * (3 * columns + 1), width), nn.SiLU(), nn.Dropout(dropout)),
            *(nn.Linear(width, width), nn.SiLU(), nn.Dropout(dropout)),
        )
        self.register_buffer("low", torch.full((3 * columns + 1,), -math.inf))
        self.register_buffer("high", torch.full((3 * columns + 1,), math.inf))
        self.head = nn.Linear(width, 2 * columns)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def suited(cls, columns: int, lags: tuple[int, ...], rows: int) -> "Correction":
        """To learn from so many rows: the fewer there are, the narrower, and the more is dropped out."""
        root = math.sqrt(rows)
        width, dropout = 16 * round(min(256, max(48, 2 * root)) / 16), min(0.4, max(0.1, 10 / root))
        return cls(columns, lags, width=width, dropout=dropout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.minimum(torch.maximum(x, self.low), self.high)
        shift, log_scale = self.head(self.layers(x.flatten(1))).chunk(2, dim=1)
        return self.SHIFT * torch.tanh(shift / self.SHIFT), self.LOG_SCALE * torch.tanh(log_scale / self.LOG_SCALE)

    def see(self, inputs: Tensor) -> None:
        """Remember the range of these inputs (…, input) and of those before."""
        low, high = inputs.flatten(0, -2).aminmax(dim=0)
        seen = self.low.isfinite()
        self.low.copy_(torch.where(seen, torch.minimum(self.low, low), low))
        self.high.copy_(torch.where(seen, torch.maximum(self.high, high), high))

    @torch.no_grad()
    def of_rows(self, inputs: Tensor, neighbours: Tensor, chunk: int = 2**14) -> tuple[Tensor, Tensor]:
        """Of all rows, some at a time; `inputs` as those of `CoreRows`. (row, column) each"""
        parts = [self(inputs[each]) for each in neighbours.split(chunk)]
        shift, log_scale = (torch.cat(x) for x in zip(*parts, strict=True))
        return shift, log_scale
