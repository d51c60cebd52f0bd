"""Ctrl-C between steps, never within one."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_between_steps() -> Iterator[Callable[[], bool]]:
    """Delay Ctrl-C until the step is done, so that weights, moments and counters agree.

    Yields a function that says whether Ctrl-C was pressed. A second Ctrl-C interrupts at once. Signals reach only the
    main thread; in others there is nothing to delay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    pressed = False

    def delay(signum: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True

    previous = signal.signal(signal.SIGINT, delay)
    try:
        yield lambda: pressed
    finally:
        signal.signal(signal.SIGINT, previous)
    if pressed:  # after the last step
        raise KeyboardInterrupt
