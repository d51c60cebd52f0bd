"""The command line: parsing and printing."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

# The library is imported inside the commands, so that --help does not wait for PyTorch.
if TYPE_CHECKING:
    from gpvae.evaluation import Score
    from gpvae.files import TableFile
    from gpvae.imputer import GPVAE
    from gpvae.panel import Panel

app = typer.Typer(
    help="Fill the gaps of multivariate time series, and say how sure it is.",
    epilog="Start with: gpvae demo",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
console = Console(highlight=False)
complaints = Console(stderr=True, highlight=False)


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class Preset(StrEnum):
    healing_mnist = "healing-mnist"
    sprites = "sprites"
    physionet = "physionet"


Data = Annotated[Path, typer.Argument(help="A table: .csv, .tsv, .txt (also .gz) or .parquet.", show_default=False)]
Id = Annotated[str | None, typer.Option("--id", help="Column that tells the series apart.  [default: one series]")]
Time = Annotated[
    str | None,
    typer.Option("--time", help="Column of times.  [default: the only column of dates, else the order of the rows]"),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", help="Columns to use, separated by commas.  [default: all numeric ones]"),
]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the data.  [default: enough for its size]")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
DeviceOption = Annotated[
    Device, typer.Option("--device", help="Where to compute; auto takes a CUDA GPU if there is one.")
]
PresetOption = Annotated[Preset | None, typer.Option("--preset", help="The paper's settings for one of its data sets.")]
Samples = Annotated[int, typer.Option(min=1, help="Draws that intervals are read from.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there already.")]
Interval = Annotated[
    float, typer.Option(min=0, max=0.999, help="Probability of the interval around each filled value; 0 for none.")
]


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"gpvae {version('gpvae')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def impute(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The filled table.", show_default=False)],
    model: Annotated[
        Path | None, typer.Option(help="A model from `gpvae fit`.  [default: fit to the table itself]")
    ] = None,
    id: Id = None,
    time: Time = None,
    columns: Columns = None,
    interval: Interval = 0.9,
    samples: Samples = 100,
    seed: Seed = 0,
    epochs: Epochs = None,
    preset: PresetOption = None,
    device: DeviceOption = Device.auto,
    force: Force = False,
) -> None:
    """Fill the gaps of a table.

    `gpvae impute weather.csv -o filled.csv`

    `gpvae impute icu.parquet --id patient --time hour -o filled.parquet`

    `gpvae impute new.csv --model model/ -o filled.csv`

    What was measured comes back as it was. For each column with gaps, two columns are added, `<name>_lower` and
    `<name>_upper`: the ends of the interval around each filled value.
    """
    with _one_line_errors():
        from gpvae import GPVAE, DataError
        from gpvae.files import file_kind, require_writable
        from gpvae.imputation import require_samples

        file_kind(output)
        require_writable(output, force=force)
        if interval:
            require_samples((1 - interval) / 2, samples)
        if model and (epochs or preset):
            raise DataError("--epochs and --preset are for a new model; --model brings one that is trained")
        trained = GPVAE.load(model, device=device.value) if model else None
        if trained:
            id, time = id or trained.schema_.id, time or trained.schema_.time
        table, panel = _read(data, id, time, columns)
        if interval:
            table.require_no_columns([f"{name}{end}" for name in panel.columns for end in ("_lower", "_upper")])
        imputer = trained or _fit(_new(epochs, preset, device, seed), panel, output)
        imputation = imputer.impute(panel, samples=samples, seed=seed)
        table.write(output, imputation.to_frame(interval=interval or None), force=force)
        _checkpoint_of(output).unlink(missing_ok=True)
        filled = f"filled {imputation.draws.cells.size:,} cells"
        console.print(f"{filled}, with {interval:.0%} intervals: {output}" if interval else f"{filled}: {output}")


@app.command()
def fit(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the model.", show_default=False)],
    id: Id = None,
    time: Time = None,
    columns: Columns = None,
    seed: Seed = 0,
    epochs: Epochs = None,
    preset: PresetOption = None,
    device: DeviceOption = Device.auto,
    logs: Annotated[Path | None, typer.Option(help="A folder for TensorBoard logs.")] = None,
    force: Force = False,
) -> None:
    """Learn from a table, for use on others with the same columns.

    `gpvae fit icu.parquet --id patient --time hour -o model/`

    Interrupted (Ctrl-C), the same command goes on where it stopped.
    """
    with _one_line_errors():
        from gpvae.imputer import require_model_folder

        require_model_folder(output, overwrite=force)
        _, panel = _read(data, id, time, columns)
        imputer = _fit(_new(epochs, preset, device, seed), panel, output, logs)
        imputer.save(output, overwrite=force)
        _checkpoint_of(output).unlink(missing_ok=True)
        console.print(f"model: {output}")


@app.command()
def evaluate(
    data: Data,
    hold_out: Annotated[float, typer.Option(min=0, max=1, help="Share of the observed cells to hide.")] = 0.1,
    id: Id = None,
    time: Time = None,
    columns: Columns = None,
    interval: Annotated[float, typer.Option(min=0.01, max=0.999, help="Interval whose coverage is measured.")] = 0.9,
    samples: Samples = 100,
    seed: Seed = 0,
    epochs: Epochs = None,
    preset: PresetOption = None,
    device: DeviceOption = Device.auto,
) -> None:
    """Hide some observed cells, fill them, and compare with what was there.

    `gpvae evaluate weather.csv --hold-out 0.1`

    Errors are counted in standard deviations of each column. Mean, forward and linear imputation stand beside.
    """
    with _one_line_errors():
        from gpvae import evaluation, missingness
        from gpvae.imputation import require_samples

        require_samples((1 - interval) / 2, samples)
        _, panel = _read(data, id, time, columns)
        held_out = missingness.random(panel, hold_out, seed)
        imputer = _new(epochs, preset, device, seed)
        result = evaluation.evaluate(panel, held_out, imputer, level=interval, samples=samples, seed=seed)
        _print_scores(result.scores, f"{result.cells.sum():,} hidden cells", interval)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the tables and the picture.")] = Path(
        "demo"
    ),
    seed: Seed = 0,
    epochs: Epochs = None,
    device: DeviceOption = Device.auto,
    force: Force = False,
) -> None:
    """Make gaps in four years of Seattle's weather, fill them, and show how well that went."""
    with _one_line_errors():
        from gpvae import demo as demonstration

        result = demonstration.run(output, seed=seed, epochs=epochs, device=device, force=force)
        _print_scores(result.evaluation.scores, f"{result.evaluation.cells.sum():,} hidden cells", 0.9)
        console.print(f"\nthe table with gaps:  {result.table}")
        console.print(f"the table filled:     {result.filled}")
        console.print(f"a picture of it:      {result.picture}")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from gpvae.training import TrainingError

        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = lambda message, *_, **__: _note(str(message))
        try:
            yield
        except (ValueError, TrainingError, OSError) as error:
            complaints.print(f"Error: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(1) from None


def _note(message: str) -> None:
    complaints.print(f"Note: {message}", markup=False, soft_wrap=True)


def _read(data: Path, id: str | None, time: str | None, columns: list[str] | None) -> "tuple[TableFile, Panel]":
    from gpvae.files import read_table

    table = read_table(data)
    chosen = [name for entry in columns for name in _names(entry, table.table.column_names)] if columns else None
    panel = table.panel(id=id, time=time, columns=chosen)
    missing = 1 - panel.observed.mean()
    clock = panel.source.time
    console.print(
        f"{data}: {len(panel):,} series, {len(panel.values):,} steps, {len(panel.columns)} columns, "
        f"{missing:.1%} missing; time: {clock or 'the order of the rows'}",
        markup=False,
        soft_wrap=True,
    )
    left = [name for name in table.table.column_names if name not in {*panel.columns, id, clock}]
    if left:
        console.print(f"left as they are: {', '.join(left)}", markup=False, soft_wrap=True)
    if not clock:
        for reason in table.almost_times(left):
            _note(f"not used as the time: {reason}")
    return table, panel


def _names(entry: str, known: list[str]) -> list[str]:
    return [entry] if entry in known else [name.strip() for name in entry.split(",")]


def _new(epochs: int | None, preset: Preset | None, device: Device, seed: int) -> "GPVAE":
    from gpvae import GPVAE, paper

    settings: dict[str, Any] = dict(paper.PRESETS[preset]) if preset else {}
    if epochs:
        settings["epochs"] = epochs
    return GPVAE(**settings, device=device.value, seed=seed, verbose=True)


def _fit(imputer: "GPVAE", panel: "Panel", output: Path, logs: Path | None = None) -> "GPVAE":
    """Fit with a checkpoint beside the output, to be removed when that is written."""
    checkpoint = _checkpoint_of(output)
    try:
        imputer.fit(panel, checkpoint=checkpoint, logs=logs)
    except KeyboardInterrupt:
        complaints.print(f"\nStopped. {checkpoint} holds what was learned: the same command goes on from there.")
        raise typer.Exit(130) from None
    return imputer


def _checkpoint_of(output: Path) -> Path:
    return output.with_name(output.name + ".checkpoint")


def _print_scores(scores: "list[Score]", what: str, level: float) -> None:
    table = Table(
        title=what, title_justify="left", caption="errors in standard deviations of each column: lower is better"
    )
    table.add_column("")
    for name in ("MAE", "MSE", "CRPS", "NLL", f"in the {level:.0%} interval"):
        table.add_column(name, justify="right")
    for score in scores:
        numbers = [score.mae, score.mse, score.crps, score.nll]
        texts = ["–" if number is None else f"{number:.3f}" for number in numbers]
        table.add_row(score.method, *texts, "–" if score.coverage is None else f"{score.coverage:.1%}")
    console.print(table)


def main() -> None:
    app()
