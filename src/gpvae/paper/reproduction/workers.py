"""Many runs, one after the other or in several processes."""

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

from gpvae.paper.reproduction.experiment import Outcome, execute
from gpvae.paper.reproduction.runs import Run
from gpvae.training.config import TrainingError


def execute_all(runs: Sequence[Run], device: str, jobs: int) -> Iterator[tuple[Run, Outcome | str]]:
    """Each run with its outcome or an error message, in the order in which they finish.

    Runs on the same data with the same gaps follow each other, so that a process prepares these only once.
    """
    ordered = sorted(runs, key=lambda run: (run.seed, run.task.data, run.task.mechanism, run.task.rate))
    if jobs > 1:
        return _in_processes(ordered, device, jobs)
    return ((run, _try(run, device, verbose=True)) for run in ordered)


def _in_processes(runs: Sequence[Run], device: str, jobs: int) -> Iterator[tuple[Run, Outcome | str]]:
    waiting = iter(runs)
    running: dict[Future[Outcome | str], Run] = {}
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        try:
            while True:
                running |= {pool.submit(_try, run, device): run for run in islice(waiting, jobs - len(running))}
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BrokenProcessPool:
            raise TrainingError("a worker process died, perhaps for lack of memory: try fewer jobs") from None
        except BaseException:  # interrupted: do not wait for results that nobody will read
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _try(run: Run, device: str, *, verbose: bool = False) -> Outcome | str:
    try:
        return execute(run, device=device, verbose=verbose)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
