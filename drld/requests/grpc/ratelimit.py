"""Envoy's rate limit service (envoy.service.ratelimit.v3): the meaning of its messages in drld.

| Envoy | drld |
|---|---|
| domain | namespace |
| descriptors | requests that pass together, or not at all |
| entries of a descriptor | pairs of a descriptor |
| entry `caller`, otherwise `remote_address` | the caller of all descriptors |
| entry `remote_address` | a pair, too; an IPv6 address as its /64 |
| entry `charge` = `true` | the cost is known late, so it is charged in any case |
| hits_addend of a descriptor, else of the request | cost and size; 0 of a descriptor only asks |
| limit of a descriptor (an override) | counted and ignored: limits are the operator's |

By default, Envoy lets a request pass if this service answers with an error. So no value that a
client of Envoy chooses may cause an error. A long value, or one that is not UTF-8, is replaced by a
digest. Hits have a greatest number. A descriptor or a message that is too large is refused by the
answer OVER_LIMIT. Only mistakes of the operator are errors. An override is no error for the same
reason.

Envoy's own service honours an override. This one does not: limiters tell each other the tokens of a
key, and no rates, so only limiters that see such a request would know its rate. All others would
date and forget the tokens by the limit's own rate, so at a slower rate the fleet would admit more
than the override says. A limit without keys is divided by one rate, which all limiters must know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from drld.client.protocol.long_value import shortened
from drld.model import NS_PER_S
from drld.requests import answer, descriptor
from drld.requests.caller import Client, caller_of
from drld.requests.datapath import RequestDatapath
from drld.requests.grpc.call import CallError, Origin, Status
from drld.requests.grpc.schema import (
    CODE,
    RATE_LIMIT,
    RATE_LIMIT_REQUEST,
    RATE_LIMIT_RESPONSE,
    UNIT,
)
from drld.requests.model import Answer, Request, Standing
from drld.requests.question import MAX_AMOUNT
from drld.requests.spec import Network

MAX_DESCRIPTORS = 64
"""The most descriptors of a request: each is as much work as a request of its own."""
_MAX_UINT32 = 2**32 - 1
_OK, _OVER_LIMIT = CODE.values["OK"], CODE.values["OVER_LIMIT"]
TOO_LARGE = RATE_LIMIT_RESPONSE.encode({"overall_code": _OVER_LIMIT})
"""The answer to a message that is too large to be read; it has no statuses."""
_caller_of = lru_cache(maxsize=1024)(caller_of)
"""Clients ask more than once, and reading an address takes longer than a decision."""
_UNITS_S = {1: "SECOND", 60: "MINUTE", 3600: "HOUR", 86_400: "DAY"}
"""The units of Envoy that are windows of our quotas, s."""


class RateLimitService:
    """Envoy's service: answers calls of `ShouldRateLimit`."""

    def __init__(
        self,
        datapath: RequestDatapath,
        clock: Callable[[], int],
        trusted: Callable[[], Sequence[Network]],
    ) -> None:
        """Make the service.

        Args:
            datapath: decides.
            clock: the clock of the daemon's ticks, ns.
            trusted: the networks of trusted proxies.
        """
        self._datapath = datapath
        self._clock = clock
        self._trusted = trusted

    def should_rate_limit(self, data: bytes, origin: Origin) -> bytes:
        """Return the answer to a `RateLimitRequest`.

        Raises:
            CallError, InputError: a well-configured Envoy does not send such a request.
        """
        asked = RATE_LIMIT_REQUEST.decode(data)
        domain, descriptors = asked.get("domain", ""), asked.get("descriptors", ())
        if not 0 < len(domain) <= descriptor.MAX_BYTES:
            raise _invalid(f"domain: must have 1 to {descriptor.MAX_BYTES} characters")
        if not 1 <= len(descriptors) <= MAX_DESCRIPTORS:
            raise _invalid(f"descriptors: there must be 1 to {MAX_DESCRIPTORS}")
        pairs = [_pairs(it) for it in descriptors]
        caller = self._caller(pairs, origin)
        if overrides := sum("limit" in each for each in descriptors):
            self._datapath.ignore_overrides(overrides)
        requests = []
        for its, each in zip(pairs, descriptors, strict=True):
            if (request := _request(domain, its, each, asked, caller)) is None:
                # Not one of them is known, so none is charged.
                return _refusal(len(descriptors))
            requests.append(request)
        if len({it.charge for it in requests}) > 1:
            raise _invalid("charge: must be an entry of all descriptors, or of none")
        return _response(self._datapath.decide_all(requests, self._clock()))

    def _caller(self, descriptors: Sequence[Mapping[str, str]], origin: Origin) -> str:
        """Return the caller: the one that an entry names, otherwise the client or the one it
        forwards for."""
        for pairs in descriptors:
            if caller := pairs.get("caller"):
                return caller
        for pairs in descriptors:
            if address := pairs.get("remote_address"):
                return address
        return _caller_of(origin.client, origin.forwarded, tuple(self._trusted()))


def _invalid(message: str) -> CallError:
    return CallError(Status.INVALID_ARGUMENT, message)


def _pairs(each: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of a descriptor."""
    pairs: dict[str, str] = {}
    for entry in each.get("entries", ()):
        name = entry.get("key", "")
        if name in pairs:
            raise _invalid("entries: a key must not be given twice: set descriptor_key")
        pairs[name] = shortened(entry.get("value", ""))
    if address := pairs.get("remote_address"):
        # As a caller: one host commonly has the IPv6 addresses of a /64.
        pairs["remote_address"] = _caller_of(Client(address), (), ())
    return pairs


def _request(
    domain: str,
    pairs: Mapping[str, str],
    each: Mapping[str, Any],
    asked: Mapping[str, Any],
    caller: str,
) -> Request | None:
    """Return the request of a descriptor; None: it is too large."""
    if each.get("is_negative_hits"):
        raise _invalid("is_negative_hits: hits cannot be given back")
    hits = each["hits_addend"].get("value", 0) if "hits_addend" in each else None
    if hits is None:
        hits = asked.get("hits_addend") or None
    cost = 1 if hits is None else min(hits, MAX_AMOUNT)
    its = {name: value for name, value in pairs.items() if name not in ("caller", "charge")}
    charge = pairs.get("charge", "false")
    if charge not in ("true", "false"):
        raise _invalid("charge: must be true or false")
    try:
        checked = descriptor.check(its)
    except descriptor.TooLargeError:
        return None
    return Request(domain, checked, cost, (hits and cost) or None, caller, charge=charge == "true")


def _refusal(count: int) -> bytes:
    """Return the refusal of a request that is too large."""
    statuses = [{"code": _OVER_LIMIT}] * count
    return RATE_LIMIT_RESPONSE.encode({"overall_code": _OVER_LIMIT, "statuses": statuses})


def _response(answers: Sequence[Answer]) -> bytes:
    """Return the `RateLimitResponse` with answers in the order of their descriptors."""
    admitted = all(it.admitted for it in answers)
    whole = answers[0] if len(answers) == 1 else _whole(answers, admitted)
    headers = [{"key": name, "value": value} for name, value in answer.fields(whole).items()]
    return RATE_LIMIT_RESPONSE.encode(
        {
            "overall_code": _OK if admitted else _OVER_LIMIT,
            "statuses": [_status(it) for it in answers],
            "response_headers_to_add": headers,
        }
    )


def _whole(answers: Sequence[Answer], admitted: bool) -> Answer:
    """Return all answers as one, for the fields of HTTP.

    Each limit has the state after the last request under it. In a refusal it has the state for the
    request that has to wait longest, because requests may have different keys.
    """
    standings: dict[int, Standing] = {}
    for it in (it for each in answers for it in each.standings):
        known = standings.get(it.limit.id)
        if known is None or (known.wait_ns or 0) <= (it.wait_ns or 0):
            standings[it.limit.id] = it
    refused = [it.refused for it in answers if it.refused is not None]
    # One that never passes is no standing of its answer.
    standings |= {it.limit.id: it for it in refused if it.wait_ns is None}
    return Answer(admitted, list(standings.values()), next(iter(refused), None), None)


def _status(decided: Answer) -> dict[str, Any]:
    """Return the `DescriptorStatus` of the limit that refuses, or has the smallest part left."""
    status: dict[str, Any] = {"code": _OK if decided.admitted else _OVER_LIMIT}
    standing = answer.tightest(decided)
    if standing is None:
        return status
    status["current_limit"] = _limit(standing.limit.name, *answer.quota_of(standing))
    left_ns = standing.wait_ns or standing.reset_ns
    if (remaining := answer.remaining_of(standing)) is not None:
        status["limit_remaining"] = min(math.floor(remaining), _MAX_UINT32)
    if left_ns is not None:
        # Envoy tells its client whole seconds, and would cut a part of one off.
        status["duration_until_reset"] = {"seconds": -(-left_ns // NS_PER_S)}
    return status


@lru_cache(maxsize=1024)
def _limit(name: str, number: int, window_s: int) -> bytes:
    """Return a `RateLimit`; a window that is no unit is written as the next larger unit."""
    unit_s = min((it for it in _UNITS_S if it >= window_s), default=max(_UNITS_S))
    return RATE_LIMIT.encode(
        {
            "requests_per_unit": min(number * unit_s // window_s, _MAX_UINT32),
            "unit": UNIT.values[_UNITS_S[unit_s]],
            "name": name,
        }
    )
