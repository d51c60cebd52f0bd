"""The array cache, the type DataSet, and the list of data sets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import lay

from gpvae import GPVAE, DataError, Forward, Linear, Mean
from gpvae.datasets import NAMES, available, load
from gpvae.datasets.array_cache import cached_array
from gpvae.datasets.dataset import DataSet, consecutive_splits, even_panel

pytestmark = pytest.mark.usefixtures("cache")


class TestArrayCache:
    def test_arrays_are_computed_once_and_memory_mapped(self, cache: Path) -> None:
        first = cached_array("x", lambda: np.arange(12).reshape(3, 4))
        again = cached_array("x", lambda: pytest.fail("computed again"))
        assert isinstance(again, np.memmap)
        assert np.array_equal(first, again)
        assert [path.name for path in (cache / "built").iterdir()] == ["x.npy"]

    @pytest.mark.parametrize("damage", [lambda b: b[:-40], lambda b: b[:140] + b"\7" + b[141:], lambda b: b""])
    def test_damaged_arrays_are_computed_again(self, damage: Any, cache: Path) -> None:
        cached_array("x", lambda: np.arange(12))
        path = cache / "built" / "x.npy"
        whole = path.read_bytes()
        path.write_bytes(damage(whole))
        assert np.array_equal(cached_array("x", lambda: np.arange(12)), np.arange(12))
        assert path.read_bytes() == whole

    def test_a_failed_write_leaves_no_file(self, cache: Path) -> None:
        with pytest.raises(ValueError, match="Object arrays"):
            cached_array("x", lambda: np.array([object()]))
        assert list((cache / "built").iterdir()) == []


def small(count: int = 6) -> DataSet:
    values = np.random.default_rng(0).normal(size=(count, 4, 2))
    truth = values.reshape(-1, 2)
    hidden = np.where(np.random.default_rng(1).random(values.shape) < 0.3, np.nan, values)
    panel = even_panel(hidden, ["a", "b"], [f"s{i}" for i in range(count)])
    return DataSet("small", panel, truth, np.arange(count), consecutive_splits({"train": count - 2, "test": 2}))


class TestDataSet:
    def test_held_out(self) -> None:
        data = small()
        assert np.array_equal(data.held_out, np.isnan(data.panel.values))

    def test_only_one_split(self) -> None:
        data = small()
        part = data.only("test")
        assert (part.panel.ids, part.labels is not None and part.labels.tolist()) == (("s4", "s5"), [4, 5])
        assert np.array_equal(part.panel.values, data.panel.values[-8:], equal_nan=True)
        assert np.array_equal(part.truth, data.truth[-8:])
        assert np.shares_memory(part.panel.values, data.panel.values)
        assert [*part.splits] == ["test"]
        scattered = replace(data, splits={"test": np.array([5, 0])}).only("test")
        assert (scattered.panel.ids, scattered.truth.tolist()[:4]) == (("s5", "s0"), data.truth.tolist()[-4:])

    def test_part_of_the_series(self) -> None:
        """Values, truth, labels and ids in the requested order; consecutive series are not copied."""
        data = small()
        whole, truth = data.panel.values.reshape(6, 4, 2), data.truth.reshape(6, 4, 2)
        for numbers in ([1, 2, 3], [5, 0, 2], [4], [-1], [-2, -1]):
            part = data.part(np.array(numbers))
            assert part.panel.ids == tuple(data.panel.ids[i] for i in numbers)
            assert part.labels is not None
            assert part.labels.tolist() == [i % 6 for i in numbers]
            assert np.array_equal(part.panel.values, whole[numbers].reshape(-1, 2), equal_nan=True)
            assert np.array_equal(part.truth, truth[numbers].reshape(-1, 2))
            assert part.splits == {}
            assert np.array_equal(part.held_out, np.isnan(part.panel.values))
            assert np.shares_memory(part.panel.values, data.panel.values) is (numbers in ([1, 2, 3], [4]))

    def test_part_of_complete_data_has_one_array_for_values_and_truth(self) -> None:
        """Times and clock stay the same."""
        values = np.random.default_rng(0).random((5, 3, 2), dtype=np.float32)
        panel = even_panel(values, ["a", "b"], range(5), np.array(["2020-01-01", "2020-01-02", "2020-01-05"], "M8[D]"))
        part = DataSet("whole", panel, panel.values).part(np.array([2, 3]))
        assert part.truth is part.panel.values
        assert part.labels is None
        assert part.panel.values.dtype == np.float32
        assert part.panel.clock == panel.clock
        assert np.array_equal(part.panel.times, panel.times[6:12])

    def test_an_unknown_split_is_refused(self) -> None:
        with pytest.raises(DataError, match="small has no split 'validation'; it has train, test"):
            small().only("validation")
        with pytest.raises(DataError, match="has no split 'test'; it has none"):
            replace(small(), splits={}).only("test")

    def test_sizes_must_match(self) -> None:
        with pytest.raises(DataError, match=r"small: truth must have shape .*, got \(3, 2\)"):
            replace(small(), truth=np.zeros((3, 2)))
        with pytest.raises(DataError, match="small: there must be 6 labels, one for each series, got 3"):
            replace(small(), labels=np.zeros(3, dtype=np.int64))

    def test_times_must_increase(self) -> None:
        with pytest.raises(DataError, match="times must increase; they do not at step 2"):
            even_panel(np.zeros((1, 3, 1)), ["a"], [0], np.array([0, 1, 1]))

    def test_float32_panels_are_filled(self) -> None:
        values = np.random.default_rng(0).random((8, 6, 4), dtype=np.float32)
        values[np.random.default_rng(1).random(values.shape) < 0.3] = np.nan
        panel = even_panel(values, "abcd", range(8))
        assert panel.values.dtype == np.float32
        assert np.shares_memory(panel.values, values)
        for method in (Mean(), Forward(), Linear(), GPVAE(epochs=1, device="cpu")):
            filled = method.fit(panel).impute(panel).mean
            assert np.isfinite(filled).all()
            assert np.array_equal(filled[~np.isnan(values)], values[~np.isnan(values)])


class TestNames:
    def test_unknown_names_and_parts(self) -> None:
        with pytest.raises(DataError, match="there is no data set 'mnist'; the data sets are healing_mnist, sprites"):
            load("mnist")
        with pytest.raises(DataError, match="beijing has no splits"):
            load("beijing", splits=["test"])
        for name in ("healing_mnist", "sprites", "physionet2012"):
            with pytest.raises(DataError, match=f"{name}: splits must be among train, validation, test"):
                load(name, splits=["all"])
            with pytest.raises(DataError, match=f"{name}: count must be at least 1, got 0"):
                load(name, count=0)

    def test_available(self, tmp_path: Path, cache: Path) -> None:
        lay(tmp_path / "data" / "ett", {"ETTh1.csv.gz": b""})
        lay(tmp_path / "data" / "sprites", {"Sprites.zip": b""})
        found = {each.name: each for each in available(tmp_path / "data")}
        assert tuple(found) == NAMES
        assert [name for name in NAMES if found[name].present] == ["sprites", "ett_h1"]
        assert found["ett_h1"].where == tmp_path / "data" / "ett"
        assert found["ett_h2"].where == cache / "ett"
        assert found["physionet2012"].licence == "ODC-BY 1.0"
