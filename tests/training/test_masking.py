"""What training practises on: mixtures, and gaps that others lend. (What chance hides is tested with the model.)"""

import math

import pytest
import torch
from torch import Generator

from gpvae.data.batches import Batch
from gpvae.models.masking import Mixture, as_shown, lacking, lenders, mixed, mixtures

LENGTHS = torch.tensor([9, 4, 0, 6])


def ragged(observed: torch.Tensor) -> Batch:
    inside = (torch.arange(9) < LENGTHS.unsqueeze(-1)).unsqueeze(-1)
    return Batch(torch.zeros(4, 9, 2), observed & inside, 1.0, LENGTHS)


@pytest.fixture
def batch() -> Batch:
    return ragged(torch.rand(4, 9, 2, generator=Generator().manual_seed(2)) < 0.6)


@pytest.fixture
def shown() -> torch.Tensor:
    return torch.rand(4, 9, 2, generator=Generator().manual_seed(3)) < 0.5


def test_what_the_lender_lacks_is_hidden_instead(batch: Batch, shown: torch.Tensor) -> None:
    """Cell by cell; behind the lender's end nothing is lacking."""
    lender = [3, 0, 2, 1]
    seen = as_shown(batch, shown, lacking(batch, torch.tensor(lender))).observed
    for i in (0, 1, 3):
        for t in range(9):
            for j in range(2):
                lacked = t < LENGTHS[lender[i]] and not batch.observed[lender[i], t, j]
                assert seen[i, t, j] == (batch.observed[i, t, j] and not lacked)
    assert (batch.observed & ~seen).flatten(1).any(-1).tolist() == [True, True, False, True]


def test_where_the_lender_lacks_nothing_more_chance_hides_as_ever(batch: Batch, shown: torch.Tensor) -> None:
    """Itself; a piece of no length; a series with the same gaps; and where nothing is missing at all."""
    by_chance = batch.observed & shown
    assert torch.equal(as_shown(batch, shown, lacking(batch, torch.arange(4))).observed, by_chance)
    assert torch.equal(as_shown(batch, shown, lacking(batch, torch.full((4,), 2))).observed, by_chance)
    assert torch.equal(as_shown(batch, shown, None).observed, by_chance)
    alike = ragged((torch.arange(9) % 2 == 0).view(-1, 1).expand(4, 9, 2))
    full = ragged(torch.ones(4, 9, 2, dtype=torch.bool))
    for same in (alike, full):
        lacked = lacking(same, torch.tensor([3, 0, 1, 1]))
        assert torch.equal(as_shown(same, shown, lacked).observed, same.observed & shown)


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_anyone_lends_to_a_share_of_the_series(share: float) -> None:
    many = [lenders(5, share, Generator().manual_seed(seed)) for seed in range(4000)]
    pairs = torch.stack([torch.arange(5).repeat(4000), torch.cat(many)])
    counts = torch.zeros(5, 5).index_put_(tuple(pairs), torch.ones(1), accumulate=True) / 4000
    expected = torch.full((5, 5), share / 5) + (1 - share) * torch.eye(5)
    torch.testing.assert_close(counts, expected, rtol=0, atol=0.03)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_any_other_is_mixed_into_a_share_of_the_series_at_any_angle(share: float) -> None:
    many = [mixtures(5, torch.tensor(share), Generator().manual_seed(seed)) for seed in range(4000)]
    other, angle = (torch.stack(each) for each in zip(*many, strict=True))
    counts = torch.stack([(other == j).double().mean(0) for j in range(5)], dim=-1)
    torch.testing.assert_close(counts, 0.25 * (1 - torch.eye(5).double()), rtol=0, atol=0.03)
    assert float((angle > 0).double().mean()) == pytest.approx(share, abs=0.02)
    if share:
        quarters = torch.histc(angle[angle > 0], 4, 0, math.pi / 2) / (angle > 0).sum()
        torch.testing.assert_close(quarters, torch.full((4,), 0.25), rtol=0, atol=0.03)


def test_mixtures_cell_by_cell() -> None:
    """Where both are observed; behind the end of the other there is nothing."""
    lengths, generator = torch.tensor([9, 6, 8]), Generator().manual_seed(4)
    observed = torch.rand(3, 9, 2, generator=generator) < 0.9
    observed &= (torch.arange(9) < lengths.unsqueeze(-1)).unsqueeze(-1)
    values = torch.randn(3, 9, 2, generator=generator) * observed
    other, angle = [1, 2, 0], [0.3, 1.2, 0.0]
    found = mixed(Batch(values, observed, 1.0, lengths), Mixture(torch.tensor(other), torch.tensor(angle)))
    for i in range(3):
        for t in range(9):
            for j in range(2):
                seen = observed[i, t, j] and (not angle[i] or observed[other[i], t, j])
                assert found.observed[i, t, j] == seen
                x, y = float(values[i, t, j]), float(values[other[i], t, j])
                expected = math.cos(angle[i]) * x + math.sin(angle[i]) * y if seen else 0.0
                assert float(found.values[i, t, j]) == pytest.approx(expected, abs=1e-6)
    assert torch.equal(found.lengths, lengths)


def test_series_with_little_in_common_stay_as_they_are() -> None:
    """Half of the ten values that are observed must be left: four are not enough, five are."""
    observed = (torch.arange(10) < torch.tensor([10, 4, 10, 5]).unsqueeze(-1)).unsqueeze(-1)
    values = torch.randn(4, 10, 1, generator=Generator().manual_seed(5)) * observed
    batch = Batch(values, observed, 1.0, torch.full((4,), 10))
    found = mixed(batch, Mixture(torch.tensor([1, 0, 3, 2]), torch.tensor([0.7, 0.0, 0.7, 0.0])))
    assert torch.equal(found.values[:2], batch.values[:2])
    assert torch.equal(found.observed[:2], batch.observed[:2])
    assert torch.equal(found.observed[2], batch.observed[3])
    assert (found.values[2, :5] != batch.values[2, :5]).all()


def test_mixtures_of_gaussian_series_have_their_covariance() -> None:
    generator = Generator().manual_seed(6)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    values = (torch.randn(40_000, 6, generator=generator, dtype=torch.float64) @ root.T).view(-1, 3, 2)
    batch = Batch(values, torch.ones_like(values, dtype=torch.bool), 1.0, torch.full((40_000,), 3))
    made = mixed(batch, mixtures(40_000, torch.tensor(1.0), generator)).values.flatten(1)
    covariance = root @ root.T
    torch.testing.assert_close(made.T.cov(), covariance, rtol=0, atol=0.03 * float(covariance.diagonal().max()))
