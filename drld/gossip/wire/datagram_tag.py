"""The tag of a datagram: keyed BLAKE2s over the bytes before it.

Sender and receiver both know some values without sending them: their names, in this order, and the
two ends of their session (`drld.gossip.wire.session`). These values go into the key. A datagram
therefore cannot be replayed to another limiter, in the other direction, or after either end has
restarted. A datagram of another fleet, or one with another key, never fits.

    secret = BLAKE2s-256(key, person = "drld-ses",
                         len(sender) sender len(receiver) receiver ends)
    tag = BLAKE2s(secret, person = "drld-upd", digest size = that of the tag, bodies)

Lengths are two bytes, big-endian, so that no two pairs of names give the same bytes. `ends` is
empty for a HELLO, which comes before there is a session. The person strings keep the kinds of
datagram apart. BLAKE2 hashes the digest size as well, so a short tag is not the beginning of a
longer one.

docs/security.md says what a tag is worth. Without a key it is a checksum that any host can compute.
It then catches corruption, foreign fleets and crossed addresses, but stops no attacker.
"""

from __future__ import annotations

import hashlib
import hmac

from drld.errors import WireError

MIN_KEY_SIZE = 16
"""Bytes of the shortest key."""
MAX_KEY_SIZE = hashlib.blake2s.MAX_KEY_SIZE
"""Bytes of the longest key."""
UPDATE = b"drld-upd"
CONTROL = b"drld-ctl"
HELLO = b"drld-hel"
_SESSION = b"drld-ses"


def session_secret(key: bytes, sender: str, receiver: str, ends: bytes = b"") -> bytes:
    """The key of one direction of a session; without `ends`, that of handshakes.

    Raises:
        ValueError: the key is longer than `MAX_KEY_SIZE`, or a name than 65535 bytes.
    """
    if len(key) > MAX_KEY_SIZE:
        raise ValueError(f"a gossip key has at most {MAX_KEY_SIZE} bytes, not {len(key)}")
    secret = hashlib.blake2s(key=key, person=_SESSION)
    for name in (sender, receiver):
        encoded = name.encode()
        if len(encoded) > 0xFFFF:
            raise ValueError("the name of a limiter has at most 65535 bytes")
        secret.update(len(encoded).to_bytes(2, "big") + encoded)
    secret.update(ends)
    return secret.digest()


class Tagger:
    """Makes and checks the tags of one kind in one direction of one session."""

    __slots__ = ("_keyed", "size")

    def __init__(self, secret: bytes, kind: bytes, size: int) -> None:
        """`kind` is one of `UPDATE`, `CONTROL` and `HELLO`, `size` that of a tag in bytes."""
        self.size = size
        self._keyed = hashlib.blake2s(key=secret, person=kind, digest_size=size)

    def seal(self, content: bytes) -> bytes:
        """The datagram: the content and its tag."""
        return content + self._tag(content)

    def check_untrusted(self, datagram: bytes) -> None:
        """Compare the tag of a datagram, in constant time.

        Raises:
            WireError: with the reason `tag`.
        """
        size = self.size
        if not hmac.compare_digest(datagram[-size:], self._tag(datagram[:-size])):
            raise WireError("tag", "does not fit content, key, sender, receiver and session")

    def _tag(self, content: bytes) -> bytes:
        tag = self._keyed.copy()
        tag.update(content)
        return tag.digest()
