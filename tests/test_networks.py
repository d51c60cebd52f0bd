"""Networks against PyTorch's own layers."""

import pytest
import torch

from gpvae.networks import ImagePreprocessor


@pytest.mark.parametrize("shape", [(1, 5, 7), (3, 4, 4)])
def test_image_preprocessor_is_two_convolutions(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    network = ImagePreprocessor(shape, filters=6).double()
    for layer in (network.layers[0], network.layers[2]):
        torch.nn.init.normal_(layer.bias)  # pyright: ignore[reportArgumentType]
    x = torch.rand(2, 3, shape[0] * shape[1] * shape[2], dtype=torch.float64)
    plain = network.layers(x.reshape(6, *shape)).reshape(2, 3, -1)
    torch.testing.assert_close(network(x), plain)
    weights = list(network.parameters())
    for got, wanted in zip(
        torch.autograd.grad((network(x) ** 2).sum(), weights),
        torch.autograd.grad((plain**2).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted)
