"""The tables of `core.py`, and the gaps that are made in them.

A third of the tables is HELD_BACK: settings are chosen without them, and they are measured at the end. Tables come from
`gpvae.datasets`, from the packages vega_datasets and statsmodels, and from simulations whose truth is known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from protocol_data import long_outage

from gpvae import Panel, datasets, missingness
from gpvae.data.panel import Bools, Floats
from gpvae.evaluation.joint import find_gaps

ROWS = 2_000  # of simulated tables
OUTAGES, OUTAGE, MIN_ROWS = 10, 64, 2_000  # outages in each series that has so many rows


@dataclass(frozen=True)
class Table:
    """A table by its loader; `period` is the season in steps, 1 if there is none."""

    load: Callable[[], Panel]
    period: int = 1


def data_set(name: str, rows: int | None = None) -> Panel:
    """A published data set, with all values that are known; the first `rows` of each series."""
    chosen = datasets.load(name)
    return first_rows(chosen.panel.with_values(chosen.truth), rows)


def first_rows(panel: Panel, rows: int | None) -> Panel:
    return panel if rows is None else panel.pick(np.arange(len(panel)), rows)


def vega(name: str) -> Any:
    return import_module("vega_datasets").local_data(name)


def statsmodels_table(name: str, *dropped: str) -> Any:
    """A data frame shipped with statsmodels, without its columns of time."""
    return import_module(f"statsmodels.datasets.{name}").load_pandas().data.drop(columns=list(dropped))


def numeric(frame: Any) -> Panel:
    """The numeric columns at the steps 0, 1, 2, …"""
    return Panel.from_array(frame.select_dtypes("number").to_numpy(dtype=float))


def stocks() -> Panel:
    return numeric(vega("stocks").pivot(index="date", columns="symbol", values="price"))


def temperatures() -> Panel:
    """Hourly, of Seattle and San Francisco."""
    cities = (vega(name).set_index("date").temp for name in ("seattle-temps", "sf-temps"))
    return numeric(import_module("pandas").concat([city[~city.index.duplicated()] for city in cities], axis=1))


def el_nino() -> Panel:
    """Sea temperatures of all months in a row."""
    return Panel.from_array(statsmodels_table("elnino", "YEAR").to_numpy(dtype=float).reshape(-1, 1))


def fertility() -> Panel:
    """Births per woman: a series of years for each country."""
    countries = statsmodels_table("fertility").select_dtypes("number").to_numpy(dtype=float)
    return Panel.from_array(countries[np.isfinite(countries).mean(axis=1) > 0.9, :52, None])


def investments() -> Panel:
    """Grunfeld's firms, a series of twenty years each."""
    firms = statsmodels_table("grunfeld").groupby("firm")
    return Panel.from_list([firm[["invest", "value", "capital"]].to_numpy(dtype=float) for _, firm in firms])


def oscillators() -> Panel:
    """Two damped oscillators of periods 25 and 60 and a slow factor, mixed into eight noisy columns."""
    rng = np.random.default_rng(1)
    turns, state, states = np.exp(2j * np.pi / np.array([25, 60]) - np.array([0.02, 0.01])), np.zeros(2, complex), []
    for shocks in rng.normal(size=(ROWS, 2, 2)):
        state = turns * state + (shocks[0] + 1j * shocks[1]) * 0.2
        states.append(np.concatenate([state.real, state.imag]))
    factors = np.column_stack([states, autoregression(rng, 1, 0.98)])
    return Panel.from_array(factors @ rng.normal(size=(5, 8)) + 0.3 * rng.normal(size=(ROWS, 8)))


def autoregression(rng: np.random.Generator, columns: int, memory: float, rows: int = ROWS) -> Floats:
    """Independent series of unit variance with this lag-one correlation. (row, column)"""
    values = rng.normal(size=(rows, columns))
    for t in range(1, rows):
        values[t] = memory * values[t - 1] + np.sqrt(1 - memory**2) * values[t]
    return values


def random_walks() -> Panel:
    return Panel.from_array(np.random.default_rng(2).normal(size=(ROWS, 6)).cumsum(axis=0))


def white_noise() -> Panel:
    return Panel.from_array(np.random.default_rng(3).normal(size=(ROWS, 5)))


def exact_relations() -> Panel:
    """A temperature in °C and in K, three parts and their total, and a copy that is rounded."""
    rng = np.random.default_rng(4)
    day = np.sin(2 * np.pi * np.arange(ROWS) / 24)[:, None]
    celsius = 15 + 5 * day + 3 * autoregression(rng, 1, 0.95)
    parts = 50 + 10 * day + 8 * autoregression(rng, 3, 0.9)
    rounded = np.round(celsius)
    return Panel.from_array(np.column_stack([celsius, celsius + 273.15, parts, parts.sum(axis=1), rounded]))


def irregular() -> Panel:
    """A season of period 37 and a slow factor at random times, on average one step apart."""
    rng = np.random.default_rng(5)
    times = np.sort(rng.uniform(0, ROWS, ROWS))
    phase = 2 * np.pi * times[:, None] / 37 + rng.uniform(0, 2 * np.pi, 4)
    slow = np.interp(times, np.arange(ROWS), autoregression(rng, 1, 0.97)[:, 0])[:, None]
    return Panel.from_array(np.sin(phase) + 0.7 * slow + 0.2 * rng.normal(size=(ROWS, 4)), times=times)


def trend_and_season() -> Panel:
    """Trends, seasons of period 24 whose size changes slowly, and noise."""
    rng, steps = np.random.default_rng(6), np.arange(ROWS)[:, None]
    size = 1 + 0.3 * autoregression(rng, 5, 0.995)
    season = size * np.sin(2 * np.pi * steps / 24 + rng.uniform(0, 2 * np.pi, 5))
    return Panel.from_array(rng.normal(size=5) * steps / 500 + season + 0.2 * rng.normal(size=(ROWS, 5)))


def heavy_tails() -> Panel:
    """Two factors in six columns, with noise of Student's t and jumps."""
    rng = np.random.default_rng(7)
    jumps = (rng.normal(size=(ROWS, 2)) * (rng.random((ROWS, 2)) < 0.01)).cumsum(axis=0)
    factors = 2 * autoregression(rng, 2, 0.95) + 2 * jumps
    return Panel.from_array(factors @ rng.normal(size=(2, 6)) + 0.3 * rng.standard_t(3, size=(ROWS, 6)))


P4 = ("beijing", "air_quality", "ett_h1")
TABLES: Mapping[str, Table] = {
    "beijing": Table(lambda: data_set("beijing"), 24),
    "air_quality": Table(lambda: data_set("air_quality"), 24),
    "ett_h1": Table(lambda: data_set("ett_h1"), 24),
    "ett_m2": Table(lambda: data_set("ett_m2", 20_000), 96),
    "pm25": Table(lambda: data_set("pm25"), 24),
    "seattle_weather": Table(lambda: numeric(vega("seattle-weather")), 365),
    "temperatures": Table(temperatures, 24),
    "stocks": Table(stocks),
    "us_employment": Table(lambda: numeric(vega("us-employment")), 12),
    "macrodata": Table(lambda: numeric(statsmodels_table("macrodata", "year", "quarter")), 4),
    "co2": Table(lambda: numeric(statsmodels_table("co2")), 52),
    "sunspots": Table(lambda: numeric(statsmodels_table("sunspots", "YEAR")), 11),
    "el_nino": Table(el_nino, 12),
    "nile": Table(lambda: numeric(statsmodels_table("nile", "year"))),
    "elec_equip": Table(lambda: numeric(statsmodels_table("elec_equip")), 12),
    "danish": Table(lambda: numeric(statsmodels_table("danish_data")), 4),
    "interest_inflation": Table(lambda: numeric(statsmodels_table("interest_inflation", "year", "quarter")), 4),
    "fertility": Table(fertility),
    "investments": Table(investments),
    "oscillators": Table(oscillators, 25),
    "random_walks": Table(random_walks),
    "white_noise": Table(white_noise),
    "exact_relations": Table(exact_relations, 24),
    "irregular": Table(irregular, 37),
    "trend_and_season": Table(trend_and_season, 24),
    "heavy_tails": Table(heavy_tails),
}
HELD_BACK = (
    *("ett_m2", "temperatures", "us_employment", "el_nino", "interest_inflation", "fertility", "investments"),
    *("trend_and_season", "heavy_tails"),
)
GROUPS: Mapping[str, tuple[str, ...]] = {
    "all": tuple(TABLES),
    "P4": P4,
    "development": tuple(name for name in TABLES if name not in HELD_BACK),
    "held-back": HELD_BACK,
}
EXACT = ("exact_relations", "us_employment")  # tables with columns that others determine


def names_of(selection: str) -> list[str]:
    """The tables of a group, or those listed with commas."""
    return [name for part in selection.split(",") for name in GROUPS.get(part, (part,))]


def run_lengths(panel: Panel, shortest: int, longest: int) -> tuple[int, int]:
    """The range of lengths, scaled so that the longest is at most a tenth of the shortest series."""
    limit = max(2, min(longest, int(panel.lengths.min()) // 10))
    return max(1, shortest * limit // longest), limit


def runs(panel: Panel, seed: int) -> Bools:
    return missingness.blocks(panel, 0.1, seed, length=run_lengths(panel, 24, 48))


def one_column_out(panel: Panel, seed: int) -> Bools:
    """Runs in half of the rows, each in one column while the others are visible; nothing in a single column."""
    cells = np.zeros(panel.values.shape, dtype=bool)
    if len(panel.columns) > 1:
        rows = missingness.blocks(panel, 0.5, seed, length=run_lengths(panel, 24, 48), all_columns=True).any(axis=1)
        gaps = find_gaps(panel, np.asarray(rows)[:, None])
        column = np.random.default_rng([seed, 1]).integers(len(panel.columns), size=len(gaps.first))
        cells[gaps._replace(column=column).cells()] = True
    return cells & panel.observed


def outages(panel: Panel, seed: int) -> Bools:
    """Nothing in a single column, where an outage is a run."""
    if len(panel.columns) < 2:
        return np.zeros(panel.values.shape, dtype=bool)
    return missingness.blocks(panel, 0.1, seed, length=run_lengths(panel, 16, 40), all_columns=True)


def outages_of_64(panel: Panel, seed: int) -> Bools:
    """Ten outages in each series of at least MIN_ROWS rows, one in each tenth, never at its ends. (row, feature)"""
    rng, rows = np.random.default_rng([seed, OUTAGE]), np.zeros(len(panel.values), dtype=bool)
    for start, length in zip(panel.starts, panel.lengths, strict=True):
        if length >= MIN_ROWS:
            tenths = start + np.arange(OUTAGES) * (length // OUTAGES)
            firsts = tenths + rng.integers(OUTAGE // 2, length // OUTAGES - 3 * OUTAGE // 2, size=OUTAGES)
            rows[(firsts[:, None] + np.arange(OUTAGE)).ravel()] = True
    return rows[:, None] & panel.observed


PATTERNS: Mapping[str, Callable[[Panel, int], Bools]] = {
    "10% cells": lambda panel, seed: missingness.random(panel, 0.1, seed),
    "50% cells": lambda panel, seed: missingness.random(panel, 0.5, seed),
    "runs": runs,
    "one column out": one_column_out,
    "outages": outages,
    "outages of 64": outages_of_64,
    "outage of 640": long_outage,
}
