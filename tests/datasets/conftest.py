"""Fixtures of the tests of data sets: a separate cache, and a server whose connections break."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from published import Server

from gpvae.datasets import download


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate cache for each test, and no data folder but the one that the test names."""
    monkeypatch.setenv("GPVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GPVAE_DATA", raising=False)
    monkeypatch.setattr(download, "PAUSE", 0.0)
    monkeypatch.setattr(download, "CHUNK", 1000)
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
