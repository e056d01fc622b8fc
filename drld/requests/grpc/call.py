"""What a service sees of a call, and how a call ends.

https://github.com/grpc/grpc/blob/master/doc/statuscodes.md explains the codes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

from drld.errors import DrldError
from drld.requests.caller import Client


class Status(enum.IntEnum):
    """The codes of `grpc-status` that the front uses."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class CallError(DrldError):
    """A call must be answered with another status than OK."""

    def __init__(self, status: Status, message: str) -> None:
        """`message` is in ASCII."""
        super().__init__(message)
        self.status = status


class Origin(NamedTuple):
    """The origin of a call."""

    client: Client
    """The client of the connection."""
    forwarded: tuple[str, ...]
    """The fields `X-Forwarded-For`."""


class Handler(NamedTuple):
    """Answers the calls of a method."""

    answer: Callable[[bytes, Origin], bytes]
    """Returns the answer to a message; raises `CallError` or `InputError` if there is none."""
    streams: bool = False
    """Whether a call has any number of messages, each with its answer; otherwise it has one."""
    farewell: bytes | None = None
    """The last message of a call that stays open after its answer until the connection ends; None:
    a call does not stay open."""
    too_large: bytes | None = None
    """The answer to a message above a bound on bytes; None: the call ends with
    RESOURCE_EXHAUSTED."""


Handlers = Mapping[bytes, Handler]
"""Handlers by the paths of their methods."""
