"""The order of the connections of one client.

A broker of MQTT ends a client's connection when another connection comes with the same identifier.
Messages that wait in the older connection would then be lost. So the CONNECT of the newer one waits
until no frame of the older one waits. A client that floods the older one cannot keep it waiting:
once the newer one has come, drld reads no more of the older one than what has arrived.

Any stranger may come with the identifier of another client, and only the broker refuses it. So a
connection changes what becomes of an older one only if it has the same credentials. Without these
it waits too, but no longer than an opening may last, and drld goes on to read the older one.

Messages may wait for longer than a client waits for its CONNACK: it gives up, and tries again. A
try that waits and has brought nothing but its CONNECT ends when the next one comes, as the broker
would end it. So these tries take one place among `max_connections`, however many there are. A try
that has brought more stays: its messages are delivered in their turn.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from drld.messages.frame import Client
from drld.messages.front.pump import Flow


class Successive(Flow, Protocol):
    """A connection whose client may come back on another one."""

    successor: Successive | None
    """The next connection of the same client, if that one waits for this one."""

    def waits(self) -> bool:
        """Read what has come if no frame waits; return whether frames of this connection wait."""
        ...

    def followed(self, *, same: bool) -> None:
        """Settle in this turn: there is a successor now; `same`: of the same credentials.

        With these, read no more than what has come.
        """

    def succeed(self) -> None:
        """Go on: no frame of the older connection waits any more."""

    def give_way(self) -> None:
        """End, if the client has sent nothing but its CONNECT, which waits."""


class Succession:
    """The connections of each client of one broker that follow each other."""

    def __init__(self, *, one_per_client: bool) -> None:
        """`one_per_client`: whether the broker ends the older of two connections."""
        self._one_per_client = one_per_client
        self._of: defaultdict[str, dict[Successive, None]] = defaultdict(dict)
        """The connections of each identifier, in their order."""
        self._older: dict[Successive, Successive] = {}
        """The connections that others wait for, by these others."""
        self._ids: dict[Successive, str] = {}
        """The identifiers of the connections' clients."""

    def join(self, connection: Successive, client: Client) -> bool:
        """Add a connection whose client has said its identifier.

        Returns:
            Whether the connection has to wait until `succeed` is called.
        """
        if not client.id or not self._one_per_client:
            return False
        others = [*reversed(self._of[client.id])]
        self.assign(connection, client.id)
        for other in others:
            if other in self._older and _same(other, connection):
                other.give_way()
                break
        for other in others:
            if other in self._older or other.waits():
                self._follow(other, connection)
                return True
        return False

    def trusts(self, connection: Successive) -> bool:
        """Whether a connection that waits has the credentials of the first that it waits for."""
        first = self._older[connection]
        while first in self._older:
            first = self._older[first]
        return _same(first, connection)

    def assign(self, connection: Successive, id_: str) -> None:
        """Add a connection whose client has got its identifier from the broker."""
        self._forget(connection)
        self._of[id_][connection] = None
        self._ids[connection] = id_

    def pass_on(self, connection: Successive) -> None:
        """Let the successor of a connection go on, as no frame of the connection waits."""
        successor, connection.successor = connection.successor, None
        if successor is None:
            return
        del self._older[successor]
        if (older := self._older.pop(connection, None)) is None:
            successor.succeed()
        else:  # The connection has ended before its own turn came.
            self._follow(older, successor)

    def leave(self, connection: Successive) -> None:
        """Forget a connection that has ended."""
        self._forget(connection)
        if (older := self._older.pop(connection, None)) is not None:
            older.successor = None

    def _forget(self, connection: Successive) -> None:
        """Forget the identifier of a connection."""
        id_ = self._ids.pop(connection, "")
        self._of[id_].pop(connection, None)
        if not self._of[id_]:
            del self._of[id_]

    def _follow(self, older: Successive, newer: Successive) -> None:
        """Let a connection wait for an older one."""
        self._older[newer] = older
        older.successor = newer
        older.followed(same=_same(older, newer))


def _same(one: Successive, other: Successive) -> bool:
    """Whether the clients of two connections have said the same credentials."""
    first, second = one.lane.client, other.lane.client
    return first is not None and second is not None and first.same_credentials(second)
