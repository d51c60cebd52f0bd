"""CUDA graphs: a function is captured once for each shape of its argument, then replayed without Python."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Generator, Tensor


class GraphedStep:
    """`function(batch)` on CUDA. A batch is a tensor, or a tuple of tensors and numbers.

    The first batches of each shape run eagerly, as capture requires. `function` must not wait for the device, and may
    draw random numbers only from `generator`.
    """

    WARM_UP_STEPS = 3

    def __init__(self, function: Callable[[Any], None], generator: Generator):
        self.function, self.generator = function, generator
        self.stream = torch.cuda.Stream(generator.device)
        self.seen: Counter[Hashable] = Counter()
        self.captured: dict[Hashable, tuple[torch.cuda.CUDAGraph, Any]] = {}

    def __call__(self, batch: Any) -> None:
        signature = _signature(batch)
        if signature not in self.captured:
            self.seen[signature] += 1
            if self.seen[signature] <= self.WARM_UP_STEPS:
                with _side_stream(self.stream):
                    self.function(batch)
                return
            self.captured[signature] = self._capture(batch)
        graph, inputs = self.captured[signature]
        for place, value in zip(_tensors(inputs), _tensors(batch), strict=True):
            place.copy_(value)
        graph.replay()

    def clear(self) -> None:
        """Free the graphs and their memory."""
        self.captured.clear()

    def _capture(self, batch: Any) -> tuple[torch.cuda.CUDAGraph, Any]:
        inputs = _map(torch.clone, batch)
        graph = torch.cuda.CUDAGraph()
        graph.register_generator_state(self.generator)
        pool = next((other.pool() for other, _ in self.captured.values()), None)
        with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
            self.function(inputs)
        return graph, inputs


def repeat(step: Callable[[], None], count: int, device: torch.device) -> None:
    """Call `step` that many times; on CUDA it is captured after the first few, so it must not wait for the device."""
    eager = min(count, GraphedStep.WARM_UP_STEPS) if device.type == "cuda" else count
    with _side_stream(torch.cuda.Stream(device)) if device.type == "cuda" else nullcontext():
        for _ in range(eager):
            step()
    if count > eager:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        for _ in range(count - eager):
            graph.replay()


@contextmanager
def _side_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Warm-up must not run on the default stream."""
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def _tensors(batch: Any) -> list[Tensor]:
    return [part for part in (batch if isinstance(batch, tuple) else (batch,)) if isinstance(part, Tensor)]


def _map(function: Callable[[Tensor], Tensor], batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return function(batch)
    parts = [function(part) if isinstance(part, Tensor) else part for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)


def _signature(batch: Any) -> Hashable:
    """What a graph depends on: the shapes of tensors, and the values of everything else."""
    parts = batch if isinstance(batch, tuple) else (batch,)
    return tuple((part.shape, part.dtype) if isinstance(part, Tensor) else part for part in parts)
