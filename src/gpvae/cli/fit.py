"""`gpvae fit`, and training with a checkpoint."""

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpvae.cli import options, tables
from gpvae.cli.errors import one_line_errors, stop
from gpvae.cli.methods import (
    ImputerOptions,
    categorical_columns,
    chosen,
    gives_intervals,
    parse_kinds,
    parse_known,
)
from gpvae.cli.printing import say, working
from gpvae.cli.source import reads_table

if TYPE_CHECKING:
    from gpvae.data.panel import Panel
    from gpvae.data.sources import Source
    from gpvae.imputers.base import Imputer

MOST_KINDS, MOST_NAMES = 6, 4  # of columns, in a line


@reads_table
def fit(
    source: "Source",
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the model.", show_default=False)],
    id: options.Id = None,
    time: options.Time = None,
    columns: options.Columns = None,
    kind: options.Kind = None,
    known: options.Known = None,
    method: options.Method = None,
    conformal: options.Conformal = False,
    seed: options.Seed = 0,
    minutes: options.Minutes = None,
    epochs: options.Epochs = None,
    preset: options.PresetOption = None,
    device: options.DeviceOption = options.Device.auto,
    logs: Annotated[Path | None, typer.Option(help="A folder for TensorBoard logs.")] = None,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
    force: options.Force = False,
) -> None:
    """Train on a table, to fill other tables with the same columns.

    `gpvae fit icu.parquet --id patient --time hour -o model/`

    After an interruption (Ctrl-C), gp-net keeps its best so far, and of other methods the same command resumes.
    """
    with one_line_errors(), ExitStack() as claimed:
        from gpvae.data.atomic import claim
        from gpvae.imputers.model_folder import require_model_folder

        require_model_folder(output, overwrite=force)
        claimed.enter_context(claim(output))
        from gpvae.report.trust import brief_of_fit

        kinds = parse_kinds(kind)
        method = chosen(method, minutes, kinds, preset, epochs)
        always = parse_known(known, [method])
        _, panel = tables.read(source, id, time, columns and [*columns, *always], categorical_columns(kinds))
        imputer = ImputerOptions(kinds, conformal, epochs, preset, device, seed, minutes, always).build(method)
        fit_with_checkpoint(imputer, panel, output, logs)
        imputer.save(output, overwrite=force)
        remove_checkpoints(output)
        say(f"model: {output}")
        with working("checking held-out cells"):
            reliability = brief_of_fit(imputer, panel, intervals=gives_intervals(imputer))
        say(*reliability)


def fit_with_checkpoint(imputer: "Imputer", panel: "Panel", output: Path | None, logs: Path | None = None) -> None:
    """Keep a checkpoint beside `output`, which the caller removes once the output is written; say what was found."""
    checkpoint = output and checkpoint_path(output)
    say(*kinds_line(imputer.found_kinds(panel)))
    try:
        with nullcontext() if imputer.shows_progress else working(f"fitting {imputer.name}"):
            imputer.fit(panel, checkpoint=checkpoint, logs=logs)
    except KeyboardInterrupt:
        kept = checkpoint is not None and checkpoint.exists()
        stop(f"Run the same command again to resume from {checkpoint}." if kept else "")
    if found := " ".join(imputer.describe()):
        say(found)


def kinds_line(kinds: dict[Any, str]) -> list[str]:
    """What was found in columns, and how to change it; nothing where there is nothing to say."""
    columns = dict[str, list[str]]()
    for name, words in kinds.items():
        columns.setdefault(words, []).append(str(name))
    groups = [f"{_listed(names)}: {words}" for words, names in columns.items()]
    more = [f"{len(groups) - MOST_KINDS} more kinds"] if len(groups) > MOST_KINDS else []
    example = str(next(iter(kinds), ""))
    return [f"{'; '.join([*groups[:MOST_KINDS], *more])} (change with --kind {example}=real)"] if kinds else []


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= MOST_NAMES else [*names[: MOST_NAMES - 1], f"{len(names) - MOST_NAMES + 1} more"]
    return ", ".join(shown)


def remove_checkpoints(output: Path) -> None:
    """Those of all stages of a run, once its output is written."""
    from gpvae.training.checkpoint import Checkpoint

    Checkpoint(checkpoint_path(output), fingerprint="").remove()


def checkpoint_path(output: Path) -> Path:
    return output.with_name(output.name + ".checkpoint")
