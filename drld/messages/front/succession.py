"""The order of two connections of one client.

A broker of MQTT ends a client's connection when another connection comes with the same identifier.
Messages that wait in the older connection would then be lost. So the CONNECT of the newer one waits
until no frame of the older one waits.
"""

from __future__ import annotations

from typing import Protocol

from drld.messages.frame import Client
from drld.messages.front.pump import Flow


class Successive(Flow, Protocol):
    """A connection whose client may come back on another one."""

    successor: Successive | None
    """The next connection of the same client, if that one waits for this one."""

    @property
    def waiting(self) -> bool:
        """Whether frames of this connection wait."""
        ...

    def look(self) -> None:
        """Settle in this turn: the connection has a successor now."""

    def succeed(self) -> None:
        """Go on: no frame of the older connection waits any more."""


class Succession:
    """The newest connection of each client of one broker."""

    def __init__(self, *, one_per_client: bool) -> None:
        """`one_per_client`: whether the broker ends the older of two connections."""
        self._one_per_client = one_per_client
        self._newest: dict[str, Successive] = {}
        """The newest connections by their clients' identifiers."""

    def join(self, connection: Successive, client: Client) -> bool:
        """Add a connection whose client has said its identifier.

        Returns:
            Whether the connection has to wait until `succeed` is called.
        """
        if not client.id or not self._one_per_client:
            return False
        older = self._newest.get(client.id)
        self._newest[client.id] = connection
        if older is None or not older.waiting:
            return False
        older.successor = connection
        older.look()
        return True

    def leave(self, connection: Successive, client: Client | None) -> None:
        """Forget a connection that has ended."""
        if client is not None and self._newest.get(client.id) is connection:
            del self._newest[client.id]
