"""What the network sees of the linear model, and that it begins with it."""

import torch

from gpvae.models.correction import NEAR, CoreRows, Correction, lags_of, neighbours


def rows_of(count: int = 6, columns: int = 2, seed: int = 0) -> CoreRows:
    generator = torch.Generator().manual_seed(seed)
    values, mean = torch.randn(2, count, columns, generator=generator).double()
    visible = torch.rand(count, columns, generator=generator) < 0.5
    return CoreRows.of(values, visible, mean, torch.full_like(mean, 0.5), torch.zeros(count).double())


def test_neighbours_stay_within_their_series() -> None:
    found = neighbours(torch.tensor([3, 1, 2]), NEAR)
    assert found.tolist() == [
        [6, 6, 0, 1, 2],
        [6, 0, 1, 2, 6],
        [0, 1, 2, 6, 6],
        [6, 6, 3, 6, 6],
        [6, 6, 4, 5, 6],
        [6, 4, 5, 6, 6],
    ]
    assert neighbours(torch.tensor([9]), (-4, 0, 4))[3:6].tolist() == [[9, 3, 7], [0, 4, 8], [1, 5, 9]]


def test_it_begins_with_the_linear_model() -> None:
    shift, log_scale = Correction(2, NEAR, width=16)(torch.randn(7, len(NEAR), 7))
    assert not shift.any()
    assert not log_scale.any()


def test_hidden_values_are_not_seen() -> None:
    mean, std, step = torch.zeros(4, 2).double(), torch.ones(4, 2).double(), torch.zeros(4).double()
    visible = torch.tensor([[True, False], [False, False], [True, True], [False, True]])
    values = torch.arange(8.0).reshape(4, 2).double()
    inputs = CoreRows.of(values, visible, mean, std, step).inputs
    changed = CoreRows.of(torch.where(visible, values, 99.0), visible, mean, std, step).inputs
    assert torch.equal(inputs, changed)
    assert inputs[0].tolist() == [0, 0, 0, 1, 1, 0, 0]  # known, doubt, visible, step
    assert inputs[2].tolist() == [4, 5, 0, 0, 1, 1, 0]
    assert not inputs[4].any()


def test_rows_are_corrected_alike_in_chunks_and_whole() -> None:
    network, rows = Correction(2, NEAR, width=16).eval(), rows_of(50)
    torch.nn.init.normal_(network.head.weight, generator=torch.Generator().manual_seed(0))
    near = neighbours(torch.tensor([20, 30]), NEAR)
    for whole, parts in zip(
        network.of_rows(rows.inputs, near), network.of_rows(rows.inputs, near, chunk=7), strict=True
    ):
        torch.testing.assert_close(whole, parts)


def test_it_looks_a_season_back_and_ahead_but_not_at_overtones() -> None:
    assert lags_of([12.0, 24.0, 168.5, 8.0, 6.0], 5000) == (-24, *NEAR, 24)
    assert lags_of([24.02, 12.0, 23.0, 25.0], 5000) == (-24, *NEAR, 24)
    assert lags_of([365.0], 700) == NEAR  # too long for the series
    assert lags_of([3.0], 700) == NEAR  # seen anyway
    assert lags_of([365.0, 37.0, 61.0], 700) == (-37, *NEAR, 37)


def test_what_lies_beyond_the_range_of_training_changes_nothing_more() -> None:
    network, inputs = Correction(2, NEAR, width=16).eval(), torch.rand(9, len(NEAR), 7)
    torch.nn.init.normal_(network.head.weight, std=30.0, generator=torch.Generator().manual_seed(0))
    network.see(inputs[:5])
    network.see(inputs[5:])
    far = inputs.clone()
    far[:, 2, 0] = 1e6
    edge = inputs.clone()
    edge[:, 2, 0] = inputs[..., 0].max()
    assert torch.equal(network(far)[0], network(edge)[0])
    assert not torch.equal(network(far)[0], network(inputs)[0])
    shift, log_scale = network(inputs)
    assert shift.abs().max() <= Correction.SHIFT
    assert log_scale.abs().max() <= Correction.LOG_SCALE


def test_small_tables_get_small_networks() -> None:
    widths = [Correction.suited(3, NEAR, rows).width for rows in (50, 1500, 9000, 100_000)]
    assert widths == sorted(widths)
    assert widths[0] == 48
    assert widths[-1] == 256
