"""What training hides: cells, runs, borrowed gaps, mixup."""

import math

import pytest
import torch
from scipy import stats
from torch import Generator

from gpvae.data.batches import Batch
from gpvae.training.masking import (
    Masking,
    Mixup,
    apply_visibility,
    borrowed_gaps,
    donor_index,
    draw_mixup,
    mix,
    random_visibility,
)

LENGTHS = torch.tensor([9, 4, 0, 6])


def ragged(observed: torch.Tensor) -> Batch:
    inside = (torch.arange(9) < LENGTHS.unsqueeze(-1)).unsqueeze(-1)
    return Batch(torch.zeros(4, 9, 2), observed & inside, 1.0, LENGTHS)


@pytest.fixture
def batch() -> Batch:
    return ragged(torch.rand(4, 9, 2, generator=Generator().manual_seed(2)) < 0.6)


@pytest.fixture
def visibility() -> torch.Tensor:
    return torch.rand(4, 9, 2, generator=Generator().manual_seed(3)) < 0.5


def test_the_donors_gaps_are_hidden(batch: Batch, visibility: torch.Tensor) -> None:
    """Cell by cell; behind the donor's end there are no gaps."""
    donor = [3, 0, 2, 1]
    seen = apply_visibility(batch, visibility, borrowed_gaps(batch, torch.tensor(donor))).observed
    for i in (0, 1, 3):
        for t in range(9):
            for j in range(2):
                lost = t < LENGTHS[donor[i]] and not batch.observed[donor[i], t, j]
                assert seen[i, t, j] == (batch.observed[i, t, j] and not lost)
    assert (batch.observed & ~seen).flatten(1).any(-1).tolist() == [True, True, False, True]


def test_where_borrowed_gaps_hide_nothing_random_ones_do(batch: Batch, visibility: torch.Tensor) -> None:
    """Its own gaps; those of a series of no length; the same gaps; and none at all."""
    at_random = batch.observed & visibility
    assert torch.equal(apply_visibility(batch, visibility, borrowed_gaps(batch, torch.arange(4))).observed, at_random)
    assert torch.equal(
        apply_visibility(batch, visibility, borrowed_gaps(batch, torch.full((4,), 2))).observed, at_random
    )
    assert torch.equal(apply_visibility(batch, visibility, None).observed, at_random)
    alike = ragged((torch.arange(9) % 2 == 0).view(-1, 1).expand(4, 9, 2))
    full = ragged(torch.ones(4, 9, 2, dtype=torch.bool))
    for same in (alike, full):
        gaps = borrowed_gaps(same, torch.tensor([3, 0, 1, 1]))
        assert torch.equal(apply_visibility(same, visibility, gaps).observed, same.observed & visibility)


@pytest.mark.parametrize("share", [0.25, 0.75, 1.0])
def test_any_series_is_the_donor_of_a_share_of_the_others(share: float) -> None:
    many = [donor_index(5, share, Generator().manual_seed(seed)) for seed in range(4000)]
    pairs = torch.stack([torch.arange(5).repeat(4000), torch.cat(many)])
    counts = torch.zeros(5, 5).index_put_(tuple(pairs), torch.ones(1), accumulate=True) / 4000
    expected = torch.full((5, 5), share / 5) + (1 - share) * torch.eye(5)
    torch.testing.assert_close(counts, expected, rtol=0, atol=0.03)


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_mixup_takes_any_other_series_at_any_angle_for_a_share(share: float) -> None:
    many = [draw_mixup(5, share, Generator().manual_seed(seed)) for seed in range(4000)]
    other, angle = (torch.stack(each) for each in zip(*many, strict=True))
    counts = torch.stack([(other == j).double().mean(0) for j in range(5)], dim=-1)
    torch.testing.assert_close(counts, 0.25 * (1 - torch.eye(5).double()), rtol=0, atol=0.03)
    assert float((angle > 0).double().mean()) == pytest.approx(share, abs=0.02)
    if share:
        quarters = torch.histc(angle[angle > 0], 4, 0, math.pi / 2) / (angle > 0).sum()
        torch.testing.assert_close(quarters, torch.full((4,), 0.25), rtol=0, atol=0.03)


def test_mixup_cell_by_cell() -> None:
    """Where both are observed; behind the end of the other there is nothing."""
    lengths, generator = torch.tensor([9, 6, 8]), Generator().manual_seed(4)
    observed = torch.rand(3, 9, 2, generator=generator) < 0.9
    observed &= (torch.arange(9) < lengths.unsqueeze(-1)).unsqueeze(-1)
    values = torch.randn(3, 9, 2, generator=generator) * observed
    other, angle = [1, 2, 0], [0.3, 1.2, 0.0]
    found = mix(Batch(values, observed, 1.0, lengths), Mixup(torch.tensor(other), torch.tensor(angle)))
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
    found = mix(batch, Mixup(torch.tensor([1, 0, 3, 2]), torch.tensor([0.7, 0.0, 0.7, 0.0])))
    assert torch.equal(found.values[:2], batch.values[:2])
    assert torch.equal(found.observed[:2], batch.observed[:2])
    assert torch.equal(found.observed[2], batch.observed[3])
    assert (found.values[2, :5] != batch.values[2, :5]).all()


def test_mixup_of_gaussian_series_keeps_their_covariance() -> None:
    generator = Generator().manual_seed(6)
    root = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    values = (torch.randn(40_000, 6, generator=generator, dtype=torch.float64) @ root.T).view(-1, 3, 2)
    batch = Batch(values, torch.ones_like(values, dtype=torch.bool), 1.0, torch.full((40_000,), 3))
    made = mix(batch, draw_mixup(40_000, 1.0, generator)).values.flatten(1)
    covariance = root @ root.T
    torch.testing.assert_close(made.T.cov(), covariance, rtol=0, atol=0.03 * float(covariance.diagonal().max()))


def hidden_cells(
    features: int = 2, shape: tuple[int, int] = (400, 40), cells: tuple[float, float] = (0.0, 1.0), runs: float = 0.2
) -> torch.Tensor:
    return ~random_visibility(shape, features, cells, runs, Generator().manual_seed(0))


@pytest.mark.parametrize(("lowest", "highest"), [(0.0, 1.0), (0.2, 0.6), (0.9, 0.9)])
def test_the_share_of_hidden_cells_is_drawn_for_each_series(lowest: float, highest: float) -> None:
    """The shares of long series against a uniform distribution between the bounds."""
    shares = hidden_cells(shape=(300, 2000), cells=(lowest, highest), runs=0.0).float().mean(1)
    assert (shares[:, 0] - shares[:, 1]).abs().max() < 0.08  # all columns share one
    if lowest == highest:
        assert shares.mean().item() == pytest.approx(lowest, abs=0.01)
        assert shares.std() < 0.02
    else:
        assert stats.kstest(shares[:, 0].numpy(), stats.uniform(lowest, highest - lowest).cdf).pvalue > 1e-3


def test_single_cells_are_independent() -> None:
    hidden = hidden_cells(shape=(200, 50), cells=(0.3, 0.3), runs=0.0)
    assert float(hidden.float().mean()) == pytest.approx(0.3, abs=0.015)
    assert abs(float(torch.corrcoef(hidden.float().flatten(0, 1).T)[0, 1])) < 0.05


def test_runs() -> None:
    """One in each of some columns, from anywhere to anywhere; in half of the series the same for all those."""
    hidden = hidden_cells(features=3, runs=1.0)
    begins = (hidden & ~hidden.roll(1, dims=1))[:, 1:].sum(1) + hidden[:, 0]
    assert begins.max() == 1
    columns = hidden.any(1)  # (series, column)
    several = columns.sum(-1) >= 2
    union = hidden.any(-1, keepdim=True)
    same = ((hidden == union) | ~columns.unsqueeze(1)).flatten(1).all(-1)
    assert float(same[several].float().mean()) == pytest.approx(0.5, abs=0.12)
    share_of_step = hidden.float().mean((0, 2))
    before = (torch.arange(40) / 40 + 0.25) / 1.5  # how likely an end lies before step t: one has to, the other not
    torch.testing.assert_close(share_of_step, before * (1 - before), rtol=0, atol=0.06)
    assert float(hidden.all(1).float().mean()) == pytest.approx(1 / 36, abs=0.02)  # one before, one behind


def test_runs_are_in_few_columns_of_one_series_and_in_many_of_another() -> None:
    """As many as a share of them that is uniform: with twelve, each number from 0 to 12 is equally likely."""
    hidden = hidden_cells(features=12, shape=(3000, 40), runs=1.0)
    chosen = hidden.any(1).sum(-1)  # runs outside of the series are not seen
    assert [float((chosen == count).float().mean()) for count in (1, 2, 11)] == pytest.approx([1 / 13] * 3, abs=0.04)


@pytest.mark.parametrize("share", [0.25, 0.75])
def test_share_of_the_series_with_runs(share: float) -> None:
    """Of the others single cells are hidden: all of them here, so that they can be told apart."""
    single = hidden_cells(cells=(1.0, 1.0), runs=share).flatten(1).all(-1)
    assert float(single.float().mean()) == pytest.approx(1 - share, abs=0.08)


@pytest.mark.parametrize(("share", "weight", "borrowed"), [(0.2, 0.1, 0.1), (0.8, 0.3, 0.4), (1.0, 0.3, 0.5)])
def test_sparse_tables_borrow_fewer_gaps_and_weigh_visible_values_less(
    share: float, weight: float, borrowed: float
) -> None:
    resolved = Masking().resolve(share)
    assert (resolved.visible_weight, resolved.borrowed) == pytest.approx((weight, borrowed))
    given = Masking(borrowed=0.7, visible_weight=0.6)
    assert given.resolve(share) == given


def test_masking_returns_the_target_and_what_is_visible_of_it(batch: Batch) -> None:
    masking, generator = Masking(mixup=1.0).resolve(1.0), Generator().manual_seed(1)
    values = torch.randn(4, 9, 2, generator=generator) * batch.observed
    batch = Batch(values, batch.observed, 1.0, batch.lengths)
    draw = masking.draw((4, 9), 2, generator)
    target, visible = masking.apply(batch, draw)
    assert draw.mixup is not None
    assert draw.donor_index is not None
    assert torch.equal(target.values, mix(batch, draw.mixup).values)
    expected = apply_visibility(target, draw.visibility, borrowed_gaps(batch, draw.donor_index))
    assert torch.equal(visible.observed, expected.observed)
    assert (visible.observed <= target.observed).all()
    assert (visible.observed != target.observed).any()


def test_gaps_are_borrowed_from_series_as_they_are_not_from_mixtures() -> None:
    """Complete series of two lengths: none has gaps, though a mixture ends with the shorter one."""
    length = torch.tensor([9, 5, 9, 5])
    inside = (torch.arange(9) < length.unsqueeze(-1)).unsqueeze(-1).expand(4, 9, 2)
    batch = Batch(torch.randn(4, 9, 2, generator=Generator().manual_seed(1)) * inside, inside, 1.0, length)
    mixup = Mixup(torch.tensor([1, 0, 3, 2]), torch.tensor([0.0, 0.0, 0.7, 0.0]))
    assert mix(batch, mixup).observed.any(-1).sum(-1).tolist() == [9, 5, 5, 5]
    masking = Masking().resolve(1.0)
    draw = masking.draw((4, 9), 2, Generator().manual_seed(2))._replace(mixup=mixup, donor_index=None)
    lent = draw._replace(donor_index=torch.tensor([2, 0, 0, 2]))
    assert torch.equal(masking.apply(batch, lent)[1].observed, masking.apply(batch, draw)[1].observed)


def test_nothing_is_drawn_for_what_is_off() -> None:
    draw = Masking(borrowed=0.0).draw((4, 9), 2, Generator().manual_seed(0))
    assert draw.donor_index is None
    assert draw.mixup is None
    assert Masking(borrowed=0.0, mixup=1.0).draw((1, 9), 2, Generator().manual_seed(0)).mixup is None


@pytest.mark.parametrize(
    "settings", [{"cells": (0.5, 0.2)}, {"cells": (0.0, 1.5)}, {"runs": -0.1}, {"borrowed": 1.1}, {"mixup": 1.1}]
)
def test_settings_are_shares(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be shares between 0 and 1"):
        Masking(**settings)  # pyright: ignore[reportArgumentType]


def test_masking_that_hides_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="hides nothing; use masking=None"):
        Masking(cells=(0.0, 0.0), runs=0.0, borrowed=0.0)
    assert Masking(cells=(0.0, 0.0), runs=0.0).borrowed is None  # the data decides
