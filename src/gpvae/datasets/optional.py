"""Packages that only data sets need, imported on first use."""

from importlib import import_module
from typing import Any

from gpvae.data.panel import DataError


def optional(module: str) -> Any:
    """The module, or a `DataError` that says how to install its package."""
    try:
        return import_module(module)
    except ImportError:
        package = {"PIL": "pillow"}.get(module.partition(".")[0], module.partition(".")[0])
        raise DataError(f"gpvae.datasets needs the package {package}: pip install 'gpvae[datasets]'") from None
