"""Keys: the hash of the values that a limit names, which hides the values from peers.

The hash has 64 bits, under a secret of the fleet. Strangers choose the values, and cannot choose
two that share a bucket. The secret follows from the key of the ring that is in use. A fleet without
keys uses a constant instead, so anybody can compute the hashes; but a host that reaches its ports
can also forge everything else. With another key in use the secret changes, and all buckets start
empty.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b, blake2s

from drld.gossip.wire.keyring import KeyRing

SEPARATOR = b"\xff"
"""Separates two values of a key, so that ("ab", "c") and ("a", "bc") differ: UTF-8 has no such
byte."""
_HASH = b"drld-key-hash"
_DELTAS = b"drld-req"


def fleet_secret(ring: KeyRing) -> bytes:
    """Return the secret of the hashes: the same on all limiters with this key in use."""
    return blake2b(key=ring.keys.get(ring.use, b""), person=_HASH, digest_size=32).digest()


def ring_of_deltas(ring: KeyRing) -> KeyRing:
    """Return the keys of the second socket, so that no datagram of one socket fits the other."""
    derived = {
        key_id: blake2s(key=key, person=_DELTAS).digest() for key_id, key in ring.keys.items()
    }
    return replace(ring, keys=derived)


class KeyHash:
    """The hashes under one secret: BLAKE2s of the secret's digest and the values.

    BLAKE2 is safe with its key as a prefix (Luykx, Mennink and Neves, *Security analysis of
    BLAKE2's modes of operation*, 2016). BLAKE2's own mode for keys takes another block, and half as
    long again.
    """

    def __init__(self, secret: bytes) -> None:
        self._prefixed = blake2s(blake2s(secret).digest(), digest_size=8)

    def __call__(self, values: bytes) -> int:
        """Return the hash of these values, 64 bits; the values are UTF-8, with `SEPARATOR` between
        two."""
        hashed = self._prefixed.copy()
        hashed.update(values)
        return int.from_bytes(hashed.digest(), "big")
