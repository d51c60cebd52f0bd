"""Provenance of a result: commit, date, hardware and versions."""

import datetime as dt
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch

CHECKOUT = Path(__file__).parents[3]
CODE = ("src", "benchmarks")  # changes elsewhere in the checkout do not change a number


def describe(device: str = "auto") -> dict[str, str]:
    """Commit, date, hardware and versions of a run on `device`: "auto", "cpu" or "cuda"."""
    on_cuda = device != "cpu" and torch.cuda.is_available()
    return {
        "commit": _commit(),
        "date": dt.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if on_cuda else _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _commit() -> str:
    """The commit of the checkout; without git history, GPVAE_COMMIT, or else the version of the package."""
    with suppress(OSError, subprocess.CalledProcessError):
        if (CHECKOUT / ".git").exists():
            return _git("describe", "--always") + ("-dirty" if _git("status", "--porcelain", *CODE) else "")
    return os.environ.get("GPVAE_COMMIT") or f"gpvae {version('gpvae')}"


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {names[0] if names else platform.processor()}"
