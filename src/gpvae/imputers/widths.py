"""How wide intervals are, by column and kind of gap: decided by held-out cells, and counted."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from gpvae.data.panel import Bools, Panel
from gpvae.data.runs import find_runs
from gpvae.imputers.calibration import LEVEL, fit_log_factors

KINDS = (
    "single cells and pairs",
    "gaps of 3 to 12 rows, other columns there",
    "longer gaps, other columns there",
    "outages of all columns, 3 to 12 rows",
    "longer outages of all columns",
)
PAIR, SHORT = 2, 12  # rows
TAILS = (3.0, 4.0, 6.0, 10.0, 30.0)  # degrees of freedom to choose from
PRIOR_CELLS = 50  # of a column, that weigh as much as those of all others
BLENDS = torch.linspace(0, 1, 9)


def gap_kinds(panel: Panel, columns: Bools) -> NDArray[np.int64]:
    """The index among `KINDS` of each missing cell of these columns, -1 elsewhere. (row, column of `columns`)"""
    missing = ~panel.observed[:, columns]
    kinds = np.full(missing.shape, -1)
    if missing.any():
        runs = find_runs(panel, missing)
        row, column = runs.cells()
        length = np.repeat(runs.length, runs.length)
        outage = np.all(missing, axis=1)[row]
        kinds[row, column] = np.where(length <= PAIR, 0, 1 + (length > SHORT) + 2 * outage)
    return kinds


class Evidence(NamedTuple):
    """Held-out cells, and what the model made of them. (cell,)"""

    column: NDArray[np.int64]
    kind: NDArray[np.int64]
    residual: Tensor  # (y - m) / s
    shift: Tensor  # a
    log_scale: Tensor  # b
    mean: Tensor  # m
    std: Tensor  # s


@dataclass(frozen=True)
class Widths:
    """y ~ m + s (w_d a + exp(w_d b + c_d + g_d,kind) ε),  ε ~ Student's t"""

    blend: Tensor  # (column,) w: how far the network is followed
    column: Tensor  # (column,) c
    kind: Tensor  # (column, kind) g
    tails: Tensor  # () degrees of freedom
    cells: Tensor  # (kind,) held-out cells that this rests on

    @classmethod
    def untrained(cls, columns: int) -> "Widths":
        nothing = torch.zeros(columns, len(KINDS), dtype=torch.float64)
        tails = torch.tensor(TAILS[-1], dtype=torch.float64)
        return cls(nothing[:, 0].clone(), nothing[:, 0].clone(), nothing, tails, nothing.sum(0))

    def log_scale(self, decoded: Tensor, kinds: NDArray[np.int64]) -> Tensor:
        """Of all cells, those that are not missing included. (row, column)"""
        kind = torch.from_numpy(np.maximum(kinds, 0))
        return self.blend * decoded + self.column + self.kind.T.gather(0, kind)

    def located(self, evidence: Evidence) -> tuple[Tensor, Tensor]:
        """Location and scale of held-out cells. (cell,)"""
        column, kind = torch.from_numpy(evidence.column), torch.from_numpy(evidence.kind)
        blend = self.blend[column]
        log_scale = blend * evidence.log_scale + self.column[column] + self.kind[column, kind]
        return evidence.mean + evidence.std * blend * evidence.shift, evidence.std * log_scale.exp()


def fit_widths(evidence: Evidence, columns: int) -> Widths:
    """Blends, tails and factors, in this order. Columns that there is no evidence about keep the linear model's widths.

    Those are tied to others almost exactly, or have few cells.
    """
    blend = _blends(evidence, columns)
    column = torch.from_numpy(evidence.column)
    shift, log_scale = blend[column] * evidence.shift, blend[column] * evidence.log_scale
    z = ((evidence.residual - shift) * torch.exp(-log_scale)).double()
    tails = _tails(z)
    furthest = float(special.stdtrit(tails, (1 + LEVEL) / 2))
    needed = np.log(np.maximum(z.abs().numpy(), 1e-6) / furthest)
    weights = np.eye(len(KINDS))[evidence.kind]
    present = np.unique(evidence.column).tolist()
    of_column = {d: (needed[evidence.column == d], weights[evidence.column == d]) for d in present}
    by_column, by_kind = fit_log_factors(of_column)
    factors = np.full(columns, normal_log_factor(tails))
    kind = np.zeros((columns, len(KINDS)))
    factors[present], kind[present] = [by_column[d] for d in present], by_kind
    return Widths(
        blend * torch.isin(torch.arange(columns), torch.tensor(present)),
        torch.from_numpy(factors),
        torch.from_numpy(kind),
        torch.tensor(tails, dtype=torch.float64),
        torch.from_numpy(weights.sum(0)),
    )


def normal_log_factor(tails: float) -> float:
    """On the scale of Student's t, so that its 90 % interval is that of a normal distribution."""
    return float(np.log(special.ndtri((1 + LEVEL) / 2) / special.stdtrit(tails, (1 + LEVEL) / 2)))


def _blends(evidence: Evidence, columns: int) -> Tensor:
    """For each column that under which its held-out cells, and a few of the others, are likeliest. (column,)"""
    residual, shift, log_scale = (x.double() for x in evidence[2:5])
    w = BLENDS.double().unsqueeze(1)
    loss = _student_nll(residual - w * shift, w * log_scale, torch.tensor(5.0)).T  # (cell, blend)
    total = torch.zeros(columns, len(BLENDS), dtype=torch.float64)
    total.index_add_(0, torch.from_numpy(evidence.column), loss)
    count = torch.from_numpy(np.bincount(evidence.column, minlength=columns)).double().unsqueeze(1)
    others = (total.sum(0) - total) / (count.sum() - count).clamp(min=1)
    return BLENDS.double()[(total + PRIOR_CELLS * others).argmin(1)]


def _tails(z: Tensor) -> float:
    """Degrees of freedom under which z is likeliest, at the scale that suits each best."""
    scales = torch.linspace(-1.5, 1.5, 31, dtype=torch.float64).unsqueeze(1)
    losses = [float(_student_nll(z, scales, torch.tensor(tails)).mean(1).min()) for tails in TAILS]
    return TAILS[int(np.argmin(losses))]


def _student_nll(error: Tensor, log_scale: Tensor, tails: Tensor) -> Tensor:
    """-log density of Student's t."""
    tails = tails.double()
    scaled = (error * torch.exp(-log_scale)).square() / tails
    constant = torch.lgamma(tails / 2) - torch.lgamma((tails + 1) / 2) + 0.5 * torch.log(torch.pi * tails)
    return log_scale + (tails + 1) / 2 * torch.log1p(scaled) + constant
