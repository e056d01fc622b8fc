"""The nouns of requests: the question of a client, and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from drld.requests.descriptor import Descriptor
from drld.spec import LimitSpec


class Request(NamedTuple):
    """A request that a client asks about."""

    namespace: str
    descriptor: Descriptor
    cost: int = 1
    """The number of requests that it counts for; 0 asks, and takes nothing."""
    size: int | None = None
    """The bytes that it counts for under a limit on bytes; None: a typical item for each
    request."""
    caller: str = ""
    """The sender of the request: the flow that it belongs to."""
    at_least: int | None = None
    """The least cost of use: the limits admit as much of `cost` as they can, from this on, and a
    size in proportion; None: all of `cost` or nothing."""
    charge: bool = False
    """Whether the request has been carried out already: its cost is charged in any case, and the
    buckets' shortfall is debt. Cost 0 charges the size alone."""

    def part(self, cost: int) -> Request:
        """Return this request at a smaller cost, at least 1, and a size in proportion, rounded
        up."""
        size = None if self.size is None else -(-self.size * cost // self.cost)
        return self._replace(cost=cost, size=size)


class Standing(NamedTuple):
    """The state of a limit after the decision on a request; amounts are tokens."""

    limit: LimitSpec
    amount: int
    """The cost of the request under the limit."""
    remaining: int | None
    """The tokens in the bucket here; None: there is no bucket."""
    reset_ns: int | None
    """The time until the bucket is full if no other request comes; None: it does not fill."""
    wait_ns: int | None
    """The time until the limit would admit the request if no other came; None: it will not."""


class Answer(NamedTuple):
    """The decision on a request."""

    admitted: bool
    standings: Sequence[Standing]
    """The states of the limits that it falls under, in the order of the configuration."""
    refused: Standing | None
    """The first limit that refuses the request; None: it is admitted."""
    reason: str | None
    """The reason of a refusal, or that no limit covers the request, for people."""
    granted: int = 0
    """The part of the cost that is admitted or charged."""

    @property
    def retry_ns(self) -> int | None:
        """The time until no limit would refuse the request; None: it was admitted, or no time is
        known."""
        if self.admitted:
            return None
        waits = [it.wait_ns for it in self.standings]
        known = [wait_ns for wait_ns in waits if wait_ns is not None]
        return None if len(known) < len(waits) else max(known, default=None)
