"""The paper's tables and figures, made again from the real data: our numbers beside the published ones."""

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpvae import paper
from gpvae.data.files import whole_or_not_at_all
from gpvae.data.panel import DataError
from gpvae.datasets import load
from gpvae.datasets.healing_mnist import IMAGE_SHAPE as DIGITS
from gpvae.datasets.physionet import VARIABLES
from gpvae.datasets.sprites import IMAGE_SHAPE as SPRITES
from gpvae.evaluation.provenance import describe
from gpvae.imputers.calibration import Judge
from gpvae.paper import Task
from gpvae.paper.reproduction.record import Record, Table, beside, origins, what_changes_bring
from gpvae.paper.reproduction.runs import Example, Outcome, Run, execute, versions
from gpvae.report import figures
from gpvae.training.loop import TrainingError, fabric_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NAMES", "Example", "Outcome", "Record", "Run", "Table", "execute", "reproduce", "runs_of"]

CHANGES, FIGURES = "changes", ("F2", "F3")
NAMES = (*paper.TABLES, *FIGURES, CHANGES)
_IMAGES = ("mean", "forward", "vae", "hi-vae", "gp-vae")
_SHOWN = {  # the methods that a figure shows, by data set
    "F2": {"healing_mnist": _IMAGES, "sprites": _IMAGES},
    "F3": {"physionet2012": ("forward", "brits", "gp-vae")},
}


def runs_of(name: str, seeds: int, *, quick: bool = False) -> list[Run]:
    """What a table or figure needs: the latent models with the paper's settings and with ours, the others once."""
    if name == CHANGES:
        settings = [(task, n) for task in paper.LADDERS for n in range(len(paper.changes(task)) + 1)]
    else:
        tasks = _shown_tasks(name) if name in FIGURES else [cell.task for cell in paper.TABLES[name]]
        settings = [(task, count) for task in dict.fromkeys(tasks) for count in versions(task)]
    return [Run(task, seed, n, quick) for seed in range(1 if name in FIGURES else seeds) for task, n in settings]


def _shown_tasks(figure: str) -> list[Task]:
    tasks = [cell.task for name in ("T1", "T3") for cell in paper.TABLES[name]]
    return [task for task in tasks if task.method in _SHOWN[figure].get(task.data, ())]


def reproduce(
    names: Sequence[str],
    folder: Path,
    *,
    seeds: int = 3,
    device: str = "auto",
    quick: bool = False,
    jobs: int = 1,
    report: Callable[[str], None] = lambda line: None,
) -> dict[str, Table | Path]:
    """Run what is not yet in the folder, and write the tables and figures that were asked for.

    `jobs` runs at a time, each in a process of its own. What is finished is kept: interrupted, it goes on from there.
    """
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise DataError(f"there is no table or figure {unknown[0]!r}; there are {', '.join(NAMES)}")
    fabric_for(device, "32-true")  # complains if there is no such device
    folder = folder / "quick" if quick else folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"the folder {folder} cannot be made: {error.strerror}") from None
    record = Record(folder / "runs.csv")
    with _alone(folder):
        wanted = dict.fromkeys(run for name in names for run in runs_of(name, seeds, quick=quick))
        todo = [run for run in wanted if not (record.has(run) and (run.seed or _example_file(folder, run).exists()))]
        report(f"{len(wanted)} runs, {len(wanted) - len(todo)} of them done before")
        _require_data({run.task.data for run in todo})
        origin, failed = describe(device), list[str]()
        try:
            for number, (run, outcome) in enumerate(_outcomes(todo, device, jobs), start=1):
                if isinstance(outcome, Outcome):
                    _keep(run, outcome, folder, record, origin)
                    found = ", ".join(f"{name} {value:.4g}" for name, value in outcome.measures.items())
                else:
                    failed.append(f"{run}: {outcome}")
                    found = f"failed: {outcome}"
                report(f"{number}/{len(todo)}  {run}: {found}")
        finally:  # of what there is, also when interrupted
            made = {name: _made(name, folder, record, quick=quick) for name in names}
        if failed:
            raise TrainingError("; ".join(failed))
    return {name: found for name, found in made.items() if found is not None}


def _require_data(names: Iterable[str]) -> None:
    """Data that cannot be had is told of once, before anything is run; and what has to be built is built once."""
    for name in sorted(names):
        for split in ("train",) if name == "physionet2012" else ("train", "test"):
            load(name, splits=[split], count=1)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One command at a time, where the system can tell: two would write over each other's results."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DataError(f"another command is at work in {folder}") from None
        yield


def _outcomes(runs: Sequence[Run], device: str, jobs: int) -> Iterator[tuple[Run, Outcome | str]]:
    """In the order in which they end, each its outcome or what went wrong.

    Those of one data set with the same gaps follow each other: in one process, they share them.
    """
    ordered = iter(sorted(runs, key=lambda run: (run.seed, run.task.data, run.task.gaps, run.task.rate)))
    if jobs == 1:
        for run in ordered:
            yield run, _tried(run, device, verbose=True)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        going: dict[Future[Outcome | str], Run] = {}
        try:
            while True:
                going |= {pool.submit(_tried, run, device): run for run in islice(ordered, jobs - len(going))}
                if not going:
                    return
                for future in wait(going, return_when=FIRST_COMPLETED).done:
                    yield going.pop(future), future.result()
        except BrokenProcessPool:
            advice = "perhaps for want of memory: fewer jobs may help"
            raise TrainingError(f"a process ended before its run did, {advice}") from None
        except BaseException:  # nobody waits for what would be thrown away
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _tried(run: Run, device: str, *, verbose: bool = False) -> Outcome | str:
    try:
        return execute(run, device=device, verbose=verbose)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _keep(run: Run, outcome: Outcome, folder: Path, record: Record, origin: Mapping[str, str]) -> None:
    """The example first: a run is done once it is in the record."""
    if run.seed == 0:
        _keep_example(_example_file(folder, run), outcome.example)
    settings = folder / "settings" / f"{run.digest}.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps(run.settings, indent=1) + "\n", encoding="utf-8")
    record.add(run, outcome.measures, origin)


def _made(name: str, folder: Path, record: Record, *, quick: bool) -> Table | Path | None:
    """The table or figure, written into the folder; no figure before all that it shows is there."""
    if name not in FIGURES:
        table = what_changes_bring(record, quick=quick) if name == CHANGES else beside(name, record, quick=quick)
        with whole_or_not_at_all(folder / f"{name}.md", force=True) as partial:
            partial.write_text(table.markdown(), encoding="utf-8")
        return table
    runs = runs_of(name, 1, quick=quick)
    if not all(_example_file(folder, run).exists() for run in runs):
        return None
    figure = (_reconstructions if name == "F2" else _patient)(folder, quick=quick)
    with whole_or_not_at_all(folder / f"{name}.png", force=True) as partial:
        from_where = origins([row for run in runs for row in record.of(run) if row["seed"] == "0"])
        figure.savefig(partial, format="png", metadata={"Comment": from_where})
    return folder / f"{name}.png"


def _example_file(folder: Path, run: Run) -> Path:
    return folder / "examples" / f"{'_'.join(run.key.values()).replace(', ', '-')}.npz"


def _keep_example(path: Path, example: Example) -> None:
    path.parent.mkdir(exist_ok=True)
    arrays = {name: value for name, value in vars(example).items() if value is not None}
    with whole_or_not_at_all(path, force=True) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)


def _examples(figure: str, data: str, folder: Path, *, quick: bool) -> dict[str, Example]:
    """By the name that the figure has for the method."""
    found: dict[str, Example] = {}
    for run in runs_of(figure, 1, quick=quick):
        if run.task.data == data:
            with np.load(_example_file(folder, run), allow_pickle=False) as arrays:
                name = paper.NAMES[run.task.method].removesuffix(" imputation")
                found[f"{name}, ours" if run.changes else name] = Example(**arrays)
    return found


def _reconstructions(folder: Path, *, quick: bool) -> "Figure":
    """The first test series of either data set, as each method fills it."""
    sets: list[figures.Frames] = []
    for data, title, shape in (("healing_mnist", "Healing MNIST", DIGITS), ("sprites", "SPRITES", SPRITES)):
        examples = _examples("F2", data, folder, quick=quick)
        first = next(iter(examples.values()))
        given = {"truth": first.truth, "input": np.where(first.hidden, np.nan, first.truth)}
        sets.append(figures.Frames(title, shape, given | {name: each.filled for name, each in examples.items()}))
    return figures.reconstructions(sets)


def _patient(folder: Path, *, quick: bool) -> "Figure":
    """Six variables of one patient, from the most often measured to the rarest that has a value held out."""
    examples = _examples("F3", "physionet2012", folder, quick=quick)
    ours = examples.pop("GP-VAE, ours")
    examples.pop("GP-VAE")
    assert ours.std is not None
    known, held = ~np.isnan(ours.truth) & ~ours.hidden, ours.hidden
    asked = np.flatnonzero(held.any(0) & known.any(0))
    order = asked[np.argsort(-known[:, asked].sum(0), kind="stable")]
    chosen = order[np.unique(np.linspace(0, len(order) - 1, 6).round().astype(int))]
    reach = Judge.DEVIATIONS * ours.std[:, chosen]
    return figures.patient(
        np.arange(len(ours.truth), dtype=np.float64),
        [VARIABLES[j] for j in chosen],
        np.where(known, ours.truth, np.nan)[:, chosen],
        np.where(held, ours.truth, np.nan)[:, chosen],
        {name: example.filled[:, chosen] for name, example in examples.items()},
        ours.filled[:, chosen],
        ours.filled[:, chosen] - reach,
        ours.filled[:, chosen] + reach,
    )
