"""Random numbers by (seed, step) and (seed, epoch): a resumed run needs no random state to continue exactly.

Those of imputation are by (seed, series), whatever else is in the table.
"""

import hashlib
from typing import Any

import numpy as np
import torch
from torch import Generator


def step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])


def step_generator(seed: int, step: int, device: torch.device) -> Generator:
    return Generator(device).manual_seed(step_seed(seed, step))


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng([seed, epoch])


def series_seed(seed: int, series: Any, *place: int) -> int:
    """For the draws of a series, by its id, at some place."""
    described = " ".join(map(str, (seed, repr(series), *place)))
    return int.from_bytes(hashlib.blake2b(described.encode(), digest_size=6).digest())


def series_generator(seed: int, series: Any, *place: int, device: torch.device) -> Generator:
    return Generator(device).manual_seed(series_seed(seed, series, *place))
