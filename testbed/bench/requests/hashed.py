"""The hash of a key under a secret."""

from __future__ import annotations

from drld.requests.keys import KeyHash

_HASH = KeyHash(bytes(range(32)))


def hashed(user: str) -> int:
    """64 bits, as the daemon has them."""
    return _HASH(user.encode())
