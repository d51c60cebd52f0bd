"""statsmodels' DynamicFactorMQ and ours on the same hidden cells: `core.py dfm` writes results/core_dfm.csv.

Two tables of 2,000 rows × 10 columns, standardised, with 10 % of the cells hidden. DynamicFactorMQ has factors and
private series that are autoregressions of order one. EM runs with its default limit of 500 iterations; where that ends
before its own tolerance is reached, once more without the limit.
"""

import time
import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
from core_tables import autoregression, data_set
from protocol_data import Task

from gpvae import Panel, missingness
from gpvae.data.panel import Bools, Floats
from gpvae.data.scaling import Scaling
from gpvae.evaluation import metrics
from gpvae.imputers.registry import method

ROWS, WIDTH, FACTORS = 2_000, 10, (2, 3)
DEFAULT_LIMIT = 500  # EM iterations
NORMAL_90 = 1.6449
Row = dict[str, Any]


def factors() -> Panel:
    """Three factors, a private series for each column, and noise: a table that fits the model of DynamicFactorMQ."""
    rng = np.random.default_rng(8)
    shared = np.column_stack([autoregression(rng, 1, memory, ROWS) for memory in (0.99, 0.95, 0.8)])
    private = 0.6 * autoregression(rng, WIDTH, 0.9, ROWS)
    return Panel.from_array(shared @ rng.normal(size=(3, WIDTH)) + private + 0.2 * rng.normal(size=(ROWS, WIDTH)))


def air() -> Panel:
    panel = data_set("air_quality", ROWS)
    return panel.select(panel.columns[:WIDTH])


def hidden(name: str, panel: Panel) -> Task:
    """The standardised table with a tenth of its cells hidden."""
    cells = missingness.random(panel, 0.1, 0)
    units = Scaling.of(missingness.hide(panel, cells), standardise=True)
    return Task.hiding(name, panel.with_values(units.apply(panel.values)), cells)


def ours(task: Task, name: str, samples: int) -> Row:
    imputer = method(name, seed=0, device="cpu")
    started = time.perf_counter()
    imputer.fit(task.visible)
    fitted = time.perf_counter()
    imputation = imputer.impute(task.visible, samples=samples)
    filled = time.perf_counter()
    log_density = imputer.log_likelihood(task.visible, np.where(task.cells, task.truth, np.nan), samples=samples)
    inside = metrics.covered(task.truth, *imputation.interval_rows(0.9))
    row = averages(task, imputation.mean_rows[task.cells], log_density[task.cells], inside[task.cells])
    return {"table": task.pattern, "method": name, **row, **seconds(started, fitted, filled), "iterations": ""}


def dynamic_factors(task: Task, count: int, limit: int = DEFAULT_LIMIT) -> Row:
    """With so many factors; the smoothed state gives the mean and the variance of each hidden cell."""
    models = import_module("statsmodels.tsa.statespace.dynamic_factor_mq")
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = models.DynamicFactorMQ(
            task.visible.values, factors=count, factor_orders=1, idiosyncratic_ar1=True, standardize=False
        )
        result = model.fit(disp=False, maxiter=limit)
    fitted = time.perf_counter()
    mean, variance = (rows[task.cells] for rows in smoothed_cells(result))
    filled = time.perf_counter()
    error = task.truth[task.cells] - mean
    log_density = -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
    row = averages(task, mean, log_density, np.abs(error) <= NORMAL_90 * np.sqrt(variance))
    row |= {**seconds(started, fitted, filled), "iterations": result.mle_retvals.iter}
    name = f"DynamicFactorMQ {count}" + (" unlimited" if limit > DEFAULT_LIMIT else "")
    return {"table": task.pattern, "method": name, **row}


def smoothed_cells(result: Any) -> tuple[Floats, Floats]:
    """Mean and variance of every cell given what is observed. (row, feature)"""
    filtered = result.filter_results
    design, noise = filtered.design[..., 0], np.diag(filtered.obs_cov[..., 0])
    covariance = result.smoothed_state_cov  # (state, state, row)
    variance = np.einsum("ds,sut,du->td", design, covariance, design) + noise
    return (design @ result.smoothed_state).T + filtered.obs_intercept.T, variance


def averages(task: Task, mean: Floats, log_density: Floats, inside: Bools) -> Row:
    """Over the hidden cells, of numbers for each. (cell,)"""
    return {
        "cells": len(mean),
        "log_density": float(log_density.mean()),
        "mae": float(metrics.absolute_error(task.truth[task.cells], mean).mean()),
        "coverage_90": float(inside.mean()),
    }


def seconds(started: float, fitted: float, filled: float) -> Row:
    return {"fit_seconds": fitted - started, "impute_seconds": filled - fitted}


def compared(name: str, samples: int = 100) -> Iterator[Row]:
    for table, panel in (("factors", factors()), ("air_quality", air())):
        task = hidden(table, panel)
        yield ours(task, name, samples)
        for count in FACTORS:
            row = dynamic_factors(task, count)
            yield row
            if row["iterations"] == DEFAULT_LIMIT:
                yield dynamic_factors(task, count, 100 * DEFAULT_LIMIT)
