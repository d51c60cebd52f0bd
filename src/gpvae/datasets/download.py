"""Downloads that resume where they were interrupted."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from gpvae.data.panel import DataError
from gpvae.datasets.optional import optional

TRIES, PAUSE, TIMEOUT, CHUNK = 5, 2.0, 30.0, 1 << 18  # count, seconds, seconds, bytes


def download(url: str, path: Path, *, verbose: bool = False) -> None:
    """Download `url` to `path`. A file that exists there is taken for its beginning."""
    interruptions = optional("requests").RequestException, optional("urllib3.exceptions").HTTPError
    for attempt in range(TRIES):
        try:
            _resume(url, path, verbose=verbose)
            return
        except interruptions as error:
            if attempt + 1 == TRIES:
                raise DataError(f"cannot download {url}: {error}{_progress(path)}") from None
            time.sleep(PAUSE * attempt)
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}") from None


def _progress(path: Path) -> str:
    size = path.stat().st_size if path.exists() else 0
    return f"; the next attempt resumes after the {size:,} bytes that arrived" if size else ""


def _resume(url: str, path: Path, *, verbose: bool) -> None:
    requests = optional("requests")
    size = path.stat().st_size if path.exists() else 0
    # Ask for the bytes as stored: a .gz must not be decompressed on the way.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={size}-"} if size else {})
    with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response:
        if response.status_code == 416:  # nothing after `size`: the file is complete, or another one
            if _full_size(response) == size:
                return
            path.unlink()
            raise requests.ConnectionError(f"the partial file {path} does not belong to this download")
        if not response.ok:
            raise DataError(f"cannot download {url}: {response.status_code} {response.reason}")
        size = size if response.status_code == 206 else 0  # 200: the server sends the file from its beginning
        length = response.headers.get("Content-Length")
        chunks = response.raw.stream(CHUNK, decode_content=False)
        with path.open("ab" if size else "wb") as file:
            for chunk in _with_progress_bar(chunks, path.name, size, length) if verbose else chunks:
                file.write(chunk)


def _full_size(response: Any) -> int:
    """From `Content-Range: bytes */1234`."""
    size = response.headers.get("Content-Range", "").rpartition("/")[2]
    return int(size) if size.isdigit() else -1


def _with_progress_bar(chunks: Iterable[bytes], name: str, size: int, length: str | None) -> Iterable[bytes]:
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(name, total=size + int(length) if length else None, completed=size)
        for chunk in chunks:
            progress.advance(task, len(chunk))
            yield chunk
