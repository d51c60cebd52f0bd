"""Data sets: from made-up files of the makers' formats, from a server that breaks off, and from the real files."""

import gzip
import hashlib
import io
import os
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import rotate

from gpvae import GPVAE, DataError, Forward, Linear, Mean
from gpvae.datasets import (
    NAMES,
    air_quality,
    available,
    beijing,
    download,
    ett,
    healing_mnist,
    load,
    physionet,
    pm25,
    raw,
    sprites,
)
from gpvae.datasets.built import built
from gpvae.datasets.dataset import DataSet, even_panel, runs
from gpvae.datasets.raw import Raw

DATA = os.environ.get("GPVAE_DATA")
real = pytest.mark.skipif(not DATA, reason="GPVAE_DATA names no folder with the real data")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for each test, and no other folder than the test names."""
    monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GPVAE_DATA", raising=False)
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "CHUNK", 1000)
    return tmp_path / "cache"


def checked(like: Raw, files: Mapping[str, bytes]) -> Raw:
    """The same source, publishing these files."""
    digests: dict[str, str] = {}
    for pattern in like.files:
        held = {name: files[name] for name in raw._of_pattern(files, pattern)}
        digests[pattern] = raw._expected_digest(pattern, held)
    return replace(like, files=digests)


def lay(folder: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def tar(files: Mapping[str, bytes], mode: str) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


class Server(ThreadingHTTPServer):
    """Files in memory, ranges of them, and connections that break."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.breaks: list[int] = []  # bytes after which the next answers break off
        self.ranges = True
        self.asked: list[str | None] = []  # the Range of each request

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Server)
        asked = self.headers.get("Range")
        server.asked.append(asked)
        content = server.files.get(self.path)
        if content is None:
            return self.send_error(404)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        if start >= len(content) > 0 and start:
            return self._head(416, 0, f"bytes */{len(content)}")
        self._head(206 if start else 200, len(content) - start, f"bytes {start}-{len(content) - 1}/{len(content)}")
        stop = start + server.breaks.pop(0) if server.breaks else None
        self.wfile.write(content[start:stop])
        self.close_connection = True
        return None

    def _head(self, status: int, length: int, where: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.send_header("Content-Range", where)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


class TestDownload:
    content = np.random.default_rng(0).bytes(20_000)

    def get(self, server: Server, path: Path, **options: Any) -> bytes:
        server.files["/file"] = self.content
        download.download(f"{server.url}/file", path, **options)
        return path.read_bytes()

    @pytest.mark.parametrize("verbose", [False, True])
    def test_whole(self, server: Server, tmp_path: Path, verbose: bool) -> None:
        assert self.get(server, tmp_path / "file", verbose=verbose) == self.content
        assert server.asked == [None]

    def test_broken_connections_are_taken_up_again(self, server: Server, tmp_path: Path) -> None:
        server.breaks = [7_000, 0, 5_000]
        assert self.get(server, tmp_path / "file") == self.content
        assert server.asked == [None, "bytes=7000-", "bytes=7000-", "bytes=12000-"]

    def test_goes_on_in_the_next_call(self, server: Server, tmp_path: Path) -> None:
        server.breaks = [3_000, *[0] * (download.TRIES - 1)]
        with pytest.raises(DataError, match=r"/file: .*; the 3,000 bytes that came are kept"):
            self.get(server, tmp_path / "file")
        server.asked.clear()
        assert self.get(server, tmp_path / "file") == self.content
        assert server.asked == ["bytes=3000-"]

    def test_a_server_without_ranges_starts_over(self, server: Server, tmp_path: Path) -> None:
        server.ranges, server.breaks = False, [7_000]
        assert self.get(server, tmp_path / "file") == self.content

    def test_what_is_complete_is_left_alone(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(self.content)
        assert self.get(server, tmp_path / "file") == self.content
        assert server.asked == ["bytes=20000-"]

    def test_what_is_longer_than_the_file_is_none_of_it(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(self.content + b"more")
        assert self.get(server, tmp_path / "file") == self.content

    def test_not_found(self, server: Server, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=rf"cannot download {server.url}/none: 404 Not Found"):
            download.download(f"{server.url}/none", tmp_path / "none")
        assert not (tmp_path / "none").exists()
        assert len(server.asked) == 1

    def test_nobody_answers(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"cannot download http://127.0.0.1:9/file"):
            download.download("http://127.0.0.1:9/file", tmp_path / "file")


FILES = {"set/1.txt": b"one\ntwo\n", "set/2.txt": b"three\n", "list.csv": b"a,b\n1,2\n"}
PUBLISHED = checked(Raw("here", "http://127.0.0.1:9/x/all+files.zip", {"set/*.txt": "", "list.csv": ""}, "all*"), FILES)
PACKED = {
    "tar.xz": {"all.tar.xz": tar(FILES, "w:xz")},
    "tar.gz": {"all.tar.gz": tar({f"./deep/{name}": content for name, content in FILES.items()}, "w:gz")},
    "zip": {"all.zip": zipped({**FILES, "README": b"not wanted", "__MACOSX/set/._1.txt": b"nor this"})},
    "zip in a zip": {"all.zip": zipped({"inner.zip": zipped(FILES)})},
    "loose": {f"deep/{name}": content for name, content in FILES.items()},
    "gzipped": {f"{name}.gz": gzip.compress(content) for name, content in FILES.items()},
    "Windows": {name: content.replace(b"\n", b"\r\n") for name, content in FILES.items()},
}


class TestRaw:
    @pytest.mark.parametrize("how", PACKED)
    def test_however_it_is_packed(self, how: str, tmp_path: Path) -> None:
        lay(tmp_path / "here", PACKED[how])
        contents = raw.read(PUBLISHED, tmp_path)
        assert {name: content.replace(b"\r", b"") for name, content in contents.items()} == FILES

    @pytest.mark.parametrize("how", ["tar.xz", "tar.gz", "zip", "zip in a zip"])
    def test_an_archive_cut_short_is_refused_by_name(self, how: str, tmp_path: Path) -> None:
        ((name, content),) = PACKED[how].items()
        lay(tmp_path / "here", {name: content[: len(content) // 2]})
        with pytest.raises(DataError, match=rf"here/{name} is damaged"):
            raw.read(PUBLISHED, tmp_path)

    def test_a_damaged_file_is_refused_by_name(self, tmp_path: Path) -> None:
        lay(tmp_path / "here", {**FILES, "list.csv": b"a,b\n1,3\n"})
        with pytest.raises(DataError, match=r"here/list.csv is damaged, or not as published: the SHA-256 is"):
            raw.read(PUBLISHED, tmp_path)
        lay(tmp_path / "here", {**FILES, "set/3.txt": b"one too many"})
        with pytest.raises(DataError, match=r"is damaged, .* of set/\*.txt \(3 files\)"):
            raw.read(PUBLISHED, tmp_path)

    def test_a_damaged_gzip_is_refused_by_name(self, tmp_path: Path) -> None:
        lay(tmp_path / "here", {**PACKED["gzipped"], "list.csv.gz": PACKED["gzipped"]["list.csv.gz"][:-6]})
        with pytest.raises(DataError, match=r"here/list.csv.gz is damaged"):
            raw.read(PUBLISHED, tmp_path)

    def test_an_archive_without_the_files(self, tmp_path: Path) -> None:
        lay(tmp_path / "here", {"all.zip": zipped({"list.csv": FILES["list.csv"]})})
        with pytest.raises(DataError, match=r"all.zip holds no set/\*.txt"):
            raw.read(PUBLISHED, tmp_path)
        lay(tmp_path / "here", {"all.zip": zipped({**FILES, "other/list.csv": b"another"})})
        with pytest.raises(DataError, match=r"all.zip holds two different files list.csv"):
            raw.read(PUBLISHED, tmp_path)

    def test_where_it_looks(self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for folder in ("given", "named", "cache"):
            lay(tmp_path / folder / "here", FILES)
        monkeypatch.setenv("GPVAE_DATA", str(tmp_path / "named"))

        def found(folder: Path | None = None) -> str:
            return raw.find(PUBLISHED, folder)["list.csv"].relative_to(tmp_path).parts[0]

        assert (found(tmp_path / "given"), found(), found(tmp_path)) == ("given", "named", "cache")
        monkeypatch.delenv("GPVAE_DATA")
        assert found() == "cache"
        with pytest.raises(DataError, match="there is no folder nowhere"):
            raw.read(PUBLISHED, "nowhere")
        monkeypatch.setenv("GPVAE_DATA", "nowhere")
        with pytest.raises(DataError, match="there is no folder nowhere, which GPVAE_DATA names"):
            raw.read(PUBLISHED)

    def test_downloaded_when_it_is_nowhere(self, server: Server, cache: Path, tmp_path: Path) -> None:
        server.files["/x/all+files.zip"] = zipped(FILES)
        server.breaks = [100]
        source = replace(PUBLISHED, url=f"{server.url}/x/all+files.zip")
        assert raw.read(source, tmp_path) == FILES
        assert raw.read(source, tmp_path) == FILES
        assert len(server.asked) == 2  # once, in two pieces
        assert [path.name for path in (cache / "here").iterdir()] == ["all+files.zip"]

    def test_a_file_that_comes_as_it_is(self, server: Server, cache: Path) -> None:
        server.files["/list.csv"] = FILES["list.csv"]
        source = Raw("here", f"{server.url}/list.csv", {"list.csv": PUBLISHED.files["list.csv"]})
        assert raw.read(source) == raw.read(source) == {"list.csv": FILES["list.csv"]}
        assert len(server.asked) == 1

    @pytest.mark.parametrize("sent", [zipped({**FILES, "list.csv": b"other"}), b"<html>Please log in</html>"])
    def test_what_is_wrong_is_not_kept(self, sent: bytes, server: Server, cache: Path) -> None:
        server.files["/all.zip"] = sent
        with pytest.raises(DataError, match=rf"{server.url}/all.zip did not send what it should, .*all.zip.part"):
            raw.read(replace(PUBLISHED, url=f"{server.url}/all.zip"))
        assert list((cache / "here").iterdir()) == []

    def test_no_network_says_where_to_put_the_files(self) -> None:
        with pytest.raises(DataError, match=r"Or put all\+files.zip into here in a folder that GPVAE_DATA names"):
            raw.read(PUBLISHED)

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lay(tmp_path, {"file": b""})
        monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "file"))
        with pytest.raises(DataError, match=r"cannot write to the cache .*; set GPVAE_CACHE"):
            raw.read(PUBLISHED)


class TestBuilt:
    def test_made_once_and_mapped(self, cache: Path) -> None:
        first = built("x", lambda: np.arange(12).reshape(3, 4))
        again = built("x", lambda: pytest.fail("made again"))
        assert isinstance(again, np.memmap)
        assert np.array_equal(first, again)
        assert [path.name for path in (cache / "built").iterdir()] == ["x.npy"]

    @pytest.mark.parametrize("damage", [lambda b: b[:-40], lambda b: b[:140] + b"\7" + b[141:], lambda b: b""])
    def test_made_again_where_it_is_damaged(self, damage: Any, cache: Path) -> None:
        built("x", lambda: np.arange(12))
        path = cache / "built" / "x.npy"
        whole = path.read_bytes()
        path.write_bytes(damage(whole))
        assert np.array_equal(built("x", lambda: np.arange(12)), np.arange(12))
        assert path.read_bytes() == whole

    def test_nothing_is_left_of_what_fails(self, cache: Path) -> None:
        with pytest.raises(ValueError, match="Object arrays"):
            built("x", lambda: np.array([object()]))
        assert list((cache / "built").iterdir()) == []


def small(count: int = 6) -> DataSet:
    values = np.random.default_rng(0).normal(size=(count, 4, 2))
    truth = values.reshape(-1, 2)
    hidden = np.where(np.random.default_rng(1).random(values.shape) < 0.3, np.nan, values)
    panel = even_panel(hidden, ["a", "b"], [f"s{i}" for i in range(count)])
    return DataSet("small", panel, truth, np.arange(count), runs({"train": count - 2, "test": 2}))


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
        """Values, truth, labels and names of the same series, in the order asked for; a run of them without a copy."""
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
        """Also without labels; times and the clock are those of the whole."""
        values = np.random.default_rng(0).random((5, 3, 2), dtype=np.float32)
        panel = even_panel(values, ["a", "b"], range(5), np.array(["2020-01-01", "2020-01-02", "2020-01-05"], "M8[D]"))
        part = DataSet("whole", panel, panel.values).part(np.array([2, 3]))
        assert part.truth is part.panel.values
        assert part.labels is None
        assert part.panel.values.dtype == np.float32
        assert part.panel.clock == panel.clock
        assert np.array_equal(part.panel.times, panel.times[6:12])

    def test_a_split_that_is_not_there(self) -> None:
        with pytest.raises(DataError, match="small has no split 'validation': it has train, test"):
            small().only("validation")
        with pytest.raises(DataError, match="it is not divided"):
            replace(small(), splits={}).only("test")

    def test_sizes_must_fit(self) -> None:
        with pytest.raises(DataError, match=r"small: truth \(3, 2\) for values"):
            replace(small(), truth=np.zeros((3, 2)))
        with pytest.raises(DataError, match="small: 3 labels for 6 series"):
            replace(small(), labels=np.zeros(3, dtype=np.int64))

    def test_times_must_increase(self) -> None:
        with pytest.raises(DataError, match="times must increase; they do not at step 2"):
            even_panel(np.zeros((1, 3, 1)), ["a"], [0], np.array([0, 1, 1]))

    def test_float32_panels_are_filled(self) -> None:
        """As those of frames are: they stay half the size, and every method takes them."""
        values = np.random.default_rng(0).random((8, 6, 4), dtype=np.float32)
        values[np.random.default_rng(1).random(values.shape) < 0.3] = np.nan
        panel = even_panel(values, "abcd", range(8))
        assert panel.values.dtype == np.float32
        assert np.shares_memory(panel.values, values)
        for method in (Mean(), Forward(), Linear(), GPVAE(epochs=1, device="cpu")):
            filled = method.fit(panel).impute(panel).mean
            assert np.isfinite(filled).all()
            assert np.array_equal(filled[~np.isnan(values)], values[~np.isnan(values)])


def idx(array: NDArray[np.uint8]) -> bytes:
    return gzip.compress(struct.pack(f">{1 + array.ndim}i", 2048 + array.ndim, *array.shape) + array.tobytes(), mtime=0)


def strokes(count: int) -> NDArray[np.uint8]:
    """Smooth blots, as dark and bright as digits."""
    rng = np.random.default_rng(count)
    y, x = np.mgrid[:28, :28]
    centres = rng.uniform(8, 20, (count, 4, 2, 1, 1))
    distance = ((y - centres[:, :, 0]) ** 2 + (x - centres[:, :, 1]) ** 2) / 8
    return np.clip(400 * np.exp(-distance).sum(axis=1), 0, 255).astype(np.uint8)


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Five digits to learn from, two of them for validation, and four to test."""
    digits: dict[str, healing_mnist._Digits] = {}
    for name, count in (("train", 5), ("t10k", 4)):
        files = {
            f"{name}-images-idx3-ubyte.gz": idx(strokes(count)),
            f"{name}-labels-idx1-ubyte.gz": idx(np.arange(count, dtype=np.uint8)),
        }
        lay(tmp_path / "data" / "mnist", files)
        sources = [Raw("mnist", "", {each: hashlib.sha256(content).hexdigest()}) for each, content in files.items()]
        digits[name] = healing_mnist._Digits(*sources)
    parts = {
        "train": healing_mnist._Part(digits["train"], 0, 3, 0),
        "validation": healing_mnist._Part(digits["train"], 3, 5, 3),
        "test": healing_mnist._Part(digits["t10k"], 0, 4, 5),
    }
    monkeypatch.setattr(healing_mnist, "_PARTS", parts)
    return tmp_path / "data"


class TestHealingMNIST:
    def test_each_frame_rotates_the_one_before(self) -> None:
        images = strokes(7)
        angles = np.random.default_rng(3).normal(0, 22, (7, 10))
        frames = healing_mnist.turned(images, 3)
        for image, steps, sequence in zip(images, angles, frames, strict=True):
            turning = image
            for angle, frame in zip(steps, sequence, strict=True):
                turning = rotate(turning, angle, reshape=False)
                assert np.array_equal(frame, (turning > 127).ravel())
        assert 0.02 < frames.mean() < 0.5

    def test_bytes_depend_on_the_seed_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        images = strokes(9)
        once = healing_mnist.turned(images, 0, workers=1)
        monkeypatch.setattr(healing_mnist, "_CHUNK", 2)
        assert np.array_equal(healing_mnist.turned(images, 0, workers=3, verbose=True), once)
        assert np.array_equal(healing_mnist.turned(images[4:], 0, first=4), once[4:])
        assert not np.array_equal(healing_mnist.turned(images, 1), once)

    def test_loaded(self, mnist: Path) -> None:
        data = healing_mnist.load(mnist, seed=2)
        assert {name: series.tolist() for name, series in data.splits.items()} == {
            "train": [0, 1, 2],
            "validation": [3, 4],
            "test": [5, 6, 7, 8],
        }
        assert data.labels is not None
        assert data.labels.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3]
        assert (data.image_shape, data.panel.values.dtype) == ((1, 28, 28), np.float32)
        whole = np.concatenate([strokes(5), strokes(4)])
        assert np.array_equal(data.panel.values.reshape(9, 10, 784), healing_mnist.turned(whole, 2))
        assert data.truth is data.panel.values
        assert data.only("test").panel.ids == (5, 6, 7, 8)

    def test_a_part(self, mnist: Path) -> None:
        whole, part = healing_mnist.load(mnist), healing_mnist.load(mnist, splits=["test", "train"], count=2)
        assert part.panel.ids == (5, 6, 0, 1)
        assert np.array_equal(part.only("test").truth, whole.only("test").truth[:20])

    def test_built_once_with_the_same_bytes(
        self, mnist: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        healing_mnist.load(mnist, splits=["test"])
        (file,) = (cache / "built").iterdir()
        assert file.name == "healing_mnist-test-seed0-v1.npy"
        monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "other"))
        healing_mnist.load(mnist, splits=["test"])
        assert (tmp_path / "other" / "built" / file.name).read_bytes() == file.read_bytes()
        monkeypatch.setattr(healing_mnist, "turned", lambda *_, **__: pytest.fail("turned again"))
        healing_mnist.load(mnist, splits=["test"])

    def test_damaged_digits(self, mnist: Path, tmp_path: Path) -> None:
        path = mnist / "mnist" / "t10k-images-idx3-ubyte.gz"
        path.write_bytes(path.read_bytes()[:-5])
        with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz is damaged"):
            healing_mnist.load(mnist, splits=["test"])
        with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte.gz does not hold MNIST's images"):
            healing_mnist.read_images(path)
        with pytest.raises(DataError, match=r"none.gz cannot be read"):
            healing_mnist.read_images(tmp_path / "none.gz")


def sheets() -> dict[str, bytes]:
    """Sheets of a few blocks of colour, in every degree of transparency."""
    rng = np.random.default_rng(0)
    names = [f"{part}/{i}.png" for part in ("body", "bottomwear", "topwear", "hair") for i in range(6)]
    files: dict[str, bytes] = {}
    for name in [*names, "shoes/1.png"]:
        blocks = rng.integers(0, 256, (21 * 4, 13 * 4, 4), dtype=np.uint8)
        blocks[..., 3] = rng.choice([0, 0, 83, 253, 255], blocks.shape[:2]) if name != "shoes/1.png" else 255
        blocks[rng.random(blocks.shape[:2]) < 0.5] = 0
        packed = io.BytesIO()
        Image.fromarray(blocks.repeat(16, axis=0).repeat(16, axis=1)).save(packed, "PNG")
        files[name] = packed.getvalue()
    return files


def pillow(files: Mapping[str, bytes], sequence: int) -> NDArray[np.uint8]:
    """As the authors of SPRITES compose a sequence. (frame, channel, height, width)"""
    character, action = divmod(sequence, 9)
    body, bottom, top, hair = (character // unit % 6 for unit in (216, 36, 6, 1))
    names = [f"body/{body}", f"bottomwear/{bottom}", f"topwear/{top}", f"hair/{hair}", "shoes/1"]
    canvas = Image.new("RGBA", (13 * 64, 21 * 64), "black")
    for name in names:
        with Image.open(io.BytesIO(files[f"{name}.png"])) as image:
            canvas = Image.alpha_composite(canvas, image.convert("RGBA"))
    row = (8, 0, 12)[action // 3] + (2, 1, 3)[action % 3]
    columns = [(8, 1, 2, 3, 4, 5, 6, 7), (0, 1, 2, 3, 4, 5, 4, 6), (0, 1, 2, 3, 4, 5, 4, 0)][action // 3]
    sheet = np.array(canvas.convert("RGB"))
    return np.stack([sheet[row * 64 :, c * 64 :][:64, :64].transpose(2, 0, 1) for c in columns])


@pytest.fixture(scope="module")
def drawn() -> dict[str, bytes]:
    return sheets()


class TestSprites:
    def test_composed_as_pillow_does(self, drawn: dict[str, bytes]) -> None:
        numbers = [0, 5, 1000, 7777, 11_663, 4242]
        composed = sprites.compose(sprites.read_layers(drawn), numbers)
        assert composed.dtype == np.uint8
        for number, frames in zip(numbers, composed, strict=True):
            assert np.array_equal(frames.reshape(8, 3, 64, 64), pillow(drawn, number))

    def test_loaded(self, drawn: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sprites, "_RAW", checked(sprites._RAW, drawn))
        lay(tmp_path / "sprites", {"Sprites-master.zip": zipped({f"Sprites-master/{n}": c for n, c in drawn.items()})})
        data = sprites.load(tmp_path, count=2, verbose=True)
        assert (len(data.panel), data.panel.values.shape, data.image_shape) == (6, (48, 12288), (3, 64, 64))
        assert data.labels is not None
        assert data.labels.tolist() == [number % 9 for number in data.panel.ids]
        test = data.only("test")
        pixels = np.stack([pillow(drawn, number) for number in test.panel.ids]).reshape(16, -1)
        assert np.array_equal(np.rint(test.truth * 255), pixels)
        again = sprites.load(tmp_path, splits=["test"], count=2)
        assert again.panel.values.tobytes() == test.panel.values.tobytes()

    def test_splits(self) -> None:
        splits = sprites.split(0)
        assert {name: len(series) for name, series in splits.items()} == sprites.SIZES
        assert len(np.unique(np.concatenate(list(splits.values())))) == 10_000
        characters = {name: set((series // 9).tolist()) for name, series in splits.items()}
        assert not characters["test"] & (characters["train"] | characters["validation"])
        assert characters["train"] <= set(np.random.RandomState(423).permutation(1296)[:1000].tolist())
        assert not np.array_equal(sprites.split(1)["train"], splits["train"])

    def test_sheets_that_are_none(self, drawn: dict[str, bytes]) -> None:
        with pytest.raises(DataError, match=r"hair/1.png is not an image, or a damaged one"):
            sprites.read_layers({"hair/1.png": drawn["hair/1.png"][:500]})
        packed = io.BytesIO()
        Image.new("RGBA", (64, 32)).save(packed, "PNG")
        with pytest.raises(DataError, match=r"hair/1.png is 64 × 32 pixels, not 832 × 1344"):
            sprites.read_layers({"hair/1.png": packed.getvalue()})


PATIENTS = {
    "set-a/200.txt": b"Time,Parameter,Value\n00:00,RecordID,200\n00:00,HR,70\n",
    "set-a/100.txt": b"Time,Parameter,Value\n00:00,RecordID,100\n00:00,Weight,-1\n00:07,HR,73\n"
    b"00:59,HR,75\n01:00,HR,80\n03:00,,5\n03:10,MechVent,1\n47:59,pH,7.4\n48:00,HR,99\n",
}
OUTCOMES = {
    "Outcomes-a.txt": b"RecordID,SAPS-I,SOFA,Length_of_stay,Survival,In-hospital_death\n100,6,1,5,-1,0\n200,6,1,5,3,1\n"
}


class TestPhysioNet:
    def files(self, folder: Path, monkeypatch: pytest.MonkeyPatch, patients: Mapping[str, bytes] = PATIENTS) -> None:
        lay(folder / "physionet2012", {"set-a.tar.gz": tar(patients, "w:gz"), **OUTCOMES})
        a = physionet._SETS["train"]
        chosen = physionet._Set(checked(a.patients, patients), checked(a.outcomes, OUTCOMES))
        monkeypatch.setitem(physionet._SETS, "train", chosen)

    def test_hourly_grid(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files(tmp_path, monkeypatch)
        data = physionet.load(tmp_path, splits=["train"])
        assert (data.panel.ids, data.panel.columns) == ((100, 200), physionet.VARIABLES)
        assert data.labels is not None
        assert data.labels.tolist() == [0, 1]
        hour, variable = np.nonzero(data.panel.observed)
        found = zip(hour.tolist(), [physionet.VARIABLES[j] for j in variable], strict=True)
        assert [*found] == [(0, "HR"), (1, "HR"), (47, "pH"), (48, "HR")]
        assert data.panel.values[data.panel.observed].tolist() == [75, 80, 7.4, 70]
        assert physionet.load(tmp_path, splits=["train"], count=1).panel.ids == (100,)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "300.txt begins with '', not with 'Time,Parameter,Value'"),
            (b"Time,Parameter,Value\n00:07,HR\n", "300.txt has the line '00:07,HR', which is no time"),
            (b"Time,Parameter,Value\n00:07,HR,high\n", "300.txt has the line '00:07,HR,high'"),
            (b"Time,Parameter,Value\n", "Outcomes-a.txt says nothing of patient 300"),
        ],
    )
    def test_what_is_not_a_patient(
        self, content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.files(tmp_path, monkeypatch, {**PATIENTS, "set-a/300.txt": content})
        with pytest.raises(DataError, match=message):
            physionet.load(tmp_path, splits=["train"])

    def test_one_archive(self, tmp_path: Path) -> None:
        lay(tmp_path, {"a.tar": tar(PATIENTS, "w"), "b.tar": tar({"x.csv": b""}, "w"), "c.tar": b"nothing"})
        lay(tmp_path, {"d.tar": tar({"set-a/names.txt": b""}, "w")})
        assert physionet.read(tmp_path / "a.tar").ids == (100, 200)
        with pytest.raises(DataError, match=r"b.tar holds no patients"):
            physionet.read(tmp_path / "b.tar")
        with pytest.raises(DataError, match=r"c.tar is damaged"):
            physionet.read(tmp_path / "c.tar")
        with pytest.raises(DataError, match=r"d.tar: names.txt is not named by a patient's number"):
            physionet.read(tmp_path / "d.tar")


def station(name: str, rows: str) -> dict[str, bytes]:
    names = ["No", "year", "month", "day", "hour", *beijing.VARIABLES[:-1], "wd", "WSPM", "station"]
    header = ",".join(f'"{name}"' for name in names) + "\n"
    return {f"PRSA_Data_{name}_20130301-20170228.csv": (header + rows).encode()}


class TestTables:
    def test_beijing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        row = '2013,3,1,{},4,8,NA,7,300,77,-0.7,1023,-18.8,0,"NNW",4.4,"x"\n'
        files = {
            **station("B", f"1,{row.format(0)}2,{row.format(1)}"),
            **station("A", f"1,{row.format(0)}2,{row.format(1)}"),
        }
        monkeypatch.setattr(beijing, "_RAW", checked(replace(beijing._RAW, files=dict.fromkeys(files, "")), files))
        lay(tmp_path / "beijing_multisite", {"data.zip": zipped({"PRSA2017.zip": zipped(files)})})
        data = load("beijing", tmp_path)
        assert (data.panel.ids, data.panel.columns) == (("A", "B"), beijing.VARIABLES)
        assert data.panel.times.tolist() == [0, 3600] * 2
        expected = [4, 8, np.nan, 7, 300, 77, -0.7, 1023, -18.8, 0, 4.4]
        assert np.array_equal(data.panel.values, [expected] * 4, equal_nan=True)
        files |= station("B", f"1,{row.format(0)}2,{row.format(2)}")
        monkeypatch.setattr(beijing, "_RAW", checked(beijing._RAW, files))
        lay(tmp_path / "beijing_multisite", {"data.zip": zipped(files)})
        with pytest.raises(DataError, match=r"PRSA_Data_B_.* does not have the hours"):
            load("beijing", tmp_path)

    def test_pm25(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ground = b"datetime,001001,001002\r\n2014/05/01 01:00:00,138,\r\n2014/05/01 02:00:00,124,85\r\n"
        files = {"pm25_ground.txt": ground, "pm25_missing.txt": ground.replace(b",138,", b",,")}
        lay(tmp_path / "pm25_stmvl", files)
        monkeypatch.setattr(pm25, "_RAW", checked(pm25._RAW, files))
        data = load("pm25", tmp_path)
        assert data.panel.columns == ("001001", "001002")
        assert np.array_equal(data.truth, [[138, np.nan], [124, 85]], equal_nan=True)
        assert data.held_out.tolist() == [[True, False], [False, False]]
        files["pm25_missing.txt"] = ground.replace(b"124", b"125")
        lay(tmp_path / "pm25_stmvl", files)
        monkeypatch.setattr(pm25, "_RAW", checked(pm25._RAW, files))
        with pytest.raises(DataError, match=r"pm25_missing.txt is not pm25_ground.txt with some cells removed"):
            load("pm25", tmp_path)

    def test_air_quality(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        header = f"Date;Time;{';'.join(air_quality.VARIABLES)};;\n"
        rows = "10/03/2004;18.00.00;2,6;1360;150;11,9;1046;166;1056;113;1692;1268;13,6;48,9;0,7578;;\n"
        rows += "10/03/2004;19.00.00;-200;1292;112;9,4;955;103;1174;92;1559;972;13,3;47,7;0,7255;;\n"

        def lay_and_load(text: str) -> DataSet:
            files = {"AirQualityUCI.csv": text.encode()}
            lay(tmp_path / "air_quality_uci", files)
            monkeypatch.setattr(air_quality, "_RAW", checked(air_quality._RAW, files))
            return load("air_quality", tmp_path)

        data = lay_and_load(header + rows + 2 * (";" * 16 + "\n"))
        assert data.panel.values.shape == (2, 13)
        assert data.panel.values[0].tolist()[:4] == [2.6, 1360, 150, 11.9]
        assert data.panel.observed[1].tolist() == [False, *[True] * 12]
        assert data.panel.times.tolist() == [0, 3600]
        with pytest.raises(DataError, match=r"AirQualityUCI.csv has a row without a date before its end"):
            lay_and_load(header + ";" * 16 + "\n" + rows)
        with pytest.raises(DataError, match=r"AirQualityUCI.csv is not the table that it should be"):
            lay_and_load(header + rows.replace("1360", "many"))
        with pytest.raises(DataError, match=r"AirQualityUCI.csv: .*32"):
            lay_and_load(header + rows.replace("10/03", "32/03"))

    def test_ett(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        files = {"ETTm2.csv": b"date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT\n2016-07-01 00:00:00,1,2,3,4,5,6,7.5\n"}
        about = ett.ABOUT["m2"]
        monkeypatch.setitem(ett.ABOUT, "m2", replace(about, raws=(checked(about.raws[0], files),)))
        lay(tmp_path / "ett", files)
        assert load("ett_m2", tmp_path).panel.values.tolist() == [[1, 2, 3, 4, 5, 6, 7.5]]


class TestNames:
    def test_unknown_names_and_parts(self) -> None:
        with pytest.raises(DataError, match="there is no data set 'mnist'; there are healing_mnist, sprites"):
            load("mnist")
        with pytest.raises(DataError, match="beijing is not divided"):
            load("beijing", splits=["test"])
        for name in ("healing_mnist", "sprites", "physionet2012"):
            with pytest.raises(DataError, match=f"{name}: splits must be some of train, validation, test"):
                load(name, splits=["all"])
            with pytest.raises(DataError, match=f"{name}: count must be at least 1, not 0"):
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


@real
class TestRealFiles:
    """What is known of the files as published."""

    def test_all_are_there(self) -> None:
        assert all(each.present for each in available(DATA))

    @pytest.mark.parametrize(
        ("name", "shape", "missing"),
        [
            ("beijing", (12 * 35064, 11), 72_205),
            ("pm25", (8759, 36), 77_508),
            ("air_quality", (9357, 13), 16_701),
            ("ett_h1", (17420, 7), 0),
            ("ett_h2", (17420, 7), 0),
            ("ett_m1", (69680, 7), 0),
            ("ett_m2", (69680, 7), 0),
        ],
    )
    def test_tables(self, name: str, shape: tuple[int, int], missing: int) -> None:
        data = load(name, DATA)
        assert data.panel.values.shape == shape
        assert np.isnan(data.panel.values).sum() == missing
        assert np.ptp(data.panel.time_steps) == 0
        if name == "pm25":
            assert data.held_out.sum() == 35_737

    def test_physionet(self) -> None:
        data = load("physionet2012", DATA)
        assert data.panel.values.shape == (12_000 * 48, 35)
        assert 1 - data.panel.observed.mean() == pytest.approx(0.805, abs=5e-4)
        assert data.labels is not None
        assert [int(data.labels[series].sum()) for series in data.splits.values()] == [554, 568, 585]
        first = dict(zip(data.panel.columns, np.nanmean(data.only("train").panel.values, axis=0), strict=True))
        assert first["HR"] == pytest.approx(86.7232041323, rel=1e-11)
        assert first["DiasABP"] == pytest.approx(59.540976152469405, rel=1e-13)

    def test_rows_without_a_parameter(self) -> None:
        lines = b"".join(raw.read(physionet._SETS["test"].patients, DATA).values()).splitlines()
        assert sum(line.split(b",")[1] == b"" for line in lines) == 2403

    def test_sample_character(self) -> None:
        """Body 0, bottom 1, top 2, hair 3: rows are actions, columns frames."""
        with Image.open(Path(DATA or "") / "sprites" / "sample_character_0123.png") as image:
            sample = np.array(image).reshape(9, 64, 8, 64, 3).transpose(0, 2, 4, 1, 3)
        layers = sprites.read_layers(raw.read(sprites._RAW, DATA))
        character = 1 * 36 + 2 * 6 + 3
        assert np.array_equal(sprites.compose(layers, character * 9 + np.arange(9)), sample.reshape(9, 8, -1))

    def test_characters_are_all_distinct(self) -> None:
        layers = sprites.read_layers(raw.read(sprites._RAW, DATA))
        walking = sprites.compose(layers, range(0, 11_664, 9))
        assert len({hashlib.sha256(frames).digest() for frames in walking}) == 1296

    def test_healing_mnist(self) -> None:
        data_folder = Path(DATA or "") / "mnist"
        digits = healing_mnist.read_images(data_folder / "t10k-images-idx3-ubyte.gz")
        assert digits.shape == (10_000, 28, 28)
        frames = healing_mnist.turned(digits[:200], 0, first=60_000)
        assert (
            hashlib.sha256(frames.tobytes()).hexdigest()
            == "80e8480ef84f7d335fce087da40393c915e299a8d67a93b53c820df119f2e3ef"
        )

    def test_labels_of_digits(self) -> None:
        labels = [healing_mnist._labels(part, DATA, verbose=False) for part in healing_mnist._PARTS.values()]
        assert [len(each) for each in labels] == [50_000, 10_000, 10_000]
        assert labels[2][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
