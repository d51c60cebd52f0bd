"""What training hides: gaps that other series lend. (What it hides by chance is tested with the model.)"""

import pytest
import torch
from torch import Generator

from gpvae.batches import Batch
from gpvae.hiding import as_shown, lenders

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
    seen = as_shown(batch, shown, torch.tensor(lender)).observed
    for i in (0, 1, 3):
        for t in range(9):
            for j in range(2):
                lacked = t < LENGTHS[lender[i]] and not batch.observed[lender[i], t, j]
                assert seen[i, t, j] == (batch.observed[i, t, j] and not lacked)
    assert (batch.observed & ~seen).flatten(1).any(-1).tolist() == [True, True, False, True]


def test_where_the_lender_lacks_nothing_more_chance_hides_as_ever(batch: Batch, shown: torch.Tensor) -> None:
    """Itself; a piece of no length; a series with the same gaps; and where nothing is missing at all."""
    by_chance = batch.observed & shown
    assert torch.equal(as_shown(batch, shown, torch.arange(4)).observed, by_chance)
    assert torch.equal(as_shown(batch, shown, torch.full((4,), 2)).observed, by_chance)
    assert torch.equal(as_shown(batch, shown, None).observed, by_chance)
    alike = ragged((torch.arange(9) % 2 == 0).view(-1, 1).expand(4, 9, 2))
    full = ragged(torch.ones(4, 9, 2, dtype=torch.bool))
    for same in (alike, full):
        assert torch.equal(as_shown(same, shown, torch.tensor([3, 0, 1, 1])).observed, same.observed & shown)


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_anyone_lends_to_a_share_of_the_series(share: float) -> None:
    many = [lenders(5, share, Generator().manual_seed(seed)) for seed in range(4000)]
    pairs = torch.stack([torch.arange(5).repeat(4000), torch.cat(many)])
    counts = torch.zeros(5, 5).index_put_(tuple(pairs), torch.ones(1), accumulate=True) / 4000
    expected = torch.full((5, 5), share / 5) + (1 - share) * torch.eye(5)
    torch.testing.assert_close(counts, expected, rtol=0, atol=0.03)
