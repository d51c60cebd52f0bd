"""The data of the protocols P1 to P4 (described in `protocols.py`): what is fitted, which cells are hidden."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import peers
from sklearn.model_selection import train_test_split

from gpvae import Panel, datasets, missingness
from gpvae.data.panel import Bools, Floats
from gpvae.data.scaling import Scaling
from gpvae.datasets import DataSet
from gpvae.datasets.dataset import even_panel

CSDI_SEED = 1
LONG_OUTAGE = 640  # rows


@dataclass(frozen=True)
class Task:
    """A panel to fill, and the truth of the cells that are scored."""

    pattern: str
    visible: Panel
    truth: Floats  # (row, feature)
    cells: Bools  # (row, feature)

    @classmethod
    def hiding(cls, pattern: str, panel: Panel, cells: Bools) -> "Task":
        return cls(pattern, missingness.hide(panel, cells), panel.values, cells)


@dataclass(frozen=True)
class Experiment:
    """A panel that methods are fitted to once, and the tasks that they then fill."""

    data: str
    fold: int | str
    training: Panel
    tasks: list[Task]
    units: Mapping[str, Scaling]
    settings: Mapping[str, Any] = field(default_factory=dict)  # for the methods that are trained
    window: int = 48  # steps that PyPOTS's methods see at once
    stride: int = 48  # between the windows that these are trained on

    @property
    def scored(self) -> Bools:
        """Columns that vary, so that they have units. (feature,)"""
        return np.all([units.varies for units in self.units.values()], axis=0)


@dataclass(frozen=True)
class Selection:
    """Which part of a protocol is wanted."""

    folds: int = 5  # of P1, from the first on
    seed: int = 0  # of the gaps in P4
    small: int | None = None  # so many series only, or steps of long ones
    pattern: str = ""  # "": all that are not optional


def physionet_in_folds(selection: Selection) -> Iterator[Experiment]:
    patients = measured_patients(selection.small)
    count = len(patients.panel)
    held_out = {rate: share_of_each_series(patients.panel, rate) for rate in (0.1, 0.5, 0.9)}
    order = np.random.RandomState(CSDI_SEED).permutation(count)
    for fold in range(selection.folds):
        first, end = int(fold * 0.2 * count), int((fold + 1) * 0.2 * count)
        test, others = order[first:end], np.delete(order, np.arange(first, end))
        others = np.random.RandomState(CSDI_SEED).permutation(others)
        units = Scaling.of(patients.part(others[: int(0.7 * count)]).panel, standardise=True)
        panel = patients.part(test).panel
        tasks = [
            Task.hiding(f"{rate:.0%}", panel, cells.reshape(count, -1)[test].reshape(panel.values.shape))
            for rate, cells in held_out.items()
        ]
        yield Experiment("PhysioNet set a", fold, patients.part(others).panel, tasks, {"standardised": units})


def physionet_by_outcome(selection: Selection) -> Iterator[Experiment]:
    patients = measured_patients(selection.small)
    assert patients.labels is not None
    split = np.empty(len(patients.panel), dtype="<U10")
    for outcome in (0, 1):
        others, test = train_test_split(np.flatnonzero(patients.labels == outcome), test_size=0.2, random_state=0)
        train, validation = train_test_split(others, test_size=0.2, random_state=0)
        split[train], split[validation], split[test] = "train", "validation", "test"
    panel = patients.part(np.flatnonzero(split == "test")).panel
    units = Scaling.of(patients.part(np.flatnonzero(split == "train")).panel, standardise=True)
    task = Task.hiding("10%", panel, missingness.random(panel, 0.1, 0))
    training = patients.part(np.flatnonzero(split != "test")).panel
    yield Experiment("PhysioNet set a", "", training, [task], {"standardised": units})


def measured_patients(small: int | None) -> DataSet:
    """Patients of set a with at least one value: 3,997, as in CSDI and TSI-Bench."""
    patients = datasets.load("physionet2012", splits=["train"])
    measured = np.add.reduceat(patients.panel.observed.any(axis=1), patients.panel.starts)
    return patients.part(np.flatnonzero(measured)[:small])


def share_of_each_series(panel: Panel, rate: float) -> Bools:
    """The share `rate` of the observed cells of each series, rounded down. (row, feature)"""
    rng, observed = np.random.RandomState(CSDI_SEED), panel.observed
    chosen = np.zeros(observed.shape, dtype=bool)
    for _, rows in panel.series():
        known = np.flatnonzero(observed[rows])
        chosen[rows].flat[rng.choice(known, int(len(known) * rate), replace=False)] = True
    return chosen


def pm25_by_month(selection: Selection) -> Iterator[Experiment]:
    """Months of training are long series. Those of the test are cut into CSDI's windows, and each cell scored once."""
    air, hours = datasets.load("pm25"), 36
    month = (np.datetime64("2014-05-01T00") + (air.panel.times / 3600).astype("m8[h]")).astype("M8[M]")
    of_year = month.astype(np.int64) % 12 + 1
    months = [np.flatnonzero(month == each)[: selection.small] for each in np.unique(month)]
    test, train = ([rows for rows in months if (of_year[rows[0]] % 3 == 0) == tested] for tested in (True, False))
    training = Panel.from_list([air.truth[rows] for rows in train])
    windows = np.concatenate(test)[peers.windows_of(np.array([len(rows) for rows in test]), hours, hours)]
    repeated = np.ones(windows.size, dtype=bool)  # rows that an earlier window has already
    repeated[np.unique(windows, return_index=True)[1]] = False
    cells = air.held_out[windows.ravel()] & ~repeated[:, None]
    task = Task("ST-MVL", Panel.from_array(air.panel.values[windows]), air.truth[windows.ravel()], cells)
    original = Scaling(np.zeros(len(air.panel.columns)), np.ones(len(air.panel.columns)))
    units = {"original": original, "standardised": Scaling.of(training, standardise=True)}
    yield Experiment("PM2.5", "", training, [task], units, {"recipe.window": hours}, window=hours, stride=1)


def tables(selection: Selection) -> Iterator[Experiment]:
    optional = selection.pattern in OPTIONAL_PATTERNS
    patterns = {selection.pattern: OPTIONAL_PATTERNS[selection.pattern]} if optional else PATTERNS
    for name in ("beijing", "air_quality", "ett_h1"):
        panel = first_steps(datasets.load(name).panel, selection.small)
        for pattern, hidden in patterns.items():
            task = Task.hiding(pattern, panel, hidden(panel, selection.seed))
            if task.cells.any():
                units = {"standardised": Scaling.of(task.visible, standardise=True)}
                yield Experiment(name, "", task.visible, [task], units)


def first_steps(panel: Panel, steps: int | None) -> Panel:
    """The first steps of each series. All series must have the same times."""
    stacked = panel.values.reshape(len(panel), -1, len(panel.columns))[:, :steps]
    short = even_panel(stacked, panel.columns, panel.ids, panel.times[: stacked.shape[1]])
    return replace(short, clock=panel.clock, origin=panel.origin)


def long_outage(panel: Panel, seed: int) -> Bools:
    """One outage of `LONG_OUTAGE` rows in each series that is ten times as long, not at its ends. (row, feature)"""
    rng, rows = np.random.default_rng([seed, 640]), np.zeros(len(panel.values), dtype=bool)
    for start, length in zip(panel.starts, panel.lengths, strict=True):
        if length >= 10 * LONG_OUTAGE:
            first = start + rng.integers(1, length - LONG_OUTAGE)
            rows[first : first + LONG_OUTAGE] = True
    return rows[:, None] & panel.observed


PROTOCOLS: dict[str, Callable[[Selection], Iterator[Experiment]]] = {
    "P1": physionet_in_folds,
    "P2": physionet_by_outcome,
    "P3": pm25_by_month,
    "P4": tables,
}

Pattern = Callable[[Panel, int], Bools]  # of a panel and a seed: the cells that are hidden
PATTERNS: dict[str, Pattern] = {
    "10% cells": lambda panel, seed: missingness.random(panel, 0.1, seed),
    "50% cells": lambda panel, seed: missingness.random(panel, 0.5, seed),
    "blocks of 24-48": lambda panel, seed: missingness.blocks(panel, 0.1, seed, length=(24, 48)),
}
OPTIONAL_PATTERNS: dict[str, Pattern] = {  # only if asked for by name
    "outages of 16-40": lambda panel, seed: missingness.blocks(panel, 0.1, seed, length=(16, 40), all_columns=True),
    "outage of 640": long_outage,
}
