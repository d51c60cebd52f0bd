"""Columns of CSV files."""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from gpvae.data.panel import DataError, Floats


def numbers(content: bytes, names: Sequence[str], where: str, *, separator: str = ",", decimal: str = ".") -> Floats:
    """These columns as floats; empty cells and NA are NaN. (row, column)"""
    table = _read(content, dict.fromkeys(names, pa.float64()), where, separator, decimal)
    return np.column_stack([table[name].to_numpy() for name in names])


def texts(content: bytes, name: str, where: str, *, separator: str = ",") -> list[str]:
    """One column as text."""
    return _read(content, {name: pa.string()}, where, separator)[name].to_pylist()


def datetimes(texts: Sequence[str], where: str) -> NDArray[np.datetime64]:
    """From ISO 8601, in seconds."""
    try:
        return np.array(texts, dtype="M8[s]")
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None


def _read(content: bytes, types: dict[str, Any], where: str, separator: str, decimal: str = ".") -> pa.Table:
    options = csv.ConvertOptions(
        include_columns=[*types], column_types=types, null_values=["", "NA"], decimal_point=decimal
    )
    try:
        return csv.read_csv(io.BytesIO(content), None, csv.ParseOptions(delimiter=separator), options)
    except pa.ArrowException as error:
        raise DataError(f"{where} is not the expected table: {str(error).partition(chr(10))[0]}") from None
