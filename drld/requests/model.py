"""The nouns of requests: what a client asks, and what it is answered."""

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
    """Requests that it counts for; 0 asks, and takes nothing."""
    size: int | None = None
    """Bytes that it counts for under a limit on bytes; None: a typical item for each request."""
    caller: str = ""
    """Who sends it: the flow that it belongs to."""
    at_least: int | None = None
    """Least cost that is of use: as much from here to `cost` is admitted as all limits allow; None:
    all of `cost` or nothing. A size is then charged in proportion."""
    charge: bool = False
    """Whether it has been carried out already: its cost is charged whatever is left, and what the
    buckets lack is debt. Cost 0 charges the size alone."""

    def part(self, cost: int) -> Request:
        """This request at a smaller cost, from 1 on, and a size in proportion, rounded up."""
        size = None if self.size is None else -(-self.size * cost // self.cost)
        return self._replace(cost=cost, size=size)


class Standing(NamedTuple):
    """How a limit stands to a request, after the decision; amounts are tokens."""

    limit: LimitSpec
    amount: int
    """What the request costs under it."""
    remaining: int | None
    """In the bucket here; None: there is no bucket."""
    reset_ns: int | None
    """Time until the bucket is full if nothing else comes; None: it does not fill."""
    wait_ns: int | None
    """Time until it would admit the request if no other came; None: it will not."""


class Answer(NamedTuple):
    """The decision on a request."""

    admitted: bool
    standings: Sequence[Standing]
    """Of the limits that it falls under, in the order of the configuration."""
    refused: Standing | None
    """The first limit that refuses it."""
    reason: str | None
    """Why it is refused, for people."""
    granted: int = 0
    """The part of the cost that is admitted or charged."""

    @property
    def retry_ns(self) -> int | None:
        """Time until no limit would refuse it; None: it was admitted, or none can be told."""
        if self.admitted:
            return None
        waits = [it.wait_ns for it in self.standings]
        known = [wait_ns for wait_ns in waits if wait_ns is not None]
        return None if len(known) < len(waits) else max(known, default=None)
