"""How a network is trained, as a setting; and what that means for data of a given size."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from gpvae.training.config import TrainingConfig
from gpvae.training.masking import Masking

Optimizer = Literal["muon", "adam"]
# Where the number of epochs is left open: enough for so many steps, within limits. With a falling learning rate nothing
# is gained by stopping early; but a table of a few windows is memorised sooner.
MIN_STEPS, ANNEALED_STEPS, MIN_EPOCHS = 3000, 10_000, 40
MAX_EPOCHS, SMALL_DATA_EPOCHS, SMALL_DATA_BATCHES = 800, 200, 3
BATCHES, MIN_BATCH, MAX_BATCH = 50, 16, 64  # batches in an epoch, unless they become too small or too large
KL_STEPS = 1000  # over which a weight of the KL that is left open rises, at least


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    optimizer: "muon", whose steps change all directions of a matrix alike (see `training.optimizers`), or "adam".
    learning_rate: of both; 0.001 is usual for Adam. Narrow networks that take only some hundred steps want more.
    anneal: the learning rate rises over the first twentieth of the epochs, and falls to nearly 0 in the last 40 %.
    halve_every: epochs after which the learning rate is halved, again and again, down to a tenth; None: never.
    clip_norm: longer gradients are shortened to this.
    kl_warm_up: share of the epochs over which the weight of the KL rises to β.
    patience: epochs without a better validation score before training stops; None: a fifth of the epochs, or, with
        `anneal`, never.
    batch_size: windows, or series, in a step; None: a fiftieth of them, between 16 and 64.
    window: longer series are trained on in windows of so many steps. They are imputed whole.
    validation: share of the observed cells that is held out, to choose the best epoch and to calibrate the noise.
    masking: what is hidden from the encoder in training; None: nothing.
    fork_mixup: share of the series that are mixed in the second branch of a forked run; 0: runs do not fork. A run
        forks where validation scores hardly improve between 30 and 50 % of the epochs: one branch continues as planned,
        the other adds mixup; validation picks the winner.
    """

    optimizer: Optimizer = "adam"
    learning_rate: float = 1e-3
    anneal: bool = False
    halve_every: int | None = None
    clip_norm: float = 10.0
    kl_warm_up: float = 0.0
    patience: int | None = None
    batch_size: int | None = None
    window: int = 64
    validation: float = 0.1
    masking: Masking | None = None
    fork_mixup: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.masking, Masking | None):
            raise TypeError(f"masking must be a Masking, or None, got {self.masking!r}")
        for name, fine, wanted in (
            ("optimizer", self.optimizer in get_args(Optimizer), " or ".join(get_args(Optimizer))),
            ("learning_rate", 0 < self.learning_rate < math.inf, "above 0"),
            ("halve_every", self.halve_every is None or self.halve_every >= 1, "at least 1, or None"),
            ("clip_norm", self.clip_norm > 0, "above 0"),
            ("kl_warm_up", 0 <= self.kl_warm_up <= 1, "between 0 and 1"),
            ("patience", self.patience is None or self.patience >= 1, "at least 1, or None"),
            ("batch_size", self.batch_size is None or self.batch_size >= 1, "at least 1, or None"),
            ("window", self.window >= 2, "at least 2"),
            ("validation", 0 <= self.validation < 1, "at least 0 and below 1"),
            ("fork_mixup", 0 <= self.fork_mixup <= 1, "between 0 and 1"),
        ):
            if not fine:
                raise ValueError(f"{name} must be {wanted}, got {getattr(self, name)!r}")

    @property
    def keep(self) -> Literal["best", "last"]:
        """Which weights training ends with.

        While the learning rate is high, a better score than the last is luck. But where nothing is hidden in training,
        the model ends up copying, and where someone has set `patience`, it waits for the best.
        """
        return "last" if self.anneal and self.patience is None and self.masking is not None else "best"

    def batch_size_for(self, windows: int) -> int:
        return self.batch_size or min(MAX_BATCH, max(MIN_BATCH, windows // BATCHES))

    def epochs_for(self, steps_per_epoch: int) -> int:
        """Where the user leaves it open."""
        enough = math.ceil((ANNEALED_STEPS if self.anneal else MIN_STEPS) / steps_per_epoch)
        if self.anneal:  # patience does not end it
            few = SMALL_DATA_EPOCHS * max(SMALL_DATA_BATCHES, steps_per_epoch) // SMALL_DATA_BATCHES
            enough = min(MAX_EPOCHS, few, enough)
        return max(MIN_EPOCHS, enough)

    def training_config(
        self, epochs: int | None, steps_per_epoch: int, *, seed: int, slow_kl: bool = False
    ) -> TrainingConfig:
        """For data of this size; `slow_kl`: the weight of the KL rises over `KL_STEPS` at least."""
        epochs = epochs or self.epochs_for(steps_per_epoch)
        kl_warm_up = round(self.kl_warm_up * epochs)
        if slow_kl and self.kl_warm_up > 0 and self.keep == "last":  # patience would wait for its end
            kl_warm_up = max(kl_warm_up, math.ceil(KL_STEPS / steps_per_epoch))
        return TrainingConfig(
            epochs=epochs,
            learning_rate=self.learning_rate,
            rise=0.05 if self.anneal else 0.0,
            fall_from=0.6 if self.anneal else None,
            halve_every=self.halve_every,
            clip_norm=self.clip_norm,
            kl_warm_up=kl_warm_up,
            keep=self.keep,
            patience=self.patience or (None if self.anneal else math.ceil(epochs / 5)),
            seed=seed,
        )


# Nothing hidden, Adam, a KL that sets in slowly: for VAE and HI-VAE.
PLAIN = Recipe(kl_warm_up=0.25)

# The default of `GPVAE`.
DEFAULT_RECIPE = Recipe(
    optimizer="muon",
    learning_rate=3e-3,
    anneal=True,
    clip_norm=1.0,
    kl_warm_up=0.25,
    masking=Masking(),
    fork_mixup=0.75,
)
