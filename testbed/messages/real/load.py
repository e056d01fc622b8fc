"""Publishers and subscribers as processes: `python -m testbed.messages.real.load ROLE`.

Publishers keep to their schedule whatever becomes of their messages (open loop). Times are those of
the monotonic clock, which all processes of a host share.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Sequence

from testbed import child
from testbed.errors import MeasurementError
from testbed.messages.real.frames import (
    SUBSCRIBED,
    WELCOME,
    Deliveries,
    Message,
    Protocol,
    greeting,
    publication,
    subscription,
)

_PATIENCE_S = 60.0
_POLL_S = 0.2
_PRIORITY = 9
"""Above that of brokers and daemons: publishers keep to their schedule."""


def before_brokers() -> None:
    """Have priority over brokers and daemons, if the host permits."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))


def connect(address: Sequence[object], protocol: Protocol, name: str) -> socket.socket:
    """A client that the broker has welcomed.

    Raises:
        MeasurementError: it has not.
    """
    host, port = address
    made = socket.create_connection((str(host), int(str(port))), _PATIENCE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ask(made, greeting(protocol, name), WELCOME[protocol])
    return made


def ask(made: socket.socket, question: bytes, answer: bytes) -> None:
    """Send some bytes, and wait until what comes back ends like this.

    Raises:
        MeasurementError: it does not.
    """
    made.sendall(question)
    came = b""
    while not came.endswith(answer):
        received = made.recv(65536)
        if not received:
            raise MeasurementError(f"a broker closed the connection after {came!r}")
        came += received


def publish() -> None:
    """Send messages at their times; report by how much each was late, ns."""
    job = child.receive()
    protocol, addresses = job["protocol"], job["addresses"]
    clients = [
        connect(addresses[place], protocol, f"p{number}")
        for number, place in enumerate(job["place_of"])
    ]
    before_brokers()
    child.send(ready=True)
    begin_ns = child.receive()
    numbers = [0] * len(clients)
    lags = []
    for at_ns, publisher in job["schedule"]:
        scheduled_ns = begin_ns + at_ns
        frame = publication(protocol, Message(publisher, numbers[publisher], scheduled_ns))
        numbers[publisher] += 1
        if (wait_ns := scheduled_ns - time.monotonic_ns()) > 0:
            time.sleep(wait_ns / 1e9)
        lags.append(time.monotonic_ns() - scheduled_ns)
        clients[publisher].sendall(frame)
    child.send(lags=lags)


def subscribe() -> None:
    """Receive so many messages; report when each came, with what it says."""
    job = child.receive()
    protocol = job["protocol"]
    poll = select.epoll()
    sources = {}
    for number, address in enumerate(job["addresses"]):
        made = connect(address, protocol, f"s{number}")
        ask(made, subscription(protocol), SUBSCRIBED[protocol])
        poll.register(made, select.EPOLLIN)
        sources[made.fileno()] = made, Deliveries(protocol)
    before_brokers()
    child.send(ready=True)
    until_ns = child.receive()
    came: list[tuple[int, int, int, int]] = []
    while len(came) < job["messages"] and time.monotonic_ns() < until_ns:
        for descriptor, _ in poll.poll(_POLL_S):
            made, deliveries = sources[descriptor]
            data = made.recv(1 << 18)
            now_ns = time.monotonic_ns()
            if not data:
                raise MeasurementError("a broker closed a subscriber's connection")
            came += [(*message, now_ns) for message in deliveries.feed(data)]
    child.send(came=came)


if __name__ == "__main__":
    child.main_of({"publish": publish, "subscribe": subscribe})
