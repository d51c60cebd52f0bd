"""The command line: parsing and printing."""

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
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
    from gpvae.data.files import TableFile
    from gpvae.data.panel import Panel
    from gpvae.datasets import Available
    from gpvae.evaluation import Evaluation
    from gpvae.imputers.base import Imputer
    from gpvae.paper.reproduction import Table as Reproduced

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


class Method(StrEnum):
    mean = "mean"
    forward = "forward"
    linear = "linear"
    gp = "gp"
    vae = "vae"
    hi_vae = "hi-vae"
    gp_vae = "gp-vae"
    brits = "brits"
    grui_gan = "grui-gan"


WITH_KINDS = (Method.vae, Method.hi_vae, Method.gp_vae)
WITH_CATEGORIES = (Method.mean, Method.forward, Method.linear)


class Gaps(StrEnum):
    random = "random"
    temporal_positive = "temporal+"
    temporal_negative = "temporal-"
    not_at_random = "not-at-random"
    blocks = "blocks"
    like_own = "like-own"


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


def _probability(value: float | None) -> float | None:
    if value is not None and not 0 <= value < 1:
        raise typer.BadParameter(f"a probability lies between 0 and 1 (0.9 is 90 %), not at {value:g}")
    return value


Interval = Annotated[
    float | None,
    typer.Option(
        callback=_probability,
        help="Probability of the interval around each filled value; 0 for none.  [default: 0.9, if the method has any]",
    ),
]
MethodOption = Annotated[Method, typer.Option("--method", help="What fills the gaps.")]
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        help="What a column holds: NAME=real, positive, count, binary, categorical or ordinal; or, for text with an "
        "order, NAME=low<mid<high. Separated by commas, or several times.  [default: real numbers]",
    ),
]
ReportOption = Annotated[
    Path | None, typer.Option("--report", help="An HTML page to look at: gaps, filled values, how far to trust them.")
]
ConformalOption = Annotated[
    bool,
    typer.Option("--conformal", help="Calibrate intervals on a tenth of the known cells; any method, real numbers."),
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
    kind: Kinds = None,
    method: MethodOption = Method.gp_vae,
    conformal: ConformalOption = False,
    interval: Interval = None,
    samples: Samples = 100,
    seed: Seed = 0,
    epochs: Epochs = None,
    preset: PresetOption = None,
    device: DeviceOption = Device.auto,
    report: ReportOption = None,
    force: Force = False,
) -> None:
    """Fill the gaps of a table.

    `gpvae impute weather.csv -o filled.csv`

    `gpvae impute icu.parquet --id patient --time hour -o filled.parquet`

    `gpvae impute new.csv --model model/ -o filled.csv`

    `gpvae impute weather.csv --method brits --conformal -o filled.csv`

    `gpvae impute weather.csv -o filled.csv --report report.html`

    What was measured comes back as it was. For each column with gaps, two columns are added, `<name>_lower` and
    `<name>_upper`: the ends of the interval around each filled value; for categories `<name>_probability` instead.
    """
    with _one_line_errors():
        import gpvae
        from gpvae.data.files import file_kind, require_writable

        file_kind(output)
        require_writable(output, force=force)
        _require_report(report, output, data, _checkpoint_of(output), force=force)
        if model and (epochs or preset or kind or conformal or method != Method.gp_vae):
            raise gpvae.DataError("--model brings a method that is trained: it goes without options for a new one")
        trained = gpvae.load(model, device=device.value) if model else None
        kinds = _kinds(kind, [method])
        text = tuple(trained.schema_.labels) if trained else ()
        if trained:
            id, time = id or trained.schema_.id, time or trained.schema_.time
        table, panel = _read(data, id, time, columns, text or _categories(kinds), text)
        imputer = trained or _new(method, epochs, preset, device, seed, kinds, conformal)
        level = _level(interval, imputer, samples)
        if level:
            ends = ("lower", "upper", "probability")
            table.require_no_columns([f"{name}_{end}" for name in panel.columns for end in ends])
            if isinstance(imputer, gpvae.Conformal) and not trained:
                imputer.require_level(panel, level)
        if panel.observed.all() and not trained and not report:
            imputer._new_schema(panel)  # does it suit the options?
            _write(table, panel.fill(panel.values), output, force, "nothing to fill, so nothing learned; as it was")
            return
        from gpvae.report.trust import in_short

        if not trained:
            imputer = _fit(imputer, panel, output)
        imputation = imputer.impute(panel, samples=samples, seed=seed)
        with_intervals = f", with {level:.0%} intervals" if level else ""
        filled = f"filled {imputation.cells.size:,} cells{with_intervals}"
        _write(table, imputation.to_frame(interval=level or None), output, force, filled)
        for sentence in in_short(imputation, intervals=level > 0):
            console.print(sentence, markup=False, soft_wrap=True)
        if report:
            imputation.report(report, overwrite=force)
            console.print(f"report: {report}", markup=False, soft_wrap=True)


@app.command()
def fit(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the model.", show_default=False)],
    id: Id = None,
    time: Time = None,
    columns: Columns = None,
    kind: Kinds = None,
    method: MethodOption = Method.gp_vae,
    conformal: ConformalOption = False,
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
        from gpvae.imputers.base import require_model_folder

        require_model_folder(output, overwrite=force)
        kinds = _kinds(kind, [method])
        _, panel = _read(data, id, time, columns, _categories(kinds))
        imputer = _fit(_new(method, epochs, preset, device, seed, kinds, conformal), panel, output, logs)
        imputer.save(output, overwrite=force)
        _checkpoint_of(output).unlink(missing_ok=True)
        console.print(f"model: {output}")


@app.command()
def evaluate(
    data: Data,
    hold_out: Annotated[float, typer.Option(min=0, max=1, help="Share of the observed cells to hide.")] = 0.1,
    gaps: Annotated[
        Gaps,
        typer.Option(
            help="Which cells to hide: any (random); neighbouring steps together (temporal+) or apart (temporal-); "
            "large values twice as often as small (not-at-random); runs of 5 to 20 steps (blocks); gaps like those "
            "that the table has (like-own)."
        ),
    ] = Gaps.random,
    id: Id = None,
    time: Time = None,
    columns: Columns = None,
    kind: Kinds = None,
    methods: Annotated[
        str, typer.Option(help="What to compare, separated by commas: " + ", ".join(Method))
    ] = "mean,forward,linear,gp-vae",
    conformal: ConformalOption = False,
    interval: Annotated[
        float, typer.Option(min=0.01, callback=_probability, help="Interval whose coverage is measured.")
    ] = 0.9,
    samples: Samples = 100,
    seed: Seed = 0,
    epochs: Epochs = None,
    preset: PresetOption = None,
    device: DeviceOption = Device.auto,
    report: ReportOption = None,
    force: Force = False,
) -> None:
    """Hide some observed cells, fill them, and compare with what was there.

    `gpvae evaluate weather.csv --hold-out 0.1`

    `gpvae evaluate weather.csv --methods linear,brits,gp-vae --gaps blocks`

    `gpvae evaluate weather.csv --report report.html`

    Errors are counted in standard deviations of each column.
    """
    with _one_line_errors():
        from gpvae import evaluation, missingness
        from gpvae.imputers.imputation import require_samples

        require_samples((1 - interval) / 2, samples)
        _require_report(report, data, force=force)
        chosen = _methods(methods)
        kinds = _kinds(kind, chosen)
        _, panel = _read(data, id, time, columns, _categories(kinds))
        held_out = missingness.MECHANISMS[gaps](panel, hold_out, seed)
        imputers = {name.value: _new(name, epochs, preset, device, seed, kinds, conformal) for name in chosen}
        result = evaluation.evaluate(panel, held_out, imputers, level=interval, samples=samples, seed=seed)
        named = sum(int(result.cells[:, panel.columns.index(name)].sum()) for name in _categories(kinds))
        _print_scores(result, interval, named)
        if report:
            result.report(report, overwrite=force)
            console.print(f"report: {report}", markup=False, soft_wrap=True)


@app.command()
def datasets(
    name: Annotated[str | None, typer.Argument(help="A data set to fetch and build.  [default: list them]")] = None,
) -> None:
    """List the public data sets that the paper and its field use, or fetch one.

    `gpvae datasets`

    `gpvae datasets physionet2012`

    Files are looked for in the folder that the environment variable GPVAE_DATA names, then in a cache
    (GPVAE_CACHE), and downloaded into the cache from their makers where they are in neither.
    """
    with _one_line_errors():
        from gpvae import datasets

        if name is None:
            _print_datasets(datasets.available())
            return
        found = datasets.load(name, verbose=True)
        console.print(f"{name}: {found.panel}", markup=False)


@app.command()
def reproduce(
    what: Annotated[
        list[str],
        typer.Argument(
            help="Tables T1, T2, T3, S4, S5, figures F2, F3, what our changes bring (changes), or all.",
            show_default=False,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for runs, tables and figures.")] = Path(
        "reproduction"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each kind, with the seeds 0, 1, …")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="A small version of everything, to see it work.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in a process of its own.")] = 1,
    device: DeviceOption = Device.auto,
) -> None:
    """Run the paper's experiments again, and put our numbers beside the published ones.

    `gpvae reproduce T1 --seeds 3 --device cuda`

    `gpvae reproduce all --quick`

    What is finished is kept in the folder (with --quick in a folder `quick` there): run again, or interrupted, the
    command goes on from there.
    """
    with _one_line_errors():
        from gpvae.paper import reproduction

        asked = [{name.lower(): name for name in reproduction.NAMES}.get(name.lower(), name) for name in what]
        names = reproduction.NAMES if "all" in what else list(dict.fromkeys(asked))
        folder = output / "quick" if quick else output
        settings = {"seeds": seeds, "quick": quick, "jobs": jobs, "device": device.value}
        try:
            made = reproduction.reproduce(
                names, output, **settings, report=lambda line: console.print(line, markup=False, soft_wrap=True)
            )
        except KeyboardInterrupt:
            complaints.print(f"\nStopped. {folder} holds what is finished: the same command goes on from there.")
            raise typer.Exit(130) from None
        for name, found in made.items():
            if isinstance(found, Path):
                console.print(f"{name}: {found}", markup=False, soft_wrap=True)
            else:
                _print_reproduced(name, found, folder / f"{name}.md")


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for tables, picture and report.")] = Path(
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
        _print_scores(result.evaluation, 0.9)
        console.print(f"\nthe table with gaps:  {result.table}")
        console.print(f"the table filled:     {result.filled}")
        console.print(f"a picture of it:      {result.picture}")
        console.print(f"a report to look at:  {result.report}")


@contextmanager
def _one_line_errors() -> Iterator[None]:
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what others have to say, but for why a GPU cannot be used
        warnings.filterwarnings("always", category=UserWarning, module=r"gpvae|torch\.cuda")
        told: set[str] = set()  # several methods may have the same to say
        warnings.showwarning = lambda message, *_, **__: _note_once(str(message), told)
        try:
            yield
        except KeyboardInterrupt:
            complaints.print("\nStopped.")
            raise typer.Exit(130) from None
        except (ValueError, RuntimeError, OSError) as error:
            if isinstance(error, RuntimeError) and not _is_about_training(error):
                raise
            complaints.print(f"Error: {error}", markup=False, soft_wrap=True)
            raise typer.Exit(1) from None


def _is_about_training(error: RuntimeError) -> bool:
    from gpvae.training.loop import TrainingError

    return isinstance(error, TrainingError)


def _note_once(message: str, told: set[str]) -> None:
    if message not in told:
        told.add(message)
        _note(message)


def _note(message: str) -> None:
    complaints.print(f"Note: {message}", markup=False, soft_wrap=True)


def _read(
    data: Path,
    id: str | None,
    time: str | None,
    columns: list[str] | None,
    categories: Sequence[str] = (),
    text: Sequence[str] = (),
) -> "tuple[TableFile, Panel]":
    from gpvae.data.files import read_table

    table = read_table(data).with_text(text).with_categories(categories)
    chosen = [name for entry in columns for name in _names(entry, table.table.column_names)] if columns else None
    panel = table.panel(id=id, time=time, columns=chosen, categories=categories)
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
        gaps = {name: table.table[name].null_count for name in left}
        named = (f"{name} (with {gaps[name]:,} gaps)" if gaps[name] else name for name in left)
        console.print(f"left as they are: {', '.join(named)}", markup=False, soft_wrap=True)
    for reason in table.almost_numbers(left):
        _note(reason)
    if not clock:
        for reason in table.almost_times(left):
            _note(f"not used as the time: {reason}")
    return table, panel


def _names(entry: str, known: list[str]) -> list[str]:
    return [entry] if entry in known else [name.strip() for name in entry.split(",")]


def _new(
    method: str,
    epochs: int | None,
    preset: Preset | None,
    device: Device,
    seed: int,
    kinds: "dict[str, Any] | None",
    conformal: bool,
) -> "Imputer":
    from gpvae import Conformal, DataError, paper
    from gpvae.imputers.registry import method as new

    if preset and method != Method.gp_vae:
        raise DataError(f"--preset is for gp-vae, not for {method}")
    settings: dict[str, Any] = {"device": device.value, "seed": seed, "verbose": True}
    settings |= paper.PRESETS[preset] if preset else {}
    settings |= {"epochs": epochs} if epochs else {}
    settings |= {"kinds": kinds} if kinds and method in (*WITH_KINDS, *WITH_CATEGORIES) else {}
    imputer = new(method, **settings)
    return Conformal(imputer, seed=seed) if conformal else imputer


def _require_report(report: Path | None, *others: Path, force: bool) -> None:
    """Before hours of training: a page can be written there, and is not something else that the command uses."""
    from gpvae import DataError
    from gpvae.data.files import require_writable

    if report is None:
        return
    if report.resolve() in [other.resolve() for other in others]:
        raise DataError(f"--report: {report} is another file of this command; choose another name")
    if report.is_dir():
        raise DataError(f"--report: {report} is a folder; name a file in it, such as {report / 'report.html'}")
    try:
        require_writable(report, force=force)
    except DataError as error:
        raise DataError(f"--report: {error}") from None


def _methods(names: str) -> list[Method]:
    try:
        return [Method(name.strip()) for name in names.split(",")]
    except ValueError as error:
        from gpvae import DataError

        raise DataError(f"--methods: {error}; there are {', '.join(Method)}") from None


def _kinds(entries: list[str] | None, methods: Sequence[Method]) -> "dict[str, Any] | None":
    """NAME=kind,NAME=low<mid<high → {NAME: kind, NAME: [low, mid, high]}"""
    from gpvae import DataError

    kinds: dict[str, Any] = {}
    for entry in ",".join(entries or []).split(",") if entries else []:
        name, equals, kind = (part.strip() for part in entry.rpartition("="))
        if not equals or not name or not kind:
            raise DataError(f"--kind: {entry!r} is not NAME=kind, such as visits=count or grade=low<mid<high")
        kinds[name] = [level.strip() for level in kind.split("<")] if "<" in kind else kind
    known = {*methods} & ({*WITH_KINDS} if len(kinds) > len(_categories(kinds)) else {*WITH_KINDS, *WITH_CATEGORIES})
    if kinds and not known:
        where = f"{', '.join(WITH_KINDS)}, and if it is a category for {', '.join(WITH_CATEGORIES)}"
        raise DataError(f"--kind is for {where}; {methods[0]} takes numbers for real ones")
    return kinds or None


def _categories(kinds: "dict[str, Any] | None") -> tuple[str, ...]:
    from gpvae.data.scaling import class_columns

    return class_columns(kinds)


def _level(interval: float | None, imputer: "Imputer", samples: int) -> float:
    """Of the intervals to write; 0 for none."""
    from gpvae import Conformal, DataError
    from gpvae.imputers.imputation import require_samples

    if imputer.gives_distributions or isinstance(imputer, Conformal):
        level = 0.9 if interval is None else interval
        if level and imputer.gives_distributions:
            require_samples((1 - level) / 2, samples)
        return level
    if interval:
        raise DataError(f"{imputer.name} gives single values, without intervals; --conformal puts some around them")
    if interval is None:
        _note(f"{imputer.name} gives single values, without intervals; --conformal puts some around them")
    return 0.0


def _fit(imputer: "Imputer", panel: "Panel", output: Path, logs: Path | None = None) -> "Imputer":
    """Fit with a checkpoint beside the output, to be removed when that is written."""
    checkpoint = _checkpoint_of(output)
    try:
        imputer.fit(panel, checkpoint=checkpoint, logs=logs)
    except KeyboardInterrupt:
        what = f"{checkpoint} holds what was learned: the same command goes on from there."
        complaints.print(f"\nStopped. {what}", markup=False, soft_wrap=True)
        raise typer.Exit(130) from None
    return imputer


def _write(table: "TableFile", frame: Any, output: Path, force: bool, what: str) -> None:
    """And the checkpoint has done its work."""
    table.write(output, frame, force=force)
    _checkpoint_of(output).unlink(missing_ok=True)
    console.print(f"{what}: {output}", markup=False, soft_wrap=True)


def _checkpoint_of(output: Path) -> Path:
    return output.with_name(output.name + ".checkpoint")


def _print_scores(result: "Evaluation", level: float, categories: int = 0) -> None:
    """`categories` are so many of the hidden cells."""
    scores, cells = result.scores, int(result.cells.sum())
    caption = "errors of numbers, in standard deviations of each column: lower is better"
    if any(score.coverage is not None for score in scores):
        caption += f"\nby chance, shares in the interval differ by ± {_chance(level, cells - categories):.1%} or more"
    right = [score.accuracy for score in scores if score.accuracy is not None]
    if right:
        chance = max(_chance(share, categories) for share in right)
        caption += f"\nby chance, shares of categories right differ by ± {chance:.1%} or more"
    of_them = f", {categories:,} of them categories" if categories else ""
    table = Table(title=f"{cells:,} hidden cells{of_them}", title_justify="left", caption=caption)
    table.add_column("")
    named = bool(right)
    headings = ["MAE", "MSE", "CRPS", "NLL", f"in the {level:.0%} interval", "seconds"]
    for name in [*headings[:-1], *(["categories right"] if named else []), headings[-1]]:
        table.add_column(name, justify="right")
    for score in scores:
        numbers = [_text(number, ".3f") for number in (score.mae, score.mse, score.crps, score.nll)]
        shares = [_text(share, ".1%") for share in (score.coverage, *([score.accuracy] if named else []))]
        table.add_row(score.method, *numbers, *shares, _text(score.seconds, ".1f"))
    console.print(table)


def _chance(share: float, cells: int) -> float:
    """How far a share of independent cells lies from the true one in 19 of 20 cases; of cells in runs, further."""
    return 1.96 * math.sqrt(share * (1 - share) / cells)


def _print_reproduced(name: str, found: "Reproduced", file: Path) -> None:
    table = Table(title=name, title_justify="left")
    for i, heading in enumerate(found.heading):
        table.add_column(heading, justify="left" if i < 2 else "right")
    for line in found.lines:
        table.add_row(*line)
    console.print(table)
    for note in [*found.notes, str(file)]:
        console.print(note, markup=False, soft_wrap=True)


def _print_datasets(sets: "list[Available]") -> None:
    table = Table(caption="gpvae datasets NAME fetches one")
    for heading in ("", "what it is", "files", "licence"):
        table.add_column(heading)
    for each in sets:
        place = "here" if each.present else "to be downloaded"
        table.add_row(each.name, each.description, place, each.licence)
    console.print(table)


def _text(number: float | None, form: str) -> str:
    return "–" if number is None else format(number, form)


def main() -> None:
    app()
