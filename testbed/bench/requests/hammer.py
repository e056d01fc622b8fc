"""A client that keeps a daemon busy: prepared questions, of which some always wait for an answer.

It costs less than its daemon, so the daemon is the one that has no time to spare.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any

from drld.client.protocol.check_codec import check_frames, record_of, text_of
from drld.client.protocol.frame import MAX_ANSWER_BYTES, MAX_CHECKS, Frames
from drld.client.protocol.model import Question
from testbed import child
from testbed.bench.requests.open_loop import connected
from testbed.bench.rls.client import Client, question
from testbed.errors import MeasurementError

CONNECTIONS = 4
"""Connections with a frame of questions each: while one is answered, three wait."""
CALLS = 1_000
"""Envoy's calls between two looks at the clock: a fifth of a second."""
_READ_BYTES = 262_144


def _users() -> list[str]:
    return [f"user-{number:04}" for number in range(MAX_CHECKS)]


def batches(path: str) -> Callable[[float], int]:
    """Return what has questions of the batch protocol answered until a time, and counts them."""
    questions = [Question("bench", {"user": user}) for user in _users()]
    texts = [text_of(it) for it in questions]
    records = [record_of(it, *pair) for it, pair in enumerate(zip(questions, texts, strict=True))]
    frame = check_frames([*zip(records, texts, strict=True)])

    def decide(until: float) -> int:
        answered = 0
        with ExitStack() as stack:
            opened = [stack.enter_context(connected(path)) for _ in range(CONNECTIONS)]
            pairs = [(sock, Frames(MAX_ANSWER_BYTES)) for sock in opened]
            for sock in opened:
                sock.sendall(frame)
            while True:
                for sock, frames in pairs:
                    answered += _answered(sock, frames)
                    sock.sendall(frame)
                if time.monotonic() >= until:
                    return answered

    return decide


def _answered(sock: socket.socket, frames: Frames) -> int:
    """Read the answer to a frame; return the number of its answers."""
    while True:
        if not (data := sock.recv(_READ_BYTES)):
            raise MeasurementError("the daemon ended a connection")
        if found := [count for _, count, _ in frames.feed(data)]:
            return sum(found)


def calls(port: int) -> Callable[[float], int]:
    """Return what has calls of Envoy's answered until a time, and counts them."""
    users = _users()
    asked = [question(users[number % len(users)], "free") for number in range(CALLS)]

    def decide(until: float) -> int:
        answered = 0
        with closing(Client(port)) as client:
            while True:
                client.ask(asked)
                answered += len(asked)
                if time.monotonic() >= until:
                    return answered

    return decide


def work() -> None:
    """Keep a daemon busy for as long as each message says."""
    job: dict[str, Any] = child.receive()
    kinds = {"batches": batches(job["path"]), "calls": calls(job["port"])}
    child.send(ready=True)
    while True:
        asked: dict[str, Any] = child.receive()
        began = time.monotonic()
        decided = kinds[asked["kind"]](began + asked["seconds"])
        child.send(per_s=decided / (time.monotonic() - began))


if __name__ == "__main__":
    child.main(work)
