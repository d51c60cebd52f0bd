"""What the report asks of an imputer beyond the contract of `Imputer`: the only place that knows its classes."""

import math

from gpvae.imputers.base import Imputer
from gpvae.imputers.conformal import Conformal
from gpvae.imputers.gpvae import GPVAE
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.neural import NeuralImputer
from gpvae.models.inputs import Frames
from gpvae.models.likelihoods import Bernoulli


def method_of(imputation: Imputation) -> Imputer | None:
    """The fitted method, without conformal calibration around it."""
    imputer = imputation.imputer
    return getattr(imputer, "imputer_", None) if isinstance(imputer, Conformal) else imputer


def image_shape_of(imputation: Imputation) -> tuple[int, int, int] | None:
    """(channel, height, width), if the columns are the pixels of grey or colour images."""
    method = method_of(imputation)
    shape = method.model.inputs.shape if isinstance(method, GPVAE) and isinstance(method.model.inputs, Frames) else None
    return shape if shape and math.prod(shape) == len(imputation.panel.columns) and shape[0] in (1, 3) else None


def has_binary_pixels(imputation: Imputation) -> bool:
    method = method_of(imputation)
    return isinstance(method, GPVAE) and isinstance(method.model.likelihood, Bernoulli)


def keeps_last_epoch(method: Imputer | None) -> bool:
    """Whether the weights are those of the last epoch, or else of the best."""
    return isinstance(method, NeuralImputer) and method.recipe.keep == "last"


def held_out_caveat(imputation: Imputation) -> str:
    """How the held-out cells were used in training, and how they were chosen."""
    hidden = "These cells were hidden during training and filled again for this report."
    return f"{hidden} They are not fully independent, though: {_use_of_held_out(imputation)}"


def _use_of_held_out(imputation: Imputation) -> str:
    imputer = imputation.imputer
    if isinstance(imputer, Conformal):
        return (
            "the interval widths are set to cover the right share of these very cells, so expect slightly lower "
            "coverage elsewhere. They are single cells, chosen at random; longer gaps are harder to fill."
        )
    last = "monitor training (and to choose between its branches, if it forked)"
    uses = [last if keeps_last_epoch(imputer) else "select the best epoch"]
    if isinstance(imputer, GPVAE):
        uses.append("to set the noise level, if it is learned")
    choice = "They are single cells, chosen at random; longer gaps are harder to fill."
    if not imputation.panel.observed.all():
        choice = "About half of them lie in gaps like those of the data; the others are single cells, chosen at random."
    return f"they were used to {' and '.join(uses)}, so expect slightly larger errors elsewhere. {choice}"
