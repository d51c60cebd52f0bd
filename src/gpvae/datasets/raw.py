"""Files as their makers publish them: found in a folder, else downloaded; packed in any way, but the right ones.

Folders are searched in this order: the one given, or else the one that GPVAE_DATA names; the cache (GPVAE_CACHE, or the
system's place for caches). Only the cache is ever written to. What counts is the content of the files: a SHA-256 that
does not know how they are packed, nor how a text file ends its lines.
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

import pooch

from gpvae.data.panel import DataError
from gpvae.datasets.download import download

Contents = dict[str, bytes]  # of files, by their names
_DAMAGE = (OSError, EOFError, ValueError, NotImplementedError, zlib.error)
_DAMAGE += (lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Raw:
    """Files that come in one download."""

    place: str  # their folder in the data folder
    url: str
    files: Mapping[str, str]  # name, or pattern of names, e.g. set-a/*.txt → SHA-256 (see `digest`)
    archives: str = ""  # pattern of the names of archives that may hold them; none: they come as they are

    @property
    def published_name(self) -> str:
        return unquote(PurePosixPath(urlsplit(self.url).path).name)


@dataclass(frozen=True)
class About:
    """What to say of a data set before it is loaded."""

    name: str
    description: str
    licence: str
    raws: tuple[Raw, ...]


def cache() -> Path:
    return Path(os.environ.get("GPVAE_CACHE") or pooch.os_cache("gpvae"))


def cache_folder(name: str) -> Path:
    """A folder of the cache, there to be written to."""
    folder = cache() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot write to the cache {folder}: {error.strerror}; set GPVAE_CACHE") from None
    return folder


def read(raw: Raw, folder: str | os.PathLike[str] | None = None, *, verbose: bool = False) -> Contents:
    """The files' contents, checked; downloaded first where they are nowhere."""
    paths = find(raw, folder)
    if not paths:
        return _downloaded(raw, verbose=verbose)
    if "" in paths:
        contents = unpacked(paths[""], raw.files)
        _check(raw, contents, dict.fromkeys(contents, paths[""]), paths[""])
        return contents
    contents = {name: _loose_content(path, name) for name, path in paths.items()}
    _check(raw, contents, paths, next(iter(paths.values())).parent)
    return contents


def find(raw: Raw, folder: str | os.PathLike[str] | None = None) -> dict[str, Path]:
    """Where the files are: each by its name, or one archive under no name. Empty: nowhere."""
    for root in _folders(folder):
        place = root / raw.place
        loose = _loose(raw, place)
        if all(_of_pattern(loose, pattern) for pattern in raw.files):
            return loose
        for path in sorted(place.glob(raw.archives)) if raw.archives else ():
            if path.is_file() and path.suffix != ".part":
                return {"": path}
    return {}


def digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 of the list of names and SHA-256 that `sha256sum` writes, sorted; of a text with lines ended by \\n."""
    lines = sorted(f"{_sha256(name, content)}  {name}\n" for name, content in files.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def unpacked(archive: Path, patterns: Iterable[str]) -> Contents:
    """The files of a tar or zip archive, or of a zip inside it, whose names match from the right."""
    try:
        opened = _zipped(archive.read_bytes()) if zipfile.is_zipfile(archive) else _tarred(archive)
        contents: Contents = {}
        for name, content in opened:
            key = _key(name, patterns)
            if key and contents.setdefault(key, content) != content:
                raise DataError(f"{archive} holds two different files {key}")
        return contents
    except DataError:
        raise
    except _DAMAGE as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"{archive} is damaged, or no archive: {reason}") from None


def _folders(folder: str | os.PathLike[str] | None) -> list[Path]:
    named = folder if folder is not None else os.environ.get("GPVAE_DATA")
    if named and not Path(named).is_dir():
        raise DataError(f"there is no folder {named}{'' if folder is not None else ', which GPVAE_DATA names'}")
    return [*([Path(named)] if named else []), cache()]


def _loose(raw: Raw, place: Path) -> dict[str, Path]:
    """Files that lie there as they are, or gzipped one by one."""
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
        raise DataError(f"{path} is damaged, or cannot be read: {error}") from None


def _key(name: str, patterns: Iterable[str]) -> str:
    """The part of a name that a pattern speaks of: x/set-a/1.txt → set-a/1.txt; nothing where none does."""
    parts = PurePosixPath(name).parts
    for pattern in patterns:
        tail = "/".join(parts[-len(PurePosixPath(pattern).parts) :])
        if fnmatch.fnmatchcase(tail, pattern) and parts[-1][0] != ".":
            return tail
    return ""


def _of_pattern(names: Iterable[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def _check(raw: Raw, contents: Contents, paths: Mapping[str, Path], whole: Path) -> None:
    """Refuse what is not as published, by the name of the file or archive at fault."""
    for pattern, expected in raw.files.items():
        names = _of_pattern(contents, pattern)
        if not names:
            raise DataError(f"{whole} holds no {pattern}")
        found = _expected_digest(pattern, {name: contents[name] for name in names})
        if found != expected:
            where = paths[names[0]] if names == [pattern] else whole
            of = "" if where.name == PurePosixPath(pattern).name else f" of {pattern} ({len(names):,} files)"
            raise DataError(f"{where} is damaged, or not as published: the SHA-256{of} is {found}, not {expected}")


def _expected_digest(pattern: str, files: Mapping[str, bytes]) -> str:
    """Of one file by name, its own."""
    return _sha256(pattern, files[pattern]) if pattern in files else digest(files)


def _sha256(name: str, content: bytes) -> str:
    text = name.endswith((".txt", ".csv"))
    return hashlib.sha256(content.replace(b"\r\n", b"\n") if text else content).hexdigest()


def _downloaded(raw: Raw, *, verbose: bool) -> Contents:
    """Nothing has its own name in the cache before it is checked; what is wrong goes."""
    path = cache_folder(raw.place) / raw.published_name
    part = path.with_name(f"{path.name}.part")
    try:
        download(raw.url, part, verbose=verbose)
    except DataError as error:
        wanted = f"Or put {raw.published_name} into {raw.place} in a folder that GPVAE_DATA names."
        raise DataError(f"{error}. {wanted}") from None
    try:
        contents = unpacked(part, raw.files) if raw.archives else {path.name: part.read_bytes()}
        _check(raw, contents, dict.fromkeys(contents, part), part)
    except DataError as error:
        part.unlink()
        raise DataError(f"{raw.url} did not send what it should, and nothing was kept: {error}") from None
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
