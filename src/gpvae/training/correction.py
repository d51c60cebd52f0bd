"""Training a `Correction`: rounds of more and more steps, until held-out cells say that no more comes.

Visible cells of some rows are hidden in many ways (`practice`), the linear model says what it makes of the rest, and
the network learns how far to go from there. Each round anneals its learning rate to nearly 0, so the network is good
at the end of each; the next one goes on from there with masks of its own.
"""

import copy
import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor, nn

from gpvae.models.correction import Correction
from gpvae.training.config import TrainingError
from gpvae.training.interrupt import interrupts_between_steps

RATE, WARM_UP, DECAY, CLIP = 2e-3, 0.1, 0.1, 1.0  # AdamW's; the share of a round in which the rate rises
BATCH = 256  # rows
FIRST_STEPS, LONGER = 1000, 3  # of the first round, and how many times as many each has as the one before
ROUNDS = 3  # where no time is given
PASSES = 40  # through the rows of a round, at most: small tables are memorised sooner
LEAST_STEPS = 50
NUMBERS = 2**28  # of inputs that are kept, 1 GB
TAILS = 5.0  # degrees of freedom of the loss
FURTHEST = 20.0  # deviations: what is further off pulls no more
GAIN = 0.004  # nats of a held-out cell that a round must bring for another to follow


class Masked(NamedTuple):
    """Rows of which some cells were hidden."""

    inputs: Tensor  # (row + 1, input) those of `CoreRows`
    residual: Tensor  # (row, column) (y - m) / s of hidden cells
    hidden: Tensor  # (row, column) bool


class Budget:
    """Seconds that are left."""

    def __init__(self, seconds: float | None):
        self.limited = seconds is not None
        self.end = math.inf if seconds is None else monotonic() + seconds

    @property
    def left(self) -> float:
        return self.end - monotonic()

    def reserve(self, seconds: float) -> None:
        """For what comes later."""
        self.end -= seconds


Report = Callable[[int, int, float], None]  # steps done, steps planned, best held-out loss


def train(
    network: Correction,
    masked: Callable[[int], list[Masked]],
    neighbours: Tensor,
    held_out: list[Masked],
    budget: Budget,
    *,
    seed: int,
    seconds: float = 0.0,
    report: Report | None = None,
) -> list[dict[str, float]]:
    """Leave the network with the weights of its best round; the held-out loss of each round, the first without it.

    masked: the masks that a round adds to those of earlier ones; it takes about so many seconds. Ctrl-C ends training,
        and keeps the best round so far.
    """
    best, weights = loss_of(network, held_out, neighbours), copy.deepcopy(network.state_dict())
    history, pace, pool = [{"validation": best}], 0.0, list[Masked]()

    def shown(step: int, steps: int) -> None:
        if report is not None:
            report(step, steps, best)

    with suppress(KeyboardInterrupt), interrupts_between_steps() as interrupted:
        for number in itertools.count() if budget.limited else range(ROUNDS):
            started = monotonic()
            if budget.left < seconds + LEAST_STEPS * pace or interrupted():
                break
            pool = _latest([*pool, *masked(number)])
            seconds = monotonic() - started
            examples = _Examples(pool, neighbours)
            if not len(examples) or interrupted():
                break
            network.see(examples.inputs)
            steps = min(FIRST_STEPS * LONGER**number, math.ceil(PASSES * len(examples) / BATCH))
            pace = _round(network, examples, steps, step_generator(seed, number), interrupted, budget, shown)
            loss = loss_of(network, held_out, neighbours)
            history.append({"validation": loss})
            gain = best - loss
            if gain > 0:
                best, weights = loss, copy.deepcopy(network.state_dict())
            if gain < GAIN and number:
                break
    network.load_state_dict(weights)
    network.eval()
    return history


def step_generator(seed: int, number: int) -> Generator:
    return Generator().manual_seed(int(np.random.SeedSequence([seed, number]).generate_state(1)[0]))


def _latest(pool: list[Masked]) -> list[Masked]:
    """As many as memory should hold."""
    return pool[-max(1, NUMBERS // pool[0].inputs.numel()) :]


class _Examples:
    """Rows with a hidden cell, of all masks together."""

    def __init__(self, masked: list[Masked], neighbours: Tensor):
        self.inputs = torch.stack([each.inputs for each in masked])
        self.residual = torch.stack([each.residual for each in masked]).clamp(-FURTHEST, FURTHEST)
        self.hidden, self.neighbours = torch.stack([each.hidden for each in masked]), neighbours
        self.place = self.hidden.any(-1).nonzero()  # (example, 2) mask and row

    def __len__(self) -> int:
        return len(self.place)

    def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mask, row = self.place[chosen].unbind(1)
        return self.inputs[mask.unsqueeze(1), self.neighbours[row]], self.residual[mask, row], self.hidden[mask, row]


def _round(
    network: Correction,
    examples: _Examples,
    steps: int,
    generator: Generator,
    interrupted: Callable[[], bool],
    budget: Budget,
    report: Callable[[int, int], None],
) -> float:
    """Train for so many steps, or fewer if time is short; the seconds of a step."""
    network.train()
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY, fused=True)
    order, started, step = torch.zeros(0, dtype=torch.long), monotonic(), 0
    while step < steps and not interrupted():
        if len(order) < min(BATCH, len(examples)):
            order = torch.randperm(len(examples), generator=generator)
        chosen, order = order[:BATCH], order[BATCH:]
        optimizer.param_groups[0]["lr"] = _rate(step / steps)
        optimizer.zero_grad()
        loss = _loss(network, *examples.batch(chosen))
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        step += 1
        if step == LEAST_STEPS:
            pace = (monotonic() - started) / step
            steps = max(step, min(steps, step + int(min(1e9, budget.left / pace))))
        if step % 10 == 0:
            report(step, steps)
    if not all(x.isfinite().all() for x in network.parameters()):
        raise TrainingError("the correction diverged: its weights are not finite; look for extreme values in the table")
    network.eval()
    return (monotonic() - started) / step


def _rate(share: float) -> float:
    """After this share of a round."""
    rise = min(1.0, (share + 1e-3) / WARM_UP)
    return RATE * rise * (1 + math.cos(math.pi * max(0.0, (share - WARM_UP) / (1 - WARM_UP)))) / 2


def _loss(network: Correction, inputs: Tensor, residual: Tensor, hidden: Tensor) -> Tensor:
    """Negative log density of a hidden cell, but for a constant."""
    shift, log_scale = network(inputs)
    return student_nll(residual - shift, log_scale)[hidden].mean()


def student_nll(error: Tensor, log_scale: Tensor, tails: float = TAILS) -> Tensor:
    """-log of Student's t, but for a constant."""
    scaled = (error * torch.exp(-log_scale)).square() / tails
    return log_scale + (tails + 1) / 2 * torch.log1p(scaled)


@torch.no_grad()
def loss_of(network: Correction, masked: list[Masked], neighbours: Tensor) -> float:
    """The mean over all hidden cells."""
    network.eval()
    total, cells = 0.0, 0
    for each in masked:
        shift, log_scale = network.of_rows(each.inputs, neighbours)
        residual = each.residual.clamp(-FURTHEST, FURTHEST)
        total += float(student_nll(residual - shift, log_scale)[each.hidden].double().sum())
        cells += int(each.hidden.sum())
    return total / max(1, cells)
