"""The tables and reports that commands read and write."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpvae.cli.printing import note, say, working

DRAW = "draw"  # the column that says which of the completed tables a row belongs to

if TYPE_CHECKING:
    from gpvae.data.files import TableFile
    from gpvae.data.gaps import GapSelection
    from gpvae.data.panel import Panel
    from gpvae.data.sources import Source
    from gpvae.evaluation import Evaluation
    from gpvae.imputers.base import Imputer
    from gpvae.imputers.imputation import Imputation

CATEGORIES, OFTEN = 20, 5  # at most so many different entries, each so often on average


def read(
    source: "Source",
    id: str | None,
    time: str | None,
    columns: Sequence[str] | None,
    categories: Sequence[str] = (),
    text: Sequence[str] = (),
    *,
    add_rows: bool = False,
) -> "tuple[TableFile, Panel]":
    """Read a table as a panel, and print what is in it; columns named in `text` are read as text.

    Rows that are absent from regular times are noted, or added.
    """
    from gpvae import DataError
    from gpvae.data.grid import absent_rows, with_rows
    from gpvae.data.sources import FILE

    table = source.read().with_text(text).with_categories(categories)
    id = table.id if id is None or (id == FILE and FILE not in table.table.column_names) else id
    table = table.with_id(id)
    chosen = [name for entry in columns for name in _split(entry, table.table.column_names)] if columns else None
    panel = table.panel(id=id, time=time, columns=chosen, categories=categories)
    _print_doubts(table, panel)
    if add_rows and panel.source.time not in (None, *table.table.column_names):
        raise DataError("--add-rows needs the time in one column, not in several")
    absent = absent_rows(panel)
    if absent and add_rows:
        table = with_rows(table, panel, absent)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # which were printed before
            panel = table.panel(id=id, time=time, columns=chosen, categories=categories)
        say(f"added {len(absent):,} rows that were absent from regular times")
    elif absent:
        note(f"{absent.describe(panel)}; gpvae impute --add-rows adds and fills them")
    say(
        f"{table.path}: {len(panel):,} series, {len(panel.values):,} steps, {len(panel.columns)} columns, "
        f"{1 - panel.observed.mean():.1%} missing; time: {panel.source.time or 'row order'}"
    )
    _print_unused(table, [name for name in table.table.column_names if name not in _used(panel)], panel)
    return table, panel


def _print_doubts(table: "TableFile", panel: "Panel") -> None:
    """What may have been understood wrongly, and the option that says how it is meant."""
    from gpvae.data.codes import suspected_codes
    from gpvae.data.time_columns import calendar_columns

    if table.text and table.text.empty_rows:
        note(f"{table.path}: {table.text.empty_rows:,} empty rows at its end are left out")
    if panel.source.time is None and (calendar := calendar_columns(panel.columns)):
        note(
            f"columns {', '.join(calendar)} look like times, but are taken for values; see --time {','.join(calendar)}"
        )
    if table.header_is_data:
        note(f"{table.path}: the first row looks like data, but is taken for the names of the columns; see --no-header")
    for code in suspected_codes(panel):
        note(code.describe())


def _split(entry: str, known: Sequence[str]) -> list[str]:
    """NAME,NAME → names; a column whose own name has a comma stays whole."""
    return [entry] if entry in known else [name.strip() for name in entry.split(",")]


def _used(panel: "Panel") -> set[str | None]:
    from gpvae.data.time_columns import time_parts

    return {*panel.columns, panel.source.id, *time_parts([], panel.source.time), panel.source.time}


def _print_unused(table: "TableFile", unused: list[str], panel: "Panel") -> None:
    """List the columns that are not filled, and say why one that looks numeric, or like a time, is not used."""
    if unused:
        gaps = {name: table.table[name].null_count for name in unused}
        names = ", ".join(f"{name} ({gaps[name]:,} gaps)" if gaps[name] else name for name in unused)
        say(f"left unchanged: {names}{_advice(table, [name for name in unused if gaps[name]])}")
    for reason in table.almost_numbers(unused):
        note(reason)
    if not panel.source.time:
        for reason in table.almost_times(unused):
            note(f"not used as the time column: {reason}")


def _advice(table: "TableFile", gappy: list[str]) -> str:
    """How to fill those columns that look like categories."""
    kinds = ",".join(f"{name}=categorical" for name in gappy if _has_categories(table, name))
    return f"; to fill categories: --method gp-vae --kind {kinds}" if kinds else ""


def _has_categories(table: "TableFile", name: str) -> bool:
    """Whether a column of text or booleans has a few different entries, which occur often."""
    entries = table.table[name].drop_null()
    return str(entries.type) in ("string", "bool") and len(entries.unique()) <= min(CATEGORIES, len(entries) // OFTEN)


def gap_selection(
    panel: "Panel",
    max_gap: str | None,
    only: Sequence[str] | None,
    not_before: str | None,
    leading: bool,
    trailing: bool,
) -> "GapSelection":
    """Checked on the panel, before any training."""
    from gpvae.data.gaps import GapSelection

    columns = [name for entry in only for name in _split(entry, panel.columns)] if only else None
    selection = GapSelection(max_gap, columns, not_before, leading, trailing)
    selection.wanted(panel)
    return selection


def left_empty(panel: "Panel", imputation: "Imputation", gaps: "GapSelection") -> list[str]:
    """How many cells that were to be filled stay empty, and in which columns."""
    import numpy as np

    empty = gaps.wanted(panel) & ~imputation.filled
    empty.flat[imputation.cells] |= ~np.isfinite(imputation.mean_rows.flat[imputation.cells])
    if not empty.any():
        return []
    names = ", ".join(str(panel.columns[j]) for j in np.unique(np.nonzero(empty)[1]))
    return [f"{empty.sum():,} cells stay empty: no value could be found for them in {names}"]


def require_memory_for_draws(imputer: "Imputer", panel: "Panel", samples: int) -> None:
    """Before any training."""
    from gpvae.imputers.draws import require_memory

    if imputer.gives_distributions:
        require_memory(int((~panel.observed).sum()), samples)


def require_report_path(report: Path | None, *other_files: Path, force: bool) -> None:
    """Before any training: check that the report can be written and replaces no other file of the command."""
    from gpvae import DataError

    if report == Path("-"):
        raise DataError("--report: name a file, such as report.html; only the table can go to standard output")
    if report and report.is_dir():
        raise DataError(f"--report: {report} is a folder; name a file in it, such as {report / 'report.html'}")
    if report:
        _require_free("--report", report, other_files, force)


def require_draws_path(
    draws: Path | None, table: "TableFile", imputer: "Imputer", *other_files: Path | None, force: bool
) -> None:
    """Before any training: check that there will be draws, and that they can be written."""
    from gpvae import DataError
    from gpvae.data.stacked import require_stackable

    if draws is None:
        return
    if not imputer.gives_distributions:
        raise DataError(f"--draws: {imputer.name} gives single values, without draws")
    require_stackable(draws)
    _require_free("--draws", draws, other_files, force)
    table.require_no_columns([DRAW])


def _require_free(option: str, path: Path, other_files: Sequence[Path | None], force: bool) -> None:
    from gpvae import DataError
    from gpvae.data.atomic import require_writable

    if path.resolve() in [other.resolve() for other in other_files if other]:
        raise DataError(f"{option}: {path} is already used by this command; choose another file")
    try:
        require_writable(path, force=force)
    except DataError as error:
        raise DataError(f"{option}: {error}") from None


def write_draws(imputation: "Imputation", table: "TableFile", path: Path | None, force: bool) -> None:
    from gpvae.data.stacked import write_stacked

    if path:
        write_stacked(table, path, imputation.tables(), number=DRAW, force=force)
        say(f"{imputation.require_draws().count:,} completed tables, one for each draw: {path}")


def write_report(result: "Imputation | Evaluation", path: Path | None, force: bool) -> None:
    if path:
        with working("writing the report"):
            result.report(path, overwrite=force)
        say(f"report: {path}")
