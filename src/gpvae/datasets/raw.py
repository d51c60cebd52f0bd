"""Files as published: found in a folder or downloaded, and verified.

Folders are searched in this order: the given one, or else the one that GPVAE_DATA names; then the cache (GPVAE_CACHE,
or the user's cache folder). Only the cache is written to. A SHA-256 of the content is checked; it does not depend on
the archive format nor on the line endings of text files.
"""

import fnmatch
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from gpvae.data.panel import DataError
from gpvae.datasets.download import download
from gpvae.datasets.optional import optional

Contents = dict[str, bytes]  # file contents by name
_DAMAGE = (OSError, EOFError, ValueError, NotImplementedError, zlib.error)
_DAMAGE += (lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


@dataclass(frozen=True)
class RawFiles:
    """The files of one download."""

    folder: str  # inside the data folder
    url: str
    files: Mapping[str, str]  # name, or pattern such as set-a/*.txt → SHA-256 (see `digest`)
    archives: str = ""  # name pattern of archives that may hold them; empty: they are not archived

    @property
    def published_name(self) -> str:
        return unquote(PurePosixPath(urlsplit(self.url).path).name)


@dataclass(frozen=True)
class DatasetInfo:
    """Description of a data set."""

    name: str
    description: str
    licence: str
    raw_files: tuple[RawFiles, ...]


def cache() -> Path:
    return Path(os.environ.get("GPVAE_CACHE") or optional("platformdirs").user_cache_dir("gpvae"))


def cache_folder(name: str) -> Path:
    """A folder of the cache, created if necessary."""
    folder = cache() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to the cache {folder}: {error.strerror}; set GPVAE_CACHE") from None
    return folder


def read(raw: RawFiles, folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> Contents:
    """The verified contents of the files; they are downloaded if no folder has them."""
    paths = find(raw, folder)
    if not paths:
        return _downloaded(raw, verbose=verbose)
    if "" in paths:
        contents = unpacked(paths[""], raw.files)
        _verify(raw, contents, dict.fromkeys(contents, paths[""]), paths[""])
        return contents
    contents = {name: _loose_content(path, name) for name, path in paths.items()}
    _verify(raw, contents, paths, next(iter(paths.values())).parent)
    return contents


def find(raw: RawFiles, folder: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """The paths of the files by name, or of one archive under the name ""; empty if no folder has them."""
    for root in _folders(folder):
        place = root / raw.folder
        loose = _loose(raw, place)
        if all(_matching(loose, pattern) for pattern in raw.files):
            return loose
        for path in sorted(place.glob(raw.archives)) if raw.archives else ():
            if path.is_file() and path.suffix != ".part":
                return {"": path}
    return {}


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 of the sorted output of `sha256sum` for these files; text files are hashed with \\n line endings."""
    lines = sorted(f"{_sha256(name, content)}  {name}\n" for name, content in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def unpacked(archive: Path, patterns: Iterable[str]) -> Contents:
    """The files of a tar or zip archive, or of zips inside it, whose names end in a match of a pattern."""
    try:
        opened = _zipped(archive.read_bytes()) if zipfile.is_zipfile(archive) else _tarred(archive)
        contents: Contents = {}
        for name, content in opened:
            key = _key(name, patterns)
            if key and contents.setdefault(key, content) != content:
                raise DataError(f"{archive} holds two different files named {key}")
        return contents
    except DataError:
        raise
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{archive} is damaged or not an archive: {reason}") from None


def _folders(folder: str | os.PathLike[str] | None) -> list[Path]:
    named = folder if folder is not None else os.environ.get("GPVAE_DATA")
    if named and not Path(named).is_dir():
        raise DataError(f"there is no folder {named}{'' if folder is not None else ', which GPVAE_DATA names'}")
    return [*([Path(named)] if named else []), cache()]


def _loose(raw: RawFiles, place: Path) -> dict[str, Path]:
    """Files that are not archived, possibly gzipped."""
    found: dict[str, Path] = {}
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place).as_posix()
        key = _key(name, raw.files) or _key(name.removesuffix(".gz"), raw.files)
        if key and path.is_file():
            found.setdefault(key, path)
    return found


def _loose_content(path: Path, name: str) -> bytes:
    try:
        content = path.read_bytes()
        return content if path.name == PurePosixPath(name).name else gzip.decompress(content)
    except _DAMAGE as error:
        raise DataError(f"{path} is damaged or cannot be read: {error}") from None


def _key(name: str, patterns: Iterable[str]) -> str:
    """The end of the name that matches a pattern: x/set-a/1.txt → set-a/1.txt; empty if none matches."""
    parts = PurePosixPath(name).parts
    for pattern in patterns:
        tail = "/".join(parts[-len(PurePosixPath(pattern).parts) :])
        if fnmatch.fnmatchcase(tail, pattern) and parts[-1][0] != ".":
            return tail
    return ""


def _matching(names: Iterable[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def _verify(raw: RawFiles, contents: Contents, paths: Mapping[str, Path], whole: Path) -> None:
    """Check the SHA-256 of every pattern; the error names the file or archive at fault."""
    for pattern, expected in raw.files.items():
        names = _matching(contents, pattern)
        if not names:
            raise DataError(f"{whole} has no file {pattern}")
        found = _expected_digest(pattern, {name: contents[name] for name in names})
        if found != expected:
            where = paths[names[0]] if names == [pattern] else whole
            of = "" if where.name == PurePosixPath(pattern).name else f" of {pattern} ({len(names):,} files)"
            raise DataError(f"{where} is damaged or not as published: the SHA-256{of} must be {expected}, got {found}")


def _expected_digest(pattern: str, files: Mapping[str, bytes]) -> str:
    """Of a single file named by the pattern, its own SHA-256; else see `digest`."""
    return _sha256(pattern, files[pattern]) if pattern in files else digest(files)


def _sha256(name: str, content: bytes) -> str:
    text = name.endswith((".txt", ".csv"))
    return hashlib.sha256(content.replace(b"\r\n", b"\n") if text else content).hexdigest()


def _downloaded(raw: RawFiles, *, verbose: bool) -> Contents:
    """Files get their final name in the cache only after verification; wrong ones are deleted."""
    path = cache_folder(raw.folder) / raw.published_name
    part = path.with_name(f"{path.name}.part")
    try:
        download(raw.url, part, verbose=verbose)
    except DataError as error:
        hint = f"Or put {raw.published_name} into the subfolder {raw.folder} of the folder that GPVAE_DATA names."
        raise DataError(f"{error}. {hint}") from None
    try:
        contents = unpacked(part, raw.files) if raw.archives else {path.name: part.read_bytes()}
        _verify(raw, contents, dict.fromkeys(contents, part), part)
    except DataError as error:
        part.unlink()
        raise DataError(f"{raw.url} sent a wrong file, which was deleted: {error}") from None
    part.replace(path)
    return contents


def _zipped(content: bytes) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as files:
        for name in files.namelist():
            if name.endswith(".zip"):
                yield from _zipped(files.read(name))
            elif not name.endswith("/"):
                yield name, files.read(name)


def _tarred(archive: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(archive) as files:
        for member in files:
            file = files.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file.read()
