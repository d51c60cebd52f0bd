"""What a run means, whatever its settings are called: the digest that identifies it in a record.

A setting that is renamed, or added with a value that means what was done before, leaves the rows of a record valid: it
gets an entry here. One whose meaning changes gets a new name.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

RENAMED: Mapping[str, str] = {}  # today's path of a setting → its path in the first record
NEUTRAL: Mapping[str, Any] = {
    "settings.label_weight": 0.0
}  # path of a setting added since → the value that means what was done before


def digest_of(settings: Mapping[str, Any]) -> str:
    """Of nested settings, ready for JSON."""
    meaning = {RENAMED.get(path, path): value for path, value in _flat(settings, "") if not _is_neutral(path, value)}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:8]


def _is_neutral(path: str, value: Any) -> bool:
    return path in NEUTRAL and NEUTRAL[path] == value


def _flat(settings: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
