"""Arguments and options that commands share."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpvae.cli import printing
from gpvae.cli.methods import DEFAULT, KNOWING, METHODS, NETWORK, TIMED, unknown_method
from gpvae.imputers.registry import CAUSAL


class Device(StrEnum):
    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


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


def check_probability(value: float | None) -> float | None:
    if value is not None and not 0 <= value < 1:
        raise typer.BadParameter(f"must be at least 0 and below 1 (0.9 is 90 %), got {value:g}")
    return value


def check_method(name: str | None) -> str | None:
    if name is not None and name not in METHODS:
        raise typer.BadParameter(unknown_method(name))
    return name


Id = Annotated[str | None, typer.Option("--id", help="Column that identifies the series.  [default: one series]")]
Time = Annotated[
    str | None,
    typer.Option(
        "--time",
        help="Column of times, or several: date,time or year,month,day,hour.  "
        "[default: the only date column, else row order]",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", help="Columns to fill, separated by commas.  [default: all numeric columns]"),
]
Known = Annotated[
    list[str] | None,
    typer.Option(
        "--known",
        help="Columns that are always known, separated by commas, such as a forecast: to learn from, not to fill. What "
        f"never changes in a series is needed once there. With {' and '.join(KNOWING)}.",
    ),
]
Kind = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        help="What a column holds: NAME=real, positive, count, binary, categorical or ordinal; for ordered text "
        "NAME=low<mid<high. Separate several by commas, or repeat the option.  [default: found in the data by "
        f"{DEFAULT}, which fills only numbers; real numbers in other methods]",
    ),
]
Method = Annotated[
    str | None,
    typer.Option(
        "--method",
        callback=check_method,
        autocompletion=lambda: list(METHODS),
        metavar=f"<{'|'.join(METHODS)}>",
        help=f"The method that fills the gaps.  [default: {DEFAULT}; {NETWORK} with categories, --preset or --epochs]",
    ),
]
Minutes = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        help=f"How long {' and '.join(TIMED)} may take.  [default: until held-out cells say that no more comes]",
    ),
]
Conformal = Annotated[
    bool,
    typer.Option(
        "--conformal", help="Calibrate intervals on a tenth of the observed cells; any method, real numbers only."
    ),
]
Interval = Annotated[
    float | None,
    typer.Option(
        callback=check_probability,
        help="Level of the interval around each filled value; 0 for none.  [default: 0.9 if the method has intervals]",
    ),
]
Samples = Annotated[int, typer.Option(min=1, help="Number of draws from which intervals are computed.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the random numbers; the same seed gives the same result.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the data.  [default: depends on its size]")]
PresetOption = Annotated[Preset | None, typer.Option("--preset", help="The paper's settings for one of its data sets.")]
DeviceOption = Annotated[Device, typer.Option("--device", help="Where to compute; auto uses a CUDA GPU if present.")]
Report = Annotated[
    Path | None,
    typer.Option("--report", help="Write an HTML report: the gaps, the filled values, how reliable they are."),
]
Causal = Annotated[
    bool,
    typer.Option(
        "--causal",
        help="Fill each row from itself and the rows before it. Needs --fit-until, so that the method has not learned "
        f"from later rows either, or a --model. Methods: {', '.join(CAUSAL)}.",
    ),
]
FitUntil = Annotated[
    str | None,
    typer.Option(
        "--fit-until",
        metavar="TIME",
        help="Fit on the rows before this time only, then fill all rows.  [default: fit on all rows]",
    ),
]
Draws = Annotated[
    Path | None,
    typer.Option("--draws", help="Write a completed table for each of the --samples draws, for multiple imputation."),
]
MaxGap = Annotated[
    str | None,
    typer.Option(
        "--max-gap",
        help="Leave longer gaps empty: 30min, 6h or 2d; a number, if times are numbers or rows.  [default: fill all]",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Fill only these columns, separated by commas; the others inform them."),
]
NotBefore = Annotated[str | None, typer.Option("--not-before", help="Leave gaps before this time empty.")]
Leading = Annotated[
    bool, typer.Option("--leading/--no-leading", help="Fill gaps before the first value of a column in a series.")
]
Trailing = Annotated[
    bool, typer.Option("--trailing/--no-trailing", help="Fill gaps after the last value of a column in a series.")
]
AddRows = Annotated[
    bool, typer.Option("--add-rows", help="Add the rows that a table with regular times lacks, and fill them.")
]
Quiet = Annotated[
    bool, typer.Option("--quiet", "-q", callback=printing.set_quiet, help="Print only warnings and errors.")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", callback=printing.set_verbose, help="Show the parts of the training loss.")
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
