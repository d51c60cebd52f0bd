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
    ImputerOptions,
    categorical_columns,
    chosen,
    interval_level,
    parse_kinds,
    parse_known,
    require_calibration_cells,
    require_causal,
)
from gpvae.cli.plan import plan
from gpvae.cli.printing import STDOUT, messages_apart, print_table, say, working
from gpvae.cli.source import reads_table

if TYPE_CHECKING:
    from gpvae import GapSelection, Imputer, Panel
    from gpvae.data.files import TableFile
    from gpvae.data.sources import Source

Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="The filled table, in the format of its ending; - for standard output.",
        show_default=False,
    ),
]
Model = Annotated[Path | None, typer.Option(help="A model from `gpvae fit`.  [default: train on the table itself]")]
Escape = Annotated[
    bool,
    typer.Option("--escape-formulas", help="Write a ' before text that spreadsheets would compute: = + - @ (CSV)."),
]

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Read the table and check the options; say what would be done, and do nothing."),
]


Recalibrate = Annotated[
    bool,
    typer.Option("--recalibrate", help="With --model: set its intervals by this table, whose rows may have drifted."),
]


@reads_table
def impute(
    source: "Source",
    output: Output,
    model: Model = None,
    recalibrate: Recalibrate = False,
    id: options.Id = None,
    time: options.Time = None,
    columns: options.Columns = None,
    kind: options.Kind = None,
    known: options.Known = None,
    method: options.Method = None,
    conformal: options.Conformal = False,
    causal: options.Causal = False,
    fit_until: options.FitUntil = None,
    interval: options.Interval = None,
    samples: options.Samples = 100,
    seed: options.Seed = 0,
    minutes: options.Minutes = None,
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
    escape_formulas: Escape = False,
    dry_run: DryRun = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    force: options.Force = False,
) -> None:
    """Fill the gaps of a table.

    - `gpvae impute weather.csv -o filled.csv`
    - `gpvae impute icu.parquet --id patient --time hour -o filled.parquet`
    - `gpvae impute new.csv --model model/ -o filled.csv`
    - `gpvae impute weather.csv -o filled.csv --report report.html --max-gap 6h --add-rows`
    - `cat weather.csv | gpvae impute - -o - --missing -999 > filled.csv`

    Observed values come back unchanged. Each column with gaps gets two more columns, `<name>_lower` and
    `<name>_upper`, the ends of the interval around each filled value; categories get `<name>_probability` instead.
    """
    with one_line_errors(), _claimed(source, output, report, force):
        if model:
            _require_no_training_options(any((epochs, minutes, preset, kind, known, conformal, fit_until, method)))
            imputer, table, panel = _load(model, device, source, id, time, columns, add_rows)
        else:
            kinds = parse_kinds(kind)
            method = chosen(method, minutes, kinds, preset, epochs)
            require_causal(causal, method, conformal, fit_until)
            text, always = categorical_columns(kinds), parse_known(known, [method])
            table, panel = tables.read(source, id, time, columns and [*columns, *always], text, add_rows=add_rows)
            imputer = ImputerOptions(kinds, conformal, epochs, preset, device, seed, minutes, always).build(method)
        _recalibrate(imputer, panel, recalibrate, trained=bool(model))
        gaps = tables.gap_selection(panel, max_gap, only, not_before, leading, trailing)
        level = interval_level(interval, imputer, samples)
        tables.require_draws_path(draws, table, imputer, *_others(source, output), report, force=force)
        table, to = table.escaping_formulas(escape_formulas), _Target(output, report, draws, force)
        job = _Job(imputer, table, panel, _Choice(gaps, causal, fit_until), level, samples, seed, to)
        job.explain() if dry_run else job.run(train=not model)


@contextmanager
def _claimed(source: "Source", output: Path, report: Path | None, force: bool) -> Iterator[None]:
    """Check that the outputs can be written, and keep other runs from writing them."""
    from gpvae.data.atomic import claim

    _require_output_paths(source, output, report, force)
    with claim(None if output == STDOUT else output, report), messages_apart(output == STDOUT):
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
class _Target:
    """What is written."""

    output: Path
    report: Path | None
    draws: Path | None
    force: bool


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
    to: _Target

    def run(self, *, train: bool) -> None:
        tables.require_memory_for_draws(self.imputer, self.panel, self.samples)
        _require_room_for_intervals(self.table, self.panel, self.level)
        if train:
            fitted = self.choice.fitted(self.panel)
            require_calibration_cells(self.imputer, fitted, self.level)
            if self.panel.observed.all() and not (self.to.report or self.to.draws):
                self._write_unchanged()
                return
            fit_with_checkpoint(self.imputer, fitted, None if self.to.output == STDOUT else self.to.output)
        self._fill()

    def explain(self) -> None:
        """For --dry-run."""
        say(*plan(self.imputer, self.panel, self.choice.gaps, [self.to.output, self.to.report, self.to.draws]))

    def _fill(self) -> None:
        import numpy as np

        from gpvae.report.trust import brief

        gaps, causal = self.choice.gaps, self.choice.causal
        with working("filling gaps"):
            imputation = self.imputer.impute(self.panel, samples=self.samples, seed=self.seed, gaps=gaps, causal=causal)
        intervals = f", with {self.level:.0%} intervals" if self.level else ""
        filled = imputation.to_frame(interval=self.level or None)
        empty = int((~np.isfinite(imputation.mean_rows.flat[imputation.cells])).sum())
        self._write(filled, f"filled {imputation.cells.size - empty:,} cells{intervals}")
        say(*gaps.summary(self.panel), *tables.left_empty(self.panel, imputation, gaps))
        tables.write_draws(imputation, self.table, self.to.draws, self.to.force)
        with working("checking held-out cells"):
            reliability = brief(imputation, intervals=self.level > 0)
        say(*reliability)
        tables.write_report(imputation, self.to.report, self.to.force)

    def _write_unchanged(self) -> None:
        self.imputer._new_schema(self.panel)  # raises if the options do not suit the data
        self._write(self.panel.fill(self.panel.values), "no gaps to fill, table unchanged")

    def _write(self, frame: Any, summary: str) -> None:
        """Write the table, then remove the checkpoint, which is no longer needed."""
        output = self.to.output
        if output == STDOUT:
            print_table(self.table.encoded(frame))
            say(summary)
            return
        self.table.write(output, frame, force=self.to.force)
        remove_checkpoints(output)
        say(f"{summary}: {output}")


def _require_output_paths(source: "Source", output: Path, report: Path | None, force: bool) -> None:
    from gpvae.data.atomic import require_writable
    from gpvae.data.formats import file_kind

    if output != STDOUT:
        file_kind(output)
        require_writable(output, force=force)
    tables.require_report_path(report, *_others(source, output), force=force)


def _others(source: "Source", output: Path) -> list[Path]:
    """Files that a report or draws must not replace."""
    return [*source.files, *([] if output == STDOUT else [output, checkpoint_path(output)])]


def _require_no_training_options(given: bool) -> None:
    from gpvae import DataError

    if given:
        excluded = "--method, --kind, --known, --conformal, --preset, --minutes, --epochs or --fit-until"
        raise DataError(f"--model loads a trained imputer, so it cannot be combined with {excluded}")


def _recalibrate(imputer: "Imputer", panel: "Panel", wanted: bool, *, trained: bool) -> None:
    from gpvae import DataError
    from gpvae.imputers.gp_net import GPNet

    if not wanted:
        return
    if not trained:
        raise DataError("--recalibrate is for --model; without it, intervals are those of the table anyway")
    if not isinstance(imputer, GPNet):
        raise DataError(f"--recalibrate works only with models of gp-net, not of {imputer.name}")
    imputer.recalibrate(panel)


def _load(
    model: Path,
    device: str,
    source: "Source",
    id: str | None,
    time: str | None,
    columns: list[str] | None,
    add_rows: bool,
) -> "tuple[Imputer, TableFile, Panel]":
    """A saved imputer, and the table read with the columns for series, time and text that it was trained with."""
    import gpvae

    imputer = gpvae.load(model, device=device)
    schema = imputer.schema_
    text = tuple(schema.labels)
    table, panel = tables.read(source, id or schema.id, time or schema.time, columns, text, text, add_rows=add_rows)
    return imputer, table, panel


def _require_room_for_intervals(table: "TableFile", panel: "Panel", level: float) -> None:
    if level:
        table.require_no_columns(
            [f"{name}_{end}" for name in panel.columns for end in ("lower", "upper", "probability")]
        )
