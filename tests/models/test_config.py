"""The model as a setting: what the data decides, JSON, and wrong settings."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from compose import PAPER, model_of
from torch import nn

from gpvae import paper
from gpvae.data.codec import from_json, to_json
from gpvae.gp.kernels import RBF, Cauchy, Matern, Periodic
from gpvae.models.config import ModelConfig, Objective
from gpvae.models.default import DEFAULT
from gpvae.models.encoders import Attention, Convolution, ConvolutionEncoder
from gpvae.models.inputs import Frames, StepDecoder
from gpvae.models.likelihoods import Bernoulli, Gaussian
from gpvae.models.parts import NearestValues
from gpvae.models.prior import Prior


def test_without_arguments_it_is_the_papers_model() -> None:
    config = ModelConfig().resolve(3, 1.0)
    assert isinstance(config.encoder, Convolution)
    assert (config.posterior, config.objective.beta, config.prior.learned) == ("chain", 1.0, False)
    assert isinstance(config.build(["real"] * 3).decoder, StepDecoder)


@pytest.mark.parametrize(("features", "latent_dim"), [(3, 16), (20, 40), (100, 64)])
def test_the_data_decides_sizes_and_beta(features: int, latent_dim: int) -> None:
    resolved = DEFAULT.resolve(features, 0.4)
    assert resolved.latent_dim == latent_dim
    assert resolved.prior.neighbours == 16
    assert resolved.objective.beta == pytest.approx(0.004)
    assert resolved.resolve(features, 0.9) == resolved  # what is decided stays
    given = replace(DEFAULT, latent_dim=5, objective=Objective(beta=0.2)).resolve(features, 0.4)
    assert (given.latent_dim, given.objective.beta) == (5, 0.2)


def test_neighbours_grow_with_the_reach_of_the_kernel() -> None:
    assert [Prior(Cauchy(scale)).order for scale in (1.0, 20.0, 400.0)] == [16, 28, 64]
    assert Prior(neighbours=0).order == 0


@pytest.mark.parametrize(
    "config",
    [
        DEFAULT,
        PAPER,
        replace(PAPER, prior=Prior(Cauchy((1.0, 2.0)) + 0.5 * Periodic(period=24.0)), likelihood=Gaussian(0.5)),
        replace(PAPER, inputs=Frames((1, 2, 3)), likelihood=Bernoulli(missing_by_value=True)),
        *(preset["model"] for preset in paper.PRESETS.values()),
    ],
)
def test_json_round_trip(config: ModelConfig) -> None:
    assert from_json(ModelConfig, json.loads(json.dumps(to_json(config)))) == config


def test_unknown_names_are_refused() -> None:
    plain = to_json(DEFAULT)
    with pytest.raises(ValueError, match="ModelConfig has no field 'colour'"):
        from_json(ModelConfig, plain | {"colour": "red"})
    with pytest.raises(ValueError, match=r"must be one of Cauchy, .* got the kind 'Bessel'"):
        from_json(ModelConfig, plain | {"prior": plain["prior"] | {"kernel": {"kind": "Bessel"}}})


@pytest.mark.parametrize(
    ("name", "features", "sizes"),
    [
        ("healing-mnist", 784, {"conv": (256, 784, 3), "dense": [256, 768], "decoder": [256, 256, 256, 784]}),
        ("sprites", 12288, {"conv": (32, 12288, 3), "dense": [256, 256, 768], "decoder": [256, 256, 256, 12288]}),
        ("physionet", 35, {"conv": (128, 35, 24), "dense": [128, 105], "decoder": [256, 256, 35]}),
    ],
)
def test_presets_have_the_sizes_of_the_paper(name: str, features: int, sizes: dict[str, object]) -> None:
    model = model_of(paper.PRESETS[name]["model"], features)
    assert isinstance(model.encoder, ConvolutionEncoder)
    assert isinstance(model.decoder, StepDecoder)
    assert model.encoder.convolution.weight.shape == sizes["conv"]
    assert [layer.out_features for layer in model.encoder.dense if isinstance(layer, nn.Linear)] == sizes["dense"]
    assert [layer.out_features for layer in model.decoder.mlp if isinstance(layer, nn.Linear)] == sizes["decoder"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Objective(beta=-1), "beta must not be negative, got -1"),
        (lambda: Objective(mc_samples=0), "mc_samples and importance_samples must be at least 1, got 0 and 1"),
        (lambda: ModelConfig(latent_dim=0), "latent_dim must be at least 1, got 0"),
        (lambda: ModelConfig(posterior="square"), "published-sigmoid, got 'square'"),  # pyright: ignore
        (lambda: replace(PAPER, initialisation="zeros"), "initialisation must be one of pytorch, glorot, got 'zeros'"),
        (lambda: replace(PAPER, first_std=0.0), "first_std must be above 0, got 0.0"),
        (lambda: ModelConfig(decoder_widths=()), "decoder_widths must be the sizes of one layer or more"),
        (lambda: ModelConfig(decoder_widths=(8, 0)), "decoder_widths must be the sizes of one layer or more"),
        (lambda: Convolution(widths=(0,)), "widths must be at least 1"),
        (lambda: ModelConfig().build(["real"]), "latent_dim is open"),
        (lambda: Attention(width=20), "width must be a multiple of 8, got 20"),
        (lambda: Attention(layers=0), "layers must be at least 1, got 0"),
        (lambda: Convolution(window=0), "window must be at least 1, got 0"),
        (lambda: NearestValues(cell_width=0), "cell_width must be at least 1, got 0"),
        (lambda: NearestValues(column_width=-1), "column_width must be at least 1, got -1"),
        (lambda: Prior(jitter=0.0), "jitter must be above 0, got 0.0"),
        (lambda: Prior(neighbours=-1), "neighbours must not be negative, got -1"),
        (lambda: Gaussian(0.001), "noise must be above 0.01, got 0.001"),
        (
            lambda: replace(PAPER, likelihood=Bernoulli(True), objective=Objective(missing_as_zeros=True)),
            "missing_by_value and missing_as_zeros contradict each other",
        ),
        (lambda: Cauchy(-1.0), "length_scale must be positive"),
        (lambda: Matern(1.0, nu=3.0), "nu must be 0.5, 1.5 or 2.5"),
        (lambda: Cauchy((1.0, 2.0)) + RBF((1.0, 2.0, 3.0)), "the same number of groups"),
        (lambda: model_of(replace(PAPER, prior=Prior(Cauchy((1.0, 2.0, 3.0, 4.0))))), "4 length scales need at least"),
        (lambda: model_of(replace(PAPER, inputs=Frames((1, 5, 5)))), "have 25 values, the data 2 columns"),
        (
            lambda: model_of(replace(PAPER, inputs=Frames((1, 1, 2))), kinds=["real", "count"]),
            "pixels of frames cannot have kinds",
        ),
    ],
)
def test_wrong_settings_are_named(wrong: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.parametrize("name", ["prior", "inputs", "encoder", "likelihood", "objective"])
def test_parts_have_their_types(name: str) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a .*, got 'rbf'"):
        ModelConfig(**{name: "rbf"})  # pyright: ignore[reportArgumentType]


def test_building_twice_with_one_seed_gives_the_same_weights() -> None:
    first, second = (model_of(DEFAULT).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
