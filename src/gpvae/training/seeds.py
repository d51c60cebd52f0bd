"""Random numbers by (seed, step) and (seed, epoch): a resumed run needs no random state to continue exactly."""

import numpy as np
import torch
from torch import Generator


def step_seed(seed: int, step: int) -> int:
    return int(np.random.SeedSequence([seed, step]).generate_state(1, np.uint64)[0])


def step_generator(seed: int, step: int, device: torch.device) -> Generator:
    return Generator(device).manual_seed(step_seed(seed, step))


def epoch_generator(seed: int, epoch: int) -> np.random.Generator:
    return np.random.default_rng([seed, epoch])
