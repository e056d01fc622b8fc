"""What is allowed, and better otherwise: for the log, and for `drld --check`."""

from __future__ import annotations

from drld.burst import is_shallow
from drld.config.problems import some
from drld.model import NS_PER_S
from drld.policy import Excess, Policy
from drld.spec import LimiterSpec
from drld.units import format_duration

LONGEST_TUNED_NS = NS_PER_S
"""The longest estimate interval for which the allocators' time constants hold."""


def remarks(spec: LimiterSpec) -> list[str]:
    """A line for each remark on a configuration, the registry's part included."""
    return [*_open(spec), *_shallow(spec), *_ignored(spec), *_long(spec), *_slow(spec)]


def _policies(spec: LimiterSpec) -> list[Policy]:
    return [limit.policy for limit in spec.limits]


def _open(spec: LimiterSpec) -> list[str]:
    if not (spec.ring.keys and spec.ring.accept_unauthenticated):
        return []
    return [
        "gossip.accept_unauthenticated: datagrams without a key are accepted: use this only while "
        "introducing keys (docs/security.md)"
    ]


def _shallow(spec: LimiterSpec) -> list[str]:
    limits = _policies(spec)
    shallow = [limit for limit in limits if is_shallow(limit.burst, limit.rate, limit.unit)]
    if not shallow:
        return []
    # Without their sizes, so that a reload that changes a rate does not log the line again.
    names = some([limit.name for limit in shallow])
    return [
        f"limit.burst: below 0.25 s of the rate: {names}: a lone TCP flow may then stay below the "
        'rate; write a larger burst, or "auto" (docs/operations.md)'
    ]


def _ignored(spec: LimiterSpec) -> list[str]:
    """Keys of limits whose allocator does not carry them out."""
    others = [limit for limit in _policies(spec) if limit.allocator != "fair"]
    ignored = {
        "weights": [limit.name for limit in others if limit.weights],
        "excess": [limit.name for limit in others if limit.excess is Excess.MARK],
    }
    return [
        f'limit.{key}: ignored, as only the allocator "fair" carries it out: {some(names)} '
        "(docs/configuration.md)"
        for key, names in ignored.items()
        if names
    ]


def _long(spec: LimiterSpec) -> list[str]:
    long = [limit for limit in _policies(spec) if limit.interval_ns > LONGEST_TUNED_NS]
    if not long:
        return []
    names = some([f"{limit.name} ({format_duration(limit.interval_ns)})" for limit in long])
    return [
        f"limit.interval: above {format_duration(LONGEST_TUNED_NS)}: {names}: the time constants "
        "of the allocators hold for intervals from 10ms to 1s (docs/operations.md)"
    ]


def _slow(spec: LimiterSpec) -> list[str]:
    round_ns = spec.gossip.interval_ns
    slow = [limit for limit in _policies(spec) if limit.interval_ns > round_ns]
    if not slow or len(spec.members) == 1:
        return []
    names = some([f"{limit.name} ({format_duration(limit.interval_ns)})" for limit in slow])
    return [
        f"limit.interval: longer than gossip.interval, {format_duration(round_ns)}: {names}: these "
        "limits follow changes of demand only once per interval"
    ]
