"""GRUI-GAN: a generator of whole series and a critic of them, both recurrent; gaps are filled by the generated series
that comes closest to what was observed (Luo et al., NeurIPS 2018).

β_t = exp(-max(0, W δ_t + b)),  h_t = GRU(x_t, β_t ⊙ h_{t-1})       GRUI: memory fades with the time since it was fed
G(z)_t = V h_t + c,  x_t = G(z)_{t-1} + U z                         generator: fed with its own output, and the noise
D(x) = w·h_T + b                                                    critic: one number for a whole series

critic:     min  E[D(G(z))] - E[D(x)] + penalty · E[(‖∇D‖ - 1)²]    Wasserstein distance, gradients held near 1
generator:  min -E[D(G(z))]
to fill x:  min  ‖(x - G(z)) ⊙ observed‖² - realism · D(G(z))       over z, for each series

All of a series comes from one noise vector. A model that was trained on windows has seen series of their length only:
it goes on generating beyond, but nothing has taught it what happens there, and one vector has more cells to explain.
"""

from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import pad

from gpvae.batches import Batch
from gpvae.model import Loss


def lags(batch: Batch) -> Tensor:
    """Time since each feature was last observed, before this step. (batch, time, feature)

    δ_1 = 0,  δ_t = s_t - s_{t-1} + (0 if observed at t-1, else δ_{t-1});  0 in the padding

    That is s_t less the last time of an observation before t, or less s_1 if there is none; times rise.
    """
    if isinstance(batch.times, Tensor):
        times = batch.times.unsqueeze(-1)  # (batch, time, 1)
    else:
        times = batch.times * torch.arange(batch.values.shape[1], device=batch.values.device).double().view(1, -1, 1)
    last = torch.where(batch.observed, times, times[:, :1]).cummax(1).values
    before = torch.cat([times[:, :1].expand_as(last[:, :1]), last[:, :-1]], dim=1)
    return ((times - before) * batch.valid.unsqueeze(-1)).to(batch.values.dtype)


class Grui(nn.Module):
    """A GRU whose state fades with the lags of its input: h_t = GRU(x_t, β_t ⊙ h_{t-1}).

    r, k = σ(W_x x + b_x + W_h h' + b_h)            reset and keep, with h' = β_t ⊙ h_{t-1}
    n = tanh(V_x x + c_x + r ⊙ (V_h h' + c_h))      reset behind the product, as in PyTorch: one product a step
    h_t = (1 - k) ⊙ n + k ⊙ h'
    """

    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.fading = nn.Linear(features, hidden)
        self.from_input = nn.Linear(features, 3 * hidden)  # r, k, n
        self.from_state = nn.Linear(hidden, 3 * hidden)
        for layer in (self.from_input, self.from_state):
            nn.init.uniform_(layer.weight, -(hidden**-0.5), hidden**-0.5)
        nn.init.orthogonal_(self.from_state.weight)

    def decay(self, lags: Tensor) -> Tensor:
        """β for all steps. (batch, time, feature) → (batch, time, hidden)"""
        return self.fading(lags).relu().neg().exp()

    def gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What the input says to r and k, and to n; for one step or for all. (..., 2 hidden), (..., hidden)"""
        both, new = self.from_input(x).split([2 * self.hidden, self.hidden], dim=-1)
        return both, new

    def step(self, both: Tensor, new: Tensor, decay: Tensor, state: Tensor) -> Tensor:
        """The next state, given the input's gates. (..., hidden)"""
        state = decay * state
        both_of_state, new_of_state = self.from_state(state).split([2 * self.hidden, self.hidden], dim=-1)
        reset, keep = (both + both_of_state).sigmoid().chunk(2, dim=-1)
        return torch.addcmul(new, reset, new_of_state).tanh().lerp(state, keep)

    def forward(self, x: Tensor, lags: Tensor) -> Tensor:
        """The states of whole series. (..., batch, time, feature), (batch, time, feature) → (..., time, hidden)"""
        state, states = x.new_zeros((*x.shape[:-2], self.hidden)), []
        both, new = self.gates(x)
        for inputs in zip(both.unbind(-2), new.unbind(-2), self.decay(lags).unbind(-2), strict=True):
            state = self.step(*inputs, state)
            states.append(state)
        return torch.stack(states, dim=-2)


class SeriesGenerator(nn.Module):
    """One noise vector → a whole series, each step fed with the one before."""

    def __init__(self, features: int, hidden: int, noise_dim: int):
        super().__init__()
        self.cell = Grui(features, hidden)
        self.noise = nn.Linear(noise_dim, features)
        self.output = nn.Linear(hidden, features)

    def forward(self, noise: Tensor, lags: Tensor) -> Tensor:
        """G(z). (batch, noise), (batch, time, feature) → (batch, time, feature)"""
        push, out = self.noise(noise), noise.new_zeros(())
        state, steps = noise.new_zeros((*noise.shape[:-1], self.cell.hidden)), []
        for decay in self.cell.decay(lags).unbind(-2):
            state = self.cell.step(*self.cell.gates(out + push), decay, state)
            out = self.output(state)
            steps.append(out)
        return torch.stack(steps, dim=-2)

    def predict(self, batch: Batch, lags: Tensor) -> Tensor:
        """Each step from the true ones before it; where these are missing, from its own. (batch, time, feature)

        Without noise: there is nothing here that it could tell, and the generator would learn to overhear it.
        """
        push = self.noise.bias
        out, steps = torch.zeros_like(batch.values[:, 0]), []
        state = batch.values.new_zeros((len(batch.values), self.cell.hidden))
        given = zip(self.cell.decay(lags).unbind(1), batch.values.unbind(1), batch.observed.unbind(1), strict=True)
        for decay, truth, observed in given:
            state = self.cell.step(*self.cell.gates(out + push), decay, state)
            steps.append(self.output(state))
            out = torch.where(observed, truth, steps[-1])
        return torch.stack(steps, dim=1)


class SeriesCritic(nn.Module):
    """How real a series looks: one number, from the state behind its last step."""

    def __init__(self, features: int, hidden: int):
        super().__init__()
        self.cell = Grui(features, hidden)
        self.output = nn.Linear(hidden, 1)

    def forward(self, values: Tensor, lags: Tensor, lengths: Tensor) -> Tensor:
        """D. (..., batch, time, feature) → (..., batch)"""
        states = self.cell(values, lags)
        last = torch.arange(states.shape[-2], device=states.device) == lengths.unsqueeze(-1) - 1
        return self.output((states * last.unsqueeze(-1)).sum(-2)).squeeze(-1)


class GruiGanNetwork(nn.Module):
    """Generator and critic, the loss that trains both at once, and the search for the noise of a given series.

    The critic sees what is observed of a series, and zeros; of a generated series it sees the same cells with the same
    lags, and zeros, so that nothing but the values can give it away.
    """

    CRITIC_PACE = 4  # two time scales stand in for several steps of the critic to each of the generator
    BETAS = (0.5, 0.9)  # a game has no use for a long momentum

    def __init__(
        self,
        features: int,
        *,
        hidden: int = 64,
        noise_dim: int = 64,
        penalty: float = 10.0,
        realism: float = 0.15,
        fill_steps: int = 200,
        fill_rate: float = 0.05,
    ):
        super().__init__()
        self.noise_dim, self.penalty, self.realism = noise_dim, penalty, realism
        self.fill_steps, self.fill_rate = fill_steps, fill_rate
        self.generator = SeriesGenerator(features, hidden, noise_dim)
        self.critic = SeriesCritic(features, hidden)

    def parameter_groups(self, learning_rate: float) -> list[dict[str, Any]]:
        """For the optimiser: the generator, and the critic at a pace of its own."""
        return [
            {"params": list(self.generator.parameters()), "betas": self.BETAS},
            {"params": list(self.critic.parameters()), "betas": self.BETAS, "lr": self.CRITIC_PACE * learning_rate},
        ]

    def loss(self, batch: Batch, generator: Generator, warmth: Tensor | float = 1.0) -> Loss:
        """One number whose gradients are, for each player's weights, those of its own loss.

        total = Σ_i w_i (D(G(z_i)) - D(x_i) + penalty (‖∇D‖ - 1)²) + [warmth < 1] · prediction error

        The critic minimises this as it stands. The generator minimises -D(G(z)) once `warmth` is 1: its series reach
        the critic with their gradient reversed. Before, it learns to predict each step from those before.
        w_i is the series' share of the steps, so that a step weighs the same in a short piece and in a long one.
        """
        with torch.autocast(batch.values.device.type, enabled=False):  # a small difference of two scores
            delta, real = lags(batch), batch.values * batch.observed
            playing = _as_tensor(warmth, real) >= 1
            fake = self.generator(self._noise(batch, generator), delta) * batch.observed
            shown = torch.stack([real, _reversed(fake, playing.to(real.dtype))])  # (2, batch, time, feature)
            share = batch.lengths / batch.steps
            truth, forged = (self.critic(shown, delta, batch.lengths) * share).sum(-1)
            blend = torch.rand(len(real), 1, 1, generator=generator, device=real.device, dtype=real.dtype)
            steepness = self._steepness(fake.detach().lerp(real, blend), batch, delta)
            penalty = ((steepness - 1).square() * share).sum()
            error = ((self.generator.predict(batch, delta) - real) * batch.observed).square().sum() / batch.steps
            total = forged - truth + self.penalty * penalty + torch.where(playing, 0.0, error)
            return Loss(total, {"distance": truth - forged, "penalty": penalty, "error": error})

    def _noise(self, batch: Batch, generator: Generator) -> Tensor:
        shape = (len(batch.values), self.noise_dim)
        return torch.randn(shape, generator=generator, device=generator.device, dtype=batch.values.dtype)

    def _steepness(self, values: Tensor, batch: Batch, delta: Tensor) -> Tensor:
        """‖∇D‖ over the observed cells of each series; the others are always zero. (batch,)"""
        with torch.enable_grad():
            values = values.detach().requires_grad_()
            score = self.critic(values, delta, batch.lengths).sum()
            (gradient,) = torch.autograd.grad(score, values, create_graph=True)
        return ((gradient * batch.observed).square().sum((1, 2)) + 1e-12).sqrt()

    def fill(self, batch: Batch, generator: Generator) -> Tensor:
        """G(z) with the z that suits each series best. (batch, time, feature)"""
        with torch.autocast(batch.values.device.type, enabled=False):
            noise = self.search(batch, self._noise(batch, generator))
            return self.generator(noise, lags(batch))

    def search(self, batch: Batch, start: Tensor) -> Tensor:
        """Noise that brings the generated series close to the observed values, by Adam. (batch, noise)

        Series do not influence each other: the sum over them is minimised, and Adam works number by number.
        """
        noise, delta = start.detach().clone().requires_grad_(), lags(batch)
        optimizer = torch.optim.Adam([noise], lr=self.fill_rate)
        with torch.enable_grad():
            for _ in range(self.fill_steps):
                # Gradients of the noise alone: those of the weights belong to training.
                (noise.grad,) = torch.autograd.grad(self.misfit(batch, noise, delta).sum(), noise)
                optimizer.step()
        return noise.detach()

    def misfit(self, batch: Batch, noise: Tensor, delta: Tensor) -> Tensor:
        """‖(x - G(z)) ⊙ observed‖² - realism · D(G(z)), for each series. (batch,)"""
        made = self.generator(noise, delta) * batch.observed
        distance = (made - batch.values * batch.observed).square().sum((1, 2))
        return distance - self.realism * self.critic(made, delta, batch.lengths)


def _reversed(x: Tensor, strength: Tensor) -> Tensor:
    """X itself, with -strength times its gradient."""
    return x.detach() - strength * (x - x.detach())


def _as_tensor(value: Tensor | float, like: Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else like.new_full((), value)
