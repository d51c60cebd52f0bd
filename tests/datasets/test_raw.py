"""Published files in any archive format: found, downloaded and verified."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from published import Server, checked, lay, tar, zipped

from gpvae import DataError
from gpvae.datasets import raw
from gpvae.datasets.raw import RawFiles

pytestmark = pytest.mark.usefixtures("cache")

FILES = {"set/1.txt": b"one\ntwo\n", "set/2.txt": b"three\n", "list.csv": b"a,b\n1,2\n"}
PUBLISHED = checked(
    RawFiles("here", "http://127.0.0.1:9/x/all+files.zip", {"set/*.txt": "", "list.csv": ""}, "all*"), FILES
)
PACKED = {
    "tar.xz": {"all.tar.xz": tar(FILES, "w:xz")},
    "tar.gz": {"all.tar.gz": tar({f"./deep/{name}": content for name, content in FILES.items()}, "w:gz")},
    "zip": {"all.zip": zipped({**FILES, "README": b"not wanted", "__MACOSX/set/._1.txt": b"nor this"})},
    "zip in a zip": {"all.zip": zipped({"inner.zip": zipped(FILES)})},
    "loose": {f"deep/{name}": content for name, content in FILES.items()},
    "gzipped": {f"{name}.gz": gzip.compress(content) for name, content in FILES.items()},
    "Windows": {name: content.replace(b"\n", b"\r\n") for name, content in FILES.items()},
}


class TestRawFiles:
    @pytest.mark.parametrize("how", PACKED)
    def test_any_archive_format_is_read(self, how: str, tmp_path: Path) -> None:
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
        with pytest.raises(DataError, match=r"here/list.csv is damaged or not as published: the SHA-256 must be"):
            raw.read(PUBLISHED, tmp_path)
        lay(tmp_path / "here", {**FILES, "set/3.txt": b"one too many"})
        with pytest.raises(DataError, match=r"is damaged or .* of set/\*.txt \(3 files\)"):
            raw.read(PUBLISHED, tmp_path)

    def test_a_damaged_gzip_is_refused_by_name(self, tmp_path: Path) -> None:
        lay(tmp_path / "here", {**PACKED["gzipped"], "list.csv.gz": PACKED["gzipped"]["list.csv.gz"][:-6]})
        with pytest.raises(DataError, match=r"here/list.csv.gz is damaged"):
            raw.read(PUBLISHED, tmp_path)

    def test_an_archive_without_the_files(self, tmp_path: Path) -> None:
        lay(tmp_path / "here", {"all.zip": zipped({"list.csv": FILES["list.csv"]})})
        with pytest.raises(DataError, match=r"all.zip has no file set/\*.txt"):
            raw.read(PUBLISHED, tmp_path)
        lay(tmp_path / "here", {"all.zip": zipped({**FILES, "other/list.csv": b"another"})})
        with pytest.raises(DataError, match=r"all.zip holds two different files named list.csv"):
            raw.read(PUBLISHED, tmp_path)

    def test_folders_are_searched_in_order(self, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    def test_files_that_no_folder_has_are_downloaded(self, server: Server, cache: Path, tmp_path: Path) -> None:
        server.files["/x/all+files.zip"] = zipped(FILES)
        server.breaks = [100]
        source = replace(PUBLISHED, url=f"{server.url}/x/all+files.zip")
        assert raw.read(source, tmp_path) == FILES
        assert raw.read(source, tmp_path) == FILES
        assert len(server.asked) == 2  # one download in two pieces
        assert [path.name for path in (cache / "here").iterdir()] == ["all+files.zip"]

    def test_a_file_without_an_archive(self, server: Server, cache: Path) -> None:
        server.files["/list.csv"] = FILES["list.csv"]
        source = RawFiles("here", f"{server.url}/list.csv", {"list.csv": PUBLISHED.files["list.csv"]})
        assert raw.read(source) == raw.read(source) == {"list.csv": FILES["list.csv"]}
        assert len(server.asked) == 1

    @pytest.mark.parametrize("sent", [zipped({**FILES, "list.csv": b"other"}), b"<html>Please log in</html>"])
    def test_a_wrong_download_is_deleted(self, sent: bytes, server: Server, cache: Path) -> None:
        server.files["/all.zip"] = sent
        with pytest.raises(
            DataError, match=rf"{server.url}/all.zip sent a wrong file, which was deleted: .*all.zip.part"
        ):
            raw.read(replace(PUBLISHED, url=f"{server.url}/all.zip"))
        assert list((cache / "here").iterdir()) == []

    def test_without_a_network_the_message_says_where_to_put_the_files(self) -> None:
        with pytest.raises(
            DataError, match=r"Or put all\+files.zip into the subfolder here of the folder that GPVAE_DATA names"
        ):
            raw.read(PUBLISHED)

    def test_a_cache_that_cannot_be_written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lay(tmp_path, {"file": b""})
        monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "file"))
        with pytest.raises(DataError, match=r"cannot write to the cache .*; set GPVAE_CACHE"):
            raw.read(PUBLISHED)
