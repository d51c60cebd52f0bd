"""`gpvae impute`."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    require_causal,
)
from gpvae.cli.printing import say, working

if TYPE_CHECKING:
    from gpvae import GapSelection, Imputer, Panel
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
    causal: options.Causal = False,
    fit_until: options.FitUntil = None,
    interval: options.Interval = None,
    samples: options.Samples = 100,
    seed: options.Seed = 0,
    epochs: options.Epochs = None,
    preset: options.PresetOption = None,
    device: options.DeviceOption = options.Device.auto,
    report: options.Report = None,
    draws: options.Draws = None,
    max_gap: options.MaxGap = None,
    only: options.Only = None,
    not_before: options.NotBefore = None,
    leading: options.Leading = True,
    trailing: options.Trailing = True,
    add_rows: options.AddRows = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    force: options.Force = False,
) -> None:
    """Fill the gaps of a table.

    - `gpvae impute weather.csv -o filled.csv`
    - `gpvae impute icu.parquet --id patient --time hour -o filled.parquet`
    - `gpvae impute new.csv --model model/ -o filled.csv`
    - `gpvae impute weather.csv --method brits --conformal -o filled.csv`
    - `gpvae impute weather.csv -o filled.csv --report report.html`
    - `gpvae impute weather.csv -o filled.csv --max-gap 6h --add-rows`

    Observed values come back unchanged. Each column with gaps gets two more columns, `<name>_lower` and
    `<name>_upper`, the ends of the interval around each filled value; categories get `<name>_probability` instead.
    """
    with one_line_errors(), _claimed(data, output, report, force):
        if model:
            _require_no_training_options(any((epochs, preset, kind, conformal, fit_until, method != DEFAULT)))
            imputer, table, panel = _load(model, device, data, id, time, columns, add_rows)
        else:
            require_causal(causal, method, conformal, fit_until)
            kinds = parse_kinds(kind or [], [method])
            table, panel = tables.read(data, id, time, columns, categorical_columns(kinds), add_rows=add_rows)
            imputer = ImputerOptions(kinds, conformal, epochs, preset, device, seed).build(method)
        gaps = tables.gap_selection(panel, max_gap, only, not_before, leading, trailing)
        level = interval_level(interval, imputer, samples)
        tables.require_draws_path(draws, table, imputer, data, output, checkpoint_path(output), report, force=force)
        choice = _Choice(gaps, causal, fit_until)
        job = _Job(imputer, table, panel, choice, level, samples, seed, output, report, draws, force)
        job.run(train=not model)


@contextmanager
def _claimed(data: Path, output: Path, report: Path | None, force: bool) -> Iterator[None]:
    """Check that the outputs can be written, and keep other runs from writing them."""
    from gpvae.data.atomic import claim

    _require_output_paths(data, output, report, force)
    with claim(output, report):
        yield


@dataclass(frozen=True)
class _Choice:
    """What the method is fitted on, and what it fills from what."""

    gaps: "GapSelection"
    causal: bool
    fit_until: str | None

    def fitted(self, panel: "Panel") -> "Panel":
        from gpvae import DataError

        try:
            return panel if self.fit_until is None else panel.until(self.fit_until)
        except DataError as error:
            raise DataError(f"--fit-until: {error}") from None


@dataclass(frozen=True)
class _Job:
    """What is to be done, once the options are understood and the table is read."""

    imputer: "Imputer"
    table: "TableFile"
    panel: "Panel"
    choice: _Choice
    level: float  # of the intervals, 0 for none
    samples: int
    seed: int
    output: Path
    report: Path | None
    draws: Path | None
    force: bool

    def run(self, *, train: bool) -> None:
        tables.require_memory_for_draws(self.imputer, self.panel, self.samples)
        _require_room_for_intervals(self.table, self.panel, self.level)
        if train:
            fitted = self.choice.fitted(self.panel)
            require_calibration_cells(self.imputer, fitted, self.level)
            if self.panel.observed.all() and not (self.report or self.draws):
                self._write_unchanged()
                return
            fit_with_checkpoint(self.imputer, fitted, self.output)
        self._fill()

    def _fill(self) -> None:
        from gpvae.report.trust import brief

        gaps, causal = self.choice.gaps, self.choice.causal
        with working("filling gaps"):
            imputation = self.imputer.impute(self.panel, samples=self.samples, seed=self.seed, gaps=gaps, causal=causal)
        intervals = f", with {self.level:.0%} intervals" if self.level else ""
        filled = imputation.to_frame(interval=self.level or None)
        self._write(filled, f"filled {imputation.cells.size:,} cells{intervals}")
        say(*gaps.summary(self.panel))
        tables.write_draws(imputation, self.table, self.draws, self.force)
        with working("checking held-out cells"):
            reliability = brief(imputation, intervals=self.level > 0)
        say(*reliability)
        tables.write_report(imputation, self.report, self.force)

    def _write_unchanged(self) -> None:
        self.imputer._new_schema(self.panel)  # raises if the options do not suit the data
        self._write(self.panel.fill(self.panel.values), "no gaps to fill, table unchanged")

    def _write(self, frame: Any, summary: str) -> None:
        """Write the table, then remove the checkpoint, which is no longer needed."""
        self.table.write(self.output, frame, force=self.force)
        remove_checkpoints(self.output)
        say(f"{summary}: {self.output}")


def _require_output_paths(data: Path, output: Path, report: Path | None, force: bool) -> None:
    from gpvae.data.atomic import require_writable
    from gpvae.data.files import file_kind

    file_kind(output)
    require_writable(output, force=force)
    tables.require_report_path(report, output, data, checkpoint_path(output), force=force)


def _require_no_training_options(given: bool) -> None:
    from gpvae import DataError

    if given:
        excluded = "--method, --kind, --conformal, --preset, --epochs or --fit-until"
        raise DataError(f"--model loads a trained imputer, so it cannot be combined with {excluded}")


def _load(
    model: Path, device: str, data: Path, id: str | None, time: str | None, columns: list[str] | None, add_rows: bool
) -> "tuple[Imputer, TableFile, Panel]":
    """A saved imputer, and the table read with the columns for series, time and text that it was trained with."""
    import gpvae

    imputer = gpvae.load(model, device=device)
    schema = imputer.schema_
    text = tuple(schema.labels)
    table, panel = tables.read(data, id or schema.id, time or schema.time, columns, text, text, add_rows=add_rows)
    return imputer, table, panel


def _require_room_for_intervals(table: "TableFile", panel: "Panel", level: float) -> None:
    if level:
        table.require_no_columns(
            [f"{name}_{end}" for name in panel.columns for end in ("lower", "upper", "probability")]
        )
