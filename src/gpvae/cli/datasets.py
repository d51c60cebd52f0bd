"""`gpvae datasets`."""

from typing import Annotated

import typer

from gpvae.cli.errors import one_line_errors
from gpvae.cli.printing import print_datasets, say


def datasets(
    name: Annotated[str | None, typer.Argument(help="A data set to fetch and build.  [default: list them]")] = None,
) -> None:
    """List the public data sets of the paper and its field, or fetch one.

    `gpvae datasets`

    `gpvae datasets physionet2012`

    Files are read from the folder in the environment variable GPVAE_DATA, or from a cache (GPVAE_CACHE). Missing
    files are downloaded into the cache from their publishers.
    """
    with one_line_errors():
        from gpvae import datasets

        if name is None:
            print_datasets(datasets.available())
        else:
            say(f"{name}: {datasets.load(name, verbose=True).panel}")
