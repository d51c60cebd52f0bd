"""How well are cells filled whose value is known? Hide them, fill them, compare; the simple methods beside."""

import time
from dataclasses import dataclass, replace

import numpy as np

from gpvae import baselines, metrics, missingness
from gpvae.imputation import Imputation
from gpvae.imputer import GPVAE
from gpvae.panel import Bools, DataError, Floats, Panel
from gpvae.schema import Scaling

BASELINES = {"mean": baselines.mean, "forward": baselines.forward, "linear": baselines.linear}


@dataclass(frozen=True)
class Score:
    """Averages over held-out cells, each column counted in its own standard deviations."""

    method: str
    mae: float
    mse: float
    crps: float  # of a single value, this is the absolute error
    nll: float | None = None  # None: the method gives no distribution
    coverage: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Evaluation:
    scores: list[Score]
    imputation: Imputation
    cells: Bools  # (row, feature) those that were scored


def evaluate(
    panel: Panel, held_out: Bools, imputer: GPVAE, *, level: float = 0.9, samples: int = 100, seed: int = 0
) -> Evaluation:
    """Fit `imputer` without the `held_out` cells and score what it fills in, beside mean, forward and linear.

    Columns of which too little is left to see them vary have no standard deviation to count in: they are not scored.
    """
    visible = missingness.hide(panel, held_out)
    units = Scaling.of(visible, standardise=True)
    cells = held_out & units.varies
    if not cells.any():
        raise DataError("no held-out cell lies in a column that varies, so there is nothing to score")
    scores = [_point_score(name, panel, fill(visible), cells, units) for name, fill in BASELINES.items()]
    started = time.perf_counter()
    imputation = imputer.fit(visible).impute(visible, samples=samples, seed=seed)
    seconds = time.perf_counter() - started
    log_density = imputer.log_likelihood(visible, panel.values, samples=samples, seed=seed)
    feature = np.nonzero(cells)[1]
    draws = (imputation.draws_at(cells) - units.shift[feature]) / units.scale[feature]
    ours = replace(
        _point_score("GP-VAE", panel, imputation.mean_rows, cells, units),
        crps=float(metrics.crps(units.apply(panel.values)[cells], draws).mean()),
        nll=-float((log_density[cells] + np.log(units.scale[feature])).mean()),
        coverage=float(metrics.covered(panel.values, *imputation.interval_rows(level))[cells].mean()),
        seconds=seconds,
    )
    return Evaluation([*scores, ours], imputation, cells)


def _point_score(name: str, panel: Panel, filled: Floats, cells: Bools, units: Scaling) -> Score:
    truth, point = units.apply(panel.values)[cells], units.apply(filled)[cells]
    mae = float(metrics.absolute_error(truth, point).mean())
    return Score(name, mae, float(metrics.squared_error(truth, point).mean()), crps=mae)
