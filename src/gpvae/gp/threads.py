"""The matrices of a state space are small: cores that share one product wait for each other longer than they compute.

On two cores with other work, learning with two threads took six times as long as with one.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.Lock()
_users, _before = 0, 1


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch use one thread. The setting belongs to the process; the last user restores it."""
    global _users, _before
    with _lock:
        if _users == 0:
            _before = torch.get_num_threads()
            torch.set_num_threads(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                torch.set_num_threads(_before)
