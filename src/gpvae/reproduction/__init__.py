"""The paper's tables and figures, made again from the real data: our numbers beside the published ones."""

import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from gpvae import paper
from gpvae.datasets import load
from gpvae.files import whole_or_not_at_all
from gpvae.panel import DataError
from gpvae.paper import Task
from gpvae.provenance import describe
from gpvae.report import figures
from gpvae.reproduction.record import Record, Table, beside, what_changes_bring
from gpvae.reproduction.runs import LATENT, Example, Outcome, Run, execute

__all__ = ["NAMES", "Example", "Outcome", "Record", "Run", "Table", "execute", "reproduce", "runs_of"]

CHANGES, FIGURES = "changes", ("F2", "F3")
NAMES = (*paper.TABLES, *FIGURES, CHANGES)
_SHOWN = {  # the methods that a figure shows
    "F2": {"healing_mnist": ("forward", "vae", "hi-vae", "gp-vae"), "sprites": ("forward", "vae", "hi-vae", "gp-vae")},
    "F3": {"physionet2012": ("forward", "brits", "gp-vae")},
}


def runs_of(name: str, seeds: int, *, quick: bool = False) -> list[Run]:
    """What a table or figure needs: the latent models with the paper's settings and with ours, the others once."""
    if name == CHANGES:
        steps = [(paper.laddered(data), count) for data, made in paper.CHANGES.items() for count in range(len(made) + 1)]
        return [Run(task, seed, count, quick) for task, count in steps for seed in range(seeds)]
    tasks = _shown_tasks(name) if name in FIGURES else [cell.task for cell in paper.TABLES[name]]
    settings = [(task, count) for task in dict.fromkeys(tasks) for count in _both(task)]
    return [Run(task, seed, count, quick) for seed in range(1 if name in FIGURES else seeds) for task, count in settings]


def _both(task: Task) -> tuple[int, ...]:
    return (0, len(paper.CHANGES[task.data])) if task.method in LATENT else (0,)


def _shown_tasks(figure: str) -> list[Task]:
    tasks = {cell.task for name in ("T1", "T3") for cell in paper.TABLES[name]}
    wanted = _SHOWN[figure]
    return sorted((task for task in tasks if task.method in wanted.get(task.data, ())), key=str)


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
        try:
            futures = {pool.submit(execute, run, device=device): run for run in ordered}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _made(name: str, folder: Path, record: Record, *, quick: bool) -> Table | Path:
    if name in FIGURES:
        return _figure(name, folder, quick=quick)
    if name == CHANGES:
        table = what_changes_bring(record, quick=quick)
    else:
        table = beside(name, record, quick=quick)
    with whole_or_not_at_all(folder / f"{name}.md", force=True) as partial:
        partial.write_text(table.markdown(), encoding="utf-8")
    return table
