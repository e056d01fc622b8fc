"""Questions at times that no answer moves, so that latencies include the wait for a busy server.

A client that waits for each answer asks a slow server less often, and its latencies then leave out
the queue. Here each question has a time, and its latency counts from that time to its answer.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from random import Random

from drld.client.protocol.check_codec import check_frames, read_answers, record_of, text_of
from drld.client.protocol.frame import MAX_ANSWER_BYTES, Frames
from drld.client.protocol.greeting import WELCOME_BYTES, hello
from testbed.bench.requests.contest import Result
from testbed.bench.requests.limiter import question
from testbed.bench.requests.load import Asked
from testbed.errors import MeasurementError

CONNECTIONS = 16
"""Connections of a client. At half load, more questions than that wait at a time only if the
server stands still."""
_READ_BYTES = 262_144
_PATIENCE_S = 30.0


class Connection:
    """A connection in the batch protocol, and the times of its questions without an answer."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.due_s: deque[float] = deque()
        """The times of the questions, the oldest first: a connection is answered in order."""
        self._frames = Frames(MAX_ANSWER_BYTES)

    def read(self) -> Iterator[bool]:
        """Yield for each answer that has come whether it refuses.

        Raises:
            MeasurementError: the daemon ended the connection.
        """
        if not (data := self.sock.recv(_READ_BYTES)):
            raise MeasurementError("the daemon ended a connection")
        for _, count, body in self._frames.feed(data):
            for _, answer in read_answers(count, body):
                yield not answer.admitted


def connected(path: str) -> socket.socket:
    """Connect to a daemon's socket, in the batch protocol.

    Raises:
        MeasurementError: the daemon does not greet.
    """
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    sock.sendall(hello(1))
    if len(sock.recv(WELCOME_BYTES, socket.MSG_WAITALL)) != WELCOME_BYTES:
        raise MeasurementError("the daemon did not greet")
    return sock


@contextmanager
def connections(path: str) -> Iterator[list[Connection]]:
    """Connect to a daemon's socket; the connections end with the context."""
    with ExitStack() as stack:
        yield [Connection(stack.enter_context(connected(path))) for _ in range(CONNECTIONS)]


def frame_of(it: Asked) -> bytes:
    """Return the frame with the question about one request."""
    asked = question(it)
    text = text_of(asked)
    return check_frames([(record_of(0, asked, text), text)])


def arrivals(rng: Random, count: int, per_s: float) -> list[float]:
    """Return the times of a Poisson process, s: independent clients ask so."""
    time_s, found = 0.0, []
    for _ in range(count):
        time_s += rng.expovariate(per_s)
        found.append(time_s)
    return found


def ask(
    opened: Sequence[Connection], questions: Sequence[bytes], due_s: Sequence[float] | None
) -> Result:
    """Ask each question at its time, on the connections in turn, and wait for all answers.

    The client does not sleep meanwhile, so that it is late by microseconds alone.

    Args:
        opened: connections without an open question.
        questions: a frame with one question each.
        due_s: the time of each question, from the first on, s; None: each connection asks its next
            question as soon as it has an answer, so the server has no time to spare.

    Raises:
        MeasurementError: the daemon ended a connection, or does not answer.
    """
    latencies: list[float] = []
    refused = sent = 0
    by_number = {it.sock.fileno(): it for it in opened}
    clock = time.perf_counter
    with select.epoll() as poll:
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        free = deque(opened)
        began = clock()
        while len(latencies) < len(questions):
            now_s = clock() - began
            while sent < len(questions) and (free if due_s is None else due_s[sent] <= now_s):
                one = free.popleft()
                one.due_s.append(now_s if due_s is None else due_s[sent])
                one.sock.sendall(questions[sent])
                sent += 1
                if due_s is not None:
                    free.append(one)
            for number, _ in poll.poll(0):
                one = by_number[number]
                for no in one.read():
                    refused += no
                    latencies.append(clock() - began - one.due_s.popleft())
                    if due_s is None:
                        free.append(one)
            if now_s > _PATIENCE_S + (due_s[-1] if due_s else 0.0):
                raise MeasurementError("the daemon does not answer")
    return Result(clock() - began, refused, latencies)
