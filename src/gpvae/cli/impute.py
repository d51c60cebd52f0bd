"""`gpvae impute`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpvae.cli import options, tables
from gpvae.cli.errors import one_line_errors
from gpvae.cli.fit import checkpoint_path, fit_with_checkpoint, remove_checkpoints
from gpvae.cli.methods import (
    DEFAULT,
    ImputerOptions,
    categorical_columns,
    interval_level,
    parse_kinds,
    require_calibration_cells,
)
from gpvae.cli.printing import say

if TYPE_CHECKING:
    from gpvae import Imputation, Imputer, Panel
    from gpvae.data.files import TableFile


def impute(
    data: options.Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The filled table.", show_default=False)],
    model: Annotated[
        Path | None, typer.Option(help="A model from `gpvae fit`.  [default: train on the table itself]")
    ] = None,
    id: options.Id = None,
    time: options.Time = None,
    columns: options.Columns = None,
    kind: options.Kind = None,
    method: options.Method = DEFAULT,
    conformal: options.Conformal = False,
    interval: options.Interval = None,
    samples: options.Samples = 100,
    seed: options.Seed = 0,
    epochs: options.Epochs = None,
    preset: options.PresetOption = None,
    device: options.DeviceOption = options.Device.auto,
    report: options.Report = None,
    force: options.Force = False,
) -> None:
    """Fill the gaps of a table.

    `gpvae impute weather.csv -o filled.csv`

    `gpvae impute icu.parquet --id patient --time hour -o filled.parquet`

    `gpvae impute new.csv --model model/ -o filled.csv`

    `gpvae impute weather.csv --method brits --conformal -o filled.csv`

    `gpvae impute weather.csv -o filled.csv --report report.html`

    Observed values come back unchanged. Each column with gaps gets two more columns, `<name>_lower` and
    `<name>_upper`, the ends of the interval around each filled value; categories get `<name>_probability` instead.
    """
    with one_line_errors():
        _require_output_paths(data, output, report, force)
        if model:
            _require_no_training_options(bool(epochs or preset or kind or conformal or method != DEFAULT))
            imputer, table, panel = _load(model, device, data, id, time, columns)
        else:
            kinds = parse_kinds(kind or [], [method])
            table, panel = tables.read(data, id, time, columns, categorical_columns(kinds))
            imputer = ImputerOptions(kinds, conformal, epochs, preset, device, seed).build(method)
        level = interval_level(interval, imputer, samples)
        _require_room_for_intervals(table, panel, level)
        if not model:
            require_calibration_cells(imputer, panel, level)
            if panel.observed.all() and not report:
                _write_unchanged(imputer, table, panel, output, force)
                return
            fit_with_checkpoint(imputer, panel, output)
        imputation = imputer.impute(panel, samples=samples, seed=seed)
        _write_filled(imputation, level, table, output, force)
        _print_reliability(imputation, level)
        tables.write_report(imputation, report, force)


def _require_output_paths(data: Path, output: Path, report: Path | None, force: bool) -> None:
    from gpvae.data.atomic import require_writable
    from gpvae.data.files import file_kind

    file_kind(output)
    require_writable(output, force=force)
    tables.require_report_path(report, output, data, checkpoint_path(output), force=force)


def _require_no_training_options(given: bool) -> None:
    from gpvae import DataError

    if given:
        excluded = "--method, --kind, --conformal, --preset or --epochs"
        raise DataError(f"--model loads a trained imputer, so it cannot be combined with {excluded}")


def _load(
    model: Path, device: str, data: Path, id: str | None, time: str | None, columns: list[str] | None
) -> "tuple[Imputer, TableFile, Panel]":
    """A saved imputer, and the table read with the columns for series, time and text that it was trained with."""
    import gpvae

    imputer = gpvae.load(model, device=device)
    schema = imputer.schema_
    text = tuple(schema.labels)
    table, panel = tables.read(data, id or schema.id, time or schema.time, columns, text, text)
    return imputer, table, panel


def _require_room_for_intervals(table: "TableFile", panel: "Panel", level: float) -> None:
    if level:
        table.require_no_columns(
            [f"{name}_{end}" for name in panel.columns for end in ("lower", "upper", "probability")]
        )


def _write_unchanged(imputer: "Imputer", table: "TableFile", panel: "Panel", output: Path, force: bool) -> None:
    imputer._new_schema(panel)  # raises if the options do not suit the data
    _write(table, panel.fill(panel.values), output, force, "no gaps to fill, table unchanged")


def _write_filled(imputation: "Imputation", level: float, table: "TableFile", output: Path, force: bool) -> None:
    intervals = f", with {level:.0%} intervals" if level else ""
    summary = f"filled {imputation.cells.size:,} cells{intervals}"
    _write(table, imputation.to_frame(interval=level or None), output, force, summary)


def _write(table: "TableFile", frame: Any, output: Path, force: bool, summary: str) -> None:
    """Write the table, then remove the checkpoint, which is no longer needed."""
    table.write(output, frame, force=force)
    remove_checkpoints(output)
    say(f"{summary}: {output}")


def _print_reliability(imputation: "Imputation", level: float) -> None:
    from gpvae.report.trust import brief

    for sentence in brief(imputation, intervals=level > 0):
        say(sentence)
