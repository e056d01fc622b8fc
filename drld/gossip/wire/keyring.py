"""The keys of a fleet: one seals sent datagrams, and each of them opens received ones.

A ring has up to three keys, with the ids 1 to 3. The key *in use* seals all sent datagrams. A
received datagram may be sealed with any key of the ring. So no datagram is lost while a key is
changed: *install* the new key on all hosts, then *use* it on all, then *remove* the old one.
Sessions continue, because both ends derive their keys from each key of the ring.

Id 0 means no key: the tag is a checksum that any host can compute. An empty ring uses it. With
`accept_unauthenticated`, a ring with keys also accepts it, while keys are introduced.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from drld.errors import ConfigError, WireError
from drld.gossip.wire.datagram_tag import MAX_KEY_SIZE, MIN_KEY_SIZE
from drld.gossip.wire.update_codec import TAG_SIZE, TAG_SIZES

NO_KEY = 0
KEY_IDS = (1, 2, 3)
_FINGERPRINT = b"drld-fpr"


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of one limiter; all limiters have the same ones, except while they are changed."""

    keys: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    """The keys by id."""
    use: int = NO_KEY
    """The id of the key that seals."""
    tag_size: int = TAG_SIZE
    """Bytes of the tag of an update."""
    accept_unauthenticated: bool = False
    """Whether to accept datagrams without a key although there are keys."""

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ConfigError: a field is wrong; `problems` has a line for each.
        """
        problems = [
            f"key {key_id}: has {len(key)} bytes, not {MIN_KEY_SIZE} to {MAX_KEY_SIZE}"
            for key_id, key in self.keys.items()
            if not MIN_KEY_SIZE <= len(key) <= MAX_KEY_SIZE
        ]
        problems += [
            f"key {key_id}: the id of a key is one of {', '.join(map(str, KEY_IDS))}"
            for key_id in self.keys
            if key_id not in KEY_IDS
        ]
        if self.use != NO_KEY and self.use not in self.keys:
            problems.append(f"use: must be the id of a key (got {self.use})")
        if self.use == NO_KEY and self.keys and not self.accept_unauthenticated:
            problems.append(
                "use: must be the id of a key unless accept_unauthenticated is true (got 0)"
            )
        if self.tag_size not in TAG_SIZES:
            problems.append(f"tag: {self.tag_size} is not one of {', '.join(map(str, TAG_SIZES))}")
        if problems:
            raise ConfigError(problems)

    def key(self, key_id: int) -> bytes:
        """The key with this id, for a received datagram.

        Raises:
            WireError: with the reason `key`.
        """
        if key_id == NO_KEY and (self.accept_unauthenticated or not self.keys):
            return b""
        key = self.keys.get(key_id)
        if key is None:
            raise WireError("key", f"must be the id of a key in the ring (got {key_id})")
        return key

    def install(self, key_id: int, key: bytes) -> KeyRing:
        """The ring with one key more.

        Raises:
            ConfigError: the key or its id is out of bounds, or it would replace the key in use.
        """
        if key_id == self.use and self.keys.get(key_id, key) != key:
            raise ConfigError([f"key {key_id}: is in use; install the new one under another id"])
        return replace(self, keys={**self.keys, key_id: key})

    def using(self, key_id: int) -> KeyRing:
        """The ring with another key in use.

        Raises:
            ConfigError: the ring has no such key.
        """
        return replace(self, use=key_id)

    def remove(self, key_id: int) -> KeyRing:
        """The ring without a key.

        Raises:
            ConfigError: the key is in use, or the ring has no such key.
        """
        if key_id not in self.keys:
            raise ConfigError([f"key {key_id}: is not there"])
        if key_id == self.use:
            raise ConfigError([f"key {key_id}: is in use; use another one first"])
        return replace(
            self, keys={other: key for other, key in self.keys.items() if other != key_id}
        )


def parse_key(text: bytes) -> bytes:
    """The key in the text of a file, in hexadecimal digits or base64.

    A text that can be read both ways (32 to 64 digits and letters a to f) is hexadecimal.

    Raises:
        ValueError: it is neither, or too short or long. The message shows nothing of the text.
    """
    text = b"".join(text.split())
    key = b""
    for decode in (binascii.unhexlify, partial(base64.b64decode, validate=True)):
        try:
            key = decode(text)
        except binascii.Error:
            continue
        if MIN_KEY_SIZE <= len(key) <= MAX_KEY_SIZE:
            return key
    raise ValueError(
        f"must be a key: {MIN_KEY_SIZE} to {MAX_KEY_SIZE} bytes in hexadecimal digits or base64"
    )


def fingerprint(key: bytes) -> str:
    """A hash that shows whether two limiters have the same key, and reveals nothing else of it."""
    return hashlib.blake2s(key=key, person=_FINGERPRINT, digest_size=4).hexdigest()
