"""What a limiter's node asks of its gossip socket, or of what stands for one in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from drld.gossip.wire.keyring import KeyRing

Deliver: TypeAlias = Callable[[str, int, Any], None]
"""Takes a message: the name of its sender, its kind, and its body."""


class Messenger(Protocol):
    """Sends and receives messages; see `drld.gossip.transport.Transport` for each method."""

    drained: bool
    other_versions: dict[str, int]

    @property
    def life(self) -> int:
        """The incarnation of this daemon."""

    def send(self, peer: str, kind: int, body: Any) -> int | None:
        """Send a message; return its number, if it was sent and is of a numbered kind."""

    def receive(self, deliver: Deliver, refused: Mapping[int, str]) -> None:
        """Deliver what is pending."""

    def refuse(self, reason: str) -> None:
        """Count a message of no effect."""

    def update_peers(self, peers: Mapping[str, tuple[str, int]]) -> Callable[[], None]:
        """Talk to these peers."""

    def set_ring(self, ring: KeyRing) -> None:
        """Use these keys."""

    def close(self) -> None:
        """Close the socket."""
