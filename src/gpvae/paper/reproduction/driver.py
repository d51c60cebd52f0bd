"""`reproduce`: make the runs that are still missing, then write the tables and figures."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpvae.data.atomic import atomic_write
from gpvae.data.panel import DataError
from gpvae.datasets import load
from gpvae.evaluation.provenance import describe
from gpvae.paper.reproduction import figures
from gpvae.paper.reproduction.experiment import Outcome
from gpvae.paper.reproduction.gaps import TRAINING
from gpvae.paper.reproduction.record import Results, provenance_of
from gpvae.paper.reproduction.runs import CHANGES, FIGURES, NAMES, Run, runs_of
from gpvae.paper.reproduction.tables import Table, ablation_table, comparison_table
from gpvae.paper.reproduction.workers import execute_all
from gpvae.training.config import TrainingError
from gpvae.training.devices import make_fabric


def reproduce(
    names: Sequence[str],
    folder: Path,
    *,
    seeds: int = 3,
    device: str = "auto",
    quick: bool = False,
    jobs: int = 1,
    train: bool = True,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Table | Path]:
    """Make the runs that the folder does not have yet, and write the tables and figures.

    `jobs` runs are made at a time, each in its own process. Finished runs are kept, so an interrupted command can be
    repeated and continues where it stopped. Without `train` no run is made: tables and figures are those of the record.
    """
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise DataError(f"there is no table or figure {unknown[0]!r}; there are {', '.join(NAMES)}")
    make_fabric(device, "32-true")  # raises if there is no such device
    results = Results(folder / "quick" if quick else folder)
    _make_folder(results.folder)
    with _locked(results.folder):
        wanted = dict.fromkeys(run for name in names for run in runs_of(name, seeds, quick=quick))
        missing = results.missing(wanted)
        report(f"{len(wanted)} runs, {len(wanted) - len(missing)} of them done before")
        missing = missing if train else []
        _require_data({run.task.data for run in missing})
        try:
            failures = _execute_missing(missing, results, device, jobs, report)
        finally:  # tables of what is there, also when interrupted
            made = {name: _write(name, results, quick=quick) for name in names}
        if failures:
            raise TrainingError("; ".join(failures))
    return {name: table_or_path for name, table_or_path in made.items() if table_or_path is not None}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be made: {error.strerror}") from None


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Only one command may write to the folder. (Where the system has no file locks, this is not checked.)"""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(f"another command is writing to {folder}") from None
        yield


def _require_data(names: Iterable[str]) -> None:
    """Fail before the first run if data is not available; and build what must be built once, not in every process."""
    for name in sorted(names):
        for split in ("train",) if name == "physionet2012" else (*TRAINING, "test"):
            load(name, splits=[split], count=1)


def _execute_missing(
    missing: Sequence[Run], results: Results, device: str, jobs: int, report: Callable[[str], None]
) -> list[str]:
    """Make the runs, keep their outcomes, and return a message for each that failed."""
    provenance, failures = describe(device), list[str]()
    for number, (run, outcome) in enumerate(execute_all(missing, device, jobs), start=1):
        if isinstance(outcome, Outcome):
            results.keep(run, outcome, provenance)
            summary = ", ".join(f"{name} {value:.4g}" for name, value in outcome.measures.items())
        else:
            failures.append(f"{run}: {outcome}")
            summary = f"failed: {outcome}"
        report(f"{number}/{len(missing)}  {run}: {summary}")
    return failures


def _write(name: str, results: Results, *, quick: bool) -> Table | Path | None:
    return _write_figure(name, results, quick=quick) if name in FIGURES else _write_table(name, results, quick=quick)


def _write_table(name: str, results: Results, *, quick: bool) -> Table:
    record = results.record
    table = ablation_table(record, quick=quick) if name == CHANGES else comparison_table(name, record, quick=quick)
    with atomic_write(results.folder / f"{name}.md", force=True) as partial:
        partial.write_text(table.markdown(), encoding="utf-8")
    return table


def _write_figure(name: str, results: Results, *, quick: bool) -> Path | None:
    """None if some of the runs that it shows are missing."""
    runs = runs_of(name, 1, quick=quick)
    if not all(results.has_example(run) for run in runs):
        return None
    figure, path = figures.draw(name, results, quick=quick), results.folder / f"{name}.png"
    with atomic_write(path, force=True) as partial:
        rows = [row for run in runs for row in results.record.of(run) if row["seed"] == "0"]
        figure.savefig(partial, format="png", metadata={"Comment": provenance_of(rows)})
    return path
