"""Downloads from a server whose connections break."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import Server

from gpvae import DataError
from gpvae.datasets import download

pytestmark = pytest.mark.usefixtures("cache")


class TestDownload:
    content = np.random.default_rng(0).bytes(20_000)

    def get(self, server: Server, path: Path, **options: Any) -> bytes:
        server.files["/file"] = self.content
        download.download(f"{server.url}/file", path, **options)
        return path.read_bytes()

    @pytest.mark.parametrize("verbose", [False, True])
    def test_a_file_arrives_complete(self, server: Server, tmp_path: Path, verbose: bool) -> None:
        assert self.get(server, tmp_path / "file", verbose=verbose) == self.content
        assert server.asked == [None]

    def test_broken_connections_are_resumed(self, server: Server, tmp_path: Path) -> None:
        server.breaks = [7_000, 0, 5_000]
        assert self.get(server, tmp_path / "file") == self.content
        assert server.asked == [None, "bytes=7000-", "bytes=7000-", "bytes=12000-"]

    def test_the_next_call_resumes(self, server: Server, tmp_path: Path) -> None:
        server.breaks = [3_000, *[0] * (download.TRIES - 1)]
        with pytest.raises(DataError, match=r"/file: .*; the next attempt resumes after the 3,000 bytes that arrived"):
            self.get(server, tmp_path / "file")
        server.asked.clear()
        assert self.get(server, tmp_path / "file") == self.content
        assert server.asked == ["bytes=3000-"]

    def test_a_server_without_ranges_starts_over(self, server: Server, tmp_path: Path) -> None:
        server.ranges, server.breaks = False, [7_000]
        assert self.get(server, tmp_path / "file") == self.content

    def test_a_complete_file_is_not_downloaded_again(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(self.content)
        assert self.get(server, tmp_path / "file") == self.content
        assert server.asked == ["bytes=20000-"]

    def test_a_partial_file_longer_than_the_download_is_discarded(self, server: Server, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(self.content + b"more")
        assert self.get(server, tmp_path / "file") == self.content

    def test_not_found(self, server: Server, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=rf"cannot download {server.url}/none: 404 Not Found"):
            download.download(f"{server.url}/none", tmp_path / "none")
        assert not (tmp_path / "none").exists()
        assert len(server.asked) == 1

    def test_no_server_answers(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"cannot download http://127.0.0.1:9/file"):
            download.download("http://127.0.0.1:9/file", tmp_path / "file")
