"""What a service sees of a call, and how it ends.

What the codes mean: https://github.com/grpc/grpc/blob/master/doc/statuscodes.md.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import NamedTuple

from drld.errors import DrldError
from drld.requests.caller import Client


class Status(enum.IntEnum):
    """Codes of `grpc-status`, those that are used."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class CallError(DrldError):
    """A call that is answered with another status than OK."""

    def __init__(self, status: Status, message: str) -> None:
        """`message` is in ASCII."""
        super().__init__(message)
        self.status = status


class Origin(NamedTuple):
    """Where a call comes from."""

    client: Client
    """Who has connected."""
    forwarded: tuple[str, ...]
    """The fields `X-Forwarded-For`."""


class Handler(NamedTuple):
    """Answers calls of a method."""

    answer: Callable[[bytes, Origin], bytes]
    """Makes a message of a message, and raises `CallError` or `InputError` if it cannot."""
    streams: bool = False
    """Whether a call has any number of messages, each with its answer; else it has one."""
    farewell: bytes | None = None
    """A call stays open after its answer until the connection ends: then this message ends it.
    None: it does not."""


Handlers = Mapping[bytes, Handler]
"""By the paths of their methods."""
