"""`gpvae evaluate`."""

from typing import TYPE_CHECKING, Annotated

import typer

from gpvae.cli import options, tables
from gpvae.cli.errors import one_line_errors
from gpvae.cli.methods import (
    METHODS,
    ImputerOptions,
    categorical_columns,
    parse_kinds,
    parse_known,
    parse_methods,
)
from gpvae.cli.printing import print_gap_scores, print_scores
from gpvae.cli.source import reads_table
from gpvae.imputers.registry import COMPARED

if TYPE_CHECKING:
    from gpvae.data.sources import Source


@reads_table
def evaluate(
    source: "Source",
    hold_out: Annotated[float, typer.Option(min=0, max=1, help="Share of the observed cells to hide.")] = 0.1,
    gaps: Annotated[
        options.Gaps,
        typer.Option(
            help="Which cells to hide: any (random); neighbouring steps together (temporal+) or apart (temporal-); "
            "large values twice as often as small ones (not-at-random); runs of 5 to 20 steps (blocks); gaps like "
            "those of the table (like-own)."
        ),
    ] = options.Gaps.random,
    id: options.Id = None,
    time: options.Time = None,
    columns: options.Columns = None,
    kind: options.Kind = None,
    known: options.Known = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help=f"Methods to compare, separated by commas: {', '.join(METHODS)}  [default: {', '.join(COMPARED)}]"
        ),
    ] = None,
    conformal: options.Conformal = False,
    interval: Annotated[
        float, typer.Option(min=0.01, callback=options.check_probability, help="Level of the intervals to check.")
    ] = 0.9,
    samples: options.Samples = 100,
    seed: options.Seed = 0,
    minutes: options.Minutes = None,
    epochs: options.Epochs = None,
    preset: options.PresetOption = None,
    device: options.DeviceOption = options.Device.auto,
    report: options.Report = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    force: options.Force = False,
) -> None:
    """Hide some observed cells, fill them, and compare the results with the true values.

    - `gpvae evaluate weather.csv --hold-out 0.1`
    - `gpvae evaluate weather.csv --methods linear,brits,gp-vae --gaps blocks --report report.html`

    Errors are in standard deviations of each column.
    """
    with one_line_errors():
        from gpvae import evaluation
        from gpvae.imputers.draws import require_samples

        require_samples((1 - interval) / 2, samples)
        tables.require_report_path(report, *source.files, force=force)
        categories = categorical_columns(kinds := parse_kinds(kind))
        names = parse_methods(methods, minutes, kinds, preset, epochs)
        always = parse_known(known, names)
        _, panel = tables.read(source, id, time, columns and [*columns, *always], categories)
        imputers = ImputerOptions(kinds, conformal, epochs, preset, device, seed, minutes, always).build_all(names)
        result = evaluation.evaluate(
            panel, hold_out, imputers, gaps=gaps, level=interval, samples=samples, seed=seed, verbose=not quiet
        )
        print_scores(result, interval, int(result.cells[:, [panel.columns.index(c) for c in categories]].sum()))
        print_gap_scores(result, interval)
        tables.write_report(result, report, force)
