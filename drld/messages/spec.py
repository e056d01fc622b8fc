"""The configuration of messages: the target of a limit, and the brokers of a daemon."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from drld.messages.frame import MAX_FRAME
from drld.messages.topics import Notation
from drld.spec import LimitSpec, PlaneSpec, ServerTls, Target
from drld.units import Unit

ITEM = 1_000_000
"""Tokens that one message costs: a share may be 0.3 messages a second."""
MESSAGES = Unit(
    name="messages",
    item=ITEM,
    # A rate is a whole number of tokens a second: from here on it is exact to 1 %.
    min_rate=100,
    max_rate=10_000_000 * ITEM,
    max_burst=1_000_000 * ITEM,
)
"""Messages: from 9 a day to 10 million a second."""

DEFAULT_HOLD = 64 * 2**20
"""Bytes of messages that may wait at a broker."""
DEFAULT_MAX_CONNECTIONS = 10_000
"""Clients that may be connected to a broker at a time."""

Address: TypeAlias = tuple[str, int] | str
"""A TCP address and port, or the path of a unix socket."""


class Excess(enum.Enum):
    """The treatment of messages above the limit."""

    WAIT = "wait"
    """The messages leave in their order, each when its token is there."""
    DROP = "drop"
    """The messages are acknowledged and thrown away."""


class ByClient(enum.Enum):
    """The property by which clients are known where each has a bucket of its own."""

    ID = "id"
    """MQTT's client identifier, or the name in NATS' CONNECT."""
    USER = "user"
    """The user name with which the client connects."""
    ADDRESS = "address"
    """The address from which the client connects."""


NOTATIONS: Mapping[str, Notation] = {"mqtt": Notation.MQTT, "nats": Notation.NATS}
"""The notations of topics by the names of the protocols in a configuration."""


@dataclass(frozen=True, slots=True)
class MessageMatch(Target):
    """The messages under a limit: those to a broker whose topic matches a filter."""

    items: ClassVar[str] = "messages"
    flow: ClassVar[str] = "client"

    broker: tuple[str, ...]
    """The names of brokers of this daemon, of one protocol; they share the bucket."""
    topic: str
    """A topic filter in the notation of their protocol."""
    client: ByClient | None = None
    """The property by which clients have a bucket of their own; None: one bucket for all."""
    notation: Notation | None = field(default=None, compare=False)
    """The notation of the filter; None: the brokers were not known where this was made."""

    def __str__(self) -> str:
        """For lists: the brokers, the filter, and the property of clients."""
        per = [] if self.client is None else [f"per client {self.client.value}"]
        return " ".join([",".join(self.broker), self.topic, *per])

    def written(self) -> dict[str, str]:
        """See `Target.written`; `client` is there if there is one."""
        found = {"broker": ",".join(self.broker), "topic": self.topic}
        return found if self.client is None else found | {"client": self.client.value}


def match_of(limit: LimitSpec) -> MessageMatch:
    """The target of a limit on messages."""
    assert isinstance(limit.match, MessageMatch)
    return limit.match


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """A broker, and the addresses on which drld takes its clients' connections."""

    name: str
    protocol: str
    """`mqtt` or `nats`."""
    listen: tuple[Address, ...]
    server: Address
    """The address of the broker itself."""
    hold: int = DEFAULT_HOLD
    """Bytes that may wait here; above this bound, drld does not read the clients that wait."""
    timestamps: str = "auto"
    """The source of arrival times: `auto`, `socket`, `kernel` or `read`."""
    accept_proxy: bool = False
    """Whether each connection of a client begins with a header of the PROXY protocol, version 1 or
    2, with its real address."""
    send_proxy: bool = False
    """Whether each connection to the broker begins with such a header, of version 2."""
    tls: ServerTls | None = field(default=None, compare=False)
    """TLS for clients at TCP addresses; None: they speak no TLS."""
    max_connections: int = DEFAULT_MAX_CONNECTIONS
    """The most clients that may be connected at a time."""
    max_frame: int = MAX_FRAME
    """The largest frame that a client may send, bytes."""

    @property
    def notation(self) -> Notation:
        """The notation of topics in the broker's protocol."""
        return NOTATIONS[self.protocol]


@dataclass(frozen=True, slots=True)
class MessagesSpec(PlaneSpec):
    """The brokers before which one daemon stands."""

    key: ClassVar[str] = "broker"

    brokers: tuple[BrokerSpec, ...] = ()
    """The brokers; empty: this daemon has no limits on messages."""

    @property
    def serves(self) -> bool:
        """See `PlaneSpec.serves`."""
        return bool(self.brokers)

    def fixed(self) -> Mapping[str, Any]:
        """Nothing: a reload adds, changes and removes brokers (`drld.messages.front.server`)."""
        return {}
