"""GRUI-GAN: a generator of whole series and a critic of them, both recurrent; gaps are filled by the generated series
that comes closest to what was observed (Luo et al., NeurIPS 2018).

β_t = exp(-max(0, W δ_t + b)),  h_t = GRU(x_t, β_t ⊙ h_{t-1})       GRUI: memory fades with the time since it was fed
G(z)_t = V h_t + c,  x_t = G(z)_{t-1} + U z                         generator: fed with its own output, and the noise
D(x) = w·h_T + b                                                    critic: one number for a whole series

critic:     min  E[D(G(z))] - E[D(x)] + penalty · E[(‖∇D‖ - 1)²]    Wasserstein distance, gradients held near 1
generator:  min -E[D(G(z))]
to fill x:  min  ‖(x - G(z)) ⊙ observed‖² - realism · D(G(z))       over z, for each series

All of a series comes from one noise vector, so long ones are taken in windows.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from gpvae.data.batches import Batch, elapsed
from gpvae.data.schema import Schema
from gpvae.imputers.neural import NeuralImputer
from gpvae.imputers.point import PointMethod
from gpvae.models.encoders import require_positive
from gpvae.models.likelihoods.sampling import Random, draw
from gpvae.models.loss import Loss
from gpvae.training.cuda_graph import repeat
from gpvae.training.recipe import Recipe


@dataclass(eq=False, repr=False)
class GRUIGAN(NeuralImputer):
    """Fill gaps by the generated series that comes closest to what is observed. It gives single values.

    hidden, noise_dim: sizes of the recurrent states, and of the noise that a series is generated from.
    fill_steps: of the search for the noise of a series.
    pretraining: share of the epochs in which the generator learns to predict the next step, before the game begins.

    A search for every series makes it slow to fill; validation searches for a few of them. Series longer than
    `recipe.window` are learned and filled in windows, each from a noise vector of its own. The other settings are those
    of `GPVAE`.
    """

    VALIDATED_WINDOWS: ClassVar[int] = 64
    hidden: int = 64
    noise_dim: int = 64
    fill_steps: int = 200
    pretraining: float = 0.25
    recipe: Recipe = field(default=Recipe(learning_rate=3e-3), kw_only=True)
    method_: "GruiGanMethod" = field(init=False)

    def _new_method(self, schema: Schema, share_observed: float) -> "GruiGanMethod":
        sizes = {"hidden": self.hidden, "noise_dim": self.noise_dim, "fill_steps": self.fill_steps}
        network = GruiGanNetwork(len(schema.columns), **sizes)
        recipe = replace(self.recipe, kl_warm_up=self.pretraining)  # below 1, the scale says that the game is to come
        return GruiGanMethod(network, schema, recipe, windowed=True, validated_windows=self.VALIDATED_WINDOWS)

    def _require_valid_settings(self) -> None:
        super()._require_valid_settings()
        require_positive(self, "hidden", "noise_dim", "fill_steps")
        if not 0 <= self.pretraining <= 1:
            raise ValueError(f"pretraining must be between 0 and 1, got {self.pretraining!r}")


class GruiGanMethod(PointMethod):
    """Generator and critic, which learn at different rates."""

    network: "GruiGanNetwork"

    def parameter_groups(self) -> list[dict[str, Any]]:
        return self.network.parameter_groups(self.recipe.learning_rate)


def lags(batch: Batch) -> Tensor:
    """δ, the time since each feature was last observed; 0 in the padding. (batch, time, feature)"""
    if isinstance(batch.times, Tensor):
        times = batch.times.unsqueeze(-1)  # (batch, time, 1)
    else:
        times = batch.times * torch.arange(batch.values.shape[1], device=batch.values.device).double().view(1, -1, 1)
    return (elapsed(times, batch.observed) * batch.valid.unsqueeze(-1)).to(batch.values.dtype)


class Grui(nn.Module):
    """A GRU whose state fades with the lags of its input: h_t = GRU(x_t, h'),  h' = exp(-max(0, W δ_t + b)) ⊙ h_{t-1}.

    r, k = σ(W_x x + b_x + W_h h' + b_h)            reset and keep
    n = tanh(V_x x + c_x + r ⊙ (V_h h' + c_h))      reset behind the product, as in PyTorch: one product a step
    h_t = (1 - k) ⊙ n + k ⊙ h'
    """

    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.fading = nn.Linear(features, hidden)
        self.from_input = nn.Linear(features, 3 * hidden)  # r, k, n
        self.from_state = nn.Linear(hidden, 3 * hidden)
        for gate in self.from_state.weight.detach().chunk(3):
            nn.init.orthogonal_(gate)  # a state that neither grows nor dies: what is learned hangs less on the seed

    def decay(self, delta: Tensor) -> Tensor:
        """By which the state fades, for all steps. (batch, time, feature) → (batch, time, hidden)"""
        return self.fading(delta).relu().neg().exp()

    def split(self, gates: Tensor) -> tuple[Tensor, Tensor]:
        """Those of r and k together, and that of n. (..., 2 hidden), (..., hidden)"""
        both, new = gates.split([2 * self.hidden, self.hidden], dim=-1)
        return both, new

    def step(self, both: Tensor, new: Tensor, decay: Tensor, state: Tensor) -> Tensor:
        """The next state, given what the input says to the gates. (..., hidden)"""
        state = decay * state
        both_of_state, new_of_state = self.split(self.from_state(state))
        reset, keep = (both + both_of_state).sigmoid().chunk(2, dim=-1)
        return torch.addcmul(new, reset, new_of_state).tanh().lerp(state, keep)

    def forward(self, x: Tensor, delta: Tensor) -> Tensor:
        """The states of whole series. (..., batch, time, feature) → (..., batch, time, hidden)"""
        state, states = x.new_zeros((*x.shape[:-2], self.hidden)), []
        both, new = self.split(self.from_input(x))
        for given in zip(both.unbind(-2), new.unbind(-2), self.decay(delta).unbind(-2), strict=True):
            state = self.step(*given, state)
            states.append(state)
        return torch.stack(states, dim=-2)


class SeriesGenerator(nn.Module):
    """One noise vector → a whole series, each step fed with the one before, and with the noise.

    The paper gives the noise to the first step alone. Given to all it is not forgotten on the way, and the search for
    the noise of a series reaches every step directly.
    """

    def __init__(self, features: int, hidden: int, noise_dim: int):
        super().__init__()
        self.cell = Grui(features, hidden)
        self.from_noise = nn.Linear(noise_dim, features)
        self.output = nn.Linear(hidden, features)

    def forward(self, noise: Tensor, delta: Tensor, truth: Tensor, known: Tensor) -> Tensor:
        """G(z): each step from the one before, from its `truth` where that is `known`. (..., batch, time, feature)"""
        push, out = self.from_noise(noise), noise.new_zeros(())
        state, steps = noise.new_zeros((*noise.shape[:-1], self.cell.hidden)), []
        given = zip(self.cell.decay(delta).unbind(-2), truth.unbind(-2), known.unbind(-2), strict=True)
        for decay, true, is_known in given:
            state = self.cell.step(*self.cell.split(self.cell.from_input(out + push)), decay, state)
            steps.append(self.output(state))
            out = torch.where(is_known, true, steps[-1])
        return torch.stack(steps, dim=-2)


class SeriesCritic(nn.Module):
    """How real a series looks: one number, from the state behind its last step."""

    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.cell = Grui(features, hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, values: Tensor, delta: Tensor, lengths: Tensor) -> Tensor:
        """D. (..., batch, time, feature) → (..., batch)"""
        states = self.cell(values, delta)
        last = torch.arange(states.shape[-2], device=states.device) == lengths.unsqueeze(-1) - 1
        return self.output((states * last.unsqueeze(-1)).sum(-2)).squeeze(-1)


class GruiGanNetwork(nn.Module):
    """Generator and critic, the loss that trains both at once, and the search for the noise of a given series.

    The critic sees what is observed of a series, and zeros; of a generated series it sees the same cells with the same
    lags, and zeros, so that nothing but the values can give it away.
    """

    CRITIC_RATE = 4  # two time scales stand in for several steps of the critic to each of the generator
    BETAS = (0.5, 0.9)  # what the opponent did long ago is no guide

    def __init__(
        self,
        features: int,
        *,
        hidden: int = 64,
        noise_dim: int = 64,
        penalty: float = 10.0,
        realism: float = 0.15,
        fill_steps: int = 200,
        fill_rate: float = 0.1,
    ):
        super().__init__()
        self.noise_dim, self.penalty, self.realism = noise_dim, penalty, realism
        self.fill_steps, self.fill_rate = fill_steps, fill_rate  # of Adam, in the search for the noise
        self.generator = SeriesGenerator(features, hidden, noise_dim)
        self.critic = SeriesCritic(features, hidden)

    @property
    def widest(self) -> int:
        """Numbers that a time step leaves behind for the way back of the search."""
        return 16 * self.generator.cell.hidden

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """For the optimiser: the generator, and the critic at a learning rate of its own."""
        rate = self.CRITIC_RATE * learning_rate
        return [
            {"params": list(self.generator.parameters()), "betas": self.BETAS},
            {"params": list(self.critic.parameters()), "betas": self.BETAS, "lr": rate},
        ]

    def loss(self, batch: Batch, generator: Generator, kl_scale: Tensor | float = 1.0) -> Loss:
        """One number whose gradient is, for the weights of each player, that of its own loss.

        total = Σ_i w_i (D(G(z_i)) - D(x_i) + penalty (‖∇D‖ - 1)²) + [kl_scale < 1] · error of prediction

        The critic minimises this as it stands. The generator's series reach the critic with their gradient reversed,
        so that by the same number it minimises -D(G(z)). That is once `kl_scale` is 1: before, it learns to predict.
        w_i is the series' share of the steps: a step weighs the same in a short window and in a long one.
        """
        with torch.autocast(batch.values.device.type, enabled=False):  # for small differences between large scores
            noise = self._noise(batch, generator)
            blend = torch.rand((len(noise), 1, 1), generator=generator, device=noise.device, dtype=noise.dtype)
            delta, playing = lags(batch), _as_tensor(kl_scale, noise) >= 1
            predicted, fake = self._predicted_and_free(batch, noise, delta)
            error = (predicted - batch.values).mul(batch.observed).square().sum() / batch.steps
            distance, penalty = self._duel(batch, delta, _reversed(fake, playing), blend)
            total = self.penalty * penalty - distance + torch.where(playing, 0.0, error)
            return Loss(total, {"distance": distance, "penalty": penalty, "error": error})

    def _noise(self, batch: Batch, random: Random) -> Tensor:
        return draw(_normal, batch.values.new_empty(len(batch.values), self.noise_dim), random)

    def _predicted_and_free(self, batch: Batch, noise: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
        """Series fed with what is observed of the true ones, and series fed with themselves; side by side, in one go.

        The former without noise: that has nothing to do with their truth, and would be trained away.
        """
        both = torch.stack([torch.zeros_like(noise), noise])  # (2, batch, noise)
        known = torch.stack([batch.observed, torch.zeros_like(batch.observed)])  # (2, batch, time, feature)
        return self.generator(both, delta, batch.values, known).unbind(0)

    def _duel(self, batch: Batch, delta: Tensor, fake: Tensor, blend: Tensor) -> tuple[Tensor, Tensor]:
        """Wasserstein distance E[D(x)] - E[D(G(z))] in the critic's eyes, and the penalty on its gradients."""
        shown = torch.stack([batch.values, fake]) * batch.observed  # (2, batch, time, feature)
        share = batch.lengths / batch.steps
        truth, forged = (self.critic(shown, delta, batch.lengths) * share).sum(-1)
        real, made = shown.detach()
        steepness = self._steepness(batch, delta, made.lerp(real, blend))
        return truth - forged, ((steepness - 1).square() * share).sum()

    def _steepness(self, batch: Batch, delta: Tensor, values: Tensor) -> Tensor:
        """‖∇D‖ at `values`, over the observed cells of each series: the others never change. (batch,)"""
        with torch.enable_grad():
            values = values.requires_grad_()
            score = self.critic(values, delta, batch.lengths).sum()
            (gradient,) = torch.autograd.grad(score, values, create_graph=True)
        return ((gradient * batch.observed).square().sum((1, 2)) + 1e-12).sqrt()  # a root has no slope at 0

    def fill(self, batch: Batch, random: Random) -> Tensor:
        """G(z) with the z that suits each series best. (batch, time, feature)"""
        with torch.autocast(batch.values.device.type, enabled=False):
            delta, start = lags(batch), self._noise(batch, random)
            return self._free(batch, delta, self._search(batch, delta, start))

    def _free(self, batch: Batch, delta: Tensor, noise: Tensor) -> Tensor:
        return self.generator(noise, delta, batch.values, torch.zeros_like(batch.observed))

    def _search(self, batch: Batch, delta: Tensor, start: Tensor) -> Tensor:
        """Noise that brings the generated series close to what is observed, by Adam. (batch, noise)

        Series do not influence each other: the sum over them is minimised, and Adam works number by number.
        """
        noise = start.clone().requires_grad_()
        optimizer = torch.optim.Adam([noise], lr=self.fill_rate, capturable=noise.is_cuda)

        def step() -> None:
            # With respect to the noise alone: the weights' gradients belong to training.
            (noise.grad,) = torch.autograd.grad(self._misfit(batch, delta, noise).sum(), noise)
            optimizer.step()

        with torch.enable_grad():
            repeat(step, self.fill_steps, noise.device)
        return noise.detach()

    def _misfit(self, batch: Batch, delta: Tensor, noise: Tensor) -> Tensor:
        """‖(x - G(z)) ⊙ observed‖² - realism · D(G(z)), for each series. (batch,)"""
        made = self._free(batch, delta, noise) * batch.observed
        distance = (made - batch.values * batch.observed).square().sum((1, 2))
        return distance - self.realism * self.critic(made, delta, batch.lengths)


def _normal(x: Tensor, generator: Generator) -> Tensor:
    return torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)


def _reversed(x: Tensor, on: Tensor) -> Tensor:
    """The same x with its gradient reversed where `on`, cut off where not."""
    return x.detach() - on * (x - x.detach())


def _as_tensor(value: Tensor | float, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else like.new_full((), value)
