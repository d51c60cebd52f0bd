"""The tables and reports that commands read and write."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpvae.cli.printing import note, say, working

if TYPE_CHECKING:
    from gpvae.data.files import TableFile
    from gpvae.data.gaps import GapSelection
    from gpvae.data.panel import Panel
    from gpvae.evaluation import Evaluation
    from gpvae.imputers.base import Imputer
    from gpvae.imputers.imputation import Imputation


def read(
    path: Path,
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
    from gpvae.data.files import read_table
    from gpvae.data.grid import absent_rows, with_rows

    table = read_table(path).with_text(text).with_categories(categories)
    chosen = [name for entry in columns for name in _split(entry, table.table.column_names)] if columns else None
    panel = table.panel(id=id, time=time, columns=chosen, categories=categories)
    absent = absent_rows(panel)
    if absent and add_rows:
        table = with_rows(table, panel, absent)
        panel = table.panel(id=id, time=time, columns=chosen, categories=categories)
        say(f"added {len(absent):,} rows that were absent from regular times")
    elif absent:
        note(f"{absent.describe(panel)}; gpvae impute --add-rows adds and fills them")
    say(
        f"{path}: {len(panel):,} series, {len(panel.values):,} steps, {len(panel.columns)} columns, "
        f"{1 - panel.observed.mean():.1%} missing; time: {panel.source.time or 'row order'}"
    )
    _print_unused(table, [name for name in table.table.column_names if name not in _used(panel, id)], panel)
    return table, panel


def _split(entry: str, known: Sequence[str]) -> list[str]:
    """NAME,NAME → names; a column whose own name has a comma stays whole."""
    return [entry] if entry in known else [name.strip() for name in entry.split(",")]


def _used(panel: "Panel", id: str | None) -> set[str | None]:
    return {*panel.columns, id, panel.source.time}


def _print_unused(table: "TableFile", unused: list[str], panel: "Panel") -> None:
    """List the columns that are not filled, and say why one that looks numeric, or like a time, is not used."""
    if unused:
        gaps = {name: table.table[name].null_count for name in unused}
        say("left unchanged: " + ", ".join(f"{name} ({gaps[name]:,} gaps)" if gaps[name] else name for name in unused))
    for reason in table.almost_numbers(unused):
        note(reason)
    if not panel.source.time:
        for reason in table.almost_times(unused):
            note(f"not used as the time column: {reason}")


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


def require_memory_for_draws(imputer: "Imputer", panel: "Panel", samples: int) -> None:
    """Before any training."""
    from gpvae.imputers.imputation import require_memory

    if imputer.gives_distributions:
        require_memory(int((~panel.observed).sum()), samples)


def require_report_path(report: Path | None, *other_files: Path, force: bool) -> None:
    """Before any training: check that the report can be written and replaces no other file of the command."""
    from gpvae import DataError
    from gpvae.data.atomic import require_writable

    if report is None:
        return
    if report.resolve() in [path.resolve() for path in other_files]:
        raise DataError(f"--report: {report} is already used by this command; choose another file")
    if report.is_dir():
        raise DataError(f"--report: {report} is a folder; name a file in it, such as {report / 'report.html'}")
    try:
        require_writable(report, force=force)
    except DataError as error:
        raise DataError(f"--report: {error}") from None


def write_report(result: "Imputation | Evaluation", path: Path | None, force: bool) -> None:
    if path:
        with working("writing the report"):
            result.report(path, overwrite=force)
        say(f"report: {path}")
