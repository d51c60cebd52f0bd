"""The packed values of series in a page."""

import gzip
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from report_examples import (
    fill_by_hand,
    log_normal_imputation,
    panel_with_gaps,
    summary,
)

from gpvae import (
    Panel,
)
from gpvae.imputers.draws import ConformalIntervals
from gpvae.report.packing import FINE, LEVELS, LOGARITHM, NOT_NEGATIVE, Packer


class Unpacked:
    """A pack, unpacked as unpack.js does it."""

    def __init__(self, packed: bytes, panel: Panel, packer: Packer, truth: bool):
        self.bytes, self.at = gzip.decompress(packed), 0
        cells = panel.values.size
        self.times = self.take(len(panel.values), "<f8")
        self.state = self.take(cells, "u1")
        count = int((self.state & 3 == 2).sum())
        self.observed = self.take(int((self.state & 3 == 1).sum()), "<f4")
        self.truth = self.take(int((self.state & 4 > 0).sum()), "<f4") if truth else None
        groups = len(panel) * len(panel.columns)
        self.scale = self.take(len(panel.columns), "u1")
        self.lowest, self.span, self.widest = (self.take(groups, "<f4") for _ in range(3))
        self.mean = self.take(count, "<u2")
        if packer.bands:
            self.width, self.place, self.lower, self.upper = (self.take(count, "u1") for _ in range(4))
            self.samples = [self.take(count, "u1") for _ in range(packer.samples)]
        assert self.at == len(self.bytes)

    def take(self, count: int, kind: str) -> NDArray[Any]:
        size = np.dtype(kind).itemsize
        planes = np.frombuffer(self.bytes, np.uint8, count * size, self.at).reshape(size, count)
        self.at += count * size
        return np.ascontiguousarray(planes.T).view(kind).ravel()


def in_pack_order(panel: Panel, rows: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([rows[place].T.ravel() for _, place in panel.series()])


def test_unpacked_values_equal_the_packed_ones() -> None:
    panel, truth = panel_with_gaps(series=4, steps=30)
    imputation, packer = fill_by_hand(panel, truth), Packer(bands=True, samples=3, certainty=False)
    held_out = ~panel.observed & (np.arange(panel.values.size).reshape(panel.values.shape) % 2 == 0)
    result = Unpacked(packer.pack(imputation, truth, held_out), panel, packer, truth=True)
    np.testing.assert_array_equal(result.times, panel.times)
    np.testing.assert_array_equal(result.state & 3, in_pack_order(panel, np.where(panel.observed, 1, 2)))
    seen, held = (in_pack_order(panel, each) for each in (panel.observed, held_out))
    np.testing.assert_array_equal(result.observed, in_pack_order(panel, panel.values)[seen].astype(np.float32))
    np.testing.assert_array_equal(result.truth, in_pack_order(panel, truth)[held].astype(np.float32))
    lengths = [int(length) for length in panel.lengths for _ in panel.columns]
    group = np.repeat(np.arange(len(lengths)), lengths)[~seen]
    mean = result.lowest[group] + result.mean / LEVELS * result.span[group]
    exact = in_pack_order(panel, imputation.mean_rows)[~seen]
    assert (np.abs(mean - exact) <= result.span[group] / LEVELS).all()
    width = result.widest[group] * np.exp(result.width / -32.0)
    low = mean - (result.place / 32 - 2) * width
    bands = [in_pack_order(panel, rows)[~seen] for rows in imputation.quantile_rows(0.05, 0.25, 0.75, 0.95)]
    ends = (low, low + result.lower / 32 * width, low + result.upper / 32 * width, low + width)
    for near, band in zip(ends, bands, strict=True):
        assert (np.abs(near - band) <= 0.05 * (bands[3] - bands[0])).all()
    assert (result.scale == 0).all()
    for k, sample in enumerate(result.samples):
        near = low + (sample / 16 - 7.5) * width
        stacked = np.full(panel.values.size, np.nan)
        assert imputation.draws is not None
        stacked[imputation.cells] = imputation.draws.values()[:, k]
        exact = in_pack_order(panel, stacked.reshape(panel.values.shape))[~seen]
        assert (np.abs(near - exact) <= 0.1 * (bands[3] - bands[0])).all()


def test_positive_values_are_packed_on_a_log_scale() -> None:
    """Values within 0.5 %, and ends of bands within 4 % of the band, on the log scale."""
    imputation, packer = log_normal_imputation(), Packer(bands=True, samples=3, certainty=False)
    panel = imputation.panel
    result = Unpacked(packer.pack(imputation, None, None), panel, packer, truth=False)
    assert result.scale.tolist() == [0, LOGARITHM | NOT_NEGATIVE]
    lengths = [int(length) for length in panel.lengths for _ in panel.columns]
    gaps = ~in_pack_order(panel, panel.observed)
    group = np.repeat(np.arange(len(lengths)), lengths)[gaps]
    positive = group % 2 == 1
    mean = result.lowest[group] + result.mean / LEVELS * result.span[group]
    width = result.widest[group] * np.exp(result.width / -32.0)
    low = mean - (result.place / 32 - 2) * width
    exact = in_pack_order(panel, imputation.mean_rows)[gaps]
    assert exact[positive].max() / exact[positive].min() > 1e4
    np.testing.assert_allclose(np.exp(mean[positive]), exact[positive], rtol=0.005)
    np.testing.assert_allclose(mean[~positive], exact[~positive], atol=0.01)
    bands = np.array([in_pack_order(panel, rows)[gaps] for rows in imputation.quantile_rows(0.05, 0.25, 0.75, 0.95)])
    bands[:, positive] = np.log(bands[:, positive])
    ends = (low, low + result.lower / 32 * width, low + result.upper / 32 * width, low + width)
    for near, band in zip(ends, bands, strict=True):
        assert (np.abs(near - band) <= 0.04 * (bands[3] - bands[0])).all()


@pytest.mark.filterwarnings("ignore:column .* has no value in:UserWarning")
def test_positive_column_with_intervals_down_to_zero_is_not_logged() -> None:
    imputation, packer = log_normal_imputation(), Packer(bands=True, samples=0, certainty=False)
    count = len(imputation.cells)
    floor = np.where(imputation.cells % 2 == 1, 0.0, -np.inf)
    errors = (np.linspace(0, 3, 50),) * 2
    margins = ConformalIntervals(imputation.values, np.ones(count), floor, imputation.cells % 2, errors, errors[0])
    packed = packer.pack(replace(imputation, draws=None, conformal=margins), None, None)
    assert Unpacked(packed, imputation.panel, packer, truth=False).scale.tolist() == [0, FINE | NOT_NEGATIVE]


def test_series_are_split_into_packs_without_losing_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpvae.report.packing.CELLS_PER_PACK", 250)
    panel, truth = panel_with_gaps(series=5)
    packs = summary(fill_by_hand(panel, truth))["series"]["packs"]
    assert [(pack["first"], pack["last"]) for pack in packs] == [(0, 2), (2, 4), (4, 5)]


def test_too_many_series_are_cut_to_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpvae.report.series.MAX_CELLS", 250)
    panel, truth = panel_with_gaps(series=5)
    result = summary(fill_by_hand(panel, truth))["series"]
    assert (result["kept"], result["packs"][-1]["last"], len(result["ids"])) == (2, 2, 5)


def test_series_that_is_too_long_is_cut_to_its_first_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpvae.report.series.MAX_CELLS", 75)
    panel, truth = panel_with_gaps(series=2)
    imputation = fill_by_hand(panel, truth)
    result = summary(imputation, truth=truth, held_out=~panel.observed)["series"]
    assert (result["kept"], result["max_steps"], result["lengths"]) == (1, 25, [40, 40])
    (pack,) = result["packs"]
    packer = Packer(bands=True, samples=3, certainty=False)
    begun = Unpacked(b64decode(pack["data"]), panel.pick(np.arange(1), 25), packer, truth=True)
    np.testing.assert_array_equal(begun.times, panel.times[:25])
    np.testing.assert_array_equal(begun.state & 3, np.where(panel.observed[:25], 1, 2).T.ravel())
    gaps = ~panel.observed[:25].T.ravel()
    np.testing.assert_array_equal(begun.truth, truth[:25].T.ravel()[gaps].astype(np.float32))


def test_packs_are_small() -> None:
    """A tenth of 1,000 series × 48 × 35 with 80 % missing, for which a page may take 15 MB."""
    panel, truth = panel_with_gaps(series=100, steps=48, columns=[f"c{j}" for j in range(35)], missing=0.8)
    packs = summary(fill_by_hand(panel, truth))["series"]["packs"]
    assert sum(len(pack["data"]) for pack in packs) < 1.2e6
