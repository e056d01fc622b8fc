"""The busiest keys of a limit, as `GET /v1/limits/NAME/keys` and `drlctl limit top` show them."""

from __future__ import annotations

from collections.abc import Mapping
from heapq import nlargest
from operator import itemgetter
from typing import cast

from drld.requests.busy_report import BusyKey, BusyReport
from drld.requests.keyed_limit import KeyedLimit

MOST = 1000
"""The most keys in a report."""
MOST_LOOKED_AT = 2048
"""The most keys that a limit may have for a report to examine all; otherwise it examines recent
keys. It takes some milliseconds."""


def busy_report(keyed: KeyedLimit, number: int, peers: int, now_ns: int) -> BusyReport:
    """Return the `number` busiest keys of a limit, and the number of all keys."""
    policy = keyed.limit.policy
    buckets, at_ns = keyed.replica.buckets, keyed.at(now_ns)
    texts = keyed.last_keys()
    # All of a million would take seconds, in which nothing else is done.
    looked_at = buckets if len(buckets) <= MOST_LOOKED_AT else texts
    levels = ((cast(int, key), keyed.replica.level(key, at_ns)) for key in [*looked_at])
    found = nlargest(number, (it for it in levels if it[1] > 0), key=itemgetter(1))
    return BusyReport(
        limit=policy.name,
        unit=policy.unit.name,
        bucket=keyed.form.name.lower(),
        keys=len(buckets),
        max_keys=buckets.max_keys or 0,
        peers=peers,
        busiest=[_key(keyed, key, used, texts) for key, used in found],
    )


def _key(keyed: KeyedLimit, key: int, used: float, texts: Mapping[int, str]) -> BusyKey:
    policy = keyed.limit_of(key).policy
    return BusyKey(
        key=f"{key:016x}",
        text=texts.get(key),
        used=used,
        burst=policy.unit.shown_amount(policy.burst),
    )
