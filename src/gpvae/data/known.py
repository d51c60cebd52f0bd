"""Columns that are always known, such as a price, a forecast, a patient's age: to learn from, not to fill."""

from collections.abc import Sequence

import numpy as np

from gpvae.data.panel import Bools, DataError, Floats, Panel


def with_known(panel: Panel, names: Sequence[str]) -> Panel:
    """The panel with these columns complete: what never changes in a series need be given only once there."""
    if not names:
        return panel
    values = panel.values.copy()
    for name in names:
        _require_numbers(panel, name)
        column = panel.columns.index(name)
        for series, rows in panel.series():
            values[rows, column] = _completed(values[rows, column], panel, name, series, rows.start)
    return panel.with_values(values)


def known_columns(panel: Panel, names: Sequence[str]) -> Bools:
    """Which columns of the panel these are. (column,)"""
    return np.array([name in names for name in panel.columns], dtype=bool)


def _require_numbers(panel: Panel, name: str) -> None:
    if name not in panel.columns or name in panel.labels:
        numbers = ", ".join(str(each) for each in panel.columns if each not in panel.labels)
        advice = "text becomes numbers as one column of 0 and 1 for each value (pandas.get_dummies)"
        raise DataError(f"known names {name!r}, which is no column of numbers; those are {numbers}; {advice}")


def _completed(values: Floats, panel: Panel, name: str, series: object, first: int) -> Floats:
    """Of one series, which starts at row `first`."""
    missing = np.isnan(values)
    seen = values[~missing]
    if not missing.any():
        return values
    if len(seen) and (seen == seen[0]).all():
        return np.full(len(values), seen[0])
    if not len(seen):
        raise DataError(
            f"column {name!r} is known, but series {series!r} has no value of it: give one, or leave it out"
        )
    where = panel.source.where(first + int(np.argmax(missing)))
    raise DataError(
        f"column {name!r} is known, so it must have no gap, but it is empty at {where}; give it a value, or let "
        "the column be filled like the others"
    )
