"""The knowledge that survives a reload: of the membership, and of each limit.

Peers that leave. A peer that a reload removes from the configuration is *departed*. The limiter
sends it nothing more, and keeps it in the membership as a silent peer until it counts nowhere in
the fleet (`Membership.forgotten_ns`). Only then are the limits divided by one limiter less, because
by then all others have released its share. A peer that joins counts at once
(docs/conservative-rule.md).

Peers that stay keep their connections and ages. A new membership begins only if the settings of the
fabric change, or if the limiter has left its fleet. A limit keeps its knowledge as long as its
estimates mean the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

from drld.errors import ConfigError
from drld.gossip.fabrics.membership import Membership
from drld.limiter import membership
from drld.policy import Policy
from drld.spec import LimiterSpec, PlaneSpec, format_endpoint

FIXED = ("name", "listen", "control", "control_group")
"""Keys of `[limiter]` that only a restart can change; each plane has its own."""


def check(old: LimiterSpec, new: LimiterSpec) -> None:
    """Check that a configuration can follow another while the daemon runs.

    Raises:
        ConfigError: a key changed that only a restart can change.
    """
    planes = dict.fromkeys(type(plane) for plane in (*old.planes, *new.planes))
    before, after = (_fixed(spec, planes) for spec in (old, new))
    problems = [
        f"{key}: cannot change from {_written(value)} to {_written(after[key])} while the daemon "
        "runs: restart it"
        for key, value in before.items()
        if value != after[key]
    ]
    if problems:
        raise ConfigError(problems)


def _fixed(spec: LimiterSpec, planes: Iterable[type[PlaneSpec]]) -> dict[str, Any]:
    """The values of the keys that only a restart can change."""
    values = {f"limiter.{key}": getattr(spec, key) for key in FIXED}
    for plane in planes:
        values |= {f"{plane.key}.{key}": it for key, it in spec.plane(plane).fixed().items()}
    return values


def _written(value: Any) -> str:
    """A key's value as a file has it."""
    if isinstance(value, tuple):
        value = format_endpoint(*value)
    return "the default" if value is None else repr(value)


def departed(
    before: Mapping[str, int], running: Membership, spec: LimiterSpec, now_ns: int
) -> dict[str, int]:
    """Peers that the configuration removes, and the time until which the membership keeps them, ns.

    Args:
        before: peers that departed earlier, with their times.
        running: the membership up to now.
        spec: the configuration from now on.
        now_ns: monotonic.
    """
    configured = {peer.name for peer in spec.peers}
    forgotten_ns = now_ns + running.forgotten_ns
    return {
        peer: before.get(peer, forgotten_ns) for peer in running.peers if peer not in configured
    }


def fleet(
    old: LimiterSpec, new: LimiterSpec, running: Membership, departed: Set[str]
) -> Membership:
    """The membership under a new configuration, departed peers included."""
    peers = {peer.name for peer in new.peers} | departed
    if new.gossip == old.gossip and (new.joined or not old.joined):
        return with_peers(running, peers)
    fresh = membership(new.name, {new.name, *peers}, new.gossip)
    fresh.numbering = running.numbering
    return fresh


def with_peers(running: Membership, peers: Set[str]) -> Membership:
    """The same membership, with these peers."""
    return running if peers == set(running.peers) else running.with_peers(peers)


def knowledge_stays(old: Policy, new: Policy) -> bool:
    """Whether a limit's knowledge still applies under its new policy, with the same fabric."""
    return (old.allocator, old.parameters, old.ewma, old.interval_ns, old.flow) == (
        new.allocator,
        new.parameters,
        new.ewma,
        new.interval_ns,
        new.flow,
    )
