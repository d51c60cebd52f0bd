"""What the default adds: the nearest visible values, attention over columns, a decoder that starts from the line."""

import math
from dataclasses import replace
from typing import cast

import pytest
import torch
from compose import loss_of, model_of, ragged, random_batch, seeded
from torch import Tensor, nn
from torch.distributions import StudentT

from gpvae.data.batches import Batch, NearestVisible
from gpvae.gp import Chain, chain_kl
from gpvae.gp.kernels import Cauchy
from gpvae.models.config import ModelConfig
from gpvae.models.default import DEFAULT
from gpvae.models.encoders import Attention, Convolution, EncoderSpec
from gpvae.models.gpvae import GPVAEModel
from gpvae.models.likelihoods import RealParams, StudentLikelihood
from gpvae.models.parts import ColumnAttention, ContextDecoder, ContextInputs, NearestValues
from gpvae.models.prior import Prior

SMALL = replace(
    DEFAULT, latent_dim=3, prior=Prior(Cauchy(2.0), learned=True), encoder=Attention(16, 1), decoder_widths=(8,)
)
KINDS, LEVELS = ["count", "real", "categorical", "positive", "real"], [0, 0, 3, 0, 0]


def trained(config: ModelConfig = SMALL, features: int = 2, kinds: list[str] | None = None) -> GPVAEModel:
    """With weights as if it had learned something: the last layers are not zero."""
    model = model_of(config, features, kinds or (), LEVELS if kinds else ())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for layers in (decoder_of(model).dense, decoder_of(model).cell_mlp):
            cast(nn.Linear, layers[-1]).reset_parameters()
    return model


def decoder_of(model: GPVAEModel) -> ContextDecoder:
    return cast(ContextDecoder, model.decoder)


def attention_of(model: GPVAEModel) -> ColumnAttention:
    return cast(ColumnAttention, cast(ContextInputs, model.inputs).column_attention)


def decoded_by_hand(model: GPVAEModel, z: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
    """Location and log scale of two real columns: dense layers, and cell by cell the network that all cells share."""
    decoder = decoder_of(model)
    said = decoder.dense(torch.cat([z, context.flatten(-2).expand(*z.shape[:-1], -1)], dim=-1))
    location, log_scale = said[..., :2].clone(), said[..., 2:4].clone()
    for j in range(2):
        embedding, own = said[..., 4 + 8 * j : 4 + 8 * (j + 1)], context[..., j].expand(*z.shape[:-1], 5)
        added = decoder.cell_mlp(torch.cat([embedding, own], dim=-1))
        location[..., j] += added[..., 0] + context[..., 0, j] / (1 + (-decoder.line_logit[j]).exp())
        log_scale[..., j] += added[..., 1]
    return location, log_scale


def attended_by_hand(model: GPVAEModel, cells: Tensor, visible: Tensor) -> Tensor:
    """Over two columns, query by query. (batch, time, column, 7) → (batch, time, 8 · width)"""
    attention, results = attention_of(model), []
    h = [attention.dense((attention.embed(cells[..., d, :]) + attention.column[d]).relu()).relu() for d in range(2)]
    for query in attention.query:
        score = [(query * h[d]).sum(-1) / math.sqrt(len(query)) - 2 * ~visible[..., d] for d in range(2)]
        weight = torch.sigmoid(score[0] - score[1]).unsqueeze(-1)
        results.append(weight * h[0] + (1 - weight) * h[1])
    return torch.cat(results, dim=-1)


def bound_by_hand(model: GPVAEModel, target: Batch, visible: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """From its networks: the weighted negative log likelihood of the target, and the KL; per step."""
    likelihood = cast(StudentLikelihood, model.likelihood)
    nearest = NearestVisible.of(target.values * visible, visible, target.times)
    context = torch.stack(nearest, dim=-2)
    logs = target.times.diff().log().float() if isinstance(target.times, Tensor) else torch.zeros(4, 8)
    steps = torch.cat([torch.zeros(4, 1), logs], dim=-1).unsqueeze(-1)
    cells = torch.stack([target.values * visible, visible.float(), *nearest], dim=-1)
    attended = attended_by_hand(model, cells, visible)
    x = torch.cat([target.values * visible, visible.float(), torch.cat(nearest, dim=-1), steps, attended], dim=-1)
    mean, raw_std, raw_corr = model.encoder(x, target.times, torch.ones(4, 9, dtype=torch.bool)).split(3, dim=-1)
    chain = Chain(mean, 1e-3 + raw_std.exp().log1p(), (1 - 1e-4) * raw_corr[:, :-1].tanh())
    location, log_scale = decoded_by_hand(model, chain.mean + chain.std * noise, context)
    twin = StudentT(2.1 + likelihood.raw_freedom.exp().log1p(), location, 0.01 + (log_scale - 0.7).exp())
    weights = torch.where(visible, 0.3, 1.0) * target.observed
    nll = -(twin.log_prob(target.values) * weights).sum() / len(noise) / 36
    return nll, chain_kl(chain, model.prior.factor(target.times), target.lengths).sum() / 36


@pytest.mark.parametrize("grid", [True, False])
@torch.no_grad()
def test_elbo_equals_one_by_hand(grid: bool) -> None:
    target, model = random_batch(grid=grid), trained()
    decoder_of(model).line_logit.copy_(torch.tensor([-1.0, 2.0]))
    shown = torch.rand(4, 9, 2, generator=seeded(5)) < 0.6
    visible, noise = replace(target, observed=target.observed & shown), torch.randn(3, 4, 9, 3, generator=seeded())
    loss = loss_of(model, target, visible, noise=noise, beta=0.01, visible_weight=0.3)
    nll, kl = bound_by_hand(model, target, visible.observed, noise)
    torch.testing.assert_close(loss.parts["nll"], nll)
    torch.testing.assert_close(loss.parts["kl"], kl)
    torch.testing.assert_close(loss.total, nll + 0.01 * kl)


@pytest.mark.parametrize("encoder", [Attention(16, 1), Convolution(8, 4, (8,))])
def test_loss_is_that_of_its_series(encoder: EncoderSpec) -> None:
    """Padding is neither scored nor seen, and a batch may hold series of no length."""
    model, lengths = trained(replace(SMALL, encoder=encoder)), [9, 4, 0, 6]
    batch, noise = ragged(random_batch(), lengths), torch.randn(1, 4, 9, 3, generator=seeded())
    visible = replace(batch, observed=batch.observed & (torch.rand(4, 9, 2, generator=seeded(5)) < 0.6))
    together, total = loss_of(model, batch, visible, noise=noise, visible_weight=0.3), torch.zeros(())
    for i, n in enumerate(lengths):
        if n:
            target, seen = (
                Batch(each.values[i : i + 1, :n], each.observed[i : i + 1, :n], 1.0, batch.lengths[i : i + 1])
                for each in (batch, visible)
            )
            alone = loss_of(model, target, seen, noise=noise[:, i : i + 1, :n], visible_weight=0.3)
            total = total + n * alone.total
    torch.testing.assert_close(together.total, total / 19)
    together.total.backward()
    assert all(value.grad is None or value.grad.isfinite().all() for value in model.parameters())


@pytest.mark.parametrize("draws", [(1,), (1, 3)])
def test_hidden_values_are_scored_but_not_seen(draws: tuple[int, ...]) -> None:
    model, target = trained(), random_batch()
    visible = replace(target, observed=target.observed & (torch.rand(4, 9, 2, generator=seeded(5)) < 0.6))
    hidden = target.observed & ~visible.observed
    other = replace(target, values=torch.where(hidden, target.values + 3.0, target.values))
    losses = [
        loss_of(model, each, replace(each, observed=visible.observed), draws=draws).parts for each in (target, other)
    ]
    assert torch.equal(losses[0]["kl"], losses[1]["kl"])
    assert losses[0]["nll"] != losses[1]["nll"]
    seen = replace(target, values=torch.where(visible.observed, target.values + 3.0, target.values))
    moved = loss_of(model, seen, replace(seen, observed=visible.observed), draws=draws).parts
    assert not torch.equal(moved["kl"], losses[0]["kl"])


def test_every_parameter_gets_a_gradient() -> None:
    model = trained()
    loss_of(model, random_batch(grid=False)).total.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0] == []


def real_locations(model: GPVAEModel, z: Tensor, context: Tensor) -> Tensor:
    params = model.decode(z, context)
    parts = [part for part in model.likelihood.split(params) if isinstance(part, RealParams)]
    return torch.cat([part.location for part in parts], dim=-1)


@torch.no_grad()
def test_context_is_that_of_real_and_positive_columns() -> None:
    """The line of each column moves its own location."""
    model = trained(SMALL, 5, KINDS)
    batch = random_batch(features=5)
    batch = replace(batch, values=batch.values.abs().round())
    posterior, context = model.encode(batch)
    real = [1, 4, 3]
    nearest = NearestVisible.of(batch.values[..., real], batch.observed[..., real], 1.0)
    assert torch.equal(context, torch.stack(nearest, dim=-2))
    z = posterior.sample_marginals(torch.randn(2, 4, 9, 3, generator=seeded()))
    locations = []
    for logit in ([30.0, 0.0, -30.0], [-30.0, -30.0, -30.0]):
        decoder_of(model).line_logit.copy_(torch.tensor(logit))
        locations.append(real_locations(model, z, context))
    expected = torch.stack([context[..., 0, 0], 0.5 * context[..., 0, 1], torch.zeros(4, 9)], dim=-1)
    torch.testing.assert_close(locations[0] - locations[1], expected.expand(2, 4, 9, 3), rtol=0, atol=1e-5)
    rows = batch.observed.any(-1)
    torch.testing.assert_close(real_locations(model, z[:, rows], context[rows]), locations[1][:, rows])


@torch.no_grad()
def test_what_is_decoded_starts_as_the_line_between_nearest_values() -> None:
    """Whatever the latent series are."""
    model, batch = model_of(SMALL, 5, KINDS, LEVELS), random_batch(features=5)
    context, z = model.encode(batch).context, torch.randn(4, 9, 3, generator=seeded())
    torch.testing.assert_close(real_locations(model, z, context), context[..., 0, :] / (1 + math.exp(-1)))
    student = next(p for p in model.likelihood.split(model.decode(z, context)) if isinstance(p, RealParams))
    assert student.log_scale is not None
    assert not student.log_scale.any()
    dense = cast(nn.Linear, decoder_of(model).dense[-1])
    assert dense.weight[model.likelihood.outputs :].any()  # the embeddings of cells are not zero


def test_the_line_is_trusted_at_first_and_learns_with_the_networks() -> None:
    model = trained()
    assert (decoder_of(model).line_logit.sigmoid() > 0.7).all()
    assert not any(parameter is decoder_of(model).line_logit for parameter in model.fast_parameters())


@torch.no_grad()
def test_the_cell_network_sees_the_context_of_its_own_cell_alone() -> None:
    """Besides the embedding, from dense layers that here do not see any context."""
    model, batch = trained(), random_batch()
    posterior, context = model.encode(batch)
    cast(nn.Linear, decoder_of(model).dense[0]).weight[:, 3:] = 0
    other = context.clone()
    other[..., 0] += 1
    before, after = (cast(RealParams, model.decode(posterior.mean, each)) for each in (context, other))
    for one, another in ((before.location, after.location), (before.log_scale, after.log_scale)):
        assert one is not None
        assert another is not None
        assert torch.equal(one[..., 1], another[..., 1])
        assert (one != another)[..., 0].all()


def sizes_given_to(network: nn.Module) -> list[int]:
    """How many rows it is given, call by call from now on."""
    sizes: list[int] = []
    network.register_forward_hook(lambda _, inputs, __: sizes.append(len(inputs[0])))
    return sizes


@torch.no_grad()
def test_outside_of_training_cells_go_through_networks_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = trained(), random_batch()
    posterior, context = model.encode(batch)
    z = posterior.sample_marginals(torch.randn(3, 4, 9, 3, generator=seeded()))
    whole = real_locations(model, z, context)
    cells, steps = sizes_given_to(decoder_of(model).cell_mlp), sizes_given_to(attention_of(model))
    monkeypatch.setattr("gpvae.models.parts.CELLS_AT_ONCE", 5)
    torch.testing.assert_close(real_locations(model, z, context), whole)
    assert cells == [5] * 43 + [1]  # of 3 samples of 4 series of 9 steps of 2 cells
    torch.testing.assert_close(model.encode(batch).posterior.mean, posterior.mean)
    assert steps == [2] * 18  # of two cells each
    with torch.enable_grad():
        torch.testing.assert_close(real_locations(model, z, context), whole)
        torch.testing.assert_close(model.encode(batch).posterior.mean, posterior.mean)
    assert (cells[44:], steps[18:]) == ([216], [36])


@torch.no_grad()
def test_hidden_columns_leave_their_weight_to_the_visible_ones() -> None:
    """What attention returns lies between what the columns say."""
    attention = attention_of(trained(features=3))
    cells = torch.randn(5, 3, 7, generator=seeded())
    cells[:, 2] = cells[:, 1]
    attention.column[2] = attention.column[1]
    visible = torch.ones(5, 3, dtype=torch.bool)
    h = attention.dense((attention.embed(cells) + attention.column).relu()).relu()
    found = attention(cells, visible).unflatten(-1, (8, -1))
    assert (found <= h.amax(1, keepdim=True) + 1e-6).all()
    assert (found >= h.amin(1, keepdim=True) - 1e-6).all()
    visible[:, 0] = False
    closer = attention(cells, visible).unflatten(-1, (8, -1))
    others = h[:, 1:2]  # of the other two columns, which are alike
    assert ((closer - others).norm(dim=-1) < (found - others).norm(dim=-1)).all()


@torch.no_grad()
def test_attention_is_over_the_real_columns() -> None:
    model, batch = trained(SMALL, 5, KINDS), random_batch(features=5)
    batch = replace(batch, values=batch.values.abs().round())
    given: list[tuple[Tensor, Tensor]] = []
    attention_of(model).register_forward_hook(lambda _, inputs, __: given.append(inputs))
    model.encode(batch)
    (cells, visible), real = given[0], [1, 4, 3]
    nearest = NearestVisible.of(batch.values[..., real], batch.observed[..., real], 1.0)
    shown = batch.observed[..., real]
    assert torch.equal(visible.view(4, 9, 3), shown)
    expected = torch.stack([batch.values[..., real] * shown, shown.float(), *nearest], dim=-1)
    assert torch.equal(cells.view(4, 9, 3, 7), expected)


def test_a_table_without_real_columns_has_no_context() -> None:
    model = model_of(SMALL, 2, ["count", "binary"], [0, 2])
    batch = random_batch()
    batch = replace(batch, values=(batch.values > 0) * 1.0)
    assert model.encode(batch).context.numel() == 0
    assert loss_of(model, batch).total.isfinite()


@pytest.mark.parametrize("features", [1, 9, 40])
@pytest.mark.parametrize("inputs", [NearestValues(), NearestValues(column_width=128), NearestValues(cell_width=200)])
def test_widest_is_no_less_than_what_any_layer_computes(features: int, inputs: NearestValues) -> None:
    model, computed = trained(replace(SMALL, inputs=inputs), features), list[int]()
    per_cell = {*attention_of(model).modules(), *decoder_of(model).cell_mlp.modules()}
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            count = features if layer in per_cell else 1
            layer.register_forward_hook(lambda *all, n=count: computed.append(n * all[-1].shape[-1]))
    attention_of(model).register_forward_hook(lambda *all: computed.append(all[-1].shape[-1]))
    encoded = model.encode(random_batch(features=features))
    model.decode(encoded.posterior.mean, encoded.context)
    assert model.widest >= max(*computed, encoded.context[0, 0].numel())
