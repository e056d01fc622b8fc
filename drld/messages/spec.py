"""What a configuration asks of messages: the target of a limit, and the brokers of a daemon."""

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
"""Bytes of messages that wait at a broker before its clients are not read any more."""
DEFAULT_MAX_CONNECTIONS = 10_000

Address: TypeAlias = tuple[str, int] | str
"""A TCP address and port, or the path of a unix socket."""


class Excess(enum.Enum):
    """What becomes of messages above the limit."""

    WAIT = "wait"
    """They leave in their order, each when its token is there."""
    DROP = "drop"
    """They are acknowledged and thrown away."""


class ByClient(enum.Enum):
    """What tells clients apart where each has a bucket of its own."""

    ID = "id"
    """MQTT's client identifier, or the name in NATS' CONNECT."""
    USER = "user"
    """The user name that it connects with."""
    ADDRESS = "address"
    """The address that it connects from."""


NOTATIONS: Mapping[str, Notation] = {"mqtt": Notation.MQTT, "nats": Notation.NATS}
"""How the protocols write topics, by their names in a configuration."""


@dataclass(frozen=True, slots=True)
class MessageMatch(Target):
    """Which messages fall under a limit: those to a broker whose topic matches a filter."""

    items: ClassVar[str] = "messages"
    flow: ClassVar[str] = "client"

    broker: tuple[str, ...]
    """Names of brokers of this daemon, of one protocol; they share the bucket."""
    topic: str
    """A topic filter in the notation of their protocol."""
    client: ByClient | None = None
    """Each client has a bucket of its own; None: one bucket for all."""
    notation: Notation | None = field(default=None, compare=False)
    """That of the filter; None: the brokers are not known where this was made."""

    def __str__(self) -> str:
        """For lists: the brokers, the filter, and what makes a client."""
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
    """A broker, and where drld takes its clients' connections."""

    name: str
    protocol: str
    """`mqtt` or `nats`."""
    listen: tuple[Address, ...]
    server: Address
    """Where the broker itself listens."""
    hold: int = DEFAULT_HOLD
    """Bytes of messages that may wait here; above it, clients are not read."""
    timestamps: str = "auto"
    """Source of arrival times: `auto`, `socket`, `kernel` or `read`."""
    accept_proxy: bool = False
    """Whether each connection of a client begins with a header of the PROXY protocol, version 1 or
    2, that says its real address."""
    send_proxy: bool = False
    """Whether each connection to the broker begins with one, of version 2."""
    tls: ServerTls | None = field(default=None, compare=False)
    """For clients at TCP addresses; None: no TLS."""
    max_connections: int = DEFAULT_MAX_CONNECTIONS
    max_frame: int = MAX_FRAME
    """Bytes of the largest frame that a client may send."""

    @property
    def notation(self) -> Notation:
        """How its protocol writes topics."""
        return NOTATIONS[self.protocol]


@dataclass(frozen=True, slots=True)
class MessagesSpec(PlaneSpec):
    """The brokers whose clients one daemon serves."""

    key: ClassVar[str] = "broker"

    brokers: tuple[BrokerSpec, ...] = ()
    """None: there are no limits on messages here."""

    @property
    def serves(self) -> bool:
        """See `PlaneSpec.serves`."""
        return bool(self.brokers)

    def fixed(self) -> Mapping[str, Any]:
        """Nothing: a reload adds, changes and removes brokers (`drld.messages.front.server`)."""
        return {}
