"""`gpvae demo`."""

from pathlib import Path
from typing import Annotated

import typer

from gpvae.cli import options
from gpvae.cli.errors import one_line_errors
from gpvae.cli.printing import print_scores, say


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="A folder for the results.")] = Path("demo"),
    seed: options.Seed = 0,
    minutes: options.Minutes = None,
    force: options.Force = False,
) -> None:
    """Make gaps in four years of Seattle's weather, fill them, and show how well that worked."""
    with one_line_errors():
        from gpvae import demo

        result = demo.run(output, seed=seed, minutes=minutes, force=force)
        print_scores(result.evaluation, 0.9)
        say(f"\ntable with gaps:  {result.table}")
        say(f"filled table:     {result.filled}")
        say(f"plot:             {result.picture}")
        say(f"report:           {result.report}")
