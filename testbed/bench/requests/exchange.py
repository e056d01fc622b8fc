"""A client that costs little: prepared questions over a socket, one after the other."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence

from testbed.bench.requests.contest import Result
from testbed.errors import MeasurementError

_PATIENCE_S = 30.0


def exchange(
    sock: socket.socket,
    questions: Sequence[bytes],
    complete: Callable[[bytes], bool],
    refuses: Callable[[bytes], bool],
) -> Result:
    """Ask, and wait for each answer before the next question.

    Args:
        sock: a connected socket.
        questions: what is sent.
        complete: whether this is a whole answer.
        refuses: whether this answer is a no.

    Raises:
        MeasurementError: the server hung up.
    """
    sock.settimeout(_PATIENCE_S)
    latencies, refused = [], 0
    clock, send, receive = time.perf_counter, sock.sendall, sock.recv
    began = clock()
    for question in questions:
        asked = clock()
        send(question)
        answer = receive(65_536)
        while not complete(answer):
            more = receive(65_536)
            if not more:
                raise MeasurementError(f"the server hung up after {answer!r}")
            answer += more
        latencies.append(clock() - asked)
        refused += refuses(answer)
    return Result(clock() - began, refused, latencies)
