"""Publishers of one process, which send as fast as they can, or on a schedule."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Sequence

from drld.model import NS_PER_S
from testbed.messages.real.frames import (
    SUBSCRIBED,
    WELCOME,
    Deliveries,
    Message,
    Protocol,
    publication,
    subscription,
)
from testbed.messages.real.load import ask, connect

PROTOCOL: Protocol = "nats"
CONNECTIONS = 20
_PATIENCE_S = 60.0
_CONFIRMED = WELCOME["nats"]


class Publishers:
    """Some connections to a broker or a proxy, and a subscriber at the broker itself."""

    def __init__(self, port: int, broker: int) -> None:
        """Connect to these ports of this host.

        Raises:
            OSError: nothing listens.
            MeasurementError: the broker does not welcome a client.
        """
        self._clients = [
            connect(("127.0.0.1", port), PROTOCOL, f"p{number}") for number in range(CONNECTIONS)
        ]
        self._broker = broker

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            client.close()

    def send(self, pieces: Iterable[bytes], rate: int | None = None) -> None:
        """Send messages until the broker has all of them.

        Each piece has whole messages; a connection sends it at once. `rate` is the pieces a second,
        sent evenly; None: as fast as the proxy takes them.

        Raises:
            MeasurementError: a connection has ended.
        """
        clients, begin_ns = self._clients, time.monotonic_ns()
        for number, piece in enumerate(pieces):
            if rate is not None:
                due_ns = begin_ns + number * NS_PER_S // rate
                time.sleep(max(due_ns - time.monotonic_ns(), 0) / NS_PER_S)
            clients[number % CONNECTIONS].sendall(piece)
        for client in clients:
            ask(client, b"PING\r\n", _CONFIRMED)

    def pace(self, messages: int, rate: int) -> list[int]:
        """Send messages evenly at a rate; return the delays until they came, ns, sorted.

        A delay counts from the time for which a message was scheduled.
        """
        subscriber = connect(("127.0.0.1", self._broker), PROTOCOL, "subscriber")
        with subscriber:
            ask(subscriber, subscription(PROTOCOL), SUBSCRIBED[PROTOCOL])
            return self._pace(subscriber, messages, NS_PER_S // rate)

    def _pace(self, subscriber: socket.socket, messages: int, gap_ns: int) -> list[int]:
        poll = select.poll()
        poll.register(subscriber, select.POLLIN)
        deliveries, delays = Deliveries(PROTOCOL), list[int]()
        begin_ns, sent = time.monotonic_ns() + gap_ns, 0
        while len(delays) < messages:
            due_ns = begin_ns + sent * gap_ns
            now_ns = time.monotonic_ns()
            if sent < messages and now_ns >= due_ns:
                frame = publication(PROTOCOL, Message(0, sent, due_ns))
                self._clients[sent % CONNECTIONS].sendall(frame)
                sent += 1
                continue
            # Polls count milliseconds, and messages come after some microseconds: it looks again
            # and again.
            if poll.poll(0 if sent < messages else 1000 * _PATIENCE_S):
                data = subscriber.recv(1 << 16)
                at_ns = time.monotonic_ns()
                delays += [at_ns - it.scheduled_ns for it in deliveries.feed(data)]
        return sorted(delays)


def quantile(found: Sequence[int], part: float) -> float:
    """A quantile of sorted times, us."""
    return found[int(part * len(found))] / 1000
