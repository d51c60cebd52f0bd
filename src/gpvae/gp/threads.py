"""Work on parts of the data side by side, each in one thread.

The matrices of a state space are small: cores that share one product wait for each other longer than they compute.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def side_by_side(function: Callable[[Part], Result], parts: Iterable[Part]) -> Iterator[Result]:
    """`function` of each part, in order; as many at a time as PyTorch may use threads, and no further ahead."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield from map(function, parts)
        return
    pool, running = (
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)),
        deque[Future[Result]](),
    )
    try:
        for part in parts:
            running.append(pool.submit(function, part))
            if len(running) == threads:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
