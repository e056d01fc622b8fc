"""An answer in HTTP: the fields `RateLimit-Policy`, `RateLimit` and `Retry-After`.

The limiter writes the same (docs/requests.md); here they are about the one limit that an answer
names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address

from drld.client.protocol.limit_table import LimitTable
from drld.client.protocol.model import Answer

REFUSED, MISTAKEN = 429, 400
"""The statuses of a refusal, and of a question that a limiter does not take, such as one with too
long a name."""


def fields(
    answer: Answer, table: LimitTable | None, descriptor: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the fields of the answer to a request of this descriptor; there are none while no
    limiter answers."""
    found = []
    limits = table.limits if table else ()
    limit = next((it for it in limits if it.name == answer.limit), None)
    # A table that is older than a reload may have other keys.
    if limit is not None and not answer.degraded and all(it in descriptor for it in limit.per):
        if (quota := limit.quota_of(descriptor)) is not None:
            unit = ';qu="content-bytes"' if limit.unit == "bytes" else ""
            policy = f'"{limit.name}";q={quota[0]};w={quota[1]}{unit}'
            found.append(("ratelimit-policy", policy))
        after_s = answer.reset_s if answer.admitted else answer.retry_after_s
        if answer.remaining is not None:
            after = "" if after_s is None else f";t={math.ceil(after_s)}"
            found.append(("ratelimit", f'"{limit.name}";r={math.floor(answer.remaining)}{after}'))
    if not answer.admitted and answer.retry_after_s is not None:
        found.append(("retry-after", str(max(math.ceil(answer.retry_after_s), 1))))
    return found


def refusal(
    answer: Answer, table: LimitTable | None, descriptor: Mapping[str, str]
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, fields and body of the answer to a request that may not pass."""
    if answer.error is not None:
        status, reason = MISTAKEN, answer.error
    else:
        limit = f" {answer.limit}" if answer.limit else ""
        status, reason = REFUSED, f"above the limit{limit}"
    body = json.dumps({"error": reason}).encode()
    own = [("content-type", "application/json"), ("content-length", str(len(body)))]
    return status, [*own, *fields(answer, table, descriptor)], body


def caller_of(address: str) -> str:
    """Return the caller of an address: an IPv6 address stands for its /64, since a host commonly
    has all of it."""
    try:
        known = ip_address(address)
    except ValueError:
        return address
    if isinstance(known, IPv6Address) and known.ipv4_mapped:
        # As servers that listen for both see it; all of IPv4 is in one /64.
        return str(known.ipv4_mapped)
    if isinstance(known, IPv6Address):
        return f"{IPv6Address(int(known) >> 64 << 64)}/64"
    return str(known)
