"""An answer as a client gets it: a JSON object, and the fields of HTTP.

The fields are those of draft-ietf-httpapi-ratelimit-headers: `RateLimit-Policy` has each limit's
quota `q` in the window `w`, `RateLimit` what remains (`r`) and in how many seconds the bucket is
full (`t`). A refusal has the limits that refuse alone; there, `t` is the time to wait, so that
`Retry-After` is never before it.
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
"""Limits in a field: the others are in the JSON object."""


class LimitAnswer(TypedDict):
    """How one limit stands to a request; rates and amounts are requests, or bytes."""

    limit: str
    unit: str
    mode: str
    quota: int
    """What the whole fleet admits in the window."""
    window_s: int
    burst: float
    remaining: float | None
    """In the bucket of the limiter that answers; None: the limit is paused."""
    reset_s: float | None
    """Time until that bucket is full, if nothing else comes."""
    on_failure: str
    """What a client should do while no limiter answers: `share`, `open` or `closed`."""


class CheckAnswer(TypedDict):
    """The decision on a request."""

    admitted: bool
    granted: int
    """What is admitted of its cost: less only where it names the least of use; 0: it is refused."""
    limit: str | None
    """The limit that refuses; else the one with the smallest part of its burst left."""
    remaining: float | None
    """What that limit has left: requests, or bytes."""
    retry_after_s: float | None
    """Time after which it would be admitted if nothing else came; None: it is, or never will be."""
    reason: str | None
    limits: list[LimitAnswer]


def body(answer: Answer) -> CheckAnswer:
    """The JSON object."""
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
    """The fields of HTTP."""
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
    """The limit that refuses, else the one with the smallest part of its burst left."""
    return answer.refused or min(answer.standings, key=_part_left, default=None)


def failure_word(limit: LimitSpec) -> str:
    """What a client does while no limiter answers."""
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
    """What the fleet admits under a limit, requests or bytes, and the window of that, s."""
    policy = standing.limit.policy
    return quota(policy.rate) if policy.unit == REQUESTS else (policy.rate, 1)


def remaining_of(standing: Standing) -> float | None:
    """What the bucket here has left, requests or bytes; None: there is no bucket."""
    unit, remaining = standing.limit.policy.unit, standing.remaining
    return None if remaining is None else unit.shown_amount(remaining)


def _part_left(standing: Standing) -> float:
    remaining = standing.remaining
    return math.inf if remaining is None else remaining / standing.limit.policy.burst


def _seconds(time_ns: int) -> int:
    return -(-time_ns // NS_PER_S)
