"""Where numbers come from: what a result says of the run behind it."""

import datetime as dt
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import torch

CHECKOUT = Path(__file__).parents[2]


def describe() -> dict[str, str]:
    """Commit, date, hardware and versions of this run."""
    return {
        "commit": os.environ.get("GPVAE_COMMIT") or _commit(),  # named where the checkout has no history
        "date": dt.date.today().isoformat(),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else _processor(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _commit() -> str:
    """The state of the checkout; of an installed package, or where git cannot tell, its version."""
    command = ["git", "describe", "--always", "--dirty"]
    with suppress(OSError, subprocess.CalledProcessError):
        if (CHECKOUT / ".git").exists():
            return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.strip()
    return f"gpvae {version('gpvae')}"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} cores, {names[0] if names else platform.processor()}"
