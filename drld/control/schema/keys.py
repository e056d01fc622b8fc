"""The keys of the fleet."""

from __future__ import annotations

from typing import TypedDict


class KeyReport(TypedDict):
    """A key of the ring; never the key itself."""

    id: int
    fingerprint: str
    """A hash of the key: equal keys have equal fingerprints."""
    in_use: bool
    """Whether this key seals the datagrams that are sent."""


class KeysReport(TypedDict):
    """The keys in force: GET /v1/keys."""

    use: int
    """Id of the key that seals what is sent; 0 is none."""
    tag_bytes: int
    """Length of an update's tag."""
    accept_unauthenticated: bool
    """Whether what is sealed with no key is taken, too."""
    keys: list[KeyReport]
    as_configured: bool
    """Whether these are the keys of the configuration file, as it was read last."""
