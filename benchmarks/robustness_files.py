"""Damaged files, killed runs, full disks, little memory and odd tables: how many were tried, and how many were handled.

    python benchmarks/robustness_files.py            all parts, about a quarter of an hour
    python benchmarks/robustness_files.py damage     3,000 mutations of saved models and checkpoints
    python benchmarks/robustness_files.py kills      kill -9 while tables, models and checkpoints are written
    python benchmarks/robustness_files.py disks      commands on a disk of two megabytes (needs root, to mount it)
    python benchmarks/robustness_files.py memory     commands that may use little memory
    python benchmarks/robustness_files.py inputs     tables in some 2,600 notations (odd_inputs.py)

Handled: refused in one line without a traceback, or harmless; what was there before is there still, or its successor.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import odd_inputs
from mutations import DAMAGE, edited, resealed

from gpvae import DEFAULT, GPVAE, DataError, GPFactor, Imputer, Recipe, load
from gpvae.data.atomic import claim
from gpvae.data.files import read_table
from gpvae.models.encoders import Attention
from gpvae.training.checkpoint import Checkpoint
from gpvae.training.config import TrainingError

MUTATIONS = 1_000  # of each of three things
KILLS = 20  # of each of three
SMALL = replace(DEFAULT, latent_dim=3, encoder=Attention(16), decoder_widths=(16,))
Count = tuple[int, int]  # tried, handled


def tiny() -> GPVAE:
    return GPVAE(SMALL, recipe=Recipe(), epochs=2, device="cpu")


def walk(rows: int, columns: int = 3) -> np.ndarray:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(rows, columns)).cumsum(0)
    return np.where(rng.random(values.shape) < 0.2, np.nan, values)


def write_table(path: Path, rows: int) -> None:
    lines = [",".join("" if np.isnan(x) else f"{x:.3f}" for x in row) for row in walk(rows)]
    path.write_text("a,b,c\n" + "\n".join(f"{line}" for line in lines) + "\n")


# Damaged files


def damage(folder: Path) -> Count:
    counts = [_damaged_models(folder / "factor", GPFactor()), _damaged_models(folder / "network", tiny())]
    tried, handled = np.sum([*counts, _damaged_checkpoints(folder / "run.checkpoint")], axis=0)
    return int(tried), int(handled)


def _damaged_models(folder: Path, imputer: Imputer) -> Count:
    imputer.fit(walk(300)).save(folder)
    saved = {path.name: path.read_bytes() for path in folder.iterdir()}
    description, rng, handled = json.loads(saved["gpvae.json"]), np.random.default_rng(0), 0
    for number in range(MUTATIONS):
        for name, content in saved.items():
            (folder / name).write_bytes(content)
        if number % 2:
            content = resealed(edited(description, rng), saved["weights.safetensors"])
            (folder / "gpvae.json").write_bytes(content)
            handled += _loads_or_refuses(folder) is not None
        else:
            name = ("gpvae.json", "weights.safetensors")[number // 2 % 2]
            damaged = DAMAGE[number // 4 % len(DAMAGE)](saved[name], rng)
            (folder / name).write_bytes(damaged)
            handled += _loads_or_refuses(folder) is (damaged == saved[name])
    return MUTATIONS, handled


def _loads_or_refuses(folder: Path) -> bool | None:
    """True if a model is loaded, False if it is refused in one line, None for anything else."""
    try:
        load(folder, device="cpu")
    except DataError as error:
        return None if "\n" in str(error) else False
    except Exception as error:
        print(f"  not handled: {error!r}")
        return None
    return True


def _damaged_checkpoints(path: Path) -> Count:
    tiny().fit(walk(300), checkpoint=path)
    content, rng, handled = path.read_bytes(), np.random.default_rng(0), 0
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    for number in range(MUTATIONS):
        damaged = DAMAGE[number % len(DAMAGE)](content, rng)
        path.write_bytes(damaged)
        try:
            Checkpoint(path, header["fingerprint"]).load()
        except TrainingError:
            handled += 1
        else:
            handled += damaged == content
    return MUTATIONS, handled


# Killed runs

WRITERS = {
    "table": """
from gpvae.data.files import read_table
table = read_table("in.csv")
while True:
    table.write(Path("out.csv"), table.table, force=True)
""",
    "model": """
from gpvae import load
model = load("first", device="cpu")
while True:
    model.save("model", overwrite=True)
""",
    "checkpoint": """
from gpvae.training.checkpoint import Checkpoint
checkpoint = Checkpoint(Path("first.checkpoint"), sys.argv[1])
start = checkpoint.load()
while True:
    Checkpoint(Path("run.checkpoint"), sys.argv[1]).save(start)
""",
}


def kills(folder: Path) -> Count:
    os.chdir(folder)
    write_table(Path("in.csv"), 5_000)
    tiny().fit(walk(300), checkpoint="first.checkpoint").save("first")
    content = Path("first.checkpoint").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    fingerprint = header["fingerprint"]
    checks: dict[str, tuple[Path, Callable[[], object]]] = {
        "table": (Path("out.csv"), lambda: read_table("out.csv").table.equals(read_table("in.csv").table) or 1 / 0),
        "model": (Path("model"), lambda: load("model", device="cpu")),
        "checkpoint": (Path("run.checkpoint"), Checkpoint(Path("run.checkpoint"), fingerprint).load),
    }
    handled = 0
    for name, (path, check) in checks.items():
        for _ in range(KILLS):
            _kill_while_writing(WRITERS[name], path, fingerprint)
            check()
            with claim(path):
                pass
            left = [each for each in (*path.parent.iterdir(), *Path("model").glob("*")) if each.suffix == ".partial"]
            inside = {each for each in left if each.parent.name == "model"}  # replaced by the next save
            handled += not {*left} - inside
    return len(checks) * KILLS, handled


def _kill_while_writing(writer: str, path: Path, argument: str) -> None:
    """At a random moment after the first complete file."""
    command = [sys.executable, "-c", f"import sys\nfrom pathlib import Path\n{writer}", argument]
    before = path.stat().st_mtime_ns if path.exists() else 0
    with subprocess.Popen(command) as process:
        while not path.exists() or path.stat().st_mtime_ns == before:
            time.sleep(0.001)
        time.sleep(random.Random(before).random() * 0.05)
        process.send_signal(signal.SIGKILL)


# Full disks, and little memory


def command(*words: str, memory: int | None = None) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    return subprocess.run(
        [sys.executable, "-m", "gpvae", *words], capture_output=True, text=True, check=False, preexec_fn=limit
    )


def in_one_line(run: subprocess.CompletedProcess[str]) -> bool:
    errors = [line for line in run.stderr.splitlines() if line.startswith("Error: ")]
    fine = run.returncode == 1 and len(errors) == 1 and "Traceback" not in run.stderr
    print(f"  {run.returncode}: {(errors or run.stderr.splitlines() or ['nothing'])[-1]}")
    return fine


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk of two megabytes; None where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=False).returncode == 0
    try:
        yield folder if mounted else None
    finally:
        if mounted:
            subprocess.run(["umount", folder], check=True)


def disks(folder: Path) -> Count:
    write_table(folder / "in.csv", 60_000)
    write_table(folder / "short.csv", 300)
    with small_disk(folder / "disk") as disk:
        if disk is None:
            print("  skipped: a disk of two megabytes cannot be mounted")
            return 0, 0
        (disk / "old.csv").write_text("old")
        handled = 0
        for words in (
            ["impute", f"{folder}/in.csv", "-o", f"{disk}/out.csv", "--method", "linear"],
            ["impute", f"{folder}/in.csv", "-o", f"{disk}/old.csv", "--method", "linear", "--force"],
            ["impute", f"{folder}/in.csv", "-o", f"{disk}/out.parquet", "--method", "linear"],
            ["fit", f"{folder}/short.csv", "-o", f"{disk}/model", "--epochs", "1", "--device", "cpu"],
        ):
            (disk / "filler").write_bytes(bytes(1_900_000))
            handled += in_one_line(command(*words)) and _names(disk) == ["filler", "old.csv"]
            (disk / "filler").unlink()
        handled += (disk / "old.csv").read_text() == "old"
    return 5, handled


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def memory(folder: Path) -> Count:
    write_table(folder / "in.csv", 20_000)
    words = ("impute", f"{folder}/in.csv", "-o", f"{folder}/out.csv")
    runs = [
        command(*words, "--samples", "1000000000"),
        command(*words, "--method", "gp-factor", "--samples", "20000", memory=3 * 2**30),
    ]
    return len(runs), sum(map(in_one_line, runs))


def inputs(folder: Path) -> Count:
    os.chdir(folder)
    return odd_inputs.inputs()


PARTS = {"damage": damage, "kills": kills, "disks": disks, "memory": memory, "inputs": inputs}


def main() -> None:
    for name in sys.argv[1:] or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            tried, handled = PARTS[name](Path(folder))
            os.chdir("/")
            print(f"{name}: {tried} tried, {handled} handled, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
