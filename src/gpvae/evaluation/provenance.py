"""Where numbers come from: what a result says of the run behind it."""

import datetime as dt
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch

CHECKOUT = Path(__file__).parents[3]
CODE = ("src", "benchmarks")  # what is changed elsewhere, results say, does not change a number


def describe(device: str = "auto") -> dict[str, str]:
    """Commit, date, hardware and versions of a run on a device: "auto", "cpu" or "cuda"."""
    on_cuda = device != "cpu" and torch.cuda.is_available()
    return {
        "commit": _commit(),
        "date": dt.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if on_cuda else _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _commit() -> str:
    """The state of the checkout's code; without its history what GPVAE_COMMIT says, or else the package's version."""
    with suppress(OSError, subprocess.CalledProcessError):
        if (CHECKOUT / ".git").exists():
            return _git("describe", "--always") + ("-dirty" if _git("status", "--porcelain", *CODE) else "")
    return os.environ.get("GPVAE_COMMIT") or f"gpvae {version('gpvae')}"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {names[0] if names else platform.processor()}"
