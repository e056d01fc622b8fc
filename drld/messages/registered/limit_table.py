"""`[[limit]]` whose `match` is about messages, and the readers of its values."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any, Literal

from pydantic import PlainValidator, PrivateAttr

from drld.allocators import ALLOCATORS
from drld.burst import automatic_burst
from drld.config.fields import Kind, counted
from drld.config.problems import Location, Problems
from drld.config.schema import LimitTable, Table
from drld.messages.per_client import MOST
from drld.messages.quantity import BURST, RATE, parse_burst, parse_rate
from drld.messages.spec import ITEM, MESSAGES, ByClient, Excess, MessageMatch
from drld.messages.topics import MAX_FILTER, Notation
from drld.policy import Keyed
from drld.units import QuantityError, Unit

SPLITS = tuple(name for name in ("static", "adaptive") if name in ALLOCATORS)
"""The allocators that divide rate and burst into buckets for which messages can wait."""
MOST_BROKERS = 64
_OF_DIVIDED = ("allocator", "shares", "weights")
"""The keys that only limits without `match.client` have."""


def _rate(value: object) -> int:
    try:
        return parse_rate(value if isinstance(value, str) else "")
    except QuantityError:
        raise ValueError(RATE) from None


def _burst(value: object) -> int | Literal["auto"]:
    if value == "auto":
        return "auto"
    try:
        return parse_burst(value if isinstance(value, str) else "")
    except QuantityError:
        raise ValueError(f'"auto", or {BURST}') from None


def _brokers(value: object) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value  # `drlctl` has texts.
    allowed = f"the name of a broker, or an array of 1 to {MOST_BROKERS} names without repetitions"
    if not isinstance(names, list) or not all(isinstance(it, str) and it for it in names):
        raise ValueError(allowed)
    if not 1 <= len(set(names)) == len(names) <= MOST_BROKERS:
        raise ValueError(allowed)
    return tuple(names)


def _topic(value: object) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_FILTER:
        raise ValueError(f"a topic filter of 1 to {MAX_FILTER} characters")
    return value


class MessageMatchTable(Table):
    """`match`: which messages fall under a limit.

    A message falls under it if it is published to one of the brokers, and its topic matches the
    filter (docs/messages-operations.md).
    """

    broker: Annotated[
        tuple[str, ...],
        PlainValidator(_brokers),
        Kind(f"name of a broker, or array of up to {MOST_BROKERS}"),
    ]
    """Brokers of this limiter, of one protocol; they share the limit's bucket."""
    topic: Annotated[str, PlainValidator(_topic), Kind("topic filter")]
    """Filter in the protocol's own notation: MQTT's `+` and `#`, or `*` and `>` of NATS."""
    client: Literal["id", "user", "address"] | None = None
    """Each client has a bucket of its own, of the whole rate and burst, at each limiter. A client
    is known by its identifier (NATS: its name), by its user name, or by its address. A client
    without an identifier or user name is known by its address. Default: one bucket for all
    clients."""


class MessageLimitTable(LimitTable):
    """Limits on messages.

    Further keys of a limit whose `match` has `topic`. A message waits at each limit that it falls
    under, in the order of the file.
    """

    unit: Annotated[Unit, PlainValidator(counted(MESSAGES)), Kind('`"messages"`')] = MESSAGES
    """What `rate` and `burst` count. Default: `"messages"`."""
    rate: Annotated[
        int, PlainValidator(_rate), Kind("rate, `9/d` to `10M/s`, per `s`, `min`, `h` or `d`")
    ]
    """Messages that all limiters together may let pass."""
    burst: Annotated[
        int | Literal["auto"],
        PlainValidator(_burst),
        Kind('`"auto"`, or number of messages, `1msg` to `1Mmsg`'),
    ] = "auto"
    """Depth of the one token bucket that the fleet emulates, at least one message for each
    limiter; `"auto"` is 0.25 s of the rate."""
    match: MessageMatchTable
    """Target: which messages fall under the limit
    ([below](#match-which-messages-fall-under-a-limit))."""
    on_failure: Literal["closed"] | None = None
    """What passes while the daemon is dead: nothing, for clients are connected to it. Default:
    `"closed"`."""
    excess: Literal["wait", "drop"] = "wait"
    """What happens above the limit: messages wait for a token, with the allocators `static` and
    `adaptive`; or they are acknowledged and dropped, with any allocator."""

    _notation: Notation | None = PrivateAttr(default=None)
    """The notation of the brokers' protocol; `BrokersTable.check` sets it."""

    def set_notation(self, notation: Notation) -> None:
        """Set the notation in which the limit's brokers write topics."""
        self._notation = notation

    def target(self) -> MessageMatch:
        """The messages that fall under the limit."""
        match = self.match
        by = ByClient(match.client) if match.client else None
        return MessageMatch(match.broker, match.topic, by, self._notation)

    @property
    def default_allocator(self) -> str | None:
        """The static split, where messages wait or each client has a bucket."""
        return "static" if self.match.client or self.excess == "wait" else None

    @property
    def _allocator(self) -> str | None:
        """The name of the allocator, if it is a text."""
        if "allocator" not in self.model_fields_set:
            return self.default_allocator
        table = self.allocator if isinstance(self.allocator, dict) else {"name": self.allocator}
        name = table.get("name")
        return name if isinstance(name, str) else None

    def check(self, where: Location, problems: Problems) -> None:
        """Check that the allocator suits the excess, and that a limit with a bucket for each client
        has no key about a division."""
        if self.match.client:
            for key in _OF_DIVIDED:
                if key in self.model_fields_set:
                    problems.add(
                        [*where, key],
                        "must be left out: a limit with match.client has a bucket for each "
                        "client, and nothing is divided",
                    )
        elif self.excess == "wait" and self._allocator in {*ALLOCATORS} - {*SPLITS}:
            names = " or ".join(f'"{name}"' for name in SPLITS)
            problems.refuse(
                [*where, "allocator"],
                self._allocator,
                f'{names} where messages wait, or excess = "drop"',
            )

    def check_members(self, where: Location, members: int, problems: Problems) -> None:
        """Check that each part of the burst has a whole message.

        A bucket of less than one would let messages through beyond the burst, or none (SRTM).
        """
        if self.match.client or self._allocator not in SPLITS:
            return
        burst = automatic_burst(self.rate, self.unit) if self.burst == "auto" else self.burst
        parts = {name: share for name, share in self.shares.items() if share > 0}
        name, least = min(parts.items(), key=lambda it: it[1]) if parts else ("", 1 / members)
        needed = ceil(1 / least - 1e-9)  # A third is no exact fraction.
        if burst < needed * ITEM:
            part = f"the part of {name}, {least:g} of it," if parts else f"each of {members} parts"
            problems.add(
                [*where, "burst"],
                f'must be at least "{needed}msg": {part} must hold a message '
                f'(got "{burst / ITEM:g}msg")',
            )

    def policy(self) -> Mapping[str, Any]:
        """The values of the policy: the excess, and the bucket for each client."""
        policy: dict[str, Any] = {"excess": Excess(self.excess)}
        by = self.match.client
        if by is None:
            return policy
        keyed = Keyed("client", MOST)
        return policy | {"keyed": keyed, "shared": {"match.client": by}}
