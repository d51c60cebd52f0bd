"""The model as a setting: which parts the GP-VAE is composed of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from torch import nn

from gpvae.models.encoders import Convolution, EncoderSpec
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.inputs import InputsSpec, Values
from gpvae.models.likelihoods import Bernoulli, Gaussian, LikelihoodSpec, likelihood_for
from gpvae.models.posterior import Posterior, head_of
from gpvae.models.prior import Prior

Initialisation = Literal["pytorch", "glorot"]


@dataclass(frozen=True)
class Objective:
    """What is maximised: log p(x_observed | z) under q, less β times the KL.

    beta: weight of the KL; None: a hundredth of the share of the cells that is observed.
    mc_samples: M, draws that the bound is averaged over.
    importance_samples: K, draws inside the logarithm; above 1, the importance-weighted bound.
    missing_as_zeros: missing values are zeros to be seen and scored, as in a plain VAE.
    """

    BETA = 0.01

    beta: float | None = 1.0
    mc_samples: int = 1
    importance_samples: int = 1
    missing_as_zeros: bool = False

    def __post_init__(self) -> None:
        if self.mc_samples < 1 or self.importance_samples < 1:
            counts = f"{self.mc_samples} and {self.importance_samples}"
            raise ValueError(f"mc_samples and importance_samples must be at least 1, got {counts}")
        if self.beta is not None and self.beta < 0:
            raise ValueError(f"beta must not be negative, got {self.beta}")

    @property
    def draws(self) -> tuple[int, ...]:
        return (self.mc_samples,) if self.importance_samples == 1 else (self.mc_samples, self.importance_samples)


@dataclass(frozen=True)
class ModelConfig:
    """What the model is; without arguments, the paper's. Saved with the model.

    latent_dim: latent series; None: twice as many as columns, between 16 and 64.
    posterior: a Markov "chain", or "diagonal": steps are independent; "published", the chain as in the authors' code,
        or "published-sigmoid", as in their code for PhysioNet (see `models.posterior`).
    first_std: deviation of "chain" and "diagonal" where training starts.
    initialisation: of weights and biases: "pytorch", or "glorot": uniform weights as wide as the layer's inputs and
        outputs call for, no bias.
    inputs: what encoder and decoder see: `Values`, `Frames` of images, or the default's `NearestValues`.
    decoder_widths: of the decoder's hidden layers.
    likelihood: of real columns; the kinds of the others decide theirs.
    """

    latent_dim: int | None = None
    prior: Prior = Prior()
    posterior: Posterior = "chain"
    first_std: float = 0.1
    initialisation: Initialisation = "pytorch"
    inputs: InputsSpec = Values()
    encoder: EncoderSpec = Convolution()
    decoder_widths: tuple[int, ...] = (256, 256)
    likelihood: LikelihoodSpec = Gaussian()
    objective: Objective = Objective()

    def __post_init__(self) -> None:
        for name, kind in (
            ("prior", Prior),
            ("inputs", InputsSpec),
            ("encoder", EncoderSpec),
            ("likelihood", LikelihoodSpec),
            ("objective", Objective),
        ):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"{name} must be a {kind.__name__}, got {getattr(self, name)!r}")
        if self.latent_dim is not None and self.latent_dim < 1:
            raise ValueError(f"latent_dim must be at least 1, got {self.latent_dim}")
        for name, allowed in (("posterior", get_args(Posterior)), ("initialisation", get_args(Initialisation))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if self.first_std <= 0:
            raise ValueError(f"first_std must be above 0, got {self.first_std}")
        if not self.decoder_widths or min(self.decoder_widths) < 1:
            raise ValueError(f"decoder_widths must be the sizes of one layer or more, got {self.decoder_widths}")
        if self.likelihood == Bernoulli(missing_by_value=True) and self.objective.missing_as_zeros:
            raise ValueError("missing_by_value and missing_as_zeros contradict each other")

    def resolve(self, features: int, share_observed: float) -> "ModelConfig":
        """The same with everything decided that the data decides.

        A step with few values has little to set against the KL: with a β that is not smaller there, the latent series
        would say nothing.
        """
        objective = self.objective
        beta = Objective.BETA * share_observed if objective.beta is None else objective.beta
        return replace(
            self,
            latent_dim=min(64, max(16, 2 * features)) if self.latent_dim is None else self.latent_dim,
            prior=replace(self.prior, neighbours=self.prior.order),
            objective=replace(objective, beta=beta),
        )

    def build(self, kinds: Sequence[str], levels: Sequence[int] = ()) -> GPVAEModel:
        """Fresh weights for columns of these kinds; classes have so many levels. Resolve first."""
        if self.latent_dim is None:
            raise ValueError("latent_dim is open; resolve the configuration first")
        likelihood = likelihood_for(kinds, levels or [0] * len(kinds), self.likelihood)
        inputs = self.inputs.build(likelihood)
        encoder = self.encoder.build(inputs.channels, 3 * self.latent_dim)
        decoder = self.inputs.build_decoder(self.latent_dim, self.decoder_widths, likelihood)
        if self.initialisation == "glorot":
            for network in (inputs, encoder, decoder):
                network.apply(_init_glorot)
        return GPVAEModel(
            inputs,
            encoder,
            self.prior.build(self.latent_dim),
            decoder,
            likelihood,
            head_of(self.posterior, self.first_std),
            missing_as_zeros=self.objective.missing_as_zeros,
        )


def _init_glorot(layer: nn.Module) -> None:
    if isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d):
        nn.init.xavier_uniform_(layer.weight)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


# The comparisons of the paper: each step alone, under a standard normal prior. A VAE also scores missing values.
HI_VAE = ModelConfig(prior=Prior(neighbours=0, jitter=1e-6), posterior="diagonal", encoder=Convolution(window=1))
VAE = replace(HI_VAE, objective=Objective(missing_as_zeros=True))
