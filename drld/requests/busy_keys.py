"""The busiest keys of a limit, as `GET /v1/limits/NAME/keys` and `drlctl limit top` show them."""

from __future__ import annotations

from typing import cast

from drld.requests.busy_report import BusyKey, BusyReport
from drld.requests.keyed_limit import KeyedLimit

MOST = 1000
"""Keys of a report."""


def busy_report(keyed: KeyedLimit, number: int, peers: int, now_ns: int) -> BusyReport:
    """The first `number` keys, and how many there are."""
    policy = keyed.limit.policy
    found = keyed.replica.busiest(number, keyed.at(now_ns))
    return BusyReport(
        limit=policy.name,
        unit=policy.unit.name,
        bucket=keyed.form.name.lower(),
        keys=len(keyed.replica.buckets),
        max_keys=keyed.replica.buckets.max_keys or 0,
        peers=peers,
        busiest=[_key(keyed, cast(int, key), used) for key, used in found],
    )


def _key(keyed: KeyedLimit, key: int, used: float) -> BusyKey:
    policy = keyed.limit_of(key).policy
    return BusyKey(
        key=f"{key:016x}",
        text=keyed.text(key),
        used=used,
        burst=policy.unit.shown_amount(policy.burst),
    )
