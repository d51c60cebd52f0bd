"""The paper's tables and figures, made again from the real data: our numbers beside the published ones."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpvae import paper
from gpvae.datasets import load
from gpvae.datasets.healing_mnist import IMAGE_SHAPE as DIGITS
from gpvae.datasets.sprites import IMAGE_SHAPE as SPRITES
from gpvae.files import whole_or_not_at_all
from gpvae.panel import DataError
from gpvae.paper import Task
from gpvae.provenance import describe
from gpvae.report import figures
from gpvae.reproduction.record import Record, Table, beside, what_changes_bring
from gpvae.reproduction.runs import CHANGED, Example, Outcome, Run, execute

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["NAMES", "Example", "Outcome", "Record", "Run", "Table", "execute", "reproduce", "runs_of"]

CHANGES, FIGURES = "changes", ("F2", "F3")
NAMES = (*paper.TABLES, *FIGURES, CHANGES)
_IMAGES = ("forward", "vae", "hi-vae", "gp-vae")
_SHOWN = {  # the methods that a figure shows, by data set
    "F2": {"healing_mnist": _IMAGES, "sprites": _IMAGES},
    "F3": {"physionet2012": ("forward", "brits", "gp-vae")},
}


SHAPES = {"healing_mnist": DIGITS, "sprites": SPRITES}


def runs_of(name: str, seeds: int, *, quick: bool = False) -> list[Run]:
    """What a table or figure needs: the latent models with the paper's settings and with ours, the others once."""
    if name == CHANGES:
        settings = [(paper.laddered(data), n) for data, made in paper.CHANGES.items() for n in range(len(made) + 1)]
    else:
        tasks = _shown_tasks(name) if name in FIGURES else [cell.task for cell in paper.TABLES[name]]
        settings = [(task, count) for task in dict.fromkeys(tasks) for count in _both(task)]
    return [Run(task, seed, n, quick) for seed in range(1 if name in FIGURES else seeds) for task, n in settings]


def _both(task: Task) -> tuple[int, ...]:
    return (0, len(paper.CHANGES[task.data])) if task.method in CHANGED else (0,)


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
    folder.mkdir(parents=True, exist_ok=True)
    record = Record(folder / "runs.csv")
    wanted = dict.fromkeys(run for name in names for run in runs_of(name, seeds, quick=quick))
    todo = [run for run in wanted if not (record.has(run) and (run.seed or _example_file(folder, run).exists()))]
    report(f"{len(wanted)} runs, {len(wanted) - len(todo)} of them done before")
    origin = describe()
    for number, (run, outcome) in enumerate(_outcomes(todo, device, jobs), start=1):
        if run.seed == 0:
            _keep_example(_example_file(folder, run), outcome.example)
        record.add(run, outcome.measures, origin)
        found = ", ".join(f"{name} {value:.4g}" for name, value in outcome.measures.items())
        report(f"{number}/{len(todo)}  {run}: {found}")
    return {name: _made(name, folder, record, quick=quick) for name in names}


def _outcomes(runs: Sequence[Run], device: str, jobs: int) -> Iterator[tuple[Run, Outcome]]:
    """In the order in which they end. Those of one data set with the same gaps follow each other: they share them."""
    ordered = sorted(runs, key=lambda run: (run.seed, run.task.data, run.task.gaps, run.task.rate))
    if jobs == 1:
        for run in ordered:
            yield run, execute(run, device=device, verbose=True)
        return
    for data in {run.task.data for run in runs}:
        load(data, splits=["train"], count=1)  # built once, not by every process
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        failed: BaseException | None = None
        try:
            futures = {pool.submit(execute, run, device=device): run for run in ordered}
            waiting = set(futures)
            while waiting:
                ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    failed = failed or future.exception()
                    if future.exception() is None:
                        yield futures[future], future.result()
                if failed:  # what has begun is let end, and kept
                    waiting = {future for future in waiting if not future.cancel()}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if failed:
        raise failed


def _made(name: str, folder: Path, record: Record, *, quick: bool) -> Table | Path:
    """The table or figure, written into the folder."""
    if name in FIGURES:
        figure = (_reconstructions if name == "F2" else _patient)(folder, quick=quick)
        with whole_or_not_at_all(folder / f"{name}.png", force=True) as partial:
            figure.savefig(partial, format="png")
        return folder / f"{name}.png"
    table = what_changes_bring(record, quick=quick) if name == CHANGES else beside(name, record, quick=quick)
    with whole_or_not_at_all(folder / f"{name}.md", force=True) as partial:
        partial.write_text(table.markdown(), encoding="utf-8")
    return table


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
    for data, title, steps in (("healing_mnist", "Healing MNIST", 10), ("sprites", "SPRITES", 8)):
        examples = _examples("F2", data, folder, quick=quick)
        first = next(iter(examples.values()))
        shown = {"truth": first.truth, "input": np.where(first.hidden, np.nan, first.truth)}
        rows = {name: rows[:steps] for name, rows in (shown | {k: v.filled for k, v in examples.items()}).items()}
        sets.append(figures.Frames(title, SHAPES[data], rows))
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
    names = load("physionet2012", splits=["train"], count=1).panel.columns
    reach = 1.6449 * ours.std[:, chosen]
    return figures.patient(
        np.arange(len(ours.truth), dtype=np.float64),
        [names[j] for j in chosen],
        np.where(known, ours.truth, np.nan)[:, chosen],
        np.where(held, ours.truth, np.nan)[:, chosen],
        {name: example.filled[:, chosen] for name, example in examples.items()},
        ours.filled[:, chosen],
        ours.filled[:, chosen] - reach,
        ours.filled[:, chosen] + reach,
    )
