"""The protocols of message brokers by their names in the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol as Shape

from drld.messages.frame import MAX_FRAME, Client, Reader, Returns
from drld.messages.mqtt import MqttReader
from drld.messages.mqtt_packet import MQTT_5, SHUTTING_DOWN, topic_of
from drld.messages.mqtt_returns import MqttReturns
from drld.messages.nats import NatsReader, NatsReturns, subject_of
from drld.messages.topics import TopicCache


class ReturnsFactory(Shape):
    """Makes the `Returns` of a connection."""

    def __call__(self, max_frame: int = MAX_FRAME, *, tls: bool = False) -> Returns:
        """Make it.

        Args:
            max_frame: the largest frame that drld takes of the client, bytes.
            tls: whether drld asks the client for TLS.
        """
        ...


class ReaderFactory(Shape):
    """Makes the `Reader` of a connection."""

    def __call__(self, max_frame: int, topics: TopicCache | None = None) -> Reader:
        """Make the reader.

        Args:
            max_frame: the largest frame in bytes.
            topics: the cache of the broker's topics; None: the reader has its own.
        """
        ...


@dataclass(frozen=True)
class Protocol:
    """The codecs and the habits of a protocol."""

    reader: ReaderFactory
    topic: Callable[[bytes], str]
    """Decodes a topic, for the `TopicCache` that the readers of a broker share."""
    returns: ReturnsFactory
    tls_after_greeting: bool
    """Whether TLS begins only behind the broker's first frame (NATS). The bytes that `Returns.feed`
    returns until it has `greeted` go to the client without TLS."""
    one_per_client: bool
    """Whether the broker ends the older one of two connections with the same client identifier."""
    ping: bytes
    """The frame that every broker answers at once, behind what it has sent before."""
    pong: bytes
    """The frame that answers the broker's pings; empty: the broker sends none."""
    keep_alive: bool
    """Whether the broker ends the connection of a silent client; otherwise it asks the client."""
    asks_for_verdict: bool
    """Whether drld has to ask the broker if it accepts a client: by `ping` behind CONNECT."""
    farewell: bytes
    """The frame with which a client leaves, so that the broker does not publish its will; empty:
    there are no wills."""
    goodbye: Callable[[Client], bytes]
    """The frame that tells a client that drld ends the connection; empty: there is none."""


PROTOCOLS: Mapping[str, Protocol] = {
    "mqtt": Protocol(
        MqttReader,
        topic_of,
        MqttReturns,
        tls_after_greeting=False,
        one_per_client=True,
        ping=b"\xc0\0",
        pong=b"",
        keep_alive=True,
        asks_for_verdict=False,
        farewell=b"\xe0\0",
        goodbye=lambda client: SHUTTING_DOWN if client.version == MQTT_5 else b"",
    ),
    "nats": Protocol(
        NatsReader,
        subject_of,
        NatsReturns,
        tls_after_greeting=True,
        one_per_client=False,
        ping=b"PING\r\n",
        pong=b"PONG\r\n",
        keep_alive=False,
        asks_for_verdict=True,
        farewell=b"",
        goodbye=lambda _: b"",
    ),
}
