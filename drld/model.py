"""The five nouns of drld, the same in code, CLI, metrics and docs (docs/architecture.md).

A datapath counts a `Measurement`; the estimators make `Demand` of it; gossip knows the
`GlobalView`; an allocator turns both into an `Enforcement`; an `Update` tells the peers.

Units everywhere: time in integer nanoseconds of one monotonic clock, sizes in tokens of the limit's
unit (`drld.units`), rates in tokens per second. For packets a token is a byte of the IP layer,
without the link header. An item is a packet, a message or a request.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, Protocol, TypeAlias

from drld.record import record

NS_PER_S = 1_000_000_000
HEARTBEAT = 0
"""Limit id of an update that is about no limit. It only shows that its sender is alive."""
GRACE_INTERVALS = 20
"""A daemon that has not ticked for so many of a limit's intervals is dead to its datapath, which
falls back: below the 24 after which the peers of a mesh, and later those of any other fabric, take
its part (gossip/fabrics/membership.py)."""


class FlowKey(NamedTuple):
    """The five-tuple of a flow; addresses packed in network order (4 or 16 bytes).

    Ports are 0 where the protocol has none or where they cannot be known (a later fragment).
    """

    protocol: int
    source: bytes
    destination: bytes
    source_port: int
    destination_port: int


FlowId: TypeAlias = FlowKey | int
"""A datapath's name for a flow: the key itself, or a hash of it (the kernel datapath)."""


NO_COUNTS: Mapping[FlowId, int] = {}
"""The flows of all measurements without flows: an empty dictionary for each takes 64 bytes."""


@record(frozen=True, slots=True)
class Measurement:
    """The counts of a datapath for one limit since the last read.

    `dropped_*` counts the items that this limit itself refused. An item that another limit of
    its list refused is in `arrived_*` only, so arrived >= forwarded + dropped.
    """

    interval_ns: int
    arrived_tokens: int = 0
    arrived_items: int = 0
    forwarded_tokens: int = 0
    forwarded_items: int = 0
    dropped_tokens: int = 0
    dropped_items: int = 0
    flows: Mapping[FlowId, int] = field(default_factory=lambda: NO_COUNTS)
    """Tokens that arrived in this interval for each flow of the bounded sample; a flow that is
    in the sample but was silent has the value 0."""
    hits: Mapping[FlowId, int] = field(default_factory=lambda: NO_COUNTS)
    """Tokens of sampled flows that this limit refused or marked; flows without any are left out."""
    marked_tokens: int = 0
    """Forwarded with a congestion mark (RFC 3168); part of `forwarded_*`."""
    marked_items: int = 0
    owed_tokens: int = 0
    """Charged after the fact, and more than the bucket held; part of `arrived_tokens` and
    `forwarded_tokens`, and of no flow."""
    backlog: int = 0
    """The largest unfinished work since the last read, tokens: what the bucket lacked of its depth,
    and what waited for its tokens. Datapaths whose excess does not wait have none."""
    saturated: bool = False
    """Whether items waited for their tokens at every moment since the last read. Their senders may
    be held back, so that less arrives than they want to send."""

    def plus(self, later: Measurement) -> Measurement:
        """The counters of two measurements in a row, beside the flows of the first one."""
        return Measurement(
            self.interval_ns + later.interval_ns,
            self.arrived_tokens + later.arrived_tokens,
            self.arrived_items + later.arrived_items,
            self.forwarded_tokens + later.forwarded_tokens,
            self.forwarded_items + later.forwarded_items,
            self.dropped_tokens + later.dropped_tokens,
            self.dropped_items + later.dropped_items,
            self.flows,
            self.hits,
            self.marked_tokens + later.marked_tokens,
            self.marked_items + later.marked_items,
            self.owed_tokens + later.owed_tokens,
        )


class SampledFlow(Protocol):
    """The estimators' knowledge of one flow of the sample."""

    fast: float
    """Rate, smoothed over half a second from zero, tokens/s; the rates of all flows sum to the
    limiter's, smoothed in the same way."""
    last: float
    """Rate over the last interval, tokens/s."""
    age_ns: int
    unhit_ns: int
    """Time since the limit refused or marked an item of the flow."""

    @property
    def rate(self) -> float:
        """Mean rate over its life, older times counting less, tokens/s; 0 while it pauses."""

    @property
    def paused(self) -> bool:
        """Whether it has been silent for so long that it counts for nothing."""


@record(frozen=True, slots=True)
class Demand:
    """The demand of one limit, as the estimators see it."""

    rate: float
    """Smoothed arrival rate, tokens/s."""
    instant_rate: float
    """Arrival rate over the last interval alone, tokens/s."""
    flow_rate: float | None
    """Estimated rate of an unbottlenecked flow, tokens/s; None while the sample is empty."""
    long_rate: float
    """Arrival rate smoothed as the flows' rates are, tokens/s: the two may be divided."""
    flows: int
    """Flows in the sample."""
    drop_ratio: float
    """Tokens this limit dropped over tokens that arrived in the last interval, 0 to 1."""
    first: bool
    """Whether this is the first interval with traffic after an idle time."""
    idle: bool
    """Whether nothing has arrived for a second."""
    fastest_rate: float | None = None
    """Rate of the fastest flow of the sample, tokens/s; None while the sample is empty."""
    forwarded_tokens: int = 0
    """Let through in the last interval."""
    sample: Collection[SampledFlow] = ()
    """The sampled flows, in no order."""
    rest: float = 0.0
    """Rate of the flows outside the sample, smoothed as `SampledFlow.fast` is, tokens/s."""
    backlog: int = 0
    """The largest unfinished work, tokens (`Measurement.backlog`)."""
    saturated: bool = False
    """Whether items waited at every moment (`Measurement.saturated`)."""


@record(frozen=True, slots=True)
class GlobalView:
    """The knowledge of gossip about the other limiters of one limit."""

    remote: float
    """Sum over the other connected limiters of the shared quantity (tokens/s or flow weight)."""
    connected: frozenset[str]
    """Names of the other limiters from which fresh updates of this limit flow."""
    age_ns: int | None
    """Age of the oldest estimate in `remote`; None: no estimate was received."""
    unnamed: int = 0
    """Connected limiters beyond those in `connected`, whose names are not known here."""
    told: float = 0.0
    """The least of this limiter's own values that any other may still believe: the least that it
    told in the last `news_ns`."""
    least_remote: float = 0.0
    """The least `remote` of the last `news_ns`."""
    news_ns: int = 0
    """The largest age of used news, ns: `Fabric.news_ns` and an interval; or the longest age of a
    value that counts, if the allocator asks for that."""
    claims: Sequence[tuple[float, float]] = ()
    """A pair for this limiter and for each connected one: its static share, and the demand that it
    believes the other limiters to have, this limiter left out.

    This is for fleets whose limiters know different peers. Empty: `remote` holds for all shares.
    """
    second: GlobalView | None = None
    """The view of the allocator's second quantity; None: it has none."""


@record(frozen=True, slots=True)
class Enforcement:
    """The duty of a datapath for one limit until the next tick.

    Random drop comes first and takes no token. Tokens are settled at the old rate before a new
    one applies and never exceed the depth. `depth` None means no bucket. A credit is added once
    for each new `credit_id`, so that repeating a record grants nothing twice.

    Fair dropping (`flow_rate` above 0): each flow of the sample has a bucket of its own beside the
    limit's (drld.police.flow_bucket). An item passes only if it leaves, in the limit's bucket,
    the part of `reserve` that its flow has used of its own bucket, or meets a full bucket. So flows
    below `flow_rate` find tokens.
    """

    drop_probability: float = 0.0
    fill_rate: int = 0
    """Rate at which the bucket fills, tokens/s; a negative rate drains it."""
    depth: int | None = None
    """Most tokens that the bucket holds; None: there is no bucket."""
    credit: int = 0
    """Tokens that the bucket gets once."""
    credit_id: int = 0
    flow_rate: int = 0
    """Fill rate of each sampled flow's bucket, tokens/s; 0: flows are not policed one by one."""
    flow_depth: int = 0
    """Depth of each sampled flow's bucket, tokens."""
    reserve: int = 0
    """Tokens that a flow with an empty bucket of its own leaves in the limit's bucket."""


class Quantity(enum.Enum):
    """The quantity of an update's value; the number is its code on the wire, of two bits."""

    RATE = 0
    """Tokens/s (GTB, GRD, static, adaptive)."""
    WEIGHT = 1
    """Flow weight: the equivalent number of unbottlenecked flows (`fair`, FPS)."""
    BACKLOG = 2
    """Tokens of unfinished work: the second quantity of `adaptive`."""


@record(frozen=True, slots=True)
class Update:
    """One limiter's news of one limit to one peer, as far as all fabrics have it in common.

    Each fabric adds fields of its own (`drld.gossip.fabrics`, docs/wire-format.md).
    """

    limit_id: int
    sequence: int
    """Counter of the (sender, receiver, limit) triple, mod 2**32."""
    quantity: Quantity
    hears: bool
    """Whether the sender hears the receiver."""
    value: float
    """The value in the unit of `quantity`; once encoded, exactly representable as float32."""
