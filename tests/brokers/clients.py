"""What the clients of MQTT here have in common: their arguments, and what they print."""

from __future__ import annotations

import argparse
import json
import ssl
from dataclasses import dataclass


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
    """Of each payload, bytes at least."""
    alias: bool
    """Whether all messages but the first have an alias in the place of the topic."""
    keep_alive_s: int
    listens: bool
    """Whether it waits for its messages; otherwise for their acknowledgements."""
    authority: str | None
    """The certificate of a server with TLS."""

    def payload(self, number: int) -> str:
        """Of a message."""
        return f"{number} ".ljust(self.size, "x")

    @property
    def context(self) -> ssl.SSLContext | None:
        """For TLS, if there is any."""
        return ssl.create_default_context(cafile=self.authority) if self.authority else None


def job() -> Job:
    """From the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("topic")
    parser.add_argument("--version", type=int, default=4)
    parser.add_argument("--qos", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--alias", action="store_true")
    parser.add_argument("--keep-alive", dest="keep_alive_s", type=int, default=60)
    parser.add_argument("--deaf", dest="listens", action="store_false")
    parser.add_argument("--authority")
    return Job(**vars(parser.parse_args()))


def report(received: list[str], reasons: list[int]) -> None:
    """Print the numbers of the received messages, and the reasons of acknowledgements."""
    print(json.dumps({"numbers": [int(it.split()[0]) for it in received], "reasons": reasons}))
