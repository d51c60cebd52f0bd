"""What the report asks of an imputer beyond the contract of `Imputer`: the only place that knows its classes."""

import math

from gpvae.imputers.base import Imputer
from gpvae.imputers.conformal import Conformal
from gpvae.imputers.gpvae import GPVAE
from gpvae.imputers.imputation import Imputation
from gpvae.imputers.neural import Trained

LIKELIHOODS = {"student": "Student's t", "gaussian": "Gaussian"}


def method_of(imputation: Imputation) -> Imputer | None:
    """The fitted method, without conformal calibration around it."""
    imputer = imputation.imputer
    return getattr(imputer, "imputer_", None) if isinstance(imputer, Conformal) else imputer


def latent_model_of(imputation: Imputation) -> GPVAE | None:
    method = method_of(imputation)
    return method if isinstance(method, GPVAE) else None


def image_shape_of(imputation: Imputation) -> tuple[int, int, int] | None:
    """(channel, height, width), if the columns are the pixels of grey or colour images."""
    method = latent_model_of(imputation)
    shape = method.model.image_shape if method else None
    return shape if shape and math.prod(shape) == len(imputation.panel.columns) and shape[0] in (1, 3) else None


def has_binary_pixels(imputation: Imputation) -> bool:
    method = latent_model_of(imputation)
    return method is not None and method.model.likelihood == "bernoulli"


def keeps_last_epoch(method: Imputer | None) -> bool:
    """Whether the weights are those of the last epoch, or else of the best."""
    return isinstance(method, Trained) and method.keeps_last


def network_facts(imputation: Imputation) -> list[list[str]]:
    """Name and value of what is worth knowing about a trained network."""
    method = method_of(imputation)
    if not isinstance(method, Trained) or not hasattr(method, "model_"):
        return []
    return [
        *(_latent_facts(method) if isinstance(method, GPVAE) else []),
        ["parameters", f"{sum(value.numel() for value in method.model_.parameters()):,}"],
        ["training epochs", f"{len(method.history_):,}"],
        ["device", str(method._device.type)],
    ]


def _latent_facts(method: GPVAE) -> list[list[str]]:
    config = method.model_.config
    prior = f"{type(config.kernel).__name__} kernel" if config.neighbours else "none, steps are independent"
    return [
        ["latent series", f"{config.latent_dim}"],
        ["prior over time", prior],
        ["encoder", config.encoder],
        ["likelihood", LIKELIHOODS.get(config.likelihood, config.likelihood)],
        ["β, weight of the KL term", "0.01 × observed share" if config.beta is None else f"{config.beta:g}"],
    ]


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
