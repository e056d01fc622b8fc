"""The interface of a gossip socket: the real one, or a simulated one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from drld.gossip.wire.keyring import KeyRing

Deliver: TypeAlias = Callable[[str, int, Any], None]
"""Receives a message: the name of its sender, its kind, and its body."""


class Messenger(Protocol):
    """Sends and receives messages; see `drld.gossip.transport.Transport` for each method."""

    drained: bool
    other_versions: dict[str, int]
    refused_kinds: dict[str, tuple[int, str]]

    @property
    def life(self) -> int:
        """The incarnation of this daemon."""

    def send(self, peer: str, kind: int, body: Any) -> int | None:
        """Send a message; return its number if it was sent and its kind is numbered."""

    def receive(self, deliver: Deliver, refused: Mapping[int, str]) -> None:
        """Deliver all pending messages."""

    def refuse(self, reason: str) -> None:
        """Count a message without effect."""

    def update_peers(self, peers: Mapping[str, tuple[str, int]]) -> Callable[[], None]:
        """Replace the peers; return a function that undoes it."""

    def set_ring(self, ring: KeyRing) -> None:
        """Use these keys."""

    def close(self) -> None:
        """Close the socket."""
