"""Cells with a known value that were filled while they were hidden."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gpvae import missingness
from gpvae.data.panel import Bools, Floats, Panel
from gpvae.data.scaling import CLASSES, Scaling
from gpvae.imputers.base import Imputer
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.simple import Forward, Linear, Mean
from gpvae.report.capabilities import held_out_caveat, method_of

MAX_ROWS = 2_500  # rows that are filled again for a report
ADVICE = "To check it, run gpvae evaluate … --report (in Python gpvae.evaluate), which hides some cells and fills them."


@dataclass(frozen=True)
class Evidence:
    """Cells whose value is known, and the imputation that filled them while they were hidden."""

    imputation: Imputation
    truth: Floats  # (row, feature)
    cells: Bools  # (row, feature)
    others: Mapping[str, Imputation] = field(default_factory=dict)
    caveat: str = ""  # why the cells are not independent of the imputer; empty if they are
    whole: Panel | None = None  # all data, with the cells hidden, if these rows are only a part of it

    @cached_property
    def units(self) -> Scaling:
        """Means and deviations of all data, without the cells."""
        return Scaling.of(self.imputation.panel if self.whole is None else self.whole, standardise=True)

    @cached_property
    def numeric_cells(self) -> Bools:
        """The cells of numeric columns that vary and that every method fills. (row, feature)"""
        cells = self.cells & ~self.imputation.of_kind(*CLASSES) & self.units.varies
        for imputation in (self.imputation, *self.others.values()):
            cells = cells & ~np.isnan(imputation.mean_rows)
        return cells


def held_out_evidence(imputation: Imputation) -> Evidence | str:
    """Fill again the cells that the imputer held out when it was fitted to this data, or say why that is impossible."""
    imputer: Imputer | None = imputation.imputer
    if imputer is None:
        return f"The imputer is not available, so no cell with a known value was filled. {ADVICE}"
    if imputer.held_out_ is None:
        return f"{imputation.method} holds out no cells that could be checked. {ADVICE}"
    cells = imputer.held_out(imputation.panel)
    if cells is None or not cells.any():
        return f"{imputation.method} was fitted to other data, so it held out no cells of this data. {ADVICE}"
    return _fill_again(imputation, imputer, cells)


def _fill_again(imputation: Imputation, imputer: Imputer, cells: Bools) -> Evidence:
    series, steps = _series_to_fill(imputation.panel, cells)
    part = imputation.panel.pick(series, steps)
    held_out = cells[imputation.panel.rows_of(series, part.lengths)]
    whole, visible = missingness.hide(imputation.panel, cells), missingness.hide(part, held_out)
    samples = 100 if imputation.draws is None else imputation.draws.count
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same warnings were given when the data was filled
        again = imputer.impute(visible, samples=samples)
        known = whole.select(imputer.schema_.columns)
        others = {name: method.fit(known).impute(visible) for name, method in _baselines(imputation).items()}
    return Evidence(again, part.values, held_out, others, f"{held_out_caveat(imputation)} {ADVICE}", whole)


def _baselines(imputation: Imputation) -> dict[str, Imputer]:
    """Simple methods to compare with, without the one whose values the imputation has."""
    method = method_of(imputation)
    baselines: dict[str, Imputer] = {"mean": Mean(), "forward": Forward(), "linear": Linear()}
    return {name: each for name, each in baselines.items() if method is None or name != method.name.lower()}


def _series_to_fill(panel: Panel, cells: Bools) -> tuple[NDArray[np.int64], int]:
    """Evenly chosen series that have such cells, and the steps of each, about MAX_ROWS rows in all."""
    before = np.concatenate([[0], np.cumsum(cells.any(axis=1))])
    candidates = np.flatnonzero(before[panel.starts + panel.lengths] > before[panel.starts])
    rows = int(np.minimum(panel.lengths[candidates], MAX_ROWS).sum())
    return candidates[:: max(1, -(-rows // MAX_ROWS))], MAX_ROWS
