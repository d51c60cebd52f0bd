"""Packages that only data sets need: nothing else loads them, and messages say how to install them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpvae.data.panel import DataError
from gpvae.datasets.optional import optional

BLOCKED = ("PIL", "platformdirs", "pooch", "requests", "urllib3")


def run_without(packages: tuple[str, ...], program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a program in which these packages cannot be imported."""
    block = f"import sys\nsys.modules.update(dict.fromkeys({packages!r}))\n"
    return subprocess.run([sys.executable, "-c", block + program], cwd=folder, capture_output=True, text=True)


def test_imputation_needs_none_of_them(tmp_path: Path) -> None:
    values = np.sin(np.arange(120.0)).reshape(60, 2)
    values[7, 0] = np.nan
    np.savetxt(tmp_path / "table.csv", values, delimiter=",", header="a,b", comments="")
    program = """
import gpvae
panel = gpvae.read("table.csv")
filled = gpvae.GPVAE(epochs=1, device="cpu").fit(panel).impute(panel).to_frame()
print(filled.column("a").null_count)
"""
    result = run_without(BLOCKED, program, tmp_path)
    assert result.stdout.strip() == "0", result.stderr


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("platformdirs", "datasets.available()"),
        ("requests", "download.download('http://127.0.0.1:9/x', pathlib.Path('x'))"),
        ("pillow", "sprites.read_layers({'hair/1.png': b''})"),
    ],
)
def test_the_message_says_what_to_install(package: str, call: str, tmp_path: Path) -> None:
    program = f"""
import os, pathlib
os.environ.pop("GPVAE_CACHE", None)
from gpvae import datasets
from gpvae.datasets import download, sprites
{call}
"""
    module = {"pillow": "PIL"}.get(package, package)
    result = run_without((module,), program, tmp_path)
    expected = f"DataError: gpvae.datasets needs the package {package}: pip install 'gpvae[datasets]'"
    assert result.stderr.strip().endswith(expected)


def test_a_package_that_is_there_is_imported() -> None:
    assert optional("json").dumps([1]) == "[1]"
    with pytest.raises(DataError, match="needs the package nothing_of_that_name"):
        optional("nothing_of_that_name.inside")
