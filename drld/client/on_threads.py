"""The client for threads. It waits for each answer, and many threads may use one client at a time.

Connections are kept and used again. After a fork the child opens its own, so a client may be made
before a server forks its workers.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from time import monotonic_ns
from typing import TYPE_CHECKING

from drld.client.base import BaseClient
from drld.client.protocol.conversation import Conversation, Event
from drld.client.protocol.exchange import Exchange, chunks
from drld.client.protocol.model import NO_PAIRS, Answer, Question
from drld.errors import WireError

if TYPE_CHECKING:
    from ssl import SSLContext

MAX_IDLE = 4
"""The most unused connections that a client keeps: a limiter has 256 places for one user."""
_READ_BYTES = 262_144
_LAST_LOOK_S = 0.001
"""The time in which bytes that have come are read after the deadline, s."""


class Client(BaseClient):
    """A client of one limiter."""

    def _prepare(self) -> None:
        """See `BaseClient`."""
        self._idle: list[_Connection] = []

    def __enter__(self) -> Client:
        """Return the client; the context closes its connections."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        while self._idle:
            self._idle.pop().close()

    def check(
        self,
        namespace: str,
        descriptor: Mapping[str, str] = NO_PAIRS,
        *,
        cost: int = 1,
        caller: str = "",
        size: int | None = None,
    ) -> Answer:
        """Ask whether a request may pass (`Question`); an admitted request is charged."""
        return self.ask([Question(namespace, descriptor, cost, caller, size)])[0]

    def ask(self, questions: Sequence[Question]) -> list[Answer]:
        """Ask several questions at once; return the answers in the same order."""
        now_ns = monotonic_ns()
        if not self._availability.may_ask(now_ns):
            return self._availability.without(questions, now_ns)
        deadline_ns = now_ns + round(self._patience_s(questions) * 1e9)
        connection = self._kept()
        try:
            if connection is not None:
                try:
                    return self._exchanged(connection, questions, deadline_ns)
                except TimeoutError:
                    raise
                except (OSError, EOFError):
                    # The limiter has ended an idle connection, or has restarted. TLS has other
                    # words for it than `ConnectionError`.
                    self.close()
            return self._exchanged(self._connected(deadline_ns), questions, deadline_ns)
        except (OSError, EOFError, WireError) as error:
            return self._without(questions, error)

    def lease(
        self, namespace: str, descriptor: Mapping[str, str] = NO_PAIRS, *, caller: str = ""
    ) -> ThreadsLease:
        """Return decisions in this process on one hot key (`drld.client.protocol.lease`)."""
        return ThreadsLease(self, Question(namespace, descriptor, caller=caller))

    def _kept(self) -> _Connection | None:
        if self._forked():
            self._idle = []
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _connected(self, deadline_ns: int) -> _Connection:
        return _Connection(self._address, self._tls, deadline_ns, self._process)

    def _exchanged(
        self, connection: _Connection, questions: Sequence[Question], deadline_ns: int
    ) -> list[Answer]:
        """Ask on this connection, and keep it if all goes well.

        Raises:
            OSError: there is no answer.
            EOFError: the limiter has ended the connection.
            WireError: the bytes are no answers.
        """
        answers: list[Answer] = []
        open_: list[Exchange] = []
        try:
            for chunk in [*chunks(questions), None]:
                if chunk is not None:
                    now_ns = monotonic_ns()
                    made = Exchange(connection.conversation, self._availability, chunk, now_ns)
                    connection.send(made.data, deadline_ns)
                    open_.append(made)
                # The limiter decides about one part while the next is written.
                while len(open_) > (chunk is not None):
                    while open_[0].missing:
                        events = connection.receive(deadline_ns)
                        for exchange in open_:
                            exchange.receive(events)
                    answers += open_.pop(0).answers()
        except BaseException:
            connection.close()
            raise
        self._answered(len(questions))
        if len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return answers


class ThreadsLease:
    """Decisions on one hot key; many threads may share it."""

    def __init__(self, client: Client, question: Question) -> None:
        self._client = client
        self._question = question
        self._owner = os.getpid()
        self._lock = Lock()
        self._lease = client.new_lease()
        client.hold(self)

    @property
    def lost(self) -> int:
        """The number of requests that were charged and not used in time."""
        self.lapse()
        return self._lease.lost

    def lapse(self) -> None:
        """See `HeldLease.lapse`; a thread that asks at present has counted already."""
        if self._lock.acquire(blocking=False):
            try:
                self._lease.lapse(monotonic_ns())
            finally:
                self._lock.release()

    def take(self, cost: int = 1) -> bool:
        """Decide about a request; ask the limiter if that is needed."""
        if self._owner != os.getpid():
            # Tokens that were taken before a fork are the parent's.
            self._owner, self._lock = os.getpid(), Lock()
            self._lease = self._client.new_lease()
        with self._lock:
            now_ns = monotonic_ns()
            decided = self._lease.take(cost, now_ns)
            if decided is not None:
                return decided
            wanted = self._lease.wanted(cost, now_ns)
            question = self._question._replace(cost=wanted, at_least=cost)
            (answer,) = self._client.ask([question])
            left = self._client.requests_left(answer)
            return self._lease.receive(answer, cost, now_ns, monotonic_ns(), left=left)


class _Connection:
    """A connection that one thread uses at a time."""

    def __init__(
        self,
        address: tuple[str, int] | str,
        tls: SSLContext | None,
        deadline_ns: int,
        process: int,
    ) -> None:
        self.conversation = Conversation()
        timeout_s = _left_s(deadline_ns)
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connect = partial(self._socket.connect, address)
        else:
            self._socket = socket.create_connection(address, timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connect = partial(self._secure, tls, address[0], deadline_ns)
        self._socket.settimeout(timeout_s)
        try:
            connect()
        except BaseException:
            self._socket.close()
            raise
        self._greeting = self.conversation.greeting(process)

    def send(self, data: bytes, deadline_ns: int) -> None:
        """Send bytes, after the greeting if that has not been sent."""
        self._socket.settimeout(_left_s(deadline_ns))
        self._socket.sendall(self._greeting + data if self._greeting else data)
        self._greeting = b""

    def receive(self, deadline_ns: int) -> list[Event]:
        """Return the next events from the limiter."""
        # Answers that have come count, although the thread stood still past the deadline.
        left_s = (deadline_ns - monotonic_ns()) / 1e9
        self._socket.settimeout(max(left_s, _LAST_LOOK_S))
        data = self._socket.recv(_READ_BYTES)
        if not data:
            raise EOFError("it has ended the connection")
        return self.conversation.receive(data)

    def _secure(self, tls: SSLContext | None, host: str, deadline_ns: int) -> None:
        """Use TLS from now on, if there is a context for it."""
        if tls is not None:
            self._socket = tls.wrap_socket(
                self._socket, server_hostname=host, do_handshake_on_connect=False
            )
            self._socket.settimeout(_left_s(deadline_ns))
            self._socket.do_handshake()

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._socket.close()


def _left_s(deadline_ns: int) -> float:
    left_ns = deadline_ns - monotonic_ns()
    if left_ns <= 0:
        raise TimeoutError("no answer in time")
    return left_ns / 1e9
