"""The cost of a request under a limit, and the most that a limit can admit. Amounts are tokens."""

from __future__ import annotations

from collections.abc import Iterable

from drld.policy import Mode, Policy
from drld.requests.model import Request
from drld.requests.spec import REQUESTS
from drld.spec import LimitSpec
from drld.units import human_amount

DEBT_S = 86_400
"""A charge leaves at most the debt that the limit's rate pays in this time, or the limit's burst if
that is more: a day is the longest period of a rate."""


def amount_under(limit: LimitSpec, request: Request) -> int:
    """Return the cost of a request under a limit; cost 0 asks whether one request would pass."""
    unit, cost = limit.policy.unit, request.cost if request.charge else max(request.cost, 1)
    if request.size is not None and unit != REQUESTS:
        return request.size
    return cost * unit.item


def most_debt(policy: Policy) -> int:
    """Return the most that the bucket of a limit may lack after a charge."""
    if policy.keyed is not None and policy.keyed.bucket == "queue":
        # A queue keeps an element for each token: a day's tokens would stop the daemon for minutes.
        return policy.burst
    return max(policy.rate * DEBT_S, policy.burst)


def oversized(limits: Iterable[LimitSpec], request: Request) -> LimitSpec | None:
    """Return the first enforcing limit whose burst is below the request's cost; None: there is
    none."""
    for limit in limits:
        if amount_under(limit, request) > limit.policy.burst and limit.policy.mode is Mode.ENFORCE:
            return limit
    return None


def above(limit: LimitSpec) -> str:
    """Return the reason of a refusal by this limit, for people."""
    return f"above the limit {limit.name}"


def too_large(limit: LimitSpec) -> str:
    """Return the reason why this limit never admits the request, for people."""
    unit = limit.policy.unit
    burst = human_amount(unit.shown_amount(limit.policy.burst), unit.name)
    return f"its cost is above the burst of the limit {limit.name}, {burst}: it never passes"
