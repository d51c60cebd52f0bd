"""What figure 3 claims, as numbers."""

import numpy as np
import pytest

from gpvae.paper.reproduction.smoothness import distance_rank, gap_distances, roughness

VISIBLE = np.array([0, 1, 0, 0, 1, 0], dtype=bool).reshape(1, 6, 1)


def test_roughness_by_hand() -> None:
    """Only steps 2 and 3 are missing between visible ones."""
    drawn = np.array([9.0, 0, 1, 4, 4, -7]).reshape(1, 6, 1)
    assert roughness(drawn, VISIBLE) == pytest.approx((abs(0 - 2 + 4) + abs(1 - 8 + 4)) / 2)
    line = np.arange(6.0).reshape(1, 6, 1)
    assert roughness(line, VISIBLE) == 0


def test_distances_are_to_the_nearest_visible_value_either_way() -> None:
    assert gap_distances(VISIBLE).ravel().tolist() == [1, 0, 1, 1, 0, 1]
    assert np.isinf(gap_distances(np.zeros((2, 3, 1), dtype=bool))).all()
    long = np.zeros((1, 9, 1), dtype=bool)
    long[0, 2] = True
    assert gap_distances(long).ravel().tolist() == [2, 1, 0, 1, 2, 3, 4, 5, 6]


def test_rank_correlation_with_the_distance() -> None:
    rng = np.random.default_rng(0)
    visible = rng.random((50, 20, 3)) < 0.2
    distance = np.where(np.isinf(gap_distances(visible)), 99, gap_distances(visible))
    assert distance_rank(distance**2 + 1, visible) == pytest.approx(1)
    assert distance_rank(-distance, visible) == pytest.approx(-1)
    assert abs(distance_rank(rng.random(visible.shape), visible)) < 0.1
