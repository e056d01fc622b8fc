"""Tags as the other side makes them."""

from __future__ import annotations

from drld.gossip.wire.datagram_tag import UPDATE, Tagger, session_secret


def tagger(
    key: bytes,
    sender: str,
    receiver: str,
    *,
    ends: bytes = b"",
    kind: bytes = UPDATE,
    size: int = 4,
) -> Tagger:
    """The tagger of one direction of one session."""
    return Tagger(session_secret(key, sender, receiver, ends), kind, size)
