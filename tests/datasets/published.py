"""Files packed and served as their publishers do, for tests."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gpvae.datasets import (
    raw,
)
from gpvae.datasets.raw import RawFiles


def checked(like: RawFiles, files: Mapping[str, bytes]) -> RawFiles:
    """The same source with the checksums of these files."""
    digests: dict[str, str] = {}
    for pattern in like.files:
        held = {name: files[name] for name in raw._matching(files, pattern)}
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
    """Serves files from memory, with ranges and connections that break."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.breaks: list[int] = []  # bytes after which the next responses break off
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
