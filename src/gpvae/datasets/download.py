"""Files from the network: broken off, they go on where they stopped."""

import time
from collections.abc import Iterable
from pathlib import Path

import requests
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from urllib3.exceptions import HTTPError

from gpvae.data.panel import DataError

TRIES, PAUSE, TIMEOUT, CHUNK = 5, 2.0, 30.0, 1 << 18  # seconds, seconds, bytes


def download(url: str, path: Path, *, verbose: bool = False) -> None:
    """What `url` holds, into `path`; what is there already is taken for its beginning."""
    for attempt in range(TRIES):
        try:
            _go_on(url, path, verbose=verbose)
            return
        except (requests.RequestException, HTTPError) as error:
            if attempt + 1 == TRIES:
                raise DataError(f"cannot download {url}: {error}{_kept(path)}") from None
            time.sleep(PAUSE * attempt)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}") from None


def _kept(path: Path) -> str:
    arrived = path.stat().st_size if path.exists() else 0
    return f"; the {arrived:,} bytes that came are kept, and the next try goes on from there" if arrived else ""


def _go_on(url: str, path: Path, *, verbose: bool) -> None:
    have = path.stat().st_size if path.exists() else 0
    # Bytes as they are stored: a .gz must not be unpacked on the way.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as answer:
        if answer.status_code == 416:  # nothing behind what is here: it is all, or of another file
            if _size(answer) == have:
                return
            path.unlink()
            raise requests.ConnectionError(f"what was kept in {path} is not its beginning")
        if not answer.ok:
            raise DataError(f"cannot download {url}: {answer.status_code} {answer.reason}")
        have = have if answer.status_code == 206 else 0  # 200: the server starts from the beginning
        length = answer.headers.get("Content-Length")
        chunks = answer.raw.stream(CHUNK, decode_content=False)
        with path.open("ab" if have else "wb") as file:
            for chunk in _shown(chunks, path.name, have, length) if verbose else chunks:
                file.write(chunk)


def _size(answer: requests.Response) -> int:
    """Of the whole file, from `Content-Range: bytes */1234`."""
    size = answer.headers.get("Content-Range", "").rpartition("/")[2]
    return int(size) if size.isdigit() else -1


def _shown(chunks: Iterable[bytes], name: str, have: int, length: str | None) -> Iterable[bytes]:
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(name, total=have + int(length) if length else None, completed=have)
        for chunk in chunks:
            progress.advance(task, len(chunk))
            yield chunk
