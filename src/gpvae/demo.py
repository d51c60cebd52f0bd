"""Four years of Seattle's weather with artificial gaps, filled by several methods. Needs no download."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gpvae import missingness
from gpvae.data.atomic import atomic_write, require_writable
from gpvae.data.files import TableFile, read_table
from gpvae.data.panel import Bools, DataError, Panel
from gpvae.evaluation import Evaluation, evaluate
from gpvae.imputers.registry import COMPARED, method
from gpvae.report.plots import plot_series

SINGLE_GAPS = 0.1  # share of cells removed one by one
OUTAGES, OUTAGE_DAYS = 4, 10  # of each instrument


@dataclass(frozen=True)
class Demo:
    evaluation: Evaluation
    table: Path  # with gaps
    filled: Path
    picture: Path
    report: Path


def run(folder: Path, *, seed: int = 0, minutes: float | None = None, force: bool = False) -> Demo:
    """Make gaps in the table, fill them, and write both tables, a plot and a report into `folder`."""
    whole = read_table(weather_file())
    folder.mkdir(parents=True, exist_ok=True)
    names = ("weather.csv", "filled.csv", "filled.png", "report.html")
    table, filled, picture, report = (folder / name for name in names)
    for path in (table, filled, picture, report):
        require_writable(path, force=force)
    panel = whole.panel()
    cells = _random_gaps(panel, seed)
    methods = {name: method(name, minutes=minutes, seed=seed, verbose=True) for name in COMPARED}
    evaluation = evaluate(panel, cells, methods, seed=seed)
    imputation = evaluation.imputations["gp-net"]
    _write_with_gaps(whole, panel, cells, table, force=force)
    read_table(table).write(filled, imputation.to_frame(interval=0.9), force=force)
    figure = plot_series(imputation, rows=_rows_with_most_gaps(cells, 120), truth=panel.values)
    with atomic_write(picture, force=force) as partial:
        figure.savefig(partial, format="png", dpi=120)
    evaluation.report(report, overwrite=force)
    return Demo(evaluation, table, filled, picture, report)


def weather_file() -> Path:
    try:
        from vega_datasets import local_data
    except ImportError:
        raise DataError("the demo needs the package vega_datasets: pip install 'gpvae[demo]'") from None
    return Path(local_data.seattle_weather.filepath)


def _random_gaps(panel: Panel, seed: int) -> Bools:
    cells = missingness.random(panel, SINGLE_GAPS, seed)
    generator = np.random.default_rng([seed, 1])
    for column in range(len(panel.columns)):
        for start in generator.integers(0, len(panel.values) - OUTAGE_DAYS, size=OUTAGES):
            cells[start : start + OUTAGE_DAYS, column] = True
    return cells


def _write_with_gaps(whole: TableFile, panel: Panel, cells: Bools, path: Path, *, force: bool) -> None:
    assert whole.text
    columns = [list(column) for column in whole.text.columns]
    gaps = panel.restore(cells)
    for j, name in enumerate(panel.columns):
        column = columns[whole.table.column_names.index(name)]
        for row in np.flatnonzero(gaps[:, j]):
            column[row] = ""
    with atomic_write(path, force=force) as partial:
        replace(whole.text, columns=columns).write(partial, whole.table, whole.table, compress=False)


def _rows_with_most_gaps(cells: Bools, length: int) -> slice:
    """The `length` consecutive rows with the most gaps."""
    total = np.concatenate([[0], np.cumsum(cells.sum(axis=1))])
    start = int(np.argmax(total[length:] - total[:-length]))
    return slice(start, start + length)
