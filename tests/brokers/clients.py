"""The common part of the MQTT clients: their arguments and their output."""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Job:
    """Publish numbered messages, and receive them as a subscriber to the same topic."""

    port: int
    topic: str
    version: int
    """4 or 5."""
    qos: int
    count: int
    size: int
    """The least size of each payload, bytes."""
    alias: bool
    """Whether all messages but the first have an alias in the place of the topic."""
    keep_alive_s: int
    listens: bool
    """Whether it waits for its messages; otherwise for their acknowledgements."""
    authority: str | None
    """The certificate of a server with TLS."""

    def payload(self, number: int) -> str:
        """The payload of a message."""
        return f"{number} ".ljust(self.size, "x")

    @property
    def context(self) -> ssl.SSLContext | None:
        """The client's TLS context; None: no TLS."""
        return ssl.create_default_context(cafile=self.authority) if self.authority else None


Heard: TypeAlias = tuple[list[str], list[int]]
"""Received payloads, and reasons of acknowledgements."""


def jobs() -> list[Job]:
    """Read the plan of each case from the command line; each case has a topic of its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--case", dest="cases", action="append", default=[], help="VERSION/QOS")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--alias", action="store_true")
    parser.add_argument("--keep-alive", dest="keep_alive_s", type=int, default=60)
    parser.add_argument("--deaf", dest="listens", action="store_false")
    parser.add_argument("--authority")
    common = vars(parser.parse_args())
    cases = [tuple(map(int, case.split("/"))) for case in common.pop("cases")]
    return [
        Job(topic=f"limited/{it[0]}/{it[1]}", version=it[0], qos=it[1], **common) for it in cases
    ]


def report(heard: Iterable[Heard]) -> None:
    """Print the numbers of the messages, and the reasons of acknowledgements, of each case."""
    said = [
        {"numbers": [int(payload.split()[0]) for payload in payloads], "reasons": reasons}
        for payloads, reasons in heard
    ]
    print(json.dumps(said))


def play(one: Callable[[Job], Awaitable[Heard]]) -> None:
    """Do all jobs at a time."""

    async def main() -> None:
        report(await asyncio.gather(*map(one, jobs())))

    asyncio.run(main())
