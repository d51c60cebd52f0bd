"""The command line. Commands import the library when they run, so that --help does not wait for PyTorch."""

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from gpvae.cli import datasets, demo, evaluate, fit, impute, reproduce, stream
from gpvae.cli.printing import say

app = typer.Typer(
    help="Fill gaps in multivariate time series, with an interval around each filled value.",
    epilog="Start with: gpvae demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
for command in (
    impute.impute,
    fit.fit,
    stream.stream,
    evaluate.evaluate,
    datasets.datasets,
    reproduce.reproduce,
    demo.demo,
):
    app.command()(command)


@app.command("help")
def show_help(
    context: typer.Context, command: Annotated[str | None, typer.Argument(help="Such as impute.")] = None
) -> None:
    """Show the help of a command, or the list of commands."""
    context.find_root().command.main([*([command] if command else []), "--help"], prog_name="gpvae")


def _print_version(requested: bool) -> None:
    if requested:
        say(f"gpvae {version('gpvae')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main() -> None:
    for output in (sys.stdout, sys.stderr):
        if isinstance(output, TextIOWrapper):
            output.reconfigure(errors="replace")  # of a terminal that knows ASCII only
    app()
