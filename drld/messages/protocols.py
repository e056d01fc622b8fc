"""The protocols of message brokers, by their names in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol as Shape

from drld.messages.frame import Reader, Returns
from drld.messages.mqtt import MqttReader, MqttReturns
from drld.messages.nats import NatsReader, NatsReturns


class ReturnsFactory(Shape):
    """Makes the `Returns` of a connection."""

    def __call__(self, *, tls: bool = False) -> Returns:
        """`tls`: whether drld asks its client for TLS."""
        ...


class ReaderFactory(Shape):
    """Makes the `Reader` of a connection."""

    def __call__(self, max_frame: int) -> Reader:
        """`max_frame`: the largest frame, bytes."""
        ...


@dataclass(frozen=True)
class Protocol:
    """How a broker's connections are read."""

    reader: ReaderFactory
    returns: ReturnsFactory
    tls_after_greeting: bool
    """Whether TLS begins only after the broker's first frame, which is sent without (NATS). What
    `Returns.feed` returns until it has `greeted` is sent in the clear."""
    one_per_client: bool
    """Whether the broker ends a client's connection when another one comes with its identifier."""
    ping: bytes = b""
    """Shows a broker that the client is there, within its keep-alive; empty: the broker asks
    itself."""


PROTOCOLS: Mapping[str, Protocol] = {
    "mqtt": Protocol(
        MqttReader, MqttReturns, tls_after_greeting=False, one_per_client=True, ping=b"\xc0\0"
    ),
    "nats": Protocol(NatsReader, NatsReturns, tls_after_greeting=True, one_per_client=False),
}
