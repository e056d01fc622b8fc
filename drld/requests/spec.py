"""The configuration of requests: the target of a limit, and the addresses of the daemon's front."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Any, ClassVar, TypeAlias

from drld.requests.descriptor import Descriptor
from drld.spec import LimitSpec, PlaneSpec, ServerTls, Target, format_endpoint
from drld.units import Unit

ITEM = 1_000_000
"""The tokens of one request: a share may be 0.3 requests a second."""
REQUESTS = Unit(
    name="requests",
    item=ITEM,
    # A rate is a whole number of tokens a second: from here on it is exact to 1 %.
    min_rate=100,
    max_rate=10_000_000 * ITEM,
    max_burst=1_000_000 * ITEM,
)
"""Requests: from 9 a day to 10 million a second."""

Network: TypeAlias = IPv4Network | IPv6Network

Address: TypeAlias = tuple[str, int] | str
"""A TCP address and port, or the path of a unix socket."""


class Excess(enum.Enum):
    """What a limit does with requests above it."""

    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class RequestMatch(Target):
    """The target of a limit: requests of a namespace whose descriptor has all pairs, and all names
    of the limit's keys."""

    items: ClassVar[str] = "requests"
    flow: ClassVar[str] = "caller"

    namespace: str
    where: Descriptor = field(default_factory=dict)
    per: tuple[str, ...] = ()
    """The names of a key's pairs: each combination of their values has a bucket; none: one limit
    for all requests."""

    def __str__(self) -> str:
        """Return the namespace, the pairs and the names of a key, for lists."""
        pairs = [f"{name}={it}" for name, it in self.where.items()]
        return " ".join([self.namespace, *pairs, *(f"per {name}" for name in self.per)])

    def written(self) -> dict[str, str]:
        """See `Target.written`; empty `where` and `per` are left out."""
        where = ",".join(f"{name}={value}" for name, value in self.where.items())
        found = {"namespace": self.namespace, "where": where, "per": ",".join(self.per)}
        return {name: value for name, value in found.items() if value}

    def data(self) -> dict[str, Any]:
        """See `Target.data`."""
        return {"namespace": self.namespace, "where": {**self.where}, "per": [*self.per]}


def match_of(limit: LimitSpec) -> RequestMatch:
    """Return the target of a limit on requests."""
    assert isinstance(limit.match, RequestMatch)
    return limit.match


@dataclass(frozen=True, slots=True)
class RequestsSpec(PlaneSpec):
    """The addresses of one daemon for questions on requests, and the settings of its answers."""

    key: ClassVar[str] = "requests"

    listen: tuple[Address, ...] = ()
    """The addresses; none: there are no limits on requests here."""
    trusted_proxies: tuple[Network, ...] = ()
    """The networks of clients whose `X-Forwarded-For` names the caller."""
    tls: ServerTls | None = field(default=None, compare=False)
    """The certificate of all TCP addresses; None: no TLS."""
    peer_port: int | None = None
    """The UDP port on which limiters exchange news of keys; None: the port of gossip plus one."""

    @property
    def serves(self) -> bool:
        """See `PlaneSpec.serves`."""
        return bool(self.listen)

    def port_of_keys(self, gossip: int) -> int:
        """Return the UDP port on which a limiter exchanges news of keys, by its port for gossip."""
        return self.peer_port or gossip + 1

    def fixed(self) -> Mapping[str, Any]:
        """Return the addresses and the port in the form of a file."""
        written = [it if isinstance(it, str) else format_endpoint(*it) for it in self.listen]
        return {"listen": written or None, "peer_port": self.peer_port}
