"""`gpvae reproduce`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpvae.cli import options
from gpvae.cli.errors import one_line_errors, stop
from gpvae.cli.printing import print_paper_table, say


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
    seeds: Annotated[int, typer.Option(min=1, help="Number of runs of each experiment, with seeds 0, 1, …")] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="Run a small version of everything, as a check.")] = False,
    tables_only: Annotated[
        bool, typer.Option("--tables-only", help="Make no run: write tables and figures from those in the folder.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, each in its own process.")] = 1,
    device: options.DeviceOption = options.Device.auto,
) -> None:
    """Repeat the paper's experiments, and show our numbers beside the published ones.

    `gpvae reproduce T1 --seeds 3 --device cuda`

    `gpvae reproduce all --quick`

    Finished runs are kept in the folder (with --quick in its subfolder `quick`), so the same command continues after
    an interruption.
    """
    with one_line_errors():
        from gpvae.paper import reproduction

        folder = output / "quick" if quick else output
        settings = {"seeds": seeds, "quick": quick, "jobs": jobs, "train": not tables_only, "device": device.value}
        try:
            results = reproduction.reproduce(_names(what, reproduction.NAMES), output, **settings, report=say)
        except KeyboardInterrupt:
            stop(f"Run the same command again to continue; finished runs are in {folder}.")
        for name, result in results.items():
            if isinstance(result, Path):
                say(f"{name}: {result}")
            else:
                print_paper_table(name, result, folder / f"{name}.md")


def _names(requested: list[str], known: Sequence[str]) -> Sequence[str]:
    """Without repetitions, in the usual spelling where the case differs."""
    if "all" in requested:
        return known
    spelling = {name.lower(): name for name in known}
    return list(dict.fromkeys(spelling.get(name.lower(), name) for name in requested))
