"""The GP-VAE's bound as a module to be trained: from rows of a table to a loss."""

from typing import Any, cast

from torch import Generator, Tensor, nn

from gpvae.data.batches import Batch, BatchIndex, RowTensors
from gpvae.models.config import Objective
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.loss import Loss
from gpvae.models.prior import PriorAt
from gpvae.training.devices import compiled
from gpvae.training.masking import MaskDraw, Masking


class BoundObjective(nn.Module):
    """Gather a batch from `rows`, hide some of it, and bound the likelihood of the target by what is visible."""

    def __init__(
        self,
        network: GPVAEModel,
        rows: RowTensors,
        config: Objective,
        masking: Masking | None,
        *,
        longest: int,
        compile: bool = False,
    ):
        """`longest` is the most steps of a batch; `masking` and `config` must be resolved."""
        super().__init__()
        self.network, self.rows, self.config, self.masking = network, rows, config, masking
        self.beta = cast(float, config.beta)
        self.visible_weight = 1.0 if masking is None else cast(float, masking.visible_weight)
        # On an even grid, a prior that is not learned is the same for all batches.
        fixed = None if network.prior.learned or rows.spacing is None else rows.spacing
        self.fixed_prior = None if fixed is None else network.prior.at(fixed, steps=longest)
        self._bound: Any = compiled(self.bound) if compile else self.bound

    def forward(self, index: BatchIndex, generator: Generator, kl_scale: Tensor) -> Loss:
        shape = (len(index.starts), index.time)
        noise = self.network.sample_noise((*self.config.draws, *shape), generator)
        features = self.network.likelihood.features
        masks = None if self.masking is None else self.masking.draw(shape, features, generator)
        prior = self.fixed_prior or self.network.prior.at(self.rows.times_of(index), steps=index.time)
        return self._bound(self.rows.batch(index), masks, prior, noise, kl_scale)

    def bound(self, batch: Batch, masks: MaskDraw | None, prior: PriorAt, noise: Tensor, kl_scale: Tensor) -> Loss:
        """The loss, all random numbers given."""
        target, visible = batch, batch
        if self.masking is not None and masks is not None:
            target, visible = self.masking.apply(batch, masks)
        network, beta, weight = self.network, self.beta * kl_scale, self.visible_weight
        bound = network.elbo if self.config.importance_samples == 1 else network.importance_weighted
        return bound(visible, target, prior=prior, noise=noise, beta=beta, visible_weight=weight)
