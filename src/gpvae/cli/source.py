"""What commands that read a table have in common: its name, and options that say how it is read."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from gpvae.cli.errors import one_line_errors

Data = Annotated[
    list[str],
    typer.Argument(
        help="A table: .csv, .tsv, .txt, .dat or .jsonl (also .gz), .parquet, .feather, .xlsx, or - for standard "
        "input. Several files, a pattern or a folder: each file is a series.",
        show_default=False,
    ),
]
PANEL = "How the table is read"


def _option(name: str, help: str, **settings: Any) -> Any:
    return typer.Option(name, help=help, rich_help_panel=PANEL, **settings)


Header = Annotated[bool, _option("--header/--no-header", "Whether the first line names the columns.")]
UnitsRow = Annotated[bool, _option("--units-row", "The row under the header holds units.")]
SkipRows = Annotated[int, _option("--skip-rows", "Lines above the header to pass over.", min=0)]
Separator = Annotated[
    str | None, _option("--separator", "The mark between cells, or tab, space.  [default: , ; tab | or spaces]")
]
Decimal = Annotated[
    str | None,
    _option("--decimal", "The decimal mark, . or , ; the other one groups thousands.  [default: by the data]"),
]
Encoding = Annotated[str | None, _option("--encoding", "Of text files, such as latin-1 or utf-16.  [default: utf-8]")]
Missing = Annotated[
    list[str] | None,
    _option(
        "--missing",
        "What marks a missing value besides NA, NaN, null and the like: -999. Separate several by commas, or repeat "
        "the option.",
    ),
]
Sheet = Annotated[str | None, _option("--sheet", "Of an Excel file.  [default: the first]")]

READING: dict[str, tuple[Any, Any]] = {  # fields of `Reading`: option and default
    "header": (Header, True),
    "units_row": (UnitsRow, False),
    "skip_rows": (SkipRows, 0),
    "separator": (Separator, None),
    "decimal": (Decimal, None),
    "encoding": (Encoding, None),
    "missing": (Missing, None),
    "sheet": (Sheet, None),
}


def reads_table(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument DATA and the options of `Reading`; its parameter `source` gets them all."""

    @wraps(command)
    def with_source(*, data: list[str], **values: Any) -> None:
        options = {name: values.pop(name) for name in READING}
        with one_line_errors():
            from gpvae.data.reading import Reading
            from gpvae.data.sources import Source

            source = Source(tuple(data), Reading(**{**options, "missing": codes(options["missing"])}))
        command(source, **values)

    own = [each for each in inspect.signature(command).parameters.values() if each.name != "source"]
    parameters = [_parameter("data", Data, inspect.Parameter.empty), *own]
    parameters += [_parameter(name, annotation, default) for name, (annotation, default) in READING.items()]
    keyword = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    with_source.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
    with_source.__annotations__ = {}  # Typer reads the signature
    return with_source


def codes(entries: list[str] | None) -> tuple[str, ...]:
    """CODE,CODE → codes."""
    return tuple(code for entry in entries or () for code in entry.split(",") if code)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
