"""Random damage to files: flipped bytes, cuts, and JSON whose values are replaced, with a checksum that fits."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from gpvae.data.sealed import BLANK, seal

Generator = np.random.Generator
ODD = [None, True, -1, 0, 1e300, 10**9, -(10**30), "", "x" * 50, "__class__", [], {}, [[]], {"kind": "Cauchy"}, [None]]


def flipped(content: bytes, rng: Generator) -> bytes:
    """One bit of one byte is another."""
    at = int(rng.integers(len(content)))
    return content[:at] + bytes([content[at] ^ (1 << int(rng.integers(8)))]) + content[at + 1 :]


def cut(content: bytes, rng: Generator) -> bytes:
    return content[: int(rng.integers(len(content)))]


def doubled(content: bytes, rng: Generator) -> bytes:
    return content + content[int(rng.integers(len(content))) :]


def shuffled(content: bytes, rng: Generator) -> bytes:
    """A piece is replaced by noise."""
    at, length = int(rng.integers(len(content))), int(rng.integers(1, 40))
    return content[:at] + rng.bytes(length) + content[at + length :]


DAMAGE: list[Callable[[bytes, Generator], bytes]] = [flipped, cut, doubled, shuffled]


def edited(description: dict[str, Any], rng: Generator) -> dict[str, Any]:
    """A copy with one value somewhere replaced, removed, or put where it does not belong."""
    copy = json.loads(json.dumps(description))
    places = list(_places(copy))
    container, key = places[int(rng.integers(len(places)))]
    action = rng.random()
    if action < 0.15:
        del container[key]
    elif action < 0.3 and isinstance(container, dict):
        container["colour"] = container.pop(key)
    elif action < 0.45:
        other, name = places[int(rng.integers(len(places)))]
        container[key] = json.loads(json.dumps(other.get(name) if isinstance(other, dict) else None))
    else:
        container[key] = ODD[int(rng.integers(len(ODD)))]
    return copy


def _places(value: Any) -> Any:
    """Every container with every key or index in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def resealed(description: dict[str, Any], weights: bytes) -> bytes:
    """As a forger would write it."""
    return seal(json.dumps({"sha256": BLANK, **description, **{"sha256": BLANK}}).encode(), weights)
