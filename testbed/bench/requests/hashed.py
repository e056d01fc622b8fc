"""The hash of a key under a secret."""

from __future__ import annotations

from hashlib import blake2b

_KEYED = blake2b(key=bytes(range(32)), digest_size=8)


def hashed(user: str) -> int:
    """64 bits; a copy of a keyed state takes half the time of a new one."""
    state = _KEYED.copy()
    state.update(user.encode())
    return int.from_bytes(state.digest(), "big")
