"""What is allowed, and better otherwise: for the log, and for `drld --check`."""

from __future__ import annotations

from drld.config.problems import some
from drld.spec import LimiterSpec
from drld.units import format_duration


def remarks(spec: LimiterSpec) -> list[str]:
    """A line for each remark on a configuration, the registry's part included."""
    return [*_open(spec), *_slow(spec)]


def _open(spec: LimiterSpec) -> list[str]:
    if not (spec.ring.keys and spec.ring.accept_unauthenticated):
        return []
    return [
        "gossip.accept_unauthenticated: anybody is believed who says that he has no key: for the "
        "way from no keys to keys (docs/security.md)"
    ]


def _slow(spec: LimiterSpec) -> list[str]:
    round_ns = spec.gossip.interval_ns
    slow = [limit for limit in spec.limits if limit.interval_ns > round_ns]
    if not slow or len(spec.members) == 1:
        return []
    names = some([f"{limit.name} ({format_duration(limit.interval_ns)})" for limit in slow])
    return [
        f"limit.interval: longer than gossip.interval, {format_duration(round_ns)}: {names}: news "
        "of the others waits for so long, and until it is taken in a fleet that is cut apart may "
        "exceed the limit (docs/conservative-rule.md)"
    ]
