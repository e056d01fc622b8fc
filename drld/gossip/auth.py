"""The tag of a datagram: keyed BLAKE2s over its bodies and the two names, cut to four bytes.

The tag covers what both ends know without sending it, sender and receiver, so an update cannot be
replayed to another limiter or passed off as another's. (Incarnations of both ends join the names
once a handshake agrees on them; until then a recorded update can be replayed to the same limiter,
and the sequence number is all that stands against it.)

What it is worth. Four bytes: a forger without the key guesses right once in 2**32 packets; the
rejection counter shows him long before. Without a key (the default) the tag is a checksum: it
catches corruption, foreign fleets and crossed addresses, but anybody can compute it, so it keeps no
attacker out.

    tag = BLAKE2s(key, person="drld-upd", len(sender) sender len(receiver) receiver bodies)[:4]

Lengths are two bytes, big-endian, so that no two pairs of names give the same bytes.
"""

from __future__ import annotations

import hashlib
import hmac

from drld.errors import WireError
from drld.gossip.wire import TAG_SIZE

MAX_KEY_SIZE = hashlib.blake2s.MAX_KEY_SIZE
"""Bytes."""
_PERSON = b"drld-upd"


class Tagger:
    """Makes and checks the tags of one direction of one link."""

    __slots__ = ("_prefix",)

    def __init__(self, key: bytes, sender: str, receiver: str) -> None:
        """Hash what all updates of the link share.

        Raises:
            ValueError: the key is longer than `MAX_KEY_SIZE`, or a name than 65535 bytes.
        """
        if len(key) > MAX_KEY_SIZE:
            raise ValueError(f"a gossip key has at most {MAX_KEY_SIZE} bytes, not {len(key)}")
        self._prefix = hashlib.blake2s(key=key, person=_PERSON)
        for name in (sender, receiver):
            encoded = name.encode()
            if len(encoded) > 0xFFFF:
                raise ValueError("the name of a limiter has at most 65535 bytes")
            self._prefix.update(len(encoded).to_bytes(2, "big") + encoded)

    def seal(self, bodies: bytes) -> bytes:
        """The datagram: the bodies and their tag."""
        return bodies + self._tag(bodies)

    def check_untrusted(self, datagram: bytes) -> None:
        """Compare the tag of a datagram, in constant time.

        Raises:
            WireError: with the reason `tag`.
        """
        if not hmac.compare_digest(datagram[-TAG_SIZE:], self._tag(datagram[:-TAG_SIZE])):
            raise WireError("tag", "does not fit bodies, key, sender and receiver")

    def _tag(self, bodies: bytes) -> bytes:
        digest = self._prefix.copy()
        digest.update(bodies)
        return digest.digest()[:TAG_SIZE]
