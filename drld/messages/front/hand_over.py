"""How drld parts from a client of MQTT that did not leave by itself: at a stop, or with its broker.

A broker publishes the will of a client whose connection ends without DISCONNECT. A client that
drld sends away is well, and connects again: to the next daemon, or to another address. Its will
would say that it is dead. So drld sends DISCONNECT in its place, but only for a client that shows
that it is there. The steps, when nothing of the client waits:

1. drld sends the broker a ping. Its answer comes behind all acknowledgements for the client.
2. drld ends its side towards the client; MQTT 5 says first: DISCONNECT, Server shutting down.
3. A client that is there closes its side. Then drld sends DISCONNECT to the broker.
4. drld ends its side towards the broker.

A client that does not close its side within `drld.messages.front.client_end.END_NS`, or that resets
the connection, is taken for dead. The broker gets no DISCONNECT and publishes its will.
"""

from __future__ import annotations

from contextlib import suppress

from drld.errors import FrameError
from drld.messages.frame import Client
from drld.messages.front.broker_end import BrokerEnd
from drld.messages.front.client_end import ClientEnd
from drld.messages.protocols import Protocol

_MOST_READS = 16
"""Reads of what a client has sent meanwhile: a client that floods drld cannot delay its end."""


class HandOver:
    """The steps of one connection."""

    __slots__ = ("_broker", "_client", "_farewell", "_goodbye", "_last", "_step")

    def __init__(
        self, protocol: Protocol, words: Client, client: ClientEnd, broker: BrokerEnd
    ) -> None:
        """Begin before the first step; `words` are the client's own words about itself."""
        self._farewell = protocol.farewell
        self._goodbye = protocol.goodbye(words)
        self._client = client
        self._broker = broker
        self._step = 1
        self._last = b""
        """DISCONNECT that the client has sent itself; empty: it has sent none."""

    def done(self) -> bool:
        """Take the steps that are possible now; return whether only the last one is left."""
        client, link, returns = self._client, self._broker.link, self._broker.returns
        if self._step == 1:
            self._broker.ping()
            link.flush()
            self._step = 2
        if self._step == 2 and not returns.pings:
            self._read()
            if not client.left:
                client.send(returns.insert(self._goodbye))
            client.end()
            self._step = 3
        if self._step == 3 and client.link.sock is None:
            if self._last or (client.link.answered and not client.left):
                link.send(self._last or self._farewell)
                link.flush()
            self._step = 4
        return self._step == 4 and not link.chunks

    def _read(self) -> None:
        """Find out whether the client has left in the meantime."""
        with suppress(FrameError):
            for _ in range(_MOST_READS):
                frames = self._client.receive()
                if frames is None:
                    return
                for frame in frames:
                    if frame.data[:1] == self._farewell[:1]:
                        self._last = frame.data


def hand_over(
    protocol: Protocol, words: Client | None, client: ClientEnd, broker: BrokerEnd
) -> HandOver | None:
    """Begin to part from a client; None: its broker cannot take the end for a death."""
    if words is None or not protocol.farewell or not broker.returns.accepted:
        return None
    return HandOver(protocol, words, client, broker)
