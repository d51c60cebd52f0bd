"""Files with a checksum over every byte, so that changed or cut ones are noticed before they are used."""

import hashlib
import stat
from pathlib import Path
from typing import Any

BLANK = "0" * 64  # where the checksum goes


def seal(content: bytes, *others: bytes) -> bytes:
    """`content` with the checksum of itself and of `others` in the place of its first `BLANK`."""
    return content.replace(BLANK.encode(), _checksum(content, *others), 1)


def require_seal(content: bytes, checksum: Any, *others: bytes) -> None:
    """Check that `seal` returned `content`, which says that its checksum is `checksum`."""
    given = checksum.encode() if isinstance(checksum, str) else b""
    if len(given) != len(BLANK) or _checksum(content.replace(given, BLANK.encode(), 1), *others) != given:
        raise ValueError("its checksum is not the one that was saved")


def _checksum(*parts: bytes) -> bytes:
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(digests).hexdigest().encode()


def read_regular(path: Path) -> bytes:
    """The bytes of a file. Pipes and devices, which may never end, are refused."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path.name} is not a regular file")
    return path.read_bytes()
