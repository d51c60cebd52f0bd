"""The warp of the factor model: one to one, with the slope it says, and little moved by values far out."""

import torch

from gpvae.models.factor import Warp

X = torch.linspace(-9, 9, 181, dtype=torch.float64).unsqueeze(1).expand(-1, 3)


def warp() -> Warp:
    """Bent at both ends, straight, and bent above."""
    numbers = ([0.3, 1.0, 1.7], [[0.5, 2.0], [0.0, 0.0], [1e-3, 10.0]], [0.1, 0.0, -0.2], [0.8, 1.0, 1.3])
    edges, data = [[-1.5, 2.0], [-1.0, 1.0], [-2.0, 0.5]], [[-9.0, 9.0]] * 3
    return Warp(*(torch.tensor(x, dtype=torch.float64) for x in (*numbers, edges, data)))


def test_the_inverse_undoes_it() -> None:
    torch.testing.assert_close(warp().inverse(warp()(X)), X)


def test_its_slope_is_its_derivative() -> None:
    x = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(warp()(x).sum(), x)
    torch.testing.assert_close(warp().log_slope(X), slope.log())


def test_without_tails_it_goes_on_straight() -> None:
    torch.testing.assert_close(warp()(X)[:, 1], X[:, 1])


def test_tails_shorten_what_is_far_out() -> None:
    bent, straight = warp(), Warp(**{**vars(warp()), "tail": torch.zeros(3, 2, dtype=torch.float64)})
    far = torch.full((1, 3), 50.0, dtype=torch.float64)
    assert (bent(far) < straight(far))[0].tolist() == [True, False, True]


def test_nothing_comes_back_from_further_out_than_the_data_are_wide() -> None:
    back = warp().inverse(torch.full((1, 3), 1e4, dtype=torch.float64))
    torch.testing.assert_close(back, torch.full((1, 3), 27.0, dtype=torch.float64))
