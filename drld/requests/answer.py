"""An answer as a client gets it: a JSON object, and the fields of HTTP.

The fields are those of draft-ietf-httpapi-ratelimit-headers. `RateLimit-Policy` has each limit's
quota `q` in the window `w`. `RateLimit` has the remainder (`r`) and the seconds until the bucket is
full (`t`). The fields of a refusal name only the limits that refuse. Their `t` is the time to wait,
so `Retry-After` is never earlier.
"""

from __future__ import annotations

import math
from typing import TypedDict

from drld.model import NS_PER_S
from drld.requests.model import Answer, Standing
from drld.requests.quantity import quota
from drld.requests.spec import REQUESTS
from drld.spec import LimitSpec, OnFailure

MAX_FIELDS = 16
"""The most limits in a field; the JSON object has all."""


class LimitAnswer(TypedDict):
    """The state of one limit after a request; rates and amounts are requests, or bytes."""

    limit: str
    unit: str
    mode: str
    quota: int
    """The number that the whole fleet admits in the window."""
    window_s: int
    burst: float
    remaining: float | None
    """The remainder in the bucket of the limiter that answers; None: the limit is paused."""
    reset_s: float | None
    """The time until that bucket is full, if no other request comes."""
    on_failure: str
    """How a client decides while no limiter answers: `share`, `open` or `closed`."""


class CheckAnswer(TypedDict):
    """The decision on a request."""

    admitted: bool
    granted: int
    """The admitted part of the cost: below the cost only with `at_least`; 0: the request is
    refused."""
    limit: str | None
    """The limit that refuses; otherwise the limit with the smallest part of its burst left."""
    remaining: float | None
    """The remainder of that limit: requests, or bytes."""
    retry_after_s: float | None
    """The time after which the request would be admitted if no other came; None: it is admitted
    now, or never will be."""
    reason: str | None
    limits: list[LimitAnswer]


def body(answer: Answer) -> CheckAnswer:
    """Return the JSON object."""
    closest = tightest(answer)
    retry_ns = answer.retry_ns
    return CheckAnswer(
        admitted=answer.admitted,
        granted=answer.granted,
        limit=closest.limit.name if closest else None,
        remaining=remaining_of(closest) if closest else None,
        retry_after_s=None if retry_ns is None else retry_ns / NS_PER_S,
        reason=answer.reason,
        limits=[_limit(it) for it in answer.standings],
    )


def fields(answer: Answer) -> dict[str, str]:
    """Return the fields of HTTP."""
    shown = [it for it in answer.standings if answer.admitted or it.wait_ns != 0]
    shown = (shown or ([answer.refused] if answer.refused else []))[:MAX_FIELDS]
    found = {}
    if shown:
        found["ratelimit-policy"] = ", ".join(map(_policy, shown))
    if rates := [_rate(it) for it in shown if it.remaining is not None]:
        found["ratelimit"] = ", ".join(rates)
    if answer.retry_ns is not None:
        found["retry-after"] = str(max(_seconds(answer.retry_ns), 1))
    return found


def tightest(answer: Answer) -> Standing | None:
    """Return the limit that refuses, otherwise the limit with the smallest part of its burst
    left."""
    return answer.refused or min(answer.standings, key=_part_left, default=None)


def failure_word(limit: LimitSpec) -> str:
    """Return how a client decides while no limiter answers."""
    on_failure = limit.on_failure
    return "share" if on_failure is OnFailure.DEFAULT else on_failure.value


def _limit(standing: Standing) -> LimitAnswer:
    policy = standing.limit.policy
    number, window_s = quota_of(standing)
    reset_ns = standing.reset_ns
    return LimitAnswer(
        limit=policy.name,
        unit=policy.unit.name,
        mode=policy.mode.value,
        quota=number,
        window_s=window_s,
        burst=policy.unit.shown_amount(policy.burst),
        remaining=remaining_of(standing),
        reset_s=None if reset_ns is None else reset_ns / NS_PER_S,
        on_failure=failure_word(standing.limit),
    )


def _policy(standing: Standing) -> str:
    number, window_s = quota_of(standing)
    unit = "" if standing.limit.policy.unit == REQUESTS else ';qu="content-bytes"'
    # Names have no character that a string of structured fields would have to escape.
    return f'"{standing.limit.name}";q={number};w={window_s}{unit}'


def _rate(standing: Standing) -> str:
    remaining = math.floor(remaining_of(standing) or 0)
    waiting = standing.wait_ns or standing.reset_ns
    after = "" if waiting is None else f";t={_seconds(waiting)}"
    return f'"{standing.limit.name}";r={remaining}{after}'


def quota_of(standing: Standing) -> tuple[int, int]:
    """Return the number of requests or bytes that the fleet admits in a window, and the window,
    s."""
    policy = standing.limit.policy
    return quota(policy.rate) if policy.unit == REQUESTS else (policy.rate, 1)


def remaining_of(standing: Standing) -> float | None:
    """Return the remainder of the bucket here, requests or bytes; None: there is no bucket."""
    unit, remaining = standing.limit.policy.unit, standing.remaining
    return None if remaining is None else unit.shown_amount(remaining)


def _part_left(standing: Standing) -> float:
    remaining = standing.remaining
    return math.inf if remaining is None else remaining / standing.limit.policy.burst


def _seconds(time_ns: int) -> int:
    return -(-time_ns // NS_PER_S)
