"""What a configuration asks of requests: the target of a limit, and where a daemon answers."""

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
"""Tokens that one request costs: a share may be 0.3 requests a second."""
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
    """What becomes of requests above the limit."""

    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class RequestMatch(Target):
    """Which requests fall under a limit: those of a namespace whose descriptor has all pairs, and
    all names of its keys."""

    items: ClassVar[str] = "requests"
    flow: ClassVar[str] = "caller"

    namespace: str
    where: Descriptor = field(default_factory=dict)
    per: tuple[str, ...] = ()
    """Names of pairs: each combination of their values has a bucket; none: one limit for all."""

    def __str__(self) -> str:
        """For lists: the namespace, the pairs, and what makes a key."""
        pairs = [f"{name}={it}" for name, it in self.where.items()]
        return " ".join([self.namespace, *pairs, *(f"per {name}" for name in self.per)])

    def written(self) -> dict[str, str]:
        """See `Target.written`; `where` and `per` are there if there are any."""
        where = ",".join(f"{name}={value}" for name, value in self.where.items())
        found = {"namespace": self.namespace, "where": where, "per": ",".join(self.per)}
        return {name: value for name, value in found.items() if value}

    def data(self) -> dict[str, Any]:
        """See `Target.data`."""
        return {"namespace": self.namespace, "where": {**self.where}, "per": [*self.per]}


def match_of(limit: LimitSpec) -> RequestMatch:
    """The target of a limit on requests."""
    assert isinstance(limit.match, RequestMatch)
    return limit.match


@dataclass(frozen=True, slots=True)
class RequestsSpec(PlaneSpec):
    """Where one daemon answers whether requests may pass."""

    key: ClassVar[str] = "requests"

    listen: tuple[Address, ...] = ()
    """None: there are no limits on requests here."""
    trusted_proxies: tuple[Network, ...] = ()
    """Clients whose `X-Forwarded-For` says who calls."""
    tls: ServerTls | None = field(default=None, compare=False)
    """Of all TCP addresses; None: no TLS."""
    peer_port: int | None = None
    """UDP port of all limiters for what they admit of keys; None: one above that of gossip."""

    @property
    def serves(self) -> bool:
        """See `PlaneSpec.serves`."""
        return bool(self.listen)

    def port_of_keys(self, gossip: int) -> int:
        """The UDP port of a limiter for what it admits of keys, by its port for gossip."""
        return self.peer_port or gossip + 1

    def fixed(self) -> Mapping[str, Any]:
        """The addresses, as a file has them."""
        written = [it if isinstance(it, str) else format_endpoint(*it) for it in self.listen]
        return {"listen": written or None, "peer_port": self.peer_port}
